package acct

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// While the accounting store is away, sacct shows what the controller itself knows: jobs that
// wait or run, and those that ended a short while ago (MinJobAge), with their steps. What ran
// before and what was measured is in the store alone.

// unlimited is how the API writes a limit that is none.
const unlimited = -1

// storeIsAway tells that the store did not answer, and nothing else is wrong.
func storeIsAway(err error) bool {
	return tool.ExplainError(err).Code == spec.CodeDatabaseUnreachable
}

// ledgerCanTell tells whether the controller may know what is asked for: it knows this
// cluster, and no associations by number.
func (a *acctAsk) ledgerCanTell() bool {
	return a.req.GetCluster() == "" && len(a.req.GetAssociations()) == 0
}

// ledgerRows hands on the rows that the controller knows. It fails where they cannot be all:
// unless jobs are named and all of them were found, older ones may be missing.
func ledgerRows(
	call *tool.Call,
	query *acctAsk,
	away error,
	each func(*apiv1.AcctReply) error,
) error {
	var jobs apiv1.ListJobsReply
	if err := fetch.Jobs(call, ledgerRequest(query.req, call.UID), &jobs); err != nil {
		return away // the first error is the one to mend
	}
	reply := &apiv1.AcctReply{Now: jobs.GetNow(), Seq: jobs.GetSeq()}
	var ping apiv1.PingReply
	if err := call.RPC(tool.MethodPing, &apiv1.PingRequest{}, &ping); err != nil {
		return away
	}
	reply.Cluster = ping.GetCluster()
	slices.SortStableFunc(jobs.GetJobs(), compareJobs)
	for _, job := range jobs.GetJobs() {
		if query.inWindow(job, jobs.GetNow()) {
			reply.Rows = append(reply.Rows, query.ledgerJob(job, jobs.GetNow())...)
		}
	}
	if len(reply.GetRows()) == 0 {
		return away
	}
	if err := each(reply); err != nil {
		return err
	}
	why := tool.ExplainError(away)
	fmt.Fprintf(
		call.Stderr,
		"%s: warning: %s; shown is what the controller knows by itself: jobs that wait or run, "+
			"and those that ended a short while ago, without what was measured\n",
		call.Command.Name,
		cmp.Or(why.Detail, why.Text),
	)
	if missing := query.missing(reply.GetRows()); missing != "" {
		return tool.Fail(1, fmt.Sprintf("%s: error: %s: %s", call.Command.Name, why.Text, missing))
	}
	return nil
}

