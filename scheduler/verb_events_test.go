package scheduler_test

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec/hostlist"
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
		event.EndLaunchFailed: "launch failed", event.EndDeadline: "deadline", event.EndPreempt: "preempt", event.EndBoot: "boot"}
	switch e := ev.(type) {
	case *event.JobEndRequested:
		return fmt.Sprintf(" %s %s", s.title(s.head.Job(e.UID)), causes[e.Cause])
	case *event.JobSignalled:
		return fmt.Sprintf(" %s signal %d scope %d", s.title(s.head.Job(e.UID)), e.Signal, e.Scope)
	case *event.JobEnded:
		job := s.head.Job(e.UID)
		late := ""
		if e.At != 0 {
			late = fmt.Sprintf(" after %d s", e.At.Sub(job.Started).Seconds())
		}
		return fmt.Sprintf(" %s %s%s%s", s.title(job), e.State, late, due(e.Epilog))
	case *event.JobRequeued:
		return fmt.Sprintf(" %s %s%s", s.title(s.head.Job(e.UID)), e.Reason, due(e.Epilog))
	case *event.JobPurged:
		return fmt.Sprintf(" %d", len(e.UIDs))
	case *event.NodeStateSet:
		return fmt.Sprintf(" %s %s", e.Node, e.Reason)
	case *event.NodePowered:
		to := [...]string{event.PowerOn: "on", event.PowerDownWish: "wished down", event.PowerDownASAP: "down asap", event.PoweringDown: "going down", event.PoweredDown: "down",
			event.PowerUpWish: "wished up", event.PoweringUp: "coming up"}[e.To]
		return strings.TrimRight(fmt.Sprintf(" %s %s %s", hostlist.Fold(e.Nodes), to, e.Why), " ")
	case *event.NodeReboot:
		return fmt.Sprintf(" %s %d", e.Node, e.Phase)
	case *event.ReasonsChanged:
		return fmt.Sprintf(" of %d", len(e.Jobs))
	}
	return ""
}

func due(epilog bool) string {
	if epilog {
		return ", epilog due"
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
