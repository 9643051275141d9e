package submit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/stepclient"
	"github.com/musterhpc/muster/spec"
)

// values are options as a command line gives them: name or name=argument.
func values(words ...string) *opt.Values {
	v := opt.New()
	for _, w := range words {
		name, arg, has := strings.Cut(w, "=")
		v.Put(name, arg, has, opt.FromCommand)
	}
	return v
}

// stepCall is a run of srun that reaches no controller.
func stepCall(t *testing.T, out, errOut io.Writer) *tool.Call {
	t.Helper()
	env := &tool.Env{
		Args:     []string{"srun"},
		Environ:  []string{"MUSTER_SOCKET=" + filepath.Join(t.TempDir(), "none")},
		Stdin:    strings.NewReader(""),
		Stdout:   out,
		Stderr:   errOut,
		Dir:      "/lab/jobs",
		Host:     "vm",
		UID:      1001,
		Loc:      time.UTC,
		Now:      func() time.Time { return time.Unix(1000, 0) },
		Dial:     func(context.Context) (tool.Conn, error) { return nil, errors.New("there is no controller here") },
		Terminal: func(any) bool { return false },
		UserName: func(uint32) string { return "alice" },
		Umask:    func() uint32 { return 0o22 },
		Rlimits:  func() []*apiv1.Count { return nil },
	}
	return &tool.Call{Env: env, Ctx: t.Context(), Command: Srun(), Opts: opt.New()}
}

