package main

import (
	"context"
	"errors"
	"io"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/spec"
)

// ledgerService gives the history to an accounting in another process. The
// door lets only administrators and controllers in: events name everything.
type ledgerService struct {
	service.UnimplementedLedgerServer
	archive *archiveAdapter
	ctl     ledgerHead
}

// ledgerHead is what the service asks of the controller.
type ledgerHead interface {
	HeadSeq() uint64
	SetAccounted(seq uint64)
	Stopping() <-chan struct{}
}

// Subscribe sends the batches from the one that holds an event on. With follow
// it goes on as the ledger grows, until the caller or the controller ends.
func (l *ledgerService) Subscribe(req *apiv1.SubscribeRequest, stream service.Ledger_SubscribeServer) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-l.ctl.Stopping():
			cancel(spec.Refuse(spec.CodeStopping, ""))
		case <-ctx.Done():
		}
	}()
	it, err := l.archive.a.Reader(max(req.GetFromSeq(), 1))
	if err != nil {
		return err
	}
	for {
		var r archive.Record
		if req.GetFollow() {
			r, err = it.Follow(ctx)
		} else {
			r, err = it.Next()
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			return err
		}
		if err := stream.Send(&apiv1.LedgerBatch{Position: r.Pos, FirstSeq: r.FirstSeq, LastSeq: r.LastSeq, Events: r.Batch, HeadSeq: l.ctl.HeadSeq()}); err != nil {
			return err
		}
	}
}

// Confirm notes how far accounting has stored the ledger.
func (l *ledgerService) Confirm(_ context.Context, req *apiv1.ConfirmRequest) (*apiv1.ConfirmReply, error) {
	if head := l.ctl.HeadSeq(); req.GetSeq() > head {
		return nil, spec.Refuse(spec.CodeBadRequest, "this ledger has not come so far")
	}
	l.ctl.SetAccounted(req.GetSeq())
	return &apiv1.ConfirmReply{}, nil
}
