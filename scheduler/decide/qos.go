package decide

import (
	"cmp"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// A job may name several QOS. It has to be allowed in each of them, is counted
// in the one of the highest priority while it waits, and starts in whichever
// lets it start first; from then on that one is its QOS.

// resolveQOS fills in the default QOS and, where QOS are enforced, checks that
// the association may use it: one of its list or the nearest list above it.
// Where there is no list at all, only the QOS normal is allowed.
func (d submission) resolveQOS(js *spec.JobSpec, assoc uint32) error {
	pol := d.t.Policy
	allowed := eligible.AllowedQOS(pol, assoc)
	for _, a := range pol.Chain(assoc) {
		if js.QOS == "" {
			js.QOS = a.DefaultQOS
		}
	}
	if js.QOS == "" && len(allowed) == 1 {
		js.QOS = allowed[0]
	}
	if js.QOS == "" {
		js.QOS = eligible.DefaultQOS
	}
	names := d.namedQOS(js)
	for _, name := range names {
		switch {
		case pol.FindQOS(name) == nil && name == eligible.DefaultQOS && len(names) == 1:
			names = []string{""} // a cluster without any QOS
		case pol.FindQOS(name) == nil, d.t.Config.Enforce.QOS && !slices.Contains(allowed, name):
			e := spec.Refuse(spec.CodeInvalidQOS, "")
			if len(names) > 1 {
				e.Detail = name
			}
			return e
		}
		switch q := pol.FindQOS(name); {
		case q == nil:
		case q.HasFlag("RequiresReservation") && js.Place.Reservation == "":
			return spec.Refuse(spec.CodeInvalidQOS, "QOS "+name+" is for jobs in a reservation")
		case q.HasFlag(limits.Relative) && limits.PartitionQOS(d.t.State, name):
			return spec.Refuse(spec.CodeInvalidQOS, "QOS "+name+" is relative to the partition that has it: jobs cannot name it")
		}
	}
	js.SetQOS(names)
	return nil
}

// namedQOS are the QOS of a job, the highest priority first, then as they were
// named.
func (d submission) namedQOS(js *spec.JobSpec) []string {
	names := js.QOSes
	if names == nil && !strings.Contains(js.QOS, ",") {
		return []string{js.QOS}
	}
	if names == nil {
		names = strings.Split(js.QOS, ",")
	}
	var out []string
	for _, name := range names {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(d.qosPriority(b), d.qosPriority(a)) })
	return out
}

func (d submission) qosPriority(name string) uint32 {
	if q := d.t.Policy.FindQOS(name); q != nil {
		return q.Priority
	}
	return 0
}

// barredInAll says what keeps a job out of a partition in each of its QOS, or
// nil.
func (d submission) barredInAll(p *state.Partition, js *spec.JobSpec, dem *place.Demand) *eligible.Rejection {
	var first *eligible.Rejection
	for _, qos := range eligible.QOSChoices(js) {
		b := eligible.CheckPartition(d.t.State, p, js.InQOS(qos), dem)
		if b == nil {
			return nil
		}
		if first == nil {
			first = b
		}
	}
	return first
}

// withinLimits checks the limits that refuse a submission, in each partition.
// Of several QOS those drop out that would refuse the job; it is refused if all
// would.
func (d submission) withinLimits(js *spec.JobSpec, assoc uint32, req spec.TRES, count int64) error {
	var first error
	var takes []string
	for _, qos := range eligible.QOSChoices(js) {
		if err := d.withinLimitsOf(js.InQOS(qos), assoc, req, count); err == nil {
			takes = append(takes, qos)
		} else if first == nil {
			first = err
		}
	}
	if len(takes) == 0 {
		return first
	}
	if len(js.QOSes) > 0 {
		js.SetQOS(takes)
	}
	return nil
}

func (d submission) withinLimitsOf(js *spec.JobSpec, assoc uint32, req spec.TRES, count int64) error {
	for _, name := range js.Partitions {
		part := d.t.Parts.Find(name)
		b := limits.Find(d.t.State, limits.Subject{Job: js, Part: part.Spec, Assoc: assoc, Now: d.t.Now})
		limit := eligible.ResolveRequest(d.t.State, part, js, b.Wall()).Limit // of a job that names none, what it would get
		if r := b.Submit(count, req, limit); r != nil {
			return &spec.Error{Kind: spec.CodePolicyViolation, Prefix: string(r.Code), Reason: r}
		}
	}
	return nil
}
