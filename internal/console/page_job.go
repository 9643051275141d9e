package console

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/spec"
)

// jobData is what the page of a job shows.
type jobData struct {
	ID, Number, Name, User, Account string
	State, Class                    string
	Verdict                         string // the state in a sentence
	Life                            []stage
	Why                             []whyPart
	Facts                           []fact
	Nodes                           []jobNode
	Steps                           []jobStep
	Again                           string // the line that submits the same
	Actions                         []action
	Faults                          []string
	Done                            string // what has just been done
	Past                            string // where the part about the past is
	Output                          string // where the part with the output is; empty: not for the visitor
	Script                          string // where the part with the script is; empty: not for the visitor
	Over                            bool   // it does not change any more
	Tasks                           string // link to the tasks of its array
	Remembered                      bool   // only accounting knows it
}

// stage is a point in the life of a job.
type stage struct {
	Name  string
	At    moment
	After string // how long the stage before lasted
	Class string
}

// whyPart is an answer of muster why.
type whyPart struct {
	Title string
	Lead  string
	Lines []string
	Rows  []string // of a table, laid out as the command does
}

// fact is a word about the job with its value.
type fact struct {
	Name, Value, Link string
}

// jobNode is what a job holds on a node.
type jobNode struct {
	Name, Link, CPUs, Memory string
	GPUs                     []jobGPU
	Done                     bool
}

type jobGPU struct {
	Index, UUID, Type, Part string
}

// jobStep is a step as a row.
type jobStep struct {
	ID, Name, State, Class, Nodes, Tasks, Time string
	Start                                      moment
}

