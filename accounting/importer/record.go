package importer

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Key names a run: Restarts is the second of its submission, so that of a
// job's runs the newest is the last.
type Key struct {
	UID      uint64
	Restarts uint32
}

// job is one line about a job, with its steps.
type job struct {
	row   tally.JobRow
	over  bool
	steps []tally.StepRow
	nodes []string // nil = not said
	line  int
	// rss is that of all tasks of a step, task that of its largest; energy is in
	// millijoules.
	cpu, system, rss, task, energy int64
	cpuSeen, rssSeen, taskSeen     bool
}

// runKey is the run's.
func (j *job) runKey() Key { return Key{j.row.UID, j.row.Restarts} }

// reject is why a line is not taken.
type reject string

// Error is the reason.
func (r reject) Error() string { return string(r) }

// lines turns cells into jobs and steps.
type lines struct {
	at     [fLast]int // of each field; -1 = the dump does not have it
	width  int
	last   field // of the last column
	clocks clocks
	fresh  func() *job // an empty job
}

func newLines(columns layout, times clocks, fresh func() *job) *lines {
	out := &lines{width: len(columns), last: columns[len(columns)-1], clocks: times, fresh: fresh}
	for i := range out.at {
		out.at[i] = -1
	}
	for i, column := range columns {
		if column != skip {
			out.at[column] = i
		}
	}
	return out
}

// cellOf is a cell; "" if there is no such column.
func (l *lines) cellOf(cells []string, column field) string {
	if i := l.at[column]; i >= 0 {
		return cells[i]
	}
	return ""
}

// parseNumber is a cell with a whole number; 0 if it says nothing.
func parseNumber(text string) (int64, error) {
	if isBlank(text) {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		return 0, errValue
	}
	return n, nil
}

// reader collects the first problem of a line.
type reader struct {
	*lines
	cells []string
	bad   error
}

func (r *reader) failReader(column string, cell field) {
	if r.bad == nil {
		text := r.cellOf(r.cells, cell)
		if len(text) > 60 {
			text = text[:60]
		}
		r.bad = reject(column + " " + strconv.Quote(text) + " cannot be read")
	}
}

func (r *reader) text(f field) string { return r.cellOf(r.cells, f) }

func (r *reader) readNumber(column string, cell field) int64 {
	n, err := parseNumber(r.text(cell))
	if err != nil {
		r.failReader(column, cell)
	}
	return n
}

func (r *reader) readTime(column string, cell field) int64 {
	n, err := r.clocks.parseInstant(r.text(cell))
	if err != nil {
		r.failReader(column, cell)
	}
	return n
}

func (r *reader) readSpan(column string, cell field) int64 {
	n, err := parseSpan(r.text(cell))
	if err != nil {
		r.failReader(column, cell)
	}
	return n
}

func (r *reader) readTRES(column string, cell field) amounts {
	parsed, err := parseTRES(r.text(cell))
	if err != nil {
		r.failReader(column, cell)
	}
	return parsed
}

// ids is what a job's number says.
type ids struct {
	id, array uint32
	task      int64
	tasks     string
	count     uint64
	step      string
	leader    uint32 // of a heterogeneous job; 0 = it is a component of none
	offset    uint32 // which component
}

