package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// How long a server may send nothing at all. A server that is stopped accepts
// connections and requests (the kernel does it) and never answers. A call that
// takes long by right must not be mistaken for that: whenever quietPeriod has passed the
// client asks beside it for a ping, which a server that works answers at once.
const (
	quietPeriod = 5 * time.Second
	pingPeriod  = 5 * time.Second
	methodPing  = "/muster.v1.Cluster/Ping"
)

// Watch says how long a server may be silent, and how a call ends then.
type Watch struct {
	Quiet  time.Duration                   // until the server is pinged
	Ping   time.Duration                   // that the answer to the ping may take
	Silent func(after time.Duration) error // the error of the call
}

// controllerWatch is the watch of a client that has no other.
var controllerWatch = Watch{Quiet: quietPeriod, Ping: pingPeriod, Silent: silentController}

func silentController(after time.Duration) error {
	e := rpcstatus.New(
		rpcstatus.Unavailable,
		"the controller accepts connections but has not answered for %s: its process may be stopped",
		after,
	)
	e.Details = []rpcstatus.Detail{{Key: framed.DetailOutcome, Value: framed.OutcomeUnknown}}
	return e
}

// errSilent ends a call whose server does not even answer a ping.
var errSilent = errors.New("the server is silent")

// watchedCall is a call that ends with an error if the server is silent before
// its first message.
type watchedCall struct {
	call    *framed.Call
	watch   Watch
	ctx     context.Context
	abandon context.CancelCauseFunc

	mu    sync.Mutex
	quiet *time.Timer // until the next ping; nil = it has answered
}

// beginCall starts a call and watches for its first byte.
func (c *Client) beginCall(parent context.Context, frame *framed.Frame) (*watchedCall, error) {
	ctx, abandon := context.WithCancelCause(parent)
	call, err := c.conn.SendRequest(ctx, frame)
	if err != nil {
		abandon(nil)
		return nil, err
	}
	watched := &watchedCall{call: call, watch: c.watch, ctx: ctx, abandon: abandon}
	watched.mu.Lock()
	defer watched.mu.Unlock()
	watched.quiet = time.AfterFunc(c.watch.Quiet, func() {
		if !c.answersPing(ctx) {
			abandon(errSilent)
			return
		}
		watched.watchOn()
	})
	return watched, nil
}

// watchOn begins the next quiet period of a call that is not answered yet.
func (w *watchedCall) watchOn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet != nil {
		w.quiet.Reset(w.watch.Quiet)
	}
}

// endWatch ends the watch for good.
func (w *watchedCall) endWatch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quiet != nil {
		w.quiet.Stop()
		w.quiet = nil
	}
}

// answersPing tells whether the server answers anything. A refusal is an answer:
// accounting, for example, knows no Ping.
func (c *Client) answersPing(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, c.watch.Ping)
	defer cancel()
	header := append(slices.Clone(c.header), framed.Pair{Key: framed.HeaderProbe, Value: "1"})
	_, err := c.conn.Invoke(ctx, methodPing, nil, header...)
	return err == nil || ctx.Err() == nil
}

// receiveNext gives the next message; the first one ends the watch.
func (w *watchedCall) receiveNext() ([]byte, error) {
	payload, err := w.call.Recv()
	w.endWatch()
	if err != nil {
		return nil, w.end(err)
	}
	return payload, nil
}

// awaitReply gives the only message of a call.
func (w *watchedCall) awaitReply() ([]byte, error) {
	payload, err := w.call.Wait()
	w.endWatch()
	return payload, w.end(err)
}

// end frees what the watch holds and says why the call ended.
func (w *watchedCall) end(err error) error {
	silent := errors.Is(context.Cause(w.ctx), errSilent)
	w.abandon(nil)
	if err == nil || !silent {
		return err
	}
	return w.watch.Silent(w.watch.Quiet + w.watch.Ping)
}

// cancelCall gives the call up.
func (w *watchedCall) cancelCall() {
	w.endWatch()
	w.call.Cancel()
	w.abandon(nil)
}
