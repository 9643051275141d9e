package query

import (
	"fmt"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

// Runs is muster runs.
func Runs() *tool.Command {
	return &tool.Command{
		Name: "runs", Mixed: true,
		Summary: "list the runs that nodes have and the ledger does not know, or kill them",
		Usage:   []string{"[--json|--yaml]", "kill RUN... [--grace SECONDS]"},
		About: `A controller whose ledger was restored from an older copy does not know the jobs that were started after the copy
was made. They go on: their nodes are drained, and nothing of them is given to other jobs. This command lists them. kill ends
the named ones on all their nodes; nothing ends them unasked. A node without any is put back into service. Only administrators
can use this command, on the controller's host.`,
		Options: []opt.Option{
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{
				Long: "grace",
				Arg:  "<seconds>",
				Help: "time between SIGTERM and SIGKILL (default: KillWait)",
			},
		},
		Example: []tool.Example{
			{Line: "muster runs", What: "list the runs that the ledger does not know"},
			{Line: "muster runs kill 305.1.batch.9e3779b97f4a7c15", What: "end one of them"},
		},
		Run: func(call *tool.Call) error {
			switch {
			case len(call.Operands) == 0 && !call.Opts.On("grace"):
				return listOrphans(call)
			case len(call.Operands) > 1 && call.Operands[0] == "kill":
				return killOrphans(call)
			}
			return &opt.UsageError{
				Command: "muster runs",
				Text:    "expected nothing, or kill and the names of runs",
			}
		},
	}
}

func listOrphans(call *tool.Call) error {
	var rep apiv1.ListOrphansReply
	if err := call.RPC(tool.MethodListOrphans, &apiv1.ListOrphansRequest{}, &rep); err != nil {
		return err
	}
	if call.Opts.On("json") || call.Opts.On("yaml") {
		return render.Print(call, orphanTree(&rep)...)
	}
	if rep.GetLostAt() != 0 {
		line := fmt.Sprintf(
			"History was lost: %s had seen more than this ledger holds (noticed %s).\n",
			rep.GetWitness(),
			render.FormatTime(call, rep.GetLostAt()),
		)
		if err := call.WriteOut([]byte(line)); err != nil {
			return err
		}
	}
	return orphanTable(call, rep.GetRuns())
}

// orphanTree is the answer as a document.
func orphanTree(rep *apiv1.ListOrphansReply) tree.Object {
	runs := tree.List{}
	for _, r := range rep.GetRuns() {
		runs = append(
			runs,
			tree.Object{
				{Key: "run", Value: r.GetRun()},
				{Key: "node", Value: r.GetNode()},
				{Key: "job_id", Value: r.GetJobId()},
				{Key: "user", Value: r.GetUser()},
				{Key: "user_id", Value: r.GetUserId()},
				{Key: "start_time", Value: r.GetStarted() / int64(time.Second)},
			},
		)
	}
	return tree.Object{{Key: "history_lost_time", Value: rep.GetLostAt() / int64(time.Second)},
		{Key: "history_lost_witness", Value: rep.GetWitness()}, {Key: "runs", Value: runs}}
}

func killOrphans(call *tool.Call) error {
	seconds := 0
	if call.Opts.On("grace") {
		if _, err := fmt.Sscanf(call.Opts.Text("grace")+"\n", "%d\n", &seconds); err != nil ||
			seconds < 1 {
			return &opt.UsageError{
				Command: "muster runs",
				Text: fmt.Sprintf(
					"invalid --grace %q: expected a number of seconds above 0",
					call.Opts.Text("grace"),
				),
			}
		}
	}
	var rep apiv1.KillOrphansReply
	req := &apiv1.KillOrphansRequest{
		Runs:  call.Operands[1:],
		Grace: int64(time.Duration(seconds) * time.Second),
	}
	if err := call.RPC(tool.MethodKillOrphans, req, &rep); err != nil {
		return err
	}
	return orphanTable(call, rep.GetRuns())
}

func orphanTable(call *tool.Call, runs []*apiv1.OrphanRun) error {
	if len(runs) == 0 {
		return call.WriteOut([]byte("No node has a run that the ledger does not know.\n"))
	}
	rows := [][]string{{"NODE", "JOBID", "USER", "START", "RUN"}}
	for _, run := range runs {
		user := run.GetUser()
		if user == "" {
			user = fmt.Sprint(run.GetUserId())
		}
		rows = append(
			rows,
			[]string{
				run.GetNode(),
				fmt.Sprint(run.GetJobId()),
				user,
				render.FormatTime(call, run.GetStarted()),
				run.GetRun(),
			},
		)
	}
	return call.WriteOut([]byte(render.AlignedTexts(rows)))
}
