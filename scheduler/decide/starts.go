package decide

import (
	"slices"

	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/guarantee"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/scheduler/trial"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// proposalCheck commits what a pass proposes, as far as the head still allows it.
type proposalCheck struct{ *decision }

// commitProposal turns a pass's proposals into events, dropping (and counting) those
// that the head no longer allows.
func (d proposalCheck) commitProposal(proposal *commit.Proposal) error {
	for _, uid := range proposal.Eligible {
		if job := d.t.Job(uid); job != nil && job.State == spec.Pending && job.Eligible == 0 &&
			job.Hold == spec.NotHeld {
			if err := d.Emit(
				&event.JobEligible{
					UID: uid, NoAccrue: !d.usage().mayAccrue(job.Spec, job.Assoc, job.Count()),
				},
			); err != nil {
				return err
			}
		}
	}
	for i := range proposal.Ends {
		if job := d.t.Job(proposal.Ends[i].UID); job != nil && job.State == spec.Pending &&
			d.stillOver(job, &proposal.Ends[i]) {
			if err := d.Emit(&proposal.Ends[i]); err != nil {
				return err
			}
		}
	}
	// A task that starts ends what its array's record claims: those who make room
	// for the next task come behind that.
	late := func(pr commit.Preempt) bool {
		return slices.ContainsFunc(
			proposal.Starts[:pr.After],
			func(s commit.Start) bool { return s.UID == pr.For },
		)
	}
	if err := d.commitPreempts(proposal.Preempts, func(pr commit.Preempt) bool {
		return !late(pr)
	}); err != nil {
		return err
	}
	if err := d.commitTurns(proposal); err != nil {
		return err
	}
	if err := d.commitStarts(proposal, late); err != nil {
		return err
	}
	return d.commitReasons(proposal.Reasons)
}

// commitStarts starts what a pass proposes, and tells those to make room who do
// so for the next task of an array of which one started.
func (d proposalCheck) commitStarts(
	proposal *commit.Proposal, late func(pr commit.Preempt) bool,
) error {
	for i := 0; i <= len(proposal.Starts); i++ {
		if err := d.commitPreempts(proposal.Preempts, func(pr commit.Preempt) bool {
			return pr.After == i && late(pr)
		}); err != nil {
			return err
		}
		if i == len(proposal.Starts) {
			break
		}
		if g := proposal.Starts[i].Group; g > 1 {
			if err := d.startTogether(proposal.Starts[i : i+g]); err != nil {
				return err
			}
			i += g - 1
			continue
		}
		d.endWithReservation(&proposal.Starts[i])
		if !d.isCurrent(&proposal.Starts[i]) {
			d.res.Stale++
			continue
		}
		if _, err := d.StartJob(&proposal.Starts[i]); err != nil {
			return err
		}
		d.res.Started++
	}
	return nil
}

// endWithReservation shortens the limit of a start by the time that went by since the pass
// looked, if the job is to end with its reservation.
func (d proposalCheck) endWithReservation(start *commit.Start) {
	job := d.t.Job(start.UID)
	if job == nil || job.Spec.Place.Reservation == "" {
		return
	}
	view, barred := timeline.ViewReservations(d.t.State, job.Spec, d.t.Now)
	if barred == nil {
		start.Limit = view.CapLimit(start.Limit, d.t.Now)
	}
}

// stillOver tells whether a pending job still can never run for the reason
// that a pass found.
func (d proposalCheck) stillOver(job *state.Job, ended *event.JobEnded) bool {
	if ended.State == spec.DeadlineMissed {
		return eligible.MissesDeadline(job, d.t.Now)
	}
	v, _ := eligible.EvaluateDependency(d.t.State, job, d.t.Now)
	return v == eligible.Unsatisfiable && eligible.KillsInvalid(d.t.Config, job)
}

func (d proposalCheck) commitReasons(list []event.JobReason) error {
	ev := &event.ReasonsChanged{}
	for _, r := range list {
		if job := d.t.Job(r.UID); job != nil && job.State == spec.Pending && isNews(job, &r) &&
			(job.Hold == spec.NotHeld) == notHold(r.Reason.Code) {
			ev.Jobs = append(ev.Jobs, r)
		}
	}
	if len(ev.Jobs) == 0 {
		return nil
	}
	return d.Emit(ev)
}

// isNews tells whether a reason, or the promise beside it, adds to what the
// ledger knows of a job.
func isNews(job *state.Job, r *event.JobReason) bool {
	return !job.Reason.Same(r.Reason) || r.Promise != 0 && job.Promised == 0
}

func notHold(code spec.ReasonCode) bool {
	switch code {
	case spec.ReasonHeldUser, spec.ReasonHeldAdmin, spec.ReasonHoldMaxRequeue:
		return false
	}
	return true
}

// isCurrent checks a proposal against the head: the job still waits and may
// start, every node can still give what was chosen, and the limits hold.
func (d proposalCheck) isCurrent(start *commit.Start) bool {
	job := d.t.Job(start.UID)
	if job == nil || !job.IsUnheld() || job.Begin > d.t.Now {
		return false
	}
	if eligible.FencingWait(d.t.State, job) != nil {
		return false
	}
	if job.IsArrayRecord() != (start.Task != spec.NoTask) ||
		(start.Task != spec.NoTask && !job.Tasks.Has(start.Task)) {
		return false
	}
	if start.Alloc.QOS != "" && !slices.Contains(job.Spec.QOSes, start.Alloc.QOS) ||
		(start.Alloc.QOS == "" && len(job.Spec.QOSes) > 0) {
		return false
	}
	job = eligible.InQOS(job, start.Alloc.QOS)
	part := d.t.Parts.Find(start.Alloc.Partition)
	if part == nil || !slices.Contains(job.Spec.Partitions, part.Spec.Name) ||
		eligible.CheckStartable(d.t.State, part, job) != nil {
		return false
	}
	view, barred := timeline.ViewReservations(d.t.State, job.Spec, d.t.Now)
	if barred != nil {
		return false
	}
	caps, near := place.Caps(d.t.State), place.Neighbours(d.t.State)
	tenant, _ := place.TenantIn(d.t.Config, part.Spec, job.Spec)
	for i := range start.Alloc.Nodes {
		allocation := &start.Alloc.Nodes[i]
		node := d.t.NodeByID(allocation.ID)
		if !view.Clear(allocation.ID, d.t.Now, d.t.Now.Add(start.Limit)) ||
			!part.Nodes.Has(int(allocation.ID)) {
			return false
		}
		if !available(node, allocation, start.Alloc.Share, d.t.Config.Sched.Memory) {
			return false
		}
		if !place.Welcome(d.t.State, node, &tenant, near) ||
			!d.underCap(caps, node, start.Alloc, allocation) {
			return false
		}
		if !d.besideCores(&view, node, start.Alloc, allocation, start.Limit) {
			return false
		}
	}
	subject := limits.Subject{
		Job:    job.Spec,
		Part:   part.Spec,
		Assoc:  job.Assoc,
		Now:    d.t.Now,
		Beside: limits.Beside(d.t.State, job),
	}
	bound := limits.Find(d.t.State, subject)
	if bound.Before(spec.TRES{}, start.Limit) != nil ||
		bound.After(start.Alloc, start.Limit) != nil {
		return false
	}
	if eligible.CheckArrayThrottle(d.t.State, job) != nil {
		return false
	}
	licenses := eligible.CheckLicenseList(
		d.t.State, job.Spec, start.Alloc.Licenses, d.t.Now, start.Limit,
	)
	return licenses == nil && d.dependencyHolds(job, start.Task)
}

func (d proposalCheck) dependencyHolds(job *state.Job, task int64) bool {
	if job.Spec.Queue.Dependency == nil {
		return true
	}
	probe := *job
	if task != spec.NoTask {
		probe.Task, probe.Tasks = task, nil
	}
	v, _ := eligible.EvaluateDependency(d.t.State, &probe, d.t.Now)
	return v == eligible.Satisfied
}

// underCap tells whether the partition's MaxCPUsPerNode leaves room for one
// node's part of an allocation.
func (d proposalCheck) underCap(
	caps []place.Cap,
	node *state.Node,
	alloc *spec.Allocation,
	allocation *spec.NodeAlloc,
) bool {
	for i := range caps {
		if caps[i].Resv != nil || caps[i].Partition != alloc.Partition {
			continue
		}
		if alloc.Whole || caps[i].Share > 0 || alloc.Share > 0 {
			continue
		}
		left := caps[i].CPUs - int64(allocation.CPUs.Count())
		for _, uid := range node.Jobs {
			job := d.t.Job(uid)
			if k := job.Alloc.Index(node.ID); !job.Yields &&
				job.Alloc.Partition == alloc.Partition &&
				!job.Done.Has(k) {
				left -= int64(job.Alloc.Nodes[k].CPUs.Count())
			}
		}
		if left < 0 {
			return false
		}
	}
	return true
}

// besideCores tells whether one node's part of an allocation leaves reservations
// of cores theirs for as long as the job may run: its own, or the magnetic one that
// it is drawn into, has enough for all jobs in it, and the others have theirs.
func (d proposalCheck) besideCores(
	view *timeline.ReservationView,
	node *state.Node,
	alloc *spec.Allocation,
	allocation *spec.NodeAlloc,
	limit spec.Span,
) bool {
	if !slices.ContainsFunc(
		d.t.Reservations,
		func(r spec.Reservation) bool { return r.CoresOf(node.Spec.Name) > 0 },
	) {
		return true
	}
	as := *alloc
	if in := view.Cores(); in != "" {
		as.Reservation = in
	}
	line := timeline.New(d.t.State, d.t.Now, spec.Second, spec.Bitset{}.Set(int(node.ID)), nil)
	timeline.KeepReserved(d.t.State, line, d.t.Now)
	return line.Holds(node, allocation, &as, d.t.Now.Add(limit))
}

// available tells whether a node can still give a part of an allocation.
func available(node *state.Node, allocation *spec.NodeAlloc, share uint32, memory bool) bool {
	if node == nil || node.Spec.Name != allocation.Name || !node.Usable() {
		return false
	}
	if memory && allocation.Mem > node.FreeMem() {
		return false
	}
	if (share == 0 && node.UsedCPU.Intersects(allocation.CPUs)) ||
		(share > 0 && !node.Shareable(allocation.CPUs, share)) {
		return false
	}
	if !node.Spec.ForJobs(allocation.CPUs) {
		return false
	}
	for _, gpu := range allocation.GPUs {
		if !gpuFree(node, gpu.UUID) {
			return false
		}
	}
	for i := range allocation.Shares {
		if !node.TakesShare(&allocation.Shares[i]) {
			return false
		}
	}
	for _, count := range allocation.GRES {
		if spec.Shares(count.Name) && len(allocation.Shares) > 0 {
			continue // counted by device
		}
		if !sharedGRES(node, count) &&
			typedAmount(node.GRES, count)-typedAmount(node.UsedGRES, count) < count.N {
			return false
		}
	}
	return true
}

func typedAmount(list []spec.Count, count spec.Count) int64 {
	var n int64
	for _, h := range list {
		if h.Name == count.Name && h.Type == count.Type {
			n += h.N
		}
	}
	return n
}

// sharedGRES tells a resource that any number of jobs may use at once.
func sharedGRES(node *state.Node, count spec.Count) bool {
	return slices.ContainsFunc(
		node.Spec.GRES,
		func(g spec.GRESSpec) bool { return g.Name == count.Name && g.NoConsume },
	)
}

func gpuFree(node *state.Node, uuid string) bool {
	for i := range node.GPUs {
		if node.GPUs[i].UUID == uuid {
			return node.FreeWhole(i)
		}
	}
	return false
}

// startTogether commits the starts of the components of a heterogeneous job,
// all or none.
func (d proposalCheck) startTogether(list []commit.Start) error {
	try := proposalCheck{decisionOn(trial.On(d.t.Freeze().Fork(), d.t.Now, d.t.Actor, "schedule"))}
	for i := range list {
		try.endWithReservation(&list[i])
		if !try.isCurrent(&list[i]) {
			d.res.Stale += len(list)
			return nil
		}
		if _, err := try.StartJob(&list[i]); err != nil {
			return err
		}
	}
	for i := range list {
		if _, err := d.StartJob(&list[i]); err != nil {
			return err
		}
		d.res.Started++
	}
	return nil
}

// commitPreempts tells victims of a pass to end, except those that
// the rules no longer select.
func (d proposalCheck) commitPreempts(
	list []commit.Preempt,
	which func(pr commit.Preempt) bool,
) error {
	for i := range list {
		pr := &list[i]
		if !which(*pr) {
			continue
		}
		if !d.preemptHolds(pr) {
			d.res.Stale++
			continue
		}
		if err := d.PreemptJob(pr); err != nil {
			return err
		}
		d.res.Preempted++
	}
	return nil
}

// preemptHolds checks a preemption against the head: the job still waits, and its rank
// or its guarantee still lets it push that victim out.
func (d proposalCheck) preemptHolds(pr *commit.Preempt) bool {
	job, part := d.t.Job(max(pr.For, pr.By)), d.t.Parts.Find(pr.Partition)
	if job == nil || part == nil || !job.IsUnheld() {
		return false
	}
	inQOS := eligible.InQOS(job, pr.QOS)
	return preempt.Allowed(d.t.State, d.t.Now, inQOS, part.Spec, pr.Priority, pr.Victim) ||
		guarantee.Allowed(d.t.State, d.t.Now, job, pr.Victim)
}

// commitTurns takes the turns of a proposal that are still possible.
func (d proposalCheck) commitTurns(proposal *commit.Proposal) error {
	for i := range proposal.Turns {
		turn := &proposal.Turns[i]
		if !d.turnHolds(turn) {
			d.res.Stale++
			continue
		}
		if err := d.TakeTurn(turn); err != nil {
			return err
		}
	}
	return nil
}

// turnHolds checks a turn against the head: its job is still suspended, the jobs that it suspends
// still run, and no other job has its CPUs.
func (d proposalCheck) turnHolds(turn *commit.Turn) bool {
	job := d.t.Job(turn.UID)
	if job == nil || job.Attempt != turn.Attempt {
		return false
	}
	awaitsTurn := job.State == spec.Suspended && job.Auto && job.Ending == nil
	if !awaitsTurn || commit.ExceedsPartitionCPUs(d.t.State, job, turn.Suspend) {
		return false
	}
	for _, run := range turn.Suspend {
		if other := d.t.Job(run.UID); other == nil || other.State != spec.Running ||
			other.Attempt != run.Attempt ||
			other.Ending != nil {
			return false
		}
	}
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		node := d.t.NodeByID(alloc.ID)
		if job.Done.Has(i) || !node.UsedCPU.Intersects(alloc.CPUs) {
			continue
		}
		if node.HeldCPU.Intersects(alloc.CPUs) {
			return false
		}
		for _, uid := range node.Jobs {
			other := d.t.Job(uid)
			if !other.Yields &&
				other.Alloc.Nodes[other.Alloc.Index(alloc.ID)].CPUs.Intersects(alloc.CPUs) &&
				!slices.ContainsFunc(
					turn.Suspend,
					func(r commit.Run) bool { return r.UID == uid },
				) {
				return false
			}
		}
	}
	return true
}
