package cli

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// TestCancelSteps: jobs are ended though a step beside them is over; filters
// are not for steps.
func TestCancelSteps(t *testing.T) {
	w := everything(t)
	w.reply[tool.MethodEndStep] = func(proto.Message) (proto.Message, error) { return nil, spec.Refuse(spec.CodeAlreadyDone, "") }
	w.reply[tool.MethodCancel] = func(proto.Message) (proto.Message, error) { return &apiv1.JobResults{}, nil }
	r := w.run("scancel", "4.0", "4")
	if r.code != 1 || !strings.Contains(r.errOut, "job step id 4.0: ") {
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
	if got := asked(); !slices.Equal(got, []string{tool.MethodEndStep, tool.MethodCancel}) {
		t.Errorf("it asked %v", got)
	}
	for _, words := range [][]string{{"4.0", "4.x"}, {"-u", "bob", "4.0"}, {"-t", "RUNNING", "4.0", "5"}} {
		r := w.run(append([]string{"scancel"}, words...)...)
		if got := asked(); r.code == 0 || len(got) > 0 {
			t.Errorf("scancel %v: exit %d, asked %v: %s", words, r.code, got, r.errOut)
		}
	}
	for answer, want := range map[string]bool{"y\n": true, "n\n": false, "": false} {
		w.stdin = answer
		r := w.run("scancel", "-i", "4.0")
		if got := slices.Contains(asked(), tool.MethodEndStep); got != want {
			t.Errorf("scancel -i 4.0, answered %q: ends it: %v", answer, got)
		}
		if !strings.Contains(r.errOut, "Cancel step_id=4.0 name=gpu-small partition=gpu [y/n]? ") {
			t.Errorf("it asks %q", r.errOut)
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

// TestBadComponents: what cannot stand between colons is refused with a text.
func TestBadComponents(t *testing.T) {
	w := newWorld(t)
	for _, bad := range [][]string{{"salloc", "-n", "1", "a", ":", "-n", "2", "b"}, {"srun", "-n", "1", "a", ":", "--nope", "b"}, {"srun", "a", ":"}, {"srun", "--het-group=1", "a"}, {"srun", "--jobid=36", "--het-group=x", "a"}, {"srun", "--jobid=36", "--het-group=1", "a", ":", "b"}} {
		if r := w.run(bad...); r.code == 0 || r.errOut == "" {
			t.Errorf("%v: %+v", bad, r)
		}
	}
}

// TestStepAsksForTheFilterAgain: a step in a job asks for the site's filter until a
// controller that restarts answers; what begins a job says at once that nobody does.
func TestStepAsksForTheFilterAgain(t *testing.T) {
	const refuses = "function slurm_cli_pre_submit(options, offset) return slurm.ERROR end"
	away := 0
	w := newWorld(t)
	w.reply[tool.MethodGetCliFilter] = func(proto.Message) (proto.Message, error) {
		if away > 0 {
			away--
			return nil, rpcstatus.New(rpcstatus.Unavailable, "the controller restarts")
		}
		return &apiv1.GetCliFilterReply{Path: "cli_filter.lua", Text: refuses}, nil
	}
	away = 3
	r := w.run("srun", "--jobid=36", "true")
	if r.code == 0 || !strings.Contains(r.errOut, "cli_filter plugin terminated") || away != 0 {
		t.Errorf("in a job: %d %s, %d questions left", r.code, r.errOut, away)
	}
	if len(w.pauses) != 3 {
		t.Errorf("it paused %v", w.pauses)
	}
	away = 1
	if r := w.run("srun", "true"); r.code == 0 || !strings.Contains(r.errOut, "the controller restarts") {
		t.Errorf("without a job: %d %s", r.code, r.errOut)
	}
}
