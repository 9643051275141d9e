package submit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/x11"
	"github.com/musterhpc/muster/nodeagent/stepclient"
	"github.com/musterhpc/muster/spec"
)

// applyX11 reads --x11, which without a value is all nodes, of sbatch that of the script.
func applyX11(request *jobRequest, value opt.Value) error {
	where, err := spec.ParseX11(strings.ToLower(value.Text))
	batchOnly := where == spec.X11Batch && request.name != "sbatch"
	if err != nil || batchOnly {
		return request.badOption("x11")
	}
	if where == spec.X11None {
		where = spec.X11All
		if request.name == "sbatch" {
			where = spec.X11Batch
		}
	}
	request.spec.X11 = string(where)
	return nil
}

// userDisplay is the X display of who submits.
type userDisplay struct {
	name      string // DISPLAY
	addresses []x11.Address
	cookie    x11.Cookie
}

// findDisplay finds the display of this session and its cookie.
func findDisplay(call *tool.Call) (*userDisplay, error) {
	name := call.Getenv("DISPLAY")
	addresses, err := x11.ParseDisplay(name)
	if err != nil {
		return nil, call.Errorf("X11 cannot be forwarded: %v; log in with ssh -X, or set DISPLAY to your X server", err)
	}
	xauth, err := findProgram("xauth", call.Getenv("PATH"))
	if err != nil {
		return nil, call.Errorf("X11 cannot be forwarded: the cookie of display %s cannot be read: xauth is not installed on this host", name)
	}
	ctx, cancel := context.WithTimeout(call.Ctx, xauthWait)
	defer cancel()
	var errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, xauth, "list", name)
	cmd.Env = call.Environ
	cmd.Stderr = &errOut
	list, err := cmd.Output()
	if err != nil {
		return nil, call.Errorf(
			"X11 cannot be forwarded: xauth list %s: %v %s", name, err, strings.TrimSpace(errOut.String()),
		)
	}
	cookie, ok := x11.FindCookie(string(list))
	if !ok {
		return nil, call.Errorf("X11 cannot be forwarded: xauth knows no cookie of display %s", name)
	}
	return &userDisplay{name: name, addresses: addresses, cookie: cookie}, nil
}

// xauthWait bounds xauth, which waits for the lock of its file.
const xauthWait = 15 * time.Second

// displayFor finds the display where one of the jobs asks for it; nil where none does.
func displayFor(call *tool.Call, specs []*apiv1.JobSpec) (*userDisplay, error) {
	for _, jobSpec := range specs {
		if jobSpec.GetX11() != "" {
			return findDisplay(call)
		}
	}
	return nil, nil
}

