package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
)

// editJob copies a job for a change; store puts the copy back and moves every
// index and counter that depends on the record.
func (s *State) editJob(uid spec.JobUID, env *event.Envelope) (*Job, error) {
	old := s.Job(uid)
	if old == nil {
		return nil, contradictionError("no job with uid %d", uid)
	}
	j := *old
	j.Changed = env.Seq
	return &j, nil
}

func (s *State) storeJob(j *Job) {
	old := s.Job(j.UID)
	s.moveCounters(old, j)
	s.updateIndexes(old, j)
	s.putJob(j)
}

// updateIndexes keeps Waiting, Active, Finished, Named, Waiters and Ends.
func (s *State) updateIndexes(old, j *Job) {
	key := uint64(j.UID)
	member(&s.Waiting, s.own, key, old != nil && old.State == spec.Pending, j.State == spec.Pending)
	member(&s.Active, s.own, key, old != nil && old.isBusy(), j.isBusy())
	member(&s.Sleeping, s.own, key, old != nil && old.Auto, j.Auto)
	oldDone, done := old != nil && old.isFinished(), j.isFinished()
	if oldDone && (!done || old.EndSeq != j.EndSeq) {
		s.Finished.Delete(s.own, old.EndSeq)
	}
	if done && (!oldDone || old.EndSeq != j.EndSeq) {
		s.Finished.Set(s.own, j.EndSeq, j.UID)
	}
	oldLive, live := old != nil && !old.State.Terminal(), !j.State.Terminal()
	if oldLive != live || (old != nil && old.Spec != j.Spec) {
		if oldLive {
			s.updateGroup(&s.Named, NameKey(old.Spec.UID, old.Spec.Name), j.UID, false)
		}
		if live {
			s.updateGroup(&s.Named, NameKey(j.Spec.UID, j.Spec.Name), j.UID, true)
		}
	}
	s.updateWaiters(old, j)
	s.updateEnds(old, j)
}

// updateWaiters keeps Waiters: a pending job stands under each job it waits for.
func (s *State) updateWaiters(old, j *Job) {
	var was, is *spec.Dependency
	if old != nil && old.State == spec.Pending {
		was = old.Spec.Queue.Dependency
	}
	if j.State == spec.Pending {
		is = j.Spec.Queue.Dependency
	}
	if was == is {
		return
	}
	for _, on := range [...]bool{false, true} {
		d := was
		if on {
			d = is
		}
		if d == nil {
			continue
		}
		for _, t := range d.Terms {
			if t.UID != 0 {
				s.updateGroup(&s.Waiters, uint64(t.UID), j.UID, on)
			}
		}
	}
}

func (s *State) updateGroup(m *pmap.Map[Set], key uint64, uid spec.JobUID, add bool) {
	set, _ := m.Get(key)
	if add {
		set.Set(s.own, uint64(uid), struct{}{})
	} else {
		set.Delete(s.own, uint64(uid))
	}
	if set.Len() == 0 {
		m.Delete(s.own, key)
		return
	}
	m.Set(s.own, key, set)
}

func member(m *Set, own *pmap.Owner, key uint64, was, is bool) {
	switch {
	case is && !was:
		m.Set(own, key, struct{}{})
	case was && !is:
		m.Delete(own, key)
	}
}

func (j *Job) isFinished() bool { return j.State.Terminal() && !j.HoldsNodes() }

// isBusy tells a job that belongs in Active.
func (j *Job) isBusy() bool { return j.State.Active() || j.HoldsNodes() }

// editPending is edit for events that only a waiting job can have.
func (s *State) editPending(uid spec.JobUID, env *event.Envelope) (*Job, error) {
	j, err := s.editJob(uid, env)
	if err == nil && j.State != spec.Pending {
		return nil, contradictionError("job uid %d is %s, not pending", uid, j.State)
	}
	return j, err
}

// knownAssoc refuses an association that never existed: the counters of a
// later one with its id would be wrong.
func (s *State) knownAssoc(uid spec.JobUID, assoc uint32) error {
	if assoc > s.Policy.NextAssoc {
		return contradictionError("job uid %d belongs to association %d, which never existed", uid, assoc)
	}
	return nil
}

