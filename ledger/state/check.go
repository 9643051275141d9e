package state

import (
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// ErrInvariant tells a state that breaks one of its invariants.
var ErrInvariant = errors.New("an invariant of the state is broken")

// NamedCheck is an invariant: a name for metrics and logs, the rule in one
// sentence, and the function that finds a breach.
type NamedCheck struct {
	Name  string
	Rule  string
	Check func(*State) error
}

// Checks lists every invariant that holds between any two events.
//
//muster:table one line for each invariant
func Checks() []NamedCheck {
	return []NamedCheck{
		{"S1.indexes", "each job is in exactly one of Waiting, Active and Finished, and in ByID under its number", CheckIndexes},
		{"S1.groups", "Named holds each job without a verdict, Waiters each pending job under each job it waits for", CheckGroups},
		{"S1.numbers", "uids and ids are unique, and the next ones are unused", CheckNumbers},
		{"S24.adopted", "no job has a number of those that only lost histories gave away, and an attempt that was adopted was not started by an event of this history", CheckAdopted},
		{"S1.arrays", "an array's counts and split tasks are those of its records", CheckArrays},
		{"S16.apart", "no node has jobs of which one keeps the other off it, because of its user or its MCS label", CheckApart},
		{"S2.nodes", "no CPU, memory, GPU or other resource of a node is allocated twice, and what a node shows as used is what its jobs hold", CheckNodes},
		{"S26.pods", "a pod is of one job, which has a task for each of its pods and one attempt", CheckPods},
		{"S25.holds", "jobs and the holds of other schedulers have no CPU or device of a node in common, and the holds have the CPUs that they need", CheckHolds},
		{"S2.registry", "node names and ids belong together, and partitions name configured nodes", CheckRegistry},
		{"S2.licences", "licences held are those of the jobs that run", CheckLicences},
		{"S2.reservations", "reservations are in order, each with a time and with nodes of the registry", CheckReservations},
		{"S19.power", "a node that is powered down has no job, and one that is being powered up only jobs that wait for it", CheckPower},
		{"S3.gangs", "an allocation is whole: its nodes are distinct and its vector is their sum", CheckGangs},
		{"S4.attempts", "a job's attempt, times and verdict fit its state", CheckAttempts},
		{"S5.fences", "a job counts the nodes on which an attempt of it was given up and is not fenced, and none of those attempts is the one that runs", CheckFences},
		{"S21.steps", "what steps have lies within what their job holds, and no two that do not share have the same", CheckSteps},
		{"S6.usage", "the counters that limits are checked against equal a recount from scratch", CheckUsage},
		{"S6.spent", "what was used is charged to QOS and associations only, and nothing is kept where nothing is left", CheckSpent},
		{"S6.policy", "QOS, accounts, users and associations are sorted and unambiguous", CheckPolicy},
	}
}

// Check runs every invariant and reports all that are broken.
func (s *State) Check() error {
	var errs []error
	for _, check := range Checks() {
		if err := check.Check(s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", check.Name, err))
		}
	}
	return errors.Join(errs...)
}

func brokenInvariant(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrInvariant)
}

// labelJob names a job as people know it, with its key.
func (s *State) labelJob(job *Job) string {
	if array := s.ArrayOf(job); array != nil && !job.IsArrayRecord() {
		return fmt.Sprintf("job %d_%d (uid %d)", array.ID, job.Task, job.UID)
	}
	return fmt.Sprintf("job %d (uid %d)", job.ID, job.UID)
}

// Breathing is a frozen state whose invariants, while they are checked, call a
// function every few jobs: whoever checks may let others go first.
func (s *State) Breathing(f func()) *State {
	state := *s
	state.breathe = f
	return &state
}

// breatheEvery is after how many jobs that function is called.
const breatheEvery = 64

