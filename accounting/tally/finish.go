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
func (t *Tally) close(j *job, envelope *event.Envelope, stateName string) {
	j.Over = true
	t.open--
	if !t.quiet && !j.Counted {
		row := j.row(envelope.Seq)
		row.State = stateName
		t.out.Jobs = append(growTwice(t.out.Jobs), row)
		if j.written {
			t.out.Live = append(t.out.Live, LiveRow{JobRow: row, Final: true})
		}
		if j.Start != 0 {
			t.shares(j, envelope.Seq)
			t.closeSteps(j, envelope.Seq, stateName)
		}
	}
	j.written = false
	j.Counted = false
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
	jobSpec := j.spec
	row := JobRow{
		Seq:        seq,
		UID:        uint64(j.UID),
		Restarts:   j.Restarts,
		JobID:      uint32(j.ID),
		ArrayUID:   uint64(j.Array),
		ArrayJobID: uint32(j.ArrayID),
		ArrayTask:  j.Task,
		ArrayTasks: j.TaskSet.String(),
		Count:      j.countJobs(),
		Name:       jobSpec.Name,
		User:       jobSpec.User,
		UserID:     jobSpec.UID,
		Group:      jobSpec.Group,
		GroupID:    jobSpec.GID,
		Account:    jobSpec.Account,
		Assoc:      j.Assoc,
		Partition:  j.partitionNow(),
		QOS:        j.qosNow(),
		WCKey:      jobSpec.WCKey,
		Comment:    jobSpec.Comment,
		Admin:      jobSpec.AdminComment,
		System:     jobSpec.SystemComment,
		Extra:      jobSpec.Extra,
		Container:  jobSpec.Container.NameWith(j.Images),
		MCS:        jobSpec.MCSLabel,
		Segment:    jobSpec.Place.Segment,
		State:      j.State.String(),
		Exit:       j.Exit,
		Derived:    j.Derived,
		Reason:     j.Waited,
		EndReason:  j.Reason.String(),
		Submit: Cut(
			j.Submit,
		),
		Eligible: Cut(j.Eligible),
		Promised: Cut(j.Promised),
		Start:    Cut(j.Start),
		End:      Cut(j.End),
		Limit:    limit(jobSpec.Time.Limit),
		Req: amountsOf(
			j.Req,
		),
		ReqMem:      j.Req.Mem,
		ReqNodes:    max(jobSpec.Size.MinNodes, uint32(j.Req.Node)),
		Tasks:       jobSpec.Size.Tasks,
		Constraint:  jobSpec.Place.Constraint,
		Reservation: jobSpec.Place.Reservation,
		Licenses:    counts(jobSpec.Licenses),
		Priority:    j.Priority,
		Backfill:    j.Backfill,
		Batch:       !jobSpec.Shell,
		WorkDir:     jobSpec.IO.WorkDir,
		Line:        jobSpec.Line,
		Stdin:       jobSpec.IO.Stdin,
		Stdout:      jobSpec.IO.Stdout,
		Stderr:      jobSpec.IO.Stderr,
	}
	if part := j.Het; part != nil {
		row.HetJobID = row.JobID - part.Offset
		row.HetOffset = part.Offset
		row.HetSize = part.Size
	}
	if j.State == spec.Pending {
		row.Reason, row.EndReason = row.EndReason, ""
	}
	if row.Reason == "" {
		row.Reason = string(spec.ReasonNone)
	}
	if j.State == spec.Cancelled {
		by := j.By
		row.CancelledBy = &by
	}
	if j.Start == 0 {
		return row
	}
	row.Attempt = j.Attempt
	row.Limit = limit(j.Limit)
	row.Alloc = amountsOf(j.Alloc.TRES)
	row.NodeList = nodeList(j.Alloc)
	row.Suspended = int64(j.Paused / spec.Microsecond)
	row.Stopped = Cut(j.Stopped)
	if j.Alloc.Reservation != "" {
		row.Reservation = j.Alloc.Reservation
	}
	if j.Alloc.Tasks > 0 {
		row.Tasks = j.Alloc.Tasks
	}
	j.sum(&row)
	return row
}

