package scheduler_test

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
)

// events lists what the last command brought about.
//
//	$ events
//	JobEndRequested 4 time limit
func events(s *session, _ []string) error {
	list := s.last
	for i := range list {
		s.printf("%s%s\n", list[i].Event.Kind(), s.detail(list[i].Event))
	}
	return nil
}

func (s *session) detail(ev event.Event) string {
	causes := map[event.EndCause]string{event.EndCancel: "cancel", event.EndTimeLimit: "time limit", event.EndRequeue: "requeue", event.EndNodeLost: "node lost",
		event.EndLaunchFailed: "launch failed", event.EndDeadline: "deadline", event.EndPreempt: "preempt"}
	switch e := ev.(type) {
	case *event.JobEndRequested:
		return fmt.Sprintf(" %s %s", s.title(s.head.Job(e.UID)), causes[e.Cause])
	case *event.JobSignalled:
		return fmt.Sprintf(" %s signal %d scope %d", s.title(s.head.Job(e.UID)), e.Signal, e.Scope)
	case *event.JobEnded:
		return fmt.Sprintf(" %s %s", s.title(s.head.Job(e.UID)), e.State)
	case *event.JobRequeued:
		return fmt.Sprintf(" %s %s", s.title(s.head.Job(e.UID)), e.Reason)
	case *event.JobPurged:
		return fmt.Sprintf(" %d", len(e.UIDs))
	case *event.NodeStateSet:
		return fmt.Sprintf(" %s %s", e.Node, e.Reason)
	case *event.ReasonsChanged:
		return fmt.Sprintf(" of %d", len(e.Jobs))
	}
	return ""
}

func started(list []event.Envelope) []*event.JobStarted {
	var out []*event.JobStarted
	for i := range list {
		if e, ok := list[i].Event.(*event.JobStarted); ok {
			out = append(out, e)
		}
	}
	return out
}
