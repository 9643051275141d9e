package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/spec"
)

func sbatchCommand() *command {
	c := &command{
		name: "sbatch", slurm: true, ownVerbose: true, badUsage: 255, ownPrecedence: true,
		summary: "submit a batch script",
		usage:   []string{"[OPTIONS] SCRIPT [ARGUMENTS]", "[OPTIONS] : [OPTIONS] SCRIPT [ARGUMENTS]", "[OPTIONS] --wrap=COMMAND", "[OPTIONS] < SCRIPT"},
		about: `Options may also stand in the script, behind #SBATCH, up to its first command, and in variables. The command
line wins over variables, and variables over the script. What follows the script's name goes to the script.

A : between options, or a line #SBATCH hetjob, begins another component of a heterogeneous job: components have their
own resources and start together; the script runs in the first.

When the job's number is printed, the job is on disk: a crash of the controller does not lose it.`,
		env: []variable{
			{"SLURM_EXIT_ERROR", "exit code when the job cannot be submitted, instead of 1"},
			{"SBATCH_WAIT4SWITCH", "the time of --switches"},
			{"SLURM_UMASK", "the job's umask, in octal, instead of this shell's"},
		},
		exits: []variable{{"255", "an option cannot be read"}, {"with --wait", "the job's exit code; 1 when a signal ended it; of an array the largest"}},
		example: []example{
			{"sbatch -p gpu --gres=gpu:1 -t 1:00:00 train.sh --epochs 10", "submits train.sh with its arguments"},
			{"sbatch --parsable -a 0-99%10 --wrap 'work $SLURM_ARRAY_TASK_ID'", "submits an array of which ten run at a time, and prints only its number"},
			{"sbatch --test-only -N 4 --gres=gpu:8 big.sh", "says when and where it would start"},
		},
		run: runSbatch,
	}
	all := jobOptions()
	c.options = make([]opt.Option, len(all))
	for i := range all {
		c.options[i] = all[i].Option
	}
	return c
}

// submission is what one sbatch sends.
type submission struct {
	spec   *apiv1.JobSpec
	rest   []*apiv1.JobSpec // further components of a heterogeneous job
	script []byte
	env    []byte
}

func runSbatch(c *call) error {
	sub, err := c.submission()
	if err != nil {
		return err
	}
	if err := c.checkClusters(); err != nil {
		return err
	}
	if c.opts.On("verbose") {
		c.printOptions()
	}
	req := &apiv1.SubmitRequest{Spec: sub.spec, Rest: sub.rest, Script: &apiv1.Blob{Data: sub.script}, Environment: &apiv1.Blob{Data: sub.env}, TestOnly: c.opts.On("test-only")}
	var rep apiv1.SubmitReply
	if err := c.ask(methodSubmit, req, &rep); err != nil {
		return c.submitFailed(err, req.GetTestOnly())
	}
	if req.GetTestOnly() {
		c.sayTested(&rep)
		return nil
	}
	for line := range strings.Lines(rep.GetMessage()) {
		fmt.Fprintf(c.Stderr, "%s: %s\n", c.cmd.name, strings.TrimRight(line, "\n"))
	}
	if err := c.announce(rep.GetJobId()); err != nil || !c.opts.On("wait") {
		return err
	}
	return c.waitForJob(&rep, len(sub.spec.GetArray()) > 0)
}

// announce prints the job's number.
func (c *call) announce(id uint32) error {
	cluster := ""
	if c.opts.On("clusters") {
		cluster = c.opts.List("clusters")[0]
	}
	var err error
	switch {
	case c.opts.On("parsable") && cluster != "":
		_, err = fmt.Fprintf(c.out, "%d;%s\n", id, cluster)
	case c.opts.On("parsable"):
		_, err = fmt.Fprintf(c.out, "%d\n", id)
	case c.opts.On("quiet"):
	case cluster != "":
		_, err = fmt.Fprintf(c.out, "Submitted batch job %d on cluster %s\n", id, cluster)
	default:
		_, err = fmt.Fprintf(c.out, "Submitted batch job %d\n", id)
	}
	if err == nil {
		err = c.out.Flush() // it is wanted now, also when we go on to wait
	}
	return err
}

