package daemon

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/spec"
)

// micro is a microsecond in the API's nanoseconds.
const micro = int64(spec.Microsecond)

// usage is what the store has of a run's or step's usage.
type usage struct {
	measured                             bool
	user, system, mem, read, write, majf int64
	rss, energy, vm                      *int64
	khz                                  uint32
	counters                             map[string]int64
	taskSum, taskMin, taskMax            map[string]int64
	taskMinAt, taskMaxAt                 []string
}

func (u *usage) dest() []any {
	return []any{
		&u.measured,
		&u.user,
		&u.system,
		&u.rss,
		&u.mem,
		&u.read,
		&u.write,
		&u.energy,
		&u.majf,
		&u.counters,
	}
}

// ofStep are the columns of a step: what a run's row does not have comes last.
func (u *usage) ofStep() []any {
	return append(
		u.dest(),
		&u.vm,
		&u.khz,
		&u.taskSum,
		&u.taskMin,
		&u.taskMax,
		&u.taskMinAt,
		&u.taskMaxAt,
	)
}

// counted are the counters as the API has them, in their order.
func (u *usage) counted() []*apiv1.CounterValue {
	var values []*apiv1.CounterValue
	for _, info := range spec.Counters() {
		if n, ok := u.counters[info.Name]; ok {
			values = append(values, &apiv1.CounterValue{Counter: uint32(info.Counter), N: n})
		}
	}
	return values
}

// spread is how the use lay on the tasks, as the API has it. The store has no number
// of tasks with it: it is the step's.
func (u *usage) spread(tasks uint32) []*apiv1.TaskSpread {
	var spreads []*apiv1.TaskSpread
	for kind := spec.TaskCPU; kind <= spec.TaskPages; kind++ {
		name := kind.String()
		most, ok := u.taskMax[name]
		if !ok {
			continue
		}
		spread := &apiv1.TaskSpread{
			Kind:  uint32(kind),
			Tasks: int64(tasks),
			Sum:   u.taskSum[name],
			Min:   u.taskMin[name],
			Max:   most,
		}
		spread.MinRank, spread.MinNode = placeOf(u.taskMinAt, name)
		spread.MaxRank, spread.MaxNode = placeOf(u.taskMaxAt, name)
		spreads = append(spreads, spread)
	}
	return spreads
}

// placeOf finds the place of a kind in a list of kind=rank@node.
func placeOf(list []string, kind string) (rank uint32, node string) {
	for _, text := range list {
		place, found := strings.CutPrefix(text, kind+"=")
		if !found {
			continue
		}
		number, node, _ := strings.Cut(place, "@")
		n, err := strconv.ParseUint(number, 10, 32)
		if err == nil {
			return uint32(n), node
		}
	}
	return 0, ""
}

func (u *usage) fill(row *apiv1.AcctRow) {
	if !u.measured {
		return
	}
	out := &apiv1.Usage{
		UserCpu:    u.user * micro,
		SystemCpu:  u.system * micro,
		ReadBytes:  u.read,
		WriteBytes: u.write,
		MemMibS:    u.mem,
		MajFaults:  u.majf,
		CpuKhz:     int64(u.khz),
		Counters:   u.counted(),
		Tasks:      u.spread(row.GetTasks()),
	}
	if u.vm != nil {
		out.PeakVm = *u.vm
	}
	if u.rss != nil {
		out.PeakRss, out.HasRss = *u.rss, true
	}
	if u.energy != nil {
		out.EnergyMj, out.HasEnergy = *u.energy, true
	}
	row.Usage, row.HasUsage = out, true
}

// vector is a TRES vector as the store has it.
type vector struct {
	cpus, mem, nodes, gpus, billing int64
	other                           map[string]int64
}

func (v *vector) dest() []any {
	return []any{&v.cpus, &v.mem, &v.nodes, &v.gpus, &v.billing, &v.other}
}

func (v *vector) tres() *apiv1.Tres {
	tres := spec.TRES{CPU: v.cpus, Mem: v.mem, Node: v.nodes, Billing: v.billing}
	for name, n := range v.other {
		tres = tres.With(name, n)
	}
	return wire.TRES(tres.With("gres/gpu", v.gpus))
}

// runScan reads rows of Acct.Runs, one after the other.
type runScan struct {
	dest                                    []any
	wantReq, wantAlloc, wantCPUs, wantFlags bool

	owners map[string]query.Who // taken apart before

	uid                            uint64
	restarts, attempt, id, arrayID uint32
	het, hetOffset, hetSize        uint32
	task                           int64
	tasks                          string
	count, arrayUID                uint64
	state                          string
	batch, backfill                bool
	suspended, end, submit, limit  int64
	startGap, eligibleGap          *int64 // behind the submission
	text                           struct {
		name, owner, partition, qos, wckey, comment, reason, nodes, constraint, reservation, licenses,
		workDir, line, stdin, stdout, stderr, admin, system, extra, container, mcs, failed string
	}
	segment                              uint32
	exit, signal, derived, derivedSignal int32
	by                                   *uint32
	req, alloc                           vector
	reqNodes, ntasks, priority           uint32
	use                                  usage
	gpus                                 []string
	cpus, nodes, cpusAsked               int64
}

