package daemon

import (
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// findTargets finds what a job expression names: 12, 12_3, 12_[1-3,7],
// 12+1. For a whole array these are all its live records.
func findTargets(cluster *state.State, expr string) ([]scheduler.Target, error) {
	if leader, offset, ok := strings.Cut(expr, "+"); ok {
		return componentTarget(cluster, leader, offset)
	}
	number, tasks, isTask := strings.Cut(expr, "_")
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || n == 0 {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	job, array := cluster.JobByID(spec.JobID(n)), cluster.ArrayByID(spec.JobID(n))
	if job != nil {
		array = cluster.ArrayOf(job)
	}
	if job == nil && array != nil { // its record is forgotten, some of its tasks are not
		if isTask && tasks != "*" {
			return taskTargets(cluster, array, tasks)
		}
		return arrayTargets(cluster, array), nil
	}
	if job == nil {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if !isTask || tasks == "*" {
		if array == nil || array.ID != job.ID {
			return []scheduler.Target{{UID: job.UID, Task: spec.NoTask}}, nil
		}
		return arrayTargets(cluster, array), nil
	}
	if array == nil {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	return taskTargets(cluster, array, tasks)
}

// visibleTargets finds what a job expression names of the jobs that a caller
// may know of. What he may not know of is refused as if it did not exist.
func visibleTargets(
	cluster *state.State,
	expr string,
	sees func(*state.Job) bool,
) ([]scheduler.Target, error) {
	list, err := findTargets(cluster, expr)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(t scheduler.Target) bool {
		return !sees(cluster.Job(t.UID))
	})
	if len(list) == 0 {
		return nil, hiddenJob()
	}
	return list, nil
}

// componentTarget finds a component of a heterogeneous job: 12+1.
func componentTarget(cluster *state.State, leader, offset string) ([]scheduler.Target, error) {
	n, err := strconv.ParseUint(leader, 10, 32)
	k, err2 := strconv.ParseUint(offset, 10, 16)
	if err != nil || err2 != nil {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	job := cluster.JobByID(spec.JobID(n + k))
	if job == nil || job.Het == nil || uint64(job.Het.Offset) != k {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	return []scheduler.Target{{UID: job.UID, Task: spec.NoTask}}, nil
}

// taskTargets finds the named tasks of an array.
func taskTargets(
	cluster *state.State, array *state.Array, tasks string,
) ([]scheduler.Target, error) {
	set, err := taskSet(tasks)
	if err != nil {
		return nil, err
	}
	var targets []scheduler.Target
	record := cluster.Job(array.UID)
	for _, task := range set {
		if uid, ok := array.Split.Get(uint64(task)); ok && cluster.Job(uid) != nil {
			targets = append(targets, scheduler.Target{UID: uid, Task: spec.NoTask})
		} else if record != nil && record.Tasks.Has(task) {
			targets = append(targets, scheduler.Target{UID: record.UID, Task: task})
		}
	}
	if len(targets) == 0 {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	return targets, nil
}

// arrayTargets lists an array's records: what still waits together, then the
// tasks of their own.
func arrayTargets(cluster *state.State, array *state.Array) []scheduler.Target {
	var targets []scheduler.Target
	if record := cluster.Job(array.UID); record != nil && record.IsArrayRecord() {
		targets = append(targets, scheduler.Target{UID: record.UID, Task: spec.NoTask})
	}
	array.Split.Range(func(_ uint64, uid spec.JobUID) bool {
		if cluster.Job(uid) != nil {
			targets = append(targets, scheduler.Target{UID: uid, Task: spec.NoTask})
		}
		return true
	})
	return targets
}

// taskSet reads "3", "[1-3,7]" or "[1-9:2]".
func taskSet(text string) ([]int64, error) {
	text = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	set, err := format.ParseArray(text)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidJobID, err.Error())
	}
	var out []int64
	for _, r := range set.Ranges {
		for i := r.First; i <= r.Last && len(out) < 1<<20; i += r.Step {
			out = append(out, int64(i))
		}
	}
	return out, nil
}

// selection is a job filter made ready for use.
type selection struct {
	f      *apiv1.JobFilter
	states []spec.JobState
	only   map[scheduler.Target]bool // nil = not restricted by id
	nodes  []string
	sees   func(*state.Job) bool
}

// newSelection reads a filter of a caller who may know of the jobs that sees
// tells. unknown are the expressions that name none of these.
func newSelection(
	cluster *state.State,
	filter *apiv1.JobFilter,
	sees func(*state.Job) bool,
) (s selection, unknown []string, err error) {
	s.f = filter
	s.nodes = filter.GetNodes()
	s.sees = sees
	for _, n := range filter.GetStates() {
		s.states = append(s.states, spec.JobState(n))
	}
	if len(filter.GetJobs()) == 0 {
		return s, nil, nil
	}
	s.only = map[scheduler.Target]bool{}
	for _, expr := range filter.GetJobs() {
		list, err := visibleTargets(cluster, expr, sees)
		if err != nil {
			unknown = append(unknown, expr)
			continue
		}
		for _, target := range list {
			s.only[target] = true
		}
		if job := cluster.Job(list[0].UID); job.Het.Leads() && !strings.Contains(expr, "+") {
			for _, component := range cluster.Components(job) {
				s.only[scheduler.Target{UID: component.UID, Task: spec.NoTask}] = true
			}
		}
	}
	return s, unknown, nil
}

// matchesJob tells whether a job passes everything but the list of ids.
func (s *selection) matchesJob(job *state.Job) bool {
	filter := s.f
	switch {
	case !among(filter.GetUsers(), job.Spec.User) && !among(filter.GetUsers(), strconv.FormatUint(uint64(job.Spec.UID), 10)),
		!among(filter.GetAccounts(), job.Spec.Account),
		!among(filter.GetNames(), job.Spec.Name),
		!among(filter.GetReservations(), job.Spec.Place.Reservation),
		!among(filter.GetQos(), job.QOS()):
		return false
	}
	if len(filter.GetPartitions()) > 0 {
		if job.Alloc != nil && job.State != spec.Pending {
			if !slices.Contains(filter.GetPartitions(), job.Alloc.Partition) {
				return false
			}
		} else if !slices.ContainsFunc(job.Spec.Partitions, func(p string) bool { return slices.Contains(filter.GetPartitions(), p) }) {
			return false
		}
	}
	if len(s.nodes) > 0 &&
		(job.Alloc == nil || !slices.ContainsFunc(job.Alloc.Nodes, func(a spec.NodeAlloc) bool { return slices.Contains(s.nodes, a.Name) })) {
		return false
	}
	return s.stateMatch(job)
}

func (s *selection) stateMatch(job *state.Job) bool {
	completing := job.Completing() || (job.State.Active() && job.Ending != nil)
	switch {
	case s.f.GetAllStates():
		return true
	case s.f.GetCompleting() && completing:
		return true
	case len(s.states) > 0:
		return slices.Contains(s.states, job.State)
	case s.f.GetCompleting():
		return false
	}
	return !job.State.Terminal() || completing
}

func among(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, value)
}

// eachRecord calls f for the selected records in ascending order of uid.
func (s *selection) eachRecord(cluster *state.State, f func(j *state.Job, t scheduler.Target)) {
	if s.only != nil {
		var list []scheduler.Target
		for target := range s.only {
			list = append(list, target)
		}
		slices.SortFunc(list, func(a, b scheduler.Target) int {
			if a.UID != b.UID {
				return int(int64(a.UID) - int64(b.UID))
			}
			return int(a.Task - b.Task)
		})
		for _, target := range list {
			if job := cluster.Job(target.UID); job != nil && s.sees(job) && s.matchesJob(job) {
				f(job, target)
			}
		}
		return
	}
	cluster.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if s.sees(job) && s.matchesJob(job) {
			f(job, scheduler.Target{UID: job.UID, Task: spec.NoTask})
		}
		return true
	})
}
