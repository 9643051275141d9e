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
func (d submission) resolveQOS(jobSpec *spec.JobSpec, assoc uint32) error {
	policy := d.t.Policy
	allowed := eligible.AllowedQOS(policy, assoc)
	for _, association := range policy.Chain(assoc) {
		if jobSpec.QOS == "" {
			jobSpec.QOS = association.DefaultQOS
		}
	}
	if jobSpec.QOS == "" && len(allowed) == 1 {
		jobSpec.QOS = allowed[0]
	}
	if jobSpec.QOS == "" {
		jobSpec.QOS = eligible.DefaultQOS
	}
	names := d.namedQOS(jobSpec)
	for _, name := range names {
		switch {
		case policy.FindQOS(name) == nil && name == eligible.DefaultQOS && len(names) == 1:
			names = []string{""} // a cluster without any QOS
		case policy.FindQOS(name) == nil, d.t.Config.Enforce.QOS && !slices.Contains(allowed, name):
			e := spec.Refuse(spec.CodeInvalidQOS, "")
			if len(names) > 1 {
				e.Detail = name
			}
			return e
		}
		switch qos := policy.FindQOS(name); {
		case qos == nil:
		case qos.HasFlag("RequiresReservation") && jobSpec.Place.Reservation == "":
			return spec.Refuse(spec.CodeInvalidQOS, "QOS "+name+" is for jobs in a reservation")
		case qos.HasFlag(limits.Relative) && limits.PartitionQOS(d.t.State, name):
			return spec.Refuse(spec.CodeInvalidQOS, "QOS "+name+
				" is relative to the partition that has it: jobs cannot name it")
		}
	}
	jobSpec.SetQOS(names)
	return nil
}

// namedQOS are the QOS of a job, the highest priority first, then as they were
// named.
func (d submission) namedQOS(jobSpec *spec.JobSpec) []string {
	names := jobSpec.QOSes
	if names == nil && !strings.Contains(jobSpec.QOS, ",") {
		return []string{jobSpec.QOS}
	}
	if names == nil {
		names = strings.Split(jobSpec.QOS, ",")
	}
	var out []string
	for _, name := range names {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.SortStableFunc(
		out,
		func(a, b string) int { return cmp.Compare(d.qosPriority(b), d.qosPriority(a)) },
	)
	return out
}

func (d submission) qosPriority(name string) uint32 {
	if qos := d.t.Policy.FindQOS(name); qos != nil {
		return qos.Priority
	}
	return 0
}

// barredInAll says what keeps a job out of a partition in each of its QOS, or
// nil.
func (d submission) barredInAll(
	partition *state.Partition,
	jobSpec *spec.JobSpec,
	demand *place.Demand,
) *eligible.Rejection {
	var first *eligible.Rejection
	for _, qos := range eligible.QOSChoices(jobSpec) {
		rejection := eligible.CheckPartition(d.t.State, partition, jobSpec.InQOS(qos), demand)
		if rejection == nil {
			return nil
		}
		if first == nil {
			first = rejection
		}
	}
	return first
}

// withinLimits checks the limits that refuse a submission, in each partition.
// Of several QOS those drop out that would refuse the job; it is refused if all
// would.
func (d submission) withinLimits(
	jobSpec *spec.JobSpec,
	assoc uint32,
	request spec.TRES,
	count int64,
	beside spec.TRES,
) error {
	var first error
	var takes []string
	for _, qos := range eligible.QOSChoices(jobSpec) {
		if err := d.withinLimitsOf(jobSpec.InQOS(qos), assoc, request, count, beside); err == nil {
			takes = append(takes, qos)
		} else if first == nil {
			first = err
		}
	}
	if len(takes) == 0 {
		return first
	}
	if len(jobSpec.QOSes) > 0 {
		jobSpec.SetQOS(takes)
	}
	return nil
}

func (d submission) withinLimitsOf(
	jobSpec *spec.JobSpec,
	assoc uint32,
	request spec.TRES,
	count int64,
	beside spec.TRES,
) error {
	for _, name := range jobSpec.Partitions {
		part := d.t.Parts.Find(name)
		bound := limits.Find(
			d.t.State,
			limits.Subject{Job: jobSpec, Part: part.Spec, Assoc: assoc, Now: d.t.Now, Beside: beside},
		)
		limit := eligible.ResolveRequest(
			d.t.State,
			part,
			jobSpec,
			bound.Wall(),
		).Limit // of a job that names none, what it would get
		if reason := bound.Submit(count, request, limit); reason != nil {
			return &spec.Error{
				Kind: spec.CodePolicyViolation, Prefix: string(reason.Code), Reason: reason,
			}
		}
	}
	return nil
}
