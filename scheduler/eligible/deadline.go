package eligible

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// MissesDeadline tells a pending job that can no longer meet its deadline.
func MissesDeadline(j *state.Job, now spec.Instant) bool {
	return j.Spec.Time.Deadline != 0 && (now >= j.Spec.Time.Deadline || now > LatestStart(j))
}

// LatestStart is the latest start with which a pending job meets its deadline.
func LatestStart(job *state.Job) spec.Instant {
	if l := job.Spec.Time.Limit; l != 0 && l != spec.Infinite {
		return job.Spec.Time.Deadline.Add(-l)
	}
	return job.Spec.Time.Deadline
}

// EndPending is the verdict on a job that never runs (again).
func EndPending(j *state.Job, s spec.JobState, why spec.ReasonCode) *event.JobEnded {
	return &event.JobEnded{UID: j.UID, Attempt: j.Attempt, State: s, Reason: spec.Reason{Code: why}}
}
