package daemon

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// How long a failed session or write waits before it is tried again: twice as
// long each time.
const (
	backoffFirst = 100 * spec.Millisecond
	backoffLast  = 10 * spec.Second
)

// stepAside is how many events are counted in one go: some 100 µs.
const stepAside = 32

// errRestoring is why a session is over that a restore has ended.
var errRestoring = errors.New(
	"a restore of the store has interrupted the ingest, which goes on by itself",
)

// runIngest runs sessions until the context ends.
func (d *Daemon) runIngest(ctx context.Context) {
	pause := backoffFirst
	last := ""
	for ctx.Err() == nil {
		before := d.figures.batches.Load()
		err := d.runGuarded(ctx)
		if ctx.Err() != nil {
			return
		}
		err = d.cfg.Store.Explain(err)
		if errors.Is(err, context.Canceled) {
			err = errRestoring
		}
		d.noteFailure(err)
		if d.figures.batches.Load() > before {
			pause, last = backoffFirst, ""
		}
		// A session that is ended for a restore is none that failed.
		if text := fmt.Sprint(err); text != last && !errors.Is(err, errRestoring) {
			last = text
			d.cfg.Log.Error(
				"accounting is not stored; the ledger keeps it until it is",
				"error",
				err,
			)
		}
		if !d.sleepFor(ctx, pause) {
			return
		}
		pause = min(2*pause, backoffLast)
	}
}

// runGuarded is a session that a restore can end.
func (d *Daemon) runGuarded(ctx context.Context) error {
	d.sessionMu.Lock()
	defer d.sessionMu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d.mu.Lock()
	d.interrupt = stop
	d.mu.Unlock()
	return d.runSession(ctx)
}

// session is one life of a writer.
type session struct {
	d      *Daemon
	tally  *tally.Tally
	writer Writer
	parted parted
	redo   uint64 // the next batch must end with this event; 0 = anywhere

	entries chan decoded
	work    chan *work
	idle    chan struct{}     // the writer has stored all of taken
	awake   chan struct{}     // the writer is to rest no more
	stored  chan *tally.Batch // whose room can be used again

	snapshots chan tally.Snapshot // to be stored with the next batch
	handed    uint64              // batches, by count
	taken     atomic.Uint64       // of them by the writer, which has stored these

	pace  pace        // of the counting goroutine
	burst atomic.Bool // the ledger grows fast: the writer rests too

	live     int    // rows in the live table's generation
	snapped  uint64 // event of the last snapshot that is stored
	wanted   uint64 // event of the last snapshot that was taken
	lastTook spec.Span
}

// decoded is an entry that has been read.
type decoded struct {
	events []event.Envelope
	err    error
}

// work is what the writing goroutine gets: a batch, then perhaps a new
// generation of live rows.
type work struct {
	batch  *tally.Batch
	live   []tally.LiveRow
	rotate bool
}

// grace is how long a session that is told to stop may take to store what it
// has counted.
const grace = 3 * spec.Second

// runSession takes the lease, resumes where the store is, and stores until
// something breaks or the context ends.
func (d *Daemon) runSession(ctx context.Context) error {
	d.figures.sessions.Add(1)
	s := &session{
		d:         d,
		entries:   make(chan decoded, 64),
		work:      make(chan *work),
		idle:      make(chan struct{}, 1),
		awake:     make(chan struct{}, 1),
		stored:    make(chan *tally.Batch, 1),
		snapshots: make(chan tally.Snapshot, 1),
	}
	if err := s.openSession(ctx); err != nil {
		return err
	}
	// soft ends with ctx or when the writer fails; hard, which the writer uses,
	// outlives a stop by the grace.
	soft, end := context.WithCancelCause(ctx)
	hard, kill := context.WithCancelCause(context.WithoutCancel(ctx))
	defer kill(nil)
	defer context.AfterFunc(ctx, func() {
		d.sleepFor(hard, grace)
		kill(ctx.Err())
	})()
	cursor, err := d.cfg.Source.Open(soft, s.tally.Seq()+1)
	if err != nil {
		end(nil)
		return fmt.Errorf("read the ledger: %w", err)
	}
	read := make(chan struct{})
	go func() { defer close(read); s.readLedger(soft, cursor) }()
	defer func() { end(nil); <-read }()
	if err := s.catchUp(soft); err != nil {
		return err
	}
	written := make(chan error, 1)
	go func() {
		err := s.writeBatches(hard)
		end(err)
		written <- err
	}()
	err = s.countLedger(soft)
	switch {
	case ctx.Err() != nil:
		s.finishBatch(hard)
	case err != nil:
		kill(err)
	}
	close(s.work)
	if failed := <-written; failed != nil {
		return failed
	}
	return err
}

