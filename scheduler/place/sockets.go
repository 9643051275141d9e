package place

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// perSocket is how many CPUs each socket of a node has; socket k has the CPUs
// from k times that on. 0 = the node's sockets are not known.
func perSocket(n *state.Node) int64 {
	if n.Spec.Sockets < 2 {
		return 0
	}
	return n.Spec.CPUs / n.Spec.Sockets
}

// overSockets picks free CPUs such that each socket has those of at most as
// many tasks as --ntasks-per-socket says, as far as they are free there. It is
// nil if there are not enough.
func overSockets(n *state.Node, want int64, d *Demand) spec.Bitset {
	step := 1
	if d.Cores {
		step = int(max(n.Spec.ThreadsPerCore, 1))
	}
	out, each := make(spec.Bitset, (n.Spec.TopCPU()+63)/64), perSocket(n)
	most := divideUp(d.PerSocket*d.CPUsPerTask, int64(step)) * int64(step)
	for k := int64(0); k < n.Spec.Sockets && want > 0 && each > 0; k++ {
		var here spec.Bitset
		for cpu := k * each; cpu < (k+1)*each; cpu++ {
			here = here.Set(int(cpu))
		}
		quota := min(want, most)
		want -= quota - max(takeCores(n, out, here, step, quota), 0)
	}
	if want > 0 {
		want = takeCores(n, out, nil, step, want)
	}
	if want > 0 {
		return nil
	}
	return out
}

// nearSockets picks GPUs such that each of as many sockets as are needed has so
// many near it, the first sockets first. It is nil where that cannot be, or
// which socket a GPU is near is not known.
func nearSockets(n *state.Node, taken []spec.GPURef, c spec.Count, each int64) []spec.GPURef {
	size := perSocket(n)
	if each == 0 || size == 0 || c.N%each != 0 {
		return nil
	}
	at := make([][]int, n.Spec.Sockets)
	for i := range n.GPUs {
		g := &n.GPUs[i]
		first := int64(g.CPUs.Next(0))
		if n.UsedGPU.Has(i) || (c.Type != "" && g.Type != c.Type) || named(taken, g.UUID) || first < 0 || first/size >= n.Spec.Sockets {
			continue
		}
		if k := first / size; int64(len(at[k])) < each {
			at[k] = append(at[k], i)
		}
	}
	var refs []spec.GPURef
	for _, list := range at {
		if int64(len(list)) < each || int64(len(refs)) == c.N {
			continue
		}
		for _, i := range list {
			refs = append(refs, spec.GPURef{UUID: n.GPUs[i].UUID, Index: n.GPUs[i].Index, Type: n.GPUs[i].Type})
		}
	}
	if int64(len(refs)) != c.N {
		return nil
	}
	return slices.Clip(refs)
}

// ForTasks are the CPUs of a job on a node that its tasks run on: all but those
// that --core-spec or --thread-spec leaves to the system, the last.
func ForTasks(n *state.Node, cpus spec.Bitset, js *spec.JobSpec) spec.Bitset {
	spare := int64(js.Size.CoreSpec)*max(n.Spec.ThreadsPerCore, 1) + int64(js.Size.ThreadSpec)
	if spare == 0 {
		return cpus
	}
	out := cpus.Clone()
	for cpu := n.Spec.TopCPU() - 1; cpu >= 0 && spare > 0; cpu-- {
		if !n.Spec.Reserved.Has(int(cpu)) {
			out, spare = out.Clear(int(cpu)), spare-1
		}
	}
	return out
}
