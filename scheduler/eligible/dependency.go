package eligible

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// IsUnsplit tells a task that is still part of its array's record.
func IsUnsplit(cluster *state.State, array *state.Array, task int64) bool {
	record := cluster.Job(array.UID)
	return record != nil && record.Tasks.Has(task)
}

// DependencyState is what a dependency says now.
type DependencyState uint8

const (
	Waiting       DependencyState = iota
	Satisfied                     // satisfied
	Unsatisfiable                 // cannot be satisfied any more
)

// EvaluateDependency evaluates a job's dependency. If it waits for nothing but time,
// until is when. What has failed once stays failed, also if a job that it
// named is requeued and does well.
func EvaluateDependency(
	cluster *state.State,
	job *state.Job,
	now spec.Instant,
) (v DependencyState, until spec.Instant) {
	dependency := job.Spec.Queue.Dependency
	switch {
	case dependency == nil:
		return Satisfied, 0
	case job.Reason.Code == spec.ReasonDependencyNever:
		return Unsatisfiable, 0
	}
	waiting, failed := 0, 0
	for i := range dependency.Terms {
		v, at := term(cluster, job, &dependency.Terms[i], now)
		switch {
		case v == Satisfied && dependency.Any:
			return Satisfied, 0
		case v == Waiting:
			waiting++
			if until == 0 || (at != 0 && at < until) {
				until = at
			}
		case v == Unsatisfiable:
			failed++
		}
	}
	switch {
	case dependency.Any && waiting > 0:
		return Waiting, until
	case dependency.Any || failed > 0:
		return Unsatisfiable, 0
	case waiting > 0:
		return Waiting, until
	}
	return Satisfied, 0
}

// TermState says how one term of a dependency stands, for display:
// "unfulfilled", "failed", or "" when it is satisfied.
func TermState(
	cluster *state.State, job *state.Job, t *spec.DependencyTerm, now spec.Instant,
) string {
	v, _ := term(cluster, job, t, now)
	switch {
	case v == Satisfied:
		return ""
	case v == Unsatisfiable || job.Reason.Code == spec.ReasonDependencyNever:
		return "failed"
	}
	return "unfulfilled"
}

func term(
	cluster *state.State,
	job *state.Job,
	t *spec.DependencyTerm,
	now spec.Instant,
) (DependencyState, spec.Instant) {
	if t.Kind == spec.Singleton {
		return judgeSingleton(cluster, job), 0
	}
	if array, ok := cluster.Arrays.Get(uint64(t.UID)); ok {
		switch {
		case t.Kind == spec.AfterCorr && job.Array != 0:
			return corresponding(cluster, array, job), 0
		case t.Task == spec.NoTask && t.Kind == spec.After && t.Delay > 0:
			return afterAll(cluster, array, t, now)
		case t.Task == spec.NoTask:
			return wholeArray(array, t), 0
		}
		uid, split := array.Split.Get(uint64(t.Task))
		switch {
		case split:
			return single(cluster.Job(uid), t, now)
		case IsUnsplit(cluster, array, t.Task):
			return Waiting, 0
		}
		return judgeForgotten(t.Kind), 0
	}
	target := cluster.Job(t.UID)
	if target == nil {
		return judgeForgotten(t.Kind), 0
	}
	return single(target, t, now)
}

// judgeForgotten judges a term whose job the controller no longer remembers: it
// ended, with what result is not known here any more.
func judgeForgotten(kind spec.DependencyKind) DependencyState {
	switch kind {
	case spec.After, spec.AfterAny:
		return Satisfied
	}
	return Unsatisfiable
}

func single(
	target *state.Job,
	t *spec.DependencyTerm,
	now spec.Instant,
) (DependencyState, spec.Instant) {
	ok := target.State == spec.Completed && target.Exit.OK()
	done := target.State.Terminal()
	switch t.Kind {
	case spec.After:
		since := target.Started
		if since == 0 && done {
			since = target.Ended
		}
		if since != 0 { // once it has begun, it has, also if it is queued again
			if at := since.Add(t.Delay); at > now {
				return Waiting, at
			}
			return Satisfied, 0
		}
	case spec.AfterAny:
		if done {
			return Satisfied, 0
		}
	case spec.AfterOK, spec.AfterCorr:
		if done {
			return choose(ok), 0
		}
	case spec.AfterNotOK:
		if done {
			return choose(!ok), 0
		}
	}
	return Waiting, 0
}

