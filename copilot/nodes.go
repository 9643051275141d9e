package copilot

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Nodes are the nodes of a state as Reconcile wants them, by name. open tells
// whether a node takes holds at all.
func Nodes(cluster *state.State, open func(n *state.Node) bool) []Node {
	nodes := make([]Node, 0, cluster.Nodes.Len())
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		nodes = append(nodes, NodeOf(cluster, node, open(node)))
		return true
	})
	slices.SortFunc(nodes, func(a, b Node) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return nodes
}

// endless is more memory than a node has: where jobs' memory is not counted, that
// of pods is not either.
const endless = 1 << 40

// NodeOf is one of them.
func NodeOf(cluster *state.State, node *state.Node, open bool) Node {
	out := Node{
		Name:     node.Spec.Name,
		Open:     open,
		FreeCPU:  int64(cluster.OpenCPUs(node).Count()),
		SpareCPU: int64(node.HeldCPU.Count())*1000 - node.HeldMilli(),
		FreeMem:  endless,
		FreeGPU:  map[string]int64{},
		Holds:    node.Holds,
	}
	if cluster.Config.Sched.Memory {
		out.FreeMem = node.FreeMem()
	}
	for i := range node.GPUs {
		if node.FreeWhole(i) {
			out.FreeGPU[node.GPUs[i].Type]++
		}
	}
	return out
}

// PodJobOf is a job of pods as the ledger has it. Why it waits is for those to say who
// know the plan.
func PodJobOf(job *state.Job) PodJob {
	podJob := PodJob{
		Run:      JobRun{UID: job.UID, Attempt: job.Attempt, Epoch: job.Epoch},
		ID:       job.ID,
		Pods:     job.Spec.Pods,
		Pending:  job.State == spec.Pending,
		Bindable: job.Bindable(),
		Ends:     job.State.Terminal() || job.Ending != nil,
	}
	if job.Het != nil {
		podJob.Leader = job.Het.Leader
	}
	if podJob.Ends {
		podJob.Why = endText(job)
	}
	if job.HoldsNodes() {
		podJob.Places = job.Spec.Pods.Places(job.Alloc)
	}
	return podJob
}

// endText says why a job ends, for the pods that are deleted.
func endText(job *state.Job) string {
	if job.Ending == nil {
		return "job " + strconv.FormatUint(uint64(job.ID), 10) + " is " + job.State.String()
	}
	switch job.Ending.Cause {
	case event.EndPreempt:
		return "preempted by Muster for another job"
	case event.EndTimeLimit:
		return "the time limit of the job is over"
	case event.EndCancel:
		return cmp.Or(job.Ending.Detail, "the job was cancelled")
	case event.EndDeadline:
		return "the deadline of the job has passed"
	}
	return cmp.Or(job.Ending.Detail, "the job ends")
}