// sum adds up what came back from the nodes.
func (j *job) sum(row *JobRow) {
	var usage spec.Usage
	for i := range j.Done {
		if j.Done[i].Lost && row.FailedNode == "" {
			row.FailedNode = j.Alloc.Nodes[i].Name
		}
		if j.Done[i].At != 0 && !j.Done[i].Lost {
			if !row.Used.Measured {
				usage = j.Done[i].Usage
				row.Used.Measured = true
			} else {
				usage = usage.Add(j.Done[i].Usage)
			}
		}
		for _, gpu := range j.Alloc.Nodes[i].GPUs {
			row.GPUs = append(row.GPUs, gpu.UUID)
		}
	}
	if !row.Used.Measured {
		return
	}
	row.Used = usedOf(usage)
	for i := range usage.GPUs {
		if gpu := &usage.GPUs[i]; gpu.Has {
			noProc := int64(gpu.NoProcess / spec.Microsecond)
			idle := int64(gpu.Idle / spec.Microsecond)
			busy := int64(gpu.Busy / spec.Microsecond)
			row.GPUNoProc += noProc
			row.GPUIdle += idle
			row.GPUBusy += busy
			row.GPUTime += noProc + idle + busy
			row.GPUUtil += int64(gpu.UtilNS / spec.Microsecond)
		}
	}
}

func limit(d spec.Span) Micros {
	if d == spec.Infinite {
		return Unlimited
	}
	return int64(d / spec.Microsecond)
}

func nodeList(allocation *spec.Allocation) string {
	if len(allocation.Nodes) == 1 {
		return allocation.Nodes[0].Name
	}
	return hostlist.Fold(allocation.NodeNames())
}

func counts(list []spec.Count) string {
	var text strings.Builder
	for i, count := range list {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(count.Name)
		text.WriteByte(':')
		text.WriteString(strconv.FormatInt(count.N, 10))
	}
	return text.String()
}

// liveRow is the run as it is now, for the live table.
func (j *job) liveRow() LiveRow {
	row := LiveRow{JobRow: j.row(j.Changed)}
	if j.Start == 0 {
		return row
	}
	for i := range j.Alloc.Nodes {
		alloc := &j.Alloc.Nodes[i]
		row.HeldNodes = append(row.HeldNodes, alloc.Name)
		row.HeldCPUs = append(row.HeldCPUs, int64(alloc.CPUs.Count()))
		row.HeldMem = append(row.HeldMem, alloc.Mem)
		row.HeldGPUs = append(row.HeldGPUs, int64(len(alloc.GPUs)))
		row.HeldTo = append(row.HeldTo, Cut(j.Done[i].At))
	}
	for i := range j.Steps {
		if s := &j.Steps[i]; s.Ended == 0 {
			row.StepIDs = append(row.StepIDs, int32(s.ID))
			row.StepNames = append(row.StepNames, s.Name)
			row.StepStarts = append(row.StepStarts, Cut(s.Started))
			row.StepTasks = append(row.StepTasks, s.Tasks)
			row.StepContainers = append(row.StepContainers, j.imageOf(s.Container))
			row.StepNodes = append(row.StepNodes, hostlist.Fold(s.Nodes))
		}
	}
	return row
}

