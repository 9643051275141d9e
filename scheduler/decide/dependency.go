package decide

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/spec"
)

// resolveDependency ties the numbers of a dependency to job records. A term
// that is resolved already (an update that leaves it alone) is kept.
func (d submission) resolveDependency(js *spec.JobSpec, self *state.Job) error {
	dep := js.Queue.Dependency
	if dep == nil {
		return nil
	}
	out := *dep
	out.Terms = append([]spec.DependencyTerm(nil), dep.Terms...)
	for i := range out.Terms {
		t := &out.Terms[i]
		if t.Kind == spec.AfterBurstBuffer {
			return spec.Refuse(spec.CodeDependencyProblem, "afterburstbuffer waits for a burst buffer, and Muster has none: use afterany, or afterok to wait for success")
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

func (d submission) dependencyUID(t *spec.DependencyTerm) (spec.JobUID, error) {
	a := d.visibleArray(d.t.ArrayByID(t.Job))
	j := d.t.JobByID(t.Job)
	if j != nil && !d.mayKnow(j) {
		j = nil
	}
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
	if !eligible.IsUnsplit(d.t.State, a, t.Task) {
		return 0, spec.Refuse(spec.CodeDependencyProblem, fmt.Sprintf("job %d has no task %d", t.Job, t.Task))
	}
	return a.UID, nil // the task is found through the array while it is not split
}

// mayKnow tells whether whoever gave the command may know of a job.
func (d submission) mayKnow(j *state.Job) bool { return d.sees == nil || d.sees(j) }

// visibleArray is the array, or nil if whoever gave the command may not know of
// it. All of an array is of one user; the record that stands for what waits may
// be forgotten before its tasks.
func (d submission) visibleArray(a *state.Array) *state.Array {
	if a == nil || d.sees == nil {
		return a
	}
	if record := d.t.Job(a.UID); record != nil {
		if d.sees(record) {
			return a
		}
		return nil
	}
	visible := false
	a.Split.Range(func(_ uint64, uid spec.JobUID) bool {
		task := d.t.Job(uid)
		visible = task != nil && d.sees(task)
		return task == nil
	})
	if visible {
		return a
	}
	return nil
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
