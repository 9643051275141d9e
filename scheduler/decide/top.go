package decide

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/spec"
)

// userTop is SchedulerParameters=enable_user_top: users may reorder their own jobs.
const userTop = "enable_user_top"

// ranked is a pending job with its priority.
type ranked struct {
	job      *state.Job
	priority int64
}

// topJob gives a job the priority of the first of its user's jobs in the same
// partition, account and QOS, and each of those before it the priority of the next.
// Niceness does that, so the sum of the priorities stays what it was and jobs of
// other users keep their places.
func (d jobCommands) topJob(command TopJob) error {
	job, err := d.findTarget(command.Target, false)
	switch {
	case err != nil:
		return err
	case job.State != spec.Pending:
		return spec.Refuse(spec.CodeJobNotPending, "")
	case job.Hold != spec.NotHeld:
		return spec.Refuse(spec.CodeJobHeld, "")
	case job.Spec.Queue.Priority != 0:
		return spec.Refuse(
			spec.CodeDisabled,
			"an administrator has set the priority of the job, and niceness does not change it",
		)
	case !command.Admin && !slices.Contains(d.t.Config.Sched.Params, userTop):
		return spec.Refuse(
			spec.CodeAccessDenied,
			"only an operator may do this without SchedulerParameters="+
				userTop,
		)
	}
	job, err = d.findTarget(command.Target, true)
	if err != nil {
		return err
	}
	before := d.jobsBefore(job)
	if len(before) < 2 {
		return nil // it is the first
	}
	last := len(before) - 1
	var due []event.Event
	for i, r := range before {
		wanted := before[0].priority + 1 // of equal priorities the older job is first
		if i < last {
			wanted = before[i+1].priority
		}
		nice := int64(r.job.Spec.Queue.Nice) + r.priority - wanted
		if nice < math.MinInt32 || nice > math.MaxInt32 {
			return spec.Refuse(
				spec.CodeDisabled,
				fmt.Sprintf("job %d would need a niceness of %d", r.job.ID, nice),
			)
		}
		jobSpec := *r.job.Spec
		jobSpec.Queue.Nice = int32(nice)
		due = append(
			due,
			&event.JobUpdated{
				UID:     r.job.UID,
				Spec:    &jobSpec,
				Req:     r.job.Req,
				Assoc:   r.job.Assoc,
				Changed: []string{"Nice"},
			},
		)
	}
	for _, ev := range due {
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	return nil
}

// jobsBefore are the jobs that topJob reorders: those with at least the job's
// priority, first come first, and the job itself at the end. Niceness does not move
// a job whose priority an administrator has set: what that has must not pass on to
// others of its user.
func (d jobCommands) jobsBefore(job *state.Job) []ranked {
	ranks := order.NewContext(d.t.State, d.t.Now)
	part := d.t.Parts.Find(job.Partition())
	if part == nil {
		return nil
	}
	own := int64(ranks.Of(job, part.Spec).Total)
	var out []ranked
	d.t.Waiting.Range(func(uid uint64, _ struct{}) bool {
		other := d.t.Job(spec.JobUID(uid))
		if other.UID == job.UID || other.Hold != spec.NotHeld || other.Spec.Queue.Priority != 0 ||
			!sameQueue(other, job) {
			return true
		}
		if priority := int64(ranks.Of(other, part.Spec).Total); priority >= own {
			out = append(out, ranked{other, priority})
		}
		return true
	})
	slices.SortStableFunc(out, func(a, b ranked) int {
		if a.priority != b.priority {
			return cmp.Compare(b.priority, a.priority)
		}
		return cmp.Compare(a.job.UID, b.job.UID)
	})
	return append(out, ranked{job, own})
}

// sameQueue tells two jobs that only their user's wishes order.
func sameQueue(a, b *state.Job) bool {
	return a.Spec.UID == b.Spec.UID && a.Spec.Account == b.Spec.Account &&
		a.Spec.QOS == b.Spec.QOS &&
		a.Partition() == b.Partition()
}
