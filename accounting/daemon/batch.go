package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// liveTimes is how many times the open runs a generation of the live table may
// grow to before a new one begins, if that is more than Config.LiveRows.
const liveTimes = 4

// pauseTimes is how long the writer rests after a small batch, in times of
// what the batch took: each insert costs the store the same, however small, so
// a steady trickle of tiny batches would take it whole. Who asks for what is
// new does not wait for the rest to end.
const pauseTimes = 9

// pauseMost bounds that rest.
const pauseMost = 2 * spec.Second

// countLedger folds the ledger and cuts it into batches. A batch that a crash
// interrupted is cut as it was.
func (s *session) countLedger(ctx context.Context) error {
	var due <-chan struct{} // fires when the batch may go
	stop := func() {}
	defer func() { stop() }()
	c := cutter{usual: s.d.cfg.BatchRows}
	for {
		if s.tally.Rows() > 0 && due == nil && !c.ripe {
			due, stop = s.d.cfg.Clock.After(s.d.cfg.Interval)
		}
		select {
		case e := <-s.entries:
			if e.err != nil {
				return e.err
			}
			if s.tally.Rows() == 0 && len(e.events) > 0 {
				s.d.noteBuilding(e.events[0].At)
			}
			began := s.d.cfg.Clock.Now()
			if err := s.applyEvents(e.events); err != nil {
				return err
			}
			if len(e.events) > 0 {
				s.yieldAfter(ctx, began, e.events[0].At)
			}
		case <-due:
			due, c.ripe = nil, true
		case <-s.idle:
			c.free = s.taken.Load() == s.handed
		case <-s.d.hurry:
			c.ripe = s.tally.Rows() > 0
			s.countHurried()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		now := false
		if s.redo > 0 {
			if s.tally.Seq() > s.redo {
				return fmt.Errorf(
					"the interrupted batch ends at event %d, in the middle of an entry that ends at %d: %w",
					s.redo,
					s.tally.Seq(),
					tally.ErrCut,
				)
			}
			now = s.tally.Seq() == s.redo
		} else if s.tally.Rows() > 0 {
			now = c.cutsNow(s.tally.Largest(), s.tally.Seq(), s.ledgerHead)
		}
		if !now {
			continue
		}
		stop()
		due = nil
		if err := s.sendBatch(ctx); err != nil {
			return err
		}
		c = cutter{usual: c.usual}
	}
}

// catchUpTimes is how many times its usual size a batch may have while the
// store is far behind. Each insert and each merge costs the store much more
// than a row does: while the writer is busy a batch grows.
const catchUpTimes = 8

// catchUpRows bounds that, for the sake of memory.
const catchUpRows = 400_000

// cutter tells where batches end.
type cutter struct {
	usual int    // rows of a full batch
	ripe  bool   // its first event has waited for the interval, or somebody waits for it
	free  bool   // the writer has nothing to do
	goal  uint64 // the ledger's last event when the batch might have gone; 0 = it might not yet
}

// cutsNow tells whether the batch goes that ends with an event and has so many rows
// of a table. It goes when the writer is free and it is full, or ripe and has
// what the ledger had then: halves of what is left, each smaller than the one
// before, would cost as much as whole batches. So a full one also takes what is
// left with it, if that is not much.
func (c *cutter) cutsNow(rows int, seq uint64, head func() uint64) bool {
	full := rows >= c.usual
	if !full && !c.ripe {
		return false
	}
	if most := min(catchUpTimes*c.usual, max(c.usual, catchUpRows)); !c.free || rows >= most {
		return rows >= most // an event can have many rows: what is left may be more than it seems
	}
	if c.goal == 0 {
		c.goal = head()
	}
	return seq >= c.goal || full && c.goal-seq > uint64(rows/2)
}

// countBehind is how many events the ledger has behind one.
func (s *session) countBehind(seq uint64) int {
	head := s.ledgerHead()
	if head <= seq {
		return 0
	}
	return int(min(head-seq, math.MaxInt32))
}

// finishBatch hands over what is left when the service stops, with a snapshot, so
// that the next start has nothing to count again.
func (s *session) finishBatch(ctx context.Context) {
	if s.tally.Rows() > 0 && s.redo == 0 {
		_ = s.handBatch(ctx, 1) // if there is no time for it the ledger still has it
	}
}

// lateTimes is how many times as many events there may be between two snapshots
// while the store is far behind: counting waits for each.
const lateTimes = 8

// sendBatch cuts the batch and hands it over. Behind every SnapshotEvery events
// it takes a snapshot of the state.
func (s *session) sendBatch(ctx context.Context) error {
	every := s.d.cfg.SnapshotEvery
	if s.countBehind(s.tally.Seq()) > s.d.cfg.BatchRows {
		every *= lateTimes
	}
	return s.handBatch(ctx, every)
}

// handBatch cuts the batch and hands it to the writer, waiting until it is free, and
// then the snapshot: it is made while the batch is stored.
func (s *session) handBatch(ctx context.Context, every uint64) error {
	select {
	case batch := <-s.stored:
		s.tally.Recycle(batch)
	default:
	}
	w := &work{batch: s.tally.Take()}
	s.d.noteCut()
	s.redo = 0
	s.live += len(w.batch.Live)
	if s.live > max(s.d.cfg.LiveRows, liveTimes*s.tally.Open()) {
		w.rotate, w.live = true, s.tally.AllLive()
		s.live = len(w.live)
	}
	select {
	case s.work <- w:
		s.handed++
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.tally.Seq() < s.wanted+every {
		return nil
	}
	data, err := s.tally.Snapshot()
	if err != nil {
		return err
	}
	select {
	case s.snapshots <- tally.Snapshot{Seq: s.tally.Seq(), Data: data}:
		s.wanted = s.tally.Seq()
	default: // the one before waits yet
	}
	return nil
}

// holdEvery is how often an idle writer says that it is alive.
const holdEvery = 4 * spec.Second

// rollAgain is how soon a writer that has nothing else to do goes on adding up
// days.
const rollAgain = 50 * spec.Millisecond

// writeBatches stores batches in order. It tries each again until it is stored, and
// gives up only when the session ends or the lease is lost.
func (s *session) writeBatches(ctx context.Context) error {
	more := true
	for taken := uint64(0); ; {
		s.freeBatches(taken)
		idle := holdEvery
		if more {
			idle = rollAgain
		}
		hold, stop := s.d.cfg.Clock.After(idle)
		select {
		case w, ok := <-s.work:
			stop()
			if !ok {
				s.keepSnapshot(ctx)
				return nil
			}
			taken++
			if err := s.persistPiece(ctx, w); err != nil {
				return err
			}
			s.keepSnapshot(ctx)
			more = !s.isRelaxed(w) || s.rollUp(ctx)
			s.restAfter(ctx, w)
			select {
			case s.stored <- w.batch:
			default:
			}
		case <-hold:
			s.keepSnapshot(ctx)
			more = s.rollUp(ctx)
			if err := s.writer.Hold(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				if errors.Is(err, tally.ErrLease) {
					return err
				}
				s.d.noteFailure(err)
			}
		case <-ctx.Done():
			stop()
			return nil
		}
	}
}

// freeBatches tells count that the writer has stored so many batches.
func (s *session) freeBatches(taken uint64) {
	s.taken.Store(taken)
	select {
	case s.idle <- struct{}{}:
	default:
	}
}

// isRelaxed tells whether the writer keeps up: batches are small.
func (s *session) isRelaxed(w *work) bool { return w.batch.Largest() < s.d.cfg.BatchRows/2 }

// rollUp adds up days that are over, and tells whether there are more. Reports
// are right without it, only slower, so that an error is no reason to stop.
func (s *session) rollUp(ctx context.Context) bool {
	if s.countBehind(s.writer.Position().Event()) > s.d.cfg.BatchRows {
		return true // the rows first
	}
	before := s.writer.Position().Rolled
	more, err := s.writer.RollUp(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		s.d.cfg.Log.Warn(
			"the days that are over could not be added up; reports take longer",
			"error",
			s.d.cfg.Store.Explain(err),
		)
	case err == nil && s.writer.Position().Rolled != before:
		s.d.noteRolled(s.writer.Position())
	}
	return more && err == nil
}

// restAfter lets the store breathe after a small batch, and the controller in a
// burst after any, unless somebody waits for the next one.
func (s *session) restAfter(ctx context.Context, w *work) {
	if !s.isRelaxed(w) && !s.burst.Load() {
		return
	}
	over, stop := s.d.cfg.Clock.After(min(pauseTimes*s.lastTook, pauseMost))
	defer stop()
	select {
	case <-over:
	case <-s.awake:
	case <-ctx.Done():
	}
}

// persistPiece writes one piece of work.
func (s *session) persistPiece(ctx context.Context, w *work) error {
	daemon := s.d
	pause := backoffFirst
	for {
		began := daemon.cfg.Clock.Now()
		daemon.noteWrite(began)
		err := s.storeInTime(ctx, w)
		daemon.noteWrite(0)
		if err == nil {
			s.lastTook = daemon.cfg.Clock.Now().Sub(began)
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, tally.ErrLease) || errors.Is(err, tally.ErrOrder) ||
			errors.Is(err, tally.ErrCut) {
			return err
		}
		daemon.figures.retries.Add(1)
		if pause == backoffFirst {
			daemon.cfg.Log.Warn(
				"a batch could not be stored and is tried again",
				"first",
				w.batch.First,
				"last",
				w.batch.Last,
				"error",
				daemon.cfg.Store.Explain(err),
			)
		}
		daemon.noteFailure(err)
		if !daemon.sleepFor(ctx, pause) {
			return nil
		}
		pause = min(2*pause, backoffLast)
	}
	daemon.figures.lastWrite.Store(int64(s.lastTook))
	return nil
}

// keepSnapshot stores a snapshot that waits. The batch before it is stored: the
// snapshot was made when the writer had taken it.
func (s *session) keepSnapshot(ctx context.Context) {
	daemon := s.d
	var snap tally.Snapshot
	select {
	case snap = <-s.snapshots:
	default:
		return
	}
	label := tally.Snapshot{Seq: snap.Seq + s.writer.Position().Shift, Data: snap.Data}
	if err := daemon.cfg.Store.PutSnapshot(ctx, daemon.ledger, label); err != nil {
		daemon.cfg.Log.Warn(
			"the snapshot of the tally could not be stored; a restart takes longer",
			"error",
			daemon.cfg.Store.Explain(err),
		)
		return
	}
	s.snapped = snap.Seq
	daemon.figures.snapshots.Add(1)
	s.confirm(s.writer.Position().Event())
}

// storeInTime gives a write up that takes for ever: the store may hang while it
// keeps the connection. What it had done by then is not done twice.
func (s *session) storeInTime(ctx context.Context, w *work) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late, stop := s.d.cfg.Clock.After(s.d.cfg.WriteWait)
	defer stop()
	go func() {
		select {
		case <-late:
			cancel(errSlow)
		case <-ctx.Done():
		}
	}()
	err := s.storeBatch(ctx, w)
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return fmt.Errorf("%w after %d s", errSlow, s.d.cfg.WriteWait/spec.Second)
	}
	return err
}

// errSlow tells that a write was given up.
var errSlow = errors.New("the store does not answer in time: the write was given up")

// storeBatch writes the batch, unless that is done, and then the new generation.
func (s *session) storeBatch(ctx context.Context, w *work) error {
	if s.writer.Position().Event() < w.batch.Last {
		s.d.noteOpenRuns(w.batch.Live)
		if err := s.writer.Write(ctx, w.batch); err != nil {
			return err
		}
		s.d.figures.batches.Add(1)
		s.d.figures.rows.Add(uint64(w.batch.Rows()))
		s.d.publishBatch(s.writer.Position(), w.batch.Live)
		s.confirm(w.batch.Last)
	}
	if !w.rotate {
		return nil
	}
	if err := s.writer.Generation(ctx, w.live); err != nil {
		return err
	}
	s.d.publishPosition(s.writer.Position())
	return nil
}
