package cli

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// history is an answer about a run that is over: one GPU that worked, one that
// nobody used, with a reading missing.
func gpuPastOf(end int64) *apiv1.GpuHistoryReply {
	const begin = 1_790_000_000 * tool.Second
	f := func(v float64) *float64 { return &v }
	energy := int64(7_200_000)
	rep := &apiv1.GpuHistoryReply{Now: begin + 400*tool.Second, From: begin, Step: 10 * tool.Second, Run: &apiv1.AcctRow{JobId: 12, Start: begin, End: end}}
	a := &apiv1.GpuHistory{Node: "n1", Uuid: "GPU-a", Samples: 9}
	for i := range uint32(10) {
		if i != 4 {
			a.Points = append(a.Points, &apiv1.GpuPoint{At: i, Util: f(float64(11 * i)), Sm: f(float64(i) / 10), MemoryMib: f(2048), Occupied: f(1)})
		}
	}
	b := &apiv1.GpuHistory{Node: "n1", Index: 1, Uuid: "GPU-b", Samples: 10}
	for i := range uint32(10) {
		b.Points = append(b.Points, &apiv1.GpuPoint{At: i, Util: f(0), Occupied: f(0)})
	}
	if end != 0 {
		a.Total = &apiv1.JobReportGpu{Uuid: "GPU-a", Measured: true, Held: 100 * tool.Second, Util: 50 * tool.Second, PeakMem: 2 << 30, EnergyMj: &energy, Method: "counted", Share: 1000}
		b.Total = &apiv1.JobReportGpu{Uuid: "GPU-b", Index: 1, Measured: true, Held: 100 * tool.Second, NoProcess: 25 * tool.Second, Util: 20 * tool.Second, Method: "by share", Share: 250}
	}
	rep.Gpus = []*apiv1.GpuHistory{a, b}
	return rep
}

// TestGPUJobOverTime: the table and the lines of a job, to the letter.
func TestGPUJobOverTime(t *testing.T) {
	w := newWorld(t)
	w.reply[tool.MethodAcctGPUHistory] = func(req proto.Message) (proto.Message, error) {
		switch req.(*apiv1.GpuHistoryQuery).GetJob() {
		case "404":
			return &apiv1.GpuHistoryReply{}, nil
		case "13":
			return &apiv1.GpuHistoryReply{Run: &apiv1.AcctRow{JobId: 13}}, nil
		case "14":
			return &apiv1.GpuHistoryReply{Run: &apiv1.AcctRow{JobId: 14, Start: 1, End: 2}}, nil
		}
		return gpuPastOf(1_790_000_100 * tool.Second), nil
	}
	run := func(args ...string) (string, string, int) {
		r := w.run(append([]string{"muster", "gpu", "job"}, args...)...)
		return r.out, r.errOut, r.code
	}
	out, errOut, code := run("12")
	const want = "" +
		"NODE  GPU   HELD  NO PROCESS  NO WORK  UTIL  SM  PEAK MEM  ENERGY  METHOD         UUID\n" +
		"n1    0    100 s         0 s      0 s   50%   -  2.00 GiB   2.0Wh  counted        GPU-a\n" +
		"n1    1    100 s        25 s      0 s   80%   -         -       -  by share, 25%  GPU-b\n" +
		"\n" +
		"From 2026-09-21T14:13:20 to 2026-09-21T14:15:00, 10 s a column; x = no process on it.\n" +
		"NODE  GPU  WHAT    OVER TIME   MEAN  MOST\n" +
		"n1    0    util    __.- =+*##   50%   99%\n" +
		"           sm      __.- ==+*#   46%   90%\n" +
		"           memory  #### #####  2.0G  2.0G\n" +
		"n1    1    util    xxxxxxxxxx    0%    0%\n"
	if code != 0 || errOut != "" || out != want {
		t.Errorf("exit %d, %q\ngot\n%s\nwant\n%s", code, errOut, out, want)
	}
	for job, want := range map[string]string{"404": "there is no job 404", "13": "job 13 has not started: muster why 13", "14": "job 14 held no GPU", "x": "expected the number of a job"} {
		if _, errOut, code := run(job); code != 1 || !strings.Contains(errOut, want) {
			t.Errorf("job %s: exit %d, %q", job, code, errOut)
		}
	}
	if _, errOut, code := run("12", "--width", "wide"); code != 1 || !strings.Contains(errOut, "expected a number of columns") {
		t.Errorf("exit %d, %q", code, errOut)
	}
	if out, _, code := run("12", "--json"); code != 0 || !strings.Contains(out, `"step_seconds": 10`) || !strings.Contains(out, `"occupied_ratio": 0.0`) {
		t.Errorf("exit %d\n%s", code, out)
	}
}
