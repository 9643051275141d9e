package replay

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// fragmentMeter samples the GPUs of a cluster at equal distances of virtual time while jobs
// arrive. A GPU counts as stranded for a request as far as it is free and the request cannot use
// it where it is: because the node lacks CPUs, memory or further GPUs, or because less of the GPU
// is free than the request asks for. What is stranded is the mean over all requests of the
// workload. The definition is that of Weng et al., "Beware of Fragmentation: Scheduling
// GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023, section 3, except
// that requests without GPUs, for which it counts every free GPU, are left out here.
type fragmentMeter struct {
	kinds    []place.Wanted // what jobs request of one node, each kind once
	requests int64          // jobs that request GPUs
	shapes   place.Shapes

	next, until spec.Instant
	every       spec.Span
	samples     int64
	free        float64 // free GPUs, summed over the samples
	stranded    float64 // stranded GPUs, likewise
}

// samplesPerReplay is the number of instants at which a meter samples the cluster.
const samplesPerReplay = 500

// newFragmentMeter makes a meter of what the jobs of a workload ask for of one node. It is nil if
// the cluster has no GPUs or the jobs are submitted at one instant.
func newFragmentMeter(workload *Workload, gpus int64) *fragmentMeter {
	first := workload.Jobs[0].Submit
	last := workload.Jobs[len(workload.Jobs)-1].Submit
	if gpus == 0 || last <= first {
		return nil
	}
	meter := &fragmentMeter{
		next:  first,
		until: last,
		every: max(last.Sub(first)/samplesPerReplay, 1),
	}
	most := largestNode(workload.Config)
	at := map[place.Wanted]int{}
	for i := range workload.Jobs {
		kind := wantedOfNode(workload.Jobs[i].Spec, most)
		if kind.GPUs == 0 && kind.Part == 0 {
			continue
		}
		meter.requests++
		if k, known := at[kind]; known {
			meter.kinds[k].Jobs++
			continue
		}
		at[kind] = len(meter.kinds)
		kind.Jobs = 1
		meter.kinds = append(meter.kinds, kind)
	}
	if meter.requests == 0 {
		return nil
	}
	return meter
}

// largestNode is the most of each resource that a single node has.
func largestNode(config *spec.Config) place.Wanted {
	var most place.Wanted
	for i := range config.Nodes {
		node := &config.Nodes[i]
		most.CPU = max(most.CPU, node.CPUs)
		most.Mem = max(most.Mem, node.Mem)
		for _, gres := range node.GRES {
			if gres.Name == "gpu" {
				most.GPUs = max(most.GPUs, gres.N)
			}
		}
	}
	return most
}

// wantedOfNode is what a request of a replay asks for of one node. One that is larger than the
// largest node asks for all of it.
func wantedOfNode(jobSpec *spec.JobSpec, most place.Wanted) place.Wanted {
	size := &jobSpec.Size
	var kind place.Wanted
	for _, count := range size.PerJob {
		if count.Name == "gpu" {
			kind.GPUs = count.N
		}
	}
	for _, count := range size.PerNode {
		switch count.Name {
		case "gpu":
			kind.GPUs = count.N
		case "shard":
			kind.Part = count.N
		}
	}
	kind.CPU = int64(max(size.Tasks, 1)) * int64(max(size.CPUsPerTask, 1))
	kind.CPU = min(kind.CPU, most.CPU)
	kind.Mem = min(size.MemPerNode, most.Mem)
	kind.GPUs = min(kind.GPUs, most.GPUs)
	return kind
}

// advanceTo samples a state that holds until t. Its GPUs are counted once, however many samples are
// due, since nothing changes between them.
func (m *fragmentMeter) advanceTo(cluster *state.State, t spec.Instant) {
	if m == nil || m.next >= t || m.next > m.until {
		return
	}
	var due int64
	for ; m.next < t && m.next <= m.until; m.next = m.next.Add(m.every) {
		due++
	}
	free, stranded := m.countStranded(cluster)
	m.samples += due
	m.free += free * float64(due)
	m.stranded += stranded * float64(due)
}

// countStranded is how many GPUs are free now, and how many of them are stranded.
func (m *fragmentMeter) countStranded(cluster *state.State) (free, stranded float64) {
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		shape := m.shapes.Of(node)
		if shape.GPUs == 0 {
			return true
		}
		now := shape.Now(node)
		rest := shape.DevicesLeft(&now)
		thousandths := sumOf(rest)
		if thousandths == 0 {
			return true
		}
		var useless int64
		for i := range m.kinds {
			useless += m.kinds[i].Jobs * uselessFor(&m.kinds[i], &now, rest, thousandths)
		}
		free += float64(thousandths) / 1000
		stranded += float64(useless) / float64(m.requests) / 1000
		return true
	})
	return free, stranded
}

// uselessFor is how many thousandths of a node's free GPUs a request cannot use.
func uselessFor(kind *place.Wanted, now *place.Free, rest []int64, all int64) int64 {
	var whole, usable int64
	for _, left := range rest {
		if left == 1000 {
			whole++
		}
		if kind.Part > 0 && left >= kind.Part {
			usable += left
		}
	}
	if kind.GPUs > 0 && whole >= kind.GPUs {
		usable = whole * 1000
	}
	if kind.CPU > now.CPU || kind.Mem > now.Mem {
		usable = 0
	}
	return all - usable
}

func sumOf(list []int64) (sum int64) {
	for _, n := range list {
		sum += n
	}
	return sum
}
