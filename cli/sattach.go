package cli

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
	"github.com/musterhpc/muster/internal/transport/stepclient"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

func sattachCommand() *command {
	return &command{
		name: "sattach", slurm: true, ownVerbose: true,
		summary: "show what a running step writes from now on",
		usage:   []string{"[OPTIONS] JOB.STEP"},
		about: `It shows what the tasks of a step of yours write, beside the srun that began it, which misses nothing by it; root may look at
the steps of others. What is typed here goes to the tasks, as long as their srun has not closed their input. Ctrl-C ends
sattach alone. Any number of them may look at a step; one that does not take what comes misses some of it, and is told so.`,
		options: sattachOptions(),
		exits:   []variable{{"1", "the step is not there, or not yours"}, {"as the tasks", "the highest exit code of the tasks that ended meanwhile; 128 and the signal for one that a signal ended"}},
		example: []example{
			{"sattach 12.0", "shows what step 0 of job 12 writes"},
			{"sattach --label --output-filter=3 12.0", "only the standard output of task 3, with its number"},
			{"sattach --layout 12.0", "says on which nodes its tasks are"},
		},
		run: runSattach,
	}
}

func sattachOptions() []opt.Option {
	return []opt.Option{
		{Long: "error-filter", Arg: "<task number>", Help: "show the standard error of this task alone"},
		{Long: "input-filter", Arg: "<task number>", Help: "what is typed goes to this task alone"},
		{Long: "label", Short: "l", Help: "put the number of its task before each line"},
		{Long: "layout", Help: "say which tasks are on which nodes, and end"},
		{Long: "output-filter", Arg: "<task number>", Help: "show the standard output of this task alone"},
		{Long: "pty", Refused: "a terminal belongs to the srun that asked for it: use srun --overlap --pty"},
		{Long: "quiet", Short: "Q", Help: "do not say how tasks ended"},
	}
}

func runSattach(c *call) error {
	if len(c.args) != 1 {
		return fail(1, "sattach: error: name one step: 12.0")
	}
	job, step, ok := stepID(c.args[0])
	if !ok {
		return fail(1, "sattach: error: Invalid job step id "+c.args[0])
	}
	var made apiv1.StepCreated
	if err := c.ask(methodAttachStep, &apiv1.AttachStepRequest{Job: job, Step: step}, &made); err != nil {
		r := explainError(err)
		return fail(1, append(r.before(c.cmd.name), fmt.Sprintf("sattach: error: step %s: %s", c.args[0], r.text))...)
	}
	if c.opts.On("layout") {
		return c.write([]byte(stepLayout(&made)))
	}
	return c.attach(&made)
}

// stepLayout tells which tasks are where.
func stepLayout(made *apiv1.StepCreated) string {
	var b strings.Builder
	tasks, names := uint32(0), []string(nil)
	for _, part := range parts(made) {
		tasks += part.GetTasks()
		for _, n := range part.GetNodes() {
			ranks := make([]string, len(n.GetRanks()))
			for i, r := range n.GetRanks() {
				ranks[i] = itoa(r)
			}
			fmt.Fprintf(&b, "  Node %d (%s), %d task(s): %s\n", len(names), n.GetName(), len(ranks), strings.Join(ranks, " "))
			names = append(names, n.GetName())
		}
	}
	return fmt.Sprintf("Job step layout:\n  %d tasks, %d nodes (%s)\n\n", tasks, len(names), strings.Join(names, ",")) + b.String()
}

// attach shows a step until it is over.
func (c *call) attach(made *apiv1.StepCreated) error {
	r := &stepRun{c: c, opts: c.opts, created: made, running: map[uint32]string{}}
	cfg, tasks := r.nodes()
	out, err := newStepOutput(c, opt.New(), &plan.FileFacts{}, tasks)
	if err != nil {
		return err
	}
	out.label = c.opts.On("label")
	to := spec.InputAll
	for _, f := range []struct {
		long string
		set  func(rank int64)
	}{{"output-filter", func(n int64) { out.sinks[0].only = n }}, {"error-filter", func(n int64) { out.sinks[1].only = n }}, {"input-filter", func(n int64) { to = int32(n) }}} {
		v, ok := c.opts.Get(f.long)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(v.Text, 10, 31)
		if err != nil || uint32(n) >= tasks {
			return c.errorf("--%s=%s: the step's tasks are 0 to %d", f.long, v.Text, tasks-1)
		}
		f.set(int64(n))
	}
	var mu sync.Mutex
	worst := 0
	cfg.Watch, cfg.Output = true, out.write
	cfg.Exit = func(node string, x plan.TaskExit) {
		mu.Lock()
		defer mu.Unlock()
		code, what := endOfTask(&x)
		if worst = max(worst, code); what != "" {
			r.exits.list = append(r.exits.list, taskExit{node, x.Rank, what})
		}
	}
	cfg.Notice = func(node, text string) { c.say("%s: %s", node, strings.TrimRight(text, "\n")) }
	var over error
	cfg.Ended = func(node string, _ plan.FrameEnd, err error) {
		if errors.Is(err, stepclient.ErrOver) && over == nil {
			over = fail(1, fmt.Sprintf("sattach: error: node %s: %v", node, err))
		}
	}
	r.client = stepclient.New(cfg)
	signal.Ignore(syscall.SIGTTIN)
	go func() { // there is no end of input to tell: that is the srun's
		buf := make([]byte, 32<<10)
		for {
			n, err := c.Stdin.Read(buf)
			if n > 0 && r.client.Input(c.ctx, to, buf[:n]) != nil || err != nil {
				return
			}
		}
	}()
	err = r.client.Run(c.ctx)
	if cerr := out.close(); err == nil {
		err = cerr
	}
	if !c.opts.On("quiet") {
		for _, line := range r.exits.lines() {
			fmt.Fprintln(c.Stderr, "sattach: error: "+line)
		}
	}
	switch {
	case err != nil:
		return fail(1, "sattach: error: "+err.Error())
	case worst != 0:
		return exit(worst)
	}
	return over
}
