package eligible

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// MissesDeadline tells a pending job that can no longer meet its deadline.
func MissesDeadline(job *state.Job, now spec.Instant) bool {
	return job.Spec.Time.Deadline != 0 && (now >= job.Spec.Time.Deadline || now > LatestStart(job))
}

// LatestStart is the latest start with which a pending job meets its deadline.
func LatestStart(job *state.Job) spec.Instant {
	if l := job.Spec.Time.Limit; l != 0 && l != spec.Infinite {
		return job.Spec.Time.Deadline.Add(-l)
	}
	return job.Spec.Time.Deadline
}

// EndPending is the verdict on a job that never runs (again).
func EndPending(job *state.Job, jobState spec.JobState, why spec.ReasonCode) *event.JobEnded {
	return &event.JobEnded{
		UID: job.UID, Attempt: job.Attempt, State: jobState, Reason: spec.Reason{Code: why},
	}
}
