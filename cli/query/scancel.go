package query

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

//muster:table the options of scancel
func Scancel() *tool.Command {
	return &tool.Command{
		Name: "scancel", Slurm: true, OwnVerbose: true, Mixed: true,
		Summary: "cancel or signal jobs",
		Usage:   []string{"[OPTIONS] JOB...", "[OPTIONS] FILTER..."},
		About: `A job is given as 12, 36_4 (a task of an array), 36_[1-3,7] or 36 (the whole array). Filters
select from the jobs given, or from all pending and running jobs. It is not an error if a job does not exist
or has ended.`,
		Options: []opt.Option{
			{Long: "account", Short: "A", Arg: "<account>", Env: "SCANCEL_ACCOUNT", Help: "only jobs of this account"},
			{Long: "admin-comment", Arg: "<comment>", Help: "comment of an administrator on the jobs that are ended"},
			{Long: "batch", Short: "b", Env: "SCANCEL_BATCH", Help: "signal the batch script only"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "clusters in which jobs are cancelled; all = every known one"},
			{Long: "cron", Short: "c", Env: "SCANCEL_CRON", Help: "also end jobs of a crontab where ScronParameters=explicit_scancel asks for it"},
			{Long: "ctld", Env: "SCANCEL_CTLD", Help: "deliver the signal through the controller", Always: "it always does"},
			{Long: "full", Short: "f", Env: "SCANCEL_FULL", Help: "signal the batch script and all its steps"},
			{Long: "hurry", Short: "H", Env: "SCANCEL_HURRY", Help: "do not wait until burst buffers are staged out", Always: "Muster has no burst buffers"},
			{Long: "interactive", Short: "i", Env: "SCANCEL_INTERACTIVE", Help: "ask for confirmation for each job"},
			{Long: "jobname", Short: "n", Arg: "<job_name>", Env: "SCANCEL_NAME", Help: "only jobs of this name"},
			{Long: "name", Arg: "<job_name>", Help: "same as above"},
			{Long: "me", Help: "only jobs of this user"},
			{Long: "nodelist", Short: "w", Arg: "<host1,host2,...>", Help: "only jobs on these nodes"},
			{Long: "partition", Short: "p", Arg: "<partition_name>", Env: "SCANCEL_PARTITION", Help: "only jobs in this partition"},
			{Long: "qos", Short: "q", Arg: "<qos>", Env: "SCANCEL_QOS", Help: "only jobs of this QOS"},
			{Long: "quiet", Short: "Q", Help: "print nothing, not even errors"},
			{Long: "reservation", Short: "R", Arg: "<reservation_name>", Help: "only jobs that ask for this reservation"},
			{Long: "sibling", Arg: "<cluster_name>", Refused: tool.NoFederation},
			{Long: "signal", Short: "s", Arg: "<signal_name>", Help: "signal to send instead of cancelling the job: KILL, SIGUSR1, 10"},
			{Long: "state", Short: "t", Arg: "<job_state_name>", Env: "SCANCEL_STATE", Help: "only jobs in this state: PENDING, RUNNING, SUSPENDED"},
			{Long: "user", Short: "u", Arg: "<user_name>", Env: "SCANCEL_USER", Help: "only jobs of this user"},
			{Long: "verbose", Short: "v", Env: "SCANCEL_VERBOSE", Help: "print what is done"},
			{Long: "wckey", Arg: "<wckey>", Env: "SCANCEL_WCKEY", Help: "only jobs with this key"},
		},
		Exits: []tool.Variable{{Name: "error number modulo 256", Help: "a job could not be ended: 210 stands for Access/permission denied"}},
		Example: []tool.Example{
			{Line: "scancel 12 36_[5-9]", What: "cancels a job and five tasks of an array"},
			{Line: "scancel --me -t PENDING", What: "cancels all your pending jobs"},
			{Line: "scancel -s USR1 -b 12", What: "sends SIGUSR1 to the batch script of job 12"},
		},
		Run: runScancel,
	}
}

func runScancel(call *tool.Call) error {
	request := &apiv1.CancelRequest{
		Filter: &apiv1.JobFilter{},
		Batch:  call.Opts.On("batch"),
		Full:   call.Opts.On("full"),
		Cron:   call.Opts.On("cron"),
	}
	request.AdminComment = call.Opts.Text("admin-comment")
	if request.GetAdminComment() != "" && call.Opts.On("signal") {
		return call.Errorf("--admin-comment is for jobs that are ended, not for a --signal")
	}
	steps, err := cancelFilter(call, request.GetFilter())
	if err != nil {
		return err
	}
	if call.Opts.On("signal") {
		n, err := format.ParseSignal(call.Opts.Text("signal"))
		if err != nil {
			return tool.Fail(1, "Unknown job signal: "+call.Opts.Text("signal"))
		}
		request.Signal = int32(n)
	}
	return call.EachCluster(func(call *tool.Call) error {
		own := proto.CloneOf(request) // the choice of jobs is each cluster's
		return cancelIn(call, own, steps)
	})
}

