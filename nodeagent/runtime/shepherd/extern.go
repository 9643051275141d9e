//go:build linux

package shepherd

import (
	"fmt"
	"os"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"golang.org/x/sys/unix"
)

// badPlaceholder finds what must not run with the shepherd's own rights: a placeholder
// is not the user's program.
func badPlaceholder(runSpec *plan.RunSpec) bool {
	return len(runSpec.Script) > 0 || runSpec.Tasks != nil || runSpec.Container != nil ||
		runSpec.Login != nil ||
		runSpec.TaskProlog != "" || runSpec.TaskEpilog != ""
}

// protectPlaceholder keeps the kernel from choosing the first process of a placeholder
// when memory is short, of the job or of the node: what was put into the run is ended
// then, and the run goes on. Only root may ask for that.
func (s *Shepherd) protectPlaceholder(r *run, pid int) {
	if !s.root {
		return
	}
	path := fmt.Sprintf("/proc/%d/oom_score_adj", pid)
	if err := os.WriteFile(path, []byte("-1000"), 0); err != nil {
		s.log.Warn("a shortage of memory can end a run that others are put into", aboutRun(r), "err", err)
	}
}

// signalGuests sends a signal to the processes that were put into a placeholder, and
// not to the one that keeps it.
func (s *Shepherd) signalGuests(r *run, signal unix.Signal) {
	// a process may make others before it is reached
	again := signal == unix.SIGSTOP || signal == unix.SIGKILL
	sent := map[int]bool{r.PID: true}
	for found := true; found; found = found && again {
		pids, err := s.listMembers(r)
		if err != nil {
			s.log.Warn("signal not delivered", aboutRun(r), "err", err)
		}
		found = false
		for _, pid := range pids {
			if !sent[pid] {
				sent[pid] = true
				found = true
				_ = unix.Kill(pid, signal)
			}
		}
	}
}

// adoptProcess makes a process of the node one of a run: it is held to the limits of
// the run from then on, counted with it and ended with it.
func (s *Shepherd) adoptProcess(adopt protocol.Adopt) error {
	s.mu.Lock()
	defer s.mu.Unlock() // the group is not removed meanwhile
	r := s.runs[adopt.Key]
	switch {
	case r == nil:
		return &protocol.Error{Code: protocol.CodeNotFound, Text: "no run " + adopt.Key.String() +
			" on this node"}
	case r.state != plan.Running || r.killSent != 0 || r.termUntil != 0:
		return &protocol.Error{
			Code: protocol.CodeBadRequest,
			Text: fmt.Sprintf(
				"run %s is ending or has not begun: nothing can be put into it", adopt.Key,
			),
		}
	case adopt.PID <= 1:
		return &protocol.Error{
			Code: protocol.CodeBadRequest, Text: fmt.Sprintf("invalid process %d", adopt.PID),
		}
	}
	if err := r.group.Adopt(int(adopt.PID)); err != nil {
		return fmt.Errorf("run %s: %w", adopt.Key, err)
	}
	return nil
}