func (s *State) applySubmitted(env *event.Envelope, e *event.JobSubmitted) error {
	if e.Spec == nil || e.UID < s.NextUID {
		return contradictionError("job uid %d was given away (the next is %d), or it has no spec", e.UID, s.NextUID)
	}
	if e.ID == 0 || s.ByID.Has(uint64(e.ID)) {
		return contradictionError("job id %d is used", e.ID)
	}
	if err := s.knownAssoc(e.UID, e.Assoc); err != nil {
		return err
	}
	j := &Job{UID: e.UID, ID: e.ID, Task: spec.NoTask, Spec: e.Spec, Req: e.Req, Assoc: e.Assoc,
		State: spec.Pending, Reason: e.Reason, Hold: e.Spec.Queue.Hold, Submitted: env.At, Eligible: e.Eligible,
		NoAccrue: e.NoAccrue, Begin: e.Spec.Time.Begin, Changed: env.Seq, Submitter: env.Actor, Het: e.Het, Request: e.Request}
	if h := e.Het; h != nil && (h.Offset >= h.Size || h.Leader+spec.JobUID(h.Offset) != e.UID || e.Spec.Queue.Array != nil) {
		return contradictionError("job uid %d cannot be component %d of %d of job uid %d", e.UID, h.Offset, h.Size, h.Leader)
	}
	if a := e.Spec.Queue.Array; a != nil {
		if len(a.Tasks) == 0 || !a.Tasks.Valid() {
			return contradictionError("job uid %d is an array of tasks %v: ranges must be well formed, ascend and not overlap", e.UID, []spec.TaskRange(a.Tasks))
		}
		j.Array, j.Tasks = j.UID, a.Tasks
		s.Arrays.Set(s.own, uint64(j.UID), &Array{UID: j.UID, ID: j.ID, Total: a.Tasks.Len(), Records: 1})
	}
	s.NextUID, s.NextID = e.UID+1, e.ID+1
	s.ByID.Set(s.own, uint64(e.ID), e.UID)
	s.storeJob(j)
	s.countSubmitted(j)
	return nil
}

func (s *State) applyEligible(env *event.Envelope, e *event.JobEligible) error {
	j, err := s.editPending(e.UID, env)
	if err != nil {
		return err
	}
	j.Eligible, j.Accrue, j.NoAccrue = env.At, 0, e.NoAccrue
	s.storeJob(j)
	return nil
}

func (s *State) applyAccruing(env *event.Envelope, e *event.JobsAccruing) error {
	for _, uid := range e.UIDs {
		j, err := s.editPending(uid, env)
		if err != nil {
			return err
		}
		if j.NoAccrue && j.Eligible != 0 {
			j.Accrue, j.NoAccrue = env.At, false
			s.storeJob(j)
		}
	}
	return nil
}

func (s *State) applyReasons(env *event.Envelope, e *event.ReasonsChanged) error {
	for i := range e.Jobs {
		j, err := s.editPending(e.Jobs[i].UID, env)
		if err != nil {
			return err
		}
		j.Reason = e.Jobs[i].Reason
		if j.Promised == 0 {
			j.Promised = e.Jobs[i].Promise
		}
		s.putJob(j)
	}
	return nil
}

func (s *State) applyHeld(env *event.Envelope, e *event.JobHeld) error {
	j, err := s.editPending(e.UID, env)
	if err != nil {
		return err
	}
	if e.By == spec.NotHeld {
		return contradictionError("job uid %d is held by nobody", e.UID)
	}
	j.Hold = e.By
	j.Eligible = 0
	j.Accrue = 0
	j.NoAccrue = false
	j.Claim = nil
	j.Promised = 0
	j.Reason = spec.Reason{Code: HoldReason(e.By)}
	s.storeJob(j)
	return nil
}

// HoldReason is the reason that a hold shows.
func HoldReason(h spec.Hold) spec.ReasonCode {
	switch h {
	case spec.HeldByUser, spec.HeldSpecialExit:
		return spec.ReasonHeldUser
	case spec.HeldByAdmin:
		return spec.ReasonHeldAdmin
	case spec.HeldMaxRequeue:
		return spec.ReasonHoldMaxRequeue
	}
	return spec.ReasonNone
}

