package spec

// ForeignHold is what another scheduler has on one node: a pod that Kubernetes
// placed there. It has no end of its own; it lasts until it is given back.
type ForeignHold struct {
	ID    string `cbor:"1,keyasint"`           // the other scheduler's own name for it: a pod's UID
	Space string `cbor:"2,keyasint,omitempty"` // whom it is accounted to: a namespace
	Owner string `cbor:"3,keyasint,omitempty"` // as people know it there: a pod's name
	// MilliCPU are thousandths of CPUs. The holds of a node share whole CPUs, as many
	// as their sum needs.
	MilliCPU int64    `cbor:"4,keyasint,omitempty"`
	Mem      int64    `cbor:"5,keyasint,omitempty"` // MiB
	GPUs     []GPURef `cbor:"6,keyasint,omitempty"`
	Priority int64    `cbor:"7,keyasint,omitempty"` // the other scheduler's
	Since    Instant  `cbor:"8,keyasint,omitempty"`
}

// Name is the hold as messages have it: namespace and name.
func (h *ForeignHold) Name() string {
	switch {
	case h.Owner == "":
		return h.ID
	case h.Space == "":
		return h.Owner
	}
	return h.Space + "/" + h.Owner
}

// SameAmounts tells whether two holds take the same of a node.
func (h *ForeignHold) SameAmounts(o *ForeignHold) bool {
	if h.MilliCPU != o.MilliCPU || h.Mem != o.Mem || len(h.GPUs) != len(o.GPUs) {
		return false
	}
	for i := range h.GPUs {
		if h.GPUs[i].UUID != o.GPUs[i].UUID {
			return false
		}
	}
	return true
}

// WholeCPUs is how many CPUs hold so many thousandths, in steps of a core's
// threads.
func WholeCPUs(milli, step int64) int64 {
	step = max(step, 1)
	return (milli + 1000*step - 1) / (1000 * step) * step
}