// submission makes the request of options, script and environment.
func (c *call) submission() (*submission, error) {
	groups, err := c.hetGroups()
	if err != nil {
		return nil, err
	}
	script, command, name, err := c.script()
	if err != nil {
		return nil, err
	}
	lists := make([][][]string, 1)
	if !c.opts.On("wrap") {
		if lists, err = hetDirectives(c.cmd.name, script); err != nil {
			return nil, err
		}
	}
	var specs []*apiv1.JobSpec
	var first *opt.Values
	for i := range max(len(groups), len(lists)) {
		final := opt.New()
		if i < len(lists) {
			if err := scriptOptions(c.cmd.set(), lists[i], final); err != nil {
				return nil, err
			}
		}
		if err := c.cmd.set().FromEnviron(c.Lookup, isNo, final); err != nil {
			return nil, err
		}
		if i < len(groups) {
			if _, err := c.cmd.set().Parse(groups[i], final, opt.FromCommand); err != nil {
				return nil, err
			}
		}
		if c.typed != nil && c.typed.staysHome(final) {
			return nil, errHome
		}
		if i == 0 {
			first = final
		}
		js := &apiv1.JobSpec{Name: name, WorkDir: c.Dir, Command: command, SubmitLine: c.submitLine(), SubmitHost: c.Host,
			Umask: c.umask(), Rlimits: c.Rlimits()}
		if len(c.args) > 0 && !c.opts.On("wrap") {
			js.Args = c.args[1:]
		}
		if err := c.request(js, final); err != nil {
			return nil, err
		}
		specs = append(specs, js)
	}
	wrap := c.opts.On("wrap")
	if c.opts = first; wrap && !first.On("wrap") {
		first.Put("wrap", "", true, opt.FromCommand)
	}
	env, err := c.jobEnvironment()
	if err != nil {
		return nil, err
	}
	return &submission{spec: specs[0], rest: specs[1:], script: script, env: env.bytes()}, nil
}

// hetGroups are the words of the command line for each component of a
// heterogeneous job, which : separates; mostly there is one. What is left of
// the command line then is the script with its arguments.
func (c *call) hetGroups() ([][]string, error) {
	words := c.ownArgs()
	var out [][]string
	for len(c.args) > 0 && c.args[0] == ":" {
		out = append(out, words[:len(words)-len(c.args)])
		words = c.args[1:]
		group := opt.New()
		left, err := c.cmd.set().Parse(words, group, opt.FromCommand)
		if err != nil {
			return nil, err
		}
		if c.args = left; group.On("wrap") && !c.opts.On("wrap") {
			c.opts.Put("wrap", group.Text("wrap"), true, opt.FromCommand)
		}
	}
	return append(out, words), nil
}

// request applies options to a job.
func (c *call) request(js *apiv1.JobSpec, final *opt.Values) error {
	r := &jobRequest{name: c.cmd.name, env: c.Env, spec: js, opts: final}
	for _, o := range jobOptions() {
		v, ok := final.Get(o.Long)
		if !ok || o.apply == nil {
			continue
		}
		if err := o.apply(r, v); err != nil {
			return err
		}
		if o.Warn != "" && !final.On("quiet") && !strings.EqualFold(v.Text, "none") {
			fmt.Fprintf(c.Stderr, "%s: warning: --%s: %s\n", c.cmd.name, o.Long, o.Warn)
		}
	}
	if err := r.memoryOptions(); err != nil {
		return err
	}
	return c.switchWait(js)
}

// ownArgs are the arguments behind the command's name.
func (c *call) ownArgs() []string {
	if baseName(c.Args[0]) == c.cmd.name {
		return c.Args[1:]
	}
	return c.Args[2:]
}

// submitLine is the command line as sacct and scontrol show it.
func (c *call) submitLine() string {
	return strings.Join(append([]string{c.cmd.name}, c.ownArgs()...), " ")
}

