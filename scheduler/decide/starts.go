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
func (d proposalCheck) commitProposal(o *commit.Proposal) error {
	for _, uid := range o.Eligible {
		if j := d.t.Job(uid); j != nil && j.State == spec.Pending && j.Eligible == 0 &&
			j.Hold == spec.NotHeld {
			if err := d.Emit(&event.JobEligible{UID: uid, NoAccrue: !d.usage().mayAccrue(j.Spec, j.Assoc, j.Count())}); err != nil {
				return err
			}
		}
	}
	for i := range o.Ends {
		if j := d.t.Job(o.Ends[i].UID); j != nil && j.State == spec.Pending &&
			d.stillOver(j, &o.Ends[i]) {
			if err := d.Emit(&o.Ends[i]); err != nil {
				return err
			}
		}
	}
	// A task that starts ends what its array's record claims: those who make room
	// for the next task come behind that.
	late := func(pr commit.Preempt) bool {
		return slices.ContainsFunc(
			o.Starts[:pr.After],
			func(s commit.Start) bool { return s.UID == pr.For },
		)
	}
	if err := d.commitPreempts(o.Preempts, func(pr commit.Preempt) bool { return !late(pr) }); err != nil {
		return err
	}
	if err := d.commitTurns(o); err != nil {
		return err
	}
	if err := d.commitStarts(o, late); err != nil {
		return err
	}
	return d.commitReasons(o.Reasons)
}

