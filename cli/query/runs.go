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
		Summary: "list the runs that nodes have and the ledger does not know, adopt or kill them",
		Usage:   []string{"[--json|--yaml]", "adopt RUN...", "kill RUN... [--grace SECONDS]"},
		About: `A controller whose ledger was restored from an older copy does not know the jobs that were started after the copy
was made. They go on: their nodes are drained, and nothing of them is given to other jobs. This command lists them. adopt makes
jobs of the named ones, which run on with their owner, name, start, limit and allocation, under their own number where no other
job has it. A run of which the nodes do not know enough is refused, with the reason. kill ends the named ones on all their
nodes; nothing ends them unasked. A node without any is put back into service. Only administrators can use this command, on the
controller's host.`,
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
			{Line: "muster runs adopt 305.1.batch.9e3779b97f4a7c15", What: "make a job of one of them"},
			{Line: "muster runs kill 305.1.batch.9e3779b97f4a7c15", What: "end one of them"},
		},
		Run: func(call *tool.Call) error {
			switch {
			case len(call.Operands) == 0 && !call.Opts.On("grace"):
				return listOrphans(call)
			case len(call.Operands) > 1 && call.Operands[0] == "kill":
				return killOrphans(call)
			case len(call.Operands) > 1 && call.Operands[0] == "adopt" && !call.Opts.On("grace"):
				return adoptOrphans(call)
			}
			return &opt.UsageError{
				Command: "muster runs",
				Text:    "expected nothing, or adopt or kill and the names of runs",
			}
		},
	}
}

func listOrphans(call *tool.Call) error {
	var reply apiv1.ListOrphansReply
	if err := call.RPC(tool.MethodListOrphans, &apiv1.ListOrphansRequest{}, &reply); err != nil {
		return err
	}
	if call.Opts.On("json") || call.Opts.On("yaml") {
		return render.Print(call, orphanTree(&reply)...)
	}
	if reply.GetLostAt() != 0 {
		line := fmt.Sprintf(
			"History was lost: %s had seen more than this ledger holds (noticed %s).\n",
			reply.GetWitness(),
			render.FormatTime(call, reply.GetLostAt()),
		)
		if err := call.WriteOut([]byte(line)); err != nil {
			return err
		}
	}
	return orphanTable(call, reply.GetRuns())
}

// orphanTree is the answer as a document.
func orphanTree(reply *apiv1.ListOrphansReply) tree.Object {
	runs := tree.List{}
	for _, run := range reply.GetRuns() {
		runs = append(
			runs,
			tree.Object{
				{Key: "run", Value: run.GetRun()},
				{Key: "node", Value: run.GetNode()},
				{Key: "job_id", Value: run.GetJobId()},
				{Key: "user", Value: run.GetUser()},
				{Key: "user_id", Value: run.GetUserId()},
				{Key: "start_time", Value: run.GetStarted() / int64(time.Second)},
			},
		)
	}
	return tree.Object{{Key: "history_lost_time", Value: reply.GetLostAt() / int64(time.Second)},
		{Key: "history_lost_witness", Value: reply.GetWitness()}, {Key: "runs", Value: runs}}
}

func adoptOrphans(call *tool.Call) error {
	var reply apiv1.AdoptOrphansReply
	request := &apiv1.AdoptOrphansRequest{Runs: call.Operands[1:]}
	if err := call.RPC(tool.MethodAdoptOrphans, request, &reply); err != nil {
		return err
	}
	return orphanTable(call, reply.GetRuns())
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
	var reply apiv1.KillOrphansReply
	request := &apiv1.KillOrphansRequest{
		Runs:  call.Operands[1:],
		Grace: int64(time.Duration(seconds) * time.Second),
	}
	if err := call.RPC(tool.MethodKillOrphans, request, &reply); err != nil {
		return err
	}
	return orphanTable(call, reply.GetRuns())
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
