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
func CurrentSpec(j *state.Job) spec.JobSpec {
	js := *j.Spec
	if js.Queue.Array != nil {
		array := *js.Queue.Array
		js.Queue.Array = &array
	}
	js.Queue.Hold = j.Hold
	js.Time.Begin = j.Begin
	if j.State.Active() {
		js.Time.Limit = j.Limit
	}
	return js
}

// ShareThrottle gives the live records of a job's array the throttle of the job.
// Records that disagree would let each other's tasks exceed the lower one.
func (d Changes) ShareThrottle(j *state.Job) error {
	for _, other := range d.liveRecords(j) {
		if err := d.setThrottle(other, j.Spec.Queue.Array.Throttle); err != nil {
			return err
		}
	}
	return nil
}

// adoptThrottle gives a task that was queued again the throttle of its array,
// which may have changed after the task had ended.
func (d Changes) adoptThrottle(j *state.Job) error {
	others := d.liveRecords(j)
	if len(others) == 0 {
		return nil
	}
	return d.setThrottle(j, others[0].Spec.Queue.Array.Throttle)
}

func (d Changes) setThrottle(j *state.Job, throttle uint32) error {
	if j.Spec.Queue.Array.Throttle == throttle {
		return nil
	}
	js := CurrentSpec(j)
	js.Queue.Array.Throttle = throttle
	return d.Emit(&event.JobUpdated{UID: j.UID, Spec: &js, Req: j.Req, Assoc: j.Assoc, Changed: []string{ThrottleKey}})
}

// liveRecords are the other records of a job's array that have not ended.
func (d Changes) liveRecords(j *state.Job) []*state.Job {
	array := d.t.State.ArrayOf(j)
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
		if other == nil || uid == j.UID || other.State.Terminal() {
			continue
		}
		if other.Spec.Queue.Array != nil {
			live = append(live, other)
		}
	}
	return live
}
