package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// Unlimited is how the API writes spec.Infinite.
const Unlimited int64 = -1

// Span writes a span; Infinite becomes Unlimited.
func Span(d spec.Span) int64 {
	if d == spec.Infinite {
		return Unlimited
	}
	return int64(d)
}

// ToSpan reads a span.
func ToSpan(n int64) spec.Span {
	if n == Unlimited {
		return spec.Infinite
	}
	return spec.Span(n)
}

// Counts writes a list of GRES or licences.
func Counts(list []spec.Count) []*apiv1.Count {
	out := make([]*apiv1.Count, len(list))
	for i, c := range list {
		out[i] = &apiv1.Count{Name: c.Name, Type: c.Type, N: c.N}
	}
	return out
}

// ToCounts reads a list of GRES or licences.
func ToCounts(list []*apiv1.Count) []spec.Count {
	if len(list) == 0 {
		return nil
	}
	out := make([]spec.Count, len(list))
	for i, c := range list {
		out[i] = spec.Count{Name: c.GetName(), Type: c.GetType(), N: c.GetN()}
	}
	return out
}

// TRES writes a vector.
func TRES(tres spec.TRES) *apiv1.Tres {
	out := &apiv1.Tres{
		Cpu:     tres.CPU,
		Mem:     tres.Mem,
		Node:    tres.Node,
		Billing: tres.Billing,
		Energy:  tres.Energy,
	}
	for _, c := range tres.Other {
		out.Other = append(out.Other, &apiv1.NamedCount{Name: c.Name, N: c.N})
	}
	return out
}

// ToTRES reads a vector.
func ToTRES(tres *apiv1.Tres) spec.TRES {
	out := spec.TRES{
		CPU:     tres.GetCpu(),
		Mem:     tres.GetMem(),
		Node:    tres.GetNode(),
		Billing: tres.GetBilling(),
		Energy:  tres.GetEnergy(),
	}
	for _, c := range tres.GetOther() {
		out = out.With(c.GetName(), c.GetN())
	}
	return out
}

// Limits writes limits.
func Limits(limits spec.Limits) []*apiv1.NamedCount {
	out := make([]*apiv1.NamedCount, len(limits))
	for i, c := range limits {
		out[i] = &apiv1.NamedCount{Name: c.Name, N: c.N}
	}
	return out
}

// ToLimits reads limits.
func ToLimits(l []*apiv1.NamedCount) spec.Limits {
	var out spec.Limits
	for _, c := range l {
		out = append(out, spec.TRESCount{Name: c.GetName(), N: c.GetN()})
	}
	return out
}

func optionalInt(v *int64) *apiv1.OptionalInt {
	if v == nil {
		return nil
	}
	return &apiv1.OptionalInt{Value: *v}
}

// Reason writes a reason.
func Reason(r spec.Reason) *apiv1.Reason {
	return &apiv1.Reason{
		Code:    string(r.Code),
		Tres:    r.TRES,
		Limit:   r.Limit,
		Used:    r.Used,
		Asked:   r.Asked,
		Subject: r.Subject,
		Until:   int64(r.Until),
		Blocker: uint64(r.Blocker),
		Detail:  r.Detail,
	}
}

// ToReason reads a reason.
func ToReason(r *apiv1.Reason) spec.Reason {
	return spec.Reason{
		Code:    spec.ReasonCode(r.GetCode()),
		TRES:    r.GetTres(),
		Limit:   r.GetLimit(),
		Used:    r.GetUsed(),
		Asked:   r.GetAsked(),
		Subject: r.GetSubject(),
		Until:   spec.Instant(r.GetUntil()),
		Blocker: spec.JobUID(r.GetBlocker()),
		Detail:  r.GetDetail(),
	}
}

// Error writes a refusal.
func Error(e *spec.Error) *apiv1.Error {
	out := &apiv1.Error{
		Code:   int32(e.Kind),
		Text:   e.Kind.String(),
		Prefix: e.Prefix,
		Detail: e.Detail,
	}
	if e.Reason != nil {
		out.Reason = Reason(*e.Reason)
	}
	return out
}
