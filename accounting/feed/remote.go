package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/kpi"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// reportEvery is how often accounting says how it is, also when nothing new is
// stored; three times that without a word and the controller calls it down.
const reportEvery = 2 * time.Second

// Remote is the ledger of a controller in another process: a source of
// accounting, and the way back for what it has stored.
type Remote struct {
	Ledger   service.LedgerClient
	Cluster  service.ClusterClient
	Name     string // ClusterName that the configuration says
	Log      *slog.Logger
	Hide     []string // PrivateData
	Identify func(context.Context) daemon.Caller

	mu       sync.Mutex
	uuid     [16]byte
	head     uint64
	headAt   spec.Instant
	progress acctd.Progress
	budgets  *apiv1.BudgetsLeft // nil = not known yet
	changed  chan struct{}
	revoked  map[string]bool // serial numbers
}

// errOtherLedger tells that the controller serves another ledger than it did.
var errOtherLedger = errors.New(
	"the controller serves another ledger: start accounting again if that is meant",
)

// pingController asks the controller who it is and how far.
func (l *Remote) pingController(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	reply, err := l.Cluster.Ping(ctx, &apiv1.PingRequest{})
	if err != nil {
		return err
	}
	if reply.GetSeq() == 0 || len(reply.GetClusterUuid()) != 16 {
		return errors.New("the controller has no cluster yet")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	id := [16]byte(reply.GetClusterUuid())
	switch {
	case reply.GetCluster() != l.Name:
		return fmt.Errorf(
			"%w: of cluster %q, slurm.conf says %q",
			errOtherLedger,
			reply.GetCluster(),
			l.Name,
		)
	case l.uuid != [16]byte{} && l.uuid != id:
		return errOtherLedger
	}
	l.uuid = id
	l.head = reply.GetSeq()
	l.headAt = spec.Instant(reply.GetNow())
	return nil
}

// AwaitController waits for the controller.
func (l *Remote) AwaitController(ctx context.Context) error {
	said := ""
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := l.pingController(ctx)
		if err == nil || errors.Is(err, errOtherLedger) {
			return err
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			l.Log.Warn("accounting waits for the controller", "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// Identity tells which ledger it is, after await.
func (l *Remote) Identity() ([16]byte, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uuid, l.Name
}

// Head implements the source of accounting.
func (l *Remote) Head() (uint64, spec.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head, l.headAt
}

// Epochs implements the source of accounting.
func (l *Remote) Epochs(ctx context.Context) ([]state.Epoch, uint64, error) {
	reply, err := l.Ledger.Confirm(ctx, &apiv1.ConfirmRequest{Epochs: true})
	if err != nil {
		return nil, 0, err
	}
	var epochs []state.Epoch
	for _, epoch := range reply.GetEpochs() {
		epochs = append(epochs, state.Epoch{Value: epoch.GetValue(), Seq: epoch.GetSeq()})
	}
	return epochs, reply.GetHeadSeq(), nil
}

// Lost tells the controller of a position that its ledger does not hold.
func (l *Remote) Lost(ctx context.Context, seen event.Position) error {
	_, err := l.Ledger.Confirm(
		ctx,
		&apiv1.ConfirmRequest{Lost: &apiv1.LedgerPosition{Epoch: seen.Epoch, Seq: seen.Seq,
			NextJobUid: uint64(seen.NextUID), NextJobId: uint32(seen.NextID)}},
	)
	return err
}

// noteHead notes a newer head.
func (l *Remote) noteHead(seq uint64, at spec.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq > l.head {
		l.head = seq
		if at != 0 {
			l.headAt = at
		}
	}
}

// Open implements the source of accounting.
func (l *Remote) Open(ctx context.Context, seq uint64) (acctd.Cursor, error) {
	if err := l.pingController(ctx); err != nil {
		return nil, err
	}
	stream, err := l.Ledger.Subscribe(
		ctx,
		&apiv1.SubscribeRequest{FromSeq: max(seq, 1), Follow: true},
	)
	if err != nil {
		return nil, err
	}
	return remoteCursor{l, stream}, nil
}

type remoteCursor struct {
	l      *Remote
	stream service.Ledger_SubscribeClient
}

// Next implements a cursor of accounting. The stream ends with the context it
// was opened with, or with the controller.
func (c remoteCursor) Next(context.Context) (acctd.Entry, error) {
	for {
		batch, err := c.stream.Recv()
		if err != nil {
			return acctd.Entry{}, fmt.Errorf("the controller's stream: %w", err)
		}
		c.l.noteHead(max(batch.GetHeadSeq(), batch.GetLastSeq()), 0)
		if batch.GetLastSeq() >= batch.GetFirstSeq() {
			return acctd.Entry{
				First:  batch.GetFirstSeq(),
				Last:   batch.GetLastSeq(),
				Events: batch.GetEvents(),
			}, nil
		}
	}
}

// RevokedAre notes which certificates the controller lets in no more.
func (l *Remote) RevokedAre(serials []string) {
	set := make(map[string]bool, len(serials))
	for _, s := range serials {
		set[s] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revoked = set
}

// SentAway tells whether the controller lets a certificate in no more.
func (l *Remote) SentAway(serial string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revoked[serial]
}

// Private is PrivateData for a caller. The owner of the cluster and root see
// everything; who else is an operator, the store tells.
func (l *Remote) Private(ctx context.Context) []string {
	if caller := l.Identify(ctx); caller.Admin || (caller.UID == 0 && caller.User != "") {
		return nil
	}
	return l.Hide
}

// Content fetches a script or an environment.
func (l *Remote) Content(ctx context.Context, hash spec.Hash) ([]byte, error) {
	reply, err := l.Ledger.Content(ctx, &apiv1.ContentRequest{Hash: hash[:]})
	return reply.GetData(), err
}

// Confirm notes what is stored; report sends it.
func (l *Remote) Confirm(progress acctd.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.progress = progress
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// Enforce notes how the budgets stand; report sends it.
func (l *Remote) Enforce(rates *kpi.Rates) func(context.Context, []kpi.Spent) {
	return func(_ context.Context, list []kpi.Spent) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.budgets = wireBudgets(list, rates)
	}
}

// ReportProgress tells the controller how far and how well accounting is: when there
// is something new, and every few seconds. A controller that is away is told
// when it is back.
func (l *Remote) ReportProgress(ctx context.Context, status func() acctd.Status) error {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		l.mu.Lock()
		progress := l.progress
		budgets := l.budgets
		changed := make(chan struct{})
		l.changed = changed
		l.mu.Unlock()
		st := status()
		request := &apiv1.ConfirmRequest{
			Seq:     progress.Seq,
			Keep:    progress.Keep,
			Up:      st.Up,
			Budgets: budgets,
		}
		if st.Error != nil {
			request.Error = st.Error.Error()
		}
		call, cancel := context.WithTimeout(ctx, reportEvery)
		if reply, err := l.Ledger.Confirm(call, request); err == nil {
			l.noteHead(reply.GetHeadSeq(), spec.Instant(reply.GetHeadAt()))
			l.RevokedAre(reply.GetRevoked())
			tick.Reset(reportEvery)
		} else {
			changed = nil // not sooner than the next tick
		}
		cancel()
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