// cancelIn cancels or signals in one cluster.
func cancelIn(call *tool.Call, request *apiv1.CancelRequest, steps []string) error {
	failed := endSteps(call, steps, request.GetSignal())
	if len(steps) > 0 && len(request.GetFilter().GetJobs()) == 0 {
		return failed
	}
	if err := cancelJobs(call, request); err != nil {
		return err
	}
	return failed
}

// cancelJobs ends or signals what a filter names.
func cancelJobs(call *tool.Call, request *apiv1.CancelRequest) error {
	if err := chooseJobs(call, request); err != nil {
		return err
	}
	if request.GetFilter() == nil {
		return nil // nothing was chosen
	}
	if call.Opts.On("verbose") {
		sayCancel(call, request.GetSignal(), request.GetFilter().GetJobs())
	}
	var reply apiv1.JobResults
	if err := call.RPC(tool.MethodCancel, request, &reply); err != nil {
		return err
	}
	if len(reply.GetResults()) == 0 {
		// A host may not know a user whose jobs there are.
		if user := call.UnknownUser(request.GetFilter().GetUsers()); user != "" {
			return call.Errorf("Invalid user name: %s", user)
		}
	}
	if call.Opts.On("verbose") && len(request.GetFilter().GetJobs()) == 0 {
		sayCancel(call, request.GetSignal(), resultJobs(&reply))
	}
	return cancelResults(call, request, &reply)
}

// endSteps ends or signals steps, each by itself.
func endSteps(call *tool.Call, steps []string, sig int32) error {
	code := 0
	lines := bufio.NewScanner(call.Stdin)
	for _, id := range steps {
		job, n, _ := tool.ParseStepID(id)
		if call.Opts.On("interactive") {
			question, err := stepQuestion(call, id, job)
			if err != nil {
				return err
			}
			if !confirms(call, lines, question) {
				continue
			}
		}
		if call.Opts.On("verbose") {
			fmt.Fprintf(call.Stderr, "scancel: Terminating step %s\n", id)
		}
		err := call.RPC(
			tool.MethodEndStep,
			&apiv1.EndStepRequest{Job: job, Step: n, Signal: sig},
			&apiv1.EndStepReply{},
		)
		if err == nil {
			continue
		}
		refusal := tool.ExplainError(err)
		if refusal.Code == 0 || refusal.Code == spec.CodeUnreachable {
			return err
		}
		code = 1
		if !call.Opts.On("quiet") {
			fmt.Fprintf(
				call.Stderr,
				"scancel: error: Kill job error on job step id %s: %s\n",
				id,
				refusal.Text,
			)
		}
	}
	if code != 0 {
		return tool.ExitCode(code)
	}
	return nil
}

// cancelFilter reads ids and filters; the steps among the ids are told apart.
func cancelFilter(call *tool.Call, filter *apiv1.JobFilter) (steps []string, err error) {
	for _, arg := range call.Operands {
		for _, id := range tool.SplitJobs(arg) {
			switch {
			case strings.Contains(id, "."):
				if _, _, ok := tool.ParseStepID(id); !ok {
					return nil, call.Errorf("Invalid job id %s", id)
				}
				steps = append(steps, id)
			case !tool.ValidTarget(id):
				return nil, call.Errorf("Invalid job id %s", id)
			default:
				filter.Jobs = append(filter.Jobs, id)
			}
		}
	}
	if err := cancelOptions(call, filter, len(steps) > 0); err != nil || len(steps) == 0 {
		return steps, err
	}
	if values := call.Opts; !proto.Equal(filter, &apiv1.JobFilter{Jobs: filter.GetJobs()}) ||
		values.On("wckey") ||
		values.On("batch") {
		return nil, call.Errorf(
			"%s: --batch and the filters are for jobs: name a step without them",
			steps[0],
		)
	}
	return steps, nil
}

// cancelOptions reads the filters; something must be named.
func cancelOptions(call *tool.Call, filter *apiv1.JobFilter, named bool) error {
	o := call.Opts
	filter.Accounts = o.List("account")
	filter.Names = o.List("jobname")
	filter.Partitions = o.List("partition")
	filter.Qos = o.List("qos")
	filter.Users = o.List("user")
	filter.Reservations = o.List("reservation")
	if o.On("name") {
		filter.Names = append(filter.Names, o.List("name")...)
	}
	if o.On("me") {
		filter.Users = []string{tool.Itoa(call.UID)}
	}
	if o.On("nodelist") {
		names, err := hostlist.Expand(o.Text("nodelist"))
		if err != nil {
			return call.Errorf("%v", err)
		}
		filter.Nodes = names
	}
	if o.On("state") {
		states, completing, all, bad := render.ParseStates(o.Text("state"))
		if bad != "" || all || slices.Contains(states, 0) || slices.ContainsFunc(states, func(s uint32) bool { return spec.JobState(s).Terminal() }) {
			return tool.Fail(
				1,
				"Invalid job state specified: "+cmp.Or(bad, o.Text("state")),
				"Valid job states are PENDING, RUNNING, and SUSPENDED",
			)
		}
		if render.OnlyConfiguring(o.Text("state")) {
			return call.Errorf("Invalid job state %s: jobs whose nodes boot are cancelled with RUNNING, or by their ids", o.Text("state"))
		}
		filter.States, filter.Completing = states, completing
	}
	if len(filter.Jobs)+len(filter.Accounts)+len(filter.Names)+len(filter.Partitions)+len(filter.Qos)+len(filter.Reservations)+len(filter.Users)+len(filter.Nodes)+len(filter.States) == 0 && !o.On("wckey") && !named {
		return call.Errorf("No job identification provided")
	}
	return nil
}

