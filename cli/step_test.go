package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/internal/transport/stepclient"
	"github.com/musterhpc/muster/nodeagent/plan"
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
