package daemon

import (
	"context"
	"math"
	"slices"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// chunk is how many runs are put together before they are handed on.
const chunk = 4096

// Jobs answers sacct: runs, and below each its steps.
func (s Service) Jobs(ctx context.Context, request *apiv1.AcctQuery) (*apiv1.AcctReply, error) {
	var reply *apiv1.AcctReply
	err := s.streamRows(ctx, request, func(part *apiv1.AcctReply) error {
		if reply == nil {
			reply = part
		} else {
			reply.Rows = append(reply.Rows, part.GetRows()...)
		}
		return nil
	})
	return reply, err
}

// JobRows is Jobs, some thousand rows at a time.
func (s Service) JobRows(request *apiv1.AcctQuery, stream service.Accounting_JobRowsServer) error {
	return s.streamRows(stream.Context(), request, stream.Send)
}

// streamRows hands the answer on in pieces, at least one; what is in a piece is not
// kept.
func (s Service) streamRows(
	ctx context.Context,
	request *apiv1.AcctQuery,
	send func(*apiv1.AcctReply) error,
) error {
	scope, behind, err := s.D.scopeOf(ctx, request.GetCluster(), request.GetMinSeq())
	if err != nil {
		return s.D.storeAway(err)
	}
	ask, err := s.readQuery(ctx, request, scope)
	if err != nil {
		return err
	}
	a := &answer{
		s:        s,
		ctx:      ctx,
		scope:    scope,
		ask:      ask,
		send:     send,
		behind:   behind,
		want:     wantedParts(request.GetFields()),
		wholeHet: request.GetHetWhole() == apiv1.HetWhole_HET_WHOLE_ALL,
	}
	over, err := s.awaitTurn(ctx)
	if err != nil {
		return s.D.storeAway(err)
	}
	defer over()
	a.ahead = a.askAhead()
	defer a.ahead.stopAsking()
	err = s.queryRuns(ctx, scope, ask, a.want, a.run)
	if more := a.querySiblings(request.GetHetWhole()); err == nil && more != nil {
		err = s.queryRuns(ctx, scope, more, a.want, a.run)
		if err == nil {
			a.inOrder()
		}
	}
	if err == nil {
		err = a.flushRuns(true)
	}
	return s.D.storeAway(err)
}

// wantedParts tells which parts of a run the fields of the answer need.
func wantedParts(fields []string) func(query.RunPart) bool {
	if len(fields) == 0 {
		return func(p query.RunPart) bool { return p.Field != "cpus" && p.Field != "array_uid" }
	}
	asked := func(field string) bool { return slices.Contains(fields, field) }
	return func(part query.RunPart) bool {
		return part.Field == "" || asked(part.Field) || slices.ContainsFunc(part.More, asked)
	}
}

// clusterName is the cluster's.
func (d *Daemon) clusterName() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cluster
}

// readQuery reads the query of the API.
func (s Service) readQuery(
	ctx context.Context,
	request *apiv1.AcctQuery,
	scope query.Scope,
) (*query.Acct, error) {
	now := scope.Now
	zone, err := loadZone(request.GetZone())
	if err != nil {
		return nil, err
	}
	acct := &query.Acct{
		Users:       request.GetUsers(),
		Accounts:    request.GetAccounts(),
		Partitions:  request.GetPartitions(),
		QOS:         request.GetQos(),
		Names:       request.GetNames(),
		States:      request.GetStates(),
		Assocs:      request.GetAssociations(),
		Start:       spec.Instant(request.GetStart()),
		End:         spec.Instant(request.GetEnd()),
		Allocations: request.GetAllocationsOnly(),
		Duplicates:  request.GetDuplicates(),
	}
	for _, text := range request.GetJobs() {
		ref, err := query.ParseJobRef(text)
		if err != nil {
			return nil, spec.Refuse(spec.CodeInvalidJobID, err.Error())
		}
		acct.Jobs = append(acct.Jobs, ref)
	}
	for _, expr := range request.GetNodes() {
		hosts, err := hostlist.Expand(expr)
		if err != nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
		}
		acct.Nodes = append(acct.Nodes, hosts...)
	}
	// Without a word about users it is one's own jobs, but those that are named
	// by number are shown whoever's they are.
	if who := s.D.callerOf(ctx); !request.GetAllUsers() && len(acct.Users) == 0 &&
		len(acct.Jobs) == 0 &&
		!who.Admin {
		acct.Users = []string{who.User}
	}
	if err := s.D.restrictToOwn(ctx, scope, acct); err != nil {
		return nil, s.D.storeAway(err)
	}
	acct.Window(now, midnightBefore(now, zone, 0))
	return acct, nil
}

