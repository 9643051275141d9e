package place

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Where GPUs can be shared they are counted one by one: a device is free for a
// job that wants it whole if nobody holds any part of it, and gives a part to
// a job if nobody holds it whole. What is free in a span of time is the least
// of each device, so that the same device can be promised in parts and whole
// one after the other.

// DeviceUse is what a need takes of one device of a node.
type DeviceUse struct {
	Pos   int // in the node's list
	Share string
	N     int64 // parts; 0 = the whole device
}

// WantsShare is the sharing resource that is asked for, or the zero value.
func (d *Demand) WantsShare() spec.Count {
	for _, list := range [...][]spec.Count{d.PerNode, d.PerTask} {
		for _, count := range list {
			if spec.Shares(count.Name) {
				return count
			}
		}
	}
	return spec.Count{}
}

// byDevice tells whether a resource is counted device by device.
func (b *Shape) byDevice(name string) bool {
	return b.Devices && (name == "gpu" || spec.Shares(name))
}

// freeDevices is how much of a resource that is counted by device a node with f
// free can give at once: whole devices, or the largest part of one.
func (f *Free) freeDevices(shape *Shape, count spec.Count) int64 {
	var n int64
	for i := range shape.Kinds {
		kind := &shape.Kinds[i]
		switch {
		case kind.Counts != CountsDevice || (count.Type != "" && count.Type != kind.Type):
		case count.Name == "gpu":
			if f.More[i] == kind.N {
				n++
			}
		case kind.Part == count.Name && f.More[i] > n && f.isSharable(shape, i):
			n = f.More[i]
		}
	}
	return n
}

// hasPart tells whether the device that a kind counts has a free part such as count
// asks for.
func (f *Free) hasPart(shape *Shape, at int, count *spec.Count) bool {
	kind := &shape.Kinds[at]
	if kind.Counts != CountsDevice || kind.Part != count.Name {
		return false
	}
	if count.Type != "" && count.Type != kind.Type {
		return false
	}
	return f.More[at] >= count.N && f.isSharable(shape, at)
}

// isSharable tells whether a part of a device may be given as far as the others
// matter: only one is shared at a time where the configuration says so.
func (f *Free) isSharable(shape *Shape, at int) bool {
	if !shape.Kinds[at].One {
		return true
	}
	for i := range shape.Kinds {
		if kind := &shape.Kinds[i]; kind.Counts == CountsDeviceParts &&
			kind.Device != shape.Kinds[at].Device &&
			f.More[i] < kind.N {
			return false
		}
	}
	return true
}

// takeDevices adds a resource that is counted by device to a need.
func (n *Need) takeDevices(demand *Demand, cand *Candidate, count spec.Count) bool {
	if count.Name == "gpu" {
		return n.takeWhole(cand, count)
	}
	shape, free := cand.Shape, &cand.Free
	best, again := -1, false
	for i := range shape.Kinds {
		kind := &shape.Kinds[i]
		if n.Use.More[i] > 0 || !free.hasPart(shape, i, &count) {
			continue
		}
		old := slices.Contains(cand.Before, int32(kind.Device))
		better := best < 0
		switch {
		case better:
		case old != again:
			better = old // the device that the job had before
		case free.More[i] != free.More[best]:
			better = (free.More[i] < free.More[best]) != demand.Emptiest
		}
		if better {
			best, again = i, old
		}
	}
	if best < 0 {
		return false
	}
	kind := &shape.Kinds[best]
	n.Use.More[best] += count.N
	for i := range shape.Kinds {
		if shape.Kinds[i].Counts == CountsDeviceParts && shape.Kinds[i].Device == kind.Device {
			n.Use.More[i] += count.N
		}
	}
	n.GRES = append(n.GRES, spec.Count{Name: count.Name, Type: count.Type, N: count.N})
	n.Devices = append(n.Devices, DeviceUse{Pos: kind.Device, Share: count.Name, N: count.N})
	return true
}

