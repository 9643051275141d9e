package tally

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// close makes the rows of a run that is over, and lets go of what only an
// open run needs.
func (t *Tally) close(j *job, env *event.Envelope, stateName string) {
	j.Over = true
	t.open--
	if !t.quiet {
		row := j.row(env.Seq)
		row.State = stateName
		t.out.Jobs = append(growTwice(t.out.Jobs), row)
		if j.written {
			t.out.Live = append(t.out.Live, LiveRow{JobRow: row, Final: true})
		}
		if j.Start != 0 {
			t.shares(j, env.Seq)
			t.closeSteps(j, env.Seq, stateName)
		}
	}
	j.written = false
	j.Alloc = nil
	j.Done = nil
	j.Batch = nil
	j.Steps = nil
}

// partitionNow is where the run is, or what it asked for.
func (j *job) partitionNow() string {
	if j.Alloc != nil {
		return j.Alloc.Partition
	}
	if len(j.spec.Partitions) == 1 {
		return j.spec.Partitions[0]
	}
	return strings.Join(j.spec.Partitions, ",")
}

// qosNow is in which QOS the run is, or all in which it may be.
func (j *job) qosNow() string {
	if j.Alloc != nil && j.Alloc.QOS != "" {
		return j.Alloc.QOS
	}
	return j.spec.QOSText()
}

// row is the run as it is now.
func (j *job) row(seq uint64) JobRow {
	s := j.spec
	r := JobRow{Seq: seq, UID: uint64(j.UID), Restarts: j.Restarts, JobID: uint32(j.ID), ArrayUID: uint64(j.Array), ArrayJobID: uint32(j.ArrayID),
		ArrayTask: j.Task, ArrayTasks: j.TaskSet.String(), Count: j.countJobs(), Name: s.Name, User: s.User, UserID: s.UID, Group: s.Group, GroupID: s.GID,
		Account: s.Account, Assoc: j.Assoc, Partition: j.partitionNow(), QOS: j.qosNow(), WCKey: s.WCKey, Comment: s.Comment,
		Admin: s.AdminComment, System: s.SystemComment, Extra: s.Extra, Container: s.Container.Name(), MCS: s.MCSLabel, Segment: s.Place.Segment,
		State: j.State.String(), Exit: j.Exit, Derived: j.Derived, Reason: j.Waited, EndReason: j.Reason.String(),
		Submit: Cut(j.Submit), Eligible: Cut(j.Eligible), Start: Cut(j.Start), End: Cut(j.End), Limit: limit(s.Time.Limit),
		Req: amountsOf(j.Req), ReqMem: j.Req.Mem, ReqNodes: max(s.Size.MinNodes, uint32(j.Req.Node)), Tasks: s.Size.Tasks,
		Constraint: s.Place.Constraint, Reservation: s.Place.Reservation, Licenses: counts(s.Licenses), Priority: j.Priority, Backfill: j.Backfill,
		Batch: !s.Shell, WorkDir: s.IO.WorkDir, Line: s.Line, Stdin: s.IO.Stdin, Stdout: s.IO.Stdout, Stderr: s.IO.Stderr}
	if h := j.Het; h != nil {
		r.HetJobID = r.JobID - h.Offset
		r.HetOffset = h.Offset
		r.HetSize = h.Size
	}
	if j.State == spec.Pending {
		r.Reason, r.EndReason = r.EndReason, ""
	}
	if r.Reason == "" {
		r.Reason = string(spec.ReasonNone)
	}
	if j.State == spec.Cancelled {
		by := j.By
		r.CancelledBy = &by
	}
	if j.Start == 0 {
		return r
	}
	r.Attempt = j.Attempt
	r.Limit = limit(j.Limit)
	r.Alloc = amountsOf(j.Alloc.TRES)
	r.NodeList = nodeList(j.Alloc)
	r.Suspended = int64(j.Paused / spec.Microsecond)
	r.Stopped = Cut(j.Stopped)
	if j.Alloc.Reservation != "" {
		r.Reservation = j.Alloc.Reservation
	}
	if j.Alloc.Tasks > 0 {
		r.Tasks = j.Alloc.Tasks
	}
	j.sum(&r)
	return r
}

