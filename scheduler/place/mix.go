package place

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Mix is what jobs are expected to ask for of one node. With it a job is placed
// where it takes least from what the others could use: a GPU is worth what is
// left of it, and the less the fewer requests still fit there, so that small
// jobs fill the gaps that large ones leave and CPUs stay with GPUs.
//
// It belongs to one pass: it remembers what it has worked out.
type Mix struct {
	kinds []Wanted
	all   int64 // sum of the weights
	known map[mixKey]mixLoss
}

// Wanted is one kind of request: whole GPUs, or a part of one in thousandths.
type Wanted struct {
	CPU, Mem   int64 // Mem in MiB
	GPUs, Part int64
	Jobs       int64 // that ask for it
}

// weightOf is how much a kind counts: by what it asks for, since what is worth
// keeping is GPU time and not a number of jobs.
func (w *Wanted) weightOf() int64 { return w.Jobs * (w.GPUs*1000 + w.Part) }

// NewMix makes a mix; nil if nobody asks for GPUs.
func NewMix(list []Wanted) *Mix {
	mix := &Mix{known: map[mixKey]mixLoss{}}
	for _, wanted := range list {
		if wanted.weightOf() <= 0 {
			continue
		}
		i, ok := slices.BinarySearchFunc(mix.kinds, wanted, func(a, b Wanted) int {
			return cmp.Or(
				cmp.Compare(a.GPUs, b.GPUs),
				cmp.Compare(a.Part, b.Part),
				cmp.Compare(a.CPU, b.CPU),
				cmp.Compare(a.Mem, b.Mem),
			)
		})
		if ok {
			mix.kinds[i].Jobs += wanted.Jobs
		} else {
			mix.kinds = slices.Insert(mix.kinds, i, wanted)
		}
		mix.all += wanted.weightOf()
	}
	if mix.all == 0 {
		return nil
	}
	return mix
}

// mixKey is a state of a node with a request. Nodes with more counters are
// worked out each time.
type mixKey struct {
	shape         *Shape
	cpu, mem, gpu int64
	need          Wanted
	ask           spec.Count
	kinds         int
	more          [mixKinds]int64
}

// mixKinds is how many kinds of GRES a node may have for its loss to be remembered: the key must be
// of a fixed size to be compared. Nodes with more are computed each time.
const mixKinds = 12

type mixLoss struct {
	loss int64
	pos  int32 // of the device that a part is best taken of; -1 = none
}

// lossOf is what a node is worth less, for others, with one node's part of a
// demand on it, and which device a part is best taken of.
func (m *Mix) lossOf(demand *Demand, candidate *Candidate) mixLoss {
	need, requested := demand.placeAlone(candidate.Shape)
	key := mixKey{
		shape: candidate.Shape,
		cpu:   candidate.Free.CPU,
		mem:   candidate.Free.Mem,
		gpu:   candidate.Free.GPU,
		need:  need,
		ask:   requested,
		kinds: len(candidate.Free.More),
	}
	keep := len(candidate.Free.More) <= mixKinds
	if keep {
		copy(key.more[:], candidate.Free.More)
		if l, ok := m.known[key]; ok {
			return l
		}
	}
	loss := m.workLoss(demand, candidate, &need, requested)
	if keep && len(m.known) < maxKnown {
		m.known[key] = loss
	}
	return loss
}

// maxKnown bounds what a pass remembers of its mix.
const maxKnown = 1 << 18

// placeAlone is what a demand takes of the one node that it is placed on.
func (d *Demand) placeAlone(shape *Shape) (Wanted, spec.Count) {
	cpu, memory, gpu := d.amountsFor(shape, d.Tasks, countGPUs(d.PerJob))
	if !d.Memory {
		memory = 0
	}
	return Wanted{CPU: cpu, Mem: memory, GPUs: gpu}, d.WantsShare()
}

func (m *Mix) workLoss(
	demand *Demand, candidate *Candidate, need *Wanted, requested spec.Count,
) mixLoss {
	rest := candidate.Shape.DevicesLeft(&candidate.Free)
	before := m.nodeValue(candidate.Free.CPU, candidate.Free.Mem, rest)
	cpu, memory := candidate.Free.CPU-need.CPU, candidate.Free.Mem-need.Mem
	if requested.N == 0 {
		for i, left := 0, need.GPUs; i < len(rest) && left > 0; i++ {
			if rest[i] == 1000 {
				rest[i], left = 0, left-1
			}
		}
		return mixLoss{before - m.nodeValue(cpu, memory, rest), -1}
	}
	best := mixLoss{pos: -1}
	tried := map[int64]bool{}
	for i := range candidate.Shape.Kinds {
		kind := &candidate.Shape.Kinds[i]
		if !candidate.Free.hasPart(candidate.Shape, i, &requested) {
			continue
		}
		at := kind.Device
		old := rest[at]
		if tried[old] {
			continue
		}
		tried[old] = true
		rest[at] = (candidate.Free.More[i] - requested.N) * 1000 / kind.N
		if l := before - m.nodeValue(cpu, memory, rest); best.pos < 0 || l < best.loss {
			best = mixLoss{l, int32(at)}
		}
		rest[at] = old
	}
	return best
}

// DevicesLeft is what is left of each GPU, in thousandths. GPUs that nothing divides are listed
// only if nobody holds them.
func (shape *Shape) DevicesLeft(free *Free) []int64 {
	if !shape.Devices {
		out := make([]int64, max(free.GPU, 0))
		for i := range out {
			out[i] = 1000
		}
		return out
	}
	out := make([]int64, len(shape.Links))
	for i := range shape.Kinds {
		if kind := &shape.Kinds[i]; kind.Counts == CountsDevice {
			out[kind.Device] = max(free.More[i], 0) * 1000 / kind.N
		}
	}
	return out
}

// nodeValue is what a node is worth: of each device what is left, times the eighth
// root of the part of all requests that fit on it with the node's CPUs and
// memory.
func (m *Mix) nodeValue(cpu, memory int64, rest []int64) int64 {
	whole := int64(0)
	for _, r := range rest {
		if r == 1000 {
			whole++
		}
	}
	var sum, last, worth int64
	for _, r := range rest {
		if r <= 0 {
			continue
		}
		if r != last {
			var fits int64
			for i := range m.kinds {
				wanted := &m.kinds[i]
				if wanted.CPU > cpu || wanted.Mem > memory || wanted.Part > r {
					continue
				}
				if wanted.GPUs == 0 || (r == 1000 && wanted.GPUs <= whole) {
					fits += wanted.weightOf()
				}
			}
			last, worth = r, eighthRoot(fits, m.all)
		}
		sum += r * worth
	}
	return sum
}

// eighthRoot is the eighth root of a/b, at most 1, in units of 1/2^30.
func eighthRoot(a, b int64) int64 {
	for b >= 1<<32 {
		a, b = a>>1, b>>1
	}
	x := a << 30 / b
	for range 3 {
		x = squareRoot(x << 30)
	}
	return x
}

// squareRoot is the whole part of the square root.
func squareRoot(n int64) int64 {
	if n <= 0 {
		return 0
	}
	x := int64(1) << 31
	for {
		y := (x + n/x) / 2
		if y >= x {
			return x
		}
		x = y
	}
}
