package scheduler_test

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// foreign takes a part of a node for another scheduler, or gives it back: take
// NODE ID milli= mem= gpus= type= uuid=, space=, owner=, running; release NODE ID.
//
//	$ foreign take n1 pod1 milli=2735 mem=3417
func foreign(s *session, args []string) error {
	if args[1] == "release" {
		_, err := s.decide(scheduler.ReleaseForeignHold{Node: args[2], ID: args[3], Why: "deleted"})
		return err
	}
	c := scheduler.TakeForeignHold{Node: args[2], Hold: spec.ForeignHold{ID: args[3], Space: "web", Owner: args[3]}}
	for _, a := range args[4:] {
		k, v, _ := strings.Cut(a, "=")
		n, _ := strconv.ParseInt(v, 10, 64)
		switch k {
		case "milli":
			c.Hold.MilliCPU = n
		case "mem":
			c.Hold.Mem = n
		case "gpus":
			c.GPUs = n
		case "type":
			c.GPUType = v
		case "uuid":
			c.Hold.GPUs = append(c.Hold.GPUs, spec.GPURef{UUID: v})
		case "running":
			c.Running = true
		default:
			s.t.Fatalf("foreign: unknown word %q", a)
		}
	}
	res, err := s.decide(c)
	if err == nil && res.Message != "" {
		s.printf("%s\n", res.Message)
	}
	return err
}