// jobPage is the page of the job that the address names.
func (c *Console) jobPage(v *visit) (answer, error) {
	id := v.PathValue("id")
	if !tool.ValidTarget(id) {
		return answer{}, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	reply, err := callAPI[*apiv1.ListJobsReply](
		v,
		tool.MethodListJobs,
		&apiv1.ListJobsRequest{
			Filter: &apiv1.JobFilter{Jobs: []string{id}, AllStates: true},
			Detail: true,
		},
	)
	if err != nil {
		return answer{}, err
	}
	if len(reply.GetJobs()) == 0 && v.past != nil {
		return answer{}, spec.Refuse(
			spec.CodeInvalidJobID,
			"the job was not there at that moment, or it is not yours to see",
		)
	}
	if len(reply.GetJobs()) == 0 {
		// The controller has forgotten it, or it is not the visitor's to see; the
		// accounting decides that by itself.
		return answer{
			page:  "job",
			title: "Job " + id,
			data: jobData{ID: id, Number: id, Remembered: true, Over: true, Past: "/job/" +
				id + "/past"},
		}, nil
	}
	job := reply.GetJobs()[0]
	text := jobText(reply.GetNow())
	data := v.describe(job, text)
	if id != data.Number {
		data.ID = render.Clean(id)
	}
	if v.past == nil {
		data.Past = "/job/" + id + "/past"
	}
	if v.past == nil && v.mayReadScript(job) {
		data.Script = "/job/" + id + "/script"
	}
	if v.mayReadOutput(job) {
		data.Output = outputLink(id, "", false, -1)
	}
	data.Over = spec.JobState(job.GetState()).Terminal()
	data.Done = doneText(v.URL.Query().Get("did"))
	if why, err := callAPI[*apiv1.WhyReply](v, tool.MethodWhy, &apiv1.WhyRequest{Job: id}); err == nil {
		data.explain(why, text)
	}
	data.Actions = v.jobActions(job, id)
	return answer{page: "job", title: "Job " + data.ID + " " + data.Name, data: data}, nil
}

// describe is what the record of a job says.
func (v *visit) describe(job *apiv1.JobInfo, text *render.JobView) jobData {
	state, _ := render.StateNames(job)
	jobSpec := job.GetSpec()
	data := jobData{
		ID:     text.ID(render.JobRow{JobInfo: job, Task: -1}),
		Number: strconv.FormatUint(uint64(job.GetJobId()), 10),
		Name:   render.Clean(jobSpec.GetName()),
		User:   render.Clean(job.GetUser()),
		Account: render.Clean(
			jobSpec.GetAccount(),
		),
		State: strings.ToLower(state),
		Class: stateClass(job),
		Again: render.Clean(jobSpec.GetSubmitLine()),
	}
	if job.GetArrayJobId() != 0 {
		data.Tasks = "/queue?q=" + strconv.FormatUint(uint64(job.GetArrayJobId()), 10) + "_"
	}
	data.Life = life(job, text.Now)
	data.Facts = v.facts(job, text)
	for _, allocation := range job.GetAllocation() {
		data.Nodes = append(data.Nodes, nodeOf(allocation))
	}
	for _, st := range job.GetSteps() {
		data.Steps = append(data.Steps, stepOf(st, text.Now))
	}
	return data
}

// life are the points in the life of a job that the controller knows.
func life(job *apiv1.JobInfo, now int64) []stage {
	state := spec.JobState(job.GetState())
	stages := []stage{{Name: "submitted", At: newMoment(job.GetSubmit()), Class: "past"}}
	add := func(name, class string, at, since int64) {
		st := stage{Name: name, At: newMoment(at), Class: class}
		if since > 0 && at >= since {
			st.After = render.ShortSpan(at - since)
		}
		stages = append(stages, st)
	}
	if e := job.GetEligible(); e > job.GetSubmit() && e <= now {
		add("eligible", "past", e, job.GetSubmit())
	}
	switch {
	case state == spec.Pending && job.GetPlannedStart() > 0:
		add("planned start", "ahead", job.GetPlannedStart(), now)
	case state != spec.Pending && job.GetStart() > 0:
		add("started", "past", job.GetStart(), max(job.GetEligible(), job.GetSubmit()))
	}
	switch {
	case state.Terminal():
		add("ended", stateClass(job), job.GetEnd(), job.GetStart())
	case state != spec.Pending && job.GetEnd() > 0:
		add("ends at the latest", "ahead", job.GetEnd(), now)
	}
	return stages
}

func (v *visit) facts(job *apiv1.JobInfo, text *render.JobView) []fact {
	jobSpec := job.GetSpec()
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{Name: name, Value: render.Clean(value)})
		}
	}
	add("partition", strings.ReplaceAll(job.GetPartition(), ",", ", "))
	add("QOS", render.QOSOf(job))
	add("priority", formatNumber(job.GetPriority()))
	add("asked for", spaceList(render.TRESText(job.GetReqTres())))
	if tres := job.GetAllocTres(); tres != nil && spec.JobState(job.GetState()) != spec.Pending {
		add("holds", spaceList(render.TRESText(tres)))
	}
	limit := "none"
	if job.GetTimeLimit() >= 0 {
		limit = render.Span(job.GetTimeLimit())
	}
	add("time limit", limit)
	if spec.JobState(job.GetState()) != spec.Pending && job.GetStart() > 0 {
		add("ran", render.Span(render.Elapsed(job, text.Now)))
	}
	if n := job.GetRestarts(); n > 0 {
		add("restarts", formatNumber(n))
	}
	if spec.JobState(job.GetState()).Terminal() {
		exit := "code " + strconv.Itoa(int(job.GetExitCode()))
		if sig := job.GetExitSignal(); sig != 0 {
			exit = "signal " + strconv.Itoa(int(sig))
		}
		add("exit", exit)
	}
	add("dependency", job.GetDependency())
	add("constraint", jobSpec.GetConstraint())
	add("reservation", jobSpec.GetReservation())
	add("licences", render.LicencesText(jobSpec))
	add("working folder", jobSpec.GetWorkDir())
	add("command", render.CommandLine(job))
	add("output", cmp.Or(job.GetStdout(), text.Stdout(job)))
	add("comment", jobSpec.GetComment())
	add("submitted on", jobSpec.GetSubmitHost())
	return facts
}