// TestStepOutput: lines stay whole and carry the number of their task; files
// are opened once, by their expanded names.
func TestStepOutput(t *testing.T) {
	dir := t.TempDir()
	type piece struct {
		rank uint32
		fd   uint8
		text string
	}
	pieces := []piece{{0, 1, "on"}, {11, 1, "eleven\nel"}, {0, 1, "e\ntwo"}, {3, 2, "bad\n"}, {0, 1, ""}, {11, 1, ""}}
	for name, tc := range map[string]struct {
		opts          *opt.Values
		out, err, log string
	}{
		"lines":      {values(), "eleven\none\ntwoel", "bad\n", ""},
		"label":      {values("label"), "11: eleven\n 0: one\n 0: two\n11: el\n", " 3: bad\n", ""},
		"unbuffered": {values("unbuffered"), "oneleven\nele\ntwo", "bad\n", ""},
		"one task":   {values("output=11"), "eleven\nel", "bad\n", ""},
		"a file":     {values("output=log-%j.%s"), "", "", "eleven\none\nbad\ntwoel"},
		"two files":  {values("output=log-%j.%s", "error=/dev/null"), "", "", "eleven\none\ntwoel"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			c := stepCall(t, &out, &errOut)
			c.Dir = dir
			o := newStepOutput(c, tc.opts, 12)
			err := o.addPart(c, tc.opts, &plan.FileFacts{JobID: 7, Step: 2}, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pieces {
				if err := o.writeTask(p.rank, p.fd, []byte(p.text)); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.close(); err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(filepath.Join(dir, "log-7.2"))
			if err != nil && tc.log != "" {
				t.Fatal(err)
			}
			_ = os.Remove(filepath.Join(dir, "log-7.2"))
			if out.String() != tc.out || errOut.String() != tc.err || string(log) != tc.log {
				t.Errorf("out %q, want %q; err %q, want %q; file %q, want %q", out.String(), tc.out, errOut.String(), tc.err, log, tc.log)
			}
		})
	}
}

// TestPartsWriteToTheirOwn: the tasks of each component of srun a : -o file b write where
// the options of theirs say, and a file that two of them name is opened once.
func TestPartsWriteToTheirOwn(t *testing.T) {
	var out, errOut bytes.Buffer
	c := stepCall(t, &out, &errOut)
	c.Dir = t.TempDir()
	o := newStepOutput(c, values(), 4)
	for i, opts := range []*opt.Values{values("output=both-%j"), values(), values("output=both-7")} {
		first := []uint32{2, 0, 3}[i] // the components need not come by their ranks
		if err := o.addPart(c, opts, &plan.FileFacts{JobID: 7}, first); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range uint32(4) {
		for fd := range uint8(2) {
			if err := o.writeTask(rank, fd+1, fmt.Appendf(nil, "%d.%d\n", rank, fd+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := o.close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(c.Dir, "both-7"))
	if err != nil {
		t.Fatal(err)
	}
	got := [3]string{out.String(), errOut.String(), string(file)}
	if want := [3]string{"0.1\n1.1\n", "0.2\n1.2\n", "2.1\n2.2\n3.1\n3.2\n"}; got != want {
		t.Errorf("output, errors and the file are %q, want %q", got, want)
	}
}

// TestInterrupts: how often Ctrl-C is pressed decides between a question, a
// signal and the end.
func TestInterrupts(t *testing.T) {
	for name, tc := range map[string]struct {
		opts    *opt.Values
		presses []time.Duration // after the one before
		want    string
	}{
		"one asks":           {values(), []time.Duration{0}, "srun: interrupt (one more within 1 sec to abort)\nsrun: StepId=7.2 tasks 0-1: running\n"},
		"slow ones ask":      {values(), []time.Duration{0, 2 * time.Second}, strings.Repeat("srun: interrupt (one more within 1 sec to abort)\nsrun: StepId=7.2 tasks 0-1: running\n", 2)},
		"two are passed on":  {values("quiet"), []time.Duration{0, 500 * time.Millisecond}, "srun: interrupt (one more within 1 sec to abort)\nsrun: StepId=7.2 tasks 0-1: running\n"},
		"no status":          {values("disable-status"), []time.Duration{0}, "srun: sending Ctrl-C to StepId=7.2\n"},
		"quit":               {values("quit-on-interrupt"), []time.Duration{0}, "srun: forcing job termination\nsrun: Terminating StepId=7.2\n"},
		"the third ends all": {values("disable-status"), []time.Duration{0, time.Millisecond}, "srun: sending Ctrl-C to StepId=7.2\nsrun: forcing job termination\nsrun: Terminating StepId=7.2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			c := stepCall(t, &out, &errOut)
			now := time.Unix(1000, 0)
			c.Now = func() time.Time { return now }
			r := &stepRun{c: c, opts: tc.opts, created: &apiv1.StepCreated{JobId: 7, Step: 2}, running: map[uint32]string{0: "n1", 1: "n1"}, client: stepclient.New(stepclient.Config{})}
			for _, after := range tc.presses {
				now = now.Add(after)
				r.handleInterrupt()
			}
			if errOut.String() != tc.want {
				t.Errorf("%q, want %q", errOut.String(), tc.want)
			}
			if ended := strings.Contains(tc.want, "Terminating"); ended != r.killed {
				t.Errorf("killed %v", r.killed)
			}
		})
	}
}

// TestExitLines: tasks of one node that ended alike stand in one line.
func TestExitLines(t *testing.T) {
	var e exits
	for _, rank := range []uint32{3, 0, 1, 2, 9} {
		e.list = append(e.list, taskExit{"n1", rank, "Exited with exit code 1"})
	}
	e.list = append(e.list, taskExit{"n2", 4, signalText(9)}, taskExit{"n2", 5, signalText(11) + " (core dumped)"})
	want := "n1: tasks 0-3,9: Exited with exit code 1\nn2: task 4: Killed\nn2: task 5: Segmentation fault (core dumped)"
	if got := strings.Join(e.describeExits(), "\n"); got != want || len(e.list) != 0 {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestEndOfAStep: srun ends with what the controller says, however its words
// come together, or the nodes where the controller has forgotten the step; and
// it waits for whoever reads its output.
func TestEndOfAStep(t *testing.T) {
	over := func(r *stepRun) { r.over = &apiv1.StepOver{State: uint32(spec.Failed), ExitCode: 3} }
	exited := func(r *stepRun) { r.noteTaskExit("n1", plan.TaskExit{Rank: 0, Code: 4}) }
	forgotten := spec.Refuse(spec.CodeAlreadyDone, "")
	for name, tc := range map[string]struct {
		events []stepEvent
		news   error
		told   bool
		code   int
		out    string
	}{
		"both know":                  {[]stepEvent{exited, over}, nil, true, 4, "srun: error: n1: task 0: Exited with exit code 4\n"},
		"the controller knows":       {[]stepEvent{over}, nil, false, 3, ""},
		"the nodes know":             {[]stepEvent{exited}, forgotten, true, 4, "srun: error: n1: task 0: Exited with exit code 4\n"},
		"all is well on the nodes":   {nil, forgotten, true, 0, ""},
		"nobody knows":               {nil, forgotten, false, 1, ""},
		"nor does one of many nodes": {[]stepEvent{func(r *stepRun) { r.vague = true }}, forgotten, true, 1, ""},
	} {
		for range 20 { // what comes at once is heard in any order
			var out, errOut bytes.Buffer
			c := stepCall(t, &out, &errOut)
			r := &stepRun{c: c, opts: values(), req: &apiv1.RunStepRequest{}, created: &apiv1.StepCreated{JobId: 7}, running: map[uint32]string{0: "n1"}, told: tc.told}
			var err error
			r.out = newStepOutput(c, r.opts, 1)
			if err = r.out.addPart(c, r.opts, &plan.FileFacts{}, 0); err != nil {
				t.Fatal(err)
			}
			events, news := make(chan stepEvent, 2), make(chan error, 1)
			for _, e := range tc.events {
				events <- e
			}
			news <- tc.news
			code, err := r.watchStep(t.Context(), events, news, nil, nil)
			var f *tool.ExitError
			if errors.As(err, &f) {
				code = f.Code
			}
			if code != tc.code || errOut.String() != tc.out {
				t.Fatalf("%s: exit %d (%v), wrote %q", name, code, err, errOut.String())
			}
		}
	}
	out, in := io.Pipe()
	now := time.Unix(1000, 0)
	o := &stepOutput{parts: []outputPart{{sinks: [2]sink{{to: in, only: -1}}}}, raw: true, now: func() time.Time { return now }}
	wrote := make(chan error, 1)
	go func() { wrote <- o.writeTask(0, 1, []byte("words")) }()
	if _, err := out.Read(make([]byte, 1)); err != nil || !o.isBusy(now.Add(time.Hour), time.Second) {
		t.Errorf("it is given up while its reader has a part of it (%v)", err)
	}
	if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil || !o.isBusy(now, time.Second) || o.isBusy(now.Add(time.Second), time.Second) {
		t.Errorf("%v: a piece that was taken counts for a second", err)
	}
}

// TestComponents: what stands between colons, and what cannot.
func TestComponents(t *testing.T) {
	for line, want := range map[string]string{
		"srun -n 1 a x : -n 2 b":     "[-n 1] [a x]|[-n 2] [b]",
		"srun -n 1 : -n 2 b y : c":   "[-n 1] [b y]|[-n 2] [b y]|[] [c]",
		"srun -n 1 a":                "[-n 1] [a]",
		"salloc -n 1 : -n 2":         "[-n 1] []|[-n 2] []",
		"salloc -n 1 : -n 2 sh -c x": "[-n 1] [sh -c x]|[-n 2] [sh -c x]",
	} {
		words := strings.Fields(line)
		c := stepCall(t, io.Discard, io.Discard)
		c.Args = words
		if words[0] == "salloc" {
			c.Command = Salloc()
		}
		var err error
		if c.Operands, err = c.Command.Set().Parse(words[1:], c.Opts, opt.FromCommand); err != nil {
			t.Fatal(err)
		}
		list, err := splitComponents(c)
		var got []string
		for _, p := range list {
			got = append(got, fmt.Sprint(p.words, " ", p.args))
		}
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%s: %q (%v), want %q", line, got, err, want)
		}
	}
}

// TestStepLimits: the limits that --propagate chooses are those of the tasks.
func TestStepLimits(t *testing.T) {
	sent := []*apiv1.Count{{Name: "CORE"}, {Name: "NOFILE", N: 700}}
	for option, want := range map[string]struct {
		names []string
		asked bool
	}{
		"":                {[]string{"CORE", "NOFILE"}, false},
		"propagate":       {[]string{"CORE", "NOFILE"}, true},
		"propagate=CORE":  {[]string{"CORE"}, true},
		"propagate=NONE":  {nil, true},
		"propagate=STACK": {nil, true},
	} {
		call := stepCall(t, io.Discard, io.Discard)
		call.Rlimits = func() []*apiv1.Count { return sent }
		call.Operands = []string{"hostname"}
		if option != "" {
			call.Opts = values(option)
		}
		job, err := liveJob(call, call.Operands)
		if err != nil {
			t.Fatal(err)
		}
		step, err := makeStep(call, job, call.Opts)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, limit := range step.GetRlimits() {
			names = append(names, limit.GetName())
		}
		if !slices.Equal(names, want.names) || step.GetLimitsAsked() != want.asked {
			t.Errorf("%q: %v, %v, want %v, %v", option, names, step.GetLimitsAsked(), want.names, want.asked)
		}
	}
}
