package scheduler_test

import (
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

func (s *session) holder() spec.Hold {
	if s.user == "root" {
		return spec.HeldByAdmin
	}
	return spec.HeldByUser
}

// hold keeps jobs from starting.
//
//	$ hold 4
func hold(s *session, args []string) error {
	return s.eachJob(args[1:], func(t scheduler.Target) scheduler.Command { return scheduler.Hold{Target: t, By: s.holder()} })
}

// suspend stops jobs; goon lets them go on.
//
//	$ suspend 4
func suspend(s *session, args []string) error {
	for _, a := range args[1:] {
		t, _, err := s.target(a)
		if err != nil {
			return err
		}
		var cmd scheduler.Command = scheduler.Suspend{Target: t}
		if args[0] == "goon" {
			cmd = scheduler.Resume{Target: t}
		}
		if _, err := s.decide(cmd); err != nil {
			return err
		}
	}
	return nil
}

// release ends a hold.
//
//	$ release 4
func release(s *session, args []string) error {
	return s.eachJob(args[1:], func(t scheduler.Target) scheduler.Command { return scheduler.Release{Target: t} })
}

// requeue, and requeuehold, put running or finished jobs back into the queue.
//
//	$ requeue 4
func requeue(s *session, args []string) error {
	h := spec.NotHeld
	if args[0] == "requeuehold" {
		h = s.holder()
	}
	return s.eachJob(args[1:], func(t scheduler.Target) scheduler.Command { return scheduler.Requeue{Target: t, Hold: h} })
}

// top moves jobs before their user's others.
//
//	$ top 4
func top(s *session, args []string) error {
	return s.eachJob(args[1:], func(t scheduler.Target) scheduler.Command {
		return scheduler.TopJob{Target: t, Admin: s.user == "root"}
	})
}

// scancel ends jobs; -s sends a signal, -b to the batch shell, -f to all.
//
//	$ scancel 4 5_7
func scancel(s *session, args []string) error {
	c := scheduler.Cancel{}
	var jobs []string
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-s":
			i++
			n, err := format.ParseSignal(args[i])
			if err != nil {
				return err
			}
			c.Signal = int32(n)
		case "-b":
			c.Scope = event.SignalBatch
		case "-f":
			c.Scope = event.SignalFull
		case "--cron":
			c.Cron = true
		case "--admin-comment":
			i++
			c.Comment = args[i]
		default:
			jobs = append(jobs, args[i])
		}
	}
	return s.eachJob(jobs, func(t scheduler.Target) scheduler.Command {
		c.Target = t
		return c
	})
}

// update changes a job: scontrol's keys.
//
//	$ update 4 TimeLimit=10 Name=other
func update(s *session, args []string) error {
	t, _, err := s.target(args[1])
	if err != nil {
		return err
	}
	c := scheduler.UpdateJob{Target: t, Admin: s.user == "root"}
	for _, a := range args[2:] {
		k, v, _ := strings.Cut(a, "=")
		c.Changes = append(c.Changes, spec.KeyValue{Key: strings.ToLower(k), Value: v})
	}
	_, err = s.decide(c)
	return err
}

func (s *session) eachJob(jobs []string, cmd func(t scheduler.Target) scheduler.Command) error {
	for _, text := range jobs {
		t, _, err := s.target(text)
		if err != nil {
			return err
		}
		if _, err := s.decide(cmd(t)); err != nil {
			return err
		}
	}
	return nil
}
