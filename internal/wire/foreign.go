package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// ForeignHold writes a hold of another scheduler.
func ForeignHold(hold *spec.ForeignHold) *apiv1.ForeignHold {
	foreignHold := &apiv1.ForeignHold{
		Id:       hold.ID,
		Space:    hold.Space,
		Owner:    hold.Owner,
		MilliCpu: hold.MilliCPU,
		Mem:      hold.Mem,
		Priority: hold.Priority,
		Since:    int64(hold.Since),
	}
	for _, gpu := range hold.GPUs {
		foreignHold.Gpus = append(
			foreignHold.Gpus, &apiv1.HeldGpu{Uuid: gpu.UUID, Index: gpu.Index, Type: gpu.Type},
		)
	}
	return foreignHold
}

// ToForeignHold reads one.
func ToForeignHold(message *apiv1.ForeignHold) spec.ForeignHold {
	hold := spec.ForeignHold{
		ID:       message.GetId(),
		Space:    message.GetSpace(),
		Owner:    message.GetOwner(),
		MilliCPU: message.GetMilliCpu(),
		Mem:      message.GetMem(),
		Priority: message.GetPriority(),
		Since:    spec.Instant(message.GetSince()),
	}
	hold.GPUs = ToGPURefs(message.GetGpus())
	return hold
}

// namedGPU is a message that names a device.
type namedGPU interface {
	GetUuid() string
	GetIndex() uint32
	GetType() string
}

// ToGPURefs reads the devices of a message.
func ToGPURefs[M namedGPU](list []M) []spec.GPURef {
	var refs []spec.GPURef
	for _, gpu := range list {
		refs = append(
			refs,
			spec.GPURef{UUID: gpu.GetUuid(), Index: gpu.GetIndex(), Type: gpu.GetType()},
		)
	}
	return refs
}