// takeWhole adds devices that nobody holds any of: those that were promised, or
// those that are best linked with each other, and of equal ones those that
// cannot be shared.
func (n *Need) takeWhole(cand *Candidate, count spec.Count) bool {
	shape, free := cand.Shape, &cand.Free
	var idle []int // positions, in the order of preference
	kinds := make([]int, len(shape.Links))
	for i := range shape.Kinds {
		kind := &shape.Kinds[i]
		if kind.Counts != CountsDevice {
			continue
		}
		kinds[kind.Device] = i
		if free.More[i] == kind.N && n.Use.More[i] == 0 &&
			(count.Type == "" || count.Type == kind.Type) {
			idle = append(idle, kind.Device)
		}
	}
	slices.SortStableFunc(idle, func(a, b int) int {
		return cmp.Compare(len(shape.Kinds[kinds[a]].Part), len(shape.Kinds[kinds[b]].Part))
	})
	chosen := slices.DeleteFunc(
		slices.Clone(idle),
		func(at int) bool { return !slices.Contains(cand.Before, int32(at)) },
	)
	if int64(len(chosen)) >= count.N {
		idle = chosen
	}
	chosen = bestLinked(
		idle,
		int(count.N),
		func(a, b int) int64 { return linkOf(shape.Links[a], b) },
	)
	if chosen == nil {
		return false
	}
	for _, at := range chosen {
		kind := &shape.Kinds[kinds[at]]
		n.Use.More[kinds[at]] = kind.N
		n.GRES = mergeCounts(append(n.GRES, spec.Count{Name: "gpu", Type: kind.Type, N: 1}))
		n.Devices = append(n.Devices, DeviceUse{Pos: at})
	}
	return true
}

// allDevices is what an exclusive job holds of a node's devices: all of them
// whole, or the part of one that it asked for.
func (n *Need) allDevices(demand *Demand, cand *Candidate, asked []spec.Count) bool {
	shape, use := cand.Shape, n.Use
	n.Use = Free{More: make([]int64, len(shape.Kinds))}
	var sharing bool
	for _, count := range asked {
		if spec.Shares(count.Name) {
			sharing = true
			if !n.takeDevices(demand, cand, count) {
				return false
			}
		}
	}
	if !sharing && shape.GPUs > 0 && !n.takeWhole(cand, spec.Count{Name: "gpu", N: shape.GPUs}) {
		return false
	}
	n.Use = use
	return true
}

// bestLinked picks some devices out of a list: the set whose members are best
// linked to each other, grown greedily from each possible first device; ties
// go to the first ones of the list. It is nil if there are not enough.
func bestLinked(from []int, want int, link func(a, b int) int64) []int {
	if len(from) < want || want <= 0 {
		return nil
	}
	best, most := slices.Clone(from[:want]), int64(-1)
	if want > 1 && len(from) > want {
		for _, seed := range from {
			if set, score := growSet(from, seed, want, link); score > most {
				best, most = set, score
			}
		}
	}
	slices.Sort(best)
	return best
}

func linkOf(links []int32, to int) int64 {
	if to < len(links) {
		return int64(links[to])
	}
	return 0
}

// allocateDevices gives a need that was settled device by device its devices.
// It is false if they are no longer free.
func allocateDevices(allocation *spec.NodeAlloc, node *state.Node, list []DeviceUse) bool {
	for _, use := range list {
		if use.Pos >= len(node.GPUs) {
			return false
		}
		gpu := &node.GPUs[use.Pos]
		if use.N == 0 {
			if !node.FreeWhole(use.Pos) || hasDevice(allocation.GPUs, gpu.UUID) {
				return false
			}
			allocation.GPUs = append(
				allocation.GPUs, spec.GPURef{UUID: gpu.UUID, Index: gpu.Index, Type: gpu.Type},
			)
			continue
		}
		share := spec.GPUShare{
			UUID:  gpu.UUID,
			Index: gpu.Index,
			Type:  gpu.Type,
			Name:  use.Share,
			N:     use.N,
			Of:    node.ShareAt(use.Pos).N,
		}
		if !node.TakesShare(&share) {
			return false
		}
		allocation.Shares = append(allocation.Shares, share)
	}
	return true
}

// idleGPUs is how many devices of a candidate nobody holds any of.
func (c *Candidate) idleGPUs() int64 {
	if c.Shape.Devices {
		return c.Free.freeDevices(c.Shape, spec.Count{Name: "gpu"})
	}
	return c.Free.GPU
}

// spareAfter is what would be left, in thousandths, of the device that a part is
// taken of: the less, the better it fits.
func (c *Candidate) spareAfter(demand *Demand, requested spec.Count) int64 {
	best := int64(-1)
	for i := range c.Shape.Kinds {
		kind := &c.Shape.Kinds[i]
		if !c.Free.hasPart(c.Shape, i, &requested) {
			continue
		}
		left := (c.Free.More[i] - requested.N) * 1000 / kind.N
		if best < 0 || (left < best) != demand.Emptiest {
			best = left
		}
	}
	if demand.Emptiest {
		return -best
	}
	return best
}
