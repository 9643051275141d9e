package collector

import (
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// TestExemplarsLeadToTraces: in OpenMetrics each bucket that holds jobs points to the
// trace of one of them, with its value in the bucket; where users are private it does not
// say whose job it was.
func TestExemplarsLeadToTraces(t *testing.T) {
	v := lab(t)
	ids := map[string]string{}
	v.State.Jobs.Range(func(_ uint64, job *state.Job) bool {
		name := strconv.FormatUint(uint64(job.ID), 10)
		ids[spec.TraceID(name, job.Submitted)] = name
		return true
	})
	line := regexp.MustCompile(`^muster_job_(wait|run)_seconds_bucket\{.*le="([^"]+)"\} \d+ # \{trace_id="([0-9a-f]{32})"(?:,slurm_job_id="(\d+)")?\} (\S+) (\S+)$`)
	for _, private := range []bool{false, true} {
		src := source(v)
		src.Private.Users = private
		req := httptest.NewRequest("GET", "/metrics", nil)
		req.Header.Set("Accept", "application/openmetrics-text;version=1.0.0")
		rec := httptest.NewRecorder()
		handler(src).ServeHTTP(rec, req)
		found := map[string]int{}
		for _, text := range strings.Split(rec.Body.String(), "\n") {
			got := line.FindStringSubmatch(text)
			if got == nil {
				if strings.Contains(text, "trace_id") {
					t.Errorf("another line has an exemplar: %s", text)
				}
				continue
			}
			found[got[1]]++
			bound, err := strconv.ParseFloat(got[2], 64)
			value, err2 := strconv.ParseFloat(got[5], 64)
			if err != nil || err2 != nil || value > bound {
				t.Errorf("%v is not in the bucket to %v: %s", value, bound, text)
			}
			name := ids[got[3]]
			if name == "" || got[4] != map[bool]string{false: name, true: ""}[private] {
				t.Errorf("trace %s of job %q stands as that of %q", got[3], name, got[4])
			}
		}
		if found["wait"] != 2 || found["run"] != 1 { // two sizes started, one job ended
			t.Errorf("exemplars: %v", found)
		}
	}
}

// TestNewestIsTheExemplar: of the jobs of a bucket the one that was counted last stands
// for it, whichever was seen first.
func TestNewestIsTheExemplar(t *testing.T) {
	at := spec.AtUnix(1_000_000)
	job := func(uid spec.JobUID, wait spec.Span, started spec.Instant) *state.Job {
		return &state.Job{
			UID: uid, ID: spec.JobID(uid), Task: spec.NoTask, Attempt: 1, State: spec.Running, Spec: &spec.JobSpec{Partitions: []string{"p"}},
			Submitted: started - spec.Instant(wait), Started: started, Req: spec.TRES{CPU: 1},
		}
	}
	jobs := []*state.Job{
		job(1, 3*spec.Second, at),
		job(2, 3*spec.Second+1, at.Add(spec.Minute)),
		job(3, 3*spec.Second+2, at.Add(spec.Second)),
		job(4, 100*spec.Second, at.Add(spec.Hour)),
		job(5, 10_000*spec.Day, at.Add(spec.Hour)), // beyond the last bucket
	}
	for turn := range jobs {
		e := newExemplars()
		for i := range jobs {
			e.addJob(jobs[(i+turn)%len(jobs)])
		}
		var got []spec.JobID
		for _, one := range e.by {
			got = append(got, one.job.ID)
		}
		if len(got) != 2 || got[0]+got[1] != 2+4 {
			t.Errorf("jobs %v stand for the buckets", got)
		}
	}
}