// commitStarts starts what a pass proposes, and tells those to make room who do
// so for the next task of an array of which one started.
func (d proposalCheck) commitStarts(o *commit.Proposal, late func(pr commit.Preempt) bool) error {
	for i := 0; i <= len(o.Starts); i++ {
		if err := d.commitPreempts(o.Preempts, func(pr commit.Preempt) bool { return pr.After == i && late(pr) }); err != nil {
			return err
		}
		if i == len(o.Starts) {
			break
		}
		if g := o.Starts[i].Group; g > 1 {
			if err := d.startTogether(o.Starts[i : i+g]); err != nil {
				return err
			}
			i += g - 1
			continue
		}
		if !d.isCurrent(&o.Starts[i]) {
			d.res.Stale++
			continue
		}
		if _, err := d.StartJob(&o.Starts[i]); err != nil {
			return err
		}
		d.res.Started++
	}
	return nil
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
		if j := d.t.Job(r.UID); j != nil && j.State == spec.Pending && isNews(j, &r) &&
			(j.Hold == spec.NotHeld) == notHold(r.Reason.Code) {
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
func isNews(j *state.Job, r *event.JobReason) bool {
	return !j.Reason.Same(r.Reason) || r.Promise != 0 && j.Promised == 0
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
func (d proposalCheck) isCurrent(s *commit.Start) bool {
	j := d.t.Job(s.UID)
	if j == nil || !j.IsUnheld() || j.Begin > d.t.Now {
		return false
	}
	if eligible.FencingWait(d.t.State, j) != nil {
		return false
	}
	if j.IsArrayRecord() != (s.Task != spec.NoTask) || (s.Task != spec.NoTask && !j.Tasks.Has(s.Task)) {
		return false
	}
	if s.Alloc.QOS != "" && !slices.Contains(j.Spec.QOSes, s.Alloc.QOS) || (s.Alloc.QOS == "" && len(j.Spec.QOSes) > 0) {
		return false
	}
	j = eligible.InQOS(j, s.Alloc.QOS)
	part := d.t.Parts.Find(s.Alloc.Partition)
	if part == nil || !slices.Contains(j.Spec.Partitions, part.Spec.Name) || eligible.CheckStartable(d.t.State, part, j) != nil {
		return false
	}
	view, barred := timeline.ViewReservations(d.t.State, j.Spec, d.t.Now)
	if barred != nil {
		return false
	}
	caps, near := place.Caps(d.t.State), place.Neighbours(d.t.State)
	tenant, _ := place.TenantIn(d.t.Config, part.Spec, j.Spec)
	for i := range s.Alloc.Nodes {
		a := &s.Alloc.Nodes[i]
		n := d.t.NodeByID(a.ID)
		if !view.Clear(a.ID, d.t.Now, d.t.Now.Add(s.Limit)) || !part.Nodes.Has(int(a.ID)) {
			return false
		}
		if !available(n, a, s.Alloc.Share, d.t.Config.Sched.Memory) {
			return false
		}
		if !place.Welcome(d.t.State, n, &tenant, near) || !d.underCap(caps, n, s.Alloc, a) {
			return false
		}
		if !d.besideCores(&view, n, s.Alloc, a, s.Limit) {
			return false
		}
	}
	subject := limits.Subject{Job: j.Spec, Part: part.Spec, Assoc: j.Assoc, Now: d.t.Now}
	bound := limits.Find(d.t.State, subject)
	if bound.Before(spec.TRES{}, s.Limit) != nil || bound.After(s.Alloc, s.Limit) != nil {
		return false
	}
	if eligible.CheckArrayThrottle(d.t.State, j) != nil {
		return false
	}
	licenses := eligible.CheckLicenseList(d.t.State, j.Spec, s.Alloc.Licenses, d.t.Now, s.Limit)
	return licenses == nil && d.dependencyHolds(j, s.Task)
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
	a *spec.NodeAlloc,
) bool {
	for i := range caps {
		if caps[i].Resv != nil || caps[i].Partition != alloc.Partition {
			continue
		}
		if alloc.Whole || caps[i].Share > 0 || alloc.Share > 0 {
			continue
		}
		left := caps[i].CPUs - int64(a.CPUs.Count())
		for _, uid := range node.Jobs {
			j := d.t.Job(uid)
			if k := j.Alloc.Index(node.ID); !j.Yields && j.Alloc.Partition == alloc.Partition &&
				!j.Done.Has(k) {
				left -= int64(j.Alloc.Nodes[k].CPUs.Count())
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
	a *spec.NodeAlloc,
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
	return line.Holds(node, a, &as, d.t.Now.Add(limit))
}

// available tells whether a node can still give a part of an allocation.
func available(n *state.Node, a *spec.NodeAlloc, share uint32, memory bool) bool {
	if n == nil || n.Spec.Name != a.Name || !n.Usable() {
		return false
	}
	if memory && a.Mem > n.FreeMem() {
		return false
	}
	if (share == 0 && n.UsedCPU.Intersects(a.CPUs)) || (share > 0 && !n.Shareable(a.CPUs, share)) {
		return false
	}
	if !n.Spec.ForJobs(a.CPUs) {
		return false
	}
	for _, g := range a.GPUs {
		if !gpuFree(n, g.UUID) {
			return false
		}
	}
	for i := range a.Shares {
		if !n.TakesShare(&a.Shares[i]) {
			return false
		}
	}
	for _, count := range a.GRES {
		if spec.Shares(count.Name) && len(a.Shares) > 0 {
			continue // counted by device
		}
		if !sharedGRES(n, count) &&
			typedAmount(n.GRES, count)-typedAmount(n.UsedGRES, count) < count.N {
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
func sharedGRES(n *state.Node, c spec.Count) bool {
	return slices.ContainsFunc(
		n.Spec.GRES,
		func(g spec.GRESSpec) bool { return g.Name == c.Name && g.NoConsume },
	)
}

func gpuFree(n *state.Node, uuid string) bool {
	for i := range n.GPUs {
		if n.GPUs[i].UUID == uuid {
			return n.FreeWhole(i)
		}
	}
	return false
}

// startTogether commits the starts of the components of a heterogeneous job,
// all or none.
func (d proposalCheck) startTogether(list []commit.Start) error {
	try := proposalCheck{decisionOn(trial.On(d.t.Freeze().Fork(), d.t.Now, d.t.Actor, "schedule"))}
	for i := range list {
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

// commitPreempts tells some of the victims of a pass to end, but for those that
// the rules no longer name.
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
func (d proposalCheck) commitTurns(o *commit.Proposal) error {
	for i := range o.Turns {
		turn := &o.Turns[i]
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
	for _, r := range turn.Suspend {
		if o := d.t.Job(r.UID); o == nil || o.State != spec.Running || o.Attempt != r.Attempt ||
			o.Ending != nil {
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
			o := d.t.Job(uid)
			if !o.Yields && o.Alloc.Nodes[o.Alloc.Index(alloc.ID)].CPUs.Intersects(alloc.CPUs) &&
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
