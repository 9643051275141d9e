package state

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// endOf folds the end of a run into a state that knows nothing else, and
// returns what is then known of the user.
func endOf(s *State, uid uint32, end spec.JobState, started, ready, ended spec.Instant, paused spec.Span) []PastRun {
	job := &Job{
		Spec:    &spec.JobSpec{UID: uid, Name: "train"},
		Req:     spec.TRES{CPU: 8, Node: 2},
		Started: started,
		Ready:   ready,
		Paused:  paused,
		Limit:   spec.Span(spec.Hour),
	}
	s.rememberRun(job, &event.JobEnded{State: end}, ended)
	return s.RunsOf(uid)
}

func TestRunsAreRemembered(t *testing.T) {
	second := spec.Instant(spec.Second)
	for _, tc := range []struct {
		name           string
		state          spec.JobState
		ready, ended   spec.Instant
		paused, length spec.Span
		kept           bool
	}{
		{"completed", spec.Completed, 0, 160 * second, 0, 60 * spec.Second, true},
		{"failed", spec.Failed, 0, 130 * second, 0, 30 * spec.Second, true},
		{"over its limit", spec.TimedOut, 0, 3700 * second, 0, 3600 * spec.Second, true},
		{"suspended for a while", spec.Completed, 0, 160 * second, 20 * spec.Second, 40 * spec.Second, true},
		{"its nodes booted first", spec.Completed, 150 * second, 160 * second, 0, 10 * spec.Second, true},
		{"lost with its node", spec.NodeFailed, 0, 160 * second, 0, 0, false},
		{"preempted", spec.Preempted, 0, 160 * second, 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			runs := endOf(New(), 1000, tc.state, 100*second, tc.ready, tc.ended, tc.paused)
			if !tc.kept {
				if len(runs) != 0 {
					t.Fatalf("%v was kept", runs)
				}
				return
			}
			want := PastRun{Name: RunName("train"), Limit: spec.Span(spec.Hour), CPUs: 8, Nodes: 2, Length: tc.length}
			if len(runs) != 1 || runs[0] != want {
				t.Fatalf("kept %+v, want %+v", runs, want)
			}
		})
	}
}

// TestRunsAreBounded: only the newest MaxPastRuns stay, oldest first, and a
// frozen state keeps what it had.
func TestRunsAreBounded(t *testing.T) {
	s := New()
	var frozen *State
	for i := range MaxPastRuns + 10 {
		if i == 5 {
			frozen = s.Freeze()
		}
		endOf(s, 1000, spec.Completed, 0, 0, spec.Instant(i)*spec.Instant(spec.Second), 0)
	}
	runs := s.RunsOf(1000)
	if len(runs) != MaxPastRuns {
		t.Fatalf("%d runs are kept, want %d", len(runs), MaxPastRuns)
	}
	if oldest := runs[0].Length; oldest != 10*spec.Second {
		t.Errorf("the oldest run took %v, want 10 s", oldest)
	}
	if n := len(frozen.RunsOf(1000)); n != 5 {
		t.Errorf("the frozen state has %d runs, want 5", n)
	}
	if s.RunsOf(1001) != nil {
		t.Error("another user has runs")
	}
}
