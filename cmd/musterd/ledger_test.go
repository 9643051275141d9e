package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
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
	arch, err := openArchive(t.TempDir(), slog.New(slog.DiscardHandler))
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
	l := &ledgerService{archive: arch, ctl: head}

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
	if !errors.Is(ledgerError(nil), nil) {
		t.Error("no error became one")
	}
}
