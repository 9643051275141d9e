package eligible

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// QOSChoices are the QOS that a job has a lot for in each of its partitions; an
// empty name stands for the only one.
func QOSChoices(jobSpec *spec.JobSpec) []string {
	if len(jobSpec.QOSes) == 0 {
		return []string{""}
	}
	return jobSpec.QOSes
}

// InQOS is a waiting job as it is in one of its QOS.
func InQOS(job *state.Job, name string) *state.Job {
	if name == "" || job.Spec.QOS == name {
		return job
	}
	out := *job
	out.Spec = job.Spec.InQOS(name)
	return &out
}

const DefaultQOS = "normal"

// AllowedQOS are the QOS that an association may use.
func AllowedQOS(policy *state.Policy, assoc uint32) []string {
	for _, association := range policy.Chain(assoc) {
		if len(association.QOS) > 0 {
			return association.QOS
		}
	}
	return []string{DefaultQOS}
}

// QOSToTry are the QOS that jobs of an association may name, but for those that
// need a reservation or refuse what could wait.
func QOSToTry(cluster *state.State, assoc uint32) []string {
	return slices.DeleteFunc(slices.Clone(AllowedQOS(cluster.Policy, assoc)),
		func(name string) bool {
			qos := cluster.Policy.FindQOS(name)
			return qos == nil || qos.HasFlag("RequiresReservation") || qos.HasFlag("DenyOnLimit")
		})
}