func (c *call) umask() uint32 {
	if text, ok := c.Lookup("SLURM_UMASK"); ok {
		if n, err := strconv.ParseUint(text, 8, 12); err == nil {
			return uint32(n)
		}
	}
	return c.Umask()
}

// switchWait is the variable for which --switches has no place of its own.
func (c *call) switchWait(js *apiv1.JobSpec) error {
	text, ok := c.Lookup("SBATCH_WAIT4SWITCH")
	if !ok || js.GetSwitches() == 0 || js.GetSwitchWait() != 0 {
		return nil
	}
	r := &jobRequest{name: c.cmd.name, env: c.Env, spec: js}
	return applySwitches(r, opt.Value{Text: fmt.Sprintf("%d@%s", js.GetSwitches(), text)})
}

// script reads the batch script; command is its path, empty for --wrap and
// standard input.
func (c *call) script() (script []byte, command, name string, err error) {
	switch {
	case c.opts.On("wrap") && len(c.args) > 0:
		return nil, "", "", fail(1, c.cmd.name+": error: Script arguments not permitted with --wrap option")
	case c.opts.On("wrap"):
		return wrapScript(c.opts.Text("wrap")), "", "wrap", nil
	case len(c.args) > 0:
		command, script, err = c.openScript(c.args[0])
		switch {
		case errors.Is(err, errHome):
			return nil, "", "", err
		case errors.Is(err, errNotFound):
			return nil, "", "", fail(1, fmt.Sprintf("%s: error: Unable to open file %s", c.cmd.name, c.args[0]))
		case err != nil:
			return nil, "", "", fail(1, fmt.Sprintf("%s: error: Unable to open file %s: %v", c.cmd.name, c.args[0], err))
		}
		name = baseName(command)
	case c.typed != nil:
		c.typed.home = true // the script comes on standard input
		return nil, "", "", errHome
	default:
		if c.Terminal(c.Stdin) {
			fmt.Fprintf(c.Stderr, "%s: reading the script from the terminal; end it with Ctrl-D\n", c.cmd.name)
		}
		if script, err = readAll(c.Stdin, maxScript); err != nil {
			return nil, "", "", fail(1, fmt.Sprintf("%s: error: reading the script: %v", c.cmd.name, err))
		}
		name = "sbatch"
	}
	return script, command, name, checkScript(c.cmd.name, script)
}

// printOptions is -v: what holds after all sources were read.
func (c *call) printOptions() {
	var names []string
	for _, o := range c.cmd.allOptions() {
		if c.opts.On(o.Long) {
			names = append(names, o.Long)
		}
	}
	sort.Strings(names)
	say := func(format string, args ...any) { fmt.Fprintf(c.Stderr, c.cmd.name+": "+format+"\n", args...) }
	say("defined options")
	say("-------------------- --------------------")
	for _, n := range names {
		v, _ := c.opts.Get(n)
		text := v.Text
		switch {
		case n == "verbose":
			text = strconv.Itoa(v.Count)
		case !v.Has && text == "":
			text = "set"
		}
		say("%-20s: %s", n, text)
	}
	say("-------------------- --------------------")
	say("end of defined options")
}

// unknownOutcome tells what to do when the connection broke after the request was sent.
const unknownOutcome = "whether the job was accepted is not known: look with squeue --me before submitting it again"

// submitFailed words a refusal as sbatch does.
func (c *call) submitFailed(err error, testOnly bool) error {
	r := explainError(err)
	code := 1
	if n, nerr := strconv.Atoi(c.Getenv("SLURM_EXIT_ERROR")); nerr == nil {
		code = n
	}
	lines := r.before(c.cmd.name)
	switch {
	case testOnly:
		lines = append(lines, "allocation failure: "+r.text)
	case r.code == spec.CodeInvalidGRES:
		lines = append(lines, c.cmd.name+": error: "+r.text) // Slurm finds this one before it submits
	default:
		lines = append(lines, c.cmd.name+": error: Batch job submission failed: "+r.text)
	}
	if r.lost {
		lines = append(lines, c.cmd.name+": error: "+unknownOutcome)
	}
	return fail(code, lines...)
}

