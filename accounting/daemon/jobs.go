package daemon

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Jobs answers sacct: runs, and below each its steps.
func (s Service) Jobs(ctx context.Context, q *apiv1.AcctQuery) (*apiv1.AcctReply, error) {
	scope, behind, err := s.D.scope(ctx, q.GetMinSeq())
	if err != nil {
		return nil, s.D.away(err)
	}
	ask, err := s.ask(ctx, q, scope.Now)
	if err != nil {
		return nil, err
	}
	a := answer{ask: ask, reply: &apiv1.AcctReply{Seq: scope.Seq, Behind: behind, Cluster: s.D.name(), Now: int64(scope.Now)}}
	if err := s.D.cfg.Store.Query(ctx, ask.Runs(scope), a.run); err != nil {
		return nil, s.D.away(err)
	}
	if !ask.Allocations && len(a.runs) > 0 {
		a.steps = map[runKey][]*apiv1.AcctRow{}
		if err := s.D.cfg.Store.Query(ctx, ask.Steps(scope), a.step); err != nil {
			return nil, s.D.away(err)
		}
		if err := s.D.cfg.Store.Query(ctx, ask.LiveSteps(scope), a.liveStep); err != nil {
			return nil, s.D.away(err)
		}
	}
	a.assemble(scope.Now)
	return a.reply, nil
}

// name is the cluster's.
func (d *Daemon) name() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cluster
}

// ask reads the query of the API.
func (s Service) ask(ctx context.Context, q *apiv1.AcctQuery, now spec.Instant) (*query.Acct, error) {
	loc, err := zone(q.GetZone())
	if err != nil {
		return nil, err
	}
	a := &query.Acct{Users: q.GetUsers(), Accounts: q.GetAccounts(), Partitions: q.GetPartitions(), QOS: q.GetQos(), Names: q.GetNames(),
		States: q.GetStates(), Start: spec.Instant(q.GetStart()), End: spec.Instant(q.GetEnd()), Allocations: q.GetAllocationsOnly(),
		Duplicates: q.GetDuplicates()}
	for _, text := range q.GetJobs() {
		ref, err := query.ParseJobRef(text)
		if err != nil {
			return nil, spec.Refuse(spec.CodeInvalidJobID, err.Error())
		}
		a.Jobs = append(a.Jobs, ref)
	}
	for _, expr := range q.GetNodes() {
		hosts, err := hostlist.Expand(expr)
		if err != nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
		}
		a.Nodes = append(a.Nodes, hosts...)
	}
	// Without a word about users it is one's own jobs, but those that are named
	// by number are shown whoever's they are.
	if who := s.D.caller(ctx); !q.GetAllUsers() && len(a.Users) == 0 && len(a.Jobs) == 0 && !who.Admin {
		a.Users = []string{who.User}
	}
	a.Window(now, midnight(now, loc, 0))
	return a, nil
}

type runKey struct {
	uid      uint64
	restarts uint32
}

// answer collects rows.
type answer struct {
	ask   *query.Acct
	reply *apiv1.AcctReply
	runs  []acctRun
	steps map[runKey][]*apiv1.AcctRow
}

// acctRun is a run with what its row does not say.
type acctRun struct {
	row   *apiv1.AcctRow
	key   runKey
	batch bool
}

// usage is what the store has of a run's or step's usage.
type usage struct {
	measured                             bool
	user, system, mem, read, write, majf int64
	rss, energy                          *int64
}

func (u *usage) dest() []any {
	return []any{&u.measured, &u.user, &u.system, &u.rss, &u.mem, &u.read, &u.write, &u.energy, &u.majf}
}

func (u *usage) fill(row *apiv1.AcctRow) {
	if !u.measured {
		return
	}
	out := &apiv1.Usage{UserCpu: u.user * micro, SystemCpu: u.system * micro, ReadBytes: u.read, WriteBytes: u.write, MemMibS: u.mem, MajFaults: u.majf}
	if u.rss != nil {
		out.PeakRss, out.HasRss = *u.rss, true
	}
	if u.energy != nil {
		out.EnergyMj, out.HasEnergy = *u.energy, true
	}
	row.Usage, row.HasUsage = out, true
}

// micro is a microsecond in the API's nanoseconds.
const micro = int64(spec.Microsecond)

// vector is a TRES vector as the store has it.
type vector struct {
	cpus, mem, nodes, gpus, billing int64
	other                           map[string]int64
}

