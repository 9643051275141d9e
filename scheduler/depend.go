package scheduler

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// resolveDependency ties the numbers of a dependency to job records. A term
// that is resolved already (an update that leaves it alone) is kept.
func (d *decision) resolveDependency(js *spec.JobSpec, self *state.Job) error {
	dep := js.Queue.Dependency
	if dep == nil {
		return nil
	}
	out := *dep
	out.Terms = append([]spec.DependencyTerm(nil), dep.Terms...)
	for i := range out.Terms {
		t := &out.Terms[i]
		if t.Kind == spec.AfterBurstBuffer {
			return spec.Refuse(spec.CodeDependencyProblem, "afterburstbuffer is not implemented in this release")
		}
		if t.Kind == spec.Singleton || t.UID != 0 {
			continue
		}
		uid, err := d.dependencyUID(t)
		if err != nil {
			return err
		}
		if self != nil && reaches(d.t.State, uid, self.UID, map[spec.JobUID]bool{}) {
			return spec.Refuse(spec.CodeCircularDependency, "")
		}
		t.UID = uid
	}
	js.Queue.Dependency = &out
	return nil
}

func (d *decision) dependencyUID(t *spec.DependencyTerm) (spec.JobUID, error) {
	a := d.t.ArrayByID(t.Job)
	j := d.t.JobByID(t.Job)
	switch {
	case t.Task == spec.NoTask && a != nil:
		return a.UID, nil
	case t.Task == spec.NoTask && j != nil:
		return j.UID, nil
	case a == nil && j == nil:
		return 0, spec.Refuse(spec.CodeDependencyProblem, fmt.Sprintf("job %d is not known", t.Job))
	case a == nil:
		return 0, spec.Refuse(spec.CodeDependencyProblem, fmt.Sprintf("job %d is no array", t.Job))
	}
	if uid, ok := a.Split.Get(uint64(t.Task)); ok {
		return uid, nil
	}
	if !unsplit(d.t.State, a, t.Task) {
		return 0, spec.Refuse(spec.CodeDependencyProblem, fmt.Sprintf("job %d has no task %d", t.Job, t.Task))
	}
	return a.UID, nil // the task is found through the array while it is not split
}

// unsplit tells a task that is still part of its array's record.
func unsplit(st *state.State, a *state.Array, task int64) bool {
	rec := st.Job(a.UID)
	return rec != nil && rec.Tasks.Has(task)
}

// reaches tells whether a chain of dependencies leads from one job to another.
func reaches(st *state.State, from, to spec.JobUID, seen map[spec.JobUID]bool) bool {
	j := st.Job(from)
	if from == to {
		return true
	}
	if seen[from] || j == nil || j.Spec.Queue.Dependency == nil {
		return false
	}
	seen[from] = true
	for _, t := range j.Spec.Queue.Dependency.Terms {
		if t.UID != 0 && reaches(st, t.UID, to, seen) {
			return true
		}
	}
	return false
}

// verdict is what a dependency says now.
type verdict uint8

const (
	waits verdict = iota
	holds         // satisfied
	never         // cannot be satisfied any more
)

// dependency evaluates a job's dependency. If it waits for nothing but time,
// until is when. What has failed once stays failed, also if a job that it
// named is requeued and does well.
func dependency(st *state.State, j *state.Job, now spec.Instant) (v verdict, until spec.Instant) {
	dep := j.Spec.Queue.Dependency
	switch {
	case dep == nil:
		return holds, 0
	case j.Reason.Code == spec.ReasonDependencyNever:
		return never, 0
	}
	waiting, failed := 0, 0
	for i := range dep.Terms {
		v, at := term(st, j, &dep.Terms[i], now)
		switch {
		case v == holds && dep.Any:
			return holds, 0
		case v == waits:
			waiting++
			if until == 0 || (at != 0 && at < until) {
				until = at
			}
		case v == never:
			failed++
		}
	}
	switch {
	case dep.Any && waiting > 0:
		return waits, until
	case dep.Any || failed > 0:
		return never, 0
	case waiting > 0:
		return waits, until
	}
	return holds, 0
}

// TermState says how one term of a dependency stands, for display:
// "unfulfilled", "failed", or "" when it is satisfied.
func TermState(st *state.State, j *state.Job, t *spec.DependencyTerm, now spec.Instant) string {
	v, _ := term(st, j, t, now)
	switch {
	case v == holds:
		return ""
	case v == never || j.Reason.Code == spec.ReasonDependencyNever:
		return "failed"
	}
	return "unfulfilled"
}

