package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// request is a command on its way through the writer.
type request struct {
	cmd   scheduler.Command
	actor event.Actor
	blobs []content // that the command's spec names by hash
	size  int       // of its blobs and texts in bytes, about
	reply chan reply
}

// content is a script or an environment with its hash.
type content struct {
	hash spec.Hash
	data []byte
}

// reply is what became of a request: durable and published, or an error.
type reply struct {
	res scheduler.Result
	err error
	seq uint64 // of the ledger after it
}

// flight is an appended batch waiting to become durable.
type flight struct {
	pending  Pending
	state    *state.State // frozen, after the batch
	events   []event.Envelope
	requests []*request
	results  []reply
	appended spec.Instant
	drained  chan struct{} // set: no batch, but the mark of a reset
}

// writer turns commands into events. Its goroutine owns the head state;
// a second goroutine waits for durability, publishes and answers, so that
// the next batch is decided while the last one is being synced.
//
// A command is answered exactly once, or never looked at: what the writer has
// taken it decides, and what it has decided the settling goroutine answers,
// also at a shutdown. What came too late for that is refused by awaitReply.
type writer struct {
	c       *Controller
	head    *state.State
	base    *state.State // frozen: the head before the batch being decided
	cmds    chan *request
	flights chan *flight
	nonce   uint64
	broken  atomic.Bool // an append failed: start again from what is applied
	low     atomic.Bool // the disk's reserve is reached
	batches uint64
	failure error // of the append that broke it; the settling goroutine's own

	checking atomic.Bool    // a sampled check is running
	checks   sync.WaitGroup // waits for it
}

const (
	defaultMaxBatch = 1024
	maxFlights      = 8
	maxBatchBytes   = 8 << 20
	// lastAppends is how long a shutdown waits for the disk.
	lastAppends = 5 * spec.Second
)

// The nonces begin anywhere, so that a batch of another life or another
// controller is not taken for one of this writer's.
func newWriter(controller *Controller) *writer {
	w := &writer{
		c:       controller,
		nonce:   rand.Uint64(),
		cmds:    make(chan *request, 4096),
		flights: make(chan *flight, maxFlights),
	}
	w.head, w.base = controller.machine.resetExpected(), controller.machine.Applied()
	return w
}

// commitCommand sends a command through the writer and waits until it is durable.
func (w *writer) commitCommand(ctx context.Context, r *request) reply {
	if err := w.enqueueCommand(ctx, r); err != nil {
		return reply{err: err}
	}
	return w.awaitReply(ctx, r)
}

// enqueueCommand enqueues a command. awaitReply gets the answer.
func (w *writer) enqueueCommand(ctx context.Context, r *request) error {
	if r.reply == nil {
		r.reply = make(chan reply, 1)
	}
	select {
	case <-w.c.stopping:
		return spec.Refuse(spec.CodeStopping, "")
	default:
	}
	select {
	case w.cmds <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-w.c.stopping:
		return spec.Refuse(spec.CodeStopping, "")
	}
}

// awaitReply waits for the answer to a command that was sent.
func (w *writer) awaitReply(ctx context.Context, r *request) reply {
	select {
	case rep := <-r.reply:
		return rep
	case <-ctx.Done():
		return reply{err: ctx.Err()}
	case <-w.c.stopped:
	}
	select {
	case rep := <-r.reply:
		return rep
	default: // it was never taken out of the queue
		return reply{err: spec.Refuse(spec.CodeStopping, "")}
	}
}

// run decides until the context ends, and then refuses what is still queued.
func (w *writer) run(ctx context.Context) error {
	defer w.checks.Wait()
	defer close(w.flights)
	defer func() { w.refuseWaiting(spec.Refuse(spec.CodeStopping, "")) }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-w.cmds:
			if w.broken.Load() {
				if again, err := w.restartFromApplied(ctx, r); err != nil {
					return err
				} else if !again {
					continue
				}
			}
			if err := w.writeBatch(w.gatherCommands(r)); err != nil {
				return err
			}
		}
	}
}

// gatherCommands takes what else is waiting, up to the size of a batch. A rise of the ledger's
// version ends one: what is decided behind it has the words of the new version, and readers of
// the batch go by the one before.
func (w *writer) gatherCommands(first *request) []*request {
	most := w.c.deps.Settings.MaxBatch
	if most == 0 {
		most = defaultMaxBatch
	}
	requests, size := []*request{first}, first.size
	for len(requests) < most && size < maxBatchBytes && !raisesVersion(requests[len(requests)-1]) {
		select {
		case r := <-w.cmds:
			requests = append(requests, r)
			size += r.size
		default:
			return requests
		}
	}
	return requests
}

func raisesVersion(r *request) bool {
	_, raises := r.cmd.(scheduler.RaiseVersion)
	return raises
}

