package cli

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// showJobs is scontrol show job.
func (c *call) showJobs(name string) error {
	req := &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: true, Jobs: splitJobs(name)}, Detail: c.opts.On("details") || c.wantsTree()}
	var rep apiv1.ListJobsReply
	if err := c.listJobs(req, &rep); err != nil {
		return loadJobsError(err)
	}
	if len(rep.GetUnknown()) > 0 && len(rep.GetJobs()) == 0 {
		return fail(1, "slurm_load_jobs error: "+spec.CodeInvalidJobID.String())
	}
	if c.wantsTree() {
		list := make(tree.List, len(rep.GetJobs()))
		for i, j := range rep.GetJobs() {
			list[i] = c.jobTree(j)
		}
		return c.structured(c.opts.On("json"), c.document(tree.Member{Key: "jobs", Value: list},
			tree.Member{Key: "last_backfill", Value: moment(0)}, tree.Member{Key: "last_update", Value: moment(rep.GetNow())}))
	}
	if len(rep.GetJobs()) == 0 {
		return c.write([]byte("No jobs in the system\n"))
	}
	view := &jobView{clock: c.clock(), env: c.Env, expand: true}
	view.now = rep.GetNow()
	one := asked(req.GetFilter().GetJobs())
	for _, j := range rep.GetJobs() {
		r := jobRow{JobInfo: j, task: -1}
		if r.isArray() && one >= 0 {
			r.task = one // one task of the record was asked for
		}
		rec := jobRecord(view, r, c.opts.On("details"))
		if err := c.write([]byte(rec.text(c.opts.On("oneliner"), "\n"))); err != nil {
			return err
		}
	}
	return nil
}

