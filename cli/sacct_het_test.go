package cli

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestSacctHetJobs: components are shown by the leader's number and their
// place, and asked for by either number.
func TestSacctHetJobs(t *testing.T) {
	w := newWorld(t)
	row := func(id, offset uint32, step string) *apiv1.AcctRow {
		return &apiv1.AcctRow{Uid: uint64(id), JobId: id, ArrayTask: -1, HetJobId: 12, HetOffset: offset, Step: step, State: "COMPLETED"}
	}
	w.acct = []*apiv1.AcctRow{row(12, 0, ""), row(12, 0, "batch"), row(13, 1, "")}
	for line, want := range map[string]struct {
		jobs  string
		whole apiv1.HetWhole
	}{
		"-j 12":                       {"12", apiv1.HetWhole_HET_WHOLE_LEADERS},
		"-j 12+1,12+0.batch":          {"12+1 12+0.batch", apiv1.HetWhole_HET_WHOLE_LEADERS},
		"-j 13 --whole-hetjob":        {"13", apiv1.HetWhole_HET_WHOLE_ALL},
		"-j 13 --whole-hetjob=YES":    {"13", apiv1.HetWhole_HET_WHOLE_ALL},
		"--whole-hetjob=no -j 12+0.0": {"12+0.0", apiv1.HetWhole_HET_WHOLE_NONE},
	} {
		w.forget()
		r := w.shell("sacct -n -P -o jobid,jobidraw " + line)
		if text := "12+0|12\n12+0.batch|12.batch\n12+1|13\n"; r.code != 0 || r.out != text {
			t.Errorf("sacct %s: %d %s%s, want\n%s", line, r.code, r.out, r.errOut, text)
		}
		var req *apiv1.AcctQuery
		for _, q := range w.seen {
			if m, ok := q.req.(*apiv1.AcctQuery); ok {
				req = m
			}
		}
		if got := strings.Join(req.GetJobs(), " "); got != want.jobs || req.GetHetWhole() != want.whole {
			t.Errorf("sacct %s asked for %s, %v", line, got, req.GetHetWhole())
		}
	}
	if r := w.shell("sacct --json -j 12"); !strings.Contains(strings.Join(strings.Fields(r.out), ""), `"het":{"job_id":12,"job_offset":{"set":true,"infinite":false,"number":1}}`) {
		t.Errorf("--json: %s", r.out)
	}
	for line, want := range map[string]string{
		"-j 12+":                     "Bad job/step",
		"-j +1":                      "Bad job/step",
		"-j 12+x":                    "Bad job/step",
		"-j 12_1+1":                  "Bad job/step",
		"-j 0+1":                     "Bad job/step",
		"-j 12 --whole-hetjob=maybe": "expected yes or no",
	} {
		if r := w.shell("sacct " + line); r.code == 0 || !strings.Contains(r.errOut, want) {
			t.Errorf("sacct %s: %d %s", line, r.code, r.errOut)
		}
	}
}