// shares makes the rows of what each node and each device gave.
func (t *Tally) shares(j *job, seq uint64) {
	jobSpec := j.spec
	for i := range j.Alloc.Nodes {
		alloc, done := &j.Alloc.Nodes[i], &j.Done[i]
		nodeRow := NodeRow{
			Seq:       seq,
			UID:       uint64(j.UID),
			Restarts:  j.Restarts,
			Attempt:   j.Attempt,
			JobID:     uint32(j.ID),
			User:      jobSpec.User,
			Account:   jobSpec.Account,
			Partition: j.Alloc.Partition,
			QOS:       j.qosNow(),
			Node:      alloc.Name,
			From:      Cut(j.Start),
			To:        Cut(done.At),
			End:       Cut(j.End),
			CPUs: int64(
				alloc.CPUs.Count(),
			),
			Mem:   alloc.Mem,
			GPUs:  int64(len(alloc.GPUs)),
			Tasks: alloc.Tasks,
			Lost:  done.Lost,
		}
		if !done.Lost {
			nodeRow.Used = withoutGPUs(done.Usage)
		}
		t.out.Nodes = append(growTwice(t.out.Nodes), nodeRow)
		held := func(uuid string, index uint32, typ string) GPURow {
			row := GPURow{
				Seq:       seq,
				UID:       nodeRow.UID,
				Restarts:  j.Restarts,
				Attempt:   j.Attempt,
				JobID:     nodeRow.JobID,
				User:      nodeRow.User,
				Account:   nodeRow.Account,
				Partition: nodeRow.Partition,
				QOS:       nodeRow.QOS,
				Node:      alloc.Name,
				UUID:      uuid,
				Index:     index,
				Type:      typ,
				From:      nodeRow.From,
				To:        nodeRow.To,
				End:       nodeRow.End,
			}
			if !done.Lost {
				row.measure(done.Usage.GPUs)
			}
			return row
		}
		for _, gpu := range alloc.GPUs {
			t.out.GPUs = append(growTwice(t.out.GPUs), held(gpu.UUID, gpu.Index, gpu.Type))
		}
		for _, share := range alloc.Shares { // a part has a row where it was measured
			if row := held(share.UUID, share.Index, share.Type); row.Measured {
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
		gpu := &list[i]
		if gpu.UUID != r.UUID || !gpu.Has {
			continue
		}
		r.Measured = true
		r.NoProcess = int64(gpu.NoProcess / spec.Microsecond)
		r.Idle = int64(gpu.Idle / spec.Microsecond)
		r.Busy = int64(gpu.Busy / spec.Microsecond)
		r.Util = int64(gpu.UtilNS / spec.Microsecond)
		r.SM = int64(gpu.SMNS / spec.Microsecond)
		r.Tensor = int64(gpu.TensorNS / spec.Microsecond)
		r.PeakMem = gpu.PeakMem
		r.MemMiBS = gpu.MemMiBS
		r.Energy = gpu.EnergyMJ
		r.XIDs = gpu.XIDs
		r.Throttled = int64(gpu.Throttled / spec.Microsecond)
		r.Method, r.Share = gpu.Method.String(), wholeDevice
		if gpu.Method == spec.GPUByShare {
			r.Share = gpu.Share
		}
		return
	}
}

func (j *job) stepRow(seq uint64, s *step) StepRow {
	return StepRow{
		Seq:      seq,
		UID:      uint64(j.UID),
		Restarts: j.Restarts,
		Attempt:  j.Attempt,
		JobID:    uint32(j.ID),
		Step:     int32(s.ID),
		Name:     s.Name,
		User:     j.spec.User,
		Account:  j.spec.Account,
		Start:    Cut(s.Started),
		End:      Cut(s.Ended),
		Tasks:    s.Tasks,
		NodeList: hostlist.Fold(s.Nodes),
		Alloc:    amountsOf(s.TRES),

		Container: j.imageOf(s.Container),
	}
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
	t.closeExtern(j, seq)
	if j.spec.Shell {
		return
	}
	host := uint32(0)
	row := StepRow{
		Seq:      seq,
		UID:      uint64(j.UID),
		Restarts: j.Restarts,
		Attempt:  j.Attempt,
		JobID:    uint32(j.ID),
		Step:     int32(spec.StepBatch),
		Name:     "batch",
		User:     j.spec.User,
		Account:  j.spec.Account,
		State:    cutShort(stateName),
		Start:    Cut(j.Start),
		End:      Cut(j.End),
		Tasks:    1,

		Container: j.spec.Container.NameWith(j.Images),
	}
	if batch := j.Batch; batch != nil {
		host = batch.Node
		row.Exit = batch.Result.Exit
		if batch.Result.Started != 0 {
			row.Start = Cut(batch.Result.Started)
		}
		if batch.Result.Ended != 0 {
			row.End = Cut(batch.Result.Ended)
		}
		row.State = batchState(&batch.Result, stateName)
	}
	alloc := &j.Alloc.Nodes[host]
	row.NodeList = alloc.Name
	row.Alloc = Amounts{
		CPUs:  int64(alloc.CPUs.Count()),
		Mem:   alloc.Mem,
		Nodes: 1,
		GPUs:  int64(len(alloc.GPUs)),
	}
	row.Used = j.batchUsed(host)
	t.out.Steps = append(growTwice(t.out.Steps), row)
}

// closeExtern makes the row of the extern step, where the run had one: it is as long
// as the run, on the nodes that tell of it. How its processes ended does not matter.
func (t *Tally) closeExtern(j *job, seq uint64) {
	row := StepRow{
		Seq:      seq,
		UID:      uint64(j.UID),
		Restarts: j.Restarts,
		Attempt:  j.Attempt,
		JobID:    uint32(j.ID),
		Step:     int32(spec.StepExtern),
		Name:     spec.StepExtern.String(),
		User:     j.spec.User,
		Account:  j.spec.Account,
		State:    spec.Completed.String(),
		Start:    Cut(j.Start),
		End:      Cut(j.End),
	}
	var used spec.Usage
	var names []string
	for i := range j.Done {
		extern := j.Done[i].Extern
		if extern == nil {
			continue
		}
		alloc := &j.Alloc.Nodes[i]
		names = append(names, alloc.Name)
		used = used.Add(*extern)
		row.Tasks++
		row.Alloc.CPUs += int64(alloc.CPUs.Count())
		row.Alloc.Mem += alloc.Mem
		row.Alloc.GPUs += int64(len(alloc.GPUs))
	}
	if len(names) == 0 {
		return
	}
	row.NodeList = hostlist.Fold(names)
	row.Alloc.Nodes = int64(len(names))
	row.Used = usedOf(used)
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
// verdict on the run: one that a signal ended is cancelled, whoever sent it.
func batchState(result *event.StepResult, run string) string {
	switch {
	case run == spec.OutOfMemory.String() && !result.Exit.OK():
		return run
	case result.Unknown:
		return cutShort(run)
	case result.Exit.OK():
		return spec.Completed.String()
	case result.Exit.Signal != 0:
		return spec.Cancelled.String()
	}
	return spec.Failed.String()
}

// batchUsed is what the batch script used: the node's usage less that of the
// steps that ran there. Where a step ran on several nodes nobody knows its
// part, so nothing is said.
func (j *job) batchUsed(host uint32) Used {
	done := &j.Done[host]
	if done.Lost || done.At == 0 {
		return Used{}
	}
	usage := done.Usage
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
		usage = without(usage, &s.Usage)
	}
	if done.Extern != nil {
		usage = without(usage, done.Extern)
	}
	return usedOf(usage)
}

// without takes from what was used on a node the part of a step.
func without(usage spec.Usage, part *spec.Usage) spec.Usage {
	usage.UserCPU = max(usage.UserCPU-part.UserCPU, 0)
	usage.SystemCPU = max(usage.SystemCPU-part.SystemCPU, 0)
	usage.ReadB = max(usage.ReadB-part.ReadB, 0)
	usage.WriteB = max(usage.WriteB-part.WriteB, 0)
	usage.MajFaults = max(usage.MajFaults-part.MajFaults, 0)
	usage.MemMiBS = max(usage.MemMiBS-part.MemMiBS, 0)
	usage.EnergyMJ = max(usage.EnergyMJ-part.EnergyMJ, 0)
	usage.Counters = usage.Counters.Without(part.Counters)
	return usage
}