// compareJobs is the order of sacct: by number, the tasks of an array at its number, and the
// record of those that wait behind them.
func compareJobs(a, b *apiv1.JobInfo) int {
	number := func(j *apiv1.JobInfo) uint32 { return cmp.Or(j.GetArrayJobId(), j.GetJobId()) }
	waits := func(job *apiv1.JobInfo) int {
		if job.GetArrayTask() < 0 {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(number(a), number(b)),
		cmp.Compare(waits(a), waits(b)),
		cmp.Compare(a.GetArrayTask(), b.GetArrayTask()),
		cmp.Compare(a.GetUid(), b.GetUid()),
	)
}

// ledgerRequest asks the controller for the jobs that are asked for: those of the user who
// asks, where neither users nor jobs are named.
func ledgerRequest(query *apiv1.AcctQuery, uid uint32) *apiv1.ListJobsRequest {
	filter := &apiv1.JobFilter{
		AllStates:  true,
		Accounts:   query.GetAccounts(),
		Partitions: query.GetPartitions(),
		Qos:        query.GetQos(),
		Names:      query.GetNames(),
		Nodes:      query.GetNodes(),
		Users:      query.GetUsers(),
	}
	if !query.GetAllUsers() && len(query.GetUsers())+len(query.GetJobs()) == 0 {
		filter.Users = []string{tool.Itoa(uid)}
	}
	for _, ref := range query.GetJobs() {
		job, _, _ := strings.Cut(ref, ".")
		job, _, _ = strings.Cut(job, "+")
		filter.Jobs = append(filter.Jobs, job)
	}
	return &apiv1.ListJobsRequest{Filter: filter, Detail: true}
}

// inWindow tells whether a job is among those asked for by time and state.
func (a *acctAsk) inWindow(job *apiv1.JobInfo, now int64) bool {
	states := a.req.GetStates()
	if len(states) > 0 && !slices.Contains(states, job.GetState()) {
		return false
	}
	until := cmp.Or(a.req.GetEnd(), now)
	if job.GetSubmit()/tool.Second > until/tool.Second {
		return false
	}
	listed := len(states)+len(a.req.GetJobs()) == 0
	pending := len(states) > 0 && spec.JobState(job.GetState()) == spec.Pending
	if (listed || pending) && !countsBy(job, until) {
		return false
	}
	return endOf(job) == 0 || endOf(job)/tool.Second >= a.req.GetStart()/tool.Second
}

// countsBy tells whether nothing but room was missing to a job by then: before, it is not pending
// to accounting. One that ended is judged by its states.
func countsBy(job *apiv1.JobInfo, then int64) bool {
	since := cmp.Or(job.GetEligible(), job.GetStart())
	return since != 0 && since/tool.Second <= then/tool.Second
}

// endOf is when a job ended; 0 = it did not. That of a running job is when its limit ends it.
func endOf(job *apiv1.JobInfo) int64 {
	if spec.JobState(job.GetState()).Terminal() {
		return job.GetEnd()
	}
	return 0
}

// ledgerJob is a job, and its steps if they are asked for.
func (a *acctAsk) ledgerJob(job *apiv1.JobInfo, now int64) []*apiv1.AcctRow {
	row := ledgerRow(job, now)
	steps := []*apiv1.AcctRow{}
	if !a.req.GetAllocationsOnly() && job.GetStart() != 0 {
		if !job.GetSpec().GetShell() {
			steps = append(steps, ledgerBatch(row))
		}
		for _, step := range job.GetSteps() {
			steps = append(steps, ledgerStep(row, step, now))
		}
	}
	return slices.DeleteFunc(
		append([]*apiv1.AcctRow{row}, steps...),
		func(r *apiv1.AcctRow) bool { return !a.names(r) },
	)
}

// names tells whether a row is one of those named with -j; without -j all are.
func (a *acctAsk) names(row *apiv1.AcctRow) bool {
	if len(a.req.GetJobs()) == 0 {
		return true
	}
	return slices.ContainsFunc(a.req.GetJobs(), func(ref string) bool {
		_, step, stepped := strings.Cut(ref, ".")
		return !stepped || step == row.GetStep()
	})
}

// missing says what may not have been found; empty = nothing.
func (a *acctAsk) missing(rows []*apiv1.AcctRow) string {
	if len(a.req.GetJobs()) == 0 {
		return "older jobs are missing above"
	}
	var absent []string
	arrays := false
	for _, ref := range a.req.GetJobs() {
		id, _, _ := strings.Cut(ref, ".")
		found := slices.ContainsFunc(rows, func(r *apiv1.AcctRow) bool {
			return id == tool.Itoa(r.GetJobId()) || id == tool.Itoa(r.GetArrayJobId()) ||
				id == strings.TrimSuffix(acctID(r), stepSuffix(r))
		})
		if !found {
			absent = append(absent, ref)
		}
		arrays = arrays || slices.ContainsFunc(rows, func(r *apiv1.AcctRow) bool {
			return id == tool.Itoa(r.GetArrayJobId())
		})
	}
	if len(absent) > 0 {
		return "missing above: " + strings.Join(absent, ",")
	}
	if arrays {
		return "older tasks of the array may be missing above"
	}
	return ""
}

// ledgerRow is a job as accounting has it.
func ledgerRow(job *apiv1.JobInfo, now int64) *apiv1.AcctRow {
	jobSpec := job.GetSpec()
	state := spec.JobState(job.GetState())
	row := &apiv1.AcctRow{
		Uid:           job.GetUid(),
		JobId:         job.GetJobId(),
		ArrayJobId:    job.GetArrayJobId(),
		ArrayTask:     job.GetArrayTask(),
		ArrayTasks:    taskText(job.GetArrayTasks()),
		Attempt:       job.GetAttempt(),
		Restarts:      job.GetRestarts(),
		HetJobId:      job.GetHetJobId(),
		HetOffset:     job.GetHetOffset(),
		Name:          jobSpec.GetName(),
		User:          job.GetUser(),
		UserId:        job.GetUserId(),
		Group:         job.GetGroup(),
		GroupId:       job.GetGroupId(),
		Account:       jobSpec.GetAccount(),
		Partition:     job.GetPartition(),
		Qos:           job.GetQos(),
		Wckey:         jobSpec.GetWckey(),
		Comment:       jobSpec.GetComment(),
		AdminComment:  jobSpec.GetAdminComment(),
		SystemComment: jobSpec.GetSystemComment(),
		Extra:         jobSpec.GetExtra(),
		McsLabel:      jobSpec.GetMcsLabel(),
		State:         state.String(),
		Cancelled:     state == spec.Cancelled,
		CancelledBy:   job.GetEndedBy(),
		ExitCode:      job.GetExitCode(),
		ExitSignal:    job.GetExitSignal(),
		DerivedCode:   job.GetDerivedCode(),
		DerivedSignal: job.GetDerivedSignal(),
		Reason:        cmp.Or(job.GetReason().GetCode(), string(spec.ReasonNone)),
		Submit:        job.GetSubmit(),
		Eligible:      job.GetEligible(),
		Start:         job.GetStart(),
		End:           endOf(job),
		TimeLimit:     job.GetTimeLimit(),
		ReqTres:       job.GetReqTres(),
		AllocTres:     job.GetAllocTres(),
		ReqNodes:      uint32(job.GetReqTres().GetNode()),
		ReqCpus:       uint32(job.GetReqTres().GetCpu()),
		ReqMem:        job.GetReqTres().GetMem(),
		NodeList:      job.GetNodes(),
		Tasks:         job.GetNumTasks(),
		TasksCount:    1,
		WorkDir:       jobSpec.GetWorkDir(),
		SubmitLine:    jobSpec.GetSubmitLine(),
		Priority:      job.GetPriority(),
		Constraint:    jobSpec.GetConstraint(),
		Reservation:   jobSpec.GetReservation(),
		Stdout:        job.GetStdout(),
		Stderr:        job.GetStderr(),
		Stdin:         job.GetStdin(),
		Licenses:      render.LicencesText(jobSpec),
		Segment:       jobSpec.GetSegment(),
	}
	suspended := job.GetPaused()
	if since := job.GetSuspendedAt(); since != 0 {
		suspended += max(now-since, 0)
	}
	row.Suspended = suspended
	until := cmp.Or(row.GetEnd(), now)
	began := until
	if row.GetStart() != 0 {
		row.Elapsed = max(until-row.GetStart()-suspended, 0)
		began = row.GetStart()
	}
	if row.GetEligible() != 0 {
		row.Planned = max(began-row.GetEligible(), 0)
	}
	return row
}

// taskText writes the tasks of a record that stands for several: 3,5-9,20-30:2.
func taskText(ranges []*apiv1.TaskRange) string {
	parts := make([]string, len(ranges))
	for i, tasks := range ranges {
		parts[i] = tool.Itoa(tasks.GetFirst())
		if tasks.GetLast() > tasks.GetFirst() {
			parts[i] += "-" + tool.Itoa(tasks.GetLast())
		}
		if tasks.GetStep() > 1 {
			parts[i] += ":" + tool.Itoa(tasks.GetStep())
		}
	}
	return strings.Join(parts, ",")
}

// ledgerBatch is the batch script of a job that has begun.
func ledgerBatch(job *apiv1.AcctRow) *apiv1.AcctRow {
	row := stepRow(job)
	row.Step = spec.StepBatch.String()
	row.Name = row.Step
	row.State = job.GetState()
	row.ExitCode, row.ExitSignal = job.GetExitCode(), job.GetExitSignal()
	row.Start = job.GetStart()
	row.End = job.GetEnd()
	row.Elapsed = job.GetElapsed()
	row.Suspended = job.GetSuspended()
	row.Tasks = 1
	row.AllocTres = withoutBilling(job.GetAllocTres())
	return row
}

// withoutBilling is what a step has of its job's amounts: jobs are billed, steps are not.
func withoutBilling(tres *apiv1.Tres) *apiv1.Tres {
	if tres == nil {
		return nil
	}
	return &apiv1.Tres{Cpu: tres.GetCpu(), Mem: tres.GetMem(), Node: tres.GetNode(), Other: tres.GetOther()}
}

// ledgerStep is a step of a job.
func ledgerStep(job *apiv1.AcctRow, step *apiv1.StepInfo, now int64) *apiv1.AcctRow {
	row := stepRow(job)
	row.Step = spec.StepID(step.GetStepId()).String()
	row.Name = step.GetName()
	row.State = spec.JobState(step.GetState()).String()
	row.ExitCode, row.ExitSignal = step.GetExitCode(), step.GetExitSignal()
	row.Start, row.End = step.GetStart(), step.GetEnd()
	row.Elapsed = max(cmp.Or(step.GetEnd(), now)-step.GetStart(), 0)
	row.Tasks = step.GetTasks()
	row.AllocTres = step.GetTres()
	row.NodeList = hostlist.Fold(step.GetNodes())
	return row
}

// stepRow has what a step has of its job.
func stepRow(job *apiv1.AcctRow) *apiv1.AcctRow {
	return &apiv1.AcctRow{
		Uid:        job.GetUid(),
		JobId:      job.GetJobId(),
		ArrayJobId: job.GetArrayJobId(),
		ArrayTask:  job.GetArrayTask(),
		ArrayTasks: job.GetArrayTasks(),
		HetJobId:   job.GetHetJobId(),
		HetOffset:  job.GetHetOffset(),
		Attempt:    job.GetAttempt(),
		Restarts:   job.GetRestarts(),
		User:       job.GetUser(),
		UserId:     job.GetUserId(),
		Account:    job.GetAccount(),
		Submit:     job.GetStart(),
		TimeLimit:  unlimited,
		TasksCount: 1,
		NodeList:   job.GetNodeList(),
		AllocTres:  job.GetAllocTres(),
	}
}