func (s *State) applyReleased(env *event.Envelope, e *event.JobReleased) error {
	j, err := s.editPending(e.UID, env)
	if err != nil {
		return err
	}
	j.Hold, j.Reason = spec.NotHeld, spec.Reason{Code: spec.ReasonNone}
	s.storeJob(j)
	return nil
}

func (s *State) applyUpdated(env *event.Envelope, e *event.JobUpdated) error {
	j, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if e.Spec == nil || j.State.Terminal() {
		return contradictionError("job uid %d is %s, or the update has no spec", e.UID, j.State)
	}
	if j.State.Active() {
		// The limit in force may differ from the one asked for; it changes
		// only when the update is about it.
		if e.Spec.Time.Limit != j.Spec.Time.Limit || slices.Contains(e.Changed, "TimeLimit") {
			j.Limit = e.Spec.Time.Limit
		}
	} else {
		if err := s.knownAssoc(e.UID, e.Assoc); err != nil {
			return err
		}
		// A job keeps its age in the queue unless the update puts it off.
		if j.Hold != e.Spec.Queue.Hold || j.Begin != e.Spec.Time.Begin || !j.Spec.Queue.Dependency.Equal(e.Spec.Queue.Dependency) {
			j.Eligible = 0
		}
		j.Req, j.Assoc, j.Begin, j.Hold, j.Claim = e.Req, e.Assoc, e.Spec.Time.Begin, e.Spec.Queue.Hold, nil
		j.Promised = 0
	}
	j.Spec = e.Spec
	s.storeJob(j)
	return nil
}

func (s *State) applySplit(env *event.Envelope, e *event.ArrayTaskSplit) error {
	rec, err := s.editPending(e.Array, env)
	if err != nil {
		return err
	}
	a := s.ArrayOf(rec)
	if a == nil || !rec.Tasks.Has(e.Task) {
		return contradictionError("array uid %d has no task %d left", e.Array, e.Task)
	}
	arr := *a
	left := rec.Tasks.Without(e.Task)
	if e.UID == e.Array {
		if len(left) > 0 {
			return contradictionError("array uid %d still has tasks %s", e.Array, left)
		}
		rec.Task, rec.Tasks = e.Task, nil
		s.storeJob(rec)
	} else {
		if e.UID < s.NextUID || e.ID == 0 || s.ByID.Has(uint64(e.ID)) || len(left) == 0 {
			return contradictionError("task %d of array uid %d, with %d more left, cannot be uid %d, id %d (next are %d, %d)",
				e.Task, e.Array, left.Len(), e.UID, e.ID, s.NextUID, s.NextID)
		}
		task := *rec
		task.UID, task.ID, task.Task, task.Tasks = e.UID, e.ID, e.Task, nil
		task.Request = 0 // the array's record keeps it
		rec.Tasks, rec.Claim = left, nil
		rec.Promised = 0
		s.NextUID, s.NextID = e.UID+1, e.ID+1
		s.ByID.Set(s.own, uint64(e.ID), e.UID)
		s.storeJob(rec)
		s.storeJob(&task)
		arr.Records++
	}
	arr.Split.Set(s.own, uint64(e.Task), e.UID)
	s.Arrays.Set(s.own, uint64(arr.UID), &arr)
	return nil
}

