package cli

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

//muster:table the options of scancel
func scancelCommand() *command {
	return &command{
		name: "scancel", slurm: true, ownVerbose: true, mixed: true,
		summary: "end or signal jobs",
		usage:   []string{"[OPTIONS] JOB...", "[OPTIONS] FILTER..."},
		about: `A job is 12, 36_4 (a task of an array), 36_[1-3,7] or 36 (the whole array). Filters choose among the jobs named, or
among all that wait and run. Jobs that do not exist or have ended are no error.`,
		options: []opt.Option{
			{Long: "account", Short: "A", Arg: "<account>", Env: "SCANCEL_ACCOUNT", Help: "only jobs of this account"},
			{Long: "admin-comment", Arg: "<comment>", Refused: "there is no administrator's comment yet"},
			{Long: "batch", Short: "b", Env: "SCANCEL_BATCH", Help: "signal the batch script only"},
			{Long: "clusters", Short: "M", Arg: "<string>", Env: "SLURM_CLUSTERS", Help: "check that this is the cluster's name"},
			{Long: "cron", Short: "c", Env: "SCANCEL_CRON", Refused: "there are no cron jobs"},
			{Long: "ctld", Env: "SCANCEL_CTLD", Help: "let the controller deliver the signal", Always: "it always does"},
			{Long: "full", Short: "f", Env: "SCANCEL_FULL", Help: "signal the batch script and all its steps"},
			{Long: "hurry", Short: "H", Env: "SCANCEL_HURRY", Refused: "there are no burst buffers to stage out"},
			{Long: "interactive", Short: "i", Env: "SCANCEL_INTERACTIVE", Help: "ask before each job"},
			{Long: "jobname", Short: "n", Arg: "<job_name>", Env: "SCANCEL_NAME", Help: "only jobs of this name"},
			{Long: "name", Arg: "<job_name>", Help: "the same"},
			{Long: "me", Help: "only jobs of this user"},
			{Long: "nodelist", Short: "w", Arg: "<host1,host2,...>", Help: "only jobs on these nodes"},
			{Long: "partition", Short: "p", Arg: "<partition_name>", Env: "SCANCEL_PARTITION", Help: "only jobs in this partition"},
			{Long: "qos", Short: "q", Arg: "<qos>", Env: "SCANCEL_QOS", Help: "only jobs of this QOS"},
			{Long: "quiet", Short: "Q", Help: "report nothing, not even errors"},
			{Long: "reservation", Short: "R", Arg: "<reservation_name>", Help: "only jobs that ask for this reservation"},
			{Long: "sibling", Arg: "<cluster_name>", Refused: "there is one cluster and no federation"},
			{Long: "signal", Short: "s", Arg: "<signal_name>", Help: "send this signal instead of ending the job: KILL, SIGUSR1, 10"},
			{Long: "state", Short: "t", Arg: "<job_state_name>", Env: "SCANCEL_STATE", Help: "only jobs in this state: PENDING, RUNNING, SUSPENDED"},
			{Long: "user", Short: "u", Arg: "<user_name>", Env: "SCANCEL_USER", Help: "only jobs of this user"},
			{Long: "verbose", Short: "v", Env: "SCANCEL_VERBOSE", Help: "say what is done"},
			{Long: "wckey", Arg: "<wckey>", Env: "SCANCEL_WCKEY", Help: "only jobs with this key"},
		},
		exits: []variable{{"the error's number modulo 256", "a job could not be ended: 210 stands for Access/permission denied"}},
		example: []example{
			{"scancel 12 36_[5-9]", "ends a job and five tasks of an array"},
			{"scancel --me -t PENDING", "ends all your jobs that wait"},
			{"scancel -s USR1 -b 12", "sends SIGUSR1 to the batch script of job 12"},
		},
		run: runScancel,
	}
}

func runScancel(c *call) error {
	req := &apiv1.CancelRequest{Filter: &apiv1.JobFilter{}, Batch: c.opts.On("batch"), Full: c.opts.On("full")}
	steps, err := c.cancelFilter(req.GetFilter())
	if err != nil {
		return err
	}
	if c.opts.On("signal") {
		n, err := format.ParseSignal(c.opts.Text("signal"))
		if err != nil {
			return c.errorf("Unknown job signal: %s", c.opts.Text("signal"))
		}
		req.Signal = int32(n)
	}
	if err := c.checkClusters(); err != nil {
		return err
	}
	failed := c.endSteps(steps, req.GetSignal())
	if len(steps) > 0 && len(req.GetFilter().GetJobs()) == 0 {
		return failed
	}
	if err := c.cancelJobs(req); err != nil {
		return err
	}
	return failed
}

