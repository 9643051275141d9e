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
func (w *World) judgeCommand(
	command scheduler.Command, before *state.State, events []event.Envelope,
) {
	begun := map[spec.JobUID]bool{} // by this command
	for i := range events {
		switch e := events[i].Event.(type) {
		case *event.NodePowered:
			w.judgePower(before, e, events[i].At)
		case *event.JobStarted:
			w.judgeStart(before, begun, e, events[i].At)
			begun[e.UID] = true
		case *event.JobEndRequested:
			if e.Cause == event.EndPreempt {
				w.judgePreempted(before, e)
			}
		case *event.NodeDeleted:
			if node := before.Node(e.Node); !node.Unused() {
				w.failSeed("node %s is deleted while it has the jobs %v and %d holds", e.Node, node.Jobs, len(node.Holds))
			}
		case *event.ForeignHoldReleased:
			w.judgeReleased(e)
		case *event.RunFenced:
			if p := w.nodeNamed(e.Node).journal[run{e.UID, e.Attempt}]; p != nil && p.alive {
				w.failSeed("attempt %d of job uid %d was declared fenced by %s on %s, where it still has processes", e.Attempt, e.UID, e.By, e.Node)
			}
		case *event.JobNodeDone:
			if job := before.Job(e.UID); job != nil && job.Spec.Pods != nil {
				w.judgeGivenBack(e, job)
				continue
			}
			if node := w.nodeNamed(e.Node); node != nil && !e.Lost {
				if p := node.journal[run{e.UID, e.Attempt}]; p != nil && p.alive {
					w.failSeed("node %s was released by attempt %d of job uid %d, which still has processes there", e.Node, e.Attempt, e.UID)
				}
			}
		}
	}
	if w.profile.Het > 0 {
		w.judgeTogether()
	}
	switch c := command.(type) {
	case scheduler.Tick:
		w.judgeTime()
	case scheduler.Cancel:
		w.judgeCancel(before, c)
	}
}

// podJobsCancelled are the jobs of pods that end without having started.
func podJobsCancelled(before *state.State, events []event.Envelope) []spec.JobUID {
	var cancelled []spec.JobUID
	for i := range events {
		ended, ok := events[i].Event.(*event.JobEnded)
		if !ok {
			continue
		}
		job := before.Job(ended.UID)
		if job != nil && job.Spec.Pods != nil && job.State == spec.Pending {
			cancelled = append(cancelled, ended.UID)
		}
	}
	return cancelled
}

// judgePreempted checks, where only guarantees preempt, that only the account with
// the guarantee preempts others, and only up to its guarantee.
func (w *World) judgePreempted(before *state.State, end *event.JobEndRequested) {
	victim, job := before.Job(end.UID), before.Job(end.For)
	switch {
	case victim == nil || job == nil || job.State != spec.Pending:
		w.failSeed("job uid %d is preempted for uid %d, which is not pending", end.UID, end.For)
		return
	case w.profile.Preempt > 0:
		return
	case w.profile.Floor == 0 || job.Spec.Account != floorAccount || victim.Spec.Account == floorAccount:
		w.failSeed(
			"job uid %d of account %s is preempted for uid %d of account %s, which may not preempt it",
			end.UID,
			victim.Spec.Account,
			end.For,
			job.Spec.Account,
		)
	}
	held := job.Req.CPU
	before.Active.Range(func(uid uint64, _ struct{}) bool {
		if other := before.Job(spec.JobUID(uid)); other.Spec.Account == floorAccount &&
			other.Ending == nil &&
			other.Alloc != nil {
			held += other.Alloc.TRES.CPU
		}
		return true
	})
	if held > int64(w.profile.Floor) {
		w.failSeed(
			"others are preempted for job uid %d, which brings its account to %d CPUs, above its guarantee of %d",
			end.For,
			held,
			w.profile.Floor,
		)
	}
}

// judgePower checks that the site's programs run once for each step, in time, and
// never for a node in use.
func (w *World) judgePower(before *state.State, e *event.NodePowered, at spec.Instant) {
	for _, name := range e.Nodes {
		was, is := before.Node(name), w.ctl.st.Node(name)
		switch {
		case e.To == was.Power && (e.To == event.PoweringDown || e.To == event.PoweringUp):
			w.failSeed("node %s enters power state %d twice", name, e.To)
		case e.To == event.PoweringUp && was.Power != event.PowerUpWish:
			w.failSeed("node %s is powered up from power state %d, without a request", name, was.Power)
		case e.To == event.PoweringDown && e.Why == "idle" && (!was.Unused() || at.Sub(was.BusyAt) < 30*spec.Second):
			w.failSeed("node %s is powered down as idle, but is not idle", name)
		// A pod may be reported late, when its node is already powering down by force.
		case e.To == event.PoweredDown && len(is.Jobs) > 0:
			w.failSeed("node %s is powered down while it has the jobs %v", name, is.Jobs)
		}
	}
}

// judgeCancel checks that a running job is told to end when it is cancelled, and is
// not requeued.
func (w *World) judgeCancel(before *state.State, command scheduler.Cancel) {
	was, is := before.Job(command.Target.UID), w.ctl.st.Job(command.Target.UID)
	if was == nil || command.Signal != 0 {
		return
	}
	goesOn := was.State.Active() && is.State.Active()
	if goesOn && (is.Ending == nil || is.Ending.Requeue) {
		w.failSeed("job uid %d was cancelled, but continues or will be requeued", is.UID)
	}
}

