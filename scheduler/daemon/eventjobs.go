package daemon

import (
	"fmt"
	"strconv"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// eventJobs knows whose the jobs are that events name by their uid, at the place
// in the history to which a reader has come. Events of the past name jobs that the
// present has forgotten.
//
// It is a published state, and what has been read since. Without a state it holds
// all that it knows itself.
type eventJobs struct {
	base         *state.State // frozen; nil = none
	jobs         map[spec.JobUID]eventJob
	reservations map[string][]string // users
}

// eventJob is what a reader needs to know of a job.
type eventJob struct {
	id      spec.JobID
	array   spec.JobID // of the array that it is, or is a task of; 0 = none
	task    int64      // NoTask unless it is a task
	owner   uint32
	user    string
	account string
}

func newEventJobs(base *state.State) *eventJobs {
	return &eventJobs{
		base:         base,
		jobs:         map[spec.JobUID]eventJob{},
		reservations: map[string][]string{},
	}
}

// displayName is the job as people name it.
func (j eventJob) displayName() string {
	if j.array != 0 && j.task != spec.NoTask {
		return fmt.Sprintf("%d_%d", j.array, j.task)
	}
	return strconv.FormatUint(uint64(j.id), 10)
}

func eventJobOf(cluster *state.State, job *state.Job) eventJob {
	out := eventJob{
		id:      job.ID,
		task:    job.Task,
		owner:   job.Spec.UID,
		user:    job.Spec.User,
		account: job.Spec.Account,
	}
	if array := cluster.ArrayOf(job); array != nil {
		out.array = array.ID
	}
	return out
}

// findJob looks a job up.
func (d *eventJobs) findJob(uid spec.JobUID) (eventJob, bool) {
	if j, ok := d.jobs[uid]; ok {
		return j, true
	}
	if d.base == nil {
		return eventJob{}, false
	}
	job := d.base.Job(uid)
	if job == nil {
		return eventJob{}, false
	}
	return eventJobOf(d.base, job), true
}

// usersOf are the users whom a reservation names.
func (d *eventJobs) usersOf(reservation string) []string {
	if users, ok := d.reservations[reservation]; ok || d.base == nil {
		return users
	}
	for i := range d.base.Reservations {
		if d.base.Reservations[i].Name == reservation {
			return d.base.Reservations[i].Users
		}
	}
	return nil
}

// noteEvent takes in what an event says of jobs, before the event is shown.
func (d *eventJobs) noteEvent(e event.Event) {
	switch e := e.(type) {
	case *event.JobSubmitted:
		job := eventJob{
			id:      e.ID,
			task:    spec.NoTask,
			owner:   e.Spec.UID,
			user:    e.Spec.User,
			account: e.Spec.Account,
		}
		if e.Spec.Queue.Array != nil {
			job.array = e.ID
		}
		d.jobs[e.UID] = job
	case *event.JobUpdated:
		if job, ok := d.findJob(e.UID); ok && e.Spec != nil {
			job.account = e.Spec.Account
			d.jobs[e.UID] = job
		}
	case *event.ArrayTaskSplit:
		if job, ok := d.findJob(e.Array); ok {
			job.id, job.task = e.ID, e.Task
			d.jobs[e.UID] = job
		}
	case *event.ReservationPut:
		d.reservations[e.Reservation.Name] = e.Reservation.Users
	}
}

// forgetEnded drops what an event ends, after the event has been shown. A job that base
// still holds stays known: no later event names it.
func (d *eventJobs) forgetEnded(e event.Event) {
	switch e := e.(type) {
	case *event.JobPurged:
		for _, uid := range e.UIDs {
			delete(d.jobs, uid)
		}
	case *event.ReservationRemoved:
		delete(d.reservations, e.Name)
	}
}

// rebaseOn drops what has been read, because a published state now holds it all.
func (d *eventJobs) rebaseOn(cluster *state.State) {
	d.base = cluster
	clear(d.jobs)
	clear(d.reservations)
}

// releaseState lets go of the state, which would otherwise stay in memory as long as the
// reader does not come on, and keeps the little that is needed of it.
func (d *eventJobs) releaseState() {
	cluster := d.base
	if cluster == nil {
		return
	}
	d.base = nil
	cluster.Jobs.Range(func(uid uint64, job *state.Job) bool {
		if _, newer := d.jobs[spec.JobUID(uid)]; !newer {
			d.jobs[spec.JobUID(uid)] = eventJobOf(cluster, job)
		}
		return true
	})
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		if _, newer := d.reservations[reservation.Name]; !newer {
			d.reservations[reservation.Name] = reservation.Users
		}
	}
}
