package place

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Allocate turns a placement by amount into an allocation by identity: CPU
// ids and device UUIDs. It returns nil when the nodes no longer have them.
func Allocate(parts []Part, demand *Demand, weights []spec.Weight) *spec.Allocation {
	allocation := &spec.Allocation{
		Partition: demand.Partition,
		Whole:     demand.Exclusive,
		Nodes:     make([]spec.NodeAlloc, len(parts)),
		Share:     uint32(demand.Share),
		Apart:     demand.Tenant.Apart,
	}
	for i := range parts {
		if !allocateNode(&allocation.Nodes[i], &parts[i], demand) {
			return nil
		}
		allocation.Tasks += allocation.Nodes[i].Tasks
	}
	allocation.TRES = Sum(allocation.Nodes, demand, weights)
	return allocation
}

// Sum is what parts of nodes are together, with billing.
func Sum(nodes []spec.NodeAlloc, demand *Demand, weights []spec.Weight) spec.TRES {
	var sum spec.TRES
	for i := range nodes {
		addNode(&sum, &nodes[i])
	}
	sum.Billing = demand.Billing(sum, weights)
	return sum
}

func addNode(tres *spec.TRES, allocation *spec.NodeAlloc) {
	tres.CPU += int64(allocation.CPUs.Count())
	tres.Mem += allocation.Mem
	tres.Node++
	for i := 0; i < len(allocation.GPUs); {
		typ, n := allocation.GPUs[i].Type, i
		for i < len(allocation.GPUs) && allocation.GPUs[i].Type == typ {
			i++
		}
		*tres = addGRES(*tres, spec.Count{Name: "gpu", Type: typ, N: int64(i - n)}, 1)
	}
	for _, count := range allocation.GRES {
		*tres = addGRES(*tres, count, 1)
	}
}

func allocateNode(allocation *spec.NodeAlloc, part *Part, demand *Demand) bool {
	node := part.Node
	allocation.ID = node.ID
	allocation.Name = node.Spec.Name
	allocation.Mem = part.Mem
	allocation.Tasks = uint32(part.Tasks)
	if !allocateDevices(allocation, node, part.Devices) {
		return false
	}
	for _, count := range part.GRES {
		switch {
		case count.Name != "gpu":
			allocation.GRES = append(allocation.GRES, count)
			continue
		case len(part.Devices) > 0:
			continue
		}
		refs := nearSockets(node, allocation.GPUs, count, demand.SocketGPUs)
		if refs == nil {
			refs = chooseGPUs(node, allocation.GPUs, count)
		}
		if refs == nil {
			return false
		}
		allocation.GPUs = append(allocation.GPUs, refs...)
	}
	slices.SortFunc(allocation.GPUs, func(a, b spec.GPURef) int {
		return int(a.Index) - int(b.Index)
	})
	if demand.Share > 0 {
		allocation.CPUs = shareCPUs(node, part.CPUs, nearCPUs(node, allocation), demand)
		return allocation.CPUs != nil
	}
	if demand.PerSocket > 0 && node.Spec.Sockets > 1 {
		allocation.CPUs = overSockets(node, part.CPUs, demand)
		return allocation.CPUs != nil
	}
	allocation.CPUs = chooseCPUs(node, part.CPUs, nearCPUs(node, allocation), demand.Cores)
	return allocation.CPUs != nil
}

// nearCPUs is the set of CPUs close to the chosen devices.
func nearCPUs(node *state.Node, allocation *spec.NodeAlloc) spec.Bitset {
	var set spec.Bitset
	for i := range node.GPUs {
		gpu := &node.GPUs[i]
		if len(gpu.CPUs) > 0 &&
			(hasDevice(allocation.GPUs, gpu.UUID) || slices.ContainsFunc(allocation.Shares,
				func(s spec.GPUShare) bool {
					return s.UUID == gpu.UUID
				})) {
			set = set.Or(gpu.CPUs)
		}
	}
	return set
}

