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

// count folds the ledger and cuts it into batches: when a batch is full, or
// when its first event has waited for the interval, the writer is free and what
// the ledger has already would not make it much larger. A batch that a crash interrupted is cut as it was.
func (s *session) count(ctx context.Context) error {
	var due <-chan struct{} // fires when the batch may go
	stop := func() {}
	defer func() { stop() }()
	free, ripe := false, false
	for {
		if s.tally.Rows() > 0 && due == nil && !ripe {
			due, stop = s.d.cfg.Clock.After(s.d.cfg.Interval)
		}
		select {
		case e := <-s.entries:
			if e.err != nil {
				return e.err
			}
			if s.tally.Rows() == 0 && len(e.events) > 0 {
				s.d.building(e.events[0].At)
			}
			began := s.d.cfg.Clock.Now()
			if err := s.apply(e.events); err != nil {
				return err
			}
			if len(e.events) > 0 {
				s.yield(ctx, began, e.events[0].At)
			}
		case <-due:
			due, ripe = nil, true
		case <-s.idle:
			free = true
		case <-s.d.hurry:
			ripe = s.tally.Rows() > 0
			s.hurried()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		full := s.tally.Largest() >= s.d.cfg.BatchRows && s.tally.Largest() >= s.fill()
		if s.redo > 0 {
			if s.tally.Seq() > s.redo {
				return fmt.Errorf("the interrupted batch ends at event %d, in the middle of an entry that ends at %d: %w", s.redo, s.tally.Seq(), tally.ErrCut)
			}
			full, ripe = s.tally.Seq() == s.redo, false
		}
		if s.tally.Rows() == 0 || !(full || ripe && free && s.near()) {
			continue
		}
		stop()
		due, ripe = nil, false
		if err := s.send(ctx, s.d.cfg.SnapshotEvery); err != nil {
			return err
		}
		free = false
	}
}

// catchUpTimes is how many times its usual size a batch may have while the
// store is far behind. Each insert and each merge costs the store much more
// than a row does: batches eight times as large take half the time.
const catchUpTimes = 8

// catchUpRows bounds that, for the sake of memory.
const catchUpRows = 400_000

// fill is how many rows the batch being made is worth waiting for: half of
// what the ledger still has, within bounds.
func (s *session) fill() int {
	usual := s.d.cfg.BatchRows
	return min(max(usual, s.behind(s.tally.Seq())/2), max(usual, min(catchUpTimes*usual, catchUpRows)))
}

// near tells that waiting for what the ledger has already would not make the
// batch twice as large: it goes when its time has come.
func (s *session) near() bool { return s.behind(s.tally.Seq()) <= s.tally.Largest() }

// behind is how many events the ledger has behind one.
func (s *session) behind(seq uint64) int {
	head := s.head()
	if head <= seq {
		return 0
	}
	return int(min(head-seq, math.MaxInt32))
}

// finish hands over what is left when the service stops, with a snapshot, so
// that the next start has nothing to count again.
func (s *session) finish(ctx context.Context) {
	if s.tally.Rows() > 0 && s.redo == 0 {
		_ = s.send(ctx, 1) // if there is no time for it the ledger still has it
	}
}

// send cuts the batch and hands it to the writer, waiting until it is free.
// Every so many events a snapshot of the state goes with it.
func (s *session) send(ctx context.Context, every uint64) error {
	select {
	case b := <-s.stored:
		s.tally.Recycle(b)
	default:
	}
	w := &work{batch: s.tally.Take()}
	s.d.cut()
	s.redo = 0
	s.live += len(w.batch.Live)
	if s.live > max(s.d.cfg.LiveRows, liveTimes*s.tally.Open()) {
		w.rotate, w.live = true, s.tally.AllLive()
		s.live = len(w.live)
	}
	if s.tally.Seq() >= s.wanted+every {
		data, err := s.tally.Snapshot()
		if err != nil {
			return err
		}
		s.wanted = s.tally.Seq()
		w.snapshot = &tally.Snapshot{Seq: s.wanted, Data: data}
	}
	select {
	case s.work <- w:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// holdEvery is how often an idle writer says that it is alive.
const holdEvery = 4 * spec.Second

// rollAgain is how soon a writer that has nothing else to do goes on adding up
// days.
const rollAgain = 50 * spec.Millisecond

// write stores batches in order. It tries each again until it is stored, and
// gives up only when the session ends or the lease is lost.
func (s *session) write(ctx context.Context) error {
	more := true
	for {
		s.free()
		idle := holdEvery
		if more {
			idle = rollAgain
		}
		hold, stop := s.d.cfg.Clock.After(idle)
		select {
		case w, ok := <-s.work:
			stop()
			if !ok {
				return nil
			}
			if err := s.persist(ctx, w); err != nil {
				return err
			}
			more = !s.relaxed(w) || s.rollUp(ctx)
			s.rest(ctx, w)
			select {
			case s.stored <- w.batch:
			default:
			}
		case <-hold:
			more = s.rollUp(ctx)
			if err := s.writer.Hold(ctx); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				if errors.Is(err, tally.ErrLease) {
					return err
				}
				s.d.note(err)
			}
		case <-ctx.Done():
			stop()
			return nil
		}
	}
}

// free tells count that the writer has nothing to do.
func (s *session) free() {
	select {
	case s.idle <- struct{}{}:
	default:
	}
}

// relaxed tells whether the writer keeps up: batches are small.
func (s *session) relaxed(w *work) bool { return w.batch.Largest() < s.d.cfg.BatchRows/2 }

// rollUp adds up days that are over, and tells whether there are more. Reports
// are right without it, only slower, so that an error is no reason to stop.
func (s *session) rollUp(ctx context.Context) bool {
	if s.behind(s.writer.Position().Seq) > s.d.cfg.BatchRows {
		return true // the rows first
	}
	before := s.writer.Position().Rolled
	more, err := s.writer.RollUp(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		s.d.cfg.Log.Warn("the days that are over could not be added up; reports take longer", "error", s.d.cfg.Store.Explain(err))
	case err == nil && s.writer.Position().Rolled != before:
		s.d.rolled(s.writer.Position())
	}
	return more && err == nil
}

// rest lets the store breathe after a small batch, and the controller in a
// burst after any, unless somebody waits for the next one.
func (s *session) rest(ctx context.Context, w *work) {
	if !s.relaxed(w) && !s.burst.Load() {
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

// persist writes one piece of work.
func (s *session) persist(ctx context.Context, w *work) error {
	d := s.d
	pause := backoffFirst
	for {
		began := d.cfg.Clock.Now()
		d.wrote(began)
		err := s.storeInTime(ctx, w)
		d.wrote(0)
		if err == nil {
			s.lastTook = d.cfg.Clock.Now().Sub(began)
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, tally.ErrLease) || errors.Is(err, tally.ErrOrder) || errors.Is(err, tally.ErrCut) {
			return err
		}
		d.figures.retries.Add(1)
		if pause == backoffFirst {
			d.cfg.Log.Warn("a batch could not be stored and is tried again", "first", w.batch.First, "last", w.batch.Last, "error", d.cfg.Store.Explain(err))
		}
		d.note(err)
		if !d.sleep(ctx, pause) {
			return nil
		}
		pause = min(2*pause, backoffLast)
	}
	d.figures.lastWrite.Store(int64(s.lastTook))
	if w.snapshot != nil {
		if err := d.cfg.Store.PutSnapshot(ctx, d.ledger, *w.snapshot); err != nil {
			d.cfg.Log.Warn("the snapshot of the tally could not be stored; a restart takes longer", "error", d.cfg.Store.Explain(err))
		} else {
			s.snapped = w.snapshot.Seq
			d.figures.snapshots.Add(1)
			s.confirm(w.batch.Last)
		}
	}
	return nil
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
	err := s.store(ctx, w)
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return fmt.Errorf("%w after %d s", errSlow, s.d.cfg.WriteWait/spec.Second)
	}
	return err
}

// errSlow tells that a write was given up.
var errSlow = errors.New("the store does not answer in time: the write was given up")

// store writes the batch, unless that is done, and then the new generation.
func (s *session) store(ctx context.Context, w *work) error {
	if s.writer.Position().Seq < w.batch.Last {
		if err := s.writer.Write(ctx, w.batch); err != nil {
			return err
		}
		s.d.figures.batches.Add(1)
		s.d.figures.rows.Add(uint64(w.batch.Rows()))
		s.d.publish(s.writer.Position())
		s.confirm(w.batch.Last)
	}
	if !w.rotate {
		return nil
	}
	if err := s.writer.Generation(ctx, w.live); err != nil {
		return err
	}
	s.d.publish(s.writer.Position())
	return nil
}