// parseIDs reads JobID and JobIDRaw: 12, 12_3, 12_[1-9%2], 12+1, each with
// .batch, .0 behind it.
func parseIDs(shown, raw string) (ids, bool) {
	out := ids{task: spec.NoTask, count: 1}
	number := raw
	if number == "" {
		number = shown
	}
	number, out.step, _ = strings.Cut(number, ".")
	base := number
	if i := strings.IndexAny(number, "_+"); i >= 0 {
		base = number[:i]
	}
	n, err := strconv.ParseUint(base, 10, 32)
	if err != nil || n == 0 {
		return out, false
	}
	out.id = uint32(n)
	if shown == "" {
		return out, true
	}
	shown, _, _ = strings.Cut(shown, ".")
	if leader, offset, ok := strings.Cut(shown, "+"); ok {
		leaderID, err := strconv.ParseUint(leader, 10, 32)
		component, err2 := strconv.ParseUint(offset, 10, 16)
		if err != nil || err2 != nil {
			return out, false
		}
		out.leader, out.offset = uint32(leaderID), uint32(component)
		if raw == "" { // their numbers are in a row
			out.id = out.leader + out.offset
		}
		return out, true
	}
	array, task, ok := strings.Cut(shown, "_")
	if !ok {
		return out, true
	}
	n, err = strconv.ParseUint(array, 10, 32)
	if err != nil {
		return out, false
	}
	out.array = uint32(n)
	if list, ok := strings.CutPrefix(task, "["); ok {
		out.tasks, _, _ = strings.Cut(strings.TrimSuffix(list, "]"), "%")
		set, err := format.ParseArray(out.tasks)
		if err != nil {
			return out, false
		}
		out.count = uint64(max(set.Count(), 1))
		return out, true
	}
	out.task, err = strconv.ParseInt(task, 10, 64)
	if err != nil || out.task < 0 {
		return out, false
	}
	return out, true
}

// makeUID makes a number that stays the job's: its id, and a mark that tells it
// from the job to which Slurm gave the same id again.
func makeUID(i ids, raw, user, name string) uint64 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(user + "\x00" + name))
	if raw == "" && i.array != 0 {
		_, _ = hash.Write([]byte("\x00" + strconv.FormatInt(i.task, 10) + i.tasks))
		return uint64(i.id) | uint64(hash.Sum32())<<32
	}
	return uint64(i.id) | uint64(hash.Sum32()&0xffff)<<32
}

// stateKnown tells whether sacct has such a state, and whether it is the end.
func stateKnown(text string) (over, known bool) {
	switch text {
	case "COMPLETED",
		"FAILED",
		"TIMEOUT",
		"CANCELLED",
		"NODE_FAIL",
		"OUT_OF_MEMORY",
		"PREEMPTED",
		"BOOT_FAIL",
		"DEADLINE",
		"REQUEUED",
		"REVOKED":
		return true, true
	case "RUNNING",
		"PENDING",
		"SUSPENDED",
		"COMPLETING",
		"RESIZING",
		"STOPPED",
		"CONFIGURING",
		"REQUEUE_HOLD",
		"REQUEUE_FED",
		"SPECIAL_EXIT",
		"STAGE_OUT",
		"SIGNALING":
		return false, true
	}
	return false, false
}

// parseExit reads 1:0.
func parseExit(text string) (spec.ExitStatus, bool) {
	if isBlank(text) {
		return spec.ExitStatus{}, true
	}
	code, sig, _ := strings.Cut(text, ":")
	exitCode, err := strconv.ParseInt(code, 10, 32)
	if err != nil {
		return spec.ExitStatus{}, false
	}
	status := spec.ExitStatus{Code: int32(exitCode)}
	if sig != "" {
		signal, err := strconv.ParseInt(sig, 10, 32)
		if err != nil {
			return status, false
		}
		status.Signal = int32(signal)
	}
	return status, true
}

// parseLine reads one line. It is a job's, or, with a step's name, a step's.
func (l *lines) parseLine(cells []string) (*job, string, error) {
	if len(cells) != l.width {
		return nil, "", reject("it has " + strconv.Itoa(len(cells)) + " columns, there must be " +
			strconv.Itoa(l.width))
	}
	r := reader{lines: l, cells: cells}
	raw := r.text(fJobIDRaw)
	i, ok := parseIDs(r.text(fJobID), raw)
	if !ok {
		return nil, "", reject("its job number " +
			strconv.Quote(r.text(fJobID)+r.text(fJobIDRaw)) + " cannot be read")
	}
	var j *job
	if i.step == "" {
		j = l.fresh()
		r.readJob(j, i, raw)
	} else {
		j = new(job)
	}
	r.readUse(j)
	if i.step != "" {
		r.readStep(j, i)
	}
	return j, i.step, r.bad
}

