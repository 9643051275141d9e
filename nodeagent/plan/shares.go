package plan

import (
	"slices"
	"strconv"

	"github.com/musterhpc/muster/spec"
)

// ShareEnv tells a program what part of a device it has, in the variables that
// libraries read: an MPS server holds its clients to the share of threads and
// to the memory named here. byDevice: each device has an MPS server of its own,
// since several may be shared at a time; without it there is one in the place
// where clients look for it by themselves.
func ShareEnv(shares []spec.GPUShare, byDevice bool) []string {
	var out []string
	for i := range shares {
		share := &shares[i]
		switch share.Name {
		case "mps":
			out = append(out, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="+
				strconv.FormatInt(share.Percent(), 10))
			if byDevice {
				out = append(out, "CUDA_MPS_PIPE_DIRECTORY="+MPSDirectory(share.Index))
			}
		case spec.VRAM:
			out = append(out, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="+strconv.Itoa(i)+"="+
				strconv.FormatInt(share.N>>20, 10)+"M",
				"MUSTER_VRAM_BYTES="+strconv.FormatInt(share.N, 10))
		}
	}
	return out
}

// MPSDirectory is where the MPS server of one device listens.
func MPSDirectory(index uint32) string {
	return "/tmp/nvidia-mps-" + strconv.FormatUint(uint64(index), 10)
}

// ShareByUUID tells whether a job names its devices by UUID: an MPS server that
// serves one device shows it as number 0, so that without a fence only the UUID
// cannot mean another one.
func ShareByUUID(shares []spec.GPUShare, fenced bool) bool {
	return !fenced &&
		slices.ContainsFunc(shares, func(s spec.GPUShare) bool { return s.Name == "mps" })
}

// Devices are the devices that a part of an allocation may use: its own and those
// of which it has a part.
func Devices(alloc *spec.NodeAlloc) []spec.GPURef {
	if len(alloc.Shares) == 0 {
		return alloc.GPUs
	}
	gpus := slices.Clone(alloc.GPUs)
	for _, share := range alloc.Shares {
		gpus = append(gpus, spec.GPURef{UUID: share.UUID, Index: share.Index, Type: share.Type})
	}
	return gpus
}

// countShards is how many shards a part of an allocation has.
func countShards(alloc *spec.NodeAlloc) uint32 {
	var n int64
	for _, share := range alloc.Shares {
		if share.Name == "shard" {
			n += share.N
		}
	}
	return uint32(n)
}
