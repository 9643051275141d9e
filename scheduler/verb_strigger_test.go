package scheduler_test

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// strigger sets, clears, lists and ends runs of triggers.
//
//	$ strigger set down node=n1 job=3 offset=60s perm
//	$ strigger ran 2
//	$ strigger clear 1
//	$ strigger
func strigger(s *session, args []string) error {
	if len(args) == 1 {
		for _, t := range s.head.Triggers {
			s.printf("%d %s node=%s job=%d offset=%s perm=%v", t.ID, t.Kind, t.Node, t.Job, when2(t.Offset), t.Permanent)
			for _, pull := range t.Pulls {
				s.printf(" due(%s %s)", when(pull.Due), pull.What)
			}
			s.printf("\n")
		}
		return nil
	}
	switch args[1] {
	case "clear", "ran":
		id, err := strconv.ParseUint(args[2], 10, 32)
		if err != nil {
			return err
		}
		if args[1] == "clear" {
			_, err = s.decide(scheduler.ClearTrigger{ID: uint32(id)})
			return err
		}
		for _, pull := range s.head.Trigger(uint32(id)).Pulls {
			if _, err := s.decide(scheduler.TriggerRan{ID: uint32(id), Pull: pull}); err != nil {
				return err
			}
		}
		return nil
	}
	trigger := spec.Trigger{Kind: spec.ParseTriggerKind(args[2]), Program: "/bin/x", UID: uidOf(s.user), User: s.user}
	for _, word := range args[3:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "node":
			trigger.Node = value
		case "job":
			n, err := strconv.ParseUint(value, 10, 32)
			if err != nil {
				return err
			}
			trigger.Job = spec.JobUID(n)
		case "offset":
			trigger.Offset = span(strings.TrimPrefix(value, "-"))
			if strings.HasPrefix(value, "-") {
				trigger.Offset = -trigger.Offset
			}
		case "perm":
			trigger.Permanent = true
		}
	}
	res, err := s.decide(scheduler.SetTriggers{Triggers: []spec.Trigger{trigger}})
	if err == nil {
		s.printf("trigger %v\n", res.Triggers)
	}
	return err
}

// when2 prints a span that may be negative.
func when2(d spec.Span) string { return strconv.FormatInt(int64(d/spec.Second), 10) + "s" }
