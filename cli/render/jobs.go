package render

import (
	"cmp"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// JobView is how jobs are shown: the clock and the choices of the command line.
type JobView struct {
	Clock
	Env       *tool.Env
	Noconvert bool // amounts stay in the unit they are kept in
	Expand    bool // file names with their patterns filled in
	Cluster   string
	// Ranges explain pending jobs, by their uids, where starts are shown as ranges.
	Ranges map[uint64]*apiv1.WhyReply
}

// JobRow is one line of squeue: a job, one task of an array, or a step.
type JobRow struct {
	*apiv1.JobInfo
	Step *apiv1.StepInfo // set: the row is this step
	Task int64           // a task of an array's record, else -1
	Part string          // set: only this partition is shown
}

func (r JobRow) State() spec.JobState { return spec.JobState(r.GetState()) }

func (r JobRow) Pending() bool { return r.State() == spec.Pending }

// IsArray tells a record that stands for several tasks.
func (r JobRow) IsArray() bool { return r.Task < 0 && len(r.GetArrayTasks()) > 0 }

// TaskID is the index of a single task, -1 if there is none.
func (r JobRow) TaskID() int64 {
	switch {
	case r.Task >= 0:
		return r.Task
	case r.GetArrayJobId() != 0 && !r.IsArray():
		return r.GetArrayTask()
	}
	return -1
}

// ID is how people name the job: 12, 36_4, 36_[5-9%2].
func (v *JobView) ID(row JobRow) string {
	base := tool.Itoa(row.GetArrayJobId())
	switch {
	case row.GetHetJobId() != 0:
		return tool.Itoa(row.GetHetJobId()) + "+" + tool.Itoa(row.GetHetOffset())
	case row.GetArrayJobId() == 0:
		return tool.Itoa(row.GetJobId())
	case row.IsArray():
		return base + "_[" + ArrayTasks(v.Env, row.JobInfo) + "]"
	}
	return base + "_" + strconv.FormatInt(row.TaskID(), 10)
}

// Configuring tells a job that has its nodes and has not begun: they boot, or
// the site's PrologSlurmctld runs.
func Configuring(job *apiv1.JobInfo) bool {
	return job.GetConfiguring() ||
		spec.JobState(job.GetState()) == spec.Running &&
			job.GetReason().GetCode() == string(spec.ReasonProlog)
}

// StateNames are the long and the short name that squeue shows.
func StateNames(job *apiv1.JobInfo) (long, short string) {
	if job.GetCompleting() {
		return "COMPLETING", "CG"
	}
	if Configuring(job) {
		return "CONFIGURING", "CF"
	}
	state := spec.JobState(job.GetState())
	switch {
	case state == spec.Pending && spec.Hold(job.GetHold()) == spec.HeldSpecialExit:
		return "SPECIAL_EXIT", "SE"
	case state == spec.Running && job.GetStopped():
		return "STOPPED", "ST"
	}
	return state.String(), state.Compact()
}

// Reason is why the job waits or ended. Only where Slurm's own text has a
// second part is the detail shown.
func Reason(job *apiv1.JobInfo) string {
	code := cmp.Or(job.GetReason().GetCode(), "None")
	if spec.ReasonCode(code) == spec.ReasonReqNodeNotAvail && job.GetReason().GetDetail() != "" {
		return code + ", " + job.GetReason().GetDetail()
	}
	return code
}

// NodesOrReason is squeue's last column.
func NodesOrReason(job *apiv1.JobInfo) string {
	switch spec.JobState(job.GetState()) {
	case spec.Pending, spec.TimedOut, spec.OutOfMemory, spec.DeadlineMissed, spec.Failed:
		return "(" + Reason(job) + ")"
	}
	return job.GetNodes()
}

// Start is when the job started, or will as far as is known; 0 = unknown.
func Start(job *apiv1.JobInfo) int64 {
	if spec.JobState(job.GetState()) == spec.Pending && job.GetPlannedStart() != 0 {
		return job.GetPlannedStart()
	}
	return job.GetStart()
}

// End is when the job ended or must end; of a job that waits, when it would if
// it started as expected; 0 = unknown.
func End(job *apiv1.JobInfo) int64 {
	if spec.JobState(job.GetState()) != spec.Pending {
		return job.GetEnd()
	}
	if at := Start(job); at != 0 && job.GetTimeLimit() > 0 {
		return at + job.GetTimeLimit()
	}
	return 0
}

// Left is the time until the limit, in nanoseconds; -1 = no limit.
func Left(job *apiv1.JobInfo, now int64) int64 {
	if job.GetTimeLimit() < 0 {
		return -1
	}
	return max(0, job.GetTimeLimit()-Elapsed(job, now))
}

// PerNode writes what the job has on each node: what was asked for by node, or
// what it holds where it asked in another way.
func PerNode(job *apiv1.JobInfo) string {
	jobSpec := job.GetSpec()
	if len(jobSpec.GetPerNode()) > 0 {
		return CountsText(jobSpec.GetPerNode(), "gres:", ":")
	}
	nodes := int64(max(job.GetNumNodes(), 1))
	for _, tres := range [...]*apiv1.Tres{job.GetAllocTres(), job.GetReqTres()} {
		if n := ToTRES(tres).Get("gres/gpu"); n > 0 {
			return "gres:gpu:" + tool.Itoa((n+nodes-1)/nodes)
		}
	}
	return NotAvailable
}

// MinMemory is the memory asked for, or had by default: by node, CPU or GPU.
func (v *JobView) MinMemory(job *apiv1.JobInfo) string {
	jobSpec := job.GetSpec()
	n := jobSpec.GetMemPerNode()
	for _, m := range [...]int64{
		jobSpec.GetMemPerCpu(), jobSpec.GetMemPerGpu(), job.GetDefaultMemPerCpu(),
	} {
		if m != 0 {
			n = m
		}
	}
	if n == 0 && !jobSpec.GetAllMem() {
		n = job.GetReqTres().GetMem() / int64(max(job.GetReqTres().GetNode(), 1))
	}
	return v.Memory(n)
}

func (v *JobView) Memory(mib int64) string {
	return format.Units(mib, 'M', format.Convert{Keep: v.Noconvert, Exact: true})
}

// findFile is the path of a standard file: as it was given, or filled in.
func (v *JobView) findFile(job *apiv1.JobInfo, given, filled, def string) string {
	if v.Expand && filled != "" {
		return filled
	}
	if given == "" {
		given = def
	}
	if !strings.HasPrefix(given, "/") {
		given = strings.TrimSuffix(job.GetSpec().GetWorkDir(), "/") + "/" + given
	}
	return given
}

func (v *JobView) Stdout(job *apiv1.JobInfo) string {
	def := "slurm-%j.out"
	if job.GetArrayJobId() != 0 {
		def = "slurm-%A_%a.out"
	}
	return v.findFile(job, job.GetSpec().GetStdout(), job.GetStdout(), def)
}

func (v *JobView) Stderr(job *apiv1.JobInfo) string {
	if job.GetSpec().GetStderr() == "" {
		return v.Stdout(job)
	}
	return v.findFile(job, job.GetSpec().GetStderr(), job.GetStderr(), "")
}

func (v *JobView) Stdin(job *apiv1.JobInfo) string {
	return v.findFile(job, job.GetSpec().GetStdin(), job.GetStdin(), "/dev/null")
}

// Sharing is the OverSubscribe of a job.
func Sharing(job *apiv1.JobInfo) string {
	switch spec.Sharing(job.GetSpec().GetSharing()) {
	case spec.Exclusive:
		return "NO"
	case spec.ExclusiveUser:
		return "USER"
	case spec.ExclusiveMCS:
		return "MCS"
	case spec.ExclusiveTopo:
		return "TOPO"
	case spec.Oversubscribe:
		return "YES"
	}
	return "OK"
}

// CommandLine is the script with its arguments.
func CommandLine(job *apiv1.JobInfo) string {
	return strings.Join(
		append([]string{job.GetSpec().GetCommand()}, job.GetSpec().GetArgs()...), " ",
	)
}

func StarIfZero(n uint32) string {
	if n == 0 {
		return "*"
	}
	return tool.Itoa(n)
}

// OnlyConfiguring tells whether a list of states has jobs that are configuring,
// and not all that run.
func OnlyConfiguring(list string) bool {
	cf, running := false, false
	for _, word := range tool.SplitList(strings.ToUpper(list)) {
		cf = cf || word == "CF" || word == "CONFIGURING"
		running = running || word == "R" || word == "RUNNING" || word == "ALL"
	}
	return cf && !running
}

// ParseStates reads names of job states for a filter.
func ParseStates(list string) (states []uint32, completing, all bool, bad string) {
	for _, word := range tool.SplitList(list) {
		switch upper := strings.ToUpper(word); upper {
		case "ALL":
			all = true
		case "COMPLETING", "CG":
			completing = true
		case "CONFIGURING", "CF":
			states = append(
				states,
				uint32(spec.Running),
			) // who asks leaves out the others: see onlyConfiguring
		case "EXPEDITING",
			"RESIZING",
			"RS",
			"REQUEUED",
			"RQ",
			"REQUEUE_FED",
			"RF",
			"REQUEUE_HOLD",
			"RH",
			"RESV_DEL_HOLD",
			"RD",
			"REVOKED",
			"RV",
			"SIGNALING",
			"SI",
			"SPECIAL_EXIT",
			"SE",
			"STAGE_OUT",
			"SO",
			"STOPPED",
			"ST":
			states = append(states, 0) // a state that no job of this release is ever in
		default:
			state, ok := spec.ParseJobState(word)
			if !ok {
				return nil, false, false, word
			}
			states = append(states, uint32(state))
		}
	}
	return states, completing, all, ""
}

// HetSet are the numbers of all components of a job's heterogeneous job: 12-13.
func HetSet(job *apiv1.JobInfo) string {
	if job.GetHetJobId() == 0 {
		return ""
	}
	return tool.Itoa(job.GetHetJobId()) + "-" + tool.Itoa(job.GetHetJobId()+job.GetHetSize()-1)
}

// LicencesText writes the licences that a job asks for: a:2,b:1, or a:2|b:1
// where one of them is enough.
func LicencesText(jobSpec *apiv1.JobSpec) string {
	text := CountsText(jobSpec.GetLicenses(), "", ":")
	if jobSpec.GetAnyLicense() {
		text = strings.ReplaceAll(text, ",", "|")
	}
	return text
}

// QOSOf is the QOS that a job runs in, or all that it may run in.
func QOSOf(job *apiv1.JobInfo) string { return cmp.Or(job.GetQos(), job.GetSpec().GetQos()) }
