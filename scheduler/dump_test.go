package scheduler_test

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
)

// dump is what a pass proposed and on what, for a failure that is hard to read
// from what was drawn.
func dump(out *scheduler.Outcome, st *state.State) string {
	var s strings.Builder
	for i := range out.Starts {
		x := &out.Starts[i]
		fmt.Fprintf(&s, "start %d task %d in %s", x.UID, x.Task, x.Alloc.Partition)
		for k := range x.Alloc.Nodes {
			a := &x.Alloc.Nodes[k]
			fmt.Fprintf(&s, " %s:%v+%dM", a.Name, a.CPUs, a.Mem)
		}
		s.WriteByte('\n')
	}
	for _, x := range out.Preempts {
		fmt.Fprintf(&s, "preempt %+v\n", x)
	}
	for _, x := range out.Turns {
		fmt.Fprintf(&s, "turn %+v\n", x)
	}
	st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		fmt.Fprintf(&s, "job %d %v/%d in %v, ending %v, claims %v, yields %v, started %d, stands since %d, tasks %v, %v", j.UID, j.State, j.Attempt, j.Spec.Partitions,
			j.Ending, j.Claim, j.Yields, j.Started, j.SuspendedAt, j.Tasks, j.Reason)
		if j.HoldsNodes() {
			for i := range j.Alloc.Nodes {
				fmt.Fprintf(&s, " %s:%v done %v", j.Alloc.Nodes[i].Name, j.Alloc.Nodes[i].CPUs, j.Done.Has(i))
			}
		}
		sz := &j.Spec.Size
		fmt.Fprintf(&s, "; nodes %d-%d tasks %d/%d cpus %d mem %d gres %v %v %v licences %v limit %d\n", sz.MinNodes, sz.MaxNodes, sz.Tasks, sz.TasksPerNode, sz.CPUsPerTask,
			sz.MemPerNode, sz.PerNode, sz.PerJob, sz.PerTask, j.Spec.Licenses, j.Spec.Time.Limit)
		return true
	})
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		fmt.Fprintf(&s, "node %s: %d CPUs, used %v, %dM of %dM, jobs %v, usable %v\n", n.Spec.Name, n.CPUs, n.UsedCPU, n.FreeMem(), n.Mem, n.Jobs, n.Usable())
		return true
	})
	for i := range st.Reservations {
		fmt.Fprintf(&s, "reservation %+v\n", st.Reservations[i])
	}
	fmt.Fprintf(&s, "at %v\n", st.At)
	return s.String()
}