// judgeStart judges a start by the state before the command, and by what the command began before.
func (w *World) judgeStart(
	before *state.State,
	begun map[spec.JobUID]bool,
	e *event.JobStarted,
	at spec.Instant,
) {
	after := w.ctl.st
	job := after.Job(e.UID)
	was := before.Job(e.UID)
	if was == nil {
		was = before.Job(job.Array)
	}
	switch part := before.Parts.Find(e.Alloc.Partition); {
	case was == nil || was.State != spec.Pending:
		w.failSeed("job uid %d starts, but was not pending", e.UID)
		return
	case was.Hold != spec.NotHeld:
		w.failSeed("job uid %d starts, but is held", e.UID)
	case was.Begin > at:
		w.failSeed("job uid %d starts before its begin time", e.UID)
	case part == nil || part.Spec.State == spec.PartitionDown || part.Spec.State == spec.PartitionInactive:
		w.failSeed(
			"job uid %d starts in partition %s, which is missing, down or inactive",
			e.UID,
			e.Alloc.Partition,
		)
	}
	for i := range e.Alloc.Nodes {
		node := before.Node(e.Alloc.Nodes[i].Name)
		if node != nil && len(node.Unfenced) > 0 {
			w.failSeed(
				"job uid %d starts on %s, where attempt %d of job uid %d is not fenced yet",
				e.UID,
				node.Spec.Name,
				node.Unfenced[0].Attempt,
				node.Unfenced[0].UID,
			)
		}
		if node == nil || !isInService(node) || goesDown(node) {
			w.failSeed(
				"job uid %d starts on %s, which is not in service",
				e.UID,
				e.Alloc.Nodes[i].Name,
			)
		}
	}
	if dependency := was.Spec.Queue.Dependency; dependency != nil {
		for i := range dependency.Terms {
			term := &dependency.Terms[i]
			hasBegun := term.Kind == spec.After && begun[term.UID]
			if !dependency.Any && !hasBegun && !fulfilled(before, term, was) {
				w.failSeed("job uid %d starts, but its dependency %v is not satisfied", e.UID, *term)
			}
		}
	}
	w.judgeCounts(after, job)
	w.judgeReserved(before, e, job, at)
}

// fulfilled judges a dependency on a job of its own that is still known.
func fulfilled(cluster *state.State, term *spec.DependencyTerm, job *state.Job) bool {
	if term.Kind == spec.Singleton {
		busy := false
		cluster.Active.Range(func(uid uint64, _ struct{}) bool {
			other := cluster.Job(spec.JobUID(uid))
			isEarlier := other.UID < job.UID && other.State.Active()
			sameArray := other.Array != 0 && other.Array == job.Array
			busy = busy || (isEarlier && !sameArray && isNamesake(other, job))
			return !busy
		})
		return !busy
	}
	on := cluster.Job(term.UID)
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
func (w *World) judgeCounts(cluster *state.State, job *state.Job) {
	var cpus, tasks, licences int64
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		other := cluster.Job(spec.JobUID(uid))
		if !other.State.Active() {
			return true
		}
		if other.Spec.UID == job.Spec.UID && ranIn(other) == "normal" {
			for i := range other.Alloc.Nodes {
				cpus += int64(other.Alloc.Nodes[i].CPUs.Count())
			}
		}
		if job.Array != 0 && other.Array == job.Array {
			tasks++
		}
		for _, l := range other.Spec.Licenses {
			licences += l.N
		}
		return true
	})
	if w.profile.QOSCap && ranIn(job) == "normal" && cpus > int64(w.profile.CPUs) {
		w.failSeed("user %d has %d CPUs, the limit is %d", job.Spec.UID, cpus, w.profile.CPUs)
	}
	if query := job.Spec.Queue.Array; query != nil && query.Throttle > 0 &&
		tasks > int64(query.Throttle) {
		w.failSeed(
			"%d tasks of the array of job uid %d run at the same time, the limit is %d",
			tasks,
			job.UID,
			query.Throttle,
		)
	}
	if have := cluster.LicenseTotal("l"); len(job.Spec.Licenses) > 0 && licences > have {
		w.failSeed("%d licences are in use, but the cluster has %d", licences, have)
	}
	if n := w.inQOS(cluster, job); n > shortJobs {
		w.failSeed("%d jobs run in the second QOS, the limit is %d", n, shortJobs)
	}
}

// judgeTime checks after a tick that no job exceeds its time limit without having
// been told to end.
func (w *World) judgeTime() {
	cluster := w.ctl.st
	cluster.Active.Range(func(uid uint64, _ struct{}) bool {
		job := cluster.Job(spec.JobUID(uid))
		if job.State != spec.Running || job.Configuring() || job.Ending != nil {
			return true
		}
		if job.Limit == spec.Infinite || w.ctl.clockNow() > cluster.At {
			return true
		}
		if cluster.At > max(job.Started, job.Ready).Add(job.Limit+job.Paused+spec.Second) {
			w.failSeed("job uid %d runs beyond its time limit", job.UID)
		}
		return w.err == nil
	})
}

// sameJobs compares every job of two states field by field, because a field that the
// snapshot omits is missing from the hash as well.
func sameJobs(a, b *state.State) bool {
	same := a.Jobs.Len() == b.Jobs.Len()
	a.Jobs.Range(func(uid uint64, job *state.Job) bool {
		same = same && reflect.DeepEqual(job, b.Job(spec.JobUID(uid)))
		return same
	})
	return same
}

// isInService tells whether a node takes jobs: it has registered, or is powered down and
// will register, and is not drained.
func isInService(node *state.Node) bool {
	isKnown := node.Inv != nil || node.Asleep()
	return isKnown && node.Admin == event.NodeResume && !node.Lost
}

// goesDown tells whether a node takes no more jobs because it powers down or reboots.
func goesDown(node *state.Node) bool {
	if node.Power == event.PowerDownASAP || node.Power == event.PoweringDown {
		return true
	}
	return node.Reboot != nil && (node.Reboot.ASAP || node.Reboot.Issued)
}
