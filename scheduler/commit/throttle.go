package commit

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// ThrottleKey is the one key of scontrol update job that belongs to an array and
// not to its records.
const ThrottleKey = "ArrayTaskThrottle"

// CurrentSpec is a copy of a job's spec with what is in force now, for an event
// that changes part of it.
func CurrentSpec(job *state.Job) spec.JobSpec {
	jobSpec := *job.Spec
	if jobSpec.Queue.Array != nil {
		array := *jobSpec.Queue.Array
		jobSpec.Queue.Array = &array
	}
	jobSpec.Queue.Hold = job.Hold
	jobSpec.Time.Begin = job.Begin
	if job.State.Active() {
		jobSpec.Time.Limit = job.Limit
	}
	return jobSpec
}

// ShareThrottle gives the live records of a job's array the throttle of the job.
// Records that disagree would let each other's tasks exceed the lower one.
func (d Changes) ShareThrottle(job *state.Job) error {
	for _, other := range d.liveRecords(job) {
		if err := d.setThrottle(other, job.Spec.Queue.Array.Throttle); err != nil {
			return err
		}
	}
	return nil
}

// adoptThrottle gives a task that was queued again the throttle of its array,
// which may have changed after the task had ended.
func (d Changes) adoptThrottle(job *state.Job) error {
	others := d.liveRecords(job)
	if len(others) == 0 {
		return nil
	}
	return d.setThrottle(job, others[0].Spec.Queue.Array.Throttle)
}

func (d Changes) setThrottle(job *state.Job, throttle uint32) error {
	if job.Spec.Queue.Array.Throttle == throttle {
		return nil
	}
	jobSpec := CurrentSpec(job)
	jobSpec.Queue.Array.Throttle = throttle
	return d.Emit(
		&event.JobUpdated{
			UID:     job.UID,
			Spec:    &jobSpec,
			Req:     job.Req,
			Assoc:   job.Assoc,
			Changed: []string{ThrottleKey},
		},
	)
}

// liveRecords are the other records of a job's array that have not ended.
func (d Changes) liveRecords(job *state.Job) []*state.Job {
	array := d.t.State.ArrayOf(job)
	if array == nil {
		return nil
	}
	uids := []spec.JobUID{array.UID}
	array.Split.Range(func(_ uint64, uid spec.JobUID) bool {
		if uid != array.UID {
			uids = append(uids, uid)
		}
		return true
	})
	var live []*state.Job
	for _, uid := range uids {
		other := d.t.State.Job(uid)
		if other == nil || uid == job.UID || other.State.Terminal() {
			continue
		}
		if other.Spec.Queue.Array != nil {
			live = append(live, other)
		}
	}
	return live
}
