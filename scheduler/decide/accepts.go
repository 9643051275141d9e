package decide

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Accepts tells whether a request would be taken in a pending job's place.
func Accepts(cluster *state.State, now spec.Instant, job *state.Job, jobSpec *spec.JobSpec) bool {
	d := decisionOn(trial.On(cluster.Fork(), now, event.Actor{}, "explain"))
	asked := *jobSpec
	asked.Queue.Dependency = nil
	asked.Queue.Hold = spec.NotHeld
	asked.Time.Begin = 0
	asked.Time.Deadline = 0
	_, _, err := d.submission().resolveSpec(&asked, job)
	return err == nil ||
		spec.CodeOf(err) == spec.CodePartitionUnavailable // for new jobs; this one was there before
}
