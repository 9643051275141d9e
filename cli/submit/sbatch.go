package submit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/luascript"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

func Sbatch() *tool.Command {
	command := &tool.Command{
		Name: "sbatch", Slurm: true, OwnVerbose: true, BadUsage: 255, OwnPrecedence: true,
		Summary: "submit a batch script",
		Usage: []string{
			"[OPTIONS] SCRIPT [ARGUMENTS]",
			"[OPTIONS] : [OPTIONS] SCRIPT [ARGUMENTS]",
			"[OPTIONS] --wrap=COMMAND",
			"[OPTIONS] < SCRIPT",
		},
		About: `Options can also be given on #SBATCH lines before the first command of the script, or in
environment variables. The command line overrides environment variables, which override the script.
Arguments after the script are passed to the script.

A : between options, or a line #SBATCH hetjob, starts the next component of a heterogeneous job. Components
have their own resources and start together; the script runs in the first.

The job id is printed only after the job is on disk: a crash of the controller does not lose it.`,
		Env: []tool.Variable{
			{Name: "SBATCH_DEBUG", Help: "as many -v as this number"},
			{
				Name: "SLURM_EXIT_ERROR",
				Help: "exit code when the job cannot be submitted, instead of 1",
			},
			{Name: "SBATCH_WAIT4SWITCH", Help: "the time of --switches"},
			{Name: "SLURM_UMASK", Help: "the job's umask, in octal, instead of this shell's"},
		},
		Exits: []tool.Variable{
			{Name: "255", Help: "invalid option"},
			{
				Name: "with --wait",
				Help: "exit code of the job; 1 if a signal ended it; for an array, the largest",
			},
		},
		Example: []tool.Example{
			{
				Line: "sbatch -p gpu --gres=gpu:1 -t 1:00:00 train.sh --epochs 10",
				What: "submits train.sh with its arguments",
			},
			{
				Line: "sbatch --parsable -a 0-99%10 --wrap 'work $SLURM_ARRAY_TASK_ID'",
				What: "submits an array of which ten run at a time, and prints only its number",
			},
			{
				Line: "sbatch --test-only -N 4 --gres=gpu:8 big.sh",
				What: "prints when and where it would start",
			},
		},
		Run: runSbatch,
	}
	all := JobOptions()
	command.Options = make([]opt.Option, len(all))
	for i := range all {
		command.Options[i] = all[i].Option
	}
	return command
}

// submission is what one sbatch sends.
type submission struct {
	spec   *apiv1.JobSpec
	rest   []*apiv1.JobSpec // further components of a heterogeneous job
	script []byte
	env    []byte
}

func runSbatch(call *tool.Call) error {
	filter, err := loadFilter(call)
	if err != nil {
		return err
	}
	sub, err := newSubmission(call, filter)
	if err != nil {
		return err
	}
	if isVerbose(call, "SBATCH_DEBUG") {
		printOptions(call)
	}
	owner, err := readOwner(call)
	if err != nil {
		return err
	}
	request := &apiv1.SubmitRequest{
		Owner:       owner,
		Spec:        sub.spec,
		Rest:        sub.rest,
		Script:      &apiv1.Blob{Data: sub.script},
		Environment: &apiv1.Blob{Data: sub.env},
		TestOnly:    call.Opts.On("test-only"),
		Request:     call.RequestNumber(),
	}
	return inEarliest(call, request, func(call *tool.Call) error {
		return submitBatch(call, request, filter)
	})
}

