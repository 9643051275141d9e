package query

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

const (
	tailEvery   = time.Second // between two questions of --follow
	defaultTail = 8 << 10     // bytes of the end that are shown first
)

// Tail prints the end of what a job has written.
func Tail() *tool.Command {
	return &tool.Command{
		Name: "tail", Mixed: true,
		Summary: "show the end of a job's output, and follow it live",
		Usage:   []string{"JOB [OPTIONS]"},
		About: `Prints the last lines that the batch script of a job has written, from wherever the command runs: the agent
of the job's first node reads the file, with the rights of the job's user. Only that user and root may ask. The file
must be a regular file that belongs to the user; a symbolic link, a pipe or another user's file is refused. An ended
job is read as long as the controller remembers it (MinJobAge) and its file exists on that node. What a job writes into
a private /tmp (job_container.conf) is not seen. What steps write goes to their srun: see sattach.

--follow goes on until the job has ended; it waits for a job that is pending.`,
		Options: []opt.Option{
			{Long: "follow", Short: "f", Help: "go on as the job writes, until it has ended"},
			{Long: "err", Short: "e", Help: "its error output (sbatch --error), if that is a file of its own"},
			{
				Long:  "bytes",
				Short: "c",
				Arg:   "NUMBER",
				Help:  "number of bytes of the end to begin with, up to 65536 (default: 8192)",
			},
		},
		Example: []tool.Example{
			{Line: "muster tail 12345 -f", What: "follows the output of a job"},
			{Line: "muster tail 36_7 --err", What: "prints the end of the error output of an array task"},
		},
		Run: runTail,
	}
}

func runTail(call *tool.Call) error {
	if len(call.Operands) != 1 || !tool.ValidTarget(call.Operands[0]) {
		return &opt.UsageError{Command: "muster tail", Text: "expected one job, as 12, 36_7 or 12+1"}
	}
	request := &apiv1.ReadOutputRequest{
		Job:  call.Operands[0],
		Err:  call.Opts.On("err"),
		From: -1,
		Most: defaultTail,
	}
	if text := call.Opts.Text("bytes"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 || n > 64<<10 {
			return call.Errorf("--bytes=%s: expected a number from 1 to 65536", text)
		}
		request.Most = n
	}
	if !call.Opts.On("follow") {
		var reply apiv1.ReadOutputReply
		if err := call.RPC(tool.MethodReadOutput, request, &reply); err != nil {
			return err
		}
		return call.WriteOut(wholeLines(&reply))
	}
	defer call.EndWhenUnread()()
	return followOutput(call, request)
}

// wholeLines leaves out the part of a line with which the end of a file begins.
func wholeLines(reply *apiv1.ReadOutputReply) []byte {
	data := reply.GetData()
	if reply.GetFrom() == 0 {
		return data
	}
	_, rest, found := strings.Cut(string(data), "\n")
	if !found || rest == "" {
		return data
	}
	return []byte(rest)
}

// followOutput prints what a job writes until it has ended.
func followOutput(call *tool.Call, request *apiv1.ReadOutputRequest) error {
	told := ""
	// tell says once why nothing comes.
	tell := func(text string) {
		if text != told && text != "" {
			fmt.Fprintln(call.Stderr, "muster tail: "+text)
		}
		told = text
	}
	for {
		var reply apiv1.ReadOutputReply
		err := call.RPC(tool.MethodReadOutput, request, &reply)
		if call.Ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			tell("")
		case !mayPass(call, err):
			return err
		default:
			why := tool.ExplainError(err)
			tell(cmp.Or(why.Detail, why.Text) + "; waiting")
		}
		pause := true
		if err == nil {
			pause, err = takeOutput(call, request, &reply)
			if err != nil {
				return err
			}
			if pause && reply.GetOver() {
				return nil
			}
		}
		if pause {
			call.Pause(call.Ctx, tailEvery)
		}
		if call.Ctx.Err() != nil {
			return nil
		}
	}
}

// takeOutput prints an answer and makes the request one for what follows it. atEnd
// tells that there was no more.
func takeOutput(
	call *tool.Call,
	request *apiv1.ReadOutputRequest,
	reply *apiv1.ReadOutputReply,
) (atEnd bool, err error) {
	if request.From > reply.GetSize() {
		fmt.Fprintln(call.Stderr, "muster tail: the file was truncated")
		request.From = 0
		return false, nil
	}
	data := reply.GetData()
	if request.From < 0 {
		data = wholeLines(reply)
	}
	if err := call.WriteOut(data); err != nil {
		return false, err
	}
	if err := call.Out.Flush(); err != nil {
		return false, err
	}
	request.From = reply.GetFrom() + int64(len(reply.GetData()))
	request.Most = 0
	return request.From >= reply.GetSize(), nil
}

// mayPass tells an error that may be over in a moment: the job has not started, its
// file is not there yet, the node or the controller is away.
func mayPass(call *tool.Call, err error) bool {
	switch tool.ExplainError(err).Code {
	case spec.CodeJobPending, spec.CodeUnreachable, spec.CodeBackoff:
		return true
	case spec.CodeNothingFound:
		return jobGoesOn(call)
	}
	if !fetch.ControllerGone(err) && !tool.ExplainError(err).Lost {
		return false
	}
	if call.Conn != nil {
		_ = call.Conn.Close() // it is broken already
		call.Conn = nil
	}
	return true
}

// jobGoesOn tells whether the job may still write.
func jobGoesOn(call *tool.Call) bool {
	var reply apiv1.ListJobsReply
	request := &apiv1.ListJobsRequest{
		Filter: &apiv1.JobFilter{Jobs: []string{call.Operands[0]}, AllStates: true},
	}
	if err := call.RPC(tool.MethodListJobs, request, &reply); err != nil {
		return false
	}
	for _, job := range reply.GetJobs() {
		if !spec.JobState(job.GetState()).Terminal() {
			return true
		}
	}
	return false
}