// answer collects rows and hands them on.
type answer struct {
	s      Service
	ctx    context.Context
	scope  query.Scope
	ask    *query.Acct
	want   func(query.RunPart) bool
	send   func(*apiv1.AcctReply) error
	behind uint64
	sent   bool

	wholeHet bool // all components of what is found, whether jobs are named or not
	runs     []acctRun
	found    map[uint32]hetFound // components of heterogeneous jobs, by number
	steps    map[query.RunKey][]*apiv1.AcctRow
	ahead    *stepsAhead // steps that are there already, or soon
}

// acctRun is a run with what its row does not say.
type acctRun struct {
	row   *apiv1.AcctRow
	key   query.RunKey
	array uint64 // uid of its array
	batch bool
	parts uint32 // of its heterogeneous job
}

// run takes the next run. Of a job's runs, which come one behind the other,
// only the last stays, unless all are asked for.
func (a *answer) run(run acctRun) error {
	if !a.standsForTask(run.row) {
		return nil
	}
	a.noteComponents(&run)
	if n := len(a.runs); n > 0 && !a.ask.Duplicates && a.runs[n-1].key.UID == run.key.UID {
		a.runs[n-1] = run
		return nil
	}
	if len(a.runs) == chunk {
		if err := a.flushRuns(false); err != nil {
			return err
		}
	}
	a.runs = append(a.runs, run)
	return nil
}

// flushRuns puts the runs together with their steps and hands them on.
func (a *answer) flushRuns(last bool) error {
	if len(a.runs) == 0 && (a.sent || !last) {
		return nil
	}
	a.sent = true
	if err := a.amendRuns(); err != nil {
		return err
	}
	if !a.ask.Allocations && len(a.runs) > 0 {
		if err := a.findSteps(); err != nil {
			return err
		}
	}
	reply := &apiv1.AcctReply{
		Seq:     a.scope.Event(),
		Behind:  a.behind,
		Cluster: a.scope.Cluster,
		Now:     int64(a.scope.Now),
	}
	a.assembleRows(reply)
	a.runs, a.steps = a.runs[:0], nil
	return a.send(reply)
}

// stepParts are what is wanted of steps.
func (a *answer) stepParts() query.StepParts {
	has := func(field string) bool { return a.want(query.RunPart{Field: field}) }
	return query.StepParts{
		Amounts: has("alloc_tres"),
		Usage:   has("usage"),
		Nodes:   has("node_list"),
		Tasks:   has("tasks") || has("usage"), // the use of tasks is divided by their number

		Container: has("container"),
	}
}

// endedSteps asks a question about ended steps, and keeps those of the runs that
// are wanted.
func (s Service) endedSteps(
	ctx context.Context,
	q query.Query,
	parts query.StepParts,
	wanted func(query.RunKey) bool,
	into map[query.RunKey][]*apiv1.AcctRow,
) error {
	sc := newStepScan(parts)
	return s.D.cfg.Store.Query(ctx, q, func(scan func(...any) error) error {
		if err := scan(sc.dest...); err != nil {
			return err
		}
		if key := (query.RunKey{UID: sc.uid, Restarts: sc.restarts}); wanted(key) {
			into[key] = append(into[key], sc.makeRow())
		}
		return nil
	})
}

// findSteps asks for the steps of the runs, but for those that are there
// already.
func (a *answer) findSteps() error {
	if err := a.ahead.waitForSteps(); err != nil {
		return err
	}
	a.steps = make(map[query.RunKey][]*apiv1.AcctRow, len(a.runs))
	var missing, open []query.RunKey
	for i := range a.runs {
		key := a.runs[i].key
		if !a.ahead.hasSteps(&a.runs[i]) {
			missing = append(missing, key)
			a.steps[key] = nil
		}
		if r := a.runs[i].row; r.GetStart() != 0 && r.GetEnd() == 0 {
			open = append(open, key)
		}
	}
	if len(missing) > 0 {
		parts := a.stepParts()
		if err := a.s.endedSteps(a.ctx, a.ask.Steps(a.scope, missing, parts), parts, a.asked, a.steps); err != nil {
			return err
		}
	}
	for i := range a.runs {
		if a.ahead.hasSteps(&a.runs[i]) {
			key := a.runs[i].key
			a.steps[key] = a.ahead.rows[key]
		}
	}
	if len(open) == 0 {
		return nil
	}
	return a.s.D.cfg.Store.Query(
		a.ctx,
		a.ask.LiveSteps(a.scope, open),
		func(scan func(...any) error) error {
			row, err := liveStep(scan)
			if err != nil {
				return err
			}
			if key := (query.RunKey{UID: row.GetUid(), Restarts: row.GetRestarts()}); a.asked(key) {
				a.steps[key] = append(a.steps[key], row)
			}
			return nil
		},
	)
}

func (a *answer) asked(key query.RunKey) bool {
	_, ok := a.steps[key]
	return ok
}