// eachJob calls f for each job until one has an error.
func (s *State) eachJob(f func(j *Job) error) error {
	var err error
	n := 0
	s.Jobs.Range(func(uid uint64, job *Job) bool {
		n++
		if s.breathe != nil && n%breatheEvery == 0 {
			s.breathe()
		}
		if uint64(job.UID) != uid {
			err = brokenInvariant("the record of job uid %d says uid %d", uid, job.UID)
		} else {
			err = f(job)
		}
		return err == nil
	})
	return err
}

// countHeldNodes counts the nodes that a job still holds, without trusting its methods.
func countHeldNodes(job *Job) int {
	n := 0
	if job.Alloc == nil || job.State == spec.Pending {
		return 0
	}
	for i := range job.Alloc.Nodes {
		if !job.Done.Has(i) {
			n++
		}
	}
	return n
}

// CheckIndexes is S1: no job is lost, none is in two places.
func CheckIndexes(state *State) error {
	var waiting, active, finished, ids int
	owned := map[uint32]int{}
	err := state.eachJob(func(job *Job) error {
		owned[job.Spec.UID]++
		inWaiting, inActive := state.Waiting.Has(uint64(job.UID)), state.Active.Has(uint64(job.UID))
		end, inFinished := state.Finished.Get(job.EndSeq)
		inFinished = inFinished && end == job.UID && job.EndSeq != 0
		var want string
		switch {
		case job.State == spec.Pending:
			want = "Waiting"
			waiting++
		case job.State == spec.Running || job.State == spec.Suspended || countHeldNodes(job) > 0:
			want = "Active"
			active++
		default:
			want = "Finished"
			finished++
		}
		if inWaiting != (want == "Waiting") || inActive != (want == "Active") ||
			inFinished != (want == "Finished") {
			return brokenInvariant(
				"%s is %s and holds %d nodes: it belongs in %s alone, but waiting %v, active %v, finished %v",
				state.labelJob(
					job,
				),
				job.State,
				countHeldNodes(job),
				want,
				inWaiting,
				inActive,
				inFinished,
			)
		}
		if state.Sleeping.Has(uint64(job.UID)) != job.Auto {
			return brokenInvariant(
				"%s goes on by itself: %v, but Sleeping says otherwise",
				state.labelJob(job),
				job.Auto,
			)
		}
		if job.Array == job.UID && job.Array != 0 {
			return nil // its number is the array's
		}
		ids++
		if uid, ok := state.ByID.Get(uint64(job.ID)); !ok || uid != job.UID {
			return brokenInvariant(
				"%s is not found by its number: ByID says uid %d",
				state.labelJob(job),
				uid,
			)
		}
		return nil
	})
	if err != nil {
		return err
	}
	state.Arrays.Range(func(key uint64, array *Array) bool {
		ids++
		if uid, ok := state.ByID.Get(uint64(array.ID)); !ok || uid != array.UID ||
			uint64(array.UID) != key {
			err = brokenInvariant(
				"array %d (uid %d) is not found by its number: ByID says uid %d",
				array.ID,
				array.UID,
				uid,
			)
		}
		return err == nil
	})
	if err == nil &&
		(waiting != state.Waiting.Len() || active != state.Active.Len() || finished != state.Finished.Len() || ids != state.ByID.Len()) {
		err = brokenInvariant(
			"indexes hold jobs that do not exist: Waiting %d of %d, Active %d of %d, Finished %d of %d, ByID %d of %d",
			state.Waiting.Len(),
			waiting,
			state.Active.Len(),
			active,
			state.Finished.Len(),
			finished,
			state.ByID.Len(),
			ids,
		)
	}
	if err == nil && state.Owned.Len() != len(owned) {
		err = brokenInvariant(
			"%d users have jobs, and Owned holds %d",
			len(owned),
			state.Owned.Len(),
		)
	}
	state.Owned.Range(func(uid uint64, n int) bool {
		if err == nil && owned[uint32(uid)] != n {
			err = brokenInvariant(
				"user %d has %d jobs, and Owned says %d",
				uid,
				owned[uint32(uid)],
				n,
			)
		}
		return err == nil
	})
	return err
}

