package tool

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/plain"
	"github.com/musterhpc/muster/spec"
)

// SlurmVersion is what every -V answers after "slurm ": clients look for it.
const SlurmVersion = "25.11.0"

// Call is one run of a command.
type Call struct {
	*Env
	Ctx      context.Context
	Command  *Command
	Opts     *opt.Values
	Operands []string // what is left of the command line
	Out      *bufio.Writer
	Conn     Conn
	Past     Conn   // to accounting, where it runs in a process of its own
	trace    bool   // -v: say on stderr what was asked
	named    string // the cluster that -M named and this call asks
	lent     bool   // Conn is that of the call that this one was made from, which ends it
	lentPast bool   // the same of Past
	imported string // the same, where this cluster's accounting has imported it
	cluster  string // what the controller says that its cluster is called
	screen   *plain.Writer
}

// ExitError ends a command with an exit code and lines for stderr.
type ExitError struct {
	Code  int
	Kind  spec.Code // what went wrong, where Slurm has a number for it
	lines []string
}

// Error joins the lines.
func (f *ExitError) Error() string { return strings.Join(f.lines, "\n") }

// Unknown ends the command because what was asked for does not exist.
func Unknown(kind spec.Code, lines ...string) error {
	return &ExitError{Code: 1, Kind: kind, lines: lines}
}

// Fail makes a failure of complete lines.
func Fail(code int, lines ...string) error { return &ExitError{Code: code, lines: lines} }

// Errorf makes the failure that Slurm's tools word "NAME: error: text".
func (c *Call) Errorf(format string, args ...any) error {
	return Fail(1, c.Command.Called()+": error: "+fmt.Sprintf(format, args...))
}

// ExitCode ends a command with a code and no text.
type ExitCode int

// Error names the code.
func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// RunCommand parses the arguments and runs.
func RunCommand(env *Env, cmd *Command, args []string) int {
	if cmd.Program != nil {
		return Report(env, handOver(env, cmd.Program, args), cmd.Name, 1)
	}
	if len(args) > 0 && cmd.ProgramVerbs[args[0]] != nil {
		return Report(env, handOver(env, cmd.ProgramVerbs[args[0]], args), cmd.Name, 1)
	}
	err := Execute(context.Background(), env, cmd, args)
	bad := cmd.BadUsage
	if bad == 0 {
		bad = 1
	}
	return Report(env, err, cmd.Called(), bad)
}

// Execute runs a command and returns its error instead of printing it.
func Execute(ctx context.Context, env *Env, cmd *Command, args []string) error {
	screen := plain.NewWriter(env.Stdout)
	if env.Terminal == nil || !env.Terminal(env.Stdout) {
		screen.Exact() // for the program that reads it
	}
	call := &Call{
		Env:     env,
		Ctx:     ctx,
		Command: cmd,
		Opts:    opt.New(),
		Out:     bufio.NewWriterSize(screen, 8<<10),
		screen:  screen,
	}
	err := call.run(args)
	for _, conn := range [...]Conn{call.Conn, call.Past} {
		if conn == nil {
			continue
		}
		if cerr := conn.Close(); cerr != nil && err == nil {
			err = cerr
		}
	}
	if ferr := errors.Join(call.Out.Flush(), screen.Close()); ferr != nil && err == nil {
		err = Fail(1, cmd.Called()+": error: writing the output: "+ferr.Error())
	}
	return err
}

func (c *Call) run(args []string) error {
	set := c.Command.Set()
	var err error
	if !c.Command.OwnPrecedence {
		err = set.FromEnviron(c.Lookup, IsNo, c.Opts)
		if err != nil {
			return err
		}
	}
	c.Operands, err = set.Parse(args, c.Opts, opt.FromCommand)
	if err != nil {
		return err
	}
	switch {
	case c.Opts.On("help"):
		_, err := c.Out.WriteString(HelpText(c.Command))
		return err
	case c.Opts.On("usage"):
		_, err := c.Out.WriteString(UsageText(c.Command))
		return err
	case c.Opts.On("version"):
		return PrintVersion(c)
	}
	if value, ok := c.Opts.Get("verbose"); ok && value.From == opt.FromCommand {
		c.trace = value.Count > 1 || !c.Command.OwnVerbose
	}
	return c.Command.Run(c)
}

// IsNo tells the values with which an input variable of a switch says no.
func IsNo(_, value string) bool {
	switch strings.ToLower(value) {
	case "0", "no", "n", "off", "false":
		return true
	}
	return false
}

// Report prints what an error says and gives the exit code.
func Report(env *Env, err error, name string, badUsage int) int {
	var (
		usage   *opt.UsageError
		refused *opt.RefusedError
		failed  *ExitError
		code    ExitCode
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(env.Stderr, "%s\nTry \"%s --help\" for more information\n", usage.Error(), name)
		return badUsage
	case errors.As(err, &refused):
		fmt.Fprintf(env.Stderr, "%s: error: %s\n", name, refused.Error())
		return badUsage
	case errors.As(err, &failed):
		for _, line := range failed.lines {
			fmt.Fprintln(env.Stderr, plain.Text(line))
		}
		return failed.Code
	case errors.As(err, &code):
		return int(code)
	}
	refusal := ExplainError(err)
	for _, line := range refusal.Preamble(name) {
		fmt.Fprintln(env.Stderr, plain.Text(line))
	}
	if refusal.Code != spec.CodeBadRequest ||
		refusal.Detail == "" { // what is not valid about it was said
		fmt.Fprintf(env.Stderr, "%s: error: %s\n", name, plain.Text(refusal.Text))
	}
	return 1
}

