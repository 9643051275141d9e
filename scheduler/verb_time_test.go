package scheduler_test

import (
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
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
	_, err := s.decide(scheduler.Tick{East: func(spec.Instant) spec.Span { return s.east }})
	return err
}

// zone says how far the clocks of the cluster's zone are ahead of UTC. A script
// begins on Friday, 15 January 2027, at 8:00 UTC.
//
//	$ zone 9h
func zone(s *session, args []string) error {
	s.east = span(args[1])
	return nil
}