// asked is the single task that a list of jobs names (36_4), or -1.
func asked(jobs []string) int64 {
	if len(jobs) != 1 {
		return -1
	}
	_, task, ok := strings.Cut(jobs[0], "_")
	if n := digitsOf(task); !ok || n == 0 || n != len(task) {
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
func jobRecord(v *jobView, r jobRow, details bool) *record {
	j, s := r.JobInfo, r.GetSpec()
	rec := &record{}
	head := []string{"JobId=" + itoa(j.GetJobId())}
	switch {
	case r.isArray():
		head = append(head, "ArrayJobId="+itoa(j.GetArrayJobId()), "ArrayTaskId="+v.env.arrayTasks(j))
		if j.GetArrayThrottle() > 0 {
			head = append(head, "ArrayTaskThrottle="+itoa(j.GetArrayThrottle()))
		}
	case j.GetArrayJobId() != 0:
		head = append(head, "ArrayJobId="+itoa(j.GetArrayJobId()), "ArrayTaskId="+itoa(r.taskID()))
	}
	if j.GetHetJobId() != 0 {
		head = append(head, "HetJobId="+itoa(j.GetHetJobId()), "HetJobOffset="+itoa(j.GetHetOffset()))
	}
	rec.line(append(head, "JobName="+s.GetName())...)
	if j.GetHetJobId() != 0 {
		rec.line("HetJobIdSet=" + hetSet(j))
	}
	rec.line(fmt.Sprintf("UserId=%s(%d) GroupId=%s(%d) MCS_label=%s", j.GetUser(), j.GetUserId(), j.GetGroup(), j.GetGroupId(), or(s.GetMcsLabel(), "N/A")))
	money := []string{"Priority=" + itoa(priority(j)), "Nice=" + itoa(s.GetNice()), "Account=" + or(s.GetAccount(), null), "QOS=" + or(qosOf(j), null)}
	if s.GetWckey() != "" {
		money = append(money, "WCKey="+s.GetWckey())
	}
	rec.line(money...)
	long, _ := stateNames(j)
	rec.line("JobState="+long, "Reason="+strings.ReplaceAll(reason(j), " ", "_"), "Dependency="+or(j.GetDependency(), null))
	rec.line("Requeue="+bit(s.GetRequeue() != apiv1.Tri_TRI_NO), "Restarts="+itoa(j.GetRestarts()), "BatchFlag="+bit(!s.GetShell()), "Reboot="+bit(s.GetReboot()),
		fmt.Sprintf("ExitCode=%d:%d", j.GetExitCode(), j.GetExitSignal()))
	if details {
		rec.line(fmt.Sprintf("DerivedExitCode=%d:%d", j.GetDerivedCode(), j.GetDerivedSignal()))
	}
	timeMin := na
	if s.GetTimeMin() != 0 {
		timeMin = limit(s.GetTimeMin(), format.Duration)
	}
	rec.line("RunTime="+format.Duration(elapsed(j, v.now)/second), "TimeLimit="+limit(j.GetTimeLimit(), format.Duration), "TimeMin="+timeMin)
	eligible := v.time(j.GetEligible())
	rec.line("SubmitTime="+v.time(j.GetSubmit()), "EligibleTime="+eligible)
	rec.line("AccrueTime=" + eligible)
	rec.line("StartTime="+v.time(start(j)), "EndTime="+v.time(end(j)), "Deadline="+v.timeOr(s.GetDeadline(), na))
	scheduler := "Main"
	if j.GetBackfilled() {
		scheduler = "Backfill"
	}
	rec.line("SuspendTime="+v.timeOr(j.GetSuspendedAt(), "None")+" SecsPreSuspend="+itoa(j.GetPaused()/second), "LastSchedEval="+v.time(j.GetLastSchedEval()), "Scheduler="+scheduler)
	rec.line("Partition="+j.GetPartition(), "AllocNode:Sid="+or(s.GetSubmitHost(), na)+":0")
	rec.line("ReqNodeList="+or(s.GetNodes(), null), "ExcNodeList="+or(s.GetExclude(), null))
	list := "NodeList=" + j.GetNodes()
	if r.pending() && j.GetPlannedNodes() != "" {
		list += " SchedNodeList=" + j.GetPlannedNodes()
	}
	rec.line(list)
	if j.GetBatchHost() != "" {
		rec.line("BatchHost=" + j.GetBatchHost())
	}
	rec.line("NumNodes="+itoa(j.GetNumNodes()), "NumCPUs="+itoa(j.GetNumCpus()), "NumTasks="+itoa(j.GetNumTasks()), "CPUs/Task="+itoa(max(s.GetCpusPerTask(), 1)),
		"ReqB:S:C:T=0:0:*:"+starIfZero(s.GetThreadsPerCore()))
	tres := tresText(j.GetAllocTres())
	if tres == "" {
		tres = tresText(j.GetReqTres())
	}
	rec.line("TRES=" + tres)
	coreSpec := "*"
	if s.GetCoreSpec() > 0 {
		coreSpec = itoa(s.GetCoreSpec())
	}
	rec.line("Socks/Node="+starIfZero(s.GetSocketsPerNode()), fmt.Sprintf("NtasksPerN:B:S:C=%d:0:%s:%s", s.GetTasksPerNode(), starIfZero(s.GetTasksPerSocket()), starIfZero(s.GetTasksPerCore())), "CoreSpec="+coreSpec)
	if details {
		allocationLines(rec, j)
	}
	v.requestLines(rec, r)
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
func allocationLines(rec *record, j *apiv1.JobInfo) {
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
			parts[i] = n + ":" + countText(total[n])
		}
		rec.line("JOB_GRES=" + strings.Join(parts, ","))
	}
	for _, n := range j.GetAllocation() {
		rec.line("  Nodes="+n.GetName(), "CPU_IDs="+spec.Bitset(n.GetCpus()).Ranges(), "Mem="+itoa(n.GetMem()), "GRES="+gresOfNode(n))
	}
}

// requestLines are the second half of a job: what it asked for and its files.
//
//muster:table the lines of a job in Slurm's order
func (v *jobView) requestLines(rec *record, r jobRow) {
	j, s := r.JobInfo, r.GetSpec()
	memory := "MinMemoryNode=" + v.minMemory(j)
	switch {
	case s.GetMemPerCpu() > 0:
		memory = "MinMemoryCPU=" + v.minMemory(j)
	case s.GetMemPerGpu() > 0:
		memory = "MinMemoryNode=0"
	}
	minCPUs := max(s.GetMinCpusPerNode(), max(s.GetCpusPerTask(), 1)*max(s.GetTasksPerNode(), 1))
	rec.line("MinCPUsNode="+itoa(minCPUs), memory, "MinTmpDiskNode="+v.memory(s.GetTmpDisk()))
	features := "Features=" + or(s.GetConstraint(), null)
	rec.line(features, "DelayBoot=00:00:00")
	if s.GetPrefer() != "" {
		rec.line("Prefer=" + s.GetPrefer())
	}
	if s.GetReservation() != "" {
		rec.line("Reservation=" + s.GetReservation())
	}
	rec.line("OverSubscribe="+sharing(j), "Contiguous="+bit(s.GetContiguous()), "Licenses="+or(licencesText(s), null), "Network=(null)")
	rec.line("Command=" + or(commandLine(j), null))
	if s.GetSubmitLine() != "" {
		rec.line("SubmitLine=" + s.GetSubmitLine())
	}
	rec.line("WorkDir=" + s.GetWorkDir())
	for _, t := range [...]struct{ key, text string }{{"AdminComment=", s.GetAdminComment()}, {"SystemComment=", s.GetSystemComment()},
		{"Comment=", s.GetComment()}, {"Extra=", s.GetExtra()}} {
		if t.text != "" {
			rec.line(t.key + t.text)
		}
	}
	rec.line("StdErr=" + v.stderrOf(j))
	rec.line("StdIn=" + v.stdin(j))
	rec.line("StdOut=" + v.stdout(j))
	if s.GetSwitches() > 0 {
		rec.line(fmt.Sprintf("Switches=%d@%s", s.GetSwitches(), format.Duration(s.GetSwitchWait()/second)))
	}
	rec.line("Power=")
	if s.GetCpusPerGpu() > 0 {
		rec.line("CpusPerTres=gres:gpu:" + itoa(s.GetCpusPerGpu()))
	}
	if s.GetMemPerGpu() > 0 {
		rec.line("MemPerTres=gres:gpu:" + itoa(s.GetMemPerGpu()))
	}
	if text := tresBind(s); text != "" {
		rec.line("TresBind=" + text)
	}
	if text := tresFreq(s); text != "" {
		rec.line("TresFreq=" + text)
	}
	for _, t := range [...]struct {
		key  string
		list []*apiv1.Count
	}{{"TresPerJob", s.GetPerJob()}, {"TresPerNode", s.GetPerNode()}, {"TresPerSocket", s.GetPerSocket()}, {"TresPerTask", s.GetPerTask()}} {
		if len(t.list) > 0 {
			rec.line(t.key + "=" + countsText(t.list, "gres:", ":"))
		}
	}
	mail := ""
	if len(s.GetMailTypes()) > 0 {
		mail = "MailUser=" + or(s.GetMailUser(), j.GetUser()) + " MailType=" + strings.Join(s.GetMailTypes(), ",")
	}
	rec.line(mail)
}

// tresBind and tresFreq are --gpu-bind and --gpu-freq as Slurm shows them.
func tresBind(s *apiv1.JobSpec) string { return tresOf("gres/gpu:", s.GetGpuBind()) }

func tresFreq(s *apiv1.JobSpec) string { return tresOf("gpu:", s.GetGpuFreq()) }

func tresOf(name, text string) string {
	if text == "" {
		return ""
	}
	return name + text
}

// stderrOf is where the standard error goes, which is to the output if nothing
// else was asked for.
func (v *jobView) stderrOf(j *apiv1.JobInfo) string {
	if j.GetStderr() != "" && v.expand {
		return j.GetStderr()
	}
	return v.stderr(j)
}

// showSteps is scontrol show step.
func (c *call) showSteps(name string) error {
	job, step, _ := strings.Cut(name, ".")
	req := &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: splitJobs(job)}, Detail: true}
	var rep apiv1.ListJobsReply
	if err := c.listJobs(req, &rep); err != nil {
		return loadJobsError(err)
	}
	view := &jobView{clock: c.clock(), env: c.Env}
	found := false
	for _, j := range rep.GetJobs() {
		for _, st := range j.GetSteps() {
			id := spec.StepID(st.GetStepId()).String()
			if st.GetEnd() != 0 || (step != "" && step != id) {
				continue
			}
			found = true
			r := jobRow{JobInfo: j, task: -1}
			rec := &record{}
			rec.line("StepId="+view.id(r)+"."+id, "UserId="+itoa(j.GetUserId()), "StartTime="+view.time(st.GetStart()), "TimeLimit="+limit(cmp.Or(st.GetTimeLimit(), j.GetTimeLimit()), format.Duration))
			rec.line("State="+spec.JobState(st.GetState()).String(), "Partition="+j.GetPartition(), "NodeList="+strings.Join(st.GetNodes(), ","))
			rec.line("Nodes="+itoa(len(st.GetNodes())), "CPUs="+itoa(st.GetTres().GetCpu()), "Tasks="+itoa(st.GetTasks()), "Name="+st.GetName(), "Network=(null)")
			rec.line("TRES=" + tresText(st.GetTres()))
			rec.line("ResvPorts=(null)")
			if err := c.write([]byte(rec.text(c.opts.On("oneliner"), "\n"))); err != nil {
				return err
			}
		}
	}
	switch {
	case found:
		return nil
	case name == "":
		return c.write([]byte("No job steps in the system\n"))
	case step == "":
		return fail(1, "Job step "+job+" not found")
	}
	return fail(1, "Job step "+job+"."+step+" not found")
}
