package submit

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// This file runs sbatch in the controller, for a caller that carries what was
// typed and does not understand it: starting a Go program costs half of what a
// whole submission may take. It is the same command with the same options; what
// needs the caller's own files, clock zone or patience is sent home, where the
// caller runs the program that understands it.

// TypedHost is what Typed needs of the process that it runs in.
type TypedHost struct {
	Version string
	Zone    string // this process's setting of the clock zone, TZ=NAME; empty where TZ is not set
	// Filtered tells that the site has a cli_filter.lua, which runs in the user's own command.
	Filtered bool
	// Submit hands the job in, as the user who called; its errors are *rpcstatus.Error.
	Submit func(ctx context.Context, request *apiv1.SubmitRequest) (*apiv1.SubmitReply, error)
}

// typed is a command that was typed elsewhere.
type typed struct {
	in   *apiv1.TypedCommand
	ctx  context.Context
	host TypedHost
	// home: the caller must run the command itself; nothing was done.
	home bool
}

// errHome ends a command that the caller must run itself.
var errHome = errors.New("this command must run where it was typed")

// Typed runs sbatch as it was typed elsewhere.
func Typed(ctx context.Context, in *apiv1.TypedCommand, host TypedHost) *apiv1.TypedAnswer {
	home := &apiv1.TypedAnswer{Home: true}
	for _, text := range [...][]byte{in.GetArgs(), in.GetEnvironment(), in.GetDir(), in.GetHost(), in.GetScriptArg(), in.GetScriptPath()} {
		if !utf8.Valid(text) {
			return home // the program that understands it says which text cannot be sent
		}
	}
	if host.Filtered || isElaborate(in) {
		return home
	}
	t := &typed{in: in, ctx: ctx, host: host}
	var out, errOut bytes.Buffer
	env := &tool.Env{
		Args: append(
			[]string{"sbatch"},
			splitAtNUL(
				in.GetArgs(),
			)...), Environ: splitAtNUL(in.GetEnvironment()), Stdin: bytes.NewReader(nil), Stdout: &out, Stderr: &errOut,
		Dir: string(
			in.GetDir(),
		), Host: string(in.GetHost()), Version: host.Version, Loc: time.Local, Now: time.Now,
		Dial:     func(context.Context) (tool.Conn, error) { return typedConn{t}, nil },
		Terminal: func(any) bool { return false }, Pause: tool.Pause, UserName: tool.UserName, FullName: tool.FullName, Beside: tool.Beside,
		Rlimits: in.GetRlimits, Umask: in.GetUmask, Nice: func() int { return int(in.GetNice()) }, Relay: t,
	}
	code := tool.RunCommand(env, Sbatch(), env.Args[1:])
	if t.home {
		return home
	}
	return &apiv1.TypedAnswer{Exit: uint32(code), Out: out.Bytes(), Err: errOut.Bytes()}
}

// maxWords bounds the options and directives that are read for others, who wait
// meanwhile: each costs some microseconds.
const maxWords = 4096

// isElaborate tells whether a command has so many options that whoever typed it
// must read them himself.
func isElaborate(in *apiv1.TypedCommand) bool {
	return bytes.Count(in.GetArgs(), []byte{0}) > maxWords ||
		bytes.Count(in.GetScript(), []byte(directiveMark)) > maxWords ||
		longestDirective(in.GetScript()) > maxDirective
}

// maxDirective bounds one line of options, which may hold many of them.
const maxDirective = 64 << 10

// longestDirective is the length of the longest line that begins with #SBATCH.
func longestDirective(script []byte) int {
	longest := 0
	for line := range bytes.Lines(script) {
		if bytes.HasPrefix(line, []byte(directiveMark)) {
			longest = max(longest, len(line))
		}
	}
	return longest
}

// splitAtNUL takes a list with a NUL after each element apart.
func splitAtNUL(data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// Script is the script that came with the command.
func (t *typed) Script(arg string) (path string, data []byte, err error) {
	if len(t.in.GetScriptPath()) == 0 || arg != string(t.in.GetScriptArg()) {
		t.home = true
		return "", nil, errHome
	}
	return string(t.in.GetScriptPath()), t.in.GetScript(), nil
}

// SendHome notes that the caller must run the command itself.
func (t *typed) SendHome() { t.home = true }

// typedHome are the options that read the caller's files, look at who he is, or go on after
// the submission.
var typedHome = [...]string{"nodefile", "export-file", "wait", "clusters", "x11", "uid", "gid"}

// typedZoned are those whose meaning depends on the caller's clock zone.
var typedZoned = [...]string{"begin", "deadline", "test-only"}

// StaysHome tells that these options must be acted on where they were typed.
func (t *typed) StaysHome(values *opt.Values) bool {
	t.home = slices.ContainsFunc(typedHome[:], values.On)
	if value, ok := values.Get("distribution"); ok {
		// it reads the host file
		t.home = t.home || strings.HasPrefix(strings.ToLower(value.Text), arbitrary)
	}
	if ZoneSetting(splitAtNUL(t.in.GetEnvironment())) != t.host.Zone {
		t.home = t.home || slices.ContainsFunc(typedZoned[:], values.On)
	}
	return t.home
}

// ZoneSetting is the TZ=NAME of an environment, empty without one. TZ= with
// nothing behind it is something else: it means UTC.
func ZoneSetting(environ []string) string {
	for _, kv := range environ {
		if strings.HasPrefix(kv, "TZ=") {
			return kv
		}
	}
	return ""
}

// typedConn is the way to the controller from inside it.
type typedConn struct{ t *typed }

// Call implements Conn.
func (c typedConn) Call(_ context.Context, method string, req, resp proto.Message) error {
	q, ok := req.(*apiv1.SubmitRequest)
	to, ok2 := resp.(*apiv1.SubmitReply)
	if !ok || !ok2 {
		c.t.home = true
		return errHome
	}
	reply, err := c.t.host.Submit(c.t.ctx, q)
	if err != nil {
		return err
	}
	to.Uid = reply.GetUid()
	to.JobId = reply.GetJobId()
	to.Message = reply.GetMessage()
	to.Tag = reply.GetTag()
	to.PlannedStart = reply.GetPlannedStart()
	to.PlannedNodes = reply.GetPlannedNodes()
	to.PlannedPartition = reply.GetPlannedPartition()
	to.PlannedCpus = reply.GetPlannedCpus()
	return nil
}

// Start implements Conn.
func (c typedConn) Start(context.Context, string, proto.Message) (tool.Pending, error) {
	c.t.home = true
	return nil, errHome
}

// Stream implements Conn.
func (c typedConn) Stream(context.Context, string, proto.Message) (tool.Receiver, error) {
	return nil, rpcstatus.New(
		rpcstatus.Unimplemented,
		"a command that was typed elsewhere has no streams",
	)
}

// Close implements Conn.
func (typedConn) Close() error { return nil }