// newRunScan prepares to read the parts that are wanted.
func newRunScan(want func(query.RunPart) bool) *runScan {
	has := func(field string) bool { return want(query.RunPart{Field: field}) }
	scan := &runScan{
		owners:    map[string]query.Who{},
		wantReq:   has("req_tres"),
		wantAlloc: has("alloc_tres"),
		wantCPUs:  has("cpus"),
		wantFlags: has("flags"),
	}
	for _, part := range query.RunParts() {
		if want(part) {
			scan.dest = append(scan.dest, scan.columnsOfPart(part.Field)...)
		}
	}
	return scan
}

// columnsOfPart gives where a part's columns go, in their order.
//
//muster:table one case for each part
func (s *runScan) columnsOfPart(field string) []any {
	t := &s.text
	switch field {
	case "":
		return []any{&s.uid, &s.restarts, &s.id, &s.arrayID, &s.task, &s.tasks, &s.state, &s.batch, &s.suspended, &s.het, &s.hetOffset, &s.hetSize,
			&s.submit, &s.startGap, &s.end}
	case "attempt":
		return []any{&s.attempt}
	case "tasks_count":
		return []any{&s.count}
	case "eligible":
		return []any{&s.eligibleGap}
	case "exit_code":
		return []any{&s.exit, &s.signal}
	case "derived_code":
		return []any{&s.derived, &s.derivedSignal}
	case "cancelled_by":
		return []any{&s.by}
	case "time_limit":
		return []any{&s.limit}
	case "req_tres":
		return s.req.dest()
	case "alloc_tres":
		return s.alloc.dest()
	case "req_nodes":
		return []any{&s.reqNodes}
	case "tasks":
		return []any{&s.ntasks}
	case "priority":
		return []any{&s.priority}
	case "flags":
		return []any{&s.backfill}
	case "segment":
		return []any{&s.segment}
	case "usage":
		return s.use.dest()
	case "gpu_uuids":
		return []any{&s.gpus}
	case "array_uid":
		return []any{&s.arrayUID}
	case "cpus":
		return []any{&s.cpus, &s.nodes, &s.cpusAsked}
	}
	texts := map[string]*string{"name": &t.name, "user": &t.owner, "partition": &t.partition, "qos": &t.qos, "wckey": &t.wckey,
		"comment": &t.comment, "reason": &t.reason, "node_list": &t.nodes, "constraint": &t.constraint, "reservation": &t.reservation, "licenses": &t.licenses,
		"work_dir": &t.workDir, "submit_line": &t.line, "stdin": &t.stdin, "stdout": &t.stdout, "stderr": &t.stderr,
		"admin_comment": &t.admin, "system_comment": &t.system, "extra": &t.extra, "container": &t.container, "mcs_label": &t.mcs, "failed_node": &t.failed}
	return []any{texts[field]}
}

