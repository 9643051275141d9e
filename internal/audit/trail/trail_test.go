package trail

import (
	"testing"

	"github.com/musterhpc/muster/controller/peers"
	"github.com/musterhpc/muster/internal/audit"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// TestResumeAt: a position in a history that was lost continues with the first event
// that its target cannot have.
func TestResumeAt(t *testing.T) {
	st := state.New()
	st.Seq = 100
	st.Epochs = []state.Epoch{{Value: 7, Seq: 1}, {Value: 8, Seq: 40}, {Value: 9, Seq: 80}}
	for _, c := range []struct {
		pos  audit.Position
		from uint64
		gap  bool
	}{
		{audit.Position{}, 80, false}, {audit.Position{Epoch: 7, Seq: 39}, 40, false}, {audit.Position{Epoch: 9, Seq: 100}, 101, false},
		{audit.Position{Epoch: 8, Seq: 95}, 80, true}, {audit.Position{Epoch: 5, Seq: 50}, 1, true}, {audit.Position{Epoch: 9, Seq: 120}, 101, true},
	} {
		if from, gap := resumeAt(st, c.pos); from != c.from || (gap != "") != c.gap {
			t.Errorf("%+v: from %d, gap %q", c.pos, from, gap)
		}
	}
}

// TestPositionToKeep: a standby follows the leader's position at a receiver of both,
// and begins a file of its own where it first saw the leader.
func TestPositionToKeep(t *testing.T) {
	const siem = "tls://siem:6514"
	own := audit.Position{Epoch: 1, Seq: 5}
	lead := audit.Position{Epoch: 2, Seq: 9}
	none := audit.Position{}
	for name, c := range map[string]struct {
		own      audit.Position
		to       string
		leader   peers.Delivered
		expected audit.Position
	}{
		"a receiver of both":              {own, siem, peers.Delivered{To: siem, Position: lead}, lead},
		"a receiver of both, at first":    {none, siem, peers.Delivered{To: siem, Position: lead}, lead},
		"the leader does not know either": {own, siem, peers.Delivered{To: siem, Position: none}, own},
		"a file of this host":             {own, "", peers.Delivered{To: "", Position: lead}, own},
		"a file of this host, at first":   {none, "", peers.Delivered{To: "", Position: lead}, lead},
		"the leader has another receiver": {own, siem, peers.Delivered{To: "tls://other:6514", Position: lead}, own},
	} {
		if got := positionToKeep(c.own, c.to, c.leader); got != c.expected {
			t.Errorf("%s: %v, expected %v", name, got, c.expected)
		}
	}
}

// TestBeginOfLives: a trace of a job that was known in a state needs the ledger from its
// submission on, however long before the state that was.
func TestBeginOfLives(t *testing.T) {
	st := state.New()
	st.At = 1000
	if got := beginOfLives(st); got != 1000 {
		t.Errorf("without jobs: %d", got)
	}
	tr := trial.On(state.New(), 40, event.Actor{}, "")
	emit := func(e event.Event) {
		if err := tr.Emit(e); err != nil {
			t.Fatal(err)
		}
	}
	emit(&event.ClusterCreated{Name: "c", Version: 1})
	for i, at := range []spec.Instant{40, 47, 90} {
		tr.Now = at
		emit(&event.JobSubmitted{UID: spec.JobUID(i + 1), ID: spec.JobID(i + 1), Spec: &spec.JobSpec{User: "alice", Partitions: []string{"p"}}})
	}
	st = tr.State.Freeze()
	if got := beginOfLives(st); got != 40 || st.At != 90 {
		t.Errorf("of jobs submitted at 40, 47 and 90: %d, at %d", got, st.At)
	}
}