func (r *reader) readJob(j *job, i ids, raw string) {
	row := &j.row
	*row = tally.JobRow{
		JobID:      i.id,
		ArrayJobID: i.array,
		ArrayTask:  i.task,
		ArrayTasks: i.tasks,
		Count:      i.count,
		Name:       r.text(fName),
		User:       r.text(fUser),
		UserID:     uint32(r.readNumber("UID", fUID)),
		Group: r.text(
			fGroup,
		),
		GroupID:   uint32(r.readNumber("GID", fGID)),
		Account:   r.text(fAccount),
		Assoc:     uint32(r.readNumber("AssocID", fAssoc)),
		Partition: r.text(fPartition),
		QOS:       r.text(fQOS),
		WCKey: r.text(
			fWCKey,
		),
		Comment:     r.text(fComment),
		Reservation: r.text(fReservation),
		Constraint:  r.text(fConstraint),
		WorkDir:     r.text(fWorkDir),
		Line:        r.text(fSubmitLine),
		Priority: uint32(
			r.readNumber("Priority", fPriority),
		),
		Suspended: r.readSpan("Suspended", fSuspended),
		Attempt:   1,
		Limit:     tally.Unlimited,
		Reason:    r.text(fReason),
		Admin: r.text(
			fAdmin,
		),
		System:  r.text(fSystem),
		Extra:   r.text(fExtra),
		MCS:     r.text(fMCS),
		Segment: uint32(r.readNumber("SegmentSize", fSegment)),
	}
	if !isBlank(r.text(fFailedNode)) {
		row.FailedNode = r.text(fFailedNode)
	}
	if row.Reason == "" {
		row.Reason = string(spec.ReasonNone)
	}
	who := row.User
	if who == "" {
		who = r.text(fUID)
	}
	row.UID = makeUID(i, raw, who, row.Name)
	row.HetJobID, row.HetOffset = i.leader, i.offset
	if row.ArrayJobID != 0 {
		row.ArrayUID = uint64(row.ArrayJobID)
	}
	r.readState(j)
	r.readTimes(j)
	r.readSize(j)
	row.Batch = len(j.steps) > 0
	if limit := r.text(fLimitRaw); !isBlank(limit) {
		row.Limit = r.readNumber("TimelimitRaw", fLimitRaw) * 60_000_000
	} else if !isBlank(r.text(fLimit)) {
		row.Limit = r.readSpan("Timelimit", fLimit)
	}
	var ok bool
	row.Exit, ok = parseExit(r.text(fExit))
	if !ok {
		r.failReader("ExitCode", fExit)
	}
	row.Derived, ok = parseExit(r.text(fDerived))
	if !ok {
		r.failReader("DerivedExitCode", fDerived)
	}
}

func (r *reader) readState(j *job) {
	name, canceller, cut := strings.Cut(r.text(fState), " by ")
	name = strings.TrimSuffix(name, "+")
	over, known := stateKnown(name)
	if !known {
		r.failReader("State", fState)
		return
	}
	j.row.State, j.over = name, over
	if name == "CANCELLED" {
		number := uint64(0)
		if cut {
			var err error
			number, err = strconv.ParseUint(canceller, 10, 32)
			if err != nil {
				r.failReader("State", fState)
			}
		}
		uid := uint32(number)
		j.row.CancelledBy = &uid
	}
}