// submitBatch submits in the cluster of a call.
func submitBatch(call *tool.Call, request *apiv1.SubmitRequest, filter *siteFilter) error {
	specs := append([]*apiv1.JobSpec{request.GetSpec()}, request.GetRest()...)
	display, err := displayFor(call, specs)
	if err != nil {
		return err
	}
	var reply apiv1.SubmitReply
	if err := call.RPC(tool.MethodSubmit, request, &reply); err != nil {
		return submitFailed(call, err, request.GetTestOnly())
	}
	if request.GetTestOnly() {
		sayTested(call, &reply)
		return nil
	}
	for line := range strings.Lines(reply.GetMessage()) {
		fmt.Fprintf(call.Stderr, "%s: %s\n", call.Command.Name, strings.TrimRight(line, "\n"))
	}
	filter.tellSubmitted(reply.GetJobId(), luascript.BatchStep)
	if display != nil {
		if err := forwardSubmitted(call, &reply, specs); err != nil {
			return err
		}
	}
	if err := announceJob(call, reply.GetJobId()); err != nil || !call.Opts.On("wait") {
		return err
	}
	return waitForJob(call, &reply, len(request.GetSpec().GetArray()) > 0)
}

// announceJob prints the job's number.
func announceJob(call *tool.Call, id uint32) error {
	cluster := call.NamedCluster()
	var err error
	switch {
	case call.Opts.On("parsable") && cluster != "":
		_, err = fmt.Fprintf(call.Out, "%d;%s\n", id, cluster)
	case call.Opts.On("parsable"):
		_, err = fmt.Fprintf(call.Out, "%d\n", id)
	case call.Opts.On("quiet"):
	case cluster != "":
		_, err = fmt.Fprintf(call.Out, "Submitted batch job %d on cluster %s\n", id, cluster)
	default:
		_, err = fmt.Fprintf(call.Out, "Submitted batch job %d\n", id)
	}
	if err == nil {
		err = call.Out.Flush() // it is wanted now, also when we go on to wait
	}
	return err
}

// newSubmission makes the request of options, script and environment.
func newSubmission(call *tool.Call, filter *siteFilter) (*submission, error) {
	groups, err := hetGroups(call)
	if err != nil {
		return nil, err
	}
	script, command, name, err := readScript(call)
	if err != nil {
		return nil, err
	}
	lists := make([][][]string, 1)
	if !call.Opts.On("wrap") {
		lists, err = hetDirectives(call.Command.Name, script)
		if err != nil {
			return nil, err
		}
	}
	var specs []*apiv1.JobSpec
	var first *opt.Values
	for i := range max(len(groups), len(lists)) {
		final := opt.New()
		if i < len(lists) {
			if err := scriptOptions(call.Command.Set(), lists[i], final); err != nil {
				return nil, err
			}
		}
		if err := call.Command.Set().FromEnviron(call.Lookup, tool.IsNo, final); err != nil {
			return nil, err
		}
		if i < len(groups) {
			if _, err := call.Command.Set().Parse(groups[i], final, opt.FromCommand); err != nil {
				return nil, err
			}
		}
		if call.Relay != nil && call.Relay.StaysHome(final) {
			return nil, errHome
		}
		if err := filter.applyScript(final, i); err != nil {
			return nil, err
		}
		if i == 0 {
			first = final
		}
		jobSpec := &apiv1.JobSpec{
			Name:       name,
			WorkDir:    call.Dir,
			Command:    command,
			SubmitLine: submitLine(call),
			SubmitHost: call.Host,
			Umask:      currentUmask(call),
			Rlimits:    call.Rlimits(),
		}
		if len(call.Operands) > 0 && !call.Opts.On("wrap") {
			jobSpec.Args = call.Operands[1:]
		}
		if err := applyOptions(call, jobSpec, final); err != nil {
			return nil, err
		}
		if i > 0 && !final.On("job-name") {
			jobSpec.Name = "" // that of the first
		}
		specs = append(specs, jobSpec)
	}
	wrap := call.Opts.On("wrap")
	call.Opts = first
	if wrap && !first.On("wrap") {
		first.Put("wrap", "", true, opt.FromCommand)
	}
	env, login, err := jobEnvironment(call)
	if err != nil {
		return nil, err
	}
	if login {
		if err := readLogin(call, specs); err != nil {
			return nil, err
		}
	}
	return &submission{spec: specs[0], rest: specs[1:], script: script, env: env.encodeEnv()}, nil
}

