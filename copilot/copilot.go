// Package copilot decides what keeps Kubernetes and the ledger in step: which
// holds to take for pods that wait at the gate, which to give back, and which pods
// to let through. It is a function of the pods that were seen and of the holds in
// the ledger, so that the program that does it and the simulator run the same code.
//
// A pod waits behind a scheduling gate. The hold is an event of the ledger first;
// then the gate is removed and the pod pinned to the node of its hold, in one
// write. Kubernetes' own scheduler binds it. A crash at any point leaves either a
// hold for a pod that is still gated, which is let through later, or a pod that
// waits.
//
// What was seen of pods may be old, and what was sent may arrive late. Therefore a
// hold is given back only for what is final in Kubernetes: the pod has ended, is
// bound or pinned to another node, or does not exist. Only the last cannot be
// known from an old look, so that it is asked again, and Gone judges the answer. A
// pod that is gated keeps every hold that was ever taken for it until it is
// pinned to one of them, so that no late write can pin it to a node without one.
package copilot

import (
	"cmp"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Ask is what a pod needs of a node.
type Ask struct {
	MilliCPU int64
	Mem      int64 // MiB
	GPUs     int64
	GPUType  string // empty: any
}

// Pod is a pod as it was seen.
type Pod struct {
	UID             string
	Namespace, Name string
	Created         spec.Instant
	Priority        int64
	Ask             Ask
	Gated           bool   // it waits for a hold
	Pinned          string // the only node that it may go to; empty: not let through by us
	Node            string // it is bound to; empty: not yet
	Over            bool   // it has succeeded or failed, which is final
	Deleting        bool   // it is to go and may still run
	// OwnJob tells that it is of a job of the ledger, which has for it what it requests.
	OwnJob bool
	// Admits are the nodes that its labels, taints and conditions allow, in no order.
	// Pods that are admitted alike should share the slice: it is then read once.
	Admits []string
}

// place is the node that the pod is on or may come to; empty: none yet.
func (p *Pod) place() string { return cmp.Or(p.Node, p.Pinned) }

// Node is a node of the ledger with what is free on it and what is held.
type Node struct {
	Name     string
	Open     bool  // it takes holds
	FreeCPU  int64 // whole CPUs that nobody has
	SpareCPU int64 // thousandths of the holds' CPUs that no hold needs
	FreeMem  int64
	FreeGPU  map[string]int64 // by type
	Holds    []spec.ForeignHold
}

// Take asks Muster for a hold.
type Take struct {
	Pod     Pod
	Node    string
	Running bool // the pod is there, or may be at any moment
	LetGo   bool // let the pod through once the hold is durable
}

// Release gives a hold back.
type Release struct {
	Node, Hold, Why string
	Pod             string // NAMESPACE/NAME to ask about
	// Confirm: the pod was not seen, so that Gone must judge a fresh look first.
	Confirm bool
}

// LetGo removes a pod's gate and pins it to the node of its hold.
type LetGo struct {
	Pod  Pod
	Node string
	GPUs []spec.GPURef
}

// Wait is a pod for which no node has room now.
type Wait struct {
	Pod Pod
	Why string
}

// Plan is what to do next, in this order. Each part may fail or be done twice.
type Plan struct {
	Releases []Release
	LetGo    []LetGo
	Takes    []Take
	Waits    []Wait
}

// place of a hold.
type held struct {
	node string
	hold *spec.ForeignHold
}

// Reconcile compares what was seen. At most one hold is asked for each pod at a time.
func Reconcile(pods []Pod, nodes []Node) Plan {
	r := &reconciler{
		holds: map[string][]held{},
		rooms: newRooms(nodes),
		pods:  slices.Clone(pods),
	}
	for i := range nodes {
		for k := range nodes[i].Holds {
			hold := &nodes[i].Holds[k]
			r.holds[hold.ID] = append(r.holds[hold.ID], held{nodes[i].Name, hold})
		}
	}
	slices.SortFunc(r.pods, func(a, b Pod) int {
		return cmp.Or(
			-cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(a.Created, b.Created),
			strings.Compare(a.UID, b.UID),
		)
	})
	known := map[string]bool{}
	for i := range r.pods {
		known[r.pods[i].UID] = true
		r.settle(&r.pods[i])
	}
	for i := range nodes {
		for _, hold := range nodes[i].Holds {
			if !known[hold.ID] {
				r.plan.Releases = append(
					r.plan.Releases,
					Release{Node: nodes[i].Name, Hold: hold.ID, Why: "deleted", Pod: hold.Space +
						"/" + hold.Owner, Confirm: true},
				)
			}
		}
	}
	return r.plan
}

type reconciler struct {
	pods  []Pod
	rooms *rooms // with less free as holds are asked for
	holds map[string][]held
	plan  Plan
}

// settle decides about one pod.
func (r *reconciler) settle(pod *Pod) {
	here := pod.place()
	var mine *held
	all := r.holds[pod.UID]
	for i := range all {
		h := &all[i]
		switch {
		case pod.Over:
			r.give(pod, h, "over")
		case here != "" && h.node != here:
			r.give(pod, h, "elsewhere")
		case mine == nil:
			mine = h
		}
	}
	switch {
	case pod.Over:
	case mine == nil && here != "" && !r.rooms.has(here): // not a node of Muster
	case mine == nil && here != "" && pod.OwnJob:
	case mine == nil && here != "":
		r.plan.Takes = append(r.plan.Takes, Take{Pod: *pod, Node: here, Running: true})
	case pod.Deleting || !pod.Gated:
	case mine != nil:
		r.plan.LetGo = append(r.plan.LetGo, LetGo{Pod: *pod, Node: mine.node, GPUs: mine.hold.GPUs})
	default:
		r.find(pod)
	}
}

func (r *reconciler) give(pod *Pod, h *held, reason string) {
	r.plan.Releases = append(
		r.plan.Releases,
		Release{Node: h.node, Hold: pod.UID, Why: reason, Pod: pod.Namespace +
			"/" + pod.Name},
	)
}

// find asks for a hold where the pod fits best.
func (r *reconciler) find(pod *Pod) {
	allowed := r.rooms.admit(pod.Admits)
	if allowed.count == 0 {
		r.plan.Waits = append(
			r.plan.Waits,
			Wait{*pod, "no node of Muster admits the pod (labels, taints, conditions)"},
		)
		return
	}
	node, ok := r.rooms.take(&pod.Ask, allowed)
	if !ok {
		r.plan.Waits = append(r.plan.Waits, Wait{*pod, "jobs and pods leave no node enough room"})
		return
	}
	r.plan.Takes = append(r.plan.Takes, Take{Pod: *pod, Node: node, LetGo: true})
}

// Gone judges a fresh look at the pod of a hold, by its name; nil: there is none.
// Names come again, uids do not.
func Gone(release Release, now *Pod) bool {
	return now == nil || now.UID != release.Hold || now.Over
}
