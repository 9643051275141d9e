package render

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// faultIsNews is how long a fault is shown that does not keep its GPU from jobs.
const faultIsNews = int64(24 * time.Hour)

// idleSlack is how late an agent may be to say again that nobody uses a GPU.
const idleSlack = int64(2 * time.Minute)

// GPUTrouble is what a node says is wrong with one of its GPUs now. Nil fields
// are not known to be so.
type GPUTrouble struct {
	// Fault is the newest fault; a lost GPU's is its loss, however old that is.
	Fault *apiv1.GpuFault
	// Idle is the report that the job which holds it has no process on it.
	Idle *apiv1.GpuFault
}

// Lost tells a GPU that does not answer.
func (t GPUTrouble) Lost() bool {
	return t.Fault != nil && spec.GPUFaultKind(t.Fault.GetKind()) == spec.GPULost
}

// TroubleOf judges what a node remembers of a GPU. What happened before the GPU
// answered again is over, and so is a fault of a day ago, but a loss stays until
// the GPU answers. Faults of a MIG instance's device are the instance's too.
func TroubleOf(node *apiv1.NodeInfo, gpu *apiv1.GpuInfo, now int64) GPUTrouble {
	var trouble GPUTrouble
	returned := int64(0)
	for _, fault := range node.GetGpuFaults() {
		if fault.GetUuid() == gpu.GetUuid() &&
			spec.GPUFaultKind(fault.GetKind()) == spec.GPUReturned {
			returned = fault.GetAt()
		}
	}
	for _, fault := range node.GetGpuFaults() {
		uuid := fault.GetUuid()
		if uuid != gpu.GetUuid() && (gpu.GetParent() == "" || uuid != gpu.GetParent()) {
			continue
		}
		if fault.GetAt() < returned {
			continue
		}
		switch spec.GPUFaultKind(fault.GetKind()) {
		case spec.GPUIdle:
			if isIdleNow(gpu, fault, now) {
				trouble.Idle = fault
			}
		case spec.GPULost:
			trouble.Fault = fault
		case spec.GPUXID, spec.GPUThermal, spec.GPUECC:
			newer := trouble.Fault == nil || fault.GetAt() > trouble.Fault.GetAt()
			if now-fault.GetAt() <= faultIsNews && newer && !trouble.Lost() {
				trouble.Fault = fault
			}
		case spec.GPUReturned, spec.GPUMIGChanged:
		}
	}
	return trouble
}

// isIdleNow tells whether a report of an idle GPU still holds. The agent says again
// how long nobody used a GPU when that has doubled; one of which it has not said
// so by then is in use again, and one that another job holds is another story.
func isIdleNow(gpu *apiv1.GpuInfo, fault *apiv1.GpuFault, now int64) bool {
	return gpu.GetAllocated() && fault.GetJobUid() != 0 &&
		fault.GetJobUid() == gpu.GetJobUid() &&
		now-fault.GetAt() <= fault.GetIdle()+idleSlack
}

// unknownIndex is the index of a lost GPU whose number on its node is not known.
const unknownIndex = math.MaxUint32

// AllGPUs lists the GPUs of a node, those too that it has lost: such a device does not answer,
// so its agent no longer finds it, but it was bought and its slot is there. As many are
// missing as the node has fewer than are configured, the last lost ones.
func AllGPUs(node *apiv1.NodeInfo) []*apiv1.GpuInfo {
	found := node.GetGpus()
	missing := configuredGPUs(node) - int64(len(found))
	if missing <= 0 {
		return found
	}
	lost := lostGPUs(node)
	lost = lost[max(0, len(lost)-int(missing)):]
	if len(lost) == 0 {
		return found
	}
	if len(lost) == 1 && missing == 1 {
		lost[0].Index = freeIndex(found)
	}
	all := append(slices.Clone(found), lost...)
	slices.SortStableFunc(all, func(a, b *apiv1.GpuInfo) int { return cmp.Compare(a.GetIndex(), b.GetIndex()) })
	return all
}

// lostGPUs are the devices of which a node remembers that they were lost and did not come
// back, the last one at the end. What it has no more it does not describe: of its type only
// what all others have is known.
func lostGPUs(node *apiv1.NodeInfo) []*apiv1.GpuInfo {
	like := &apiv1.GpuInfo{}
	for i, gpu := range node.GetGpus() {
		if i == 0 {
			like.Type, like.Model = gpu.GetType(), gpu.GetModel()
		}
		if gpu.GetType() != like.GetType() {
			like.Type, like.Model = "", ""
			break
		}
	}
	found := map[string]bool{}
	for _, gpu := range node.GetGpus() {
		found[gpu.GetUuid()] = true
		found[gpu.GetParent()] = true
	}
	at := map[string]int64{} // of the loss of a device that is not back
	for _, fault := range node.GetGpuFaults() {
		switch spec.GPUFaultKind(fault.GetKind()) {
		case spec.GPULost:
			at[fault.GetUuid()] = max(at[fault.GetUuid()], fault.GetAt())
		case spec.GPUReturned, spec.GPUXID, spec.GPUThermal, spec.GPUECC, spec.GPUMIGChanged, spec.GPUIdle:
		}
	}
	for _, fault := range node.GetGpuFaults() {
		if spec.GPUFaultKind(fault.GetKind()) == spec.GPUReturned && fault.GetAt() >= at[fault.GetUuid()] {
			delete(at, fault.GetUuid())
		}
	}
	var gpus []*apiv1.GpuInfo
	for uuid := range at {
		if !found[uuid] {
			gpus = append(
				gpus,
				&apiv1.GpuInfo{
					Uuid: uuid, Index: unknownIndex, Type: like.GetType(), Model: like.GetModel(),
				},
			)
		}
	}
	slices.SortFunc(gpus, func(a, b *apiv1.GpuInfo) int {
		return cmp.Or(cmp.Compare(at[a.GetUuid()], at[b.GetUuid()]), cmp.Compare(a.GetUuid(), b.GetUuid()))
	})
	return gpus
}

// freeIndex is the smallest number that no GPU has.
func freeIndex(gpus []*apiv1.GpuInfo) uint32 {
	taken := map[uint32]bool{}
	for _, gpu := range gpus {
		taken[gpu.GetIndex()] = true
	}
	n := uint32(0)
	for taken[n] {
		n++
	}
	return n
}

// configuredGPUs counts the GPUs of a node's Gres, as in gpu:h100:8,shard:32.
func configuredGPUs(node *apiv1.NodeInfo) (n int64) {
	for item := range strings.SplitSeq(node.GetGres(), ",") {
		item, _, _ = strings.Cut(item, "(")
		parts := strings.Split(item, ":")
		if parts[0] != "gpu" {
			continue
		}
		count, err := strconv.ParseInt(parts[len(parts)-1], 10, 64)
		if err != nil {
			count = 1 // gpu, or gpu:h100
		}
		n += count
	}
	return n
}

// GPUNumber is a GPU's number on its node; empty = it is lost, and which it was is not known.
func GPUNumber(gpu *apiv1.GpuInfo) string {
	if gpu.GetIndex() == unknownIndex {
		return ""
	}
	return strconv.FormatUint(uint64(gpu.GetIndex()), 10)
}