// writeBatch decides some commands, appends their events as one entry and passes
// it on. Commands that changed nothing are answered once everything before
// them is durable. A command that would break a rule of the ledger is refused
// and the batch decided again without it: such a bug must not stop a cluster.
func (w *writer) writeBatch(reqs []*request) error {
	now := w.c.deps.Clock.Now()
	batch, blobs, bad, err := w.decideCommands(reqs, now)
	for ; err != nil; batch, blobs, bad, err = w.decideCommands(reqs, now) {
		if spec.CodeOf(err) == spec.CodeLedgerVersion {
			reqs[bad].reply <- reply{err: err}
			w.head = w.base.Fork()
			reqs = slices.Delete(reqs, bad, bad+1)
			continue
		}
		w.c.figures.invariantFailures.Add(1)
		w.c.deps.Logger.Error(
			"a command would break a rule of the ledger and is refused",
			"error",
			err,
			"command",
			fmt.Sprintf("%T", reqs[bad].cmd),
		)
		reqs[bad].reply <- reply{err: fmt.Errorf("the scheduler broke a rule of the ledger: %w", err)}
		w.head = w.base.Fork()
		reqs = slices.Delete(reqs, bad, bad+1)
	}
	if len(batch.events) > 0 {
		events, err := w.c.deps.Codec.Encode(batch.events)
		if err != nil {
			refuseAll(reqs, err)
			return err
		}
		w.nonce++
		batch.state = w.head.Freeze()
		w.base = batch.state
		w.check(batch.state)
		w.c.machine.expectBatch(
			folded{
				nonce: w.nonce,
				state: batch.state,
				first: batch.events[0].Seq,
				last:  batch.state.Seq,
			},
		)
		batch.pending = w.c.deps.Log.Append(frameBatch(w.nonce, blobs, events))
	}
	w.flights <- batch
	return nil
}

// decideCommands decides commands on the head, in order. If one breaks a rule or would write
// what not all controllers can read (bad is its index) the head is spoiled.
func (w *writer) decideCommands(
	reqs []*request,
	now spec.Instant,
) (batch *flight, blobs [][]byte, bad int, err error) {
	t := trial.On(w.head, now, event.Actor{}, "")
	t.East = w.c.deps.East
	batch = &flight{requests: reqs, results: make([]reply, len(reqs)), appended: now}
	sent := map[spec.Hash]bool{}
	for i, r := range reqs {
		if err := w.refuseOnFullDisk(r); err != nil {
			batch.results[i].err = err
			continue
		}
		t.Actor = r.actor
		before := len(t.Events)
		result, err := decideOne(t, r.cmd)
		if err != nil && spec.CodeOf(err) == 0 {
			return nil, nil, i, err
		}
		if err := w.refuseNewer(t.Events[before:]); err != nil {
			return nil, nil, i, err
		}
		batch.results[i] = reply{res: result, err: err, seq: t.Seq}
		if err == nil && len(t.Events) > before {
			blobs = w.newBlobs(blobs, r, sent)
		}
	}
	batch.events = t.Events
	return batch, blobs, 0, nil
}

// decideOne makes an error of a panic: the trial is dropped after both.
func decideOne(t *trial.Trial, command scheduler.Command) (result scheduler.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return scheduler.Decide(t, command)
}

// refuseOnFullDisk stops submissions while the disk's reserve is reached; ends and
// cancels go on.
func (w *writer) refuseOnFullDisk(r *request) error {
	switch r.cmd.(type) {
	case scheduler.Submit, scheduler.PutCrontab:
	default:
		return nil
	}
	if w.low.Load() {
		return spec.Refuse(spec.CodeDiskReserve, "")
	}
	return nil
}

// newBlobs adds content of an accepted request that the store does not have yet.
func (w *writer) newBlobs(list [][]byte, r *request, sent map[spec.Hash]bool) [][]byte {
	for _, b := range r.blobs {
		w.c.senders.noteSender(r.actor.UID, b.hash)
		if !sent[b.hash] && !w.c.deps.Blobs.Has(b.hash) {
			sent[b.hash] = true
			list = append(list, b.data)
		}
	}
	return list
}

// check runs the invariants on a sample of batches, one on each, by turns: all
// of them on a deep queue would take a core for so long that submissions wait.
// A breach is logged and counted, never a reason to stop a running cluster. It
// runs beside the writer, one at a time; with a sample of every batch (tests)
// the writer waits for all of them.
func (w *writer) check(s *state.State) {
	w.batches++
	every := uint64(w.c.deps.Settings.CheckEvery)
	if every == 0 || w.batches%every != 0 {
		return
	}
	if every == 1 {
		w.reportBreach(s, s.Check())
		return
	}
	if !w.checking.CompareAndSwap(false, true) {
		return
	}
	all := state.Checks()
	turn := all[w.batches/every%uint64(len(all))]
	w.checks.Add(1)
	go func() {
		defer w.checks.Done()
		defer w.checking.Store(false)
		if err := turn.Check(s.Breathing(runtime.Gosched)); err != nil {
			w.reportBreach(s, fmt.Errorf("%s: %w", turn.Name, err))
		}
	}()
}

