package render

import (
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
	var out GPUTrouble
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
				out.Idle = fault
			}
		case spec.GPULost:
			out.Fault = fault
		case spec.GPUXID, spec.GPUThermal, spec.GPUECC:
			newer := out.Fault == nil || fault.GetAt() > out.Fault.GetAt()
			if now-fault.GetAt() <= faultIsNews && newer && !out.Lost() {
				out.Fault = fault
			}
		case spec.GPUReturned, spec.GPUMIGChanged:
		}
	}
	return out
}

// isIdleNow tells whether a report of an idle GPU still holds. The agent says again
// how long nobody used a GPU when that has doubled; one of which it has not said
// so by then is in use again, and one that another job holds is another story.
func isIdleNow(gpu *apiv1.GpuInfo, fault *apiv1.GpuFault, now int64) bool {
	return gpu.GetAllocated() && fault.GetJobUid() != 0 &&
		fault.GetJobUid() == gpu.GetJobUid() &&
		now-fault.GetAt() <= fault.GetIdle()+idleSlack
}