// cancelJobs ends or signals what a filter names.
func (c *call) cancelJobs(req *apiv1.CancelRequest) error {
	if err := c.chooseJobs(req); err != nil {
		return err
	}
	if req.GetFilter() == nil {
		return nil // nothing was chosen
	}
	if c.opts.On("verbose") {
		c.sayCancel(req)
	}
	var rep apiv1.JobResults
	if err := c.ask(methodCancel, req, &rep); err != nil {
		return err
	}
	return c.cancelResults(req, &rep)
}

// endSteps ends or signals steps, each by itself.
func (c *call) endSteps(steps []string, sig int32) error {
	code := 0
	for _, id := range steps {
		job, n, _ := stepID(id)
		if c.opts.On("verbose") {
			fmt.Fprintf(c.Stderr, "scancel: Terminating step %s\n", id)
		}
		err := c.ask(methodEndStep, &apiv1.EndStepRequest{Job: job, Step: n, Signal: sig}, &apiv1.EndStepReply{})
		if err == nil {
			continue
		}
		r := explainError(err)
		if r.code == 0 || r.code == spec.CodeUnreachable {
			return err
		}
		if code = int(r.code) & 0xff; !c.opts.On("quiet") {
			fmt.Fprintf(c.Stderr, "scancel: error: Kill job error on job step id %s: %s\n", id, r.text)
		}
	}
	if code != 0 {
		return exit(code)
	}
	return nil
}

// stepID reads 12.0 or 36_4.0.
func stepID(id string) (job string, step int32, ok bool) {
	job, number, _ := strings.Cut(id, ".")
	n, err := strconv.ParseUint(number, 10, 31)
	return job, int32(n), err == nil && validTarget(job)
}

// cancelFilter reads ids and filters; the steps among the ids are told apart.
func (c *call) cancelFilter(f *apiv1.JobFilter) (steps []string, err error) {
	for _, arg := range c.args {
		for _, id := range splitJobs(arg) {
			switch {
			case strings.Contains(id, "."):
				if _, _, ok := stepID(id); !ok {
					return nil, c.errorf("Invalid job id %s", id)
				}
				steps = append(steps, id)
			case !validTarget(id):
				return nil, c.errorf("Invalid job id %s", id)
			default:
				f.Jobs = append(f.Jobs, id)
			}
		}
	}
	if err := c.cancelOptions(f, len(steps) > 0); err != nil || len(steps) == 0 {
		return steps, err
	}
	if o := c.opts; !proto.Equal(f, &apiv1.JobFilter{Jobs: f.GetJobs()}) || o.On("interactive") || o.On("wckey") || o.On("batch") {
		return nil, c.errorf("%s: --interactive, --batch and the filters are for jobs: name a step without them", steps[0])
	}
	return steps, nil
}

// cancelOptions reads the filters; something must be named.
func (c *call) cancelOptions(f *apiv1.JobFilter, named bool) error {
	o := c.opts
	f.Accounts, f.Names, f.Partitions, f.Qos, f.Users = o.List("account"), o.List("jobname"), o.List("partition"), o.List("qos"), o.List("user")
	f.Reservations = o.List("reservation")
	if o.On("name") {
		f.Names = append(f.Names, o.List("name")...)
	}
	if o.On("me") {
		f.Users = []string{itoa(c.UID)}
	}
	if o.On("nodelist") {
		names, err := hostlist.Expand(o.Text("nodelist"))
		if err != nil {
			return c.errorf("%v", err)
		}
		f.Nodes = names
	}
	if o.On("state") {
		states, completing, all, bad := parseStates(o.Text("state"))
		if bad != "" || all || slices.Contains(states, 0) || slices.ContainsFunc(states, func(s uint32) bool { return spec.JobState(s).Terminal() }) {
			return c.errorf("Invalid job state %s", or(bad, o.Text("state")))
		}
		if onlyConfiguring(o.Text("state")) {
			return c.errorf("Invalid job state %s: jobs whose nodes boot are cancelled with RUNNING, or by their ids", o.Text("state"))
		}
		f.States, f.Completing = states, completing
	}
	if len(f.Jobs)+len(f.Accounts)+len(f.Names)+len(f.Partitions)+len(f.Qos)+len(f.Reservations)+len(f.Users)+len(f.Nodes)+len(f.States) == 0 && !o.On("wckey") && !named {
		return c.errorf("No job identification provided")
	}
	return nil
}

