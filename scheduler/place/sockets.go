package place

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// perSocket is how many CPUs each socket of a node has; socket k has the CPUs
// from k times that on. 0 = the node's sockets are not known.
func perSocket(node *state.Node) int64 {
	if node.Spec.Sockets < 2 {
		return 0
	}
	return node.Spec.CPUs / node.Spec.Sockets
}

// overSockets picks free CPUs such that each socket has those of at most as
// many tasks as --ntasks-per-socket says, as far as they are free there. It is
// nil if there are not enough.
func overSockets(node *state.Node, want int64, demand *Demand) spec.Bitset {
	step := 1
	if demand.Cores {
		step = int(max(node.Spec.ThreadsPerCore, 1))
	}
	set, each := make(spec.Bitset, (node.Spec.TopCPU()+63)/64), perSocket(node)
	most := divideUp(demand.PerSocket*demand.CPUsPerTask, int64(step)) * int64(step)
	for k := int64(0); k < node.Spec.Sockets && want > 0 && each > 0; k++ {
		var here spec.Bitset
		for cpu := k * each; cpu < (k+1)*each; cpu++ {
			here = here.Set(int(cpu))
		}
		quota := min(want, most)
		want -= quota - max(takeCores(node, set, here, step, quota), 0)
	}
	if want > 0 {
		want = takeCores(node, set, nil, step, want)
	}
	if want > 0 {
		return nil
	}
	return set
}

// nearSockets picks GPUs such that each of as many sockets as are needed has so
// many near it, the first sockets first. It is nil where that cannot be, or
// which socket a GPU is near is not known.
func nearSockets(
	node *state.Node,
	taken []spec.GPURef,
	count spec.Count,
	each int64,
) []spec.GPURef {
	size := perSocket(node)
	if each == 0 || size == 0 || count.N%each != 0 {
		return nil
	}
	at := make([][]int, node.Spec.Sockets)
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		first := int64(gpu.CPUs.Next(0))
		isWanted := count.Type == "" || gpu.Type == count.Type
		if !isWanted || node.UsedGPU.Has(i) || hasDevice(taken, gpu.UUID) {
			continue
		}
		if first < 0 || first/size >= node.Spec.Sockets {
			continue // no socket is known to be near
		}
		if k := first / size; int64(len(at[k])) < each {
			at[k] = append(at[k], i)
		}
	}
	var refs []spec.GPURef
	for _, list := range at {
		if int64(len(list)) < each || int64(len(refs)) == count.N {
			continue
		}
		for _, i := range list {
			refs = append(
				refs,
				spec.GPURef{
					UUID:  node.GPUs[i].UUID,
					Index: node.GPUs[i].Index,
					Type:  node.GPUs[i].Type,
				},
			)
		}
	}
	if int64(len(refs)) != count.N {
		return nil
	}
	return slices.Clip(refs)
}

// ForTasks are the CPUs of a job on a node that its tasks run on: all but those
// that --core-spec or --thread-spec leaves to the system, the last.
func ForTasks(node *state.Node, cpus spec.Bitset, jobSpec *spec.JobSpec) spec.Bitset {
	spare := int64(jobSpec.Size.CoreSpec)*max(node.Spec.ThreadsPerCore, 1) + int64(jobSpec.Size.ThreadSpec)
	if spare == 0 {
		return cpus
	}
	set := cpus.Clone()
	for cpu := node.Spec.TopCPU() - 1; cpu >= 0 && spare > 0; cpu-- {
		if !node.Spec.Reserved.Has(int(cpu)) {
			set, spare = set.Clear(int(cpu)), spare-1
		}
	}
	return set
}
