package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestABranchMayBeBrokenOff ends the writer at each step of a branch: the next
// one ends it. The run of the lost history is closed once, and what comes is
// stored behind it.
func TestABranchMayBeBrokenOff(t *testing.T) {
	engine := startEngine(t)
	broken := errors.New("broken off")
	for i, at := range []string{"", "branch", "closed", "position", "after position"} {
		t.Run("at "+at, func(t *testing.T) {
			ctx := context.Background()
			s := openStore(t, engine.Socket(), fmt.Sprintf("branch%d", i))
			h := tallytest.New(t, spec.AtUnix(1_790_000_000))
			h.Put(&event.EpochBegan{Value: 1})
			h.Nodes(1, 64, 512_000, 0)
			saved := h.Copy()
			h.Put(&event.EpochBegan{Value: 2})
			uid := h.Submit(tallytest.Ask{
				Name:    "lost",
				User:    "alice",
				UID:     1001,
				Account: "ml",
				QOS:     "normal",
				CPUs:    2,
				Mem:     1000,
			})
			h.Start(uid, "n1")
			ta := tally.New()
			w, _ := newWriter(t, s, ta)
			if err := w.Write(ctx, fold(t, ta, h.Log)); err != nil {
				t.Fatal(err)
			}

			branch := tally.Branch{Event: uint64(len(saved.Log)), Epoch: 3}
			w, _, err := s.NewWriter(ctx, tallytest.LedgerID, "peer")
			if err != nil {
				t.Fatal(err)
			}
			w.hook = func(step string) error {
				if step == at {
					return broken
				}
				return nil
			}
			if err := w.Branch(ctx, branch); (err != nil) != (at != "") {
				t.Fatal(err)
			}
			w, res, err := s.NewWriter(ctx, tallytest.LedgerID, "peer")
			if err != nil {
				t.Fatal(err)
			}
			saved.Put(&event.EpochBegan{Value: 3})
			saved.Put(&event.EpochBegan{Value: 4})
			epochs, head := saved.State.Epochs, uint64(len(saved.Log))
			if shared := res.History.Shared(epochs, head); shared[len(shared)-1].To < res.Seq {
				if err := w.Branch(ctx, branch); err != nil {
					t.Fatal(err)
				}
			}
			if w.Position().Event() != branch.Event {
				t.Fatalf("the store has the ledger up to %d, not %d", w.Position().Event(), branch.Event)
			}
			ta = tally.New()
			ta.Quiet(true)
			fold(t, ta, saved.Log[:branch.Event])
			ta.Quiet(false)
			if err := w.Generation(ctx, ta.AllLive()); err != nil {
				t.Fatal(err)
			}
			if err := w.Write(ctx, fold(t, ta, saved.Log[branch.Event:])); err != nil {
				t.Fatal(err)
			}
			got := one[string](t, s, "SELECT concat(toString(count()), ' ', any(state), ' ', any(end_reason), ' ', any(user))"+
				" FROM "+s.qualifyTable("jobs"))
			if got != "1 NODE_FAIL HistoryLost alice" {
				t.Errorf("the runs that are over are %q", got)
			}
			if got := one[uint64](t, s, "SELECT uniqExact(seq) FROM "+s.qualifyTable("events")); got != uint64(len(h.Log)+2) {
				t.Errorf("%d positions of events, there were %d and 2", got, len(h.Log))
			}
			history, err := s.History(ctx, tallytest.LedgerID, w.Position().Seq)
			if err != nil {
				t.Fatal(err)
			}
			var values []uint64
			for _, seg := range history.Segments {
				values = append(values, seg.Epoch)
			}
			if epoch, seq := history.Last(); epoch != 4 || seq != head || !slices.Equal(values, []uint64{1, 2, 0, 3, 4}) {
				t.Errorf("the store says %d of epoch %d, segments %v", seq, epoch, history.Segments)
			}
		})
	}
}

// TestLedgersOf: the store tells which ledgers of a cluster's name it has, also before
// it has tables; an imported cluster of that name is none.
func TestLedgersOf(t *testing.T) {
	ctx := context.Background()
	engine := startEngine(t)
	empty, err := Open(Options{Socket: engine.Socket(), Database: "never"})
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	if got, err := empty.LedgersOf(ctx, "peer"); err != nil || len(got) != 0 {
		t.Errorf("a store without tables: %v, %v", got, err)
	}
	s := openStore(t, engine.Socket(), "ledgersof")
	imported, err := s.NewImportWriter(ctx, [16]byte{7}, "peer")
	if err != nil {
		t.Fatal(err)
	}
	ta := tally.New()
	h := tallytest.New(t, spec.AtUnix(1_790_000_000))
	if err := imported.Write(ctx, fold(t, ta, h.Log)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.LedgersOf(ctx, "peer"); err != nil || len(got) != 0 {
		t.Errorf("an imported cluster: %v, %v", got, err)
	}
	ta = tally.New()
	h.Put(&event.EpochBegan{Value: 1})
	w, _ := newWriter(t, s, ta)
	if err := w.Write(ctx, fold(t, ta, h.Log)); err != nil {
		t.Fatal(err)
	}
	got, err := s.LedgersOf(ctx, "peer")
	if err != nil || len(got) != 1 || got[0].Ledger != tallytest.LedgerID || got[0].Seq != 2 || got[0].At != h.Now {
		t.Errorf("its own: %v, %v", got, err)
	}
	if got, err := s.LedgersOf(ctx, "another"); err != nil || len(got) != 0 {
		t.Errorf("a cluster of another name: %v, %v", got, err)
	}
}
