package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/spec"
)

// slurmVersion is what every -V answers after "slurm ": clients look for it.
const slurmVersion = "25.11.0"

// call is one run of a command.
type call struct {
	*Env
	ctx   context.Context
	cmd   *command
	opts  *opt.Values
	args  []string // what is left of the command line
	out   *bufio.Writer
	conn  Conn
	past  Conn // to accounting, where it runs in a process of its own
	trace bool // -v: say on stderr what was asked
}

// failure ends a command with an exit code and lines for stderr.
type failure struct {
	code  int
	lines []string
}

// Error joins the lines.
func (f *failure) Error() string { return strings.Join(f.lines, "\n") }

// fail makes a failure of complete lines.
func fail(code int, lines ...string) error { return &failure{code: code, lines: lines} }

// errorf makes the failure that Slurm's tools word "NAME: error: text".
func (c *call) errorf(format string, args ...any) error {
	return fail(1, c.cmd.called()+": error: "+fmt.Sprintf(format, args...))
}

// exit ends a command with a code and no text.
type exit int

// Error names the code.
func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Main runs the command that the arguments name and returns its exit code.
func Main(e *Env) int {
	name, args := baseName(e.Args[0]), e.Args[1:]
	cmd := find(name)
	if cmd == nil || !cmd.slurm {
		if len(args) == 0 {
			return report(e, helpAll(e.Stdout), "muster", 1)
		}
		switch name, args = args[0], args[1:]; name {
		case "--version", "-V":
			name = "version"
		case "--help", "-h":
			name = "help"
		}
		if cmd = find(name); cmd == nil {
			return report(e, unknownCommand(name), "muster", 1)
		}
	}
	return runCommand(e, cmd, args)
}

func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// runCommand parses the arguments and runs.
func runCommand(e *Env, cmd *command, args []string) int {
	if cmd.program != nil {
		return report(e, handOver(e, cmd, args), cmd.name, 1)
	}
	c := &call{Env: e, ctx: context.Background(), cmd: cmd, opts: opt.New(), out: bufio.NewWriterSize(e.Stdout, 8<<10)}
	err := c.run(args)
	for _, conn := range [...]Conn{c.conn, c.past} {
		if conn == nil {
			continue
		}
		if cerr := conn.Close(); cerr != nil && err == nil {
			err = cerr
		}
	}
	if ferr := c.out.Flush(); ferr != nil && err == nil {
		err = fail(1, cmd.called()+": error: writing the output: "+ferr.Error())
	}
	bad := cmd.badUsage
	if bad == 0 {
		bad = 1
	}
	return report(e, err, cmd.called(), bad)
}

func (c *call) run(args []string) error {
	set := c.cmd.set()
	var err error
	if !c.cmd.ownPrecedence {
		if err = set.FromEnviron(c.Lookup, isNo, c.opts); err != nil {
			return err
		}
	}
	if c.args, err = set.Parse(args, c.opts, opt.FromCommand); err != nil {
		return err
	}
	switch {
	case c.opts.On("help"):
		_, err := c.out.WriteString(helpText(c.cmd))
		return err
	case c.opts.On("usage"):
		_, err := c.out.WriteString(usageText(c.cmd))
		return err
	case c.opts.On("version"):
		return printVersion(c)
	}
	if v, ok := c.opts.Get("verbose"); ok && v.From == opt.FromCommand {
		c.trace = v.Count > 1 || !c.cmd.ownVerbose
	}
	return c.cmd.run(c)
}

// isNo tells the values with which an input variable of a switch says no.
func isNo(_, value string) bool {
	switch strings.ToLower(value) {
	case "0", "no", "n", "off", "false":
		return true
	}
	return false
}

// report prints what an error says and gives the exit code.
func report(e *Env, err error, name string, badUsage int) int {
	var (
		usage   *opt.UsageError
		refused *opt.RefusedError
		failed  *failure
		code    exit
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(e.Stderr, "%s\nTry \"%s --help\" for more information\n", usage.Error(), name)
		return badUsage
	case errors.As(err, &refused):
		fmt.Fprintf(e.Stderr, "%s: error: %s\n", name, refused.Error())
		return badUsage
	case errors.As(err, &failed):
		for _, line := range failed.lines {
			fmt.Fprintln(e.Stderr, line)
		}
		return failed.code
	case errors.As(err, &code):
		return int(code)
	}
	r := explainError(err)
	for _, line := range r.before(name) {
		fmt.Fprintln(e.Stderr, line)
	}
	if r.code != spec.CodeBadRequest || r.detail == "" { // what is not valid about it was said
		fmt.Fprintf(e.Stderr, "%s: error: %s\n", name, r.text)
	}
	return 1
}

