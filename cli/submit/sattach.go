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
	"github.com/musterhpc/muster/internal/transport/stepclient"
	"github.com/musterhpc/muster/nodeagent/plan"
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
		Exits:   []tool.Variable{{Name: "1", Help: "the step does not exist, or belongs to another user"}, {Name: "as the tasks", Help: "the highest exit code of the tasks that ended meanwhile; 128 and the signal for one that a signal ended"}},
		Example: []tool.Example{
			{Line: "sattach 12.0", What: "shows what step 0 of job 12 writes"},
			{Line: "sattach --label --output-filter=3 12.0", What: "only the standard output of task 3, with its number"},
			{Line: "sattach --layout 12.0", What: "shows on which nodes its tasks run"},
		},
		Run: runSattach,
	}
}

func sattachOptions() []opt.Option {
	return []opt.Option{
		{Long: "error-filter", Arg: "<task number>", Help: "show the standard error of this task alone"},
		{Long: "input-filter", Arg: "<task number>", Help: "send standard input to this task only"},
		{Long: "label", Short: "l", Help: "prefix each line with the task number"},
		{Long: "layout", Help: "print which tasks would run on which nodes, and exit"},
		{Long: "output-filter", Arg: "<task number>", Help: "show the standard output of this task alone"},
		{Long: "pty", Refused: "a terminal is bound to the srun that requested it: use srun --overlap --pty"},
		{Long: "quiet", Short: "Q", Help: "do not report how tasks ended"},
		{Long: "usage", Short: "u", Help: "print a short form of this help"},
	}
}

func runSattach(c *tool.Call) error {
	if len(c.Operands) != 1 {
		return tool.Fail(1, "sattach: error: name one step: 12.0")
	}
	job, step, ok := tool.ParseStepID(c.Operands[0])
	if !ok {
		return tool.Fail(1, "sattach: error: Invalid job step id "+c.Operands[0])
	}
	var made apiv1.StepCreated
	if err := c.RPC(tool.MethodAttachStep, &apiv1.AttachStepRequest{Job: job, Step: step}, &made); err != nil {
		r := tool.ExplainError(err)
		return tool.Fail(1, append(r.Preamble(c.Command.Name), fmt.Sprintf("sattach: error: step %s: %s", c.Operands[0], r.Text))...)
	}
	if c.Opts.On("layout") {
		return c.WriteOut([]byte(stepLayout(&made)))
	}
	return attachStep(c, &made)
}

// stepLayout tells which tasks are where.
func stepLayout(made *apiv1.StepCreated) string {
	var b strings.Builder
	tasks, names := uint32(0), []string(nil)
	for _, part := range partsOf(made) {
		tasks += part.GetTasks()
		for _, n := range part.GetNodes() {
			ranks := make([]string, len(n.GetRanks()))
			for i, r := range n.GetRanks() {
				ranks[i] = tool.Itoa(r)
			}
			fmt.Fprintf(&b, "  Node %d (%s), %d task(s): %s\n", len(names), n.GetName(), len(ranks), strings.Join(ranks, " "))
			names = append(names, n.GetName())
		}
	}
	return fmt.Sprintf("Job step layout:\n  %d tasks, %d nodes (%s)\n\n", tasks, len(names), strings.Join(names, ",")) + b.String()
}

// attachStep shows a step until it is over.
func attachStep(c *tool.Call, made *apiv1.StepCreated) error {
	r := &stepRun{c: c, opts: c.Opts, created: made, running: map[uint32]string{}}
	cfg, tasks := r.stepNodes()
	out, err := newStepOutput(c, opt.New(), &plan.FileFacts{}, tasks)
	if err != nil {
		return err
	}
	out.label = c.Opts.On("label")
	to := spec.InputAll
	for _, f := range []struct {
		long string
		set  func(rank int64)
	}{{"output-filter", func(n int64) { out.sinks[0].only = n }}, {"error-filter", func(n int64) { out.sinks[1].only = n }}, {"input-filter", func(n int64) { to = int32(n) }}} {
		v, ok := c.Opts.Get(f.long)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(v.Text, 10, 31)
		if err != nil || uint32(n) >= tasks {
			return c.Errorf("--%s=%s: the step's tasks are 0 to %d", f.long, v.Text, tasks-1)
		}
		f.set(int64(n))
	}
	var mu sync.Mutex
	worst := 0
	cfg.Watch, cfg.Output = true, out.writeTask
	cfg.Exit = func(node string, x plan.TaskExit) {
		mu.Lock()
		defer mu.Unlock()
		code, what := endOfTask(&x)
		worst = max(worst, code)
		if what != "" {
			r.exits.list = append(r.exits.list, taskExit{node, x.Rank, what})
		}
	}
	cfg.Notice = func(node, text string) { printLine(c, "%s: %s", node, strings.TrimRight(text, "\n")) }
	var over error
	cfg.Ended = func(node string, _ plan.FrameEnd, err error) {
		if errors.Is(err, stepclient.ErrOver) && over == nil {
			over = tool.Fail(1, fmt.Sprintf("sattach: error: node %s: %v", node, err))
		}
	}
	r.client = stepclient.New(cfg)
	signal.Ignore(syscall.SIGTTIN)
	go func() { // there is no end of input to tell: that is the srun's
		buf := make([]byte, 32<<10)
		for {
			n, err := c.Stdin.Read(buf)
			if n > 0 && r.client.Input(c.Ctx, to, buf[:n]) != nil || err != nil {
				return
			}
		}
	}()
	err = r.client.Run(c.Ctx)
	if cerr := out.close(); err == nil {
		err = cerr
	}
	if !c.Opts.On("quiet") {
		for _, line := range r.exits.describeExits() {
			fmt.Fprintln(c.Stderr, "sattach: error: "+line)
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