// chooseGPUs picks free devices of a type: those best linked to each other,
// else the lowest indices.
func chooseGPUs(node *state.Node, taken []spec.GPURef, count spec.Count) []spec.GPURef {
	free := make([]int, 0, len(node.GPUs))
	for i := range node.GPUs {
		if node.FreeWhole(i) && (count.Type == "" || node.GPUs[i].Type == count.Type) &&
			!hasDevice(taken, node.GPUs[i].UUID) {
			free = append(free, i)
		}
	}
	if int64(len(free)) < count.N {
		return nil
	}
	best := free[:count.N]
	if count.N > 1 && linked(node) {
		best = bestLinked(free, int(count.N), func(a, b int) int64 {
			return linkOf(node.GPUs[a].Links, b)
		})
	}
	refs := make([]spec.GPURef, 0, len(best))
	for _, i := range best {
		refs = append(
			refs,
			spec.GPURef{
				UUID: node.GPUs[i].UUID, Index: node.GPUs[i].Index, Type: node.GPUs[i].Type,
			},
		)
	}
	return refs
}

func linked(node *state.Node) bool {
	return slices.ContainsFunc(node.GPUs, func(g spec.GPU) bool { return len(g.Links) > 0 })
}

func growSet(free []int, seed, want int, link func(a, b int) int64) ([]int, int64) {
	set := []int{seed}
	var score int64
	for len(set) < want {
		best, gain := -1, int64(-1)
		for _, i := range free {
			if slices.Contains(set, i) {
				continue
			}
			var g int64
			for _, k := range set {
				g += link(i, k)
			}
			if g > gain {
				best, gain = i, g
			}
		}
		set = append(set, best)
		score += gain
	}
	return set, score
}

func hasDevice(refs []spec.GPURef, uuid string) bool {
	return slices.ContainsFunc(refs, func(r spec.GPURef) bool { return r.UUID == uuid })
}

// chooseCPUs picks free CPU ids, the lowest of those near the devices first;
// with whole cores it takes all threads of each core it touches. The threads
// of core k are the CPUs k*threads to k*threads+threads-1. It is nil if there
// are not enough.
func chooseCPUs(node *state.Node, want int64, prefer spec.Bitset, cores bool) spec.Bitset {
	step := 1
	if cores {
		step = int(max(node.Spec.ThreadsPerCore, 1))
	}
	set := make(spec.Bitset, (node.Spec.TopCPU()+63)/64)
	left := want
	if !prefer.Empty() {
		left = takeCores(node, set, prefer, step, left)
	}
	if left > 0 {
		left = takeCores(node, set, nil, step, left)
	}
	if left > 0 {
		return nil
	}
	return set
}

// takeCores adds free cores to out until nothing is left to take, only those
// that begin in within unless that is nil, and returns what is still missing.
func takeCores(node *state.Node, set, within spec.Bitset, step int, left int64) int64 {
	for core := 0; core+step <= int(node.Spec.TopCPU()) && left > 0; core += step {
		if (within != nil && !within.Has(core)) || set.Has(core) || !coreFree(node, core, step) {
			continue
		}
		for k := core; k < core+step; k++ {
			set[k>>6] |= 1 << (k & 63)
		}
		left -= int64(step)
	}
	return left
}

func coreFree(node *state.Node, core, step int) bool {
	for k := core; k < core+step; k++ {
		if node.UsedCPU.Has(k) || node.Spec.Reserved.Has(k) {
			return false
		}
	}
	return true
}

// shareCPUs picks CPUs that are shared: those with the fewest jobs, of them
// first those near the devices. It is nil if there are not enough with room
// for one more.
func shareCPUs(node *state.Node, want int64, prefer spec.Bitset, demand *Demand) spec.Bitset {
	step := 1
	if demand.Cores {
		step = int(max(node.Spec.ThreadsPerCore, 1))
	}
	set := make(spec.Bitset, (node.Spec.TopCPU()+63)/64)
	for jobs := 0; jobs < int(demand.Share) && want > 0; jobs++ {
		for _, near := range [...]bool{true, false} {
			for core := 0; core+step <= int(node.Spec.TopCPU()) && want > 0; core += step {
				most := 0
				for k := core; k < core+step; k++ {
					most = max(most, node.Sharers(k))
				}
				if most != jobs || prefer.Has(core) != near || set.Has(core) ||
					!isShareable(node, core, step) {
					continue
				}
				for k := core; k < core+step; k++ {
					set[k>>6] |= 1 << (k & 63)
				}
				want -= int64(step)
			}
		}
	}
	if want > 0 {
		return nil
	}
	return set
}

// isShareable tells a core that no job has for itself.
func isShareable(node *state.Node, core, step int) bool {
	for k := core; k < core+step; k++ {
		if (node.UsedCPU.Has(k) && node.Sharers(k) == 0) || node.Spec.Reserved.Has(k) {
			return false
		}
	}
	return true
}