// readLogin has the node read the login environment for the batch script. In a
// container the environment is that of the image, so that --get-user-env is refused;
// with --export there the script has what is exported.
func readLogin(call *tool.Call, list []*apiv1.JobSpec) error {
	for _, jobSpec := range list {
		switch {
		case jobSpec.GetContainer() == nil:
			if jobSpec.Login == nil {
				jobSpec.Login = &apiv1.LoginShell{}
			}
		case call.Opts.On("get-user-env"):
			return tool.Fail(1, call.Command.Name+
				": error: --get-user-env reads the login files of the node, which a container does not have: "+
				"leave one of the two out")
		default:
			jobSpec.Login = nil
		}
	}
	return nil
}

// hetGroups are the words of the command line for each component of a
// heterogeneous job, which : separates; mostly there is one. What is left of
// the command line then is the script with its arguments.
func hetGroups(call *tool.Call) ([][]string, error) {
	words := ownArgs(call)
	var out [][]string
	for len(call.Operands) > 0 && call.Operands[0] == ":" {
		out = append(out, words[:len(words)-len(call.Operands)])
		words = call.Operands[1:]
		group := opt.New()
		left, err := call.Command.Set().Parse(words, group, opt.FromCommand)
		if err != nil {
			return nil, err
		}
		call.Operands = left
		if group.On("wrap") && !call.Opts.On("wrap") {
			call.Opts.Put("wrap", group.Text("wrap"), true, opt.FromCommand)
		}
	}
	return append(out, words), nil
}

// switchWait is the variable for which --switches has no place of its own.
func switchWait(call *tool.Call, jobSpec *apiv1.JobSpec) error {
	name := map[string]string{"srun": "SLURM_WAIT4SWITCH", "salloc": "SALLOC_WAIT4SWITCH"}[call.Command.Name]
	text, ok := call.Lookup(cmp.Or(name, "SBATCH_WAIT4SWITCH"))
	if !ok || jobSpec.GetSwitches() == 0 || jobSpec.GetSwitchWait() != 0 {
		return nil
	}
	request := &jobRequest{name: call.Command.Name, env: call.Env, spec: jobSpec}
	return applySwitches(
		request, opt.Value{Text: fmt.Sprintf("%d@%s", jobSpec.GetSwitches(), text)},
	)
}

// readScript reads the batch script; command is its path, empty for --wrap and
// standard input.
func readScript(call *tool.Call) (script []byte, command, name string, err error) {
	switch {
	case call.Opts.On("wrap") && len(call.Operands) > 0:
		return nil, "", "", tool.Fail(1, call.Command.Name+
			": error: Script arguments not permitted with --wrap option")
	case call.Opts.On("wrap"):
		return wrapScript(call.Opts.Text("wrap")), "", "wrap", nil
	case len(call.Operands) > 0:
		command, script, err = openScript(call.Env, call.Operands[0])
		switch {
		case errors.Is(err, errHome):
			return nil, "", "", err
		case errors.Is(err, errNotFound):
			return nil, "", "", tool.Fail(
				1,
				fmt.Sprintf(
					"%s: error: Unable to open file %s",
					call.Command.Name,
					call.Operands[0],
				),
			)
		case err != nil:
			return nil, "", "", tool.Fail(
				1,
				fmt.Sprintf(
					"%s: error: Unable to open file %s: %v",
					call.Command.Name,
					call.Operands[0],
					err,
				),
			)
		}
		name = tool.BaseName(command)
	case call.Relay != nil:
		call.Relay.SendHome() // the script comes on standard input
		return nil, "", "", errHome
	default:
		if call.Terminal(call.Stdin) {
			fmt.Fprintf(
				call.Stderr,
				"%s: reading the script from the terminal; end it with Ctrl-D\n",
				call.Command.Name,
			)
		}
		script, err = tool.ReadAll(call.Stdin, maxScript)
		if err != nil {
			return nil, "", "", tool.Fail(
				1,
				fmt.Sprintf("%s: error: reading the script: %v", call.Command.Name, err),
			)
		}
		name = "sbatch"
	}
	return script, command, name, checkScript(call.Command.Name, script)
}