func (s *State) applyStarted(env *event.Envelope, e *event.JobStarted) error {
	j, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if j.State != spec.Pending || j.IsArrayRecord() || e.Attempt != j.Attempt+1 || e.Alloc == nil || len(e.Alloc.Nodes) == 0 {
		nodes := 0
		if e.Alloc != nil {
			nodes = len(e.Alloc.Nodes)
		}
		return contradictionError("attempt %d of job uid %d cannot start on %d nodes: it is %s after attempt %d, with tasks %q left in it",
			e.Attempt, e.UID, nodes, j.State, j.Attempt, j.Tasks)
	}
	if !e.Alloc.TRES.Valid() {
		return contradictionError("attempt %d of job uid %d is allocated a malformed vector %s", e.Attempt, e.UID, e.Alloc.TRES)
	}
	j.State, j.Attempt, j.Alloc, j.Done = spec.Running, e.Attempt, e.Alloc, nil
	j.Started, j.Ended, j.EndSeq, j.Limit, j.Backfill = env.At, 0, 0, e.Limit, e.Backfill
	j.Ending = nil
	j.LastSignal = nil
	j.Batch = nil
	j.Steps = nil
	j.Warned = false
	j.Stopped = false
	j.Leaving = nil
	j.Launched = nil
	j.Charged = 0
	j.NextStep, j.StepExit = 0, spec.ExitStatus{}
	j.Epoch, j.StartSeq = s.CurrentEpoch(), 0
	if j.Epoch != 0 {
		j.StartSeq = env.Seq
	}
	j.Paused = 0
	j.SuspendedAt = 0
	j.Claim = nil
	j.Yields = false
	j.Auto = false
	j.Turn = 0
	j.Boots, j.Ready = s.awaitsBoot(e.Alloc) || j.Spec.Queue.Reboot, 0
	j.Exit, j.Derived, j.Usage, j.EndedBy = spec.ExitStatus{}, spec.ExitStatus{}, spec.Usage{}, 0
	j.Reason, j.StartPrio = spec.Reason{Code: spec.ReasonNone}, e.Priority
	if ctl := s.Config.Ctl; ctl != nil && ctl.Prolog != "" {
		j.Prepares, j.Reason.Code = true, spec.ReasonProlog
	}
	if j.Eligible == 0 {
		j.Eligible = env.At
	}
	for i := range e.Alloc.Nodes {
		if err := s.occupyNodes(j, &e.Alloc.Nodes[i], env.At); err != nil {
			return err
		}
	}
	if err := s.takeLicences(j, e.Alloc.Licenses); err != nil {
		return err
	}
	s.storeJob(j)
	s.tally(j, func(a *Array) {
		a.Running++
		if e.Attempt == 1 {
			a.Started++
		}
	})
	s.countStart(j, env.At)
	return nil
}

// takeLicences takes a job's licences; more than the cluster has is refused.
func (s *State) takeLicences(j *Job, ask []spec.Count) error {
	for _, c := range ask {
		if c.N <= 0 {
			return contradictionError("job uid %d holds %d of licence %s", j.UID, c.N, c.Name)
		}
	}
	s.Licenses = addCounts(s.Licenses, ask, 1)
	for _, c := range ask {
		held, total := countOf(s.Licenses, c.Name), s.LicenseTotal(c.Name)
		if held > total {
			return contradictionError("job uid %d takes licence %s to %d of %d", j.UID, c.Name, held, total)
		}
	}
	return nil
}

// LicenseTotal is how many of a licence the cluster's jobs may hold: those of
// the configuration, and of a resource name@server what it may use.
func (s *State) LicenseTotal(name string) int64 {
	n := countOf(s.Config.Licenses, name)
	for i := range s.Policy.Resources {
		if r := &s.Policy.Resources[i]; resourceKey(r) == name {
			n += r.Available()
		}
	}
	return n
}

// LicenseTotals lists every licence with what LicenseTotal says of it: those of
// the configuration, then resources of other servers.
func (s *State) LicenseTotals() []spec.Count {
	out := slices.Clone(s.Config.Licenses)
	for i := range s.Policy.Resources {
		r := &s.Policy.Resources[i]
		out = append(out, spec.Count{Name: resourceKey(r), N: r.Available()})
	}
	return out
}

// countOf sums a list over the types of a name.
func countOf(list []spec.Count, name string) int64 {
	var n int64
	for _, c := range list {
		if c.Name == name {
			n += c.N
		}
	}
	return n
}