func (r *reader) readTimes(j *job) {
	row := &j.row
	row.Submit = r.readTime("Submit", fSubmit)
	row.Eligible = r.readTime("Eligible", fEligible)
	row.Start = r.readTime("Start", fStart)
	row.End = r.readTime("End", fEnd)
	if r.bad != nil {
		return
	}
	// A job that was cancelled before it started has a start of its own in
	// some releases, and no node.
	if r.at[fNodeList] >= 0 && isBlank(r.text(fNodeList)) || row.State == "PENDING" {
		row.Start = 0
	}
	switch {
	case row.Start != 0 && (row.Submit == 0 || row.Submit > row.Start):
		row.Submit = row.Start
	case row.Submit == 0:
		r.bad = reject("it has no time of submission")
	}
	switch {
	case r.bad != nil:
	case j.over && row.End == 0:
		r.bad = reject("it is " + row.State + " and has no end")
	case row.End != 0 && row.End < row.Start:
		r.bad = reject("it ends before it begins")
	case row.Start == 0 && row.End != 0 && row.End < row.Submit:
		r.bad = reject("it ends before it was submitted")
	case row.End != 0 && row.Suspended > row.End-row.Start && row.Start != 0:
		r.bad = reject("it was suspended longer than it ran")
	}
	if !j.over {
		row.End = 0
	}
	if row.Start == 0 {
		row.Attempt = 0
	} else if row.Eligible == 0 || row.Eligible > row.Start {
		row.Eligible = row.Start
	}
	row.Restarts = uint32(row.Submit / 1_000_000)
}

func toAmounts(a amounts) tally.Amounts {
	out := tally.Amounts{CPUs: a.cpus, Mem: a.mem, Nodes: a.nodes, GPUs: a.gpus, Billing: a.billing}
	for _, other := range a.others {
		out.Other = append(out.Other, spec.TRESCount{Name: other.name, N: other.n})
	}
	slices.SortFunc(
		out.Other,
		func(a, b spec.TRESCount) int { return strings.Compare(a.Name, b.Name) },
	)
	return out
}

// firstNonZero is the first that is not 0.
func firstNonZero(list ...int64) int64 {
	for _, n := range list {
		if n != 0 {
			return n
		}
	}
	return 0
}

func (r *reader) readSize(j *job) {
	row := &j.row
	request, alloc := r.readTRES("ReqTRES", fReqTRES), r.readTRES("AllocTRES", fAllocTRES)
	nodes, cpus := r.readNumber("NNodes", fNNodes), r.readNumber("NCPUS", fNCPUs)
	asked := r.readNumber("ReqCPUS", fReqCPUs)
	memory, err := reqMem(
		r.text(fReqMem),
		firstNonZero(nodes, request.nodes),
		firstNonZero(asked, request.cpus, cpus),
	)
	if err != nil {
		r.failReader("ReqMem", fReqMem)
	}
	gpus := firstNonZero(r.readNumber("gpus", fGPUs), parseGRES(r.text(fAllocGRES)))
	row.Tasks = uint32(r.readNumber("NTasks", fNTasks))
	request.cpus = firstNonZero(request.cpus, asked, cpus)
	request.nodes = firstNonZero(request.nodes, nodes)
	request.mem = firstNonZero(request.mem, memory)
	request.gpus = firstNonZero(request.gpus, gpus)
	row.Req = toAmounts(request)
	row.ReqMem = firstNonZero(memory, request.mem)
	row.ReqNodes = uint32(request.nodes)
	if row.Start == 0 {
		return
	}
	alloc.cpus = firstNonZero(cpus, alloc.cpus, request.cpus)
	alloc.nodes = firstNonZero(alloc.nodes, nodes, request.nodes)
	alloc.gpus = firstNonZero(alloc.gpus, gpus)
	if r.at[fAllocTRES] < 0 {
		alloc.mem = request.mem
		alloc.gpus = firstNonZero(alloc.gpus, request.gpus)
	}
	alloc.billing = firstNonZero(alloc.billing, request.billing, alloc.cpus)
	row.Alloc = toAmounts(alloc)
	row.NodeList = r.text(fNodeList)
	if isBlank(row.NodeList) {
		row.NodeList = ""
		return
	}
	j.nodes, err = hostlist.Expand(row.NodeList)
	if err != nil || int64(len(j.nodes)) > firstNonZero(alloc.nodes, 1)*4 {
		r.failReader("NodeList", fNodeList)
	}
}

