package cli

import (
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// jobView is how jobs are shown: the clock and the choices of the command line.
type jobView struct {
	clock
	env       *Env
	noconvert bool // amounts stay in the unit they are kept in
	expand    bool // file names with their patterns filled in
	cluster   string
}

// jobRow is one line of squeue: a job, one task of an array, or a step.
type jobRow struct {
	*apiv1.JobInfo
	step *apiv1.StepInfo // set: the row is this step
	task int64           // a task of an array's record, else -1
	part string          // set: only this partition is shown
}

func (r jobRow) state() spec.JobState { return spec.JobState(r.GetState()) }

func (r jobRow) pending() bool { return r.state() == spec.Pending }

// isArray tells a record that stands for several tasks.
func (r jobRow) isArray() bool { return r.task < 0 && len(r.GetArrayTasks()) > 0 }

// taskID is the index of a single task, -1 if there is none.
func (r jobRow) taskID() int64 {
	switch {
	case r.task >= 0:
		return r.task
	case r.GetArrayJobId() != 0 && !r.isArray():
		return r.GetArrayTask()
	}
	return -1
}

// id is how people name the job: 12, 36_4, 36_[5-9%2].
func (v *jobView) id(r jobRow) string {
	base := itoa(r.GetArrayJobId())
	switch {
	case r.GetHetJobId() != 0:
		return itoa(r.GetHetJobId()) + "+" + itoa(r.GetHetOffset())
	case r.GetArrayJobId() == 0:
		return itoa(r.GetJobId())
	case r.isArray():
		return base + "_[" + v.env.arrayTasks(r.JobInfo) + "]"
	}
	return base + "_" + strconv.FormatInt(r.taskID(), 10)
}

// configuring tells a job that has its nodes and has not begun: they boot, or
// the site's PrologSlurmctld runs.
func configuring(j *apiv1.JobInfo) bool {
	return j.GetConfiguring() || spec.JobState(j.GetState()) == spec.Running && j.GetReason().GetCode() == string(spec.ReasonProlog)
}

// stateNames are the long and the short name that squeue shows.
func stateNames(j *apiv1.JobInfo) (long, short string) {
	if j.GetCompleting() {
		return "COMPLETING", "CG"
	}
	if configuring(j) {
		return "CONFIGURING", "CF"
	}
	s := spec.JobState(j.GetState())
	return s.String(), s.Compact()
}

// reason is why the job waits or ended. Only where Slurm's own text has a
// second part is the detail shown.
func reason(j *apiv1.JobInfo) string {
	code := or(j.GetReason().GetCode(), "None")
	if spec.ReasonCode(code) == spec.ReasonReqNodeNotAvail && j.GetReason().GetDetail() != "" {
		return code + ", " + j.GetReason().GetDetail()
	}
	return code
}

// nodesOrReason is squeue's last column.
func nodesOrReason(j *apiv1.JobInfo) string {
	switch spec.JobState(j.GetState()) {
	case spec.Pending, spec.TimedOut, spec.OutOfMemory, spec.DeadlineMissed, spec.Failed:
		return "(" + reason(j) + ")"
	}
	return j.GetNodes()
}

// start is when the job started, or will as far as is known; 0 = unknown.
func start(j *apiv1.JobInfo) int64 {
	if spec.JobState(j.GetState()) == spec.Pending && j.GetPlannedStart() != 0 {
		return j.GetPlannedStart()
	}
	return j.GetStart()
}

// end is when the job ended or must end; of a job that waits, when it would if
// it started as expected; 0 = unknown.
func end(j *apiv1.JobInfo) int64 {
	if spec.JobState(j.GetState()) != spec.Pending {
		return j.GetEnd()
	}
	if at := start(j); at != 0 && j.GetTimeLimit() > 0 {
		return at + j.GetTimeLimit()
	}
	return 0
}

// left is the time until the limit, in nanoseconds; -1 = no limit.
func left(j *apiv1.JobInfo, now int64) int64 {
	if j.GetTimeLimit() < 0 {
		return -1
	}
	return max(0, j.GetTimeLimit()-elapsed(j, now))
}

// perNode writes what the job has on each node: what was asked for by node, or
// what it holds where it asked in another way.
func perNode(j *apiv1.JobInfo) string {
	s := j.GetSpec()
	if len(s.GetPerNode()) > 0 {
		return countsText(s.GetPerNode(), "gres:", ":")
	}
	nodes := int64(max(j.GetNumNodes(), 1))
	for _, t := range [...]*apiv1.Tres{j.GetAllocTres(), j.GetReqTres()} {
		if n := toTRES(t).Get("gres/gpu"); n > 0 {
			return "gres:gpu:" + itoa((n+nodes-1)/nodes)
		}
	}
	return na
}

// minMemory is the memory asked for: by node, CPU or GPU.
func (v *jobView) minMemory(j *apiv1.JobInfo) string {
	s := j.GetSpec()
	n := s.GetMemPerNode()
	for _, m := range [...]int64{s.GetMemPerCpu(), s.GetMemPerGpu()} {
		if m != 0 {
			n = m
		}
	}
	if n == 0 && !s.GetAllMem() {
		n = j.GetReqTres().GetMem() / int64(max(j.GetReqTres().GetNode(), 1))
	}
	return v.memory(n)
}

func (v *jobView) memory(mib int64) string {
	return format.Units(mib, 'M', format.Convert{Keep: v.noconvert, Exact: true})
}

// file is the path of a standard file: as it was given, or filled in.
func (v *jobView) file(j *apiv1.JobInfo, given, filled, def string) string {
	if v.expand && filled != "" {
		return filled
	}
	if given == "" {
		given = def
	}
	if !strings.HasPrefix(given, "/") {
		given = strings.TrimSuffix(j.GetSpec().GetWorkDir(), "/") + "/" + given
	}
	return given
}

func (v *jobView) stdout(j *apiv1.JobInfo) string {
	def := "slurm-%j.out"
	if j.GetArrayJobId() != 0 {
		def = "slurm-%A_%a.out"
	}
	return v.file(j, j.GetSpec().GetStdout(), j.GetStdout(), def)
}

func (v *jobView) stderr(j *apiv1.JobInfo) string {
	if j.GetSpec().GetStderr() == "" {
		return v.stdout(j)
	}
	return v.file(j, j.GetSpec().GetStderr(), j.GetStderr(), "")
}

func (v *jobView) stdin(j *apiv1.JobInfo) string {
	return v.file(j, j.GetSpec().GetStdin(), j.GetStdin(), "/dev/null")
}

// sharing is the OverSubscribe of a job.
func sharing(j *apiv1.JobInfo) string {
	switch spec.Sharing(j.GetSpec().GetSharing()) {
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

// commandLine is the script with its arguments.
func commandLine(j *apiv1.JobInfo) string {
	return strings.Join(append([]string{j.GetSpec().GetCommand()}, j.GetSpec().GetArgs()...), " ")
}

func starIfZero(n uint32) string {
	if n == 0 {
		return "*"
	}
	return itoa(n)
}

// onlyConfiguring tells whether a list of states has jobs that are configuring,
// and not all that run.
func onlyConfiguring(list string) bool {
	cf, running := false, false
	for _, word := range splitList(strings.ToUpper(list)) {
		cf = cf || word == "CF" || word == "CONFIGURING"
		running = running || word == "R" || word == "RUNNING" || word == "ALL"
	}
	return cf && !running
}

// parseStates reads names of job states for a filter.
func parseStates(list string) (states []uint32, completing, all bool, bad string) {
	for _, word := range splitList(list) {
		switch upper := strings.ToUpper(word); upper {
		case "ALL":
			all = true
		case "COMPLETING", "CG":
			completing = true
		case "CONFIGURING", "CF":
			states = append(states, uint32(spec.Running)) // who asks leaves out the others: see onlyConfiguring
		case "EXPEDITING", "RESIZING", "RS", "REQUEUED", "RQ", "REQUEUE_FED", "RF", "REQUEUE_HOLD", "RH",
			"RESV_DEL_HOLD", "RD", "REVOKED", "RV", "SIGNALING", "SI", "SPECIAL_EXIT", "SE", "STAGE_OUT", "SO", "STOPPED", "ST":
			states = append(states, 0) // a state that no job of this release is ever in
		default:
			s, ok := spec.ParseJobState(word)
			if !ok {
				return nil, false, false, word
			}
			states = append(states, uint32(s))
		}
	}
	return states, completing, all, ""
}

// hetSet are the numbers of all components of a job's heterogeneous job: 12-13.
func hetSet(j *apiv1.JobInfo) string {
	if j.GetHetJobId() == 0 {
		return ""
	}
	return itoa(j.GetHetJobId()) + "-" + itoa(j.GetHetJobId()+j.GetHetSize()-1)
}

// licencesText writes the licences that a job asks for: a:2,b:1, or a:2|b:1
// where one of them is enough.
func licencesText(s *apiv1.JobSpec) string {
	text := countsText(s.GetLicenses(), "", ":")
	if s.GetAnyLicense() {
		text = strings.ReplaceAll(text, ",", "|")
	}
	return text
}

// qosOf is the QOS that a job runs in, or all that it may run in.
func qosOf(j *apiv1.JobInfo) string { return or(j.GetQos(), j.GetSpec().GetQos()) }