// chooseJobs resolves what the controller does not filter by: -i and --wckey.
// The request's filter is nil afterwards if nothing is left.
func chooseJobs(call *tool.Call, req *apiv1.CancelRequest) error {
	ask, key := call.Opts.On("interactive"), call.Opts.Text("wckey")
	if !ask && key == "" {
		return nil
	}
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(
		call, &apiv1.ListJobsRequest{Filter: req.GetFilter()}, &reply,
	); err != nil {
		return err
	}
	view := &render.JobView{Clock: render.NewClock(call.Env), Env: call.Env}
	lines := bufio.NewScanner(call.Stdin)
	var chosen []string
	for _, job := range reply.GetJobs() {
		row := render.JobRow{JobInfo: job, Task: -1}
		id := view.ID(row)
		if row.IsArray() {
			id = tool.Itoa(job.GetArrayJobId()) + "_[" +
				format.Array{Ranges: arrayRanges(job)}.String() + "]"
		}
		if key != "" && job.GetSpec().GetWckey() != key {
			continue
		}
		if ask {
			what := fmt.Sprintf("Cancel job_id=%s name=%s partition=%s",
				id, job.GetSpec().GetName(), job.GetPartition())
			if !confirms(call, lines, what) {
				continue
			}
		}
		chosen = append(chosen, id)
	}
	req.Filter = nil
	if len(chosen) > 0 {
		req.Filter = &apiv1.JobFilter{Jobs: chosen}
	}
	return nil
}

// stepQuestion names a step with its job. That of a job that is not known has nothing to say of it.
func stepQuestion(call *tool.Call, id, job string) (string, error) {
	request := &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: []string{job}}}
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(call, request, &reply); err != nil {
		return "", err
	}
	text := "Cancel step_id=" + id
	for _, known := range reply.GetJobs() {
		text += " name=" + known.GetSpec().GetName() + " partition=" + known.GetPartition()
		break
	}
	return text, nil
}

// confirms asks whether to do something; without an answer it is not done.
func confirms(call *tool.Call, lines *bufio.Scanner, what string) bool {
	fmt.Fprintf(call.Stderr, "%s [y/n]? ", what)
	if !lines.Scan() {
		return false
	}
	answer := strings.ToLower(strings.TrimSpace(lines.Text()))
	return answer == "y" || answer == "yes"
}

func arrayRanges(job *apiv1.JobInfo) []format.Range {
	var ranges []format.Range
	for _, taskRange := range job.GetArrayTasks() {
		ranges = append(
			ranges,
			format.Range{
				First: uint32(taskRange.GetFirst()),
				Last:  uint32(taskRange.GetLast()),
				Step:  uint32(max(taskRange.GetStep(), 1)),
			},
		)
	}
	return ranges
}

func resultJobs(reply *apiv1.JobResults) []string {
	var out []string
	for _, result := range reply.GetResults() {
		out = append(out, result.GetJob())
	}
	return out
}

func sayCancel(call *tool.Call, signal int32, jobs []string) {
	for _, id := range jobs {
		if signal != 0 {
			fmt.Fprintf(call.Stderr, "scancel: Signal %d to job %s\n", signal, id)
		} else {
			fmt.Fprintf(call.Stderr, "scancel: Terminating job %s\n", id)
		}
	}
}

// cancelResults prints the errors: one line for each job as it was named. What
// does not exist or has ended is said only with -v.
func cancelResults(call *tool.Call, request *apiv1.CancelRequest, reply *apiv1.JobResults) error {
	named := request.GetFilter().GetJobs()
	code := 0
	said := map[string]bool{}
	for _, result := range reply.GetResults() {
		if result.GetError() == nil {
			continue
		}
		name := result.GetJob()
		if base, _, ok := strings.Cut(name, "_"); ok && slices.Contains(named, base) {
			name = base
		}
		e := result.GetError()
		quiet := spec.Code(e.GetCode()) == spec.CodeInvalidJobID ||
			spec.Code(e.GetCode()) == spec.CodeAlreadyDone
		line := fmt.Sprintf("scancel: error: Kill job error on job id %s: %s", name, e.GetText())
		if e.GetDetail() != "" && !quiet {
			line += " (" + e.GetDetail() + ")"
		}
		if !quiet {
			code = int(e.GetCode()) & 0xff
		}
		if (!quiet || call.Opts.On("verbose")) && !call.Opts.On("quiet") && !said[line] {
			said[line] = true
			fmt.Fprintln(call.Stderr, line)
		}
	}
	if code != 0 {
		return tool.ExitCode(code)
	}
	return nil
}
