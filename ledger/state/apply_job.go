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

func (s *State) storeJob(job *Job) {
	old := s.Job(job.UID)
	s.moveCounters(old, job)
	s.updateIndexes(old, job)
	s.putJob(job)
}

// updateIndexes keeps Waiting, Active, Finished, Named, Waiters and Ends.
func (s *State) updateIndexes(old, job *Job) {
	key := uint64(job.UID)
	member(
		&s.Waiting,
		s.own,
		key,
		old != nil && old.State == spec.Pending,
		job.State == spec.Pending,
	)
	member(&s.Active, s.own, key, old != nil && old.isBusy(), job.isBusy())
	member(&s.Sleeping, s.own, key, old != nil && old.Auto, job.Auto)
	oldDone, done := old != nil && old.isFinished(), job.isFinished()
	if oldDone && (!done || old.EndSeq != job.EndSeq) {
		s.Finished.Delete(s.own, old.EndSeq)
	}
	if done && (!oldDone || old.EndSeq != job.EndSeq) {
		s.Finished.Set(s.own, job.EndSeq, job.UID)
	}
	oldLive, live := old != nil && !old.State.Terminal(), !job.State.Terminal()
	if oldLive != live || (old != nil && old.Spec != job.Spec) {
		if oldLive {
			s.updateGroup(&s.Named, NameKey(old.Spec.UID, old.Spec.Name), job.UID, false)
		}
		if live {
			s.updateGroup(&s.Named, NameKey(job.Spec.UID, job.Spec.Name), job.UID, true)
		}
	}
	s.updateWaiters(old, job)
	s.updateEnds(old, job)
}