// time writes nanoseconds since 1970 as every command does.
func (c *call) time(ns int64) string { return c.clock().time(ns) }

// Waits between attempts to reach a controller that went away under --wait.
const (
	firstWait = time.Second
	longWait  = 30 * time.Second
)

// waitForJob is --wait: it follows the job to its end, over restarts of the
// controller, and returns its exit code.
func (c *call) waitForJob(rep *apiv1.SubmitReply, array bool) error {
	req := &apiv1.WatchJobRequest{Uid: rep.GetUid(), JobId: rep.GetJobId(), UntilEnd: true}
	var last *apiv1.JobInfo
	told := false
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		var err error
		if last, err = c.watch(req); err == nil {
			break
		}
		if told && explainError(err).code == spec.CodeInvalidJobID {
			if last, err = c.endedLongAgo(rep.GetJobId()); err == nil {
				break // over, and forgotten by the controller, while that was away
			}
		}
		if !wentAway(err) {
			return c.errorf("waiting for job %d: %s", rep.GetJobId(), explainError(err).text)
		}
		if !told {
			told = true
			fmt.Fprintf(c.Stderr, "%s: the controller went away; waiting for it, job %d is safe\n", c.cmd.name, rep.GetJobId())
		}
		c.conn = nil
		c.Pause(c.ctx, wait)
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
	}
	jobs := []*apiv1.JobInfo{last}
	if array {
		var list apiv1.ListJobsReply
		filter := &apiv1.JobFilter{Jobs: []string{strconv.FormatUint(uint64(rep.GetJobId()), 10)}, AllStates: true}
		if err := c.ask(methodListJobs, &apiv1.ListJobsRequest{Filter: filter}, &list); err != nil {
			return c.errorf("waiting for job %d: %s", rep.GetJobId(), explainError(err).text)
		}
		jobs = append(jobs, list.GetJobs()...)
	}
	worst := 0
	for _, j := range jobs {
		worst = max(worst, exitOf(j))
	}
	if worst == 0 {
		return nil
	}
	return exit(worst)
}

// wentAway tells that the controller is being restarted, or is not there.
func wentAway(err error) bool {
	var st *status.Error
	var gone *unreachable
	if errors.As(err, &gone) || explainError(err).code == spec.CodeStopping {
		return true
	}
	return errors.As(err, &st) && st.Number == 0 && st.Wire == status.Unavailable
}

// endedLongAgo asks accounting for the end of a job.
func (c *call) endedLongAgo(id uint32) (*apiv1.JobInfo, error) {
	var past apiv1.ReasonsReply
	if err := c.ask(methodAcctReasons, &apiv1.ReasonsQuery{Job: itoa(id)}, &past); err != nil {
		return nil, err
	}
	j := pastJob(past.GetRun())
	if past.GetRun().GetEnd() == 0 {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	return j, nil
}

// watch follows a job until it has ended, and gives its final record.
func (c *call) watch(req *apiv1.WatchJobRequest) (*apiv1.JobInfo, error) {
	conn, err := c.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	stream, err := conn.Stream(ctx, methodWatchJob, req)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var last *apiv1.JobInfo
	for {
		j := &apiv1.JobInfo{}
		err := stream.Recv(j)
		switch {
		case errors.Is(err, io.EOF) && last != nil:
			return last, nil
		case errors.Is(err, io.EOF):
			return nil, status.New(status.Unavailable, "the controller ended the stream")
		case err != nil:
			return nil, err
		}
		last = j
	}
}

// exitOf is the exit code with which --wait ends: the job's own, 1 after a
// signal or an end that has none.
func exitOf(j *apiv1.JobInfo) int {
	state := spec.JobState(j.GetState())
	switch {
	case j.GetExitCode() != 0:
		return int(j.GetExitCode() & 0xff)
	case j.GetExitSignal() != 0 || (state.Terminal() && state != spec.Completed):
		return 1
	}
	return 0
}