// before gives the lines that stand in front of an error's own.
func (r remote) before(name string) []string {
	var out []string
	for _, text := range [...]string{r.prefix, r.detail} {
		if text != "" {
			out = append(out, name+": error: "+text)
		}
	}
	return out
}

func unknownCommand(name string) error {
	line := fmt.Sprintf("muster: %q is not a command; muster help lists them", name)
	if why := notYet(name); why != "" {
		line = fmt.Sprintf("muster: %s is not in this release: %s", name, why)
	} else if near := nearest(name); near != "" {
		line = fmt.Sprintf("muster: %q is not a command; did you mean %s?", name, near)
	}
	return fail(1, line)
}

// connect dials once for a command.
func (c *call) connect() (Conn, error) {
	if c.conn == nil {
		conn, err := c.Dial(c.ctx)
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	return c.conn, nil
}

// connectFor is connect, but to accounting for its methods, where that listens
// on a socket of its own. One that does not answer there may be part of the
// controller again, which says so if it is not.
func (c *call) connectFor(method string) (Conn, error) {
	if !strings.HasPrefix(method, accountingPrefix) || c.DialPast == nil {
		return c.connect()
	}
	if c.past == nil {
		conn, err := c.DialPast(c.ctx)
		if err != nil || conn == nil {
			return c.connect()
		}
		c.past = conn
	}
	return c.past, nil
}

// ask makes one call.
func (c *call) ask(method string, req, resp proto.Message) error {
	conn, err := c.connectFor(method)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, callPatience)
	defer cancel()
	began := c.Now()
	err = conn.Call(ctx, method, req, resp)
	c.traced(method, began, req, resp)
	return err
}

// traced says on stderr what was asked, with -v.
func (c *call) traced(method string, began time.Time, req, resp proto.Message) {
	if !c.trace {
		return
	}
	fmt.Fprintf(c.Stderr, "%s: %s: %d bytes asked, %d answered, %v\n", c.cmd.name, method, proto.Size(req), proto.Size(resp),
		c.Now().Sub(began).Round(10*time.Microsecond))
}

// question is one of several calls that are sent together.
type question struct {
	method    string
	req, resp proto.Message
}

// askAll sends several calls at once and reads their answers in order.
func (c *call) askAll(list ...question) error {
	conn, err := c.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, callPatience)
	defer cancel()
	began := c.Now()
	waiting := make([]Pending, len(list))
	for i, q := range list {
		if waiting[i], err = conn.Start(ctx, q.method, q.req); err != nil {
			return err
		}
	}
	for i, q := range list {
		if err := waiting[i].Wait(q.resp); err != nil {
			return err
		}
		c.traced(q.method, began, q.req, q.resp)
	}
	return nil
}

// checkClusters lets -M name this cluster, and no other. all is allowed too.
func (c *call) checkClusters() error {
	if !c.opts.On("clusters") {
		return nil
	}
	var ping apiv1.PingReply
	if err := c.ask(methodPing, &apiv1.PingRequest{}, &ping); err != nil {
		return err
	}
	for _, name := range c.opts.List("clusters") {
		if name != ping.GetCluster() && !strings.EqualFold(name, "all") {
			return c.errorf("No cluster '%s' known by database.", name)
		}
	}
	return nil
}

// pastCluster is the cluster whose past -M asks about: this one, or one that
// was imported. Accounting knows which there are, and refuses several at once.
func (c *call) pastCluster() string {
	if text := c.opts.Text("clusters"); !strings.EqualFold(text, "all") {
		return text
	}
	return ""
}

// repeat runs a query once, or every -i seconds until it is ended.
func (c *call) repeat(once func() error) error {
	text := c.opts.Text("iterate")
	if !c.opts.On("iterate") {
		return once()
	}
	sec, ok := positive(text)
	if !ok {
		return c.errorf("--iterate=%s: expected a number of seconds above zero", text)
	}
	for {
		if err := once(); err != nil {
			return err
		}
		if err := c.out.Flush(); err != nil {
			return err
		}
		c.Pause(c.ctx, time.Duration(sec)*time.Second)
		if c.ctx.Err() != nil {
			return nil
		}
		if _, err := c.out.WriteString("\n"); err != nil {
			return err
		}
	}
}

// write appends to the output; the error shows when it is flushed.
func (c *call) write(b []byte) error {
	_, err := c.out.Write(b)
	return err
}

func readAll(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("larger than %d bytes", most)
	}
	return data, err
}

func readFile(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, most)
}