func (v *vector) dest() []any {
	return []any{&v.cpus, &v.mem, &v.nodes, &v.gpus, &v.billing, &v.other}
}

func (v *vector) tres() *apiv1.Tres {
	t := spec.TRES{CPU: v.cpus, Mem: v.mem, Node: v.nodes, Billing: v.billing}
	for name, n := range v.other {
		t = t.With(name, n)
	}
	return wire.TRES(t.With("gres/gpu", v.gpus))
}

// run reads a row of Acct.Runs.
func (a *answer) run(scan func(...any) error) error {
	r := &apiv1.AcctRow{}
	var cancelledBy *uint32
	var limit, suspended, submit, eligible, start, end int64
	var req, alloc vector
	var use usage
	var backfill, batch bool
	var gpus []string
	dest := []any{&r.Uid, &r.Restarts, &r.Attempt, &r.JobId, &r.ArrayJobId, &r.ArrayTask, &r.ArrayTasks, &r.TasksCount, &r.Name, &r.User, &r.UserId,
		&r.Group, &r.GroupId, &r.Account, &r.Partition, &r.Qos, &r.Wckey, &r.Comment, &r.State, &r.ExitCode, &r.ExitSignal, &r.DerivedCode,
		&r.DerivedSignal, &cancelledBy, &r.Reason, &limit, &suspended}
	dest = append(append(dest, req.dest()...), alloc.dest()...)
	dest = append(dest, &r.ReqNodes, &r.Tasks, &r.NodeList, &r.Constraint, &r.Reservation, &r.Priority, &backfill, &batch, &r.WorkDir, &r.SubmitLine,
		&r.Stdin, &r.Stdout, &r.Stderr)
	dest = append(append(dest, use.dest()...), &submit, &eligible, &start, &end, &gpus)
	if err := scan(dest...); err != nil {
		return err
	}
	if !a.wanted(r) {
		return nil
	}
	if cancelledBy != nil {
		r.Cancelled, r.CancelledBy = true, *cancelledBy
	}
	r.TimeLimit = wire.Unlimited
	if limit >= 0 {
		r.TimeLimit = limit * micro
	}
	r.Suspended, r.Submit, r.Eligible, r.Start, r.End = suspended*micro, submit*micro, eligible*micro, start*micro, end*micro
	r.ReqTres, r.ReqCpus, r.ReqMem = req.tres(), uint32(req.cpus), req.mem
	if start != 0 {
		r.AllocTres = alloc.tres()
		r.Flags = "SchedMain"
		if backfill {
			r.Flags = "SchedBackfill"
		}
	}
	r.GpuUuids = strings.Join(gpus, ",")
	use.fill(r)
	a.runs = append(a.runs, acctRun{row: r, key: runKey{r.GetUid(), r.GetRestarts()}, batch: batch})
	return nil
}

// wanted drops the record of an array that was found for a task which it does
// not stand for any more.
func (a *answer) wanted(r *apiv1.AcctRow) bool {
	if len(a.ask.Jobs) == 0 || r.GetArrayTasks() == "" {
		return true
	}
	set, err := format.ParseArray(r.GetArrayTasks())
	if err != nil {
		return true // shown rather than lost
	}
	for _, j := range a.ask.Jobs {
		if j.ID != r.GetArrayJobId() && j.ID != r.GetJobId() {
			continue
		}
		if j.Task == spec.NoTask || (j.Task <= math.MaxUint32 && set.Contains(uint32(j.Task))) {
			return true
		}
	}
	return false
}

// step reads a row of Acct.Steps.
func (a *answer) step(scan func(...any) error) error {
	r := &apiv1.AcctRow{ArrayTask: spec.NoTask, TasksCount: 1}
	var id int32
	var alloc vector
	var use usage
	var start, end int64
	dest := []any{&r.Uid, &r.Restarts, &r.Attempt, &r.JobId, &id, &r.Name, &r.User, &r.Account, &r.State, &r.ExitCode, &r.ExitSignal, &r.Tasks, &r.NodeList}
	dest = append(append(dest, alloc.dest()...), use.dest()...)
	if err := scan(append(dest, &start, &end)...); err != nil {
		return err
	}
	r.Step, r.Start, r.End, r.Submit = spec.StepID(id).String(), start*micro, end*micro, start*micro
	r.AllocTres = alloc.tres()
	use.fill(r)
	a.addStep(r)
	return nil
}