// waitForJob is --wait: it follows the job to its end, over restarts of the
// controller, and returns its exit code.
func waitForJob(call *tool.Call, reply *apiv1.SubmitReply, array bool) error {
	request := &apiv1.WatchJobRequest{Uid: reply.GetUid(), JobId: reply.GetJobId(), UntilEnd: true}
	var last *apiv1.JobInfo
	told := false
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		var err error
		last, err = watchJob(call, request)
		if err == nil {
			break
		}
		if told && tool.ExplainError(err).Code == spec.CodeInvalidJobID {
			last, err = endedLongAgo(call, reply.GetJobId())
			if err == nil {
				break // over, and forgotten by the controller, while that was away
			}
		}
		if !fetch.ControllerGone(err) {
			return call.Errorf(
				"waiting for job %d: %s",
				reply.GetJobId(),
				tool.ExplainError(err).Text,
			)
		}
		if !told {
			told = true
			fmt.Fprintf(
				call.Stderr,
				"%s: the controller went away; waiting for it, job %d is safe\n",
				call.Command.Name,
				reply.GetJobId(),
			)
		}
		call.Conn = nil
		call.Pause(call.Ctx, wait)
		if call.Ctx.Err() != nil {
			return call.Ctx.Err()
		}
	}
	jobs := []*apiv1.JobInfo{last}
	if array {
		var list apiv1.ListJobsReply
		filter := &apiv1.JobFilter{
			Jobs:      []string{strconv.FormatUint(uint64(reply.GetJobId()), 10)},
			AllStates: true,
		}
		if err := call.RPC(tool.MethodListJobs, &apiv1.ListJobsRequest{Filter: filter}, &list); err != nil {
			return call.Errorf(
				"waiting for job %d: %s",
				reply.GetJobId(),
				tool.ExplainError(err).Text,
			)
		}
		jobs = append(jobs, list.GetJobs()...)
	}
	worst := 0
	for _, job := range jobs {
		worst = max(worst, exitOf(job))
	}
	if worst == 0 {
		return nil
	}
	return tool.ExitCode(worst)
}

// endedLongAgo asks accounting for the end of a job.
func endedLongAgo(call *tool.Call, id uint32) (*apiv1.JobInfo, error) {
	var past apiv1.ReasonsReply
	if err := call.RPC(tool.MethodAcctReasons, &apiv1.ReasonsQuery{Job: tool.Itoa(id)}, &past); err != nil {
		return nil, err
	}
	job := fetch.JobOfRow(past.GetRun())
	if past.GetRun().GetEnd() == 0 {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	return job, nil
}

// watchJob follows a job until it has ended, and gives its final record.
func watchJob(call *tool.Call, request *apiv1.WatchJobRequest) (*apiv1.JobInfo, error) {
	conn, err := call.Connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(call.Ctx)
	defer cancel()
	stream, err := conn.Stream(ctx, tool.MethodWatchJob, request)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	var last *apiv1.JobInfo
	for {
		job := &apiv1.JobInfo{}
		err := stream.Recv(job)
		switch {
		case errors.Is(err, io.EOF) && last != nil:
			return last, nil
		case errors.Is(err, io.EOF):
			return nil, rpcstatus.New(rpcstatus.Unavailable, "the controller ended the stream")
		case err != nil:
			return nil, err
		}
		last = job
	}
}

// exitOf is the exit code with which --wait ends: the job's own, 1 after a
// signal or an end that has none.
func exitOf(job *apiv1.JobInfo) int {
	state := spec.JobState(job.GetState())
	switch {
	case job.GetExitCode() != 0:
		return int(job.GetExitCode() & 0xff)
	case job.GetExitSignal() != 0 || (state.Terminal() && state != spec.Completed):
		return 1
	}
	return 0
}