func term(st *state.State, j *state.Job, t *spec.DependencyTerm, now spec.Instant) (verdict, spec.Instant) {
	if t.Kind == spec.Singleton {
		return singleton(st, j), 0
	}
	if a, ok := st.Arrays.Get(uint64(t.UID)); ok {
		switch {
		case t.Kind == spec.AfterCorr && j.Array != 0:
			return corresponding(st, a, j), 0
		case t.Task == spec.NoTask && t.Kind == spec.After && t.Delay > 0:
			return afterAll(st, a, t, now)
		case t.Task == spec.NoTask:
			return wholeArray(a, t), 0
		}
		uid, split := a.Split.Get(uint64(t.Task))
		switch {
		case split:
			return single(st.Job(uid), t, now)
		case unsplit(st, a, t.Task):
			return waits, 0
		}
		return forgotten(t.Kind), 0
	}
	target := st.Job(t.UID)
	if target == nil {
		return forgotten(t.Kind), 0
	}
	return single(target, t, now)
}

// forgotten judges a term whose job the controller no longer remembers: it
// ended, with what result is not known here any more.
func forgotten(kind spec.DependencyKind) verdict {
	switch kind {
	case spec.After, spec.AfterAny:
		return holds
	}
	return never
}

func single(target *state.Job, t *spec.DependencyTerm, now spec.Instant) (verdict, spec.Instant) {
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
				return waits, at
			}
			return holds, 0
		}
	case spec.AfterAny:
		if done {
			return holds, 0
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
	return waits, 0
}

func choose(ok bool) verdict {
	if ok {
		return holds
	}
	return never
}

// afterAll is after:array+minutes: they count from the start of the last task.
func afterAll(st *state.State, a *state.Array, t *spec.DependencyTerm, now spec.Instant) (verdict, spec.Instant) {
	if v := wholeArray(a, t); v != holds {
		return v, 0
	}
	last := spec.Instant(0)
	a.Split.Range(func(_ uint64, uid spec.JobUID) bool {
		if j := st.Job(uid); j != nil {
			if last = max(last, j.Started); j.Started == 0 {
				last = max(last, j.Ended)
			}
		}
		return true
	})
	if at := last.Add(t.Delay); at > now {
		return waits, at
	}
	return holds, 0
}

// wholeArray: after = all started, afterany = all ended, afterok = all
// succeeded, afternotok = all ended and one failed.
func wholeArray(a *state.Array, t *spec.DependencyTerm) verdict {
	ended := a.Ended >= a.Total
	switch t.Kind {
	case spec.After:
		if a.Started >= a.Total || ended {
			return holds
		}
	case spec.AfterAny:
		if ended {
			return holds
		}
	case spec.AfterOK, spec.AfterCorr:
		if a.Ended > a.OK {
			return never
		}
		if ended {
			return holds
		}
	case spec.AfterNotOK:
		if ended {
			return choose(a.OK < a.Total)
		}
	}
	return waits
}

// corresponding is aftercorr between arrays: a task waits for the task of the
// same index; without one it can never start. A record of several tasks waits
// as long as any of them does; the pass asks again for each task.
func corresponding(st *state.State, a *state.Array, j *state.Job) verdict {
	check := func(task int64) verdict {
		uid, ok := a.Split.Get(uint64(task))
		switch {
		case ok:
			v, _ := single(st.Job(uid), &spec.DependencyTerm{Kind: spec.AfterOK}, 0)
			return v
		case unsplit(st, a, task):
			return waits
		}
		return never
	}
	if !j.IsArrayRecord() {
		return check(j.Task)
	}
	out := never
	j.Tasks.Each(func(task int64) bool {
		switch check(task) {
		case holds:
			out = holds
			return false
		case waits:
			out = waits
		}
		return true
	})
	return out
}

// singleton waits for all earlier jobs of the same user and name.
func singleton(st *state.State, j *state.Job) verdict {
	set, _ := st.Named.Get(state.NameKey(j.Spec.UID, j.Spec.Name))
	out := holds
	set.Range(func(uid uint64, _ struct{}) bool {
		o := st.Job(spec.JobUID(uid))
		if o == nil || uid >= uint64(j.UID) || o.Spec.UID != j.Spec.UID || o.Spec.Name != j.Spec.Name {
			return uid < uint64(j.UID)
		}
		if j.Array != 0 && o.Array == j.Array {
			return true
		}
		out = waits
		return false
	})
	return out
}

// killInvalid tells whether a job whose dependency can never hold is ended.
func killInvalid(cfg *spec.Config, j *state.Job) bool {
	return j.Spec.Queue.KillInvalid.Or(cfg.Limits.KillInvalidDep)
}

// awaited tells whether a pending job still has to learn how a job ended, so
// that it must not be forgotten.
func awaited(st *state.State, j *state.Job) bool {
	for _, key := range [...]spec.JobUID{j.UID, j.Array} {
		set, ok := st.Waiters.Get(uint64(key))
		if key == 0 || !ok {
			continue
		}
		waits := false
		set.Range(func(uid uint64, _ struct{}) bool {
			waits = st.Job(spec.JobUID(uid)).Reason.Code != spec.ReasonDependencyNever
			return !waits
		})
		if waits {
			return true
		}
	}
	return false
}
