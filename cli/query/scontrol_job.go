package query

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// showJobs is scontrol show job.
func showJobs(c *tool.Call, name string) error {
	req := &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: true, Jobs: tool.SplitJobs(name)}, Detail: c.Opts.On("details") || render.WantsDocument(c)}
	var rep apiv1.ListJobsReply
	if err := fetch.Jobs(c, req, &rep); err != nil {
		return fetch.JobsError(err)
	}
	if len(rep.GetUnknown()) > 0 && len(rep.GetJobs()) == 0 {
		return tool.Unknown(spec.CodeInvalidJobID, "slurm_load_jobs error: "+spec.CodeInvalidJobID.String())
	}
	if render.WantsDocument(c) {
		return render.JobsAnswer(c, rep.GetJobs(), rep.GetNow())
	}
	if len(rep.GetJobs()) == 0 {
		return c.WriteOut([]byte("No jobs in the system\n"))
	}
	view := &render.JobView{Clock: render.NewClock(c.Env), Env: c.Env, Expand: true}
	view.Now = rep.GetNow()
	one := askedTask(req.GetFilter().GetJobs())
	for _, j := range rep.GetJobs() {
		r := render.JobRow{JobInfo: j, Task: -1}
		if r.IsArray() && one >= 0 {
			r.Task = one // one task of the record was asked for
		}
		rec := jobRecord(view, r, c.Opts.On("details"))
		if err := c.WriteOut([]byte(rec.Text(c.Opts.On("oneliner"), "\n"))); err != nil {
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
	a, err := format.ParseArray(task)
	if err != nil {
		return -1
	}
	return int64(a.Min())
}

// jobRecord lays a job out as scontrol show job does.
//
//muster:table the lines of a job in Slurm's order
func jobRecord(v *render.JobView, r render.JobRow, details bool) *render.Record {
	j, s := r.JobInfo, r.GetSpec()
	rec := &render.Record{}
	head := []string{"JobId=" + tool.Itoa(j.GetJobId())}
	switch {
	case r.IsArray():
		head = append(head, "ArrayJobId="+tool.Itoa(j.GetArrayJobId()), "ArrayTaskId="+render.ArrayTasks(v.Env, j))
		if j.GetArrayThrottle() > 0 {
			head = append(head, "ArrayTaskThrottle="+tool.Itoa(j.GetArrayThrottle()))
		}
	case j.GetArrayJobId() != 0:
		head = append(head, "ArrayJobId="+tool.Itoa(j.GetArrayJobId()), "ArrayTaskId="+tool.Itoa(r.TaskID()))
	}
	if j.GetHetJobId() != 0 {
		head = append(head, "HetJobId="+tool.Itoa(j.GetHetJobId()), "HetJobOffset="+tool.Itoa(j.GetHetOffset()))
	}
	rec.Line(append(head, "JobName="+s.GetName())...)
	if j.GetHetJobId() != 0 {
		rec.Line("HetJobIdSet=" + render.HetSet(j))
	}
	rec.Line(fmt.Sprintf("UserId=%s(%d) GroupId=%s(%d) MCS_label=%s", j.GetUser(), j.GetUserId(), j.GetGroup(), j.GetGroupId(), cmp.Or(s.GetMcsLabel(), "N/A")))
	money := []string{"Priority=" + tool.Itoa(priority(j)), "Nice=" + tool.Itoa(s.GetNice()), "Account=" + cmp.Or(s.GetAccount(), render.Null), "QOS=" + cmp.Or(render.QOSOf(j), render.Null)}
	if s.GetWckey() != "" {
		money = append(money, "WCKey="+s.GetWckey())
	}
	rec.Line(money...)
	long, _ := render.StateNames(j)
	rec.Line("JobState="+long, "Reason="+strings.ReplaceAll(render.Reason(j), " ", "_"), "Dependency="+cmp.Or(j.GetDependency(), render.Null))
	rec.Line("Requeue="+render.ZeroOne(s.GetRequeue() != apiv1.Tri_TRI_NO), "Restarts="+tool.Itoa(j.GetRestarts()), "BatchFlag="+render.ZeroOne(!s.GetShell()), "Reboot="+render.ZeroOne(s.GetReboot()),
		fmt.Sprintf("ExitCode=%d:%d", j.GetExitCode(), j.GetExitSignal()))
	if details {
		rec.Line(fmt.Sprintf("DerivedExitCode=%d:%d", j.GetDerivedCode(), j.GetDerivedSignal()))
	}
	timeMin := render.NotAvailable
	if s.GetTimeMin() != 0 {
		timeMin = render.Limit(s.GetTimeMin(), format.Duration)
	}
	rec.Line("RunTime="+format.Duration(render.Elapsed(j, v.Now)/tool.Second), "TimeLimit="+render.Limit(j.GetTimeLimit(), format.Duration), "TimeMin="+timeMin)
	eligible := v.Time(j.GetEligible())
	rec.Line("SubmitTime="+v.Time(j.GetSubmit()), "EligibleTime="+eligible)
	rec.Line("AccrueTime=" + eligible)
	rec.Line("StartTime="+v.Time(render.Start(j)), "EndTime="+v.Time(render.End(j)), "Deadline="+v.TimeOr(s.GetDeadline(), render.NotAvailable))
	scheduler := "Main"
	if j.GetBackfilled() {
		scheduler = "Backfill"
	}
	rec.Line("SuspendTime="+v.TimeOr(j.GetSuspendedAt(), "None")+" SecsPreSuspend="+tool.Itoa(j.GetPaused()/tool.Second), "LastSchedEval="+v.Time(j.GetLastSchedEval()), "Scheduler="+scheduler)
	rec.Line("Partition="+j.GetPartition(), "AllocNode:Sid="+cmp.Or(s.GetSubmitHost(), render.NotAvailable)+":0")
	rec.Line("ReqNodeList="+cmp.Or(s.GetNodes(), render.Null), "ExcNodeList="+cmp.Or(s.GetExclude(), render.Null))
	list := "NodeList=" + j.GetNodes()
	if r.Pending() && j.GetPlannedNodes() != "" {
		list += " SchedNodeList=" + j.GetPlannedNodes()
	}
	rec.Line(list)
	if j.GetBatchHost() != "" {
		rec.Line("BatchHost=" + j.GetBatchHost())
	}
	rec.Line("NumNodes="+tool.Itoa(j.GetNumNodes()), "NumCPUs="+tool.Itoa(j.GetNumCpus()), "NumTasks="+tool.Itoa(j.GetNumTasks()), "CPUs/Task="+tool.Itoa(max(s.GetCpusPerTask(), 1)),
		"ReqB:S:C:T=0:0:*:"+render.StarIfZero(s.GetThreadsPerCore()))
	rec.Line("ReqTRES=" + cmp.Or(render.TRESText(j.GetReqTres()), render.Null))
	rec.Line("AllocTRES=" + cmp.Or(render.TRESText(j.GetAllocTres()), render.Null))
	coreSpec := "*"
	if s.GetCoreSpec() > 0 {
		coreSpec = tool.Itoa(s.GetCoreSpec())
	}
	rec.Line("Socks/Node="+render.StarIfZero(s.GetSocketsPerNode()), fmt.Sprintf("NtasksPerN:B:S:C=%d:0:%s:%s", s.GetTasksPerNode(), render.StarIfZero(s.GetTasksPerSocket()), render.StarIfZero(s.GetTasksPerCore())), "CoreSpec="+coreSpec)
	if details {
		allocationLines(rec, j)
	}
	v.RequestLines(rec, r)
	return rec
}

func priority(j *apiv1.JobInfo) uint32 {
	if j.GetHold() != 0 && spec.JobState(j.GetState()) == spec.Pending {
		return 0 // how Slurm shows a held job
	}
	return j.GetPriority()
}

// allocationLines are the details of -d: what the job holds on each node.
// Nodes that give the same CPUs, memory and devices share a line.
func allocationLines(rec *render.Record, j *apiv1.JobInfo) {
	if len(j.GetAllocation()) == 0 {
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
	for _, n := range j.GetAllocation() {
		for _, g := range n.GetGpus() {
			name := "gpu"
			if g.GetType() != "" {
				name += ":" + g.GetType()
			}
			count(name, 1)
		}
		for _, g := range n.GetGres() {
			count(g.GetName(), g.GetN())
		}
	}
	if len(names) > 0 {
		parts := make([]string, len(names))
		for i, n := range names {
			parts[i] = n + ":" + render.CountText(total[n])
		}
		rec.Line("JOB_GRES=" + strings.Join(parts, ","))
	}
	for _, n := range j.GetAllocation() {
		rec.Line("  Nodes="+n.GetName(), "CPU_IDs="+spec.Bitset(n.GetCpus()).Ranges(), "Mem="+tool.Itoa(n.GetMem()), "GRES="+render.GresOfNode(n))
	}
}

// showSteps is scontrol show step.
func showSteps(c *tool.Call, name string) error {
	job, step, _ := strings.Cut(name, ".")
	req := &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: tool.SplitJobs(job)}, Detail: true}
	var rep apiv1.ListJobsReply
	if err := fetch.Jobs(c, req, &rep); err != nil {
		return fetch.JobsError(err)
	}
	view := &render.JobView{Clock: render.NewClock(c.Env), Env: c.Env}
	found := false
	for _, j := range rep.GetJobs() {
		for _, st := range j.GetSteps() {
			id := spec.StepID(st.GetStepId()).String()
			if st.GetEnd() != 0 || (step != "" && step != id) {
				continue
			}
			found = true
			r := render.JobRow{JobInfo: j, Task: -1}
			rec := &render.Record{}
			rec.Line("StepId="+view.ID(r)+"."+id, "UserId="+tool.Itoa(j.GetUserId()), "StartTime="+view.Time(st.GetStart()), "TimeLimit="+render.Limit(cmp.Or(st.GetTimeLimit(), j.GetTimeLimit()), format.Duration))
			rec.Line("State="+spec.JobState(st.GetState()).String(), "Partition="+j.GetPartition(), "NodeList="+strings.Join(st.GetNodes(), ","))
			rec.Line("Nodes="+tool.Itoa(len(st.GetNodes())), "CPUs="+tool.Itoa(st.GetTres().GetCpu()), "Tasks="+tool.Itoa(st.GetTasks()), "Name="+st.GetName(), "Network=(null)")
			rec.Line("TRES=" + render.TRESText(st.GetTres()))
			rec.Line("ResvPorts=(null)")
			if err := c.WriteOut([]byte(rec.Text(c.Opts.On("oneliner"), "\n"))); err != nil {
				return err
			}
		}
	}
	switch {
	case found:
		return nil
	case name == "":
		return c.WriteOut([]byte("No job steps in the system\n"))
	case step == "":
		return tool.Fail(1, "Job step "+job+" not found")
	}
	return tool.Fail(1, "Job step "+job+"."+step+" not found")
}
