package nodesets

import (
	"slices"
	"strings"
)

// Power is what the ledger says of a node's power.
type Power uint8

// The kinds of power.
const (
	On    Power = iota // it is up, or comes up
	Off                // it is down, or goes down: the ledger sees to it that no job is on it
	Asked              // it will come up as soon as the rate of resumes allows it
)

// Node is a node as the ledger has it.
type Node struct {
	Name       string
	Power      Power
	Registered bool // its agent is there
	Idle       bool // nobody has anything on it
	Drained    bool // no job is started on it, by whomever
	Ours       bool // it was drained because it was to leave this NodeSet
	Cloud      bool // its power is the ledger's to switch
}

// Pod is a pod as it was seen.
type Pod struct {
	Name     string // the node's
	Over     bool   // it has failed or ended, and will not come back
	Deleting bool
}

// Plan is what to do next. Each part may fail or be done twice.
type Plan struct {
	Create []string // pods
	Delete []string // pods
	Drain  []string // nodes that are to leave
	Off    []string // nodes to power down, which have left
	Resume []string // nodes that are wanted again
	// Gone: a NodeSet that is deleted has nothing left.
	Gone bool
}

// Make compares the nodes that a NodeSet names with the ledger and with its pods. A node
// that the ledger does not know has no pod. leaving tells that the NodeSet is deleted.
//
// What keeps jobs: a pod is deleted only if it is over, or if the ledger has powered the
// node down, does not know the node, or has it drained and idle. Drains of others are
// never undone.
func Make(names []string, nodes map[string]Node, pods []Pod, leaving bool) Plan {
	var plan Plan
	wanted := map[string]bool{}
	if !leaving {
		for _, name := range names {
			wanted[name] = true
		}
	}
	there := map[string]bool{}
	for _, pod := range pods {
		there[pod.Name] = true
		node, known := nodes[pod.Name]
		switch {
		case pod.Deleting:
		case !known, node.Power == Off, pod.Over:
			plan.Delete = append(plan.Delete, pod.Name)
		case wanted[pod.Name]:
		case !node.Drained:
			plan.Drain = append(plan.Drain, pod.Name)
		case !node.Idle: // its jobs end by themselves
		case node.Cloud:
			// The pod goes when the power is off: a node that merely fell silent would be down.
			plan.Off = append(plan.Off, pod.Name)
		default:
			plan.Delete = append(plan.Delete, pod.Name)
		}
	}
	for _, name := range names {
		node, known := nodes[name]
		if !known || !wanted[name] {
			continue
		}
		if node.Power == On && !there[name] {
			plan.Create = append(plan.Create, name)
		}
		if node.Drained && node.Ours {
			plan.Resume = append(plan.Resume, name)
		}
	}
	for _, list := range [][]string{plan.Create, plan.Delete, plan.Drain, plan.Off, plan.Resume} {
		slices.Sort(list)
	}
	plan.Gone = leaving && len(pods) == 0
	return plan
}

// Why is the reason with which nodes that leave are drained.
func Why(set string) string { return "muster-kube-nodes: leaves NodeSet " + set }

// idleState tells from the words of a node's state that nobody has a part of it.
func idleState(state string) bool {
	base, _, _ := strings.Cut(state, "+")
	return base != "MIXED" && base != "ALLOCATED"
}