// sum adds up what came back from the nodes.
func (j *job) sum(r *JobRow) {
	var u spec.Usage
	for i := range j.Done {
		if j.Done[i].Lost && r.FailedNode == "" {
			r.FailedNode = j.Alloc.Nodes[i].Name
		}
		if j.Done[i].At != 0 && !j.Done[i].Lost {
			if !r.Used.Measured {
				u = j.Done[i].Usage
				r.Used.Measured = true
			} else {
				u = u.Add(j.Done[i].Usage)
			}
		}
		for _, g := range j.Alloc.Nodes[i].GPUs {
			r.GPUs = append(r.GPUs, g.UUID)
		}
	}
	if !r.Used.Measured {
		return
	}
	r.Used = usedOf(u)
	for i := range u.GPUs {
		if g := &u.GPUs[i]; g.Has {
			noProc := int64(g.NoProcess / spec.Microsecond)
			idle := int64(g.Idle / spec.Microsecond)
			busy := int64(g.Busy / spec.Microsecond)
			r.GPUNoProc += noProc
			r.GPUIdle += idle
			r.GPUBusy += busy
			r.GPUTime += noProc + idle + busy
			r.GPUUtil += int64(g.UtilNS / spec.Microsecond)
		}
	}
}

func limit(d spec.Span) Micros {
	if d == spec.Infinite {
		return Unlimited
	}
	return int64(d / spec.Microsecond)
}

func nodeList(a *spec.Allocation) string {
	if len(a.Nodes) == 1 {
		return a.Nodes[0].Name
	}
	return hostlist.Fold(a.NodeNames())
}

func counts(list []spec.Count) string {
	var b strings.Builder
	for i, c := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(c.Name)
		b.WriteByte(':')
		b.WriteString(strconv.FormatInt(c.N, 10))
	}
	return b.String()
}

// liveRow is the run as it is now, for the live table.
func (j *job) liveRow() LiveRow {
	r := LiveRow{JobRow: j.row(j.Changed)}
	if j.Start == 0 {
		return r
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		r.HeldNodes = append(r.HeldNodes, a.Name)
		r.HeldCPUs = append(r.HeldCPUs, int64(a.CPUs.Count()))
		r.HeldMem = append(r.HeldMem, a.Mem)
		r.HeldGPUs = append(r.HeldGPUs, int64(len(a.GPUs)))
		r.HeldTo = append(r.HeldTo, Cut(j.Done[i].At))
	}
	for i := range j.Steps {
		if s := &j.Steps[i]; s.Ended == 0 {
			r.StepIDs = append(r.StepIDs, int32(s.ID))
			r.StepNames = append(r.StepNames, s.Name)
			r.StepStarts = append(r.StepStarts, Cut(s.Started))
			r.StepTasks = append(r.StepTasks, s.Tasks)
			r.StepNodes = append(r.StepNodes, hostlist.Fold(s.Nodes))
		}
	}
	return r
}

// shares makes the rows of what each node and each device gave.
func (t *Tally) shares(j *job, seq uint64) {
	s := j.spec
	for i := range j.Alloc.Nodes {
		a, d := &j.Alloc.Nodes[i], &j.Done[i]
		n := NodeRow{Seq: seq, UID: uint64(j.UID), Restarts: j.Restarts, Attempt: j.Attempt, JobID: uint32(j.ID), User: s.User, Account: s.Account,
			Partition: j.Alloc.Partition, QOS: j.qosNow(), Node: a.Name, From: Cut(j.Start), To: Cut(d.At), End: Cut(j.End),
			CPUs: int64(a.CPUs.Count()), Mem: a.Mem, GPUs: int64(len(a.GPUs)), Tasks: a.Tasks, Lost: d.Lost}
		if !d.Lost {
			n.Used = usedOf(d.Usage)
		}
		t.out.Nodes = append(growTwice(t.out.Nodes), n)
		held := func(uuid string, index uint32, typ string) GPURow {
			row := GPURow{Seq: seq, UID: n.UID, Restarts: j.Restarts, Attempt: j.Attempt, JobID: n.JobID, User: n.User, Account: n.Account,
				Partition: n.Partition, QOS: n.QOS, Node: a.Name, UUID: uuid, Index: index, Type: typ, From: n.From, To: n.To, End: n.End}
			if !d.Lost {
				row.measure(d.Usage.GPUs)
			}
			return row
		}
		for _, g := range a.GPUs {
			t.out.GPUs = append(growTwice(t.out.GPUs), held(g.UUID, g.Index, g.Type))
		}
		for _, g := range a.Shares { // a part has a row where it was measured
			if row := held(g.UUID, g.Index, g.Type); row.Measured {
				t.out.GPUs = append(growTwice(t.out.GPUs), row)
			}
		}
	}
}

// wholeDevice is the part of those that had a device or MIG instance alone, in
// thousandths.
const wholeDevice = 1000

