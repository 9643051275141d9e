package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// TestForecast: each size is tried as a job that is stored nowhere, what cannot start says
// why, and the jobs that wait are counted by when the plan has them start.
func TestForecast(t *testing.T) {
	w := everything(t)
	now := w.at.UnixNano()
	var asked []*apiv1.SubmitRequest
	w.reply[tool.MethodSubmit] = func(m proto.Message) (proto.Message, error) {
		req := m.(*apiv1.SubmitRequest)
		asked = append(asked, req)
		job := req.GetSpec()
		switch {
		case job.GetQos() == "none":
			return nil, spec.Refuse(spec.CodeInvalidQOS, "")
		case job.GetMinNodes() == 2:
			return &apiv1.SubmitReply{PlannedStart: now + 5*3600*tool.Second, PlannedNodes: "n[1-2]"}, nil
		}
		return &apiv1.SubmitReply{PlannedStart: now, PlannedNodes: "n1"}, nil
	}
	var first *apiv1.JobInfo
	for _, job := range w.jobs {
		if job.GetState() == uint32(spec.Pending) {
			first = job
		}
	}
	first.Partition, first.Qos, first.PlannedStart = "queue", "normal", 0
	pending := 1
	for i, minutes := range []int64{5, 55, 235, 715, 780} {
		job := proto.CloneOf(first)
		job.JobId, job.Uid = uint32(900+i), uint64(900+i)
		job.PlannedStart = w.now + minutes*60*tool.Second
		w.jobs = append(w.jobs, job)
		pending++
	}
	part := w.parts[0].GetName()
	r := w.run("muster", "forecast", "-s", "1cpu,2node", "-t", "30", "-q", "normal,none", "-p", part+",queue")
	if r.code == 0 || !strings.Contains(r.errOut, "queue") {
		t.Errorf("a partition that is not there: %d %s%s", r.code, r.out, r.errOut)
	}
	r = w.run("muster", "forecast", "-s", "1cpu,2node", "-t", "30", "-q", "normal,none")
	if !strings.Contains(r.out, "queue      normal  6        2       3       4        1      1\n") {
		t.Errorf("the queue: %s", r.out)
	}
	lines := strings.Split(r.out, "\n")
	cells := func(line string) string { return strings.Join(strings.Fields(line), " ") }
	for i, want := range []string{
		"PARTITION QOS SIZE LIMIT WAIT NODES",
		part + " normal 1cpu 30 min 0 s n1",
		part + " normal 2node 30 min 5 h n[1-2]",
		part + " none 1cpu 30 min - ",
	} {
		if got := cells(lines[i]); !strings.HasPrefix(got, strings.TrimSpace(want)) {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	for _, req := range asked {
		job := req.GetSpec()
		if !req.GetTestOnly() || !job.GetShell() || job.GetTimeLimit() != 1800*tool.Second {
			t.Errorf("tried: %v", req)
		}
	}
	var said struct {
		Sizes []struct {
			Size string
			Wait int64 `json:"wait_seconds"`
		}
		Pending []struct {
			Jobs  int
			In1   int `json:"start_within_1h"`
			In4   int `json:"start_within_4h"`
			In12  int `json:"start_within_12h"`
			After int `json:"start_later"`
			Never int `json:"no_start"`
		}
	}
	if err := json.Unmarshal([]byte(w.run("muster", "forecast", "-s", "2node", "--json").out), &said); err != nil || said.Sizes[0].Wait != 5*3600 {
		t.Fatalf("%v: %+v", err, said)
	}
	q := said.Pending[0]
	if len(said.Pending) != 1 || q.Jobs != pending || q.In1 != 2 || q.In4 != 3 || q.In12 != 4 || q.After != 1 || q.Never != 1 {
		t.Errorf("of %d pending jobs: %+v", pending, said.Pending)
	}
	for _, bad := range [][]string{{"-s", "4tpu"}, {"-t", "UNLIMITED"}, {"-p", "nowhere"}, {"-s", strings.Repeat("1cpu,", 201) + "1cpu"}} {
		if r := w.run(append([]string{"muster", "forecast"}, bad...)...); r.code == 0 || r.errOut == "" {
			t.Errorf("%q: %d %s%s", bad, r.code, r.out, r.errOut)
		}
	}
}