// validJob tells what can name a job: 12, 36_4, 36_[1-3,7].
func validJob(id string) bool {
	num, task, isTask := strings.Cut(id, "_")
	if n := digitsOf(num); n == 0 || n != len(num) || strings.Trim(num, "0") == "" {
		return false
	}
	if !isTask || task == "*" {
		return true
	}
	_, err := format.ParseArray(task)
	return err == nil
}

// chooseJobs resolves what the controller does not filter by: -i and --wckey.
// The request's filter is nil afterwards if nothing is left.
func (c *call) chooseJobs(req *apiv1.CancelRequest) error {
	ask, key := c.opts.On("interactive"), c.opts.Text("wckey")
	if !ask && key == "" {
		return nil
	}
	var rep apiv1.ListJobsReply
	if err := c.listJobs(&apiv1.ListJobsRequest{Filter: req.GetFilter()}, &rep); err != nil {
		return err
	}
	view := &jobView{clock: c.clock(), env: c.Env}
	lines := bufio.NewScanner(c.Stdin)
	var chosen []string
	for _, j := range rep.GetJobs() {
		r := jobRow{JobInfo: j, task: -1}
		id := view.id(r)
		if r.isArray() {
			id = itoa(j.GetArrayJobId()) + "_[" + format.Array{Ranges: arrayRanges(j)}.String() + "]"
		}
		if key != "" && j.GetSpec().GetWckey() != key {
			continue
		}
		if ask {
			fmt.Fprintf(c.Stderr, "Cancel job_id=%s name=%s partition=%s [y/n]? ", id, j.GetSpec().GetName(), j.GetPartition())
			if !lines.Scan() {
				break
			}
			if answer := strings.ToLower(strings.TrimSpace(lines.Text())); answer != "y" && answer != "yes" {
				continue
			}
		}
		chosen = append(chosen, id)
	}
	if req.Filter = nil; len(chosen) > 0 {
		req.Filter = &apiv1.JobFilter{Jobs: chosen}
	}
	return nil
}

func arrayRanges(j *apiv1.JobInfo) []format.Range {
	var out []format.Range
	for _, r := range j.GetArrayTasks() {
		out = append(out, format.Range{First: uint32(r.GetFirst()), Last: uint32(r.GetLast()), Step: uint32(max(r.GetStep(), 1))})
	}
	return out
}

func (c *call) sayCancel(req *apiv1.CancelRequest) {
	for _, id := range req.GetFilter().GetJobs() {
		if req.GetSignal() != 0 {
			fmt.Fprintf(c.Stderr, "scancel: Signal %d to job %s\n", req.GetSignal(), id)
		} else {
			fmt.Fprintf(c.Stderr, "scancel: Terminating job %s\n", id)
		}
	}
}

// cancelResults prints the errors: one line for each job as it was named. What
// does not exist or has ended is said only with -v.
func (c *call) cancelResults(req *apiv1.CancelRequest, rep *apiv1.JobResults) error {
	named := req.GetFilter().GetJobs()
	code := 0
	said := map[string]bool{}
	for _, r := range rep.GetResults() {
		if r.GetError() == nil {
			continue
		}
		name := r.GetJob()
		if base, _, ok := strings.Cut(name, "_"); ok && slices.Contains(named, base) {
			name = base
		}
		e := r.GetError()
		quiet := spec.Code(e.GetCode()) == spec.CodeInvalidJobID || spec.Code(e.GetCode()) == spec.CodeAlreadyDone
		line := fmt.Sprintf("scancel: error: Kill job error on job id %s: %s", name, e.GetText())
		if e.GetDetail() != "" && !quiet {
			line += " (" + e.GetDetail() + ")"
		}
		if !quiet {
			code = int(e.GetCode()) & 0xff
		}
		if (!quiet || c.opts.On("verbose")) && !c.opts.On("quiet") && !said[line] {
			said[line] = true
			fmt.Fprintln(c.Stderr, line)
		}
	}
	if code != 0 {
		return exit(code)
	}
	return nil
}
