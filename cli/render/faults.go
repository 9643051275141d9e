package render

import (
	"cmp"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// FaultText says what happened to a GPU in a few words: xid 79 (fatal), 3
// times.
func FaultText(fault *apiv1.GpuFault) string {
	kind := spec.GPUFaultKind(fault.GetKind())
	var text string
	switch kind {
	case spec.GPUXID:
		text = fmt.Sprintf("XID %d (%s)", fault.GetXid(), cmp.Or(fault.GetClass(), "unknown"))
	case spec.GPULost:
		text = "lost: it does not answer"
	case spec.GPUReturned:
		text = "answers again"
	case spec.GPUThermal:
		text = "throttled by temperature"
	case spec.GPUECC:
		text = "uncorrectable memory errors"
	case spec.GPUMIGChanged:
		text = "partitioned anew"
	case spec.GPUIdle:
		text = "held without a process for " + Span(fault.GetIdle())
	default:
		text = kind.String()
	}
	if n := fault.GetCount(); n > 1 && kind != spec.GPUIdle {
		text += fmt.Sprintf(", %d times", n)
	}
	return text
}

// faultLines are what happened to the GPUs of a job, for muster why.
func (v *WhyView) faultLines(reply *apiv1.WhyReply) []string {
	var out []string
	for _, fault := range reply.GetGpuFaults() {
		text := fmt.Sprintf(
			"%s on %s: %s, last %s ago.",
			fault.GetUuid(),
			fault.GetNode(),
			FaultText(fault),
			Span(max(v.Now-fault.GetAt(), 0)),
		)
		switch {
		case !fault.GetWarned():
		case fault.GetCancel() > v.Now:
			text += " Others wait for it: the job is cancelled in " +
				Span(fault.GetCancel()-v.Now) + " unless it begins to use the GPU."
		default:
			text += " Others wait for it: use it, or end the job."
		}
		out = append(out, text)
	}
	return out
}