// CheckGroups is S1 for Named, Waiters and Ends.
func CheckGroups(state *State) error {
	named := 0
	waits := 0
	ends := 0
	err := state.eachJob(func(job *Job) error {
		if job.State < spec.Completed {
			named++
			set, _ := state.Named.Get(NameKey(job.Spec.UID, job.Spec.Name))
			if !set.Has(uint64(job.UID)) {
				return brokenInvariant(
					"%s has no verdict and is not named %q of user %d",
					state.labelJob(job),
					job.Spec.Name,
					job.Spec.UID,
				)
			}
		}
		if end, still := (&recounter{s: state}).dueOf(job); job.Alloc != nil &&
			job.State.Active() &&
			!still {
			ends++
			if jobs, _ := state.Ends.Get(uint64(end)); !jobs.Has(uint64(job.UID)) {
				return brokenInvariant(
					"%s ends at second %d, and Ends does not say so",
					state.labelJob(job),
					end,
				)
			}
		}
		if job.State != spec.Pending || job.Spec.Queue.Dependency == nil {
			return nil
		}
		seen := make(map[spec.JobUID]bool)
		for _, term := range job.Spec.Queue.Dependency.Terms {
			if term.UID == 0 || seen[term.UID] {
				continue
			}
			seen[term.UID] = true
			waits++
			set, _ := state.Waiters.Get(uint64(term.UID))
			if !set.Has(uint64(job.UID)) {
				return brokenInvariant(
					"%s waits for uid %d and is not among its waiters",
					state.labelJob(job),
					term.UID,
				)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n, ok := countEntries(&state.Named); n != named || !ok {
		return brokenInvariant(
			"Named has %d entries for %d jobs without a verdict, or an empty group",
			n,
			named,
		)
	}
	if n, ok := countEntries(&state.Waiters); n != waits || !ok {
		return brokenInvariant(
			"Waiters has %d entries for %d dependencies of pending jobs, or an empty group",
			n,
			waits,
		)
	}
	if n, ok := countEntries(&state.Ends); n != ends || !ok {
		return brokenInvariant(
			"Ends has %d entries for %d jobs whose time limits run, or an empty group",
			n,
			ends,
		)
	}
	return nil
}

// countEntries counts the members of all groups; ok is false if one is empty.
func countEntries(m *Groups) (n int, ok bool) {
	ok = true
	m.Range(func(_ uint64, set Set) bool {
		n += set.Len()
		ok = ok && set.Len() > 0
		return true
	})
	return n, ok
}

// CheckNumbers is S1 for the numbers to come.
func CheckNumbers(state *State) error {
	err := state.eachJob(func(job *Job) error {
		if job.UID >= state.NextUID || job.ID == 0 {
			return brokenInvariant(
				"%s exists, but the next uid is %d",
				state.labelJob(job),
				state.NextUID,
			)
		}
		if job.Changed > state.Seq || job.EndSeq > state.Seq || job.Submitted > state.At {
			return brokenInvariant(
				"%s changed at event %d and ended at %d, but the last event is %d",
				state.labelJob(job),
				job.Changed,
				job.EndSeq,
				state.Seq,
			)
		}
		return nil
	})
	last := state.Job(state.NextUID - 1)
	if err != nil || last == nil {
		return err
	}
	// A loss of history leaves out the numbers that were given away in it.
	leftOut := state.Lost != nil && state.NextID > last.ID
	if last.ID+1 != state.NextID && !leftOut {
		err = brokenInvariant(
			"%s is the youngest, but the next number is %d",
			state.labelJob(last),
			state.NextID,
		)
	}
	return err
}

// CheckAdopted is S24 for runs of lost histories: each becomes a job once, with an identity that
// no job of this history ever had.
func CheckAdopted(state *State) error {
	var last spec.JobUID
	if state.Lost != nil {
		for _, free := range state.Lost.Free {
			if free.UID > free.UIDTo || free.UID < last || free.UIDTo > state.NextUID {
				return brokenInvariant(
					"uids %d to %d are said to be of a lost history, behind %d; the next is %d",
					free.UID, free.UIDTo, last, state.NextUID,
				)
			}
			last = free.UIDTo
		}
	}
	return state.eachJob(func(job *Job) error {
		switch {
		case state.IsLostUID(job.UID):
			return brokenInvariant(
				"%s exists, and its uid is one that only a lost history gave away",
				state.labelJob(job),
			)
		case job.Adopted && job.State.Active() &&
			(job.Epoch == 0 || state.HasSeen(job.Epoch, job.StartSeq)):
			return brokenInvariant(
				"%s was adopted, and event %d of epoch %016x, its start, is of this history",
				state.labelJob(job),
				job.StartSeq,
				job.Epoch,
			)
		}
		return nil
	})
}

// arrayCount is what CheckArrays counts from records.
type arrayCount struct{ records, live, running, started, ended, ok, split int64 }

// CheckArrays is S1 for the tasks of arrays.
func CheckArrays(state *State) error {
	counts := make(map[spec.JobUID]*arrayCount)
	err := state.eachJob(func(job *Job) error {
		if job.Array == 0 {
			if len(job.Tasks) > 0 || job.Task != spec.NoTask {
				return brokenInvariant(
					"%s has task %d and tasks %s, but no array",
					state.labelJob(job),
					job.Task,
					job.Tasks,
				)
			}
			return nil
		}
		array := state.ArrayOf(job)
		if array == nil {
			return brokenInvariant(
				"%s belongs to array uid %d, which does not exist",
				state.labelJob(job),
				job.Array,
			)
		}
		count := counts[job.Array]
		if count == nil {
			count = &arrayCount{}
			counts[job.Array] = count
		}
		return state.countTask(count, array, job)
	})
	if err != nil {
		return err
	}
	state.Arrays.Range(func(_ uint64, array *Array) bool {
		count := counts[array.UID]
		if count == nil {
			err = brokenInvariant("array %d (uid %d) has no record left", array.ID, array.UID)
			return false
		}
		purged := array.Total - count.live - count.ended
		switch {
		case count.records != array.Records || count.running != array.Running || count.split != int64(array.Split.Len()):
			err = brokenInvariant(
				"array %d (uid %d): %d records, %d running, %d split; its tasks say %d, %d, %d",
				array.ID,
				array.UID,
				array.Records,
				array.Running,
				array.Split.Len(),
				count.records,
				count.running,
				count.split,
			)
		case purged < 0 || array.Ended != count.ended+purged,
			!fitsPurged(array.Started, count.started, purged),
			!fitsPurged(array.OK, count.ok, purged):
			err = brokenInvariant(
				"array %d (uid %d) of %d tasks: started %d, ended %d, well %d; of the %d not purged: %d, %d, %d",
				array.ID,
				array.UID,
				array.Total,
				array.Started,
				array.Ended,
				array.OK,
				array.Total-purged,
				count.started,
				count.ended,
				count.ok,
			)
		}
		return err == nil
	})
	return err
}

func (s *State) countTask(count *arrayCount, array *Array, job *Job) error {
	n := int64(1)
	if len(job.Tasks) > 0 {
		n = 0
		job.Tasks.Each(func(int64) bool { n++; return true })
		if job.UID != job.Array || job.Task != spec.NoTask {
			return brokenInvariant(
				"%s stands for tasks %s, but is not the record of array uid %d",
				s.labelJob(job),
				job.Tasks,
				job.Array,
			)
		}
	} else {
		count.split++
		if uid, ok := array.Split.Get(uint64(job.Task)); !ok || uid != job.UID || job.Task < 0 {
			return brokenInvariant("%s is not split off as task %d: array %d says uid %d", s.labelJob(job), job.Task, array.ID, uid)
		}
	}
	count.records++
	switch {
	case job.State == spec.Pending:
		count.live += n
	case job.State < spec.Completed:
		count.live += n
		count.running++
	default:
		count.ended += n
		if job.State == spec.Completed && job.Exit == (spec.ExitStatus{}) {
			count.ok += n
		}
	}
	if job.Attempt > 0 {
		count.started++
	}
	return nil
}

// CheckAttempts is S4: what a job may and may not show in its state.
func CheckAttempts(state *State) error {
	return state.eachJob(func(job *Job) error {
		bad := func(what string) error {
			return brokenInvariant(
				"%s, %s in attempt %d: %s",
				state.labelJob(job),
				job.State,
				job.Attempt,
				what,
			)
		}
		ran := job.Alloc != nil
		switch {
		case job.State < spec.Pending || job.State > spec.OutOfMemory:
			return bad("no such state")
		case job.Spec == nil:
			return bad("it has no spec")
		case job.State == spec.Pending && (ran || showsRun(job) || job.EndSeq != 0):
			return bad("it waits, but has an allocation, an end or a decision to end")
		case job.State.Active() && (!ran || job.Attempt == 0),
			job.State.Active() && (job.EndSeq != 0 || len(job.Tasks) > 0):
			return bad(
				"it runs, but has no allocation or attempt, or a verdict, or stands for several tasks",
			)
		case job.State.Terminal() && job.EndSeq == 0:
			return bad("it has a verdict that no event gave")
		case job.State.Terminal() && !ran && showsRun(job):
			return bad("it ended waiting, but shows parts of a run")
		case (job.SuspendedAt != 0) != (job.State == spec.Suspended) || job.Paused < 0:
			return bad("it is suspended since an instant that does not fit its state")
		case job.Yields && job.State != spec.Suspended && !job.State.Terminal(),
			job.Auto && job.State != spec.Suspended:
			return bad("it yields its CPUs, or is to go on by itself, but is not suspended")
		case job.Prepares && !job.State.Active():
			return bad("its PrologSlurmctld runs, but it does not")
		case slices.ContainsFunc(job.Epilogs, func(epilog Epilog) bool {
			return epilog.Alloc == nil || epilog.Attempt > job.Attempt ||
				(epilog.Attempt == job.Attempt && job.State.Active())
		}):
			return bad("an EpilogSlurmctld is due for an attempt that is not over")
		case job.Claim != nil && job.State != spec.Pending:
			return bad("others make room for it, but it does not wait")
		case job.Attempt == 0 && (ran || len(job.Steps) > 0 || job.Started != 0):
			return bad("it never ran, but shows parts of a run")
		case ran && job.Started < job.Submitted,
			job.State.Terminal() && ran && job.Ended < job.Started,
			job.State.Terminal() && job.Ended < job.Submitted:
			return bad(
				fmt.Sprintf(
					"submitted %d, started %d, ended %d",
					job.Submitted,
					job.Started,
					job.Ended,
				),
			)
		case job.Ending != nil && (job.Ending.At < job.Started || job.Ending.Seq > state.Seq):
			return bad("the decision to end it is not of this attempt")
		}
		for i := range job.Steps {
			for k := range i {
				if job.Steps[k].ID == job.Steps[i].ID {
					return bad(fmt.Sprintf("step %s is there twice", job.Steps[i].ID))
				}
			}
		}
		return nil
	})
}

// fitsPurged tells whether a count over the tasks of an array fits the tasks that are left of it:
// of the purged ones it is not known whether they counted.
func fitsPurged[N int | int32 | int64 | uint32 | uint64](counted, left, purged N) bool {
	return counted >= left && counted <= left+purged
}

// showsRun tells whether a job shows parts of a run.
func showsRun(job *Job) bool { return job.Ending != nil || job.Done != nil }