// spaceList lets a list break between its parts.
func spaceList(list string) string { return strings.ReplaceAll(list, ",", ", ") }

func nodeOf(node *apiv1.NodeAlloc) jobNode {
	cpus := 0
	for _, word := range node.GetCpus() {
		for ; word != 0; word &= word - 1 {
			cpus++
		}
	}
	out := jobNode{
		Name:   render.Clean(node.GetName()),
		Link:   "/node/" + node.GetName(),
		CPUs:   formatNumber(cpus),
		Memory: formatMemory(node.GetMem()),
		Done:   node.GetDone(),
	}
	for _, gpu := range node.GetGpus() {
		out.GPUs = append(
			out.GPUs,
			jobGPU{
				Index: formatNumber(gpu.GetIndex()),
				UUID:  render.Clean(gpu.GetUuid()),
				Type:  render.Clean(gpu.GetType()),
			},
		)
	}
	for _, share := range node.GetShares() {
		out.GPUs = append(
			out.GPUs,
			jobGPU{
				Index: formatNumber(share.GetIndex()),
				UUID:  render.Clean(share.GetUuid()),
				Type:  render.Clean(share.GetType()),
				Part: fmt.Sprintf(
					"%s %d of %d", render.Clean(share.GetName()), share.GetN(), share.GetOf(),
				),
			},
		)
	}
	return out
}

func stepOf(step *apiv1.StepInfo, now int64) jobStep {
	state := spec.JobState(step.GetState())
	end := step.GetEnd()
	if end == 0 {
		end = now
	}
	class := "failed"
	switch state {
	case spec.Running, spec.Completed, spec.Cancelled, spec.Suspended:
		class = strings.ToLower(state.String())
	}
	return jobStep{
		ID:    spec.StepID(step.GetStepId()).String(),
		Name:  render.Clean(step.GetName()),
		State: strings.ToLower(state.String()),
		Class: class,
		Nodes: render.Clean(
			strings.Join(step.GetNodes(), ","),
		),
		Tasks: formatNumber(step.GetTasks()),
		Start: newMoment(step.GetStart()),
		Time:  render.ShortSpan(end - step.GetStart()),
	}
}

// explain adds what muster why says, in its own sentences.
func (d *jobData) explain(reply *apiv1.WhyReply, text *render.JobView) {
	view := &render.WhyView{JobView: *text, Asked: d.ID}
	view.Now = reply.GetNow()
	for _, fault := range reply.GetGpuFaults() {
		d.Faults = append(d.Faults, render.Clean(render.FaultText(fault)))
	}
	if spec.JobState(reply.GetJob().GetState()) != spec.Pending {
		d.Verdict = render.Clean(strings.TrimSpace(strings.SplitN(view.Text(reply), "\n", 2)[0]))
		return
	}
	for _, part := range view.Parts(reply) {
		out := whyPart{Title: part.Title}
		for i, text := range part.Lines {
			row, isRow := strings.CutPrefix(text, "  ")
			switch {
			case isRow:
				out.Rows = append(out.Rows, render.Clean(row))
			case i == 0 && part.Title == "Why":
				out.Lead = render.Clean(text)
			default:
				out.Lines = append(out.Lines, render.Clean(text))
			}
		}
		d.Why = append(d.Why, out)
	}
}

// mayChange tells whether the visitor would be allowed to change a job, as far
// as the console can tell: the service decides when he does.
func (v *visit) mayChange(job *apiv1.JobInfo) bool {
	if v.console.cfg.Door.Admit(v.id, tool.MethodCancel) != nil {
		return false
	}
	return job.GetUserId() == v.id.UID || v.isOperator() ||
		v.console.cfg.Door.Role(v.id) == authz.Coordinator
}