// Preamble gives the lines that stand in front of an error's own.
func (r Refusal) Preamble(name string) []string {
	var out []string
	for _, text := range [...]string{r.prefix, r.Detail} {
		for line := range strings.Lines(text) { // a script of the site may say several
			out = append(out, name+": error: "+strings.TrimRight(line, "\n"))
		}
	}
	return out
}

// Connect dials once for a command.
func (c *Call) Connect() (Conn, error) {
	if c.Conn == nil {
		conn, err := c.Dial(c.Ctx)
		if err != nil {
			return nil, err
		}
		c.Conn = conn
	}
	return c.Conn, nil
}

// ConnectFor connects to accounting for its methods, where accounting listens on a socket of its
// own, and to the controller otherwise. Accounting that does not answer there may have become part
// of the controller, which refuses the call if it has not.
func (c *Call) ConnectFor(method string) (Conn, error) {
	if !toAccounting(method) || c.DialPast == nil {
		return c.Connect()
	}
	if c.Past == nil {
		conn, err := c.DialPast(c.Ctx)
		if err != nil || conn == nil {
			return c.Connect()
		}
		c.Past = conn
	}
	return c.Past, nil
}

// Cluster is the name of the cluster that this call asks: the one that -M named, or else what the
// controller says. It is empty where no controller answers.
func (c *Call) Cluster() string {
	switch {
	case c.named != "":
		return c.named
	case c.API != nil:
		return c.API.Cluster
	case c.cluster == "":
		var ping apiv1.PingReply
		if err := c.RPC(MethodPing, &apiv1.PingRequest{}, &ping); err == nil {
			c.cluster = ping.GetCluster()
		}
	}
	return c.cluster
}

// RPC makes one call.
func (c *Call) RPC(method string, request, resp proto.Message) error {
	conn, err := c.ConnectFor(method)
	if err != nil {
		return err
	}
	ctx, cancel := c.limitCall(method)
	defer cancel()
	began := c.Now()
	endNote := c.NoteWaiting(method)
	err = c.callThroughElection(ctx, conn, method, request, resp)
	endNote()
	c.Trace(method, began, request, resp)
	return err
}

// Trace says on stderr what was asked, with -v.
func (c *Call) Trace(method string, began time.Time, request, resp proto.Message) {
	if !c.trace {
		return
	}
	fmt.Fprintf(
		c.Stderr,
		"%s: %s: %d bytes asked, %d answered, %v\n",
		c.Command.Name,
		method,
		proto.Size(request),
		proto.Size(resp),
		c.Now().Sub(began).Round(10*time.Microsecond),
	)
}

// Request is one of several calls that are sent together.
type Request struct {
	Method    string
	Req, Resp proto.Message
}

// RPCAll sends several calls at once and reads their answers in order.
func (c *Call) RPCAll(list ...Request) error {
	conn, err := c.Connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Ctx, callPatience)
	defer cancel()
	began := c.Now()
	waiting := make([]Pending, len(list))
	for i, request := range list {
		waiting[i], err = conn.Start(ctx, request.Method, request.Req)
		if err != nil {
			return err
		}
	}
	repeat := false // all that is left, at the controller that leads next
	for i, request := range list {
		if !repeat {
			err = c.Patiently(ctx, sentOnce(waiting[i], request, func() error {
				return conn.Call(ctx, request.Method, request.Req, request.Resp)
			}))
			repeat = err != nil && c.mayDialAgain(conn) && prepareRepeat(request.Req, err)
		}
		if repeat {
			err = c.callThroughElection(ctx, c.Conn, request.Method, request.Req, request.Resp)
		}
		if err != nil {
			return err
		}
		c.Trace(request.Method, began, request.Req, request.Resp)
	}
	return nil
}

// sentOnce waits for the answer of a request that is on its way, and makes the call anew where it
// is asked again.
func sentOnce(pending Pending, request Request, call func() error) func() error {
	sent := true
	return func() error {
		if sent {
			sent = false
			return pending.Wait(request.Resp)
		}
		return call()
	}
}

// PastCluster is the cluster whose past -M asks about: this one, or one that
// was imported. Accounting knows which there are, and refuses several at once.
func (c *Call) PastCluster() string {
	if c.named != "" {
		return c.imported
	}
	if text := c.Opts.Text("clusters"); !strings.EqualFold(text, "all") {
		return text
	}
	return ""
}

// Repeat runs a query once, or every -i seconds until it is ended.
func (c *Call) Repeat(once func() error) error {
	text := c.Opts.Text("iterate")
	if !c.Opts.On("iterate") {
		return once()
	}
	seconds, ok := PositiveNumber(text)
	if !ok {
		return c.Errorf("--iterate=%s: expected a number of seconds above zero", text)
	}
	for {
		if err := once(); err != nil {
			return err
		}
		if err := c.Out.Flush(); err != nil {
			return err
		}
		c.Pause(c.Ctx, time.Duration(seconds)*time.Second)
		if c.Ctx.Err() != nil {
			return nil
		}
		if _, err := c.Out.WriteString("\n"); err != nil {
			return err
		}
	}
}

// Exact has the output from here on passed on to the byte, also to a terminal:
// for documents, and for text that is plain already.
func (c *Call) Exact() error {
	if c.screen == nil {
		return nil
	}
	if err := c.Out.Flush(); err != nil {
		return err
	}
	c.screen.Exact()
	return nil
}

// WriteOut appends to the output; the error shows when it is flushed.
func (c *Call) WriteOut(data []byte) error {
	_, err := c.Out.Write(data)
	return err
}
