package tally_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// written is an event of a ledger: its number and a mark that no other event
// has, in this or any other history.
type written struct{ seq, mark uint64 }

// ledgerCopy is one history: its events and epochs.
type ledgerCopy struct {
	events []written
	epochs []state.Epoch
}

// TestStoresTellHistoriesApart restores ledgers from copies of any age, also of
// lost histories, and lets a store follow: what the store takes for the ledger's
// own is the ledger's own, event by event, and nothing else is.
func TestStoresTellHistoriesApart(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var stored []written // by position, from 1
		var segments []tally.Segment
		mark := uint64(0)
		ledger := ledgerCopy{}
		copies := []ledgerCopy{{}}
		write := func(n int) {
			for range n {
				mark++
				ledger.events = append(ledger.events, written{uint64(len(ledger.events) + 1), mark})
			}
		}
		write(r.IntN(4)) // before the first epoch
		for step := range 12 {
			if step > 0 && r.IntN(2) == 0 { // restored
				old := copies[r.IntN(len(copies))]
				ledger = ledgerCopy{slices.Clone(old.events), slices.Clone(old.epochs)}
			}
			write(1)
			ledger.epochs = append(ledger.epochs, state.Epoch{Value: r.Uint64(), Seq: uint64(len(ledger.events))})
			write(r.IntN(6))
			if r.IntN(3) == 0 { // a copy that is made while it runs
				copies = append(copies, ledgerCopy{slices.Clone(ledger.events), slices.Clone(ledger.epochs)})
				write(r.IntN(3))
			}
			copies = append(copies, ledgerCopy{slices.Clone(ledger.events), slices.Clone(ledger.epochs)})
			head := uint64(len(ledger.events))
			if r.IntN(5) == 0 {
				continue // accounting is away
			}

			h := tally.History{Segments: segments, End: uint64(len(stored))}
			shared := h.Shared(ledger.epochs, head)
			var mine []written
			for _, s := range shared {
				mine = append(mine, stored[s.From-1:s.To]...)
				if s.To < s.From {
					continue
				}
				if got := stored[s.To-1].seq; got != s.To-s.Shift {
					t.Fatalf("seed %d: position %d holds event %d, the stretch says %d", seed, s.To, got, s.To-s.Shift)
				}
			}
			if len(mine) > len(ledger.events) || !slices.Equal(mine, ledger.events[:len(mine)]) {
				t.Fatalf("seed %d: the store takes %v for a beginning of %v", seed, mine, ledger.events)
			}
			for _, g := range tally.Gaps(shared, h.End) {
				for _, e := range stored[g.From-1 : g.To] {
					if slices.Contains(ledger.events, e) {
						t.Fatalf("seed %d: event %v is called lost", seed, e)
					}
				}
			}
			parted := h.End > 0 && (len(shared) == 0 || shared[len(shared)-1].To < h.End)
			if parted { // lost runs are closed at one position, the branch follows
				segments = append(segments, tally.Segment{At: h.End + 1})
				stored = append(stored, make([]written, 1+r.IntN(2))...)
				segments = append(segments, tally.Segment{At: uint64(len(stored)) + 1, Epoch: tally.EpochAt(ledger.epochs, uint64(len(mine))+1), Seq: uint64(len(mine)) + 1})
			}
			upTo := len(mine) + r.IntN(len(ledger.events)-len(mine)+1)
			for _, e := range ledger.events[len(mine):upTo] {
				stored = append(stored, e)
				for _, began := range ledger.epochs {
					if began.Seq == e.seq {
						segments = append(segments, tally.Segment{At: uint64(len(stored)), Epoch: began.Value, Seq: e.seq})
					}
				}
			}
			if upTo > 0 && uint64(len(stored)) > 0 && stored[len(stored)-1].mark != 0 {
				_, seq := tally.History{Segments: segments, End: uint64(len(stored))}.Last()
				if want := stored[len(stored)-1].seq; seq != want {
					t.Fatalf("seed %d: the last event is said to be %d, it is %d", seed, seq, want)
				}
			}
		}
	}
}

// TestRunsOfSeveralLostHistories: a job is numbered above its runs in every history
// that was lost, also where the counting goes on from a snapshot between.
func TestRunsOfSeveralLostHistories(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(1_700_000_000))
	h.Nodes(1, 8, 8000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"alice": {"ml"}})
	ask := tallytest.Ask{Name: "a", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 1, Mem: 10}
	uids := []spec.JobUID{h.Submit(ask)}
	half := len(h.Log)
	uids = append(uids, h.Submit(ask), h.Submit(ask))
	first := map[spec.JobUID]uint32{uids[0]: 2, uids[1]: 4}
	second := map[spec.JobUID]uint32{uids[1]: 1, uids[2]: 0}
	counted := tally.New()
	apply := func(events []event.Envelope) {
		t.Helper()
		for i := range events {
			if err := counted.Apply(&events[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	lose := func() {
		counted.Renumber(first)
		counted.Renumber(second)
	}
	lose()
	apply(h.Log[:half])
	counted.Take()
	snapshot, err := counted.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if counted, err = tally.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	lose()
	apply(h.Log[half:])
	counted.Take()
	var got []uint32
	for _, row := range counted.AllLive() {
		got = append(got, row.Restarts)
	}
	if want := []uint32{3, 5, 1}; !slices.Equal(got, want) {
		t.Errorf("the runs have the numbers %v, want %v", got, want)
	}
}
