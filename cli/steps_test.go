package cli

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// TestCancelSteps: jobs are ended though a step beside them is over; filters
// are not for steps.
func TestCancelSteps(t *testing.T) {
	w := everything(t)
	w.reply[tool.MethodEndStep] = func(proto.Message) (proto.Message, error) { return nil, spec.Refuse(spec.CodeAlreadyDone, "") }
	w.reply[tool.MethodCancel] = func(proto.Message) (proto.Message, error) { return &apiv1.JobResults{}, nil }
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
	if got := asked(); !slices.Equal(got, []string{tool.MethodEndStep, tool.MethodCancel}) {
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

// TestBadComponents: what cannot stand between colons is refused with a text.
func TestBadComponents(t *testing.T) {
	w := newWorld(t)
	for _, bad := range [][]string{{"salloc", "-n", "1", "a", ":", "-n", "2", "b"}, {"srun", "-n", "1", "a", ":", "--nope", "b"}, {"srun", "a", ":"}, {"srun", "--het-group=1", "a"}, {"srun", "--jobid=36", "--het-group=x", "a"}, {"srun", "--jobid=36", "--het-group=1", "a", ":", "b"}} {
		if r := w.run(bad...); r.code == 0 || r.errOut == "" {
			t.Errorf("%v: %+v", bad, r)
		}
	}
}
