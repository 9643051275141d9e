package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/spec"
)

// session is one connection to the controller, for the owner: what it sends
// leaves in order, and nobody waits for the network.
type session struct {
	out    *queue[*apiv1.AgentMessage]
	cancel context.CancelCauseFunc
}

// reportsPerMessage keeps messages small enough to be taken in while others
// are made.
const reportsPerMessage = 256

func (s *session) sendMessage(message *apiv1.AgentMessage) { s.out.putItems(message) }

func (s *session) sendReports(list []*apiv1.Report) {
	for len(list) > 0 {
		n := min(len(list), reportsPerMessage)
		s.sendMessage(
			&apiv1.AgentMessage{
				Kind: &apiv1.AgentMessage_Reports{Reports: &apiv1.Reports{Reports: list[:n]}},
			},
		)
		list = list[n:]
	}
}

// keptPerMessage bounds a message of orders, which name all nodes of their jobs.
const keptPerMessage = 16

func (s *session) sendKept(list []*apiv1.KeptOrder) {
	for part := range slices.Chunk(list, keptPerMessage) {
		s.sendMessage(
			&apiv1.AgentMessage{
				Kind: &apiv1.AgentMessage_KeptOrders{KeptOrders: &apiv1.KeptOrders{Runs: part}},
			},
		)
	}
}

// errLeave ends a connection that must not be tried again at once.
type errLeave struct{ why string }

func (e *errLeave) Error() string { return e.why }

// errRegister ends a connection so that the next one registers what changed.
var errRegister = errors.New("this node registers anew")

func (s *session) leaveController(reason string) { s.cancel(&errLeave{reason}) }

// The waits between connections: doubled from the first to the longest, each
// with up to a quarter taken off by chance, so that the nodes of a cluster do
// not come back all at once.
const (
	firstWait   = 120 * spec.Millisecond
	longestWait = 10 * spec.Second
	remindAfter = 60 * spec.Second
	steadyAfter = spec.Second // a connection that held so long begins the waits anew
	welcomeWait = 30 * spec.Second
)

// runConnector keeps a connection for as long as the agent lives.
func (a *Agent) runConnector(ctx context.Context) {
	wait := firstWait
	said, saidAt := "", spec.Instant(0)
	for ctx.Err() == nil {
		began := a.deps.Clock.Now()
		welcomed, err := a.runConnection(ctx)
		if ctx.Err() != nil {
			return
		}
		if a.Health().Pending > 0 {
			a.deps.Telemetry.ReportFailed()
		}
		// Two agents that speak for one node end each other's connections; they
		// must not do it as fast as they can.
		if welcomed && a.deps.Clock.Now().Sub(began) >= steadyAfter {
			wait = firstWait
		}
		var leave *errLeave
		if errors.As(err, &leave) {
			wait = longestWait
		}
		if errors.Is(err, errRegister) {
			wait = firstWait
		} else if now := a.deps.Clock.Now(); err.Error() != said || now.Sub(saidAt) >= remindAfter {
			a.log.Warn("no connection to the controller; jobs go on, and the agent keeps trying", "error", err)
			said, saidAt = err.Error(), now
		}
		if !a.sleepFor(ctx, wait-spec.Span(a.deps.Jitter(int64(wait/4)+1))) {
			return
		}
		wait = min(2*wait, longestWait)
	}
}

// runConnection is one connection, from the registration to its end.
func (a *Agent) runConnection(parent context.Context) (welcomed bool, err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	reg, err := a.makeRegistration(ctx)
	if err != nil {
		return false, err
	}
	stream, err := a.deps.Controller.Connect(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Registration{Registration: reg}}); err != nil {
		// The reason for a refusal is in what is received.
		if _, rerr := stream.Recv(); rerr != nil {
			err = rerr
		}
		return false, err
	}
	first, err := a.awaitWelcome(ctx, stream, cancel)
	if err != nil {
		return false, err
	}
	welcome := first.GetWelcome()
	a.noteRevoked(welcome.GetRevoked())
	s := &session{out: newQueue[*apiv1.AgentMessage](), cancel: cancel}
	a.inbox.putItems(func() {
		a.admitConn(s, welcome)
		a.core.Head(first.GetHead())
	})
	a.log.Info(
		"connected to the controller",
		"cluster",
		welcome.GetCluster(),
		"runs_wanted",
		len(welcome.GetDesired()),
	)
	if a.welcomed {
		a.rereadFor(ctx, s, 0) // it may have changed while nobody could say so
	}
	a.welcomed = true
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := runWriter(ctx, stream, s.out); err != nil {
			cancel(err)
		}
	})
	err = a.runReader(ctx, stream, s)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	cancel(err)
	wg.Wait()
	a.inbox.putItems(func() {
		if a.session == s {
			a.session = nil
			a.noteConnected(false)
		}
	})
	return true, err
}

