package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// TestStartRanges: columns of squeue give planned starts as ranges, and nothing else of its
// output changes.
func TestStartRanges(t *testing.T) {
	w := everything(t)
	const hour = 3600 * tool.Second
	asked := 0
	w.reply[tool.MethodWhy] = func(m proto.Message) (proto.Message, error) {
		asked++
		if m.(*apiv1.WhyRequest).GetJob() != "901" {
			return nil, spec.Refuse(spec.CodeInvalidJobID, "") // it is over by now
		}
		return &apiv1.WhyReply{EarlyStart: w.now + hour, PlannedStart: w.now + 3*hour,
			Promises: &apiv1.PromisesKept{Partition: "gpu", Kept: 19, Broken: 1}}, nil
	}
	var first *apiv1.JobInfo
	for _, job := range w.jobs {
		if job.GetState() == uint32(spec.Pending) {
			first = job
		}
	}
	for i := range uint32(3) {
		job := proto.CloneOf(first)
		job.JobId, job.Uid = 900+i, uint64(900+i)
		job.ArrayJobId, job.ArrayTasks = 0, nil
		job.PlannedStart = w.now + 3*hour
		w.jobs = append(w.jobs, job)
	}
	r := w.run("squeue", "-h", "--start", "-O", "jobid:5,earlystart,promiseskept")
	early := "01"
	for line := range strings.Lines(r.out) {
		cells := strings.Fields(line)
		switch {
		case cells[0] == "901" && (!strings.Contains(cells[1], "T") || cells[2] != "19/20"):
			t.Errorf("the range of 901: %s", line)
		case cells[0] == "901":
			early = cells[1]
		case cells[1] != "N/A" || cells[2] != "N/A":
			t.Errorf("a range of nothing: %s", line)
		}
	}
	if early == "01" || asked == 0 {
		t.Fatalf("no range of 901: %s%s", r.out, r.errOut)
	}
	asked = 0
	for _, args := range [][]string{{"--start"}, {"-O", "all"}, {"--json"}} {
		if r := w.run(append([]string{"squeue"}, args...)...); asked != 0 || strings.Contains(r.out, "EARLY") {
			t.Errorf("squeue %q asked %d times: %s", args, asked, r.out)
		}
	}
}
