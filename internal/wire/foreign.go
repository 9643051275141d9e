package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// ForeignHold writes a hold of another scheduler.
func ForeignHold(hold *spec.ForeignHold) *apiv1.ForeignHold {
	out := &apiv1.ForeignHold{
		Id:       hold.ID,
		Space:    hold.Space,
		Owner:    hold.Owner,
		MilliCpu: hold.MilliCPU,
		Mem:      hold.Mem,
		Priority: hold.Priority,
		Since:    int64(hold.Since),
	}
	for _, g := range hold.GPUs {
		out.Gpus = append(out.Gpus, &apiv1.HeldGpu{Uuid: g.UUID, Index: g.Index, Type: g.Type})
	}
	return out
}

// ToForeignHold reads one.
func ToForeignHold(m *apiv1.ForeignHold) spec.ForeignHold {
	out := spec.ForeignHold{
		ID:       m.GetId(),
		Space:    m.GetSpace(),
		Owner:    m.GetOwner(),
		MilliCPU: m.GetMilliCpu(),
		Mem:      m.GetMem(),
		Priority: m.GetPriority(),
		Since:    spec.Instant(m.GetSince()),
	}
	for _, g := range m.GetGpus() {
		out.GPUs = append(
			out.GPUs,
			spec.GPURef{UUID: g.GetUuid(), Index: g.GetIndex(), Type: g.GetType()},
		)
	}
	return out
}
