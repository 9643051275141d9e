package scheduler_test

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
)

// sinfo lists nodes with what is used of them.
//
//	$ sinfo
//	NODE STATE CPUS MEM  GPUS REASON
//	n1   idle  0/8  0/16000 0/8
func sinfo(s *session, _ []string) error {
	rows := [][]string{{"NODE", "STATE", "CPUS", "MEM", "GPUS", "REASON"}}
	s.head.Nodes.Range(func(_ uint64, n *state.Node) bool {
		rows = append(rows, []string{n.Spec.Name, nodeState(n), fmt.Sprintf("%d/%d", n.UsedCPU.Count(), n.CPUs),
			fmt.Sprintf("%d/%d", n.UsedMem, n.Mem), fmt.Sprintf("%d/%d", n.UsedGPU.Count(), len(n.GPUs)), n.Reason})
		return true
	})
	s.table(rows)
	return nil
}

func nodeState(n *state.Node) string {
	mark := map[event.PowerState]string{event.PowerDownWish: "!", event.PowerDownASAP: "!!", event.PoweringDown: "%", event.PoweredDown: "~",
		event.PowerUpWish: "##", event.PoweringUp: "#"}[n.Power]
	if r := n.Reboot; r != nil && r.Issued {
		mark += "^"
	} else if r != nil {
		mark += "@"
	}
	return plainState(n) + mark
}

func plainState(n *state.Node) string {
	base := "idle"
	if len(n.Jobs) > 0 {
		base = "busy"
	}
	switch {
	case n.Inv == nil && !n.Asleep():
		return "unknown"
	case n.Invalid != "":
		return "invalid"
	case n.Admin == event.NodeDown:
		return "down"
	case n.Admin == event.NodeDrain:
		return base + "+drain"
	case n.Admin == event.NodeFail:
		return base + "+fail"
	case n.Lost:
		return base + "*"
	}
	return base
}