// standsForTask drops the record of an array that was found for a task which it does
// not stand for any more.
func (a *answer) standsForTask(row *apiv1.AcctRow) bool {
	if len(a.ask.Jobs) == 0 || row.GetArrayTasks() == "" {
		return true
	}
	set, err := format.ParseArray(row.GetArrayTasks())
	if err != nil {
		return true // shown rather than lost
	}
	for _, job := range a.ask.Jobs {
		if job.ID != row.GetArrayJobId() && job.ID != row.GetJobId() {
			continue
		}
		if job.Task == spec.NoTask ||
			(job.Task <= math.MaxUint32 && set.Contains(uint32(job.Task))) {
			return true
		}
	}
	return false
}

// assembleRows puts the rows in order: each run, its batch script, its steps.
func (a *answer) assembleRows(reply *apiv1.AcctReply) {
	now := a.scope.Now
	for _, run := range a.runs {
		row := run.row
		until := row.GetEnd()
		if until == 0 {
			until = int64(now)
		}
		waited := until
		if row.GetStart() != 0 {
			row.Elapsed = max(until-row.GetStart()-row.GetSuspended(), 0)
			waited = row.GetStart()
		}
		if row.GetEligible() != 0 {
			row.Planned = max(waited-row.GetEligible(), 0)
		}
		steps := a.steps[run.key]
		if !a.ask.Allocations && run.batch && row.GetStart() != 0 && !hasBatch(steps) {
			steps = slices.Insert(steps, 0, liveBatch(row))
		}
		if a.ask.Allocations || a.wantsRunRow(row) {
			reply.Rows = append(reply.Rows, row)
		}
		for _, st := range steps {
			if a.ask.Allocations || !a.isNamed(row, st.GetStep()) {
				continue
			}
			a.inheritRun(row, st, until)
			reply.Rows = append(reply.Rows, st)
		}
	}
}

// wantsRunRow tells whether the run's own row is asked for: not where only steps of
// it are named.
func (a *answer) wantsRunRow(row *apiv1.AcctRow) bool { return a.isNamed(row, "") }

// isNamed tells whether a step (or, with "", the run itself) is asked for.
func (a *answer) isNamed(row *apiv1.AcctRow, step string) bool {
	if len(a.ask.Jobs) == 0 {
		return true
	}
	return slices.ContainsFunc(a.ask.Jobs, func(job query.JobRef) bool {
		return namesRun(job, row) && (job.Step == "" || job.Step == step)
	})
}

// namesRun tells whether a run is of the job, the component and the task that were asked for. A row
// of an array as a whole has no task, and is of each.
func namesRun(job query.JobRef, row *apiv1.AcctRow) bool {
	if job.ID != row.GetJobId() && job.ID != row.GetArrayJobId() {
		return false
	}
	if job.Het != 0 && job.Het != row.GetHetJobId() {
		return false
	}
	return job.Task == spec.NoTask || job.Task == row.GetArrayTask() || row.GetArrayTask() < 0
}

func isBatch(row *apiv1.AcctRow) bool { return row.GetStep() == spec.StepBatch.String() }

// liveBatch is the batch script of a run that is not over.
func liveBatch(row *apiv1.AcctRow) *apiv1.AcctRow {
	tres := wire.ToTRES(row.GetAllocTres())
	tres.Billing = 0
	return &apiv1.AcctRow{
		Uid:        row.GetUid(),
		JobId:      row.GetJobId(),
		Attempt:    row.GetAttempt(),
		Restarts:   row.GetRestarts(),
		ArrayTask:  spec.NoTask,
		TasksCount: 1,
		Step:       spec.StepBatch.String(),
		Name:       "batch",
		User:       row.GetUser(),
		Account:    row.GetAccount(),
		State:      row.GetState(),
		Start:      row.GetStart(),
		End:        row.GetEnd(),
		Submit:     row.GetStart(),
		Tasks:      1,
		NodeList:   firstHost(row.GetNodeList()),
		AllocTres:  wire.TRES(tres),
		Container:  row.GetContainer(),
	}
}

func firstHost(nodes string) string {
	if hosts, err := hostlist.Expand(nodes); err == nil && len(hosts) > 0 {
		return hosts[0]
	}
	return nodes
}

// inheritRun gives a step what it has of its run.
func (a *answer) inheritRun(row, st *apiv1.AcctRow, until int64) {
	st.ArrayJobId = row.GetArrayJobId()
	st.ArrayTask = row.GetArrayTask()
	st.ArrayTasks = row.GetArrayTasks()
	st.JobId, st.Attempt = row.GetJobId(), row.GetAttempt()
	st.User = row.GetUser()
	st.UserId = row.GetUserId()
	st.Account = row.GetAccount()
	st.AssocId = row.GetAssocId()
	st.HetJobId, st.HetOffset = row.GetHetJobId(), row.GetHetOffset()
	st.TimeLimit = wire.Unlimited
	if st.GetEnd() != 0 {
		until = st.GetEnd()
	}
	if isBatch(st) {
		st.Suspended = row.GetSuspended() // it runs as long as its run does, and stands still with it
	}
	st.Elapsed = max(until-st.GetStart()-st.GetSuspended(), 0)
}
