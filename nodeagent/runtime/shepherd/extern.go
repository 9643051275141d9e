//go:build linux

package shepherd

import (
	"fmt"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
)

// adoptProcess makes a process of the node one of a run: it is held to the limits of
// the run from then on, counted with it and ended with it.
func (s *Shepherd) adoptProcess(q protocol.Adopt) error {
	s.mu.Lock()
	defer s.mu.Unlock() // the group is not removed meanwhile
	r := s.runs[q.Key]
	switch {
	case r == nil:
		return &protocol.Error{Code: protocol.CodeNotFound, Text: "no run " + q.Key.String() + " on this node"}
	case r.state != plan.Running || r.killSent != 0 || r.termUntil != 0:
		return &protocol.Error{
			Code: protocol.CodeBadRequest,
			Text: fmt.Sprintf("run %s is ending or has not begun: nothing can be put into it", q.Key),
		}
	case q.PID <= 1:
		return &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("invalid process %d", q.PID)}
	}
	if err := r.group.Adopt(int(q.PID)); err != nil {
		return fmt.Errorf("run %s: %w", q.Key, err)
	}
	return nil
}