// readUse reads what was used: of a job, or of a step.
func (r *reader) readUse(j *job) {
	total := r.text(fTotalCPU)
	user := r.text(fUserCPU)
	system := r.text(fSystemCPU)
	if user != "" || system != "" {
		j.cpu = r.readSpan("UserCPU", fUserCPU)
		j.system = r.readSpan("SystemCPU", fSystemCPU)
		j.cpuSeen = true
		// Each is cut to milliseconds; the sum was cut once.
		if sum := r.readSpan("TotalCPU", fTotalCPU); total != "" && sum >= j.cpu {
			j.system = sum - j.cpu
		}
	} else if total != "" {
		j.cpu, j.cpuSeen = r.readSpan("TotalCPU", fTotalCPU), true
	}
	if measured := r.text(fInTot); measured != "" {
		// Amounts such as mem=1024K in bytes.
		for part := range strings.SplitSeq(measured, ",") {
			if amount, ok := strings.CutPrefix(part, "mem="); ok {
				bytes, err := parseMemory(amount)
				if err != nil {
					r.failReader("TRESUsageInTot", fInTot)
				}
				j.rss, j.rssSeen = bytes, true
			}
		}
	}
	if peak := r.text(fMaxRSS); peak != "" {
		bytes, err := parseMemory(peak)
		if err != nil {
			r.failReader("MaxRSS", fMaxRSS)
		}
		j.task, j.taskSeen = bytes, true
		if !j.rssSeen {
			j.rss, j.rssSeen = bytes*max(1, r.readNumber("NTasks", fNTasks)), true
		}
	}
	j.energy = r.readNumber("ConsumedEnergyRaw", fEnergy) * 1000
}

func (r *reader) readStep(j *job, i ids) {
	id := int64(spec.StepBatch)
	switch i.step {
	case "batch":
	case "extern":
		id = int64(spec.StepExtern)
	case "interactive":
		id = int64(spec.StepInteractive)
	default:
		n, err := strconv.ParseInt(strings.SplitN(i.step, "+", 2)[0], 10, 32)
		if err != nil {
			r.bad = reject("its step " + strconv.Quote(i.step) + " cannot be read")
			return
		}
		id = n
	}
	step := tally.StepRow{
		JobID:    i.id,
		Step:     int32(id),
		Name:     r.text(fName),
		Start:    r.readTime("Start", fStart),
		End:      r.readTime("End", fEnd),
		Tasks:    uint32(r.readNumber("NTasks", fNTasks)),
		NodeList: r.text(fNodeList),
		Alloc:    toAmounts(r.readTRES("AllocTRES", fAllocTRES)),
	}
	step.Alloc.CPUs = firstNonZero(step.Alloc.CPUs, r.readNumber("NCPUS", fNCPUs))
	step.State, _, _ = strings.Cut(strings.TrimSuffix(r.text(fState), "+"), " ")
	if _, known := stateKnown(step.State); !known {
		r.failReader("State", fState)
	}
	var ok bool
	step.Exit, ok = parseExit(r.text(fExit))
	if !ok {
		r.failReader("ExitCode", fExit)
	}
	if step.End != 0 && step.End < step.Start && r.bad == nil {
		r.bad = reject("it ends before it begins")
	}
	step.Used = parseUsed(j)
	if j.taskSeen {
		step.Used.PeakRSS = &j.task // what sacct calls MaxRSS
	}
	if text := r.text(fMaxVM); !isBlank(text) {
		n, err := parseMemory(text)
		if err != nil {
			r.failReader("MaxVMSize", fMaxVM)
		}
		step.Used.PeakVM = &n
	}
	if text := r.text(fKHz); !isBlank(text) {
		n, err := parseKilohertz(text)
		if err != nil {
			r.failReader("AveCPUFreq", fKHz)
		}
		step.Used.KHz = n
	}
	j.steps = []tally.StepRow{step}
}