// reportBreach tells of an invariant that does not hold.
func (w *writer) reportBreach(s *state.State, err error) {
	if err != nil {
		w.c.figures.invariantFailures.Add(1)
		w.c.deps.Logger.Error("an invariant of the state does not hold", "error", err, "seq", s.Seq)
	}
}

// restartFromApplied waits until every batch under way has been answered, takes the
// applied state for the new head and lets the log go on. Until then it refuses
// what comes in, first of all the command that brought it here; it tells
// whether that is still to be decided.
func (w *writer) restartFromApplied(ctx context.Context, first *request) (again bool, err error) {
	mark := &flight{drained: make(chan struct{})}
	w.flights <- mark
	<-mark.drained
	for wait := 50 * spec.Millisecond; ; wait = min(2*wait, 5*spec.Second) {
		err := w.c.deps.Log.Resume(ctx)
		if err == nil {
			break
		}
		if first != nil {
			first.reply <- reply{err: unwritableError(err)}
			first = nil
		}
		if ctx.Err() != nil {
			return false, nil
		}
		if errors.Is(err, ErrNotLeader) {
			return false, err
		}
		if errors.Is(err, ErrLogStopped) {
			return false, fmt.Errorf("the ledger cannot be written any more: %w", err)
		}
		w.c.deps.Logger.Warn("the ledger cannot be written yet", "error", err)
		if !w.refuseFor(ctx, wait, err) {
			return false, nil
		}
	}
	w.head, w.base = w.c.machine.resetExpected(), w.c.machine.Applied()
	w.broken.Store(false)
	w.c.deps.Logger.Info("the ledger is writable again", "seq", w.head.Seq)
	return first != nil, nil
}

// refuseFor refuses what comes in for a while, so that nobody waits without
// knowing why.
func (w *writer) refuseFor(ctx context.Context, wait spec.Span, cause error) bool {
	fires, stop := w.c.deps.Clock.After(wait)
	defer stop()
	for {
		select {
		case r := <-w.cmds:
			r.reply <- reply{err: unwritableError(cause)}
		case <-fires:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// refuseWaiting answers what is queued.
func (w *writer) refuseWaiting(err error) {
	for {
		select {
		case r := <-w.cmds:
			r.reply <- reply{err: err}
		default:
			return
		}
	}
}

func refuseAll(reqs []*request, err error) {
	for _, r := range reqs {
		r.reply <- reply{err: err}
	}
}

// unwritableError is what callers are told when the ledger does not take a batch.
func unwritableError(cause error) error {
	var e *spec.Error
	switch {
	case errors.As(cause, &e):
		return e
	case errors.Is(cause, ErrDiskFull):
		return spec.Refuse(spec.CodeDiskReserve, cause.Error())
	case errors.Is(cause, ErrLogStopped):
		return spec.Refuse(spec.CodeStopping, cause.Error())
	case errors.Is(cause, ErrOutcomeUnknown):
		return spec.Refuse(spec.CodeOutcomeUnknown, cause.Error())
	case errors.Is(cause, ErrNotLeader):
		return spec.Refuse(spec.CodeNotLeader, "")
	case errors.Is(cause, context.Canceled), errors.Is(cause, context.DeadlineExceeded):
		return spec.Refuse(spec.CodeOutcomeUnknown, "it shows after the next start")
	}
	return fmt.Errorf("the ledger does not take the batch: %w", cause)
}

// settleBatches waits for batches in order, publishes what is durable, answers, and
// carries the effects out, until the writer has ended. At a shutdown it waits
// for the last appends, but not for ever.
func (w *writer) settleBatches(ctx context.Context) error {
	last, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	defer context.AfterFunc(ctx, func() {
		fires, stop := w.c.deps.Clock.After(lastAppends)
		defer stop()
		select {
		case <-fires:
			giveUp()
		case <-last.Done():
		}
	})()
	for batch := range w.flights {
		if batch.drained != nil {
			close(batch.drained)
			continue
		}
		w.landFlight(last, batch)
	}
	return nil
}

func (w *writer) landFlight(ctx context.Context, batch *flight) {
	if batch.pending != nil {
		if err := batch.pending.Wait(ctx); err != nil {
			w.failure = err
			if !w.broken.Swap(true) {
				w.c.deps.Logger.Error(
					"the ledger refused a batch",
					"error",
					err,
					"commands",
					len(batch.requests),
				)
			}
			refuseAll(batch.requests, unwritableError(err))
			return
		}
		w.countCommands(batch)
		w.c.publishCommitted(batch)
	} else if w.broken.Load() { // decided on a state that never came to be
		refuseAll(batch.requests, unwritableError(w.failure))
		return
	} else {
		w.countCommands(batch)
	}
	for i, r := range batch.requests {
		r.reply <- batch.results[i]
	}
}

// countCommands adds a batch's commands to the figures.
func (w *writer) countCommands(batch *flight) {
	for i := range batch.results {
		if batch.results[i].err != nil {
			w.c.figures.refused.Add(1)
		}
		w.c.figures.stale.Add(uint64(batch.results[i].res.Stale))
	}
	w.c.figures.commands.Add(uint64(len(batch.requests)))
}
