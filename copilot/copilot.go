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
	// Admits are the nodes that its labels, taints and conditions allow, in no order.
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

// fits tells whether the node seems to have room. Muster has the last word.
func (n *Node) fits(a *Ask) bool {
	return n.Open && n.FreeCPU*1000+n.SpareCPU >= a.MilliCPU && n.FreeMem >= a.Mem &&
		n.gpus(a.GPUType) >= a.GPUs
}

func (n *Node) gpus(typ string) int64 {
	if typ != "" {
		return n.FreeGPU[typ]
	}
	var sum int64
	//muster:unordered a sum
	for _, free := range n.FreeGPU {
		sum += free
	}
	return sum
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
		nodes: slices.Clone(nodes),
		pods:  slices.Clone(pods),
	}
	for i := range nodes {
		for k := range nodes[i].Holds {
			h := &nodes[i].Holds[k]
			r.holds[h.ID] = append(r.holds[h.ID], held{nodes[i].Name, h})
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
	for i := range r.nodes {
		for _, h := range r.nodes[i].Holds {
			if !known[h.ID] {
				r.plan.Releases = append(
					r.plan.Releases,
					Release{Node: r.nodes[i].Name, Hold: h.ID, Why: "deleted", Pod: h.Space +
						"/" + h.Owner, Confirm: true},
				)
			}
		}
	}
	return r.plan
}

type reconciler struct {
	pods  []Pod
	nodes []Node // with less free as holds are asked for
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
	case mine == nil && here != "" && !r.ours(here): // not a node of Muster
	case mine == nil && here != "":
		r.plan.Takes = append(r.plan.Takes, Take{Pod: *pod, Node: here, Running: true})
	case pod.Deleting || !pod.Gated:
	case mine != nil:
		r.plan.LetGo = append(r.plan.LetGo, LetGo{Pod: *pod, Node: mine.node, GPUs: mine.hold.GPUs})
	default:
		r.find(pod)
	}
}

// ours tells a node of the ledger.
func (r *reconciler) ours(node string) bool {
	return slices.ContainsFunc(r.nodes, func(n Node) bool { return n.Name == node })
}

func (r *reconciler) give(p *Pod, h *held, why string) {
	r.plan.Releases = append(
		r.plan.Releases,
		Release{Node: h.node, Hold: p.UID, Why: why, Pod: p.Namespace +
			"/" + p.Name},
	)
}

// find chooses the node with the least room that has enough, so that large jobs
// and pods find nodes that are whole.
func (r *reconciler) find(pod *Pod) {
	var best *Node
	admitted := 0
	for i := range r.nodes {
		node := &r.nodes[i]
		if !slices.Contains(pod.Admits, node.Name) {
			continue
		}
		admitted++
		if node.fits(&pod.Ask) && (best == nil || node.less(best)) {
			best = node
		}
	}
	switch {
	case best != nil:
		best.take(&pod.Ask)
		r.plan.Takes = append(r.plan.Takes, Take{Pod: *pod, Node: best.Name, LetGo: true})
	case admitted == 0:
		r.plan.Waits = append(
			r.plan.Waits,
			Wait{*pod, "no node of Muster admits the pod (labels, taints, conditions)"},
		)
	default:
		r.plan.Waits = append(r.plan.Waits, Wait{*pod, "jobs and pods leave no node enough room"})
	}
}

// less orders nodes by what is free: devices first.
func (n *Node) less(o *Node) bool {
	return cmp.Or(cmp.Compare(n.gpus(""), o.gpus("")), cmp.Compare(n.FreeCPU, o.FreeCPU), cmp.Compare(n.FreeMem, o.FreeMem), strings.Compare(n.Name, o.Name)) < 0
}

// take counts a hold that is asked for.
func (n *Node) take(ask *Ask) {
	n.SpareCPU -= ask.MilliCPU
	if n.SpareCPU < 0 {
		more := spec.WholeCPUs(-n.SpareCPU, 1)
		n.FreeCPU -= more
		n.SpareCPU += more * 1000
	}
	n.FreeMem -= ask.Mem
	free := map[string]int64{}
	left := ask.GPUs
	for _, typ := range n.types() {
		out := int64(0)
		if ask.GPUType == "" || ask.GPUType == typ {
			out = min(left, n.FreeGPU[typ])
		}
		left -= out
		free[typ] = n.FreeGPU[typ] - out
	}
	n.FreeGPU = free
}

func (n *Node) types() []string {
	var out []string
	//muster:unordered the names are sorted below
	for typ := range n.FreeGPU {
		out = append(out, typ)
	}
	slices.Sort(out)
	return out
}

// Gone judges a fresh look at the pod of a hold, by its name; nil: there is none.
// Names come again, uids do not.
func Gone(r Release, now *Pod) bool {
	return now == nil || now.UID != r.Hold || now.Over
}
