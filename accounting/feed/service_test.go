package feed

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// subscriber is the receiving side of a subscription.
type subscriber struct {
	grpc.ServerStream
	ctx context.Context
	got chan *apiv1.LedgerBatch
}

func (s *subscriber) Context() context.Context { return s.ctx }
func (s *subscriber) Send(b *apiv1.LedgerBatch) error {
	s.got <- &apiv1.LedgerBatch{Position: b.Position, FirstSeq: b.FirstSeq, LastSeq: b.LastSeq, Events: append([]byte(nil), b.Events...), HeadSeq: b.HeadSeq}
	return nil
}

type headAt struct {
	seq, accounted uint64
	budgets        []policy.Budget
	stopping       chan struct{}
}

func (h *headAt) HeadSeq() uint64         { return h.seq }
func (h *headAt) SetAccounted(seq uint64) { h.accounted = seq }
func (h *headAt) SetBudgets(_ context.Context, all []policy.Budget) error {
	h.budgets = all
	return nil
}
func (h *headAt) NoteLost(context.Context, string, event.Position) error { return nil }
func (h *headAt) Epochs() ([]state.Epoch, uint64)                        { return nil, h.seq }
func (h *headAt) Stopping() <-chan struct{}                              { return h.stopping }

func TestSubscribeFromTheMiddleFollowsUntilTheShutdown(t *testing.T) {
	arch, err := store.OpenArchive(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer arch.Close()
	add := func(pos, first, last uint64, text string) {
		if err := arch.Append(pos, first, last, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	add(1, 1, 3, "one")
	add(2, 4, 4, "two")
	add(3, 5, 9, "three")
	head := &headAt{seq: 9, stopping: make(chan struct{})}
	l := &Service{Archive: arch, Head: head}

	once := &subscriber{ctx: t.Context(), got: make(chan *apiv1.LedgerBatch, 8)}
	if err := l.Subscribe(&apiv1.SubscribeRequest{FromSeq: 4}, once); err != nil || len(once.got) != 2 {
		t.Fatalf("%d batches: %v", len(once.got), err)
	}
	if b := <-once.got; b.GetPosition() != 2 || string(b.GetEvents()) != "two" || b.GetHeadSeq() != 9 {
		t.Errorf("first batch %v", b)
	}

	live := &subscriber{ctx: t.Context(), got: make(chan *apiv1.LedgerBatch, 8)}
	done := make(chan error, 1)
	go func() { done <- l.Subscribe(&apiv1.SubscribeRequest{FromSeq: 7, Follow: true}, live) }()
	if b := <-live.got; b.GetPosition() != 3 { // the batch that holds event 7
		t.Errorf("first batch %v", b)
	}
	add(4, 10, 10, "four")
	if b := <-live.got; b.GetPosition() != 4 || string(b.GetEvents()) != "four" {
		t.Errorf("followed %v", b)
	}
	close(head.stopping)
	if err := <-done; spec.CodeOf(err) != spec.CodeStopping {
		t.Errorf("at the shutdown: %v", err)
	}
	if _, err := l.Confirm(t.Context(), &apiv1.ConfirmRequest{Seq: 10}); err == nil {
		t.Error("a position beyond the ledger was confirmed")
	}
	if _, err := l.Confirm(t.Context(), &apiv1.ConfirmRequest{Seq: 9}); err != nil || head.accounted != 9 {
		t.Errorf("confirmed %d: %v", head.accounted, err)
	}
}

// TestRetentionWaitsForAccounting: the log is compacted behind the archive, and
// the archive goes only behind what accounting has confirmed. Whatever it says
// and however long it is away, what it needs next is there.
func TestRetentionWaitsForAccounting(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := storetest.NewWorld(t)
		var told Confirmed
		w.Stored = told.NeededFrom
		w.Retention = 2 * spec.Day
		says := func(seq, keep uint64, up bool) {
			told.NoteConfirmed(&apiv1.ConfirmRequest{Seq: seq, Keep: keep, Up: up})
		}
		dropped := 0
		seq := uint64(0)
		keep := uint64(1)
		for range 40 {
			switch last := w.Archive.Stats().LastSeq; rng.IntN(5) {
			case 0: // it goes on; its last snapshot is somewhere before
				seq += rng.Uint64N(last - seq + 1)
				keep += rng.Uint64N(seq + 1 - keep + 1)
				says(seq, keep, true)
			case 1: // its store is away
				says(seq, keep, false)
			case 2: // nobody has heard of it since the controller's start, or it has none yet
				if told = (Confirmed{}); rng.IntN(2) == 0 {
					says(0, 0, false)
				}
			default:
				w.End(w.Job(fmt.Sprint(seed, last)))
				w.Later(time.Duration(rng.IntN(100)) * time.Hour)
			}
			before, known := w.Archive.Stats().FirstSeq, told.NeededFrom()
			w.Look()
			first := w.Archive.Stats().FirstSeq
			if first != before {
				dropped++
			}
			if first > before && first > known {
				t.Fatalf("seed %d: accounting needs the history from event %d, the controller had heard %d; it begins with %d now", seed, keep, known, first)
			}
			if _, err := (Local{Archive: w.Archive}).Open(t.Context(), keep); err != nil {
				t.Fatalf("seed %d: from event %d: %v", seed, keep, err)
			}
		}
		if dropped == 0 && seed == 0 {
			t.Error("nothing was ever dropped")
		}
	}
}

// TestConfirmedBeyondWhatIsStored: a report that asks for less history than it
// has stored is not believed.
func TestConfirmedBeyondWhatIsStored(t *testing.T) {
	var told Confirmed
	for _, c := range []struct{ seq, keep, want uint64 }{{0, 0, 0}, {10, 4, 4}, {10, 11, 11}, {10, 12, 11}, {0, 7, 1}} {
		told.NoteConfirmed(&apiv1.ConfirmRequest{Seq: c.seq, Keep: c.keep})
		if got := told.NeededFrom(); got != c.want {
			t.Errorf("stored %d, needs %d: %d, want %d", c.seq, c.keep, got, c.want)
		}
	}
}
