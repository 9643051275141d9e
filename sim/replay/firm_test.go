package replay

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
)

// TestFirmJobsAreNotDelayedForever: once the first waiting job has been eligible for
// two days, its planned start moves earlier and never later, whatever is submitted
// after it and however wrong predictions are. Users run short jobs until theirs are
// predicted to be short, and then long ones.
func TestFirmJobsAreNotDelayedForever(t *testing.T) {
	rule, err := RuleNamed("muster")
	if err != nil {
		t.Fatal(err)
	}
	looks := 0
	rapid.Check(t, func(rt *rapid.T) {
		trace := &Trace{}
		at := int64(0)
		for i := range rapid.IntRange(30, 80).Draw(rt, "jobs") {
			at += int64(rapid.IntRange(0, 4*3600).Draw(rt, "gap"))
			limit := int64(rapid.IntRange(6, 40).Draw(rt, "limit")) * 3600
			run := limit / 20
			if rapid.IntRange(0, 3).Draw(rt, "long") == 0 {
				run = limit
			}
			procs := int64(rapid.IntRange(1, 4).Draw(rt, "procs"))
			if rapid.IntRange(0, 5).Draw(rt, "wide") == 0 {
				procs = int64(rapid.IntRange(6, 8).Draw(rt, "procs"))
			}
			trace.Rows = append(trace.Rows, Row{ID: int64(i + 1), Submit: at, Procs: procs, Limit: limit, Run: run, User: int64(i % 2)})
		}
		w := trace.Workload(Machine{CPUs: 8}.Config(rule.Settings()))
		planned := map[spec.JobUID]spec.Instant{}
		watch := &Watch{Every: spec.Hour, Until: w.Jobs[len(w.Jobs)-1].Submit.Add(30 * spec.Day), See: func(v *view.View) ([]Act, error) {
			first := firstWaiting(v.State)
			if first == nil || v.Plan == nil || v.State.At.Sub(first.Eligible) <= 2*spec.Day {
				return nil, nil
			}
			plan := v.Plan.Of(first.UID)
			if plan == nil {
				return nil, nil
			}
			before, seen := planned[first.UID]
			if seen {
				looks++
			}
			if seen && plan.Start > before {
				rt.Errorf("job %d has waited for %d h; its start moved by %d s to later", first.UID,
					v.State.At.Sub(first.Eligible)/spec.Hour, plan.Start.Sub(before)/spec.Second)
			}
			planned[first.UID] = plan.Start
			return nil, nil
		}}
		if _, err := RunWatched(context.Background(), w, rule, watch); err != nil {
			rt.Fatal(err)
		}
	})
	if looks < 100 {
		t.Errorf("the first job was looked at %d times: the workloads leave nobody waiting", looks)
	}
}

// firstWaiting is the pending job that was submitted first.
func firstWaiting(st *state.State) (first *state.Job) {
	st.Waiting.Range(func(uid uint64, _ struct{}) bool {
		if job := st.Job(spec.JobUID(uid)); first == nil || job.UID < first.UID {
			first = job
		}
		return true
	})
	return first
}