// awaitWelcome waits for the controller's first message.
func (a *Agent) awaitWelcome(
	ctx context.Context,
	stream Stream,
	cancel context.CancelCauseFunc,
) (*apiv1.ControllerMessage, error) {
	late, stop := a.deps.Clock.After(welcomeWait)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-late:
			cancel(fmt.Errorf("the controller did not answer the registration: %w", ErrDown))
		case <-done:
		case <-ctx.Done():
		}
	})
	message, err := stream.Recv()
	stop()
	close(done)
	wg.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	if goodbye := message.GetGoodbye(); goodbye != nil {
		return nil, errors.New("the controller says: " + goodbye.GetReason())
	}
	if message.GetWelcome() == nil {
		return nil, fmt.Errorf(
			"the controller began with %T instead of a welcome",
			message.GetKind(),
		)
	}
	return message, nil
}

// noteRevoked takes what the controller says of certificates that hold no more.
func (a *Agent) noteRevoked(revoked *apiv1.Revoked) {
	if revoked != nil && a.deps.Revoked != nil {
		a.deps.Revoked(revoked.GetSerials())
	}
}

// admitConn makes a connection the one that is used.
func (a *Agent) admitConn(s *session, welcome *apiv1.Welcome) {
	if a.session != nil {
		a.session.cancel(errors.New("replaced by a newer connection"))
	}
	a.session = s
	a.beat = max(spec.Span(welcome.GetHeartbeat()), spec.Second)
	a.beatAt = 0 // the first one at the next tick
	a.noteConnected(true)
	a.core.Welcome(welcome)
}

// runWriter sends what the owner queues until the connection ends.
func runWriter(ctx context.Context, stream Stream, out *queue[*apiv1.AgentMessage]) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-out.wake:
		}
		for _, message := range out.take() {
			if err := stream.Send(message); err != nil {
				return err
			}
		}
	}
}

// runReader hands the owner what the controller says until the connection ends.
func (a *Agent) runReader(ctx context.Context, stream Stream, s *session) error {
	for {
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		if head := message.GetHead(); head != nil {
			a.inbox.putItems(func() { a.core.Head(head) })
		}
		switch k := message.GetKind().(type) {
		case *apiv1.ControllerMessage_Orders:
			a.inbox.putItems(func() { a.core.Orders(k.Orders.GetOrders()) })
		case *apiv1.ControllerMessage_Ack:
			a.inbox.putItems(func() { a.core.Ack(k.Ack.GetUpTo()) })
		case *apiv1.ControllerMessage_Measure:
			a.measureFor(ctx, s, k.Measure)
		case *apiv1.ControllerMessage_ReadFile:
			a.readFor(ctx, s, k.ReadFile)
		case *apiv1.ControllerMessage_ReadConfig:
			a.rereadFor(ctx, s, k.ReadConfig.GetAsk())
		case *apiv1.ControllerMessage_Revoked:
			a.noteRevoked(k.Revoked)
		case *apiv1.ControllerMessage_Grant:
			a.inbox.putItems(func() {
				if !a.core.refused {
					a.passGrant(ctx, k.Grant)
				}
			})
		case *apiv1.ControllerMessage_Keys:
			a.inbox.putItems(func() { a.core.UseKeys(k.Keys.GetKeys()) })
		case *apiv1.ControllerMessage_Goodbye:
			return errors.New("the controller says: " + k.Goodbye.GetReason())
		case *apiv1.ControllerMessage_Welcome:
			return errors.New("the controller said welcome twice")
		}
	}
}

func (c *Config) makeRegistration(
	inventory *spec.Inventory,
	running []*apiv1.HeldRun,
	seen *apiv1.LedgerPosition,
) *apiv1.Registration {
	reg := &apiv1.Registration{
		Seen:      seen,
		Held:      running,
		Epochs:    true,
		Adopts:    true,
		Node:      c.Node.Name,
		Inventory: wire.Inventory(inventory),
		Version:   c.Version,
		Dynamic:   c.Dynamic,
		Place:     c.Place,
	}
	for _, heldRun := range running {
		reg.Running = append(reg.Running, heldRun.GetRun())
	}
	return reg
}
