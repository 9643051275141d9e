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
	counts := make([]*apiv1.Count, len(list))
	for i, count := range list {
		counts[i] = &apiv1.Count{Name: count.Name, Type: count.Type, N: count.N}
	}
	return counts
}

// ToCounts reads a list of GRES or licences.
func ToCounts(list []*apiv1.Count) []spec.Count {
	if len(list) == 0 {
		return nil
	}
	counts := make([]spec.Count, len(list))
	for i, count := range list {
		counts[i] = spec.Count{Name: count.GetName(), Type: count.GetType(), N: count.GetN()}
	}
	return counts
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
	for _, count := range tres.Other {
		out.Other = append(out.Other, &apiv1.NamedCount{Name: count.Name, N: count.N})
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
	counts := make([]*apiv1.NamedCount, len(limits))
	for i, count := range limits {
		counts[i] = &apiv1.NamedCount{Name: count.Name, N: count.N}
	}
	return counts
}

// ToLimits reads limits.
func ToLimits(counts []*apiv1.NamedCount) spec.Limits {
	var limits spec.Limits
	for _, c := range counts {
		limits = append(limits, spec.TRESCount{Name: c.GetName(), N: c.GetN()})
	}
	return limits
}

func optionalInt(value *int64) *apiv1.OptionalInt {
	if value == nil {
		return nil
	}
	return &apiv1.OptionalInt{Value: *value}
}

// Reason writes a reason.
func Reason(reason spec.Reason) *apiv1.Reason {
	return &apiv1.Reason{
		Code:    string(reason.Code),
		Tres:    reason.TRES,
		Limit:   reason.Limit,
		Used:    reason.Used,
		Asked:   reason.Asked,
		Subject: reason.Subject,
		Until:   int64(reason.Until),
		Blocker: uint64(reason.Blocker),
		Detail:  reason.Detail,
	}
}

// ToReason reads a reason.
func ToReason(reason *apiv1.Reason) spec.Reason {
	return spec.Reason{
		Code:    spec.ReasonCode(reason.GetCode()),
		TRES:    reason.GetTres(),
		Limit:   reason.GetLimit(),
		Used:    reason.GetUsed(),
		Asked:   reason.GetAsked(),
		Subject: reason.GetSubject(),
		Until:   spec.Instant(reason.GetUntil()),
		Blocker: spec.JobUID(reason.GetBlocker()),
		Detail:  reason.GetDetail(),
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
