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
		{"S1.arrays", "an array's counts and split tasks are those of its records", CheckArrays},
		{"S16.apart", "no node has jobs of which one keeps the other off it, because of its user or its MCS label", CheckApart},
		{"S2.nodes", "no CPU, memory, GPU or other resource of a node is allocated twice, and what a node shows as used is what its jobs hold", CheckNodes},
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
	for _, c := range Checks() {
		if err := c.Check(s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

func brokenInvariant(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrInvariant)
}

// labelJob names a job as people know it, with its key.
func (s *State) labelJob(j *Job) string {
	if a := s.ArrayOf(j); a != nil && !j.IsArrayRecord() {
		return fmt.Sprintf("job %d_%d (uid %d)", a.ID, j.Task, j.UID)
	}
	return fmt.Sprintf("job %d (uid %d)", j.ID, j.UID)
}

// Breathing is a frozen state whose invariants, while they are checked, call a
// function every few jobs: whoever checks may let others go first.
func (s *State) Breathing(f func()) *State {
	out := *s
	out.breathe = f
	return &out
}

// breatheEvery is after how many jobs that function is called.
const breatheEvery = 64

// eachJob calls f for each job until one has an error.
func (s *State) eachJob(f func(j *Job) error) error {
	var err error
	n := 0
	s.Jobs.Range(func(uid uint64, j *Job) bool {
		n++
		if s.breathe != nil && n%breatheEvery == 0 {
			s.breathe()
		}
		if uint64(j.UID) != uid {
			err = brokenInvariant("the record of job uid %d says uid %d", uid, j.UID)
		} else {
			err = f(j)
		}
		return err == nil
	})
	return err
}

// countHeldNodes counts the nodes that a job still holds, without trusting its methods.
func countHeldNodes(j *Job) int {
	n := 0
	if j.Alloc == nil || j.State == spec.Pending {
		return 0
	}
	for i := range j.Alloc.Nodes {
		if !j.Done.Has(i) {
			n++
		}
	}
	return n
}

// CheckIndexes is S1: no job is lost, none is in two places.
func CheckIndexes(s *State) error {
	var waiting, active, finished, ids int
	owned := map[uint32]int{}
	err := s.eachJob(func(j *Job) error {
		owned[j.Spec.UID]++
		inWaiting, inActive := s.Waiting.Has(uint64(j.UID)), s.Active.Has(uint64(j.UID))
		end, inFinished := s.Finished.Get(j.EndSeq)
		inFinished = inFinished && end == j.UID && j.EndSeq != 0
		var want string
		switch {
		case j.State == spec.Pending:
			want = "Waiting"
			waiting++
		case j.State == spec.Running || j.State == spec.Suspended || countHeldNodes(j) > 0:
			want = "Active"
			active++
		default:
			want = "Finished"
			finished++
		}
		if inWaiting != (want == "Waiting") || inActive != (want == "Active") || inFinished != (want == "Finished") {
			return brokenInvariant("%s is %s and holds %d nodes: it belongs in %s alone, but waiting %v, active %v, finished %v",
				s.labelJob(j), j.State, countHeldNodes(j), want, inWaiting, inActive, inFinished)
		}
		if s.Sleeping.Has(uint64(j.UID)) != j.Auto {
			return brokenInvariant("%s goes on by itself: %v, but Sleeping says otherwise", s.labelJob(j), j.Auto)
		}
		if j.Array == j.UID && j.Array != 0 {
			return nil // its number is the array's
		}
		ids++
		if uid, ok := s.ByID.Get(uint64(j.ID)); !ok || uid != j.UID {
			return brokenInvariant("%s is not found by its number: ByID says uid %d", s.labelJob(j), uid)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.Arrays.Range(func(key uint64, a *Array) bool {
		ids++
		if uid, ok := s.ByID.Get(uint64(a.ID)); !ok || uid != a.UID || uint64(a.UID) != key {
			err = brokenInvariant("array %d (uid %d) is not found by its number: ByID says uid %d", a.ID, a.UID, uid)
		}
		return err == nil
	})
	if err == nil && (waiting != s.Waiting.Len() || active != s.Active.Len() || finished != s.Finished.Len() || ids != s.ByID.Len()) {
		err = brokenInvariant("indexes hold jobs that do not exist: Waiting %d of %d, Active %d of %d, Finished %d of %d, ByID %d of %d",
			s.Waiting.Len(), waiting, s.Active.Len(), active, s.Finished.Len(), finished, s.ByID.Len(), ids)
	}
	if err == nil && s.Owned.Len() != len(owned) {
		err = brokenInvariant("%d users have jobs, and Owned holds %d", len(owned), s.Owned.Len())
	}
	s.Owned.Range(func(uid uint64, n int) bool {
		if err == nil && owned[uint32(uid)] != n {
			err = brokenInvariant("user %d has %d jobs, and Owned says %d", uid, owned[uint32(uid)], n)
		}
		return err == nil
	})
	return err
}

// CheckGroups is S1 for Named, Waiters and Ends.
func CheckGroups(s *State) error {
	named := 0
	waits := 0
	ends := 0
	err := s.eachJob(func(j *Job) error {
		if j.State < spec.Completed {
			named++
			set, _ := s.Named.Get(NameKey(j.Spec.UID, j.Spec.Name))
			if !set.Has(uint64(j.UID)) {
				return brokenInvariant("%s has no verdict and is not named %q of user %d", s.labelJob(j), j.Spec.Name, j.Spec.UID)
			}
		}
		if end, still := (&recounter{s: s}).dueOf(j); j.Alloc != nil && j.State.Active() && !still {
			ends++
			if jobs, _ := s.Ends.Get(uint64(end)); !jobs.Has(uint64(j.UID)) {
				return brokenInvariant("%s ends at second %d, and Ends does not say so", s.labelJob(j), end)
			}
		}
		if j.State != spec.Pending || j.Spec.Queue.Dependency == nil {
			return nil
		}
		seen := make(map[spec.JobUID]bool)
		for _, t := range j.Spec.Queue.Dependency.Terms {
			if t.UID == 0 || seen[t.UID] {
				continue
			}
			seen[t.UID] = true
			waits++
			set, _ := s.Waiters.Get(uint64(t.UID))
			if !set.Has(uint64(j.UID)) {
				return brokenInvariant("%s waits for uid %d and is not among its waiters", s.labelJob(j), t.UID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n, ok := countEntries(&s.Named); n != named || !ok {
		return brokenInvariant("Named has %d entries for %d jobs without a verdict, or an empty group", n, named)
	}
	if n, ok := countEntries(&s.Waiters); n != waits || !ok {
		return brokenInvariant("Waiters has %d entries for %d dependencies of pending jobs, or an empty group", n, waits)
	}
	if n, ok := countEntries(&s.Ends); n != ends || !ok {
		return brokenInvariant("Ends has %d entries for %d jobs whose time limits run, or an empty group", n, ends)
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
func CheckNumbers(s *State) error {
	err := s.eachJob(func(j *Job) error {
		if j.UID >= s.NextUID || j.ID == 0 {
			return brokenInvariant("%s exists, but the next uid is %d", s.labelJob(j), s.NextUID)
		}
		if j.Changed > s.Seq || j.EndSeq > s.Seq || j.Submitted > s.At {
			return brokenInvariant("%s changed at event %d and ended at %d, but the last event is %d", s.labelJob(j), j.Changed, j.EndSeq, s.Seq)
		}
		return nil
	})
	last := s.Job(s.NextUID - 1)
	if err != nil || last == nil {
		return err
	}
	// A loss of history leaves out the numbers that were given away in it.
	leftOut := s.Lost != nil && s.NextID > last.ID
	if last.ID+1 != s.NextID && !leftOut {
		err = brokenInvariant("%s is the youngest, but the next number is %d", s.labelJob(last), s.NextID)
	}
	return err
}

// arrayCount is what CheckArrays counts from records.
type arrayCount struct{ records, live, running, started, ended, ok, split int64 }

// CheckArrays is S1 for the tasks of arrays.
func CheckArrays(s *State) error {
	counts := make(map[spec.JobUID]*arrayCount)
	err := s.eachJob(func(j *Job) error {
		if j.Array == 0 {
			if len(j.Tasks) > 0 || j.Task != spec.NoTask {
				return brokenInvariant("%s has task %d and tasks %s, but no array", s.labelJob(j), j.Task, j.Tasks)
			}
			return nil
		}
		a := s.ArrayOf(j)
		if a == nil {
			return brokenInvariant("%s belongs to array uid %d, which does not exist", s.labelJob(j), j.Array)
		}
		c := counts[j.Array]
		if c == nil {
			c = &arrayCount{}
			counts[j.Array] = c
		}
		return s.countTask(c, a, j)
	})
	if err != nil {
		return err
	}
	s.Arrays.Range(func(_ uint64, a *Array) bool {
		c := counts[a.UID]
		if c == nil {
			err = brokenInvariant("array %d (uid %d) has no record left", a.ID, a.UID)
			return false
		}
		purged := a.Total - c.live - c.ended
		switch {
		case c.records != a.Records || c.running != a.Running || c.split != int64(a.Split.Len()):
			err = brokenInvariant("array %d (uid %d): %d records, %d running, %d split; its tasks say %d, %d, %d",
				a.ID, a.UID, a.Records, a.Running, a.Split.Len(), c.records, c.running, c.split)
		case purged < 0 || a.Ended != c.ended+purged || a.Started < c.started || a.Started > c.started+purged || a.OK < c.ok || a.OK > c.ok+purged:
			err = brokenInvariant("array %d (uid %d) of %d tasks: started %d, ended %d, well %d; of the %d not purged: %d, %d, %d",
				a.ID, a.UID, a.Total, a.Started, a.Ended, a.OK, a.Total-purged, c.started, c.ended, c.ok)
		}
		return err == nil
	})
	return err
}

func (s *State) countTask(c *arrayCount, a *Array, j *Job) error {
	n := int64(1)
	if len(j.Tasks) > 0 {
		n = 0
		j.Tasks.Each(func(int64) bool { n++; return true })
		if j.UID != j.Array || j.Task != spec.NoTask {
			return brokenInvariant("%s stands for tasks %s, but is not the record of array uid %d", s.labelJob(j), j.Tasks, j.Array)
		}
	} else {
		c.split++
		if uid, ok := a.Split.Get(uint64(j.Task)); !ok || uid != j.UID || j.Task < 0 {
			return brokenInvariant("%s is not split off as task %d: array %d says uid %d", s.labelJob(j), j.Task, a.ID, uid)
		}
	}
	c.records++
	switch {
	case j.State == spec.Pending:
		c.live += n
	case j.State < spec.Completed:
		c.live += n
		c.running++
	default:
		c.ended += n
		if j.State == spec.Completed && j.Exit == (spec.ExitStatus{}) {
			c.ok += n
		}
	}
	if j.Attempt > 0 {
		c.started++
	}
	return nil
}

// CheckAttempts is S4: what a job may and may not show in its state.
func CheckAttempts(s *State) error {
	return s.eachJob(func(j *Job) error {
		bad := func(what string) error {
			return brokenInvariant("%s, %s in attempt %d: %s", s.labelJob(j), j.State, j.Attempt, what)
		}
		ran := j.Alloc != nil
		switch {
		case j.State < spec.Pending || j.State > spec.OutOfMemory:
			return bad("no such state")
		case j.Spec == nil:
			return bad("it has no spec")
		case j.State == spec.Pending && (ran || j.Done != nil || j.Ending != nil || j.EndSeq != 0):
			return bad("it waits, but has an allocation, an end or a decision to end")
		case j.State.Active() && (!ran || j.Attempt == 0 || j.EndSeq != 0 || len(j.Tasks) > 0):
			return bad("it runs, but has no allocation or attempt, or a verdict, or stands for several tasks")
		case j.State.Terminal() && j.EndSeq == 0:
			return bad("it has a verdict that no event gave")
		case j.State.Terminal() && !ran && (j.Ending != nil || j.Done != nil):
			return bad("it ended waiting, but shows parts of a run")
		case (j.SuspendedAt != 0) != (j.State == spec.Suspended) || j.Paused < 0:
			return bad("it is suspended since an instant that does not fit its state")
		case (j.Yields && j.State != spec.Suspended && !j.State.Terminal()) || (j.Auto && j.State != spec.Suspended):
			return bad("it yields its CPUs, or is to go on by itself, but is not suspended")
		case j.Prepares && !j.State.Active():
			return bad("its PrologSlurmctld runs, but it does not")
		case slices.ContainsFunc(j.Epilogs, func(d Epilog) bool {
			return d.Alloc == nil || d.Attempt > j.Attempt || (d.Attempt == j.Attempt && j.State.Active())
		}):
			return bad("an EpilogSlurmctld is due for an attempt that is not over")
		case j.Claim != nil && j.State != spec.Pending:
			return bad("others make room for it, but it does not wait")
		case j.Attempt == 0 && (ran || len(j.Steps) > 0 || j.Started != 0):
			return bad("it never ran, but shows parts of a run")
		case ran && j.Started < j.Submitted, j.State.Terminal() && ran && j.Ended < j.Started, j.State.Terminal() && j.Ended < j.Submitted:
			return bad(fmt.Sprintf("submitted %d, started %d, ended %d", j.Submitted, j.Started, j.Ended))
		case j.Ending != nil && (j.Ending.At < j.Started || j.Ending.Seq > s.Seq):
			return bad("the decision to end it is not of this attempt")
		}
		for i := range j.Steps {
			for k := range i {
				if j.Steps[k].ID == j.Steps[i].ID {
					return bad(fmt.Sprintf("step %s is there twice", j.Steps[i].ID))
				}
			}
		}
		return nil
	})
}
