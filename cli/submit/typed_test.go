package submit

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// doors is a controller with both doors: sbatch's own, and that for commands as
// they were typed.
type doors struct {
	mu       sync.Mutex
	jobs     []*apiv1.SubmitRequest
	typed    int  // commands that came as typed and were done
	old      bool // the controller knows only the first door
	hangs    bool // it ends the connection instead of answering
	messages string
}

func (d *doors) submit(_ context.Context, req *apiv1.SubmitRequest) (*apiv1.SubmitReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs = append(d.jobs, req)
	switch req.GetSpec().GetName() {
	case "toobig":
		return nil, rpcstatus.Convert(&spec.Error{Kind: spec.CodeNodeConfigUnavailable, Prefix: "Memory specification can not be satisfied", Detail: "16 GPUs"}, rpcstatus.Numbers())
	case "broken":
		return nil, rpcstatus.New(rpcstatus.Internal, "it broke")
	}
	rep := &apiv1.SubmitReply{JobId: 7, Uid: 8, Message: d.messages}
	if req.GetTestOnly() {
		rep = &apiv1.SubmitReply{JobId: 7, PlannedStart: 1e18, PlannedCpus: 2, PlannedNodes: "n[1-2]", PlannedPartition: "gpu"}
	}
	return rep, nil
}

// set changes what the controller does while clients may still be there.
func (d *doors) set(change func(d *doors)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(d)
}

func (d *doors) handle(ctx context.Context, call *serve.Call) error {
	var rep proto.Message
	d.mu.Lock()
	old, hangs := d.old, d.hangs
	d.mu.Unlock()
	switch {
	case hangs:
		return rpcstatus.New(rpcstatus.Internal, "a panic")
	case call.Method == "/muster.v1.Shell/Sbatch" && !old:
		var in apiv1.TypedCommand
		if err := proto.Unmarshal(call.Payload, &in); err != nil {
			return err
		}
		out := Typed(ctx, &in, TypedHost{Version: "test", Submit: d.submit, Zone: ZoneSetting(os.Environ())})
		if !out.GetHome() {
			d.mu.Lock()
			d.typed++
			d.mu.Unlock()
		}
		rep = out
	case call.Method == tool.MethodSubmit:
		var in apiv1.SubmitRequest
		if err := proto.Unmarshal(call.Payload, &in); err != nil {
			return err
		}
		var err error
		if rep, err = d.submit(ctx, &in); err != nil {
			return err
		}
	case call.Method == tool.MethodPing:
		rep = &apiv1.PingReply{Cluster: "lab"}
	default:
		return rpcstatus.New(rpcstatus.Unimplemented, "no %s here", call.Method)
	}
	return call.ReplyWith(func(b []byte) ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(b, rep) })
}

// small is a folder with the small sbatch, muster beside it, and a controller.
type small struct {
	*doors
	t   *testing.T
	dir string
	env []string
}

func newSmall(t *testing.T) *small {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("SKIPPED: no C compiler: deploy/deps/install.sh build installs it")
	}
	dir, err := os.MkdirTemp("", "sb") // not t.TempDir: a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if out, err := exec.CommandContext(t.Context(), cc, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", filepath.Join(dir, "muster-sbatch"), "../../cmd/muster-sbatch/sbatch.c").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Not the test's own program: with the race detector in it that starts for a
	// third of a second, and here it starts some hundred times.
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w -X main.version=test", "-o", filepath.Join(dir, "muster"), "../../cmd/muster").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := &small{doors: &doors{}, t: t, dir: dir, env: []string{"PATH=" + os.Getenv("PATH"), "PWD=" + dir, "MUSTER_SOCKET=" + dir + "/s", "A=1", "ODD=a=b\nc", "A=2"}}
	s.file("job.sh", "#!/bin/sh\n#SBATCH -J fromscript --mem=2G\n#SBATCH -t 5\nhostname\n")
	s.file("bad.sh", "echo no interpreter\n")
	s.file("odd.sh", "#!/bin/sh\n#SBATCH --nosuch\n")
	s.file("nodes", "n1 n2\n")
	s.file("vars", "X=1\x00")
	s.listen()
	return s
}

