package feed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// Service gives the history to an accounting in another process. The
// door lets only administrators and controllers in: events name everything.
type Service struct {
	service.UnimplementedLedgerServer
	Archive     *store.Archive
	Head        Head
	FindContent func(h spec.Hash) ([]byte, error)
	Confirmed   func(request *apiv1.ConfirmRequest) // may be nil
	ListRevoked func() []string                     // serial numbers; may be nil
	Applied     func() (position uint64, st *state.State)
}

// Head is what the service asks of the controller.
type Head interface {
	HeadSeq() uint64
	SetAccounted(seq uint64)
	SetBudgets(ctx context.Context, all []policy.Budget) error
	NoteLost(ctx context.Context, witness string, seen event.Position) error
	Epochs() (epochs []state.Epoch, head uint64)
	Stopping() <-chan struct{}
}

// Subscribe sends the batches from the one that holds an event on. With follow
// it goes on as the ledger grows, until the caller or the controller ends. A
// caller that is ahead of the ledger is refused: it knows another one, or a
// backup was restored, and would take new events for those it has.
func (l *Service) Subscribe(
	request *apiv1.SubscribeRequest,
	stream service.Ledger_SubscribeServer,
) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-l.Head.Stopping():
			cancel(spec.Refuse(spec.CodeStopping, ""))
		case <-ctx.Done():
		}
	}()
	if head := l.Head.HeadSeq(); request.GetFromSeq() > head+1 {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"this ledger ends at event %d, before event %d", head, request.GetFromSeq(),
			),
		)
	}
	iterator, err := l.Archive.Disk.Reader(max(request.GetFromSeq(), 1))
	if err != nil {
		return err
	}
	for {
		var record archive.Record
		if request.GetFollow() {
			record, err = iterator.Follow(ctx)
		} else {
			record, err = iterator.Next()
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, context.Canceled):
			return nil
		case err != nil:
			return err
		}
		batch := &apiv1.LedgerBatch{
			Position: record.Pos,
			FirstSeq: record.FirstSeq,
			LastSeq:  record.LastSeq,
			Events:   record.Batch,
			HeadSeq:  l.Head.HeadSeq(),
		}
		if err := stream.Send(batch); err != nil {
			return err
		}
	}
}

// stateChunk is how much of an encoded state one message carries.
const stateChunk = 1 << 20

// State names the state after the newest batch, and sends it if that is asked for.
// The archive may get that batch a moment later.
func (l *Service) State(
	request *apiv1.LedgerStateRequest,
	stream service.Ledger_StateServer,
) error {
	position, cluster := l.Applied()
	if position == 0 {
		return spec.Refuse(spec.CodeStopping, "the controller is starting: ask again")
	}
	hash := cluster.Hash()
	head := &apiv1.LedgerStateReply{
		Cluster:     cluster.ClusterName,
		ClusterUuid: cluster.UUID[:],
		Position:    position,
		Seq:         cluster.Seq,
		At:          int64(cluster.At),
		Hash:        hash[:],
		HashVersion: state.SnapshotVersion,
		FirstSeq:    l.Archive.Disk.Stats().FirstSeq,
	}
	for _, epoch := range cluster.Epochs {
		head.Epochs = append(head.Epochs, &apiv1.LedgerEpoch{Value: epoch.Value, Seq: epoch.Seq})
	}
	if err := stream.Send(head); err != nil || !request.GetEncoded() {
		return err
	}
	out := bufio.NewWriterSize(chunkSender{stream}, stateChunk)
	if err := cluster.Encode(out); err != nil {
		return err
	}
	return out.Flush()
}

// chunkSender sends what is written to it.
type chunkSender struct{ to service.Ledger_StateServer }

// Write implements io.Writer.
func (c chunkSender) Write(p []byte) (int, error) {
	return len(p), c.to.Send(&apiv1.LedgerStateReply{Data: p})
}

// Content gives a script or an environment by its hash.
func (l *Service) Content(
	_ context.Context,
	request *apiv1.ContentRequest,
) (*apiv1.ContentReply, error) {
	var hash spec.Hash
	if len(request.GetHash()) != len(hash) {
		return nil, spec.Refuse(spec.CodeBadRequest, "not a hash")
	}
	copy(hash[:], request.GetHash())
	data, err := l.FindContent(hash)
	if errors.Is(err, blob.ErrNotFound) {
		return nil, spec.Refuse(spec.CodeNothingFound, err.Error())
	}
	return &apiv1.ContentReply{Data: data}, err
}

// Confirm notes how far accounting has stored the ledger.
func (l *Service) Confirm(
	ctx context.Context,
	request *apiv1.ConfirmRequest,
) (*apiv1.ConfirmReply, error) {
	reply := &apiv1.ConfirmReply{}
	if lost := request.GetLost(); lost != nil {
		seen := event.Position{
			Epoch:   lost.GetEpoch(),
			Seq:     lost.GetSeq(),
			NextUID: spec.JobUID(lost.GetNextJobUid()),
			NextID:  spec.JobID(lost.GetNextJobId()),
		}
		if err := l.Head.NoteLost(ctx, storeWitness, seen); err != nil {
			return nil, err
		}
	}
	head := l.Head.HeadSeq()
	if request.GetEpochs() {
		var epochs []state.Epoch
		epochs, head = l.Head.Epochs()
		for _, epoch := range epochs {
			reply.Epochs = append(
				reply.Epochs, &apiv1.LedgerEpoch{Value: epoch.Value, Seq: epoch.Seq},
			)
		}
	}
	if request.GetSeq() > head {
		return nil, spec.Refuse(spec.CodeBadRequest, "this ledger has not come so far")
	}
	if request.GetEpochs() || request.GetLost() != nil {
		reply.HeadSeq = head
		return reply, nil // these say nothing about how the store is
	}
	if request.GetSeq() > 0 { // 0: it has nothing to say yet
		l.Head.SetAccounted(request.GetSeq())
	}
	if l.Confirmed != nil {
		l.Confirmed(request)
	}
	if request.GetBudgets() != nil {
		if err := l.Head.SetBudgets(ctx, toBudgets(request.GetBudgets())); err != nil {
			return nil, err
		}
	}
	reply.HeadSeq = head
	if l.ListRevoked != nil {
		reply.Revoked = l.ListRevoked()
	}
	return reply, nil
}

// Confirmed is what an accounting in another process said last.
type Confirmed struct {
	mu   sync.Mutex
	last *apiv1.ConfirmRequest
	at   time.Time
}

// NoteConfirmed takes a report.
func (a *Confirmed) NoteConfirmed(request *apiv1.ConfirmRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last, a.at = request, time.Now()
}

// LastReport gives the last report; up tells that it is fresh and said so.
func (a *Confirmed) LastReport() (last *apiv1.ConfirmRequest, up bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last, a.last.GetUp() && time.Since(a.at) < 3*reportEvery
}

// NeededFrom is the event from which on accounting needs the history, and never one
// behind what it has stored; 0 = it has not said.
func (a *Confirmed) NeededFrom() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return min(a.last.GetKeep(), a.last.GetSeq()+1)
}
