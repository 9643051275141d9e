package predict

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

const hour = spec.Span(spec.Hour)

// past makes runs of the given minutes, alike but for the length.
func past(run state.PastRun, minutes ...int) []state.PastRun {
	var out []state.PastRun
	for _, m := range minutes {
		run.Length = spec.Span(m) * spec.Span(spec.Minute)
		out = append(out, run)
	}
	return out
}

func TestFrom(t *testing.T) {
	train := state.PastRun{Name: 1, Limit: 24 * hour, CPUs: 8, GPUs: 1, Nodes: 1}
	other := state.PastRun{Name: 2, Limit: 24 * hour, CPUs: 8, GPUs: 1, Nodes: 1}
	large := state.PastRun{Name: 1, Limit: 24 * hour, CPUs: 64, GPUs: 8, Nodes: 8}
	short := state.PastRun{Name: 1, Limit: hour, CPUs: 8, GPUs: 1, Nodes: 1}
	foreign := state.PastRun{Name: 9, Limit: 3 * hour, CPUs: 2, Nodes: 1}
	for _, tc := range []struct {
		name    string
		past    []state.PastRun
		level   Level
		minutes int
		samples int
	}{
		{"nothing is known", nil, None, 24 * 60, 0},
		{"one run is not enough", past(train, 100), None, 24 * 60, 0},
		{"three quarters of the same job", past(train, 100, 110, 120, 130, 140), SameName, 130, 5},
		{"only the newest count", past(train, 900, 900, 900, 10, 10, 10, 10, 10, 10, 10, 10), SameName, 10, 8},
		{"another name", past(other, 50, 60), SameRequest, 60, 2},
		{"another size", past(large, 50, 60), SameLimit, 60, 2},
		{"another limit", past(short, 50, 60), SameSize, 60, 2},
		{"any run of the user", past(foreign, 5, 7), User, 7, 2},
		{"the most similar decide", append(past(train, 100, 100), past(foreign, 1, 1, 1, 1, 1)...), SameName, 100, 2},
		{"never longer than the limit", past(foreign, 3000, 4000), User, 24 * 60, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := From(tc.past, train)
			want := spec.Span(tc.minutes) * spec.Span(spec.Minute)
			if got.Length != want || got.Level != tc.level || got.Samples != tc.samples {
				t.Errorf("%v after %d %s, want %v after %d %s",
					got.Length, got.Samples, got.Level, want, tc.samples, tc.level)
			}
		})
	}
}

// TestMemo: what is remembered is what would be predicted anew, after other requests,
// other limits and further runs of the user.
func TestMemo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var memo Memo
		st := state.New()
		own := new(pmap.Owner)
		var runs []state.PastRun
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "another run") {
				length := spec.Span(rapid.Int64Range(1, 9).Draw(t, "length")) * hour
				runs = append(slices.Clone(runs), state.PastRun{CPUs: 1, Limit: hour, Length: length})
				st.Runs.Set(own, 1, &state.UserRuns{Runs: runs})
			}
			job := &state.Job{Spec: &spec.JobSpec{UID: 1}}
			job.Req.CPU = rapid.Int64Range(1, 2).Draw(t, "CPUs")
			limit := spec.Span(rapid.Int64Range(1, 9).Draw(t, "limit")) * hour
			if got, want := memo.Run(st, job, limit), Run(st, job, limit); got != want {
				t.Fatalf("remembered is %+v, but it is %+v", got, want)
			}
		}
	})
}

// TestBounds: whatever the past was, a prediction lies between a second and the
// time limit, and between the shortest and the longest similar run where those
// do.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) state.PastRun {
			return state.PastRun{
				Name:   rapid.Uint32Range(0, 2).Draw(t, label+" name"),
				Limit:  spec.Span(rapid.Int64Range(1, 3).Draw(t, label+" hours")) * hour,
				CPUs:   rapid.Int64Range(1, 2).Draw(t, label+" cpus"),
				Length: spec.Span(rapid.Int64Range(0, 5*int64(hour)).Draw(t, label+" length")),
			}
		}
		var runs []state.PastRun
		for range rapid.IntRange(0, state.MaxPastRuns).Draw(t, "runs") {
			runs = append(runs, draw("past"))
		}
		request := draw("requested")
		got := From(runs, request)
		if got.Length > request.Limit || got.Length < spec.Span(spec.Second) {
			t.Fatalf("predicted %v with a limit of %v", got.Length, request.Limit)
		}
		if !got.Known() {
			if got.Length != request.Limit {
				t.Fatalf("nothing is known, and yet %v instead of the limit", got.Length)
			}
			return
		}
		if got.Shortest > got.Longest || got.Samples < MinSamples || got.Samples > MaxSamples {
			t.Fatalf("impossible prediction %+v", got)
		}
		if got.Length > max(got.Longest, spec.Span(spec.Second)) || got.Length < min(got.Shortest, request.Limit) {
			t.Fatalf("%v lies outside of the runs it is based on, %v to %v", got.Length, got.Shortest, got.Longest)
		}
	})
}
