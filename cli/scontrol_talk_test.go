package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"google.golang.org/protobuf/proto"
)

// TestScontrolConverses: without a command scontrol reads commands from its input;
// !! repeats the last, a switch holds for those after it, a mistake ends nothing.
func TestScontrolConverses(t *testing.T) {
	w := newWorld(t)
	worlds()["running"](w)
	w.stdin = "\nversion\n!!\nno_such_command\nshow hostnames n[1-2]\noneliner\nshow job 4\n# nothing\nquit\nshow hostnames n9\n"
	r := w.run("scontrol")
	lines := strings.Split(r.out, "\n")
	if r.code != 1 || !strings.Contains(r.errOut, "invalid keyword: no_such_command") || strings.Contains(r.out, "n9") {
		t.Errorf("%+v", r)
	}
	if len(lines) < 5 || lines[0] == "" || lines[0] != lines[1] || lines[2] != "n1" || lines[3] != "n2" || strings.Count(r.out, "\n") != 4 && !strings.Contains(lines[4], "JobId=") {
		t.Errorf("%q", lines)
	}
	w.stdin, w.tty = "quit\n", true
	if r := w.run("scontrol"); r.code != 0 || r.out != "scontrol: " {
		t.Errorf("with a terminal: %+v", r)
	}
}

// TestScontrolUpdatesSteps: what is asked of the controller for stepid= and notify,
// and what is refused before.
func TestScontrolUpdatesSteps(t *testing.T) {
	w := newWorld(t)
	w.reply[tool.MethodControlJobs] = func(proto.Message) (proto.Message, error) { return &apiv1.JobResults{}, nil }
	ask := func(words ...string) *apiv1.ControlJobsRequest {
		t.Helper()
		if r := w.run(append([]string{"scontrol"}, words...)...); r.code != 0 {
			t.Fatalf("%v: %+v", words, r)
		}
		return w.last(tool.MethodControlJobs).(*apiv1.ControlJobsRequest)
	}
	if q := ask("update", "StepId=4.1", "TimeLimit=10"); q.GetVerb() != apiv1.ControlJobsRequest_UPDATE_STEP || q.Step == nil || q.GetStep() != 1 || q.GetChanges()["timelimit"] != "10" || q.GetJobs()[0] != "4" {
		t.Errorf("%v", q)
	}
	if q := ask("update", "stepid=4", "time=10"); q.Step != nil {
		t.Errorf("all steps: %v", q)
	}
	if q := ask("notify", "4", "down", "at", "noon"); q.GetVerb() != apiv1.ControlJobsRequest_NOTIFY || q.GetMessage() != "down at noon" {
		t.Errorf("%v", q)
	}
	for _, bad := range [][]string{{"update", "stepid=4.batch", "timelimit=1"}, {"update", "stepid=4.0"}, {"update", "stepid=4.0", "name=x"}, {"notify", "4"}, {"notify", "x", "y"}} {
		if r := w.run(append([]string{"scontrol"}, bad...)...); r.code != 1 || r.errOut == "" {
			t.Errorf("%v: %+v", bad, r)
		}
	}
}

// TestScontrolWrites: a script goes to the standard output or into a file that is not
// there yet, and a configuration that is written reads back as the same keys.
func TestScontrolWrites(t *testing.T) {
	w := newWorld(t)
	worlds()["running"](w)
	w.reply[tool.MethodAcctScripts] = func(q proto.Message) (proto.Message, error) {
		script := &apiv1.AcctScript{Row: &apiv1.AcctRow{JobId: 4}, Data: []byte("#!/bin/sh\ntrue\n")}
		script.Missing = q.(*apiv1.AcctScriptQuery).GetJobs()[0] != "4"
		return &apiv1.AcctScriptReply{Scripts: []*apiv1.AcctScript{script}}, nil
	}
	if r := w.run("scontrol", "write", "batch_script", "4", "-"); r.code != 0 || r.out != "#!/bin/sh\ntrue\n" {
		t.Errorf("%+v", r)
	}
	file := filepath.Join(t.TempDir(), "job.sh")
	for i, want := range []int{0, 1} {
		if r := w.run("scontrol", "write", "batch", "4", file); r.code != want {
			t.Errorf("try %d: %+v", i, r)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "#!/bin/sh\ntrue\n" {
		t.Errorf("%q, %v", data, err)
	}
	if r := w.run("scontrol", "write", "batch_script", "5", "-"); r.code != 1 || !strings.Contains(r.errOut, "Invalid job id") {
		t.Errorf("%+v", r)
	}
	w.reply[tool.MethodGetConfig] = func(proto.Message) (proto.Message, error) {
		return &apiv1.GetConfigReply{Entries: []*apiv1.ConfigEntry{{Key: "ClusterName", Value: "c"}, {Key: "NodeName", Value: "n1", Record: "NodeName"}, {Key: "CPUs", Value: "4", Record: "NodeName"},
			{Key: "NodeName", Value: "n2", Record: "NodeName"}, {Key: "Reason", Value: "a b", Record: "NodeName"}, {Key: "KillWait", Value: "30"}}}, nil
	}
	if r := w.run("scontrol", "write", "config", "-"); r.out != "ClusterName=c\nNodeName=n1 CPUs=4\nNodeName=n2 Reason=\"a b\"\nKillWait=30\n" {
		t.Errorf("%+v", r)
	}
}