// openSession takes the lease and brings back the counting state.
func (s *session) openSession(ctx context.Context) error {
	daemon := s.d
	daemon.forgetOpenRuns()
	if err := daemon.cfg.Store.Migrate(ctx); err != nil {
		return err
	}
	writer, result, err := daemon.cfg.OpenWriter(ctx, daemon.ledger, daemon.cluster)
	if err != nil {
		return err
	}
	s.writer, s.redo = writer, result.Redo
	if err := s.compareHistories(ctx, result); err != nil {
		return err
	}
	label, t, err := s.lastSnapshot(ctx)
	if err != nil {
		return err
	}
	s.tally = tally.New()
	if t != nil {
		s.tally = t
		s.snapped = t.Seq()
		s.wanted = t.Seq()
	}
	s.parted.beginAt(label)
	for _, gap := range s.parted.behind {
		if err := s.renumberRuns(ctx, gap); err != nil {
			return err
		}
	}
	return nil
}

// lastSnapshot gives the newest counting state of the ledger's own history, with
// its position; nil = there is none.
func (s *session) lastSnapshot(ctx context.Context) (label uint64, t *tally.Tally, err error) {
	daemon := s.d
	for at := s.parted.endPosition(); ; at = label - 1 {
		snap, ok, err := daemon.cfg.Store.LastSnapshot(ctx, daemon.ledger, at)
		if err != nil || !ok {
			return 0, nil, err
		}
		label = snap.Seq
		want, ours := s.parted.eventAt(label)
		if !ours {
			continue // of a history that was lost
		}
		t, err := tally.Restore(snap.Data)
		switch {
		case err != nil:
			daemon.cfg.Log.Error(
				"the snapshot of the tally cannot be read; the ledger is counted from its beginning",
				"error",
				err,
			)
		case t.Seq() != want || t.UUID() != daemon.ledger:
			daemon.cfg.Log.Error(
				"the snapshot of the tally is not what its label says; the ledger is counted from its beginning",
				"label",
				want,
				"event",
				t.Seq(),
			)
		default:
			return label, t, nil
		}
		return 0, nil, nil
	}
}

// readLedger decodes the ledger, entry by entry.
func (s *session) readLedger(ctx context.Context, cursor Cursor) {
	for {
		entry, err := cursor.Next(ctx)
		if err == nil && entry.Last < entry.First {
			continue // an entry without events
		}
		var d decoded
		if err == nil {
			d.events, err = s.d.cfg.Codec.Decode(entry.Events)
		}
		if err != nil {
			d.err = fmt.Errorf("read the ledger: %w", err)
		}
		select {
		case s.entries <- d:
		case <-ctx.Done():
			return
		}
		if d.err != nil {
			return
		}
	}
}

// nextEntry gives the next entry.
func (s *session) nextEntry(ctx context.Context) ([]event.Envelope, error) {
	select {
	case d := <-s.entries:
		return d.events, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// applyEvents folds an entry; events that were folded already are passed over.
//
// Counting shares a process with the controller, whose callers wait: every few
// events it lets whatever else is ready go first.
func (s *session) applyEvents(events []event.Envelope) error {
	for i := range events {
		if i%stepAside == 0 {
			runtime.Gosched()
		}
		if events[i].Seq <= s.tally.Seq() {
			continue
		}
		if err := s.tally.Apply(&events[i]); err != nil {
			return fmt.Errorf("count: %w", err)
		}
		s.d.notes.note(events[i].Event)
	}
	return nil
}

// catchUp folds what the store has already, without making rows, and then
// begins a generation of the live table.
func (s *session) catchUp(ctx context.Context) error {
	s.tally.Quiet(true)
	for _, at := range s.parted.ahead {
		if err := s.foldTo(ctx, at.event); err != nil {
			return err
		}
		if err := s.passFork(ctx, at.gap); err != nil {
			return err
		}
	}
	if err := s.foldTo(ctx, s.parted.lastEvent()); err != nil {
		return err
	}
	if s.parted.now {
		if err := s.branchStore(ctx); err != nil {
			return err
		}
	}
	position := s.writer.Position()
	if s.tally.Seq() != position.Event() {
		return fmt.Errorf(
			"the store ends at event %d, in the middle of an entry of the ledger that ends at %d: %w",
			position.Event(),
			s.tally.Seq(),
			tally.ErrOrder,
		)
	}
	s.d.setParted(s.parted.gaps, s.parted.forks())
	s.tally.Take()
	s.tally.Quiet(false)
	rows := s.tally.AllLive()
	s.live = len(rows)
	if err := s.writer.Generation(ctx, rows); err != nil {
		return err
	}
	s.d.publishGeneration(s.writer.Position(), rows)
	s.confirm(position.Event())
	return nil
}

// foldTo folds entries up to the one with an event.
func (s *session) foldTo(ctx context.Context, seq uint64) error {
	for s.tally.Seq() < seq {
		events, err := s.nextEntry(ctx)
		if err != nil {
			return err
		}
		if err := s.applyEvents(events); err != nil {
			return err
		}
	}
	return nil
}

// confirm tells the controller how far the store is.
func (s *session) confirm(seq uint64) {
	if s.d.cfg.Confirm != nil {
		s.d.cfg.Confirm(Progress{Seq: seq, Keep: s.snapped + 1})
	}
}
