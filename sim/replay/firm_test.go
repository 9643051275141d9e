package replay

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/predict"
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
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(hostilePredictors()))).Draw(rt, "predictor")
		rule.Predict = hostilePredictors()[name]
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

// hostilePredictors are predictions that nothing good comes of, and the real ones.
func hostilePredictors() map[string]scheduler.Predictor {
	predicted := func(length spec.Span) predict.Prediction {
		return predict.Prediction{Length: length, Shortest: length, Longest: length, Samples: 8, Level: predict.User}
	}
	return map[string]scheduler.Predictor{
		"real":           nil,
		"always 1 s":     func(*state.State, *state.Job, spec.Span) predict.Prediction { return predicted(spec.Second) },
		"always a limit": func(_ *state.State, _ *state.Job, limit spec.Span) predict.Prediction { return predicted(limit) },
		"by chance": func(_ *state.State, job *state.Job, limit spec.Span) predict.Prediction {
			chance := rand.New(rand.NewPCG(uint64(job.UID), 1))
			return predicted(spec.Second + spec.Span(chance.Int64N(int64(limit))))
		},
		"long is short": func(_ *state.State, job *state.Job, limit spec.Span) predict.Prediction {
			return predicted(max(spec.Second, 30*spec.Hour-limit))
		},
	}
}

// TestPredictionsEndNoJob: whatever is predicted, each job runs for as long as it takes or
// for its time limit, and all of them run.
func TestPredictionsEndNoJob(t *testing.T) {
	tr := readTrace(t, "easy/KTH-SP2.easy.swf.gz")
	tr.Rows = tr.Rows[:3000]
	for name, predictor := range hostilePredictors() {
		rule, err := RuleNamed("muster")
		if err != nil {
			t.Fatal(err)
		}
		rule.Predict = predictor
		res, err := Run(t.Context(), tr.Workload(Machine{CPUs: 100}.Config(rule.Settings())), rule, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tr.Rows {
			row, job := &tr.Rows[i], &res.Jobs[i]
			want := min(row.Run, row.Limit)
			if ran := wholeSeconds(job.End.Sub(job.Start)); !job.Started() || ran != want {
				t.Fatalf("%s: job %d ran for %d s of %d", name, row.ID, ran, want)
			}
		}
		t.Logf("%s: %+v", name, res.Summarise())
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
