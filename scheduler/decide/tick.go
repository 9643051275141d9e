package decide

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/spec"
)

// clock decides what time brings about.
type clock struct{ *decision }

// advanceClock lets time pass.
func (d clock) advanceClock(command Tick) error {
	usage := func() error { return d.usage().tickUsage(command.East) }
	for _, step := range [...]func() error{d.tickRunning, d.nodes().tickResumes, d.steps().tickSteps, usage, d.usage().tickAccrual, d.power().tickPower, d.power().tickReboots, d.reservations().tickReservations, d.triggers().tickTriggers, d.tickPurge} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// tickRunning ends the attempts that are over their time limit, with
// OverTimeLimit on top, or over their deadline, and sends the signal that a
// job asked for before its end.
func (d clock) tickRunning() error {
	var due []event.Event
	d.t.Active.Range(func(uid uint64, _ struct{}) bool {
		job := d.t.Job(spec.JobUID(uid))
		if job.State != spec.Running || job.Ending != nil {
			return true
		}
		end := job.Deadline()
		switch by := job.Spec.Time.Deadline; {
		case job.Configuring() && (by == 0 || by > d.t.Now): // its time has not begun
		case !job.Configuring() && end != spec.FarFuture && end.Add(d.graceOf(job)) <= d.t.Now:
			due = append(due, d.endingOf(job, event.EndTimeLimit))
		case by != 0 && by <= d.t.Now:
			due = append(due, d.endingOf(job, event.EndDeadline))
		case job.Spec.Time.Signal != 0 && !job.Warned && end != spec.FarFuture &&
			end.Add(-job.Spec.Time.SignalBefore) <= d.t.Now:
			scope := event.SignalSteps
			if job.Spec.Time.SignalBatch {
				scope = event.SignalBatch
			}
			due = append(
				due,
				&event.JobSignalled{
					UID:     job.UID,
					Attempt: job.Attempt,
					Signal:  job.Spec.Time.Signal,
					Scope:   scope,
					Warning: true,
				},
			)
		}
		return true
	})
	return d.emitEnds(due)
}

// emitEnds emits what was found due, but for ends of attempts that an end
// before it has brought about already.
func (d *decision) emitEnds(due []event.Event) error {
	for _, ev := range due {
		if e, ok := ev.(*event.JobEndRequested); ok &&
			(!d.t.Job(e.UID).State.Active() || d.t.Job(e.UID).Attempt != e.Attempt) {
			continue
		}
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	return nil
}

func (d clock) endingOf(job *state.Job, cause event.EndCause) event.Event {
	return &event.JobEndRequested{
		UID: job.UID, Attempt: job.Attempt, Cause: cause, By: d.t.Actor.UID,
	}
}

func (d clock) graceOf(job *state.Job) spec.Span {
	if partition := d.t.Parts.Find(job.Alloc.Partition); partition != nil &&
		partition.Spec.OverTimeLimit > 0 {
		return partition.Spec.OverTimeLimit
	}
	return d.t.Config.Timing.OverTimeLimit
}

// tickPurge forgets jobs that ended MinJobAge ago, but for those whose end
// somebody still waits to learn, that EpilogSlurmctld has not run for, or whose pods
// may still be there: a pod without a job would be submitted again. A connector that says
// nothing of them for podsKept is gone for good.
func (d clock) tickPurge() error {
	const (
		maxPurge = 10_000 // of one event; the next tick goes on
		podsKept = 7 * spec.Day
	)
	age := d.t.Config.Timing.MinJobAge
	if age == 0 {
		return nil
	}
	ev, scripts := &event.JobPurged{}, d.t.Config.Ctl
	d.t.Finished.Range(func(_ uint64, uid spec.JobUID) bool {
		job := d.t.Job(uid)
		if job.HeardEnd().Add(age) > d.t.Now {
			return false
		}
		podsLeft := job.Spec.Pods != nil && !job.PodsOver && job.HeardEnd().Add(podsKept) > d.t.Now
		runsEpilogs := scripts != nil && scripts.Epilog != ""
		epilogsLeft := runsEpilogs && len(job.Epilogs) > 0
		if !podsLeft && !epilogsLeft && !eligible.IsAwaited(d.t.State, job) {
			ev.UIDs = append(ev.UIDs, uid)
		}
		return len(ev.UIDs) < maxPurge
	})
	if len(ev.UIDs) == 0 {
		return nil
	}
	return d.Emit(ev)
}
