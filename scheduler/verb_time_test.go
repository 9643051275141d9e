package scheduler_test

import (
	"github.com/musterhpc/muster/scheduler"
)

// advance lets time pass, then ticks.
//
//	$ advance 10m
func advance(s *session, args []string) error {
	s.now = s.now.Add(span(args[1]))
	return tick(s, args)
}

// tick is the controller's timer at the present instant.
//
//	$ tick
func tick(s *session, _ []string) error {
	_, err := s.decide(scheduler.Tick{})
	return err
}