// parseUsed is what a line says of use.
func parseUsed(j *job) tally.Used {
	used := tally.Used{Measured: j.cpuSeen || j.rssSeen, UserCPU: j.cpu, SystemCPU: j.system}
	if j.rssSeen {
		rss := j.rss
		used.PeakRSS = &rss
	}
	if j.energy > 0 {
		energy := j.energy
		used.Energy = &energy
	}
	return used
}

// addStep puts a step to its job: what the job's line does not say comes from its
// steps.
func (j *job) addStep(line *job) {
	step := line.steps[0]
	step.UID = j.row.UID
	step.Restarts = j.row.Restarts
	step.Attempt = 1
	step.JobID = j.row.JobID
	step.User = j.row.User
	step.Account = j.row.Account
	j.row.Batch = j.row.Batch || step.Step == int32(spec.StepBatch)
	j.steps = append(j.steps, step)
	if line.rssSeen {
		j.rss, j.rssSeen = max(j.rss, line.rss), true
	}
	if j.energy == 0 && step.Step != int32(spec.StepExtern) {
		j.energy = max(j.energy, line.energy)
	}
}

// finishSteps is called when all its steps are there.
func (j *job) finishSteps() {
	row := &j.row
	if row.Start == 0 {
		return
	}
	if !j.cpuSeen {
		for i := range j.steps {
			if used := &j.steps[i].Used; used.Measured {
				j.cpu += used.UserCPU
				j.system += used.SystemCPU
				j.cpuSeen = true
			}
		}
	}
	// sacct says 00:00:00 of jobs that it has no record of: without one step
	// nothing was measured.
	if len(j.steps) == 0 && j.cpu+j.system == 0 && !j.rssSeen {
		j.cpuSeen = false
	}
	row.Used = parseUsed(j)
	if n := int64(len(j.nodes)); n > 1 && row.Used.PeakRSS != nil {
		peak := *row.Used.PeakRSS / n // the even share, as everything else
		row.Used.PeakRSS = &peak
	}
}

// evenPart is the i-th of n parts of a whole; the parts add up to it.
func evenPart(total, n, i int64) int64 {
	share := total / n
	if i < total%n {
		share++
	}
	return share
}

// spreadOverNodes spreads a run evenly over its nodes; the parts add up.
func (j *job) spreadOverNodes(rows []tally.NodeRow) []tally.NodeRow {
	row := &j.row
	if row.Start == 0 || !j.over {
		return rows
	}
	names := j.nodes
	if len(names) == 0 {
		names = []string{""}
	}
	part := func(total, i int64) int64 { return evenPart(total, int64(len(names)), i) }
	whole := parseUsed(j)
	for index, name := range names {
		i := int64(index)
		nodeRow := tally.NodeRow{
			Seq:       row.Seq,
			UID:       row.UID,
			Restarts:  row.Restarts,
			Attempt:   1,
			JobID:     row.JobID,
			User:      row.User,
			Account:   row.Account,
			Partition: row.Partition,
			QOS:       row.QOS,
			Node:      name,
			From:      row.Start,
			To:        row.End,
			End:       row.End,
			CPUs:      part(row.Alloc.CPUs, i),
			Mem:       part(row.Alloc.Mem, i),
			GPUs:      part(row.Alloc.GPUs, i),
			Used:      whole,
		}
		nodeRow.Used.UserCPU, nodeRow.Used.SystemCPU = part(whole.UserCPU, i),
			part(whole.SystemCPU, i)
		if whole.PeakRSS != nil {
			peak := part(*whole.PeakRSS, i)
			nodeRow.Used.PeakRSS = &peak
		}
		if whole.Energy != nil {
			energy := part(*whole.Energy, i)
			nodeRow.Used.Energy = &energy
		}
		rows = append(rows, nodeRow)
	}
	return rows
}
