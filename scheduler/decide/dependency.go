package decide

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/spec"
)

// resolveDependency ties the numbers of a dependency to job records. A term
// that is resolved already (an update that leaves it alone) is kept.
func (d submission) resolveDependency(jobSpec *spec.JobSpec, self *state.Job) error {
	dep := jobSpec.Queue.Dependency
	if dep == nil {
		return nil
	}
	out := *dep
	out.Terms = append([]spec.DependencyTerm(nil), dep.Terms...)
	for i := range out.Terms {
		term := &out.Terms[i]
		if term.Kind == spec.AfterBurstBuffer {
			return spec.Refuse(
				spec.CodeDependencyProblem,
				"afterburstbuffer waits for a burst buffer, and Muster has none: use afterany, or afterok to wait for success",
			)
		}
		if term.Kind == spec.Singleton || term.UID != 0 {
			continue
		}
		uid, err := d.dependencyUID(term)
		if err != nil {
			return err
		}
		if self != nil && uid == self.UID {
			return spec.Refuse(spec.CodeDependencyProblem, "")
		}
		if self != nil && reaches(d.t.State, uid, self.UID, map[spec.JobUID]bool{}) {
			return spec.Refuse(spec.CodeCircularDependency, "")
		}
		term.UID = uid
	}
	jobSpec.Queue.Dependency = &out
	return nil
}

func (d submission) dependencyUID(term *spec.DependencyTerm) (spec.JobUID, error) {
	array := d.visibleArray(d.t.ArrayByID(term.Job))
	job := d.t.JobByID(term.Job)
	if job != nil && !d.mayKnow(job) {
		job = nil
	}
	switch {
	case term.Task == spec.NoTask && array != nil:
		return array.UID, nil
	case term.Task == spec.NoTask && job != nil:
		return job.UID, nil
	case array == nil && job == nil:
		return 0, spec.Refuse(
			spec.CodeDependencyProblem,
			fmt.Sprintf("job %d is not known", term.Job),
		)
	case array == nil:
		return 0, spec.Refuse(
			spec.CodeDependencyProblem,
			fmt.Sprintf("job %d is no array", term.Job),
		)
	}
	if uid, ok := array.Split.Get(uint64(term.Task)); ok {
		return uid, nil
	}
	if !eligible.IsUnsplit(d.t.State, array, term.Task) {
		return 0, spec.Refuse(
			spec.CodeDependencyProblem,
			fmt.Sprintf("job %d has no task %d", term.Job, term.Task),
		)
	}
	return array.UID, nil // the task is found through the array while it is not split
}

// mayKnow tells whether whoever gave the command may know of a job.
func (d submission) mayKnow(job *state.Job) bool { return d.sees == nil || d.sees(job) }

// visibleArray is the array, or nil if whoever gave the command may not know of
// it. All of an array is of one user; the record that stands for what waits may
// be forgotten before its tasks.
func (d submission) visibleArray(array *state.Array) *state.Array {
	if array == nil || d.sees == nil {
		return array
	}
	if record := d.t.Job(array.UID); record != nil {
		if d.sees(record) {
			return array
		}
		return nil
	}
	visible := false
	array.Split.Range(func(_ uint64, uid spec.JobUID) bool {
		task := d.t.Job(uid)
		visible = task != nil && d.sees(task)
		return task == nil
	})
	if visible {
		return array
	}
	return nil
}

// reaches tells whether a chain of dependencies leads from one job to another.
func reaches(cluster *state.State, from, to spec.JobUID, seen map[spec.JobUID]bool) bool {
	job := cluster.Job(from)
	if from == to {
		return true
	}
	if seen[from] || job == nil || job.Spec.Queue.Dependency == nil {
		return false
	}
	seen[from] = true
	for _, term := range job.Spec.Queue.Dependency.Terms {
		if term.UID != 0 && reaches(cluster, term.UID, to, seen) {
			return true
		}
	}
	return false
}
