package acct

import (
	"strconv"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

//muster:table the options of sjobexitmod
func Sjobexitmod() *tool.Command {
	return &tool.Command{
		Name: "sjobexitmod", Slurm: true, Mixed: true,
		Summary: "show and change the derived exit code of jobs",
		Usage:   []string{"-l JOB", "-e CODE [-r REASON] JOB"},
		About: `The derived exit code of a job is the highest of its steps until it is changed. The reason is stored as the job's comment.
The owner of a job may change it until the controller has forgotten the job (MinJobAge); an operator may at any time.`,
		Options: []opt.Option{
			{Long: "cluster", Short: "c", Arg: "<cluster>", Help: "cluster that the job is in"},
			{Long: "exit-code", Short: "e", Arg: "<code>", Help: "the derived exit code, 0 to 255"},
			{Long: "list", Short: "l", Help: "show the job with its exit codes and comment"},
			{Long: "manual", Help: "print this help", Always: "there is one text"},
			{Long: "reason", Short: "r", Arg: "<text>", Help: "why: stored as the comment of the job"},
		},
		Example: []tool.Example{
			{Line: "sjobexitmod -e 49 -r 'out of disk space' 1234", What: "says how job 1234 really ended"},
			{Line: "sjobexitmod -l 1234", What: "shows it"},
		},
		Run: runSjobexitmod,
	}
}

func runSjobexitmod(call *tool.Call) error {
	if len(call.Operands) != 1 {
		return &opt.UsageError{Command: "sjobexitmod", Text: "name one job"}
	}
	if call.Opts.On("cluster") {
		call.Opts.Put("clusters", call.Opts.Text("cluster"), true, opt.FromCommand)
	}
	return call.OneCluster(modifyExit)
}

func modifyExit(call *tool.Call) error {
	job := call.Operands[0]
	if !tool.ValidTarget(job) {
		return call.Errorf("Invalid job id specified: %s", job)
	}
	if call.Opts.On("list") {
		return listExit(call, job)
	}
	if !call.Opts.On("exit-code") && !call.Opts.On("reason") {
		return &opt.UsageError{Command: "sjobexitmod", Text: "nothing to change: give -e, -r or -l"}
	}
	request := &apiv1.NoteJobsRequest{}
	if text, ok := call.Opts.Get("exit-code"); ok {
		n, err := strconv.ParseUint(text.Text, 10, 8)
		if err != nil {
			return call.Errorf("invalid exit code %q: expected a number from 0 to 255", text.Text)
		}
		code := uint32(n)
		request.DerivedExitCode = &code
	}
	if text, ok := call.Opts.Get("reason"); ok {
		request.Comment = &text.Text
	}
	rows, err := findJobs(call, &apiv1.AcctQuery{Jobs: []string{job},
		AllocationsOnly: true, Start: 1, Fields: []string{"user"}})
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return call.Errorf("Invalid job id specified: %s", job)
	}
	if err := noteJobs(call, request, rows); err != nil {
		return err
	}
	return call.WriteOut([]byte("Modification of job " + job + " was successful.\n"))
}

// listExit shows a job as sacct does.
func listExit(call *tool.Call, job string) error {
	inner := *call
	inner.Command = Sacct()
	inner.Operands, inner.Opts = nil, opt.New()
	for _, option := range [][2]string{
		{"jobs", job},
		{"format", "jobid,account,nnodes,nodelist,state,exitcode,derivedexitcode,comment"},
	} {
		inner.Opts.Put(option[0], option[1], true, opt.FromCommand)
	}
	inner.Opts.Put("allocations", "", false, opt.FromCommand)
	return inner.Command.Run(&inner)
}