// updateWaiters keeps Waiters: a pending job stands under each job it waits for.
func (s *State) updateWaiters(old, job *Job) {
	var was, is *spec.Dependency
	if old != nil && old.State == spec.Pending {
		was = old.Spec.Queue.Dependency
	}
	if job.State == spec.Pending {
		is = job.Spec.Queue.Dependency
	}
	if was == is {
		return
	}
	for _, on := range [...]bool{false, true} {
		dependency := was
		if on {
			dependency = is
		}
		if dependency == nil {
			continue
		}
		for _, t := range dependency.Terms {
			if t.UID != 0 {
				s.updateGroup(&s.Waiters, uint64(t.UID), job.UID, on)
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
	job, err := s.editJob(uid, env)
	if err == nil && job.State != spec.Pending {
		return nil, contradictionError("job uid %d is %s, not pending", uid, job.State)
	}
	return job, err
}

// knownAssoc refuses an association that never existed: the counters of a
// later one with its id would be wrong.
func (s *State) knownAssoc(uid spec.JobUID, assoc uint32) error {
	if assoc > s.Policy.NextAssoc {
		return contradictionError(
			"job uid %d belongs to association %d, which never existed",
			uid,
			assoc,
		)
	}
	return nil
}

func (s *State) applySubmitted(env *event.Envelope, e *event.JobSubmitted) error {
	if e.Spec == nil || e.UID < s.NextUID {
		return contradictionError(
			"job uid %d was given away (the next is %d), or it has no spec",
			e.UID,
			s.NextUID,
		)
	}
	if e.ID == 0 || s.ByID.Has(uint64(e.ID)) {
		return contradictionError("job id %d is used", e.ID)
	}
	if err := s.knownAssoc(e.UID, e.Assoc); err != nil {
		return err
	}
	job := &Job{UID: e.UID, ID: e.ID, Task: spec.NoTask, Spec: e.Spec, Req: e.Req, Assoc: e.Assoc,
		State: spec.Pending, Reason: e.Reason, Hold: e.Spec.Queue.Hold, Submitted: env.At, Eligible: e.Eligible,
		NoAccrue: e.NoAccrue, Begin: e.Spec.Time.Begin, Changed: env.Seq, Submitter: env.Actor, Het: e.Het, Request: e.Request}
	if h := e.Het; h != nil &&
		(h.Offset >= h.Size || h.Leader+spec.JobUID(h.Offset) != e.UID || e.Spec.Queue.Array != nil) {
		return contradictionError(
			"job uid %d cannot be component %d of %d of job uid %d",
			e.UID,
			h.Offset,
			h.Size,
			h.Leader,
		)
	}
	if ask := e.Spec.Queue.Array; ask != nil {
		if len(ask.Tasks) == 0 || !ask.Tasks.Valid() {
			return contradictionError(
				"job uid %d is an array of tasks %v: ranges must be well formed, ascend and not overlap",
				e.UID,
				[]spec.TaskRange(ask.Tasks),
			)
		}
		job.Array, job.Tasks = job.UID, ask.Tasks
		s.Arrays.Set(
			s.own,
			uint64(job.UID),
			&Array{UID: job.UID, ID: job.ID, Total: ask.Tasks.Len(), Records: 1},
		)
	}
	s.NextUID, s.NextID = e.UID+1, e.ID+1
	s.ByID.Set(s.own, uint64(e.ID), e.UID)
	s.indexPods(job)
	s.storeJob(job)
	s.countSubmitted(job)
	return nil
}

func (s *State) applyEligible(env *event.Envelope, eligible *event.JobEligible) error {
	job, err := s.editPending(eligible.UID, env)
	if err != nil {
		return err
	}
	job.Eligible = env.At
	job.Accrue = 0
	job.NoAccrue = eligible.NoAccrue
	s.storeJob(job)
	return nil
}

func (s *State) applyAccruing(env *event.Envelope, e *event.JobsAccruing) error {
	for _, uid := range e.UIDs {
		job, err := s.editPending(uid, env)
		if err != nil {
			return err
		}
		if job.NoAccrue && job.Eligible != 0 {
			job.Accrue, job.NoAccrue = env.At, false
			s.storeJob(job)
		}
	}
	return nil
}

func (s *State) applyReasons(env *event.Envelope, e *event.ReasonsChanged) error {
	for i := range e.Jobs {
		job, err := s.editPending(e.Jobs[i].UID, env)
		if err != nil {
			return err
		}
		job.Reason = e.Jobs[i].Reason
		if job.Promised == 0 {
			job.Promised = e.Jobs[i].Promise
		}
		s.putJob(job)
	}
	return nil
}

func (s *State) applyHeld(env *event.Envelope, e *event.JobHeld) error {
	job, err := s.editPending(e.UID, env)
	if err != nil {
		return err
	}
	if e.By == spec.NotHeld {
		return contradictionError("job uid %d is held by nobody", e.UID)
	}
	job.Hold = e.By
	job.Eligible = 0
	job.Accrue = 0
	job.NoAccrue = false
	job.Claim = nil
	job.Promised = 0
	job.Reason = spec.Reason{Code: HoldReason(e.By)}
	s.storeJob(job)
	return nil
}

// HoldReason is the reason that a hold shows.
func HoldReason(hold spec.Hold) spec.ReasonCode {
	switch hold {
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
	job, err := s.editPending(e.UID, env)
	if err != nil {
		return err
	}
	job.Hold, job.Reason = spec.NotHeld, spec.Reason{Code: spec.ReasonNone}
	s.storeJob(job)
	return nil
}

func (s *State) applyUpdated(env *event.Envelope, e *event.JobUpdated) error {
	job, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if e.Spec == nil || job.State.Terminal() {
		return contradictionError("job uid %d is %s, or the update has no spec", e.UID, job.State)
	}
	if job.State.Active() {
		// The limit in force may differ from the one asked for; it changes
		// only when the update is about it.
		if e.Spec.Time.Limit != job.Spec.Time.Limit || slices.Contains(e.Changed, "TimeLimit") {
			job.Limit = e.Spec.Time.Limit
		}
	} else {
		if err := s.knownAssoc(e.UID, e.Assoc); err != nil {
			return err
		}
		// A job keeps its age in the queue unless the update puts it off.
		if job.Hold != e.Spec.Queue.Hold || job.Begin != e.Spec.Time.Begin || !job.Spec.Queue.Dependency.Equal(e.Spec.Queue.Dependency) {
			job.Eligible = 0
		}
		job.Req = e.Req
		job.Assoc = e.Assoc
		job.Begin = e.Spec.Time.Begin
		job.Hold = e.Spec.Queue.Hold
		job.Claim = nil
		job.Promised = 0
	}
	job.Spec = e.Spec
	s.storeJob(job)
	return nil
}

func (s *State) applySplit(env *event.Envelope, e *event.ArrayTaskSplit) error {
	rec, err := s.editPending(e.Array, env)
	if err != nil {
		return err
	}
	array := s.ArrayOf(rec)
	if array == nil || !rec.Tasks.Has(e.Task) {
		return contradictionError("array uid %d has no task %d left", e.Array, e.Task)
	}
	arr := *array
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
		task.UID = e.UID
		task.ID = e.ID
		task.Task = e.Task
		task.Tasks = nil
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
	job, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if job.State != spec.Pending || job.IsArrayRecord() || e.Attempt != job.Attempt+1 ||
		e.Alloc == nil ||
		len(e.Alloc.Nodes) == 0 {
		nodes := 0
		if e.Alloc != nil {
			nodes = len(e.Alloc.Nodes)
		}
		return contradictionError(
			"attempt %d of job uid %d cannot start on %d nodes: it is %s after attempt %d, with tasks %q left in it",
			e.Attempt,
			e.UID,
			nodes,
			job.State,
			job.Attempt,
			job.Tasks,
		)
	}
	if !e.Alloc.TRES.Valid() {
		return contradictionError(
			"attempt %d of job uid %d is allocated a malformed vector %s",
			e.Attempt,
			e.UID,
			e.Alloc.TRES,
		)
	}
	job.State = spec.Running
	job.Attempt = e.Attempt
	job.Alloc = e.Alloc
	job.Done = nil
	job.Started = env.At
	job.Ended = 0
	job.EndSeq = 0
	job.Limit = e.Limit
	job.Backfill = e.Backfill
	job.Heard = 0
	job.Ending = nil
	job.LastSignal = nil
	job.Batch = nil
	job.Steps = nil
	job.Warned = false
	job.Stopped = false
	job.Leaving = nil
	job.Launched = nil
	job.Charged = 0
	job.NextStep, job.StepExit = 0, spec.ExitStatus{}
	job.Epoch, job.StartSeq = s.CurrentEpoch(), 0
	if job.Epoch != 0 {
		job.StartSeq = env.Seq
	}
	job.Paused = 0
	job.SuspendedAt = 0
	job.Claim = nil
	job.Yields = false
	job.Auto = false
	job.Turn = 0
	job.Boots, job.Ready = s.awaitsBoot(e.Alloc) || job.Spec.Queue.Reboot, 0
	job.Exit = spec.ExitStatus{}
	job.Derived = spec.ExitStatus{}
	job.Usage = spec.Usage{}
	job.EndedBy = 0
	job.Reason, job.StartPrio = spec.Reason{Code: spec.ReasonNone}, e.Priority
	if ctl := s.Config.Ctl; ctl != nil && ctl.Prolog != "" {
		job.Prepares, job.Reason.Code = true, spec.ReasonProlog
	}
	if job.Eligible == 0 {
		job.Eligible = env.At
	}
	for i := range e.Alloc.Nodes {
		if err := s.occupyNodes(job, &e.Alloc.Nodes[i], env.At); err != nil {
			return err
		}
	}
	if err := s.takeLicences(job, e.Alloc.Licenses); err != nil {
		return err
	}
	s.storeJob(job)
	s.tally(job, func(array *Array) {
		array.Running++
		if e.Attempt == 1 {
			array.Started++
		}
	})
	s.countStart(job, env.At)
	return nil
}

// takeLicences takes a job's licences; more than the cluster has is refused.
func (s *State) takeLicences(job *Job, ask []spec.Count) error {
	for _, c := range ask {
		if c.N <= 0 {
			return contradictionError("job uid %d holds %d of licence %s", job.UID, c.N, c.Name)
		}
	}
	s.Licenses = addCounts(s.Licenses, ask, 1)
	for _, count := range ask {
		held, total := countOf(s.Licenses, count.Name), s.LicenseTotal(count.Name)
		if held > total {
			return contradictionError(
				"job uid %d takes licence %s to %d of %d",
				job.UID,
				count.Name,
				held,
				total,
			)
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

func (s *State) occupyNodes(job *Job, alloc *spec.NodeAlloc, at spec.Instant) error {
	old := s.NodeByID(alloc.ID)
	if old == nil || old.Spec.Name != alloc.Name {
		return contradictionError("job uid %d is allocated on unknown node %s", job.UID, alloc.Name)
	}
	if old.Power == event.PoweredDown {
		return contradictionError(
			"job uid %d is allocated on node %s, which is powered down and was not asked to come up",
			job.UID,
			alloc.Name,
		)
	}
	node := *old
	i, twice := slices.BinarySearch(node.Jobs, job.UID)
	if twice {
		return contradictionError("job uid %d is allocated on node %s twice", job.UID, alloc.Name)
	}
	if share := job.Alloc.Share; (share == 0 && node.UsedCPU.Intersects(alloc.CPUs)) ||
		(share > 0 && !node.Shareable(alloc.CPUs, share)) {
		return contradictionError(
			"CPUs of node %s are allocated twice: job uid %d asks for a held one",
			alloc.Name,
			job.UID,
		)
	}
	for k, gpu := range alloc.GPUs {
		i := node.gpuAt(gpu.UUID)
		if i < 0 || !node.FreeWhole(i) ||
			slices.ContainsFunc(
				alloc.GPUs[:k],
				func(h spec.GPURef) bool { return h.UUID == gpu.UUID },
			) {
			return contradictionError(
				"GPU %s of node %s is unknown or allocated twice: job uid %d asks for it",
				gpu.UUID,
				alloc.Name,
				job.UID,
			)
		}
	}
	for k := range alloc.Shares {
		g := &alloc.Shares[k]
		if !node.TakesShare(g) ||
			slices.ContainsFunc(alloc.GPUs, func(h spec.GPURef) bool { return h.UUID == g.UUID }) ||
			!apart(alloc.Shares[:k], g, node.ShareAt(node.gpuAt(g.UUID)).One) {
			return contradictionError(
				"%d %s of GPU %s of node %s are not there for job uid %d",
				g.N,
				g.Name,
				g.UUID,
				alloc.Name,
				job.UID,
			)
		}
	}
	node.take(alloc, job.Alloc.Share > 0, false)
	if over := node.overBy(alloc, s.Config); over != "" {
		return contradictionError(
			"node %s would hold more than it has with job uid %d: %s",
			alloc.Name,
			job.UID,
			over,
		)
	}
	node.BusyAt = at
	node.Jobs = slices.Insert(slices.Clone(node.Jobs), i, job.UID)
	s.putNode(&node)
	return nil
}

// apart tells whether a further part of a device goes with those before it:
// it is of another device, unless only one may be shared.
func apart(before []spec.GPUShare, g *spec.GPUShare, one bool) bool {
	return !slices.ContainsFunc(
		before,
		func(h spec.GPUShare) bool { return h.UUID == g.UUID || one },
	)
}

// tally changes what the tasks of a job's array have in common.
func (s *State) tally(job *Job, f func(a *Array)) {
	if a := s.ArrayOf(job); a != nil {
		c := *a
		f(&c)
		s.Arrays.Set(s.own, uint64(c.UID), &c)
	}
}

func (s *State) applyEndRequested(env *event.Envelope, end *event.JobEndRequested) error {
	job, err := s.editJob(end.UID, env)
	if err != nil {
		return err
	}
	if !job.State.Active() || job.Attempt != end.Attempt {
		return contradictionError("attempt %d of job uid %d is not running", end.Attempt, end.UID)
	}
	// The first decision rules, but what would run again can still be ended.
	if job.Ending == nil || (job.Ending.Requeue && !end.Requeue) {
		job.Ending = &Ending{
			Cause:   end.Cause,
			At:      env.At,
			By:      end.By,
			Requeue: end.Requeue,
			Hold:    end.Hold,
			Detail:  end.Detail,
			Seq:     env.Seq,
			For:     end.For,
			Grace:   end.Grace,
		}
		s.claimRoom(end.For, end.Room, env)
	}
	s.storeJob(job)
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
	job, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if !job.State.Active() || job.Attempt != e.Attempt {
		return contradictionError("attempt %d of job uid %d is not running", e.Attempt, e.UID)
	}
	job.LastSignal = &Signal{Number: e.Signal, Scope: e.Scope, Seq: env.Seq}
	job.Warned = job.Warned || e.Warning
	switch e.Signal {
	case sigStop:
		job.Stopped = true
	case sigCont:
		job.Stopped = false
	}
	s.storeJob(job)
	return nil
}