// openDisplay connects to the display.
func (u *userDisplay) openDisplay(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	var failed error
	for _, address := range u.addresses {
		conn, err := d.DialContext(ctx, address.Network, address.Address)
		if err == nil {
			return conn, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, fmt.Errorf("display %s: %w", u.name, failed)
}

// forwardAll forwards the display to the nodes of all jobs that ask for it, until ctx ends.
func (u *userDisplay) forwardAll(ctx context.Context, call *tool.Call, jobs []*apiv1.JobInfo) {
	if u == nil {
		return
	}
	for _, job := range jobs {
		if job.GetSpec().GetX11() != "" {
			go func() { _ = u.forwardJob(ctx, call, tool.Itoa(job.GetJobId())) }()
		}
	}
}

// displayTrouble is what went wrong with the display on a node.
type displayTrouble struct {
	node string
	err  error
}

// maxTroubles is how many of them are kept to be told.
const maxTroubles = 64

// errReplaced: another command forwards the display of the job.
var errReplaced = errors.New("another command forwards the display of the job")

// forwardJob forwards the display to the nodes of a job as long as it runs.
func (u *userDisplay) forwardJob(ctx context.Context, call *tool.Call, job string) error {
	for {
		made, err := askDisplay(ctx, call, job)
		if err != nil {
			return err
		}
		display := &stepclient.Display{Open: u.openDisplay, Cookie: u.cookie}
		run := plan.Key(made.GetJobUid(), made.GetAttempt(), made.GetStep())
		for _, node := range made.GetNodes() {
			display.Nodes = append(display.Nodes, stepclient.Node{
				Name:       node.GetName(),
				Address:    node.GetAddress(),
				Run:        run,
				Credential: made.GetCredential(),
			})
		}
		display.Dial = func(ctx context.Context, node string) (net.Conn, error) {
			return dialAgent(ctx, call, made.GetNodes(), node)
		}
		troubles := make(chan displayTrouble, maxTroubles)
		display.Trouble = func(node string, err error) {
			select {
			case troubles <- displayTrouble{node, err}:
			default:
			}
		}
		display.Run(ctx)
		close(troubles)
		replaced := false
		for trouble := range troubles {
			if ctx.Err() != nil || !jobLives(ctx, call, job) {
				break
			}
			fmt.Fprintf(call.Stderr, "%s: X11 of node %s: %v\n", call.Command.Name, trouble.node, trouble.err)
			replaced = replaced || errors.Is(trouble.err, stepclient.ErrReplaced)
		}
		if replaced {
			return errReplaced
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// jobLives tells whether a job is not over, as far as is known.
func jobLives(ctx context.Context, call *tool.Call, job string) bool {
	_, err := askDisplayOnce(ctx, call, job)
	return err == nil || tool.ExplainError(err).Code != spec.CodeAlreadyDone
}

// askDisplay asks where the displays of a job are, and waits until it runs.
func askDisplay(ctx context.Context, call *tool.Call, job string) (*apiv1.StepCreated, error) {
	for {
		made, err := askDisplayOnce(ctx, call, job)
		if err == nil {
			return made, nil
		}
		switch x := tool.ExplainError(err); x.Code {
		case spec.CodeAlreadyDone, spec.CodeInvalidJobID, spec.CodeAccessDenied, spec.CodeBadRequest, spec.CodeDisabled:
			return nil, err
		}
		call.Pause(ctx, displayPause) // it is pending, or the controller is away
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// displayPause is how long a command that forwards a display waits for a job to begin.
const displayPause = 2 * time.Second

// askDisplayOnce asks over a connection of its own: the caller's is in use by others.
func askDisplayOnce(ctx context.Context, call *tool.Call, job string) (*apiv1.StepCreated, error) {
	conn, err := call.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	var made apiv1.StepCreated
	request := &apiv1.AttachStepRequest{Job: job, Step: int32(spec.StepExtern)}
	if err := conn.Call(ctx, tool.MethodAttachStep, request, &made); err != nil {
		return nil, err
	}
	return &made, nil
}

// forwardSubmitted forwards the display to the components of a batch job that ask for it.
// Their numbers follow each other.
func forwardSubmitted(call *tool.Call, reply *apiv1.SubmitReply, specs []*apiv1.JobSpec) error {
	for i, jobSpec := range specs {
		if jobSpec.GetX11() == "" {
			continue
		}
		if err := forwardBehind(call, reply.GetJobId()+uint32(i)); err != nil {
			return err
		}
	}
	return nil
}

// forwardAllBehind forwards the display to all jobs that ask for it, as forwardBehind does.
func forwardAllBehind(call *tool.Call, jobs []*apiv1.JobInfo) error {
	for _, job := range jobs {
		if job.GetSpec().GetX11() != "" {
			if err := forwardBehind(call, job.GetJobId()); err != nil {
				return err
			}
		}
	}
	return nil
}

// forwardBehind starts a command that forwards the display of a job as long as that runs,
// behind the caller's back: for jobs whose command does not wait for them.
func forwardBehind(call *tool.Call, job uint32) error {
	if call.NamedCluster() != "" {
		return call.Errorf("X11 is not forwarded from another cluster: run muster display %d there", job)
	}
	self, err := os.Executable()
	if err != nil {
		return call.Errorf("X11 is not forwarded: %v", err)
	}
	cmd := exec.Command(self, "display", tool.Itoa(job))
	cmd.Args[0] = "muster"
	cmd.Env = call.Environ
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return call.Errorf("X11 is not forwarded: %v", err)
	}
	return nil
}

// Display is the command that forwards a display by itself.
func Display() *tool.Command {
	return &tool.Command{
		Name:    "display",
		Summary: "forward the X11 display of this session to a job",
		Usage:   []string{"JOB"},
		About: `Lets the programs of a job reach the display of this session as long as both last. The job must have
been submitted with --x11. sbatch --x11 starts this command by itself; run it in a new session to take the
display over after the one that submitted has ended.`,
		Exits: []tool.Variable{
			{Name: "0", Help: "the job is over"},
			{Name: "1", Help: "there is no display, the job has none, or another command took it over"},
		},
		Example: []tool.Example{{Line: "muster display 12", What: "shows the windows of job 12 in this session"}},
		Run:     runDisplay,
	}
}

func runDisplay(call *tool.Call) error {
	if len(call.Operands) != 1 {
		return call.Errorf("name one job: muster display 12")
	}
	display, err := findDisplay(call)
	if err != nil {
		return err
	}
	err = display.forwardJob(call.Ctx, call, call.Operands[0])
	if err == nil || tool.ExplainError(err).Code == spec.CodeAlreadyDone {
		return nil
	}
	if errors.Is(err, errReplaced) {
		return call.Errorf("%v now", err)
	}
	return call.Errorf("job %s: %s", call.Operands[0], tool.ExplainError(err).Text)
}