func (s *small) file(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

func (s *small) listen() {
	s.t.Helper()
	srv, err := serve.New(serve.Config{Handler: s.handle, Errors: rpcstatus.Numbers(), Authenticate: func(_ context.Context, c net.Conn) (net.Conn, identity.Identity, error) {
		return c, identity.Identity{}, nil
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(s.dir, "s"))
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, serve.ErrStopped) {
			s.t.Errorf("serve: %v", err)
		}
	}()
	s.t.Cleanup(func() { srv.Close(); <-done })
}

// printed is what a program says and its exit code.
type printed struct {
	code        int
	out, errOut string
}

// outcome is all that a run leaves behind.
type outcome struct {
	printed
	jobs  []*apiv1.SubmitRequest
	typed int
}

// run runs one of the programs as sbatch.
func (s *small) run(program, line string) outcome {
	s.t.Helper()
	words, err := tool.ShellWords(line)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.runWords(program, words)
}

func (s *small) runWords(program string, words []string) outcome {
	s.t.Helper()
	s.mu.Lock()
	s.jobs, s.typed = nil, 0
	s.mu.Unlock()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(s.dir, program), words...)
	cmd.Args[0], cmd.Dir, cmd.Env = "sbatch", s.dir, s.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("#!/bin/sh\nread\n"), &out, &errOut
	if err := cmd.Run(); err != nil {
		var ended *exec.ExitError
		if !errors.As(err, &ended) {
			s.t.Fatal(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return outcome{printed{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}, s.jobs, s.typed}
}

// same runs both programs with a line and compares what they leave behind; typed
// tells whether the small one was served at its own door.
func (s *small) same(line string, typed bool) {
	s.t.Helper()
	want, got := s.run("muster", line), s.run("muster-sbatch", line)
	s.equal(line, got, want)
	if (got.typed == 1) != typed {
		s.t.Errorf("sbatch %s: served at its own door: %v, want %v", line, got.typed == 1, typed)
	}
}

func (s *small) equal(line string, got, want outcome) {
	s.t.Helper()
	if got.printed != want.printed {
		s.t.Errorf("sbatch %s:\n got %+v\nwant %+v", line, got.printed, want.printed)
	}
	if len(got.jobs) != len(want.jobs) {
		s.t.Errorf("sbatch %s: %d submissions, want %d", line, len(got.jobs), len(want.jobs))
		return
	}
	for i, j := range got.jobs {
		j.Request, want.jobs[i].Request = 0, 0 // chance
		if !proto.Equal(j, want.jobs[i]) {
			s.t.Errorf("sbatch %s:\n got %v\nwant %v", line, j, want.jobs[i])
		}
	}
}

// TestSmallSbatch: the small program and muster do the same, to the last byte.
func TestSmallSbatch(t *testing.T) {
	s := newSmall(t)
	s.messages = "a warning of the controller\n"
	for _, line := range []string{
		"job.sh", "./job.sh a 'b c' -x", "-H --parsable job.sh", "-Hp gpu,debug -N2 job.sh", "-J x --comment='two words' -t 1:30 --wrap 'echo hi'", "--wrap=hostname",
		"-n4 -c 2 --gres=gpu:2 -o out-%j -D /tmp job.sh", "--exclusive -k job.sh", "--exclusive=user -a 0-9%2 job.sh", "--nice=5 --nice job.sh", "--mem=1.5G job.sh", "-N 4-2 job.sh",
		"-J toobig job.sh", "-J broken job.sh", "--test-only job.sh", "--test-only -J toobig job.sh", "-Q job.sh", "-v job.sh", "--begin=2030-01-01 job.sh", "--export=NONE,B=2 job.sh",
		"--propagate=CORE job.sh", "--mail-type=END job.sh", "--bb=x job.sh", "--wrap x y", "bad.sh", "odd.sh", "-t", "--help", "--version", "-V", "--mem=2G --mem-per-cpu=1G job.sh", "--switches=1 job.sh", "job.sh ''", "-J '' job.sh",
	} {
		s.same(line, !strings.HasSuffix("-t", line) && line != "--help" && line != "--version" && line != "-V")
	}
	for _, line := range []string{ // what the small one does not do itself
		"", "-H", "--parsabl job.sh", "--nosuch job.sh", "-Z job.sh", "-- job.sh", "-", "nosuch.sh", "true", "-F nodes job.sh", "--export-file=vars job.sh", "-M lab job.sh", "-M other job.sh", "nodes/x", "-J \xff job.sh",
	} {
		s.same(line, false)
	}
	s.env = append(s.env, "SBATCH_TIMELIMIT=9", "SBATCH_PARTITION=gpu", "SLURM_UMASK=077", "SLURM_EXIT_ERROR=9", "SBATCH_EXCLUSIVE=no")
	s.same("job.sh", true)
	s.same("-J toobig job.sh", true)
	s.env = append(s.env, "TZ=Asia/Tokyo")
	s.same("job.sh", true)
	s.same("--begin=2030-01-01 job.sh", false)
	s.env = append(s.env, "PWD=/tmp", "SBATCH_PROFILE=all")
	s.same("job.sh", true)
}

// TestSmallSbatchFindsTheController: as muster does, by variable, file and default.
func TestSmallSbatchFindsTheController(t *testing.T) {
	s := newSmall(t)
	env := func(more ...string) []string {
		return append([]string{"PATH=" + os.Getenv("PATH"), "PWD=" + s.dir}, more...)
	}
	for name, yaml := range map[string]string{
		"socket": "run_dir: /nowhere\nsocket: " + s.dir + "/s # here\n", "run dir": "a: 1\nrun_dir: " + s.dir + "/run\n", "both": "socket:   " + s.dir + "/s\nrun_dir: /x",
	} {
		s.file("m.yaml", yaml)
		if err := os.MkdirAll(filepath.Join(s.dir, "run"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(s.dir, "run", "muster.sock")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(s.dir, "s"), filepath.Join(s.dir, "run", "muster.sock")); err != nil {
			t.Fatal(err)
		}
		s.env = env("MUSTER_SOCKET=", "MUSTER_CONFIG="+s.dir+"/m.yaml")
		t.Log(name)
		s.same("job.sh", true)
	}
	for _, yaml := range []string{"socket: \"" + s.dir + "/s\"\n", "socket: s\n"} { // right, but not plain
		s.file("m.yaml", yaml)
		s.same("job.sh", false)
	}
	s.env = env("MUSTER_SERVER=host", "MUSTER_SOCKET="+s.dir+"/s")
	s.same("job.sh", false)
	s.env = env("MUSTER_SOCKET=" + s.dir + "/nobody")
	s.same("job.sh", false)
}

// TestSmallSbatchOldController: one that does not know the small door, and one
// that breaks.
func TestSmallSbatchOldController(t *testing.T) {
	s := newSmall(t)
	s.set(func(d *doors) { d.old = true })
	s.same("-H job.sh", false)
	s.set(func(d *doors) { d.hangs = true })
	s.env = append(s.env, "SLURM_EXIT_ERROR=3")
	r := s.run("muster-sbatch", "job.sh")
	if r.code != 3 || !strings.Contains(r.errOut, "sbatch: error: Batch job submission failed: ") || !strings.Contains(r.errOut, unknownOutcome) || r.out != "" {
		t.Errorf("%+v", r)
	}
}

// TestSmallSbatchAnyLine: the same for command lines that nobody would write.
func TestSmallSbatchAnyLine(t *testing.T) {
	s := newSmall(t)
	r := rand.New(rand.NewPCG(1, 2))
	words := []string{"job.sh", "./job.sh", "odd.sh", "nosuch", "--", "-", "", "-x", "--wrap", "--wrap=true", "2", "4G", "gpu:1", "0-3", "a=b", "--no", "-HQ", "-Hn", "-n2", "-kH", "-k5", "-sH", "-N"}
	for _, o := range Sbatch().Set().Options {
		if o.Long == "verbose" {
			continue // twice, it tells how long the call took
		}
		words = append(words, "--"+o.Long, "--"+o.Long+"=2")
		if o.Short != "" {
			words = append(words, "-"+o.Short, "-"+o.Short+"2")
		}
	}
	typed := 0
	for range 80 {
		line := make([]string, r.IntN(5))
		for i := range line {
			line[i] = words[r.IntN(len(words))]
		}
		if r.IntN(2) == 0 {
			line = append(line, "job.sh")
		}
		want, got := s.runWords("muster", line), s.runWords("muster-sbatch", line)
		s.equal(strings.Join(line, " "), got, want)
		typed += got.typed
	}
	if typed < 15 || typed > 75 {
		t.Errorf("%d of 80 lines were served at the small program's own door", typed)
	}
}

// TestTypedKnowsTheCallersZone: a time is the controller's to read only where
// the caller has its clock zone; a TZ that is set to nothing is one too.
func TestTypedKnowsTheCallersZone(t *testing.T) {
	for _, c := range []struct {
		controller, caller string
		home               bool
	}{{"", "", false}, {"TZ=Asia/Tokyo", "TZ=Asia/Tokyo", false}, {"", "TZ=Asia/Tokyo", true}, {"TZ=Asia/Tokyo", "", true}, {"", "TZ=", true}, {"TZ=", "TZ=", false}} {
		in := &apiv1.TypedCommand{Dir: []byte("/"), Args: []byte("--begin=2030-01-01\x00--wrap=true\x00"), Environment: []byte("A=1\x00")}
		if c.caller != "" {
			in.Environment = append(in.Environment, c.caller+"\x00"...)
		}
		d := &doors{}
		if got := Typed(t.Context(), in, TypedHost{Zone: c.controller, Submit: d.submit}); got.GetHome() != c.home || (len(d.jobs) == 0) != c.home {
			t.Errorf("controller %q, caller %q: home %v with %d jobs submitted, want home %v", c.controller, c.caller, got.GetHome(), len(d.jobs), c.home)
		}
	}
}

// TestElaborateCommandsStayHome: a command with very many options is read by whoever
// typed it, whichever way they come.
func TestElaborateCommandsStayHome(t *testing.T) {
	script := func(text string) *apiv1.TypedCommand {
		return &apiv1.TypedCommand{Args: []byte("s.sh\x00"), ScriptArg: []byte("s.sh"), ScriptPath: []byte("/s.sh"), Script: []byte("#!/bin/sh\n" + text)}
	}
	for name, in := range map[string]*apiv1.TypedCommand{
		"directives":         script(strings.Repeat("#SBATCH -J x\n", maxWords+1)),
		"words of directive": script("#SBATCH" + strings.Repeat(" -J x", maxDirective/4) + "\n"),
		"options":            {Args: []byte(strings.Repeat("-Jx\x00", maxWords+1))},
	} {
		if rep := Typed(t.Context(), in, TypedHost{Submit: (&doors{}).submit}); !rep.GetHome() {
			t.Errorf("many %s: %s%s", name, rep.GetOut(), rep.GetErr())
		}
	}
	if rep := Typed(t.Context(), script(strings.Repeat("#SBATCH -J x\n", maxWords)), TypedHost{Submit: (&doors{}).submit}); rep.GetHome() || rep.GetExit() != 0 {
		t.Errorf("as many as allowed: home %v, exit %d, %s", rep.GetHome(), rep.GetExit(), rep.GetErr())
	}
}
