package decide

import (
	"math/bits"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler/fairshare"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// usageClock lets use fade and be charged, and jobs age.
type usageClock struct{ *decision }

// perSecond is what a second leaves of a use: 1 - 0.693/PriorityDecayHalfLife,
// as Slurm computes it; everything where use does not decay.
func perSecond(halfLife spec.Span) uint64 {
	secs := halfLife.Seconds()
	if secs <= 0 || halfLife == spec.Infinite {
		return fixed.One
	}
	hi, lo := bits.Mul64(693, fixed.One)
	if uint64(secs)*1000 <= hi {
		return 1
	}
	off, _ := bits.Div64(hi, lo, uint64(secs)*1000)
	return fixed.One - min(off, fixed.One-1)
}

// calcPeriod is how often use is charged and fades.
func calcPeriod(priority *spec.PriorityConfig) spec.Span {
	if priority.CalcPeriod <= 0 {
		return 5 * spec.Minute
	}
	return priority.CalcPeriod
}

// tickUsage lets use fade and charges running jobs, once a PriorityCalcPeriod,
// and forgets all of it at each turn of PriorityUsageResetPeriod.
func (d usageClock) tickUsage(east func(spec.Instant) spec.Span) error {
	if d.t.Active.Len() == 0 && d.t.Spent.Len() == 0 {
		return nil
	}
	priority, aging := &d.t.Config.Priority, d.t.Aging
	reset := resetDue(priority.UsageReset, max(aging.Reset, d.t.Created), d.t.Now, east)
	if aging.At != 0 && d.t.Now.Sub(aging.At) < calcPeriod(priority) && !reset {
		return nil
	}
	ev := &event.UsageAged{PerSecond: perSecond(priority.HalfLife), Keep: fixed.One}
	if aging.At != 0 {
		ev.Keep = fixed.Pow(aging.PerSecond, d.t.Now.Sub(aging.At).Seconds())
	}
	if err := d.Emit(ev); err != nil {
		return err
	}
	if aging.At.Unix()/3600 != d.t.Now.Unix()/3600 { // once an hour, for accounting
		if err := d.Emit(&event.SharesNoted{Shares: fairshare.Of(d.t.State).Notes()}); err != nil {
			return err
		}
	}
	if reset {
		if err := d.resetUsage(); err != nil {
			return err
		}
	}
	return d.endExhausted()
}

func (d usageClock) resetUsage() error {
	return d.Emit(&event.UsageAged{PerSecond: perSecond(d.t.Config.Priority.HalfLife), Reset: true})
}

// endExhausted ends jobs whose QOS or associations have used up the minutes
// they may, where limits are not safe.
func (d usageClock) endExhausted() error {
	if !d.t.Config.Enforce.Limits || d.t.Config.Enforce.Safe {
		return nil
	}
	var due []event.Event
	d.t.Active.Range(func(uid uint64, _ struct{}) bool {
		job := d.t.Job(spec.JobUID(uid))
		part := d.t.Parts.Find(job.Partition())
		if job.State != spec.Running || job.Ending != nil || part == nil {
			return true
		}
		bound := limits.Find(
			d.t.State,
			limits.Subject{
				Job:   job.Spec.InQOS(job.QOS()),
				Part:  part.Spec,
				Assoc: job.Assoc,
				Now:   d.t.Now,
			},
		)
		if reason := bound.Exhausted(job.Alloc.TRES); reason != nil {
			due = append(
				due,
				&event.JobEndRequested{
					UID:     job.UID,
					Attempt: job.Attempt,
					Cause:   event.EndTimeLimit,
					Detail: reason.String() +
						" of " + reason.Subject,
				},
			)
		}
		return true
	})
	return d.emitEnds(due)
}

// mayAccrue tells whether count more jobs may age, in the first of their
// partitions.
func (d usageClock) mayAccrue(jobSpec *spec.JobSpec, assoc uint32, count int64) bool {
	partition := d.t.Parts.Find(jobSpec.Partitions[0])
	return partition == nil ||
		limits.Accrues(
			d.t.State, limits.Subject{Job: jobSpec, Part: partition.Spec, Assoc: assoc}, count,
		)
}

// tickAccrual lets jobs age that a limit kept from it and for which there is
// room now, those first that were submitted first.
func (d usageClock) tickAccrual() error {
	if !limits.LimitsAccrual(d.t.State) {
		return nil
	}
	for {
		ev := &event.JobsAccruing{}
		d.t.Waiting.Range(func(uid uint64, _ struct{}) bool {
			job := d.t.Job(spec.JobUID(uid))
			if job.NoAccrue && job.Eligible != 0 && job.Hold == spec.NotHeld &&
				d.mayAccrue(job.Spec, job.Assoc, job.Count()) {
				ev.UIDs = append(ev.UIDs, job.UID)
			}
			return len(ev.UIDs) == 0 // each changes the room for the next
		})
		if len(ev.UIDs) == 0 {
			return nil
		}
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
}

// resetDue tells whether a period of PriorityUsageResetPeriod has turned since
// use was last reset.
func resetDue(period string, last, now spec.Instant, east func(spec.Instant) spec.Span) bool {
	if east == nil {
		east = func(spec.Instant) spec.Span { return 0 }
	}
	start, ok := periodStart(period, now.Add(east(now)))
	// The clocks of the zone show that midnight as far ahead of UTC as they are then,
	// not as they are now: summer may have come or gone since. Where they are put
	// back at midnight it comes twice, and the later one counts.
	start = start.Add(-east(start.Add(-east(start))))
	return ok && start > last && start <= now
}

// periodStart is the midnight with which the present period began, by the same
// clock. Weeks begin on Sunday.
func periodStart(period string, now spec.Instant) (spec.Instant, bool) {
	const day = int64(spec.Day / spec.Second)
	days := now.Unix() / day
	_, m, dom := civilDate(days)
	switch period {
	case "DAILY":
	case "WEEKLY":
		days -= (days + 4) % 7 // 1970 began on a Thursday
	case "MONTHLY":
		days -= dom - 1
	case "QUARTERLY", "YEARLY":
		first := int64(1)
		if period == "QUARTERLY" {
			first = (m-1)/3*3 + 1
		}
		for days -= dom - 1; m != first; {
			days--
			_, m, dom = civilDate(days)
			days -= dom - 1
		}
	default:
		return 0, false
	}
	return spec.Instant(days * day * int64(spec.Second)), true
}

// civilDate is the date of a day since 1970.
func civilDate(days int64) (year, month, day int64) {
	z := days + 719468
	era := z / 146097
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	day = doy - (153*mp+2)/5 + 1
	month = mp + 3
	if month > 12 {
		month -= 12
	}
	year = yoe + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

// clearNow resets use where a new configuration asks for it at once.
func (d usageClock) clearNow(old *spec.Config) error {
	if d.t.Config.Priority.UsageReset != "NOW" || old.Priority.UsageReset == "NOW" ||
		d.t.Spent.Len() == 0 {
		return nil
	}
	return d.resetUsage()
}

// countOf is how many jobs a request makes.
func countOf(jobSpec *spec.JobSpec) int64 {
	if query := jobSpec.Queue.Array; query != nil {
		return query.Tasks.Len()
	}
	return 1
}
