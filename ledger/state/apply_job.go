package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
)

// editJob copies a job for a change; store puts the copy back and moves every
// index and counter that depends on the record.
func (s *State) editJob(uid spec.JobUID, envelope *event.Envelope) (*Job, error) {
	old := s.Job(uid)
	if old == nil {
		return nil, contradictionError("no job with uid %d", uid)
	}
	job := *old
	job.Changed = envelope.Seq
	return &job, nil
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
		for _, term := range dependency.Terms {
			if term.UID != 0 {
				s.updateGroup(&s.Waiters, uint64(term.UID), job.UID, on)
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
func (s *State) editPending(uid spec.JobUID, envelope *event.Envelope) (*Job, error) {
	job, err := s.editJob(uid, envelope)
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

func (s *State) applySubmitted(envelope *event.Envelope, e *event.JobSubmitted) error {
	if e.Adopted != nil && !s.IsLostUID(e.UID) {
		return contradictionError("job uid %d was not given away by a lost history", e.UID)
	}
	if e.Spec == nil || (e.Adopted == nil && e.UID < s.NextUID) {
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
		State: spec.Pending, Reason: e.Reason, Hold: e.Spec.Queue.Hold, Submitted: envelope.At,
		Eligible: e.Eligible,
		NoAccrue: e.NoAccrue, Begin: e.Spec.Time.Begin, Changed: envelope.Seq,
		Submitter: envelope.Actor, Het: e.Het, Request: e.Request}
	if part := e.Het; part != nil &&
		(part.Offset >= part.Size || part.Leader+spec.JobUID(part.Offset) != e.UID ||
			e.Spec.Queue.Array != nil) {
		return contradictionError(
			"job uid %d cannot be component %d of %d of job uid %d",
			e.UID,
			part.Offset,
			part.Size,
			part.Leader,
		)
	}
	if query := e.Spec.Queue.Array; query != nil {
		if len(query.Tasks) == 0 || !query.Tasks.Valid() {
			return contradictionError(
				"job uid %d is an array of tasks %v: ranges must be well formed, ascend and not overlap",
				e.UID,
				[]spec.TaskRange(query.Tasks),
			)
		}
		job.Array, job.Tasks = job.UID, query.Tasks
		s.Arrays.Set(
			s.own,
			uint64(job.UID),
			&Array{UID: job.UID, ID: job.ID, Total: query.Tasks.Len(), Records: 1},
		)
	}
	if e.Adopted != nil {
		s.takeLostUID(e.UID)
		job.Submitted, job.Restarts = e.Adopted.At, e.Adopted.Restarts
		if e.Adopted.By != nil {
			job.Submitter = *e.Adopted.By
		}
		s.NextID = max(s.NextID, e.ID+1)
	} else {
		s.NextUID, s.NextID = e.UID+1, e.ID+1
	}
	s.ByID.Set(s.own, uint64(e.ID), e.UID)
	s.indexPods(job)
	s.storeJob(job)
	s.countSubmitted(job)
	return nil
}

func (s *State) applyEligible(envelope *event.Envelope, eligible *event.JobEligible) error {
	job, err := s.editPending(eligible.UID, envelope)
	if err != nil {
		return err
	}
	job.Eligible = envelope.At
	job.Accrue = 0
	job.NoAccrue = eligible.NoAccrue
	s.storeJob(job)
	return nil
}

func (s *State) applyAccruing(envelope *event.Envelope, e *event.JobsAccruing) error {
	for _, uid := range e.UIDs {
		job, err := s.editPending(uid, envelope)
		if err != nil {
			return err
		}
		if job.NoAccrue && job.Eligible != 0 {
			job.Accrue, job.NoAccrue = envelope.At, false
			s.storeJob(job)
		}
	}
	return nil
}

func (s *State) applyReasons(envelope *event.Envelope, e *event.ReasonsChanged) error {
	for i := range e.Jobs {
		job, err := s.editPending(e.Jobs[i].UID, envelope)
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

func (s *State) applyHeld(envelope *event.Envelope, e *event.JobHeld) error {
	job, err := s.editPending(e.UID, envelope)
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

func (s *State) applyReleased(envelope *event.Envelope, e *event.JobReleased) error {
	job, err := s.editPending(e.UID, envelope)
	if err != nil {
		return err
	}
	job.Hold, job.Reason = spec.NotHeld, spec.Reason{Code: spec.ReasonNone}
	s.storeJob(job)
	return nil
}

func (s *State) applyUpdated(envelope *event.Envelope, e *event.JobUpdated) error {
	job, err := s.editJob(e.UID, envelope)
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
		if e.Ranks != nil {
			job.StartPrio = *e.Ranks
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

func (s *State) applySplit(envelope *event.Envelope, e *event.ArrayTaskSplit) error {
	record, err := s.editPending(e.Array, envelope)
	if err != nil {
		return err
	}
	array := s.ArrayOf(record)
	if array == nil || !record.Tasks.Has(e.Task) {
		return contradictionError("array uid %d has no task %d left", e.Array, e.Task)
	}
	arr := *array
	left := record.Tasks.Without(e.Task)
	if e.UID == e.Array {
		if len(left) > 0 {
			return contradictionError("array uid %d still has tasks %s", e.Array, left)
		}
		record.Task, record.Tasks = e.Task, nil
		s.storeJob(record)
	} else {
		if e.UID < s.NextUID || e.ID == 0 || s.ByID.Has(uint64(e.ID)) || len(left) == 0 {
			return contradictionError("task %d of array uid %d, with %d more left, cannot be uid %d, id %d (next are %d, %d)",
				e.Task, e.Array, left.Len(), e.UID, e.ID, s.NextUID, s.NextID)
		}
		task := *record
		task.UID = e.UID
		task.ID = e.ID
		task.Task = e.Task
		task.Tasks = nil
		task.Request = 0 // the array's record keeps it
		record.Tasks, record.Claim = left, nil
		record.Promised = 0
		s.NextUID, s.NextID = e.UID+1, e.ID+1
		s.ByID.Set(s.own, uint64(e.ID), e.UID)
		s.storeJob(record)
		s.storeJob(&task)
		arr.Records++
	}
	arr.Split.Set(s.own, uint64(e.Task), e.UID)
	s.Arrays.Set(s.own, uint64(arr.UID), &arr)
	return nil
}

func (s *State) applyStarted(envelope *event.Envelope, e *event.JobStarted) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if job.State != spec.Pending || job.IsArrayRecord() || !e.Follows(job.Attempt) ||
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
	first := job.Attempt == 0 // not the attempt's own number: an adopted one may be the third
	job.State = spec.Running
	job.Attempt = e.Attempt
	job.Alloc = e.Alloc
	job.Done = nil
	job.Started = envelope.At
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
		job.StartSeq = envelope.Seq
	}
	if err := s.adoptAttempt(job, e.Adopted, envelope.At); err != nil {
		return err
	}
	job.Paused = 0
	job.SuspendedAt = 0
	job.Claim = nil
	job.Yields = false
	job.Auto = false
	job.Turn = 0
	job.Boots = !job.Adopted && (s.awaitsBoot(e.Alloc) || job.Spec.Queue.Reboot)
	job.Ready = 0
	job.Exit = spec.ExitStatus{}
	job.Derived = spec.ExitStatus{}
	job.Usage = spec.Usage{}
	job.EndedBy = 0
	job.Reason, job.StartPrio = spec.Reason{Code: spec.ReasonNone}, e.Priority
	if scripts := s.Config.Ctl; scripts != nil && scripts.Prolog != "" && !job.Adopted {
		job.Prepares, job.Reason.Code = true, spec.ReasonProlog
	}
	if job.Eligible == 0 {
		job.Eligible = job.Started
	}
	for i := range e.Alloc.Nodes {
		if err := s.occupyNodes(job, &e.Alloc.Nodes[i], envelope.At); err != nil {
			return err
		}
	}
	if err := s.takeLicences(job, e.Alloc.Licenses); err != nil {
		return err
	}
	s.storeJob(job)
	s.tally(job, func(array *Array) {
		array.Running++
		if first {
			array.Started++
		}
	})
	s.countStart(job, job.Started)
	return nil
}

// adoptAttempt gives an attempt of a lost history the place that it has there; adopted is nil
// for one that starts now.
func (s *State) adoptAttempt(job *Job, adopted *event.AdoptedRun, now spec.Instant) error {
	job.Adopted = adopted != nil
	if adopted == nil {
		return nil
	}
	// A copy that is made while a controller leads shares its epoch with what is lost.
	if adopted.Epoch == 0 || s.HasSeen(adopted.Epoch, adopted.Seq) {
		return contradictionError(
			"attempt %d of job uid %d was started by event %d of epoch %016x, which is of this history",
			job.Attempt,
			job.UID,
			adopted.Seq,
			adopted.Epoch,
		)
	}
	if adopted.At < job.Submitted || adopted.At > now {
		return contradictionError(
			"attempt %d of job uid %d started at %d, before it was submitted or later than now",
			job.Attempt,
			job.UID,
			adopted.At,
		)
	}
	job.Epoch, job.StartSeq = adopted.Epoch, adopted.Seq
	job.Started, job.NextStep = adopted.At, adopted.NextStep
	return nil
}

// takeLicences takes a job's licences; more than the cluster has is refused.
func (s *State) takeLicences(job *Job, request []spec.Count) error {
	for _, count := range request {
		if count.N <= 0 {
			return contradictionError(
				"job uid %d holds %d of licence %s", job.UID, count.N, count.Name,
			)
		}
	}
	s.Licenses = addCounts(s.Licenses, request, 1)
	for _, count := range request {
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
		if resource := &s.Policy.Resources[i]; resourceKey(resource) == name {
			n += resource.Available()
		}
	}
	return n
}

// LicenseTotals lists every licence with what LicenseTotal says of it: those of
// the configuration, then resources of other servers.
func (s *State) LicenseTotals() []spec.Count {
	counts := slices.Clone(s.Config.Licenses)
	for i := range s.Policy.Resources {
		resource := &s.Policy.Resources[i]
		counts = append(counts, spec.Count{Name: resourceKey(resource), N: resource.Available()})
	}
	return counts
}

// countOf sums a list over the types of a name.
func countOf(list []spec.Count, name string) int64 {
	var n int64
	for _, count := range list {
		if count.Name == name {
			n += count.N
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
		share := &alloc.Shares[k]
		if !node.TakesShare(share) ||
			slices.ContainsFunc(alloc.GPUs, func(h spec.GPURef) bool {
				return h.UUID == share.UUID
			}) ||
			!apart(alloc.Shares[:k], share, node.ShareAt(node.gpuAt(share.UUID)).One) {
			return contradictionError(
				"%d %s of GPU %s of node %s are not there for job uid %d",
				share.N,
				share.Name,
				share.UUID,
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
func apart(before []spec.GPUShare, share *spec.GPUShare, one bool) bool {
	return !slices.ContainsFunc(
		before,
		func(h spec.GPUShare) bool { return h.UUID == share.UUID || one },
	)
}

// tally changes what the tasks of a job's array have in common.
func (s *State) tally(job *Job, f func(a *Array)) {
	if array := s.ArrayOf(job); array != nil {
		c := *array
		f(&c)
		s.Arrays.Set(s.own, uint64(c.UID), &c)
	}
}

func (s *State) applyEndRequested(envelope *event.Envelope, end *event.JobEndRequested) error {
	job, err := s.editJob(end.UID, envelope)
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
			At:      envelope.At,
			By:      end.By,
			Requeue: end.Requeue,
			Hold:    end.Hold,
			Detail:  end.Detail,
			Seq:     envelope.Seq,
			For:     end.For,
			Grace:   end.Grace,
		}
		s.claimRoom(end.For, end.Room, envelope)
	}
	s.storeJob(job)
	return nil
}

// claimRoom notes that others make room for a job that waits.
func (s *State) claimRoom(uid spec.JobUID, room spec.Bitset, envelope *event.Envelope) {
	if j := s.Job(uid); len(room) == 0 || j == nil || j.State != spec.Pending {
		return
	}
	if job, err := s.editJob(uid, envelope); err == nil {
		job.Claim = room
		s.storeJob(job)
	}
}

func (s *State) applySignalled(envelope *event.Envelope, e *event.JobSignalled) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if !job.State.Active() || job.Attempt != e.Attempt {
		return contradictionError("attempt %d of job uid %d is not running", e.Attempt, e.UID)
	}
	job.LastSignal = &Signal{Number: e.Signal, Scope: e.Scope, Seq: envelope.Seq}
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