func choose(ok bool) DependencyState {
	if ok {
		return Satisfied
	}
	return Unsatisfiable
}

// afterAll is after:array+minutes: they count from the start of the last task.
func afterAll(
	cluster *state.State,
	array *state.Array,
	t *spec.DependencyTerm,
	now spec.Instant,
) (DependencyState, spec.Instant) {
	if v := wholeArray(array, t); v != Satisfied {
		return v, 0
	}
	last := spec.Instant(0)
	array.Split.Range(func(_ uint64, uid spec.JobUID) bool {
		if job := cluster.Job(uid); job != nil {
			last = max(last, job.Started)
			if job.Started == 0 {
				last = max(last, job.Ended)
			}
		}
		return true
	})
	if at := last.Add(t.Delay); at > now {
		return Waiting, at
	}
	return Satisfied, 0
}

// wholeArray: after = all started, afterany = all ended, afterok = all
// succeeded, afternotok = all ended and one failed.
func wholeArray(array *state.Array, t *spec.DependencyTerm) DependencyState {
	ended := array.Ended >= array.Total
	switch t.Kind {
	case spec.After:
		if array.Started >= array.Total || ended {
			return Satisfied
		}
	case spec.AfterAny:
		if ended {
			return Satisfied
		}
	case spec.AfterOK, spec.AfterCorr:
		if array.Ended > array.OK {
			return Unsatisfiable
		}
		if ended {
			return Satisfied
		}
	case spec.AfterNotOK:
		if ended {
			return choose(array.OK < array.Total)
		}
	}
	return Waiting
}

// corresponding is aftercorr between arrays: a task waits for the task of the
// same index; without one it can never start. A record of several tasks waits
// as long as any of them does; the pass asks again for each task.
func corresponding(cluster *state.State, array *state.Array, job *state.Job) DependencyState {
	check := func(task int64) DependencyState {
		uid, ok := array.Split.Get(uint64(task))
		switch {
		case ok:
			v, _ := single(cluster.Job(uid), &spec.DependencyTerm{Kind: spec.AfterOK}, 0)
			return v
		case IsUnsplit(cluster, array, task):
			return Waiting
		}
		return Unsatisfiable
	}
	if !job.IsArrayRecord() {
		return check(job.Task)
	}
	out := Unsatisfiable
	job.Tasks.Each(func(task int64) bool {
		switch check(task) {
		case Satisfied:
			out = Satisfied
			return false
		case Waiting:
			out = Waiting
		}
		return true
	})
	return out
}

// judgeSingleton waits for all earlier jobs of the same user and name.
func judgeSingleton(cluster *state.State, job *state.Job) DependencyState {
	set, _ := cluster.Named.Get(state.NameKey(job.Spec.UID, job.Spec.Name))
	out := Satisfied
	set.Range(func(uid uint64, _ struct{}) bool {
		other := cluster.Job(spec.JobUID(uid))
		if other == nil || uid >= uint64(job.UID) || other.Spec.UID != job.Spec.UID ||
			other.Spec.Name != job.Spec.Name {
			return uid < uint64(job.UID)
		}
		if job.Array != 0 && other.Array == job.Array {
			return true
		}
		out = Waiting
		return false
	})
	return out
}

// KillsInvalid tells whether a job whose dependency can never hold is ended.
func KillsInvalid(config *spec.Config, job *state.Job) bool {
	return job.Spec.Queue.KillInvalid.Or(config.Limits.KillInvalidDep)
}

// IsAwaited tells whether a pending job still has to learn how a job ended, so
// that it must not be forgotten.
func IsAwaited(cluster *state.State, job *state.Job) bool {
	for _, key := range [...]spec.JobUID{job.UID, job.Array} {
		set, ok := cluster.Waiters.Get(uint64(key))
		if key == 0 || !ok {
			continue
		}
		waits := false
		set.Range(func(uid uint64, _ struct{}) bool {
			waits = cluster.Job(spec.JobUID(uid)).Reason.Code != spec.ReasonDependencyNever
			return !waits
		})
		if waits {
			return true
		}
	}
	return false
}
