package sim

import (
	"reflect"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// judgeCommand holds what a command brought about to rules that are written down
// here once more, from the state before it and from what the world knows.
func (w *World) judgeCommand(cmd scheduler.Command, before *state.State, events []event.Envelope) {
	for i := range events {
		switch e := events[i].Event.(type) {
		case *event.NodePowered:
			w.judgePower(before, e, events[i].At)
		case *event.JobStarted:
			w.judgeStart(before, e, events[i].At)
		case *event.JobEndRequested:
			if e.Cause == event.EndPreempt {
				w.judgePreempted(before, e)
			}
		case *event.NodeDeleted:
			if n := before.Node(e.Node); !n.Unused() {
				w.failSeed("%s is deleted under the jobs %v and %d holds", e.Node, n.Jobs, len(n.Holds))
			}
		case *event.ForeignHoldReleased:
			w.judgeReleased(e)
		case *event.RunFenced:
			if p := w.nodeNamed(e.Node).journal[run{e.UID, e.Attempt}]; p != nil && p.alive {
				w.failSeed("attempt %d of job uid %d is called fenced by %s on %s, where it lives", e.Attempt, e.UID, e.By, e.Node)
			}
		case *event.JobEnded:
			if job := before.Job(e.UID); job != nil && job.Spec.Pods != nil &&
				job.State == spec.Pending {
				w.pods.cancelled[e.UID] = true
			}
		case *event.JobNodeDone:
			if job := before.Job(e.UID); job != nil && job.Spec.Pods != nil {
				w.judgeGivenBack(e, job)
				continue
			}
			if n := w.nodeNamed(e.Node); n != nil && !e.Lost {
				if p := n.journal[run{e.UID, e.Attempt}]; p != nil && p.alive {
					w.failSeed("%s is taken from attempt %d of job uid %d, which lives there", e.Node, e.Attempt, e.UID)
				}
			}
		}
	}
	if w.profile.Het > 0 {
		w.judgeTogether()
	}
	switch c := cmd.(type) {
	case scheduler.Tick:
		w.judgeTime()
	case scheduler.Cancel:
		w.judgeCancel(before, c)
	}
}

// judgePreempted: where nothing but what is guaranteed preempts, only the account
// that is guaranteed something pushes others out, and only up to that.
func (w *World) judgePreempted(before *state.State, end *event.JobEndRequested) {
	victim, job := before.Job(end.UID), before.Job(end.For)
	switch {
	case victim == nil || job == nil || job.State != spec.Pending:
		w.failSeed("job uid %d makes room for uid %d, which does not wait", end.UID, end.For)
		return
	case w.profile.Preempt > 0:
		return
	case w.profile.Floor == 0 || job.Spec.Account != floorAccount || victim.Spec.Account == floorAccount:
		w.failSeed(
			"job uid %d of %s makes room for uid %d of %s",
			end.UID,
			victim.Spec.Account,
			end.For,
			job.Spec.Account,
		)
	}
	held := job.Req.CPU
	before.Active.Range(func(uid uint64, _ struct{}) bool {
		if o := before.Job(spec.JobUID(uid)); o.Spec.Account == floorAccount && o.Ending == nil &&
			o.Alloc != nil {
			held += o.Alloc.TRES.CPU
		}
		return true
	})
	if held > int64(w.profile.Floor) {
		w.failSeed(
			"others make room for job uid %d, with which its account has %d CPUs of the %d that it is guaranteed",
			end.For,
			held,
			w.profile.Floor,
		)
	}
}

// judgePower: the site's programs are run once for each step, in time, and
// never for a node that somebody needs.
func (w *World) judgePower(before *state.State, e *event.NodePowered, at spec.Instant) {
	for _, name := range e.Nodes {
		was, is := before.Node(name), w.ctl.st.Node(name)
		switch {
		case e.To == was.Power && (e.To == event.PoweringDown || e.To == event.PoweringUp):
			w.failSeed("%s is powered to %d once more", name, e.To)
		case e.To == event.PoweringUp && was.Power != event.PowerUpWish:
			w.failSeed("%s is powered up, which was %d", name, was.Power)
		case e.To == event.PoweringDown && e.Why == "idle" && (!was.Unused() || at.Sub(was.BusyAt) < 30*spec.Second):
			w.failSeed("%s is powered down as idle, and is not", name)
		// A pod may be reported late, when its node is already powering down by force.
		case e.To == event.PoweredDown && len(is.Jobs) > 0:
			w.failSeed("%s is powered down with jobs %v", name, is.Jobs)
		}
	}
}

// judgeCancel: a job that runs is told to end when it is cancelled, and does
// not run again.
func (w *World) judgeCancel(before *state.State, c scheduler.Cancel) {
	was, is := before.Job(c.Target.UID), w.ctl.st.Job(c.Target.UID)
	if was == nil || c.Signal != 0 {
		return
	}
	goesOn := was.State.Active() && is.State.Active()
	if goesOn && (is.Ending == nil || is.Ending.Requeue) {
		w.failSeed("job uid %d goes on, or will run again, though it was cancelled", is.UID)
	}
}

func (w *World) judgeStart(before *state.State, e *event.JobStarted, at spec.Instant) {
	after := w.ctl.st
	job := after.Job(e.UID)
	was := before.Job(e.UID)
	if was == nil {
		was = before.Job(job.Array)
	}
	switch part := before.Parts.Find(e.Alloc.Partition); {
	case was == nil || was.State != spec.Pending:
		w.failSeed("job uid %d starts, which was not waiting", e.UID)
		return
	case was.Hold != spec.NotHeld:
		w.failSeed("job uid %d starts, which is held", e.UID)
	case was.Begin > at:
		w.failSeed("job uid %d starts before its begin time", e.UID)
	case part == nil || part.Spec.State == spec.PartitionDown || part.Spec.State == spec.PartitionInactive:
		w.failSeed(
			"job uid %d starts in partition %s, which starts nothing",
			e.UID,
			e.Alloc.Partition,
		)
	}
	for i := range e.Alloc.Nodes {
		n := before.Node(e.Alloc.Nodes[i].Name)
		if n != nil && len(n.Unfenced) > 0 {
			w.failSeed(
				"job uid %d starts on %s, where attempt %d of job uid %d was given up",
				e.UID,
				n.Spec.Name,
				n.Unfenced[0].Attempt,
				n.Unfenced[0].UID,
			)
		}
		if n == nil || !isInService(n) || goesDown(n) {
			w.failSeed(
				"job uid %d starts on %s, which is not in service",
				e.UID,
				e.Alloc.Nodes[i].Name,
			)
		}
	}
	if dependency := was.Spec.Queue.Dependency; dependency != nil {
		for i := range dependency.Terms {
			if !dependency.Any && !fulfilled(before, &dependency.Terms[i], was) {
				w.failSeed("job uid %d starts, but does not fulfil %v", e.UID, dependency.Terms[i])
			}
		}
	}
	w.judgeCounts(after, job)
	w.judgeReserved(before, e, job, at)
}

// fulfilled judges a dependency on a job of its own that is still known.
func fulfilled(st *state.State, term *spec.DependencyTerm, job *state.Job) bool {
	if term.Kind == spec.Singleton {
		busy := false
		st.Active.Range(func(uid uint64, _ struct{}) bool {
			o := st.Job(spec.JobUID(uid))
			isEarlier := o.UID < job.UID && o.State.Active()
			sameArray := o.Array != 0 && o.Array == job.Array
			busy = busy || (isEarlier && !sameArray && isNamesake(o, job))
			return !busy
		})
		return !busy
	}
	on := st.Job(term.UID)
	if on == nil || on.Array != 0 || term.Task != spec.NoTask {
		return true // purged, or part of an array: not judged here
	}
	good := on.State == spec.Completed && on.Exit.OK()
	switch term.Kind {
	case spec.After:
		return on.Started != 0 || on.State.Terminal()
	case spec.AfterAny:
		return on.State.Terminal()
	case spec.AfterOK:
		return good
	case spec.AfterNotOK:
		return on.State.Terminal() && !good
	}
	return true
}

// judgeCounts recounts what is limited.
func (w *World) judgeCounts(st *state.State, job *state.Job) {
	var cpus, tasks, licences int64
	st.Active.Range(func(uid uint64, _ struct{}) bool {
		o := st.Job(spec.JobUID(uid))
		if !o.State.Active() {
			return true
		}
		if o.Spec.UID == job.Spec.UID && ranIn(o) == "normal" {
			for i := range o.Alloc.Nodes {
				cpus += int64(o.Alloc.Nodes[i].CPUs.Count())
			}
		}
		if job.Array != 0 && o.Array == job.Array {
			tasks++
		}
		for _, l := range o.Spec.Licenses {
			licences += l.N
		}
		return true
	})
	if w.profile.QOSCap && ranIn(job) == "normal" && cpus > int64(w.profile.CPUs) {
		w.failSeed("user %d has %d CPUs, the limit is %d", job.Spec.UID, cpus, w.profile.CPUs)
	}
	if a := job.Spec.Queue.Array; a != nil && a.Throttle > 0 && tasks > int64(a.Throttle) {
		w.failSeed(
			"%d tasks of the array of job uid %d run at once, the limit is %d",
			tasks,
			job.UID,
			a.Throttle,
		)
	}
	if have := st.LicenseTotal("l"); len(job.Spec.Licenses) > 0 && licences > have {
		w.failSeed("%d licences are in use, there are %d", licences, have)
	}
	if n := w.inQOS(st, job); n > shortJobs {
		w.failSeed("%d jobs run in a QOS for %d", n, shortJobs)
	}
}

// judgeTime: after a tick nothing runs beyond its time limit without having
// been told to end.
func (w *World) judgeTime() {
	st := w.ctl.st
	st.Active.Range(func(uid uint64, _ struct{}) bool {
		job := st.Job(spec.JobUID(uid))
		if job.State != spec.Running || job.Configuring() || job.Ending != nil {
			return true
		}
		if job.Limit == spec.Infinite || w.ctl.clockNow() > st.At {
			return true
		}
		if st.At > max(job.Started, job.Ready).Add(job.Limit+job.Paused+spec.Second) {
			w.failSeed("job uid %d runs beyond its time limit", job.UID)
		}
		return w.err == nil
	})
}

// sameJobs tells whether two states know the same of every job, field by field:
// what a snapshot forgets is in no hash of it.
func sameJobs(a, b *state.State) bool {
	same := a.Jobs.Len() == b.Jobs.Len()
	a.Jobs.Range(func(uid uint64, j *state.Job) bool {
		same = same && reflect.DeepEqual(j, b.Job(spec.JobUID(uid)))
		return same
	})
	return same
}

// isInService tells whether a node has registered, or sleeps and will, and nobody keeps it from jobs.
func isInService(n *state.Node) bool {
	isKnown := n.Inv != nil || n.Asleep()
	return isKnown && n.Admin == event.NodeResume && !n.Lost
}

// goesDown tells whether a node takes no job any more because it powers down or reboots.
func goesDown(n *state.Node) bool {
	if n.Power == event.PowerDownASAP || n.Power == event.PoweringDown {
		return true
	}
	return n.Reboot != nil && (n.Reboot.ASAP || n.Reboot.Issued)
}
