package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/internal/transport/stepclient"
	"github.com/musterhpc/muster/nodeagent/plan"
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

// TestStepOutput: lines stay whole and carry the number of their task; files
// are opened once, by their expanded names.
func TestStepOutput(t *testing.T) {
	w := newWorld(t)
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
			c := &call{Env: w.world([]string{"srun"}, &out, &errOut), cmd: srunCommand()}
			c.Dir = w.dir
			o, err := newStepOutput(c, tc.opts, &plan.FileFacts{JobID: 7, Step: 2}, 12)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pieces {
				if err := o.write(p.rank, p.fd, []byte(p.text)); err != nil {
					t.Fatal(err)
				}
			}
			if err := o.close(); err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(filepath.Join(w.dir, "log-7.2"))
			if err != nil && tc.log != "" {
				t.Fatal(err)
			}
			_ = os.Remove(filepath.Join(w.dir, "log-7.2"))
			if out.String() != tc.out || errOut.String() != tc.err || string(log) != tc.log {
				t.Errorf("out %q, want %q; err %q, want %q; file %q, want %q", out.String(), tc.out, errOut.String(), tc.err, log, tc.log)
			}
		})
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
			w := newWorld(t)
			c := &call{Env: w.world([]string{"srun"}, &out, &errOut), ctx: t.Context(), cmd: srunCommand()}
			now := time.Unix(1000, 0)
			c.Now = func() time.Time { return now }
			r := &stepRun{c: c, opts: tc.opts, created: &apiv1.StepCreated{JobId: 7, Step: 2}, running: map[uint32]string{0: "n1", 1: "n1"}, client: stepclient.New(stepclient.Config{})}
			for _, after := range tc.presses {
				now = now.Add(after)
				r.interrupt()
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
	if got := strings.Join(e.lines(), "\n"); got != want || len(e.list) != 0 {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestEndOfAStep: srun ends with what the controller says, however its words
// come together, or the nodes where the controller has forgotten the step; and
// it waits for whoever reads its output.
func TestEndOfAStep(t *testing.T) {
	over := func(r *stepRun) { r.over = &apiv1.StepOver{State: uint32(spec.Failed), ExitCode: 3} }
	exited := func(r *stepRun) { r.exited("n1", plan.TaskExit{Rank: 0, Code: 4}) }
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
			w := newWorld(t)
			c := &call{Env: w.world([]string{"srun"}, &out, &errOut), ctx: t.Context(), cmd: srunCommand()}
			r := &stepRun{c: c, opts: values(), req: &apiv1.RunStepRequest{}, created: &apiv1.StepCreated{JobId: 7}, running: map[uint32]string{0: "n1"}, told: tc.told}
			var err error
			if r.out, err = newStepOutput(c, r.opts, &plan.FileFacts{}, 1); err != nil {
				t.Fatal(err)
			}
			events, news := make(chan stepEvent, 2), make(chan error, 1)
			for _, e := range tc.events {
				events <- e
			}
			news <- tc.news
			code, err := r.watch(t.Context(), events, news, nil, nil)
			var f *failure
			if errors.As(err, &f) {
				code = f.code
			}
			if code != tc.code || errOut.String() != tc.out {
				t.Fatalf("%s: exit %d (%v), wrote %q", name, code, err, errOut.String())
			}
		}
	}
	out, in := io.Pipe()
	now := time.Unix(1000, 0)
	o := &stepOutput{sinks: [2]sink{{to: in, only: -1}}, raw: true, now: func() time.Time { return now }}
	wrote := make(chan error, 1)
	go func() { wrote <- o.write(0, 1, []byte("words")) }()
	if _, err := out.Read(make([]byte, 1)); err != nil || !o.busy(now.Add(time.Hour), time.Second) {
		t.Errorf("it is given up while its reader has a part of it (%v)", err)
	}
	if _, err := io.ReadFull(out, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	if err := <-wrote; err != nil || !o.busy(now, time.Second) || o.busy(now.Add(time.Second), time.Second) {
		t.Errorf("%v: a piece that was taken counts for a second", err)
	}
}

// TestCancelSteps: jobs are ended though a step beside them is over; filters
// are not for steps.
func TestCancelSteps(t *testing.T) {
	w := everything(t)
	w.reply[methodEndStep] = func(proto.Message) (proto.Message, error) { return nil, spec.Refuse(spec.CodeAlreadyDone, "") }
	w.reply[methodCancel] = func(proto.Message) (proto.Message, error) { return &apiv1.JobResults{}, nil }
	r := w.run("scancel", "4.0", "4")
	if r.code != int(spec.CodeAlreadyDone)&0xff || !strings.Contains(r.errOut, "job step id 4.0: ") {
		t.Errorf("exit %d: %s", r.code, r.errOut)
	}
	asked := func() (list []string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, q := range w.seen {
			list = append(list, q.method)
		}
		w.seen = nil
		return list
	}
	if got := asked(); !slices.Equal(got, []string{methodEndStep, methodCancel}) {
		t.Errorf("it asked %v", got)
	}
	for _, words := range [][]string{{"4.0", "4.x"}, {"-i", "4.0"}, {"-u", "bob", "4.0"}, {"-t", "RUNNING", "4.0", "5"}} {
		r := w.run(append([]string{"scancel"}, words...)...)
		if got := asked(); r.code == 0 || len(got) > 0 {
			t.Errorf("scancel %v: exit %d, asked %v: %s", words, r.code, got, r.errOut)
		}
	}
}

// TestSattach: where a step's tasks are, and what names no step or no task of it.
func TestSattach(t *testing.T) {
	w := newWorld(t)
	if r := w.run("sattach", "--layout", "36.0"); r.code != 0 || r.out != "Job step layout:\n  3 tasks, 2 nodes (n1,n2)\n\n  Node 0 (n1), 2 task(s): 0 1\n  Node 1 (n2), 1 task(s): 2\n" {
		t.Errorf("--layout: %+v", r)
	}
	for _, bad := range [][]string{{"sattach"}, {"sattach", "36"}, {"sattach", "36.batch"}, {"sattach", "36.0", "36.1"}, {"sattach", "--output-filter=3", "36.0"}, {"sattach", "--input-filter=x", "36.0"}, {"sattach", "--pty", "36.0"}} {
		if r := w.run(bad...); r.code != 1 || !strings.Contains(r.errOut, "sattach") {
			t.Errorf("%v: %+v", bad, r)
		}
	}
}

// TestComponents: what stands between colons, and what cannot.
func TestComponents(t *testing.T) {
	w := newWorld(t)
	for line, want := range map[string]string{
		"srun -n 1 a x : -n 2 b":     "[-n 1] [a x]|[-n 2] [b]",
		"srun -n 1 : -n 2 b y : c":   "[-n 1] [b y]|[-n 2] [b y]|[] [c]",
		"srun -n 1 a":                "[-n 1] [a]",
		"salloc -n 1 : -n 2":         "[-n 1] []|[-n 2] []",
		"salloc -n 1 : -n 2 sh -c x": "[-n 1] [sh -c x]|[-n 2] [sh -c x]",
	} {
		words := strings.Fields(line)
		c := &call{Env: w.world(words, io.Discard, io.Discard), ctx: t.Context(), cmd: find(words[0]), opts: opt.New()}
		var err error
		if c.args, err = c.cmd.set().Parse(words[1:], c.opts, opt.FromCommand); err != nil {
			t.Fatal(err)
		}
		list, err := c.components()
		var got []string
		for _, p := range list {
			got = append(got, fmt.Sprint(p.words, " ", p.args))
		}
		if err != nil || strings.Join(got, "|") != want {
			t.Errorf("%s: %q (%v), want %q", line, got, err, want)
		}
	}
	for _, bad := range [][]string{{"salloc", "-n", "1", "a", ":", "-n", "2", "b"}, {"srun", "-n", "1", "a", ":", "--nope", "b"}, {"srun", "a", ":"}, {"srun", "--het-group=1", "a"}, {"srun", "--jobid=36", "--het-group=x", "a"}, {"srun", "--jobid=36", "--het-group=1", "a", ":", "b"}} {
		if r := w.run(bad...); r.code == 0 || r.errOut == "" {
			t.Errorf("%v: %+v", bad, r)
		}
	}
}
