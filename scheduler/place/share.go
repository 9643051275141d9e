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
		for _, c := range list {
			if spec.Shares(c.Name) {
				return c
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
func (f *Free) freeDevices(s *Shape, c spec.Count) int64 {
	var n int64
	for i := range s.Kinds {
		k := &s.Kinds[i]
		switch {
		case k.Counts != CountsDevice || (c.Type != "" && c.Type != k.Type):
		case c.Name == "gpu":
			if f.More[i] == k.N {
				n++
			}
		case k.Part == c.Name && f.More[i] > n && f.isSharable(s, i):
			n = f.More[i]
		}
	}
	return n
}

// isSharable tells whether a part of a device may be given as far as the others
// matter: only one is shared at a time where the configuration says so.
func (f *Free) isSharable(s *Shape, at int) bool {
	if !s.Kinds[at].One {
		return true
	}
	for i := range s.Kinds {
		if k := &s.Kinds[i]; k.Counts == CountsDeviceParts && k.Device != s.Kinds[at].Device && f.More[i] < k.N {
			return false
		}
	}
	return true
}

// takeDevices adds a resource that is counted by device to a need.
func (n *Need) takeDevices(d *Demand, cand *Candidate, c spec.Count) bool {
	if c.Name == "gpu" {
		return n.takeWhole(cand, c)
	}
	s, free := cand.Shape, &cand.Free
	best, again := -1, false
	for i := range s.Kinds {
		k := &s.Kinds[i]
		if k.Counts != CountsDevice || k.Part != c.Name || (c.Type != "" && c.Type != k.Type) || n.Use.More[i] > 0 || free.More[i] < c.N || !free.isSharable(s, i) {
			continue
		}
		old := slices.Contains(cand.Before, int32(k.Device))
		if best < 0 || (old && !again) || (old == again && free.More[i] != free.More[best] && (free.More[i] < free.More[best]) != d.Emptiest) {
			best, again = i, old
		}
	}
	if best < 0 {
		return false
	}
	k := &s.Kinds[best]
	n.Use.More[best] += c.N
	for i := range s.Kinds {
		if s.Kinds[i].Counts == CountsDeviceParts && s.Kinds[i].Device == k.Device {
			n.Use.More[i] += c.N
		}
	}
	n.GRES = append(n.GRES, spec.Count{Name: c.Name, Type: c.Type, N: c.N})
	n.Devices = append(n.Devices, DeviceUse{Pos: k.Device, Share: c.Name, N: c.N})
	return true
}

// takeWhole adds devices that nobody holds any of: those that were promised, or
// those that are best linked with each other, and of equal ones those that
// cannot be shared.
func (n *Need) takeWhole(cand *Candidate, c spec.Count) bool {
	s, free := cand.Shape, &cand.Free
	var idle []int // positions, in the order of preference
	kinds := make([]int, len(s.Links))
	for i := range s.Kinds {
		k := &s.Kinds[i]
		if k.Counts != CountsDevice {
			continue
		}
		kinds[k.Device] = i
		if free.More[i] == k.N && n.Use.More[i] == 0 && (c.Type == "" || c.Type == k.Type) {
			idle = append(idle, k.Device)
		}
	}
	slices.SortStableFunc(idle, func(a, b int) int { return cmp.Compare(len(s.Kinds[kinds[a]].Part), len(s.Kinds[kinds[b]].Part)) })
	chosen := slices.DeleteFunc(slices.Clone(idle), func(at int) bool { return !slices.Contains(cand.Before, int32(at)) })
	if int64(len(chosen)) >= c.N {
		idle = chosen
	}
	chosen = bestLinked(idle, int(c.N), func(a, b int) int64 { return linkOf(s.Links[a], b) })
	if chosen == nil {
		return false
	}
	for _, at := range chosen {
		k := &s.Kinds[kinds[at]]
		n.Use.More[kinds[at]] = k.N
		n.GRES = mergeCounts(append(n.GRES, spec.Count{Name: "gpu", Type: k.Type, N: 1}))
		n.Devices = append(n.Devices, DeviceUse{Pos: at})
	}
	return true
}

// allDevices is what an exclusive job holds of a node's devices: all of them
// whole, or the part of one that it asked for.
func (n *Need) allDevices(d *Demand, cand *Candidate, asked []spec.Count) bool {
	s, use := cand.Shape, n.Use
	n.Use = Free{More: make([]int64, len(s.Kinds))}
	var sharing bool
	for _, c := range asked {
		if spec.Shares(c.Name) {
			sharing = true
			if !n.takeDevices(d, cand, c) {
				return false
			}
		}
	}
	if !sharing && s.GPUs > 0 && !n.takeWhole(cand, spec.Count{Name: "gpu", N: s.GPUs}) {
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
func allocateDevices(na *spec.NodeAlloc, n *state.Node, list []DeviceUse) bool {
	for _, use := range list {
		if use.Pos >= len(n.GPUs) {
			return false
		}
		g := &n.GPUs[use.Pos]
		if use.N == 0 {
			if !n.FreeWhole(use.Pos) || named(na.GPUs, g.UUID) {
				return false
			}
			na.GPUs = append(na.GPUs, spec.GPURef{UUID: g.UUID, Index: g.Index, Type: g.Type})
			continue
		}
		s := spec.GPUShare{UUID: g.UUID, Index: g.Index, Type: g.Type, Name: use.Share, N: use.N, Of: n.ShareAt(use.Pos).N}
		if !n.TakesShare(&s) {
			return false
		}
		na.Shares = append(na.Shares, s)
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
func (c *Candidate) spareAfter(d *Demand, ask spec.Count) int64 {
	best := int64(-1)
	for i := range c.Shape.Kinds {
		k := &c.Shape.Kinds[i]
		if k.Counts != CountsDevice || k.Part != ask.Name || (ask.Type != "" && ask.Type != k.Type) || c.Free.More[i] < ask.N || !c.Free.isSharable(c.Shape, i) {
			continue
		}
		left := (c.Free.More[i] - ask.N) * 1000 / k.N
		if best < 0 || (left < best) != d.Emptiest {
			best = left
		}
	}
	if d.Emptiest {
		return -best
	}
	return best
}
