package scheduler

import (
	"errors"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/resv"
	"github.com/musterhpc/muster/spec"
)

// begin emits the events of a start and returns the record that runs: a task
// of an array gets one of its own.
func (d *decision) begin(s *Start) (spec.JobUID, error) {
	j := d.t.Job(s.UID)
	if s.Task != spec.NoTask {
		var err error
		if j, err = d.split(j, s.Task); err != nil {
			return 0, err
		}
	}
	if err := d.wake(s.Alloc); err != nil {
		return 0, err
	}
	if err := d.rebootFor(j, s.Alloc); err != nil {
		return 0, err
	}
	return j.UID, d.emit(&event.JobStarted{UID: j.UID, Attempt: j.Attempt + 1, Alloc: s.Alloc, Limit: s.Limit, Backfill: s.Backfill, Priority: s.Priority})
}

// commit turns a pass's proposals into events, dropping (and counting) those
// that the head no longer allows.
func (d *decision) commit(o *Outcome) error {
	for _, uid := range o.Eligible {
		if j := d.t.Job(uid); j != nil && j.State == spec.Pending && j.Eligible == 0 && j.Hold == spec.NotHeld {
			if err := d.emit(&event.JobEligible{UID: uid, NoAccrue: !d.accrues(j.Spec, j.Assoc, j.Count())}); err != nil {
				return err
			}
		}
	}
	for i := range o.Ends {
		if j := d.t.Job(o.Ends[i].UID); j != nil && j.State == spec.Pending && d.stillOver(j, &o.Ends[i]) {
			if err := d.emit(&o.Ends[i]); err != nil {
				return err
			}
		}
	}
	// A task that starts ends what its array's record claims: those who make room
	// for the next task come behind that.
	late := func(pr Preempt) bool {
		return slices.ContainsFunc(o.Starts[:pr.After], func(s Start) bool { return s.UID == pr.For })
	}
	if err := d.commitPreempts(o.Preempts, func(pr Preempt) bool { return !late(pr) }); err != nil {
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
func (d *decision) commitStarts(o *Outcome, late func(pr Preempt) bool) error {
	for i := 0; i <= len(o.Starts); i++ {
		if err := d.commitPreempts(o.Preempts, func(pr Preempt) bool { return pr.After == i && late(pr) }); err != nil {
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
		if !d.current(&o.Starts[i]) {
			d.res.Stale++
			continue
		}
		if _, err := d.begin(&o.Starts[i]); err != nil {
			return err
		}
		d.res.Started++
	}
	return nil
}

// stillOver tells whether a pending job still can never run for the reason
// that a pass found.
func (d *decision) stillOver(j *state.Job, e *event.JobEnded) bool {
	if e.State == spec.DeadlineMissed {
		return missed(j, d.t.Now)
	}
	v, _ := dependency(d.t.State, j, d.t.Now)
	return v == never && killInvalid(d.t.Config, j)
}

func (d *decision) commitReasons(list []event.JobReason) error {
	ev := &event.ReasonsChanged{}
	for _, r := range list {
		if j := d.t.Job(r.UID); j != nil && j.State == spec.Pending && !j.Reason.Same(r.Reason) && (j.Hold == spec.NotHeld) == notHold(r.Reason.Code) {
			ev.Jobs = append(ev.Jobs, r)
		}
	}
	if len(ev.Jobs) == 0 {
		return nil
	}
	return d.emit(ev)
}

func notHold(c spec.ReasonCode) bool {
	switch c {
	case spec.ReasonHeldUser, spec.ReasonHeldAdmin, spec.ReasonHoldMaxRequeue:
		return false
	}
	return true
}

// current checks a proposal against the head: the job still waits and may
// start, every node can still give what was chosen, and the limits hold.
func (d *decision) current(s *Start) bool {
	j := d.t.Job(s.UID)
	if j == nil || j.State != spec.Pending || j.Hold != spec.NotHeld || j.Begin > d.t.Now {
		return false
	}
	if j.IsArrayRecord() != (s.Task != spec.NoTask) || (s.Task != spec.NoTask && !j.Tasks.Has(s.Task)) {
		return false
	}
	if s.Alloc.QOS != "" && !slices.Contains(j.Spec.QOSes, s.Alloc.QOS) || (s.Alloc.QOS == "" && len(j.Spec.QOSes) > 0) {
		return false
	}
	j = inQOS(j, s.Alloc.QOS)
	part := d.t.Parts.Find(s.Alloc.Partition)
	if part == nil || !slices.Contains(j.Spec.Partitions, part.Spec.Name) || closed(d.t.State, part, j) != nil {
		return false
	}
	view, barred := resv.For(d.t.State, j.Spec, d.t.Now)
	if barred != nil {
		return false
	}
	caps, near := place.Caps(d.t.State), place.Neighbours(d.t.State)
	tenant, _ := place.TenantIn(d.t.Config, part.Spec, j.Spec)
	for i := range s.Alloc.Nodes {
		a := &s.Alloc.Nodes[i]
		n := d.t.NodeByID(a.ID)
		if !view.Clear(a.ID, d.t.Now, d.t.Now.Add(s.Limit)) || !available(n, a, s.Alloc.Share, d.t.Config.Sched.Memory) || !place.Welcome(d.t.State, n, &tenant, near) || !part.Nodes.Has(int(a.ID)) || !d.underCap(caps, n, s.Alloc, a) || !d.besideCores(&view, n, s.Alloc, a, s.Limit) {
			return false
		}
	}
	b := limits.Find(d.t.State, limits.Subject{Job: j.Spec, Part: part.Spec, Assoc: j.Assoc, Now: d.t.Now})
	return b.Before(spec.TRES{}, s.Limit) == nil && b.After(s.Alloc, s.Limit) == nil && throttled(d.t.State, j) == nil &&
		shortOf(d.t.State, j.Spec, s.Alloc.Licenses, d.t.Now, s.Limit) == nil && d.dependencyHolds(j, s.Task)
}

func (d *decision) dependencyHolds(j *state.Job, task int64) bool {
	if j.Spec.Queue.Dependency == nil {
		return true
	}
	probe := *j
	if task != spec.NoTask {
		probe.Task, probe.Tasks = task, nil
	}
	v, _ := dependency(d.t.State, &probe, d.t.Now)
	return v == holds
}

// underCap tells whether the partition's MaxCPUsPerNode leaves room for one
// node's part of an allocation.
func (d *decision) underCap(caps []place.Cap, n *state.Node, alloc *spec.Allocation, a *spec.NodeAlloc) bool {
	for i := range caps {
		if caps[i].Resv != nil || caps[i].Partition != alloc.Partition || alloc.Whole || caps[i].Share > 0 || alloc.Share > 0 {
			continue
		}
		left := caps[i].CPUs - int64(a.CPUs.Count())
		for _, uid := range n.Jobs {
			j := d.t.Job(uid)
			if k := j.Alloc.Index(n.ID); !j.Yields && j.Alloc.Partition == alloc.Partition && !j.Done.Has(k) {
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
func (d *decision) besideCores(view *resv.View, n *state.Node, alloc *spec.Allocation, a *spec.NodeAlloc, limit spec.Span) bool {
	if !slices.ContainsFunc(d.t.Reservations, func(r spec.Reservation) bool { return r.CoresOf(n.Spec.Name) > 0 }) {
		return true
	}
	as := *alloc
	if in := view.Cores(); in != "" {
		as.Reservation = in
	}
	line := reserve.New(d.t.State, d.t.Now, spec.Second, spec.Bitset{}.Set(int(n.ID)), nil)
	resv.Keep(d.t.State, line, d.t.Now)
	return line.Holds(n, a, &as, d.t.Now.Add(limit))
}

// available tells whether a node can still give a part of an allocation.
func available(n *state.Node, a *spec.NodeAlloc, share uint32, memory bool) bool {
	if n == nil || n.Spec.Name != a.Name || !n.Usable() || (memory && a.Mem > n.FreeMem()) {
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
	for _, c := range a.GRES {
		if spec.Shares(c.Name) && len(a.Shares) > 0 {
			continue // counted by device
		}
		if !sharedGRES(n, c) && typedAmount(n.GRES, c)-typedAmount(n.UsedGRES, c) < c.N {
			return false
		}
	}
	return true
}

func typedAmount(list []spec.Count, c spec.Count) int64 {
	var n int64
	for _, h := range list {
		if h.Name == c.Name && h.Type == c.Type {
			n += h.N
		}
	}
	return n
}

// sharedGRES tells a resource that any number of jobs may use at once.
func sharedGRES(n *state.Node, c spec.Count) bool {
	return slices.ContainsFunc(n.Spec.GRES, func(g spec.GRESSpec) bool { return g.Name == c.Name && g.NoConsume })
}

func gpuFree(n *state.Node, uuid string) bool {
	for i := range n.GPUs {
		if n.GPUs[i].UUID == uuid {
			return n.FreeWhole(i)
		}
	}
	return false
}

// TestOnly answers --test-only: when and where a job would start if it were
// submitted now. Nothing is stored.
func TestOnly(st *state.State, js *spec.JobSpec, now spec.Instant, actor event.Actor, rest ...*spec.JobSpec) (*Answer, error) {
	return tryOut(st, js, now, actor, rest)
}

// ErrNoStart tells that no start can be predicted for a job.
var ErrNoStart = errors.New("no start can be predicted: the job waits for something other than resources")