// measure enters the usage of the row's device, if there is any.
func (r *GPURow) measure(list []spec.GPUUsage) {
	for i := range list {
		g := &list[i]
		if g.UUID != r.UUID || !g.Has {
			continue
		}
		r.Measured = true
		r.NoProcess = int64(g.NoProcess / spec.Microsecond)
		r.Idle = int64(g.Idle / spec.Microsecond)
		r.Busy = int64(g.Busy / spec.Microsecond)
		r.Util = int64(g.UtilNS / spec.Microsecond)
		r.SM = int64(g.SMNS / spec.Microsecond)
		r.Tensor = int64(g.TensorNS / spec.Microsecond)
		r.PeakMem = g.PeakMem
		r.MemMiBS = g.MemMiBS
		r.Energy = g.EnergyMJ
		r.XIDs = g.XIDs
		r.Throttled = int64(g.Throttled / spec.Microsecond)
		r.Method, r.Share = g.Method.String(), wholeDevice
		if g.Method == spec.GPUByShare {
			r.Share = g.Share
		}
		return
	}
}

func (j *job) stepRow(seq uint64, s *step) StepRow {
	return StepRow{Seq: seq, UID: uint64(j.UID), Restarts: j.Restarts, Attempt: j.Attempt, JobID: uint32(j.ID), Step: int32(s.ID), Name: s.Name,
		User: j.spec.User, Account: j.spec.Account, Start: Cut(s.Started), End: Cut(s.Ended), Tasks: s.Tasks,
		NodeList: hostlist.Fold(s.Nodes), Alloc: amountsOf(s.TRES)}
}

// closeSteps makes the row of the batch script, and of the numbered steps
// whose end nobody reported: they ended with the run.
func (t *Tally) closeSteps(j *job, seq uint64, stateName string) {
	for i := range j.Steps {
		if s := &j.Steps[i]; s.Ended == 0 {
			row := j.stepRow(seq, s)
			row.State, row.End = cutShort(stateName), Cut(j.End)
			t.out.Steps = append(growTwice(t.out.Steps), row)
		}
	}
	if j.spec.Shell {
		return
	}
	host := uint32(0)
	row := StepRow{Seq: seq, UID: uint64(j.UID), Restarts: j.Restarts, Attempt: j.Attempt, JobID: uint32(j.ID), Step: int32(spec.StepBatch),
		Name: "batch", User: j.spec.User, Account: j.spec.Account, State: cutShort(stateName), Start: Cut(j.Start), End: Cut(j.End), Tasks: 1}
	if b := j.Batch; b != nil {
		host = b.Node
		row.Exit = b.Result.Exit
		if b.Result.Started != 0 {
			row.Start = Cut(b.Result.Started)
		}
		if b.Result.Ended != 0 {
			row.End = Cut(b.Result.Ended)
		}
		row.State = batchState(&b.Result, stateName)
	}
	a := &j.Alloc.Nodes[host]
	row.NodeList = a.Name
	row.Alloc = Amounts{CPUs: int64(a.CPUs.Count()), Mem: a.Mem, Nodes: 1, GPUs: int64(len(a.GPUs))}
	row.Used = j.batchUsed(host)
	t.out.Steps = append(growTwice(t.out.Steps), row)
}

// cutShort is the state of a step that a run of a state took with it.
func cutShort(run string) string {
	switch run {
	case spec.OutOfMemory.String(), spec.NodeFailed.String():
		return run
	}
	return spec.Cancelled.String()
}

// batchState is the state of a batch script, which may differ from the
// verdict on the run: a script that was killed at the time limit is cancelled.
func batchState(r *event.StepResult, run string) string {
	switch {
	case run == spec.OutOfMemory.String() && !r.Exit.OK():
		return run
	case r.Unknown:
		return cutShort(run)
	case r.Exit.OK():
		return spec.Completed.String()
	case r.Exit.Signal != 0 && run != spec.Failed.String() && run != spec.Completed.String():
		return spec.Cancelled.String()
	}
	return spec.Failed.String()
}

// batchUsed is what the batch script used: the node's usage less that of the
// steps that ran there. Where a step ran on several nodes nobody knows its
// part, so nothing is said.
func (j *job) batchUsed(host uint32) Used {
	d := &j.Done[host]
	if d.Lost || d.At == 0 {
		return Used{}
	}
	u := d.Usage
	for i := range j.Steps {
		s := &j.Steps[i]
		if len(s.Nodes) != 1 {
			return Used{}
		}
		if s.Nodes[0] != j.Alloc.Nodes[host].Name {
			continue
		}
		if s.Ended == 0 {
			return Used{}
		}
		u.UserCPU = max(u.UserCPU-s.Usage.UserCPU, 0)
		u.SystemCPU = max(u.SystemCPU-s.Usage.SystemCPU, 0)
		u.ReadB, u.WriteB = max(u.ReadB-s.Usage.ReadB, 0), max(u.WriteB-s.Usage.WriteB, 0)
		u.MajFaults, u.MemMiBS = max(u.MajFaults-s.Usage.MajFaults, 0), max(u.MemMiBS-s.Usage.MemMiBS, 0)
		u.EnergyMJ = max(u.EnergyMJ-s.Usage.EnergyMJ, 0)
	}
	return usedOf(u)
}