func (s *State) occupyNodes(j *Job, a *spec.NodeAlloc, at spec.Instant) error {
	old := s.NodeByID(a.ID)
	if old == nil || old.Spec.Name != a.Name {
		return contradictionError("job uid %d is allocated on unknown node %s", j.UID, a.Name)
	}
	if old.Power == event.PoweredDown {
		return contradictionError("job uid %d is allocated on node %s, which is powered down and was not asked to come up", j.UID, a.Name)
	}
	n := *old
	i, twice := slices.BinarySearch(n.Jobs, j.UID)
	if twice {
		return contradictionError("job uid %d is allocated on node %s twice", j.UID, a.Name)
	}
	if share := j.Alloc.Share; (share == 0 && n.UsedCPU.Intersects(a.CPUs)) || (share > 0 && !n.Shareable(a.CPUs, share)) {
		return contradictionError("CPUs of node %s are allocated twice: job uid %d asks for a held one", a.Name, j.UID)
	}
	for k, g := range a.GPUs {
		i := n.gpuAt(g.UUID)
		if i < 0 || !n.FreeWhole(i) || slices.ContainsFunc(a.GPUs[:k], func(h spec.GPURef) bool { return h.UUID == g.UUID }) {
			return contradictionError("GPU %s of node %s is unknown or allocated twice: job uid %d asks for it", g.UUID, a.Name, j.UID)
		}
	}
	for k := range a.Shares {
		g := &a.Shares[k]
		if !n.TakesShare(g) || slices.ContainsFunc(a.GPUs, func(h spec.GPURef) bool { return h.UUID == g.UUID }) || !apart(a.Shares[:k], g, n.ShareAt(n.gpuAt(g.UUID)).One) {
			return contradictionError("%d %s of GPU %s of node %s are not there for job uid %d", g.N, g.Name, g.UUID, a.Name, j.UID)
		}
	}
	n.take(a, j.Alloc.Share > 0, false)
	if over := n.overBy(a, s.Config); over != "" {
		return contradictionError("node %s would hold more than it has with job uid %d: %s", a.Name, j.UID, over)
	}
	n.BusyAt = at
	n.Jobs = slices.Insert(slices.Clone(n.Jobs), i, j.UID)
	s.putNode(&n)
	return nil
}

// apart tells whether a further part of a device goes with those before it:
// it is of another device, unless only one may be shared.
func apart(before []spec.GPUShare, g *spec.GPUShare, one bool) bool {
	return !slices.ContainsFunc(before, func(h spec.GPUShare) bool { return h.UUID == g.UUID || one })
}

// tally changes what the tasks of a job's array have in common.
func (s *State) tally(j *Job, f func(a *Array)) {
	if a := s.ArrayOf(j); a != nil {
		c := *a
		f(&c)
		s.Arrays.Set(s.own, uint64(c.UID), &c)
	}
}

func (s *State) applyEndRequested(env *event.Envelope, e *event.JobEndRequested) error {
	j, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if !j.State.Active() || j.Attempt != e.Attempt {
		return contradictionError("attempt %d of job uid %d is not running", e.Attempt, e.UID)
	}
	// The first decision rules, but what would run again can still be ended.
	if j.Ending == nil || (j.Ending.Requeue && !e.Requeue) {
		j.Ending = &Ending{Cause: e.Cause, At: env.At, By: e.By, Requeue: e.Requeue, Hold: e.Hold, Detail: e.Detail, Seq: env.Seq,
			For: e.For, Grace: e.Grace}
		s.claimRoom(e.For, e.Room, env)
	}
	s.storeJob(j)
	return nil
}

// claimRoom notes that others make room for a job that waits.
func (s *State) claimRoom(uid spec.JobUID, room spec.Bitset, env *event.Envelope) {
	if j := s.Job(uid); len(room) == 0 || j == nil || j.State != spec.Pending {
		return
	}
	if j, err := s.editJob(uid, env); err == nil {
		j.Claim = room
		s.storeJob(j)
	}
}

func (s *State) applySignalled(env *event.Envelope, e *event.JobSignalled) error {
	j, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if !j.State.Active() || j.Attempt != e.Attempt {
		return contradictionError("attempt %d of job uid %d is not running", e.Attempt, e.UID)
	}
	j.LastSignal = &Signal{Number: e.Signal, Scope: e.Scope, Seq: env.Seq}
	j.Warned = j.Warned || e.Warning
	switch e.Signal {
	case sigStop:
		j.Stopped = true
	case sigCont:
		j.Stopped = false
	}
	s.storeJob(j)
	return nil
}