// nextRow makes the row of the API of what was read.
func (s *runScan) nextRow() acctRun {
	t := &s.text
	who, ok := s.owners[t.owner]
	if !ok {
		who = query.Owner(t.owner)
		s.owners[t.owner] = who
	}
	behind := func(gap *int64) int64 {
		if gap == nil {
			return 0
		}
		return s.submit + *gap
	}
	start := behind(s.startGap)
	row := &apiv1.AcctRow{
		Uid:           s.uid,
		Restarts:      s.restarts,
		Attempt:       s.attempt,
		JobId:         s.id,
		ArrayJobId:    s.arrayID,
		ArrayTask:     s.task,
		ArrayTasks:    s.tasks,
		TasksCount:    s.count,
		Name:          t.name,
		User:          who.User,
		UserId:        who.UserID,
		Group:         who.Group,
		GroupId:       who.GroupID,
		Account:       who.Account,
		Partition:     t.partition,
		Qos:           t.qos,
		Wckey:         t.wckey,
		Comment:       t.comment,
		State:         s.state,
		ExitCode:      s.exit,
		ExitSignal:    s.signal,
		DerivedCode:   s.derived,
		DerivedSignal: s.derivedSignal,
		Reason:        t.reason,
		NodeList:      t.nodes,
		Constraint:    t.constraint,
		Reservation:   t.reservation,
		Licenses:      t.licenses,
		AssocId:       who.Assoc,
		ReqNodes:      s.reqNodes,
		Tasks:         s.ntasks,
		Priority:      s.priority,
		WorkDir:       t.workDir,
		SubmitLine:    t.line,
		Stdin:         t.stdin,
		Stdout:        t.stdout,
		Stderr:        t.stderr,
		Suspended:     s.suspended * micro,
		Submit:        s.submit * micro,
		Eligible:      behind(s.eligibleGap) * micro,
		Start:         start * micro,
		End:           s.end * micro,
		GpuUuids:      strings.Join(s.gpus, ","),
		HetJobId:      s.het,
		HetOffset:     s.hetOffset,
		AdminComment:  t.admin,
		SystemComment: t.system,
		Extra:         t.extra,
		Container:     t.container,
		McsLabel:      t.mcs,
		FailedNode:    t.failed,
		Segment:       s.segment,
	}
	if s.by != nil {
		row.Cancelled, row.CancelledBy = true, *s.by
	}
	row.TimeLimit = wire.Unlimited
	if s.limit >= 0 {
		row.TimeLimit = s.limit * micro
	}
	switch {
	case s.wantReq:
		row.ReqTres = s.req.tres()
		row.ReqCpus = uint32(s.req.cpus)
		row.ReqMem = s.req.mem
	case s.wantCPUs:
		row.ReqCpus = uint32(s.cpusAsked)
	}
	if start != 0 {
		switch {
		case s.wantAlloc:
			row.AllocTres = s.alloc.tres()
		case s.wantCPUs:
			row.AllocTres = &apiv1.Tres{Cpu: s.cpus, Node: s.nodes}
		}
		if s.wantFlags {
			row.Flags = "SchedMain"
			if s.backfill {
				row.Flags = "SchedBackfill"
			}
		}
	}
	s.use.fill(row)
	return acctRun{
		row:   row,
		key:   query.RunKey{UID: s.uid, Restarts: s.restarts},
		array: s.arrayUID,
		batch: s.batch,
		parts: s.hetSize,
	}
}

// stepScan reads rows of Acct.Steps.
type stepScan struct {
	dest  []any
	parts query.StepParts

	uid          uint64
	restarts     uint32
	step         int32
	name, state  string
	exit, signal int32
	tasks        uint32
	nodes        string
	container    string
	start, end   int64
	alloc        vector
	use          usage
}

func newStepScan(parts query.StepParts) *stepScan {
	scan := &stepScan{parts: parts}
	scan.dest = []any{
		&scan.uid,
		&scan.restarts,
		&scan.step,
		&scan.name,
		&scan.state,
		&scan.exit,
		&scan.signal,
		&scan.start,
		&scan.end,
		&scan.alloc.cpus,
		&scan.alloc.nodes,
	}
	if parts.Amounts {
		scan.dest = append(
			scan.dest,
			&scan.alloc.mem,
			&scan.alloc.gpus,
			&scan.alloc.billing,
			&scan.alloc.other,
		)
	}
	if parts.Usage {
		scan.dest = append(scan.dest, scan.use.ofStep()...)
	}
	if parts.Nodes {
		scan.dest = append(scan.dest, &scan.nodes)
	}
	if parts.Tasks {
		scan.dest = append(scan.dest, &scan.tasks)
	}
	if parts.Container {
		scan.dest = append(scan.dest, &scan.container)
	}
	return scan
}

// makeRow makes the row of the API, without what it has of its run.
func (s *stepScan) makeRow() *apiv1.AcctRow {
	row := &apiv1.AcctRow{Uid: s.uid, Restarts: s.restarts, ArrayTask: spec.NoTask, TasksCount: 1,
		Step: spec.StepID(s.step).
			String(),
		Name: s.name, State: s.state, ExitCode: s.exit, ExitSignal: s.signal,
		Tasks: s.tasks, NodeList: s.nodes, Start: s.start * micro, End: s.end * micro, Submit: s.start * micro, AllocTres: s.alloc.tres()}
	row.Container = s.container
	s.use.fill(row)
	return row
}

// liveStep reads a row of Acct.LiveSteps.
func liveStep(scan func(...any) error) (*apiv1.AcctRow, error) {
	row := &apiv1.AcctRow{ArrayTask: spec.NoTask, TasksCount: 1, State: spec.Running.String()}
	var id int32
	var start int64
	if err := scan(&row.Uid, &row.Restarts, &id, &row.Name, &start, &row.Tasks, &row.NodeList, &row.Container); err != nil {
		return nil, err
	}
	row.Step = spec.StepID(id).String()
	row.Start = start * micro
	row.Submit = start * micro
	return row, nil
}

func hasBatch(steps []*apiv1.AcctRow) bool { return slices.ContainsFunc(steps, isBatch) }