// liveStep reads a row of Acct.LiveSteps.
func (a *answer) liveStep(scan func(...any) error) error {
	r := &apiv1.AcctRow{ArrayTask: spec.NoTask, TasksCount: 1, State: spec.Running.String()}
	var id int32
	var start int64
	if err := scan(&r.Uid, &r.Restarts, &r.Attempt, &r.JobId, &id, &r.Name, &start, &r.Tasks, &r.NodeList); err != nil {
		return err
	}
	r.Step, r.Start, r.Submit = spec.StepID(id).String(), start*micro, start*micro
	a.addStep(r)
	return nil
}

func (a *answer) addStep(r *apiv1.AcctRow) {
	k := runKey{r.GetUid(), r.GetRestarts()}
	a.steps[k] = append(a.steps[k], r)
}

// assemble puts the rows in order: each run, its batch script, its steps.
func (a *answer) assemble(now spec.Instant) {
	for _, run := range a.runs {
		r := run.row
		until := r.GetEnd()
		if until == 0 {
			until = int64(now)
		}
		waited := until
		if r.GetStart() != 0 {
			r.Elapsed = max(until-r.GetStart()-r.GetSuspended(), 0)
			waited = r.GetStart()
		}
		if r.GetEligible() != 0 {
			r.Planned = max(waited-r.GetEligible(), 0)
		}
		steps := a.steps[run.key]
		if !a.ask.Allocations && run.batch && r.GetStart() != 0 && !slices.ContainsFunc(steps, isBatch) {
			steps = slices.Insert(steps, 0, liveBatch(r))
		}
		if a.ask.Allocations || a.whole(r) {
			a.reply.Rows = append(a.reply.Rows, r)
		}
		for _, st := range steps {
			if a.ask.Allocations || !a.named(r, st.GetStep()) {
				continue
			}
			a.belong(r, st, until)
			a.reply.Rows = append(a.reply.Rows, st)
		}
	}
}

// whole tells whether the run's own row is asked for: not where only steps of
// it are named.
func (a *answer) whole(r *apiv1.AcctRow) bool { return a.named(r, "") }

// named tells whether a step (or, with "", the run itself) is asked for.
func (a *answer) named(r *apiv1.AcctRow, step string) bool {
	if len(a.ask.Jobs) == 0 {
		return true
	}
	for _, j := range a.ask.Jobs {
		if (j.ID == r.GetJobId() || j.ID == r.GetArrayJobId()) && (j.Task == spec.NoTask || j.Task == r.GetArrayTask() || r.GetArrayTask() < 0) &&
			(j.Step == "" || j.Step == step) {
			return true
		}
	}
	return false
}

func isBatch(r *apiv1.AcctRow) bool { return r.GetStep() == spec.StepBatch.String() }

// liveBatch is the batch script of a run that is not over.
func liveBatch(r *apiv1.AcctRow) *apiv1.AcctRow {
	t := wire.ToTRES(r.GetAllocTres())
	t.Billing = 0
	return &apiv1.AcctRow{Uid: r.GetUid(), JobId: r.GetJobId(), Attempt: r.GetAttempt(), Restarts: r.GetRestarts(), ArrayTask: spec.NoTask, TasksCount: 1,
		Step: spec.StepBatch.String(), Name: "batch", User: r.GetUser(), Account: r.GetAccount(), State: r.GetState(), Start: r.GetStart(), End: r.GetEnd(),
		Submit: r.GetStart(), Tasks: 1, NodeList: firstHost(r.GetNodeList()), AllocTres: wire.TRES(t)}
}

func firstHost(nodes string) string {
	if hosts, err := hostlist.Expand(nodes); err == nil && len(hosts) > 0 {
		return hosts[0]
	}
	return nodes
}

// belong gives a step what it has of its run.
func (a *answer) belong(r, st *apiv1.AcctRow, until int64) {
	st.ArrayJobId, st.ArrayTask, st.ArrayTasks = r.GetArrayJobId(), r.GetArrayTask(), r.GetArrayTasks()
	st.User, st.UserId, st.Account = r.GetUser(), r.GetUserId(), r.GetAccount()
	st.TimeLimit = wire.Unlimited
	if st.GetEnd() != 0 {
		until = st.GetEnd()
	}
	st.Elapsed = max(until-st.GetStart(), 0)
}
