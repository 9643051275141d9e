package submit

import (
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/stepclient"
	"github.com/musterhpc/muster/spec"
)

func Sattach() *tool.Command {
	return &tool.Command{
		Name: "sattach", Slurm: true, OwnVerbose: true,
		Summary: "attach to the output of a running step",
		Usage:   []string{"[OPTIONS] JOB.STEP"},
		About: `Shows the output of one of your running steps from now on, in addition to the srun that started
it; root can attach to the steps of other users. Input is sent to the tasks unless their srun has closed it.
Ctrl-C ends sattach only. Any number of sattach commands can attach to a step; one that reads too slowly
loses output and reports it.`,
		Options: sattachOptions(),
		Exits: []tool.Variable{
			{Name: "1", Help: "the step does not exist, or belongs to another user"},
			{
				Name: "as the tasks",
				Help: "the highest exit code of the tasks that ended meanwhile; 128 and the signal for one that a signal ended",
			},
		},
		Example: []tool.Example{
			{Line: "sattach 12.0", What: "shows what step 0 of job 12 writes"},
			{
				Line: "sattach --label --output-filter=3 12.0",
				What: "only the standard output of task 3, with its number",
			},
			{Line: "sattach --layout 12.0", What: "shows on which nodes its tasks run"},
		},
		Run: runSattach,
	}
}

func sattachOptions() []opt.Option {
	return []opt.Option{
		{
			Long: "error-filter",
			Arg:  "<task number>",
			Help: "show the standard error of this task alone",
		},
		{Long: "input-filter", Arg: "<task number>", Help: "send standard input to this task only"},
		{Long: "label", Short: "l", Help: "prefix each line with the task number"},
		{Long: "layout", Help: "print which tasks would run on which nodes, and exit"},
		{
			Long: "output-filter",
			Arg:  "<task number>",
			Help: "show the standard output of this task alone",
		},
		{
			Long:    "pty",
			Refused: "a terminal is bound to the srun that requested it: use srun --overlap --pty",
		},
		{Long: "quiet", Short: "Q", Help: "do not report how tasks ended"},
		{Long: "usage", Short: "u", Help: "print a short form of this help"},
	}
}

func runSattach(call *tool.Call) error {
	if len(call.Operands) != 1 {
		return tool.Fail(1, "sattach: error: name one step: 12.0")
	}
	job, step, ok := tool.ParseStepID(call.Operands[0])
	if !ok {
		return tool.Fail(1, "sattach: error: Invalid job step id "+call.Operands[0])
	}
	var made apiv1.StepCreated
	if err := call.RPC(tool.MethodAttachStep, &apiv1.AttachStepRequest{Job: job, Step: step}, &made); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(
			1,
			append(
				refusal.Preamble(call.Command.Name),
				fmt.Sprintf("sattach: error: step %s: %s", call.Operands[0], refusal.Text),
			)...)
	}
	if call.Opts.On("layout") {
		return call.WriteOut([]byte(stepLayout(&made)))
	}
	return attachStep(call, &made)
}

// stepLayout tells which tasks are where.
func stepLayout(made *apiv1.StepCreated) string {
	var text strings.Builder
	tasks, names := uint32(0), []string(nil)
	for _, part := range partsOf(made) {
		tasks += part.GetTasks()
		for _, node := range part.GetNodes() {
			ranks := make([]string, len(node.GetRanks()))
			for i, r := range node.GetRanks() {
				ranks[i] = tool.Itoa(r)
			}
			fmt.Fprintf(
				&text,
				"  Node %d (%s), %d task(s): %s\n",
				len(names),
				node.GetName(),
				len(ranks),
				strings.Join(ranks, " "),
			)
			names = append(names, node.GetName())
		}
	}
	return fmt.Sprintf(
		"Job step layout:\n  %d tasks, %d nodes (%s)\n\n",
		tasks,
		len(names),
		strings.Join(names, ","),
	) + text.String()
}

// attachStep shows a step until it is over.
func attachStep(call *tool.Call, made *apiv1.StepCreated) error {
	run := &stepRun{c: call, opts: call.Opts, created: made, running: map[uint32]string{}}
	config, tasks := run.stepNodes()
	output := newStepOutput(call, opt.New(), tasks)
	if err := output.addPart(call, opt.New(), &plan.FileFacts{}, 0); err != nil {
		return err
	}
	sinks := &output.parts[0].sinks
	output.label = call.Opts.On("label")
	to := spec.InputAll
	for _, f := range []struct {
		long string
		set  func(rank int64)
	}{{"output-filter", func(n int64) { sinks[0].only = n }}, {"error-filter", func(n int64) { sinks[1].only = n }}, {"input-filter", func(n int64) { to = int32(n) }}} {
		value, ok := call.Opts.Get(f.long)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(value.Text, 10, 31)
		if err != nil || uint32(n) >= tasks {
			return call.Errorf("--%s=%s: the step's tasks are 0 to %d", f.long, value.Text, tasks-1)
		}
		f.set(int64(n))
	}
	var mu sync.Mutex
	worst := 0
	config.Watch, config.Output = true, output.writeTask
	config.Exit = func(node string, exit plan.TaskExit) {
		mu.Lock()
		defer mu.Unlock()
		code, what := endOfTask(&exit)
		worst = max(worst, code)
		if what != "" {
			run.exits.list = append(run.exits.list, taskExit{node, exit.Rank, what})
		}
	}
	config.Notice = func(node, text string) {
		printLine(call, "%s: %s", node, strings.TrimRight(text, "\n"))
	}
	var over error
	config.Ended = func(node string, _ plan.FrameEnd, err error) {
		if errors.Is(err, stepclient.ErrOver) && over == nil {
			over = tool.Fail(1, fmt.Sprintf("sattach: error: node %s: %v", node, err))
		}
	}
	run.client = stepclient.New(config)
	signal.Ignore(syscall.SIGTTIN)
	go func() { // there is no end of input to tell: that is the srun's
		buf := make([]byte, 32<<10)
		for {
			n, err := call.Stdin.Read(buf)
			if n > 0 && run.client.Input(call.Ctx, to, buf[:n]) != nil || err != nil {
				return
			}
		}
	}()
	err := run.client.Run(call.Ctx)
	closeErr := output.close()
	if err == nil {
		err = closeErr
	}
	if !call.Opts.On("quiet") {
		for _, line := range run.exits.describeExits() {
			fmt.Fprintln(call.Stderr, "sattach: error: "+line)
		}
	}
	switch {
	case err != nil:
		return tool.Fail(1, "sattach: error: "+err.Error())
	case worst != 0:
		return tool.ExitCode(worst)
	}
	return over
}
