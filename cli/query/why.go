package query

import (
	"fmt"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

func Why() *tool.Command {
	return &tool.Command{
		Name: "why", Mixed: true,
		Summary: "explain why a job is pending, when it will start and what would help",
		Usage:   []string{"[OPTIONS] JOB"},
		About:   `The explanation comes from the scheduler's last pass: the limit with its numbers, the blocking jobs, and what each node lacks. The start is a range where the past allows it: at the latest as planned, with the running jobs until their time limits, and at the earliest if they end as similar runs of their users did. Beside it stands how many promised starts of the partition were kept so far. Earlier reasons come from the accounting store, which also has jobs that ended long ago.`,
		Options: []opt.Option{
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{
				Long:  "watch",
				Short: "w",
				Arg:   "<seconds>",
				Maybe: true,
				Help:  "repeat until the job starts; interval in seconds (default: 2)",
			},
		},
		Env: []tool.Variable{{Name: "NO_COLOR", Help: "disable colours"}},
		Example: []tool.Example{
			{Line: "muster why 22", What: "explains job 22"},
			{Line: "muster why 36_7 --json", What: "gives a script the same as data"},
		},
		Run: runWhy,
	}
}

func runWhy(call *tool.Call) error {
	if len(call.Operands) != 1 || !tool.ValidTarget(call.Operands[0]) {
		return &opt.UsageError{
			Command: "muster why",
			Text:    "name one job: 12, 36_7, or 12+1 of a heterogeneous job",
		}
	}
	every := int64(2)
	if text := call.Opts.Text("watch"); text != "" {
		n, ok := tool.PositiveNumber(text)
		if !ok {
			return call.Errorf("--watch=%s: expected a number of seconds", text)
		}
		every = n
	}
	shown := false
	for {
		reply, missing, err := askWhy(call)
		if shown && err != nil && fetch.ControllerGone(err) {
			call.Conn, call.Past = nil, nil // a restart of the controller ends no watch
			call.Pause(call.Ctx, time.Duration(every)*time.Second)
			if call.Ctx.Err() != nil {
				return nil
			}
			continue
		}
		if err != nil {
			refusal := tool.ExplainError(err)
			return tool.Fail(
				1, append(refusal.Preamble("muster why"), "muster why: error: "+refusal.Text)...,
			)
		}
		waits := spec.JobState(reply.GetJob().GetState()) == spec.Pending
		if err := writeWhy(call, reply, missing); err != nil || !call.Opts.On("watch") || !waits {
			return err
		}
		if err := call.Out.Flush(); err != nil {
			return err
		}
		shown = true
		call.Pause(call.Ctx, time.Duration(every)*time.Second)
		if call.Ctx.Err() != nil {
			return nil
		}
	}
}

// writeWhy prints an explanation; missing says why its history is not whole.
func writeWhy(call *tool.Call, reply *apiv1.WhyReply, missing string) error {
	if render.WantsDocument(call) {
		history := tree.Member{Key: "history_missing", Value: missing}
		return render.Print(call, append(render.WhyTree(reply), history)...)
	}
	if missing != "" {
		fmt.Fprintf(
			call.Stderr,
			"muster why: warning: the reasons so far are not shown: %s\n",
			missing,
		)
	}
	view := &render.WhyView{
		JobView: render.JobView{Clock: render.NewClock(call.Env), Env: call.Env},
		Asked:   call.Operands[0],
		Colour:  call.Terminal(call.Stdout) && call.Getenv("NO_COLOR") == "",
	}
	view.Now = reply.GetNow()
	text := view.Screen(reply)
	if call.Opts.On("watch") && call.Terminal(call.Stdout) {
		text = "\x1b[H\x1b[2J" + text
	}
	if err := call.Exact(); err != nil {
		return err
	}
	return call.WriteOut([]byte(text))
}
