package spec

import "slices"

// A sharing resource counts parts of devices: shard and mps as Slurm has them,
// and vram, bytes of a device's memory. A device is held either whole, by one
// job, or in parts of one sharing resource, by any number of jobs.

// VRAM is the sharing resource that counts bytes of device memory.
const VRAM = "vram"

// Shares tells the name of a sharing resource.
func Shares(name string) bool { return name == "shard" || name == "mps" || name == VRAM }

// GPUShare is a part of a device in an allocation.
type GPUShare struct {
	UUID  string `cbor:"1,keyasint"`
	Index uint32 `cbor:"2,keyasint"`
	Type  string `cbor:"3,keyasint,omitempty"`
	Name  string `cbor:"4,keyasint"` // the sharing resource
	N     int64  `cbor:"5,keyasint"` // how much of it
	Of    int64  `cbor:"6,keyasint"` // how much of it the device had then
}

// Percent is the part of the device, rounded down.
func (s *GPUShare) Percent() int64 {
	if s.Of <= 0 {
		return 0
	}
	return s.N * 100 / s.Of
}

// DeviceShares is how much of a sharing resource a device is divided into; the
// zero value is a device that is only given whole.
type DeviceShares struct {
	Name string
	N    int64
	One  bool // only one device of the node may be shared at a time
}

// SharesOf tells how the node's devices can be shared. A declaration with a
// file is about that device, one with a type about those of the type; what it
// counts is spread evenly over its devices, those that are declared and missing
// included; the first get what is left.
func (n *NodeSpec) SharesOf(devices []GPU) []DeviceShares {
	var shareses []DeviceShares
	for i := range n.GRES {
		gres := &n.GRES[i]
		if !Shares(gres.Name) || gres.N <= 0 {
			continue
		}
		var of []int
		for k := range devices {
			gpu := &devices[k]
			if (gres.Files == "" || gres.Files == gpu.Path) &&
				(gres.Type == "" || gres.Type == gpu.Type) {
				of = append(of, k)
			}
		}
		if len(of) == 0 {
			continue
		}
		if shareses == nil {
			shareses = make([]DeviceShares, len(devices))
		}
		over := int64(len(of))
		if gres.Files == "" {
			over = max(over, n.declaredGPUs(gres.Type))
		}
		each, more := gres.N/over, gres.N%over
		for k, at := range of {
			add := each
			if int64(k) < more {
				add++
			}
			if shares := &shareses[at]; shares.N == 0 || shares.Name == gres.Name {
				shares.Name = gres.Name
				shares.N += add
				shares.One = shares.One || gres.oneSharing()
			}
		}
	}
	if !slices.ContainsFunc(shareses, func(s DeviceShares) bool { return s.N > 0 }) {
		return nil
	}
	return shareses
}

// declaredGPUs is how many GPUs of a type the node has by its configuration.
func (n *NodeSpec) declaredGPUs(typ string) int64 {
	var sum int64
	for i := range n.GRES {
		if gres := &n.GRES[i]; gres.Name == "gpu" && gres.N > 0 && (typ == "" || typ == gres.Type) {
			sum += gres.N
		}
	}
	return sum
}

// oneSharing tells that the resource is given from one device of a node at a
// time: the rule for mps unless all_sharing is set.
func (g *GRESSpec) oneSharing() bool {
	switch {
	case g.HasFlag("all_sharing"):
		return false
	case g.HasFlag("one_sharing"):
		return true
	}
	return g.Name == "mps"
}
