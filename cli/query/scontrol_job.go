package query

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// showJobs is scontrol show job.
func showJobs(call *tool.Call, name string) error {
	for _, id := range tool.SplitJobs(name) {
		if !tool.ValidTarget(id) {
			return tool.Fail(1, "scontrol_print_job error: "+spec.CodeInvalidJobID.String())
		}
	}
	request := &apiv1.ListJobsRequest{
		Filter: &apiv1.JobFilter{AllStates: true, Jobs: tool.SplitJobs(name)},
		Detail: call.Opts.On("details") || render.WantsDocument(call),
	}
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(call, request, &reply); err != nil {
		return fetch.JobsError(err)
	}
	if len(reply.GetUnknown()) > 0 && len(reply.GetJobs()) == 0 {
		return tool.Unknown(spec.CodeInvalidJobID, "slurm_load_jobs error: "+
			spec.CodeInvalidJobID.String())
	}
	if render.WantsDocument(call) {
		return render.JobsAnswer(call, reply.GetJobs(), reply.GetNow())
	}
	if len(reply.GetJobs()) == 0 {
		return call.WriteOut([]byte("No jobs in the system\n"))
	}
	view := &render.JobView{Clock: render.NewClock(call.Env), Env: call.Env, Expand: true}
	view.Now = reply.GetNow()
	one := askedTask(request.GetFilter().GetJobs())
	for _, job := range reply.GetJobs() {
		row := render.JobRow{JobInfo: job, Task: -1}
		if row.IsArray() && one >= 0 {
			row.Task = one // one task of the record was asked for
		}
		record := jobRecord(view, row, call.Opts.On("details"))
		if err := call.WriteOut([]byte(record.Text(call.Opts.On("oneliner"), "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// askedTask is the single task that a list of jobs names (36_4), or -1.
func askedTask(jobs []string) int64 {
	if len(jobs) != 1 {
		return -1
	}
	_, task, ok := strings.Cut(jobs[0], "_")
	if n := tool.LeadingDigits(task); !ok || n == 0 || n != len(task) {
		return -1
	}
	array, err := format.ParseArray(task)
	if err != nil {
		return -1
	}
	return int64(array.Min())
}

// jobRecord lays a job out as scontrol show job does.
//
//muster:table the lines of a job in Slurm's order
func jobRecord(view *render.JobView, row render.JobRow, details bool) *render.Record {
	job, jobSpec := row.JobInfo, row.GetSpec()
	record := &render.Record{}
	head := []string{"JobId=" + tool.Itoa(job.GetJobId())}
	switch {
	case row.IsArray():
		head = append(head, "ArrayJobId="+tool.Itoa(job.GetArrayJobId()), "ArrayTaskId="+render.ArrayTasks(view.Env, job))
		if job.GetArrayThrottle() > 0 {
			head = append(head, "ArrayTaskThrottle="+tool.Itoa(job.GetArrayThrottle()))
		}
	case job.GetArrayJobId() != 0:
		head = append(head, "ArrayJobId="+tool.Itoa(job.GetArrayJobId()), "ArrayTaskId="+tool.Itoa(row.TaskID()))
	}
	if job.GetHetJobId() != 0 {
		head = append(head, "HetJobId="+tool.Itoa(job.GetHetJobId()), "HetJobOffset="+tool.Itoa(job.GetHetOffset()))
	}
	record.Line(append(head, "JobName="+jobSpec.GetName())...)
	if job.GetHetJobId() != 0 {
		record.Line("HetJobIdSet=" + render.HetSet(job))
	}
	record.Line(
		fmt.Sprintf(
			"UserId=%s(%d) GroupId=%s(%d) MCS_label=%s",
			job.GetUser(),
			job.GetUserId(),
			job.GetGroup(),
			job.GetGroupId(),
			cmp.Or(jobSpec.GetMcsLabel(), "N/A"),
		),
	)
	money := []string{"Priority=" +
		tool.Itoa(priorityOf(job)), "Nice=" + tool.Itoa(jobSpec.GetNice()),
		"Account=" + cmp.Or(jobSpec.GetAccount(), render.Null),
		"QOS=" + cmp.Or(render.QOSOf(job), render.Null)}
	if jobSpec.GetWckey() != "" {
		money = append(money, "WCKey="+jobSpec.GetWckey())
	}
	record.Line(money...)
	long, _ := render.StateNames(job)
	record.Line(
		"JobState="+long,
		"Reason="+strings.ReplaceAll(render.Reason(job), " ", "_"),
		"Dependency="+cmp.Or(job.GetDependency(), render.Null),
	)
	record.Line("Requeue="+render.ZeroOne(jobSpec.GetRequeue() != apiv1.Tri_TRI_NO),
		"Restarts="+tool.Itoa(job.GetRestarts()), "BatchFlag="+render.ZeroOne(!jobSpec.GetShell()),
		"Reboot="+render.ZeroOne(jobSpec.GetReboot()),
		fmt.Sprintf("ExitCode=%d:%d", job.GetExitCode(), job.GetExitSignal()))
	if details {
		record.Line(
			fmt.Sprintf("DerivedExitCode=%d:%d", job.GetDerivedCode(), job.GetDerivedSignal()),
		)
	}
	timeMin := render.NotAvailable
	if jobSpec.GetTimeMin() != 0 {
		timeMin = render.Limit(jobSpec.GetTimeMin(), format.Duration)
	}
	record.Line(
		"RunTime="+format.Duration(render.Elapsed(job, view.Now)/tool.Second),
		"TimeLimit="+render.Limit(job.GetTimeLimit(), format.Duration),
		"TimeMin="+timeMin,
	)
	eligible := view.Time(job.GetEligible())
	record.Line("SubmitTime="+view.Time(job.GetSubmit()), "EligibleTime="+eligible)
	record.Line("AccrueTime=" + eligible)
	record.Line(
		"StartTime="+view.Time(render.Start(job)),
		"EndTime="+view.Time(render.End(job)),
		"Deadline="+view.TimeOr(jobSpec.GetDeadline(), render.NotAvailable),
	)
	if jobSpec.GetCron() != "" {
		record.Line("CronJob=Yes CrontabSpec=" + strconv.Quote(jobSpec.GetCron()))
	}
	scheduler := "Main"
	if job.GetBackfilled() {
		scheduler = "Backfill"
	}
	record.Line(
		"SuspendTime="+view.TimeOr(job.GetSuspendedAt(), "None")+" SecsPreSuspend="+
			tool.Itoa(job.GetPaused()/tool.Second),
		"LastSchedEval="+view.Time(job.GetLastSchedEval()),
		"Scheduler="+scheduler,
	)
	record.Line(
		"Partition="+job.GetPartition(),
		"AllocNode:Sid="+cmp.Or(jobSpec.GetSubmitHost(), render.NotAvailable)+":0",
	)
	record.Line(
		"ReqNodeList="+cmp.Or(jobSpec.GetNodes(), render.Null),
		"ExcNodeList="+cmp.Or(jobSpec.GetExclude(), render.Null),
	)
	list := "NodeList=" + job.GetNodes()
	if row.Pending() && job.GetPlannedNodes() != "" {
		list += " SchedNodeList=" + job.GetPlannedNodes()
	}
	record.Line(list)
	if job.GetBatchHost() != "" {
		record.Line("BatchHost=" + job.GetBatchHost())
	}
	record.Line("NumNodes="+nodeRange(row), "NumCPUs="+tool.Itoa(job.GetNumCpus()),
		"NumTasks="+tool.Itoa(job.GetNumTasks()),
		"CPUs/Task="+tool.Itoa(max(jobSpec.GetCpusPerTask(), 1)),
		"ReqB:S:C:T=0:0:"+render.StarIfZero(jobSpec.GetCoresPerSocket())+":"+
			render.StarIfZero(jobSpec.GetThreadsPerCore()))
	record.Line("ReqTRES=" + cmp.Or(render.TRESText(job.GetReqTres()), render.Null))
	record.Line("AllocTRES=" + cmp.Or(render.TRESText(job.GetAllocTres()), render.Null))
	coreSpec := "CoreSpec=*"
	switch {
	case jobSpec.GetCoreSpec() > 0:
		coreSpec = "CoreSpec=" + tool.Itoa(jobSpec.GetCoreSpec())
	case jobSpec.GetThreadSpec() > 0:
		coreSpec = "ThreadSpec=" + tool.Itoa(jobSpec.GetThreadSpec())
	}
	record.Line(
		"Socks/Node="+render.StarIfZero(jobSpec.GetSocketsPerNode()),
		fmt.Sprintf(
			"NtasksPerN:B:S:C=%d:0:%s:%s",
			jobSpec.GetTasksPerNode(),
			render.StarIfZero(jobSpec.GetTasksPerSocket()),
			render.StarIfZero(jobSpec.GetTasksPerCore()),
		),
		coreSpec,
	)
	if details {
		allocationLines(record, job)
	}
	view.RequestLines(record, row)
	return record
}

func priorityOf(job *apiv1.JobInfo) uint32 {
	if job.GetHold() != 0 && spec.JobState(job.GetState()) == spec.Pending {
		return 0 // how Slurm shows a held job
	}
	return job.GetPriority()
}

// allocationLines are the details of -d: what the job holds on each node.
// Nodes that give the same CPUs, memory and devices share a line.
func allocationLines(record *render.Record, job *apiv1.JobInfo) {
	if len(job.GetAllocation()) == 0 {
		return
	}
	total := map[string]int64{}
	var names []string
	count := func(name string, n int64) {
		if _, ok := total[name]; !ok {
			names = append(names, name)
		}
		total[name] += n
	}
	for _, node := range job.GetAllocation() {
		for _, gpu := range node.GetGpus() {
			name := "gpu"
			if gpu.GetType() != "" {
				name += ":" + gpu.GetType()
			}
			count(name, 1)
		}
		for _, g := range node.GetGres() {
			count(g.GetName(), g.GetN())
		}
	}
	if len(names) > 0 {
		parts := make([]string, len(names))
		for i, n := range names {
			parts[i] = n + ":" + render.CountText(total[n])
		}
		record.Line("JOB_GRES=" + strings.Join(parts, ","))
	}
	for _, group := range alikeNodes(job.GetAllocation()) {
		record.Line("  Nodes="+hostlist.Fold(group.names), group.text)
	}
}

// nodeGroup are nodes that follow each other and on which a job has the same.
type nodeGroup struct {
	names []string
	text  string // what it has on each
}

// alikeNodes groups the nodes of a job as scontrol does, so that a job on a thousand nodes is not
// a thousand lines.
func alikeNodes(nodes []*apiv1.NodeAlloc) []nodeGroup {
	var groups []nodeGroup
	for _, node := range nodes {
		text := "CPU_IDs=" + spec.Bitset(node.GetCpus()).Ranges() +
			" Mem=" + tool.Itoa(node.GetMem()) + " GRES=" + render.GresOfNode(node)
		if last := len(groups) - 1; last >= 0 && groups[last].text == text {
			groups[last].names = append(groups[last].names, node.GetName())
			continue
		}
		groups = append(groups, nodeGroup{names: []string{node.GetName()}, text: text})
	}
	return groups
}

// showSteps is scontrol show step.
func showSteps(call *tool.Call, name string) error {
	job, step, _ := strings.Cut(name, ".")
	request := &apiv1.ListJobsRequest{
		Filter: &apiv1.JobFilter{Jobs: tool.SplitJobs(job)}, Detail: true,
	}
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(call, request, &reply); err != nil {
		return fetch.JobsError(err)
	}
	if name != "" && len(reply.GetJobs()) == 0 {
		return tool.Unknown(spec.CodeInvalidJobID,
			"slurm_get_job_steps error: "+spec.CodeInvalidJobID.String())
	}
	view := &render.JobView{Clock: render.NewClock(call.Env), Env: call.Env}
	found := false
	list := tree.List{}
	for _, j := range reply.GetJobs() {
		for _, st := range withBatchStep(j) {
			id := spec.StepID(st.GetStepId()).String()
			if st.GetEnd() != 0 || (step != "" && step != id) {
				continue
			}
			found = true
			if render.WantsDocument(call) {
				list = append(list, stepTree(view, j, st, reply.GetNow()))
				continue
			}
			row := render.JobRow{JobInfo: j, Task: -1}
			record := &render.Record{}
			record.Line(
				"StepId="+view.ID(row)+"."+id,
				"UserId="+tool.Itoa(j.GetUserId()),
				"StartTime="+
					view.Time(st.GetStart()),
				"TimeLimit="+
					render.Limit(cmp.Or(st.GetTimeLimit(), j.GetTimeLimit()), format.Duration),
			)
			record.Line("State="+spec.JobState(st.GetState()).String(), "Partition="+
				j.GetPartition(), "NodeList="+strings.Join(st.GetNodes(), ","))
			record.Line("Nodes="+tool.Itoa(len(st.GetNodes())), "CPUs="+
				tool.Itoa(st.GetTres().GetCpu()), "Tasks="+tool.Itoa(st.GetTasks()), "Name="+
				st.GetName(), "Network=(null)")
			record.Line("TRES=" + render.TRESText(st.GetTres()))
			record.Line("ResvPorts=(null)")
			if err := call.WriteOut(
				[]byte(record.Text(call.Opts.On("oneliner"), "\n")),
			); err != nil {
				return err
			}
		}
	}
	switch {
	case render.WantsDocument(call) && (found || name == ""):
		return stepsDocument(call, list, reply.GetNow())
	case found:
		return nil
	case name == "":
		return call.WriteOut([]byte("No job steps in the system\n"))
	case step == "":
		return tool.Fail(1, "Job step "+job+" not found")
	}
	return tool.Fail(1, "Job step "+job+"."+step+" not found")
}

// withBatchStep are the steps of a job and, of a batch job that runs, its script as one: it has the
// whole allocation of the first node.
func withBatchStep(job *apiv1.JobInfo) []*apiv1.StepInfo {
	state := spec.JobState(job.GetState())
	if job.GetSpec().GetShell() || job.GetBatchHost() == "" || (state != spec.Running && state != spec.Suspended) {
		return job.GetSteps()
	}
	batch := &apiv1.StepInfo{
		StepId: int32(spec.StepBatch), Name: "batch", Nodes: []string{job.GetBatchHost()}, Tasks: 1,
		Start: render.Start(job), State: job.GetState(),
	}
	for _, part := range job.GetAllocation() {
		if part.GetName() == job.GetBatchHost() {
			batch.Tres = &apiv1.Tres{Cpu: int64(spec.Bitset(part.GetCpus()).Count()), Mem: part.GetMem(), Node: 1}
		}
	}
	return append([]*apiv1.StepInfo{batch}, job.GetSteps()...)
}

// stepsDocument is scontrol show step --json.
func stepsDocument(call *tool.Call, list tree.List, now int64) error {
	steps, err := render.Steps(call, list)
	if err != nil {
		return err
	}
	return render.Print(call, steps, tree.Member{Key: "last_update", Value: render.Instant(call.LastUpdate(now))})
}

// stepTree is a running step, in the words of the steps of accounting.
func stepTree(view *render.JobView, job *apiv1.JobInfo, step *apiv1.StepInfo, now int64) tree.Object {
	id := view.ID(render.JobRow{JobInfo: job, Task: -1}) + "." + spec.StepID(step.GetStepId()).String()
	return tree.Object{
		{
			Key: "time",
			Value: tree.Object{
				{Key: "elapsed", Value: max(now-step.GetStart(), 0) / tool.Second},
				{Key: "start", Value: render.Instant(step.GetStart())},
				{Key: "limit", Value: render.Minutes(cmp.Or(step.GetTimeLimit(), job.GetTimeLimit()))},
			},
		},
		{
			Key: "nodes",
			Value: tree.Object{
				{Key: "count", Value: len(step.GetNodes())},
				{Key: "range", Value: hostlist.Fold(step.GetNodes())},
				{Key: "list", Value: tree.Strings(step.GetNodes())},
			},
		},
		{Key: "tasks", Value: tree.Object{{Key: "count", Value: step.GetTasks()}}},
		{Key: "state", Value: tree.List{spec.JobState(step.GetState()).String()}},
		{Key: "step", Value: tree.Object{{Key: "id", Value: id}, {Key: "name", Value: step.GetName()}}},
		{Key: "task", Value: tree.Object{{Key: "distribution", Value: cmp.Or(step.GetDistribution(), "Unknown")}}},
		{Key: "tres", Value: tree.Object{{Key: "allocated", Value: render.TRESTree(step.GetTres())}}},
	}
}

// nodeRange is the number of nodes; of a job that waits from how many to how many it takes, if
// it says so.
func nodeRange(row render.JobRow) string {
	least := row.GetNumNodes()
	most := cmp.Or(row.GetSpec().GetMaxNodes(), row.GetSpec().GetMinNodes())
	if !row.Pending() || most == 0 {
		return tool.Itoa(least)
	}
	return tool.Itoa(min(least, most)) + "-" + tool.Itoa(most)
}
