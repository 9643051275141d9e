package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// Daemon is the accounting service of one ledger.
type Daemon struct {
	cfg Config

	mu      sync.Mutex // guards what follows
	ledger  [16]byte
	cluster string
	known   bool // ledger and cluster are
	pos     tally.Position
	stored  bool         // pos is the store's
	gaps    []query.Gap  // positions of a history that was lost
	forks   []forkPoint  // where such a history parted
	open    openRuns     // at pos
	counted spec.Instant // the oldest event of the batch being made; 0 = none
	flying  spec.Instant // and of the one being stored
	failed  error        // why nothing is stored now; nil = all is well
	began   spec.Instant // when Run was called, or Waits for the first time; 0 = neither yet
	writing spec.Instant // since when the store is asked to take a batch; 0 = it is not
	changed chan struct{}

	interrupt func() // ends the session that runs; guarded by mu

	careMu    sync.Mutex // one restore at a time
	sessionMu sync.Mutex // held while a session runs, or the store is replaced

	hurry   chan struct{} // somebody waits for what is not stored yet
	asking  chan struct{} // a place for each question about runs that is being answered
	notes   notesSeen
	samples samples
	figures figures
	kpis    atomic.Pointer[[]kpi.Value]
	budgets atomic.Pointer[[]kpi.Spent]
	found   atomic.Pointer[findings.Found]
	seen    seenWindows // what findings are made of
}

// figures are counters for metrics.
type figures struct {
	batches, rows, retries, snapshots, sessions atomic.Uint64
	samplesStored, samplesRefused               atomic.Uint64
	samplesLeftOut                              atomic.Uint64
	lastWrite                                   atomic.Int64
}

// New makes a service; Run starts it.
func New(config Config) *Daemon {
	config = config.withDefaults()
	config.Store = pulsedStore{config.Store}
	return &Daemon{
		cfg:     config,
		changed: make(chan struct{}),
		hurry:   make(chan struct{}, 1),
		asking:  make(chan struct{}, askingAtOnce),
		samples: samples{full: make(chan struct{}, 1)},
	}
}

// Run serves until the context ends.
func (d *Daemon) Run(ctx context.Context) error {
	d.mu.Lock()
	d.ledger, d.cluster = d.cfg.Identity()
	d.known = true
	d.beginLocked()
	d.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() {
		if d.cfg.Feed != nil {
			d.cfg.Feed(ctx, d.publishPosition, d.noteFailure)
			return
		}
		d.runIngest(ctx)
	})
	if d.cfg.Refresh > 0 {
		wg.Go(func() { d.refreshKPIs(ctx) })
		wg.Go(func() { d.refreshFindings(ctx) })
	}
	wg.Go(func() { d.keepSamples(ctx) })
	wg.Go(func() { d.runRetention(ctx) })
	wg.Wait()
	return nil
}

// Status is how the service is, for metrics.
type Status struct {
	Up        bool         // the store takes rows
	Seq       uint64       // everything up to here is in the store
	Head      uint64       // the newest event of the ledger
	Lag       spec.Span    // age of the oldest event that is not in the store; 0 = none is missing
	Error     error        // why not Up
	Batches   uint64       // stored since the start
	Rows      uint64       // in them
	Retries   uint64       // writes that had to be tried again
	Snapshots uint64       // of the counting state
	LastWrite spec.Span    // how long the last batch took
	At        spec.Instant // of Seq

	SamplesStored  uint64 // readings of GPUs since the start
	SamplesRefused uint64 // those that the store did not take, or for which there was no room
	SamplesLeftOut uint64 // those of a time that is not kept
	SamplesWaiting int    // those that wait for the store
}

// Status tells how the service is. It asks nobody and never blocks for long.
func (d *Daemon) Status() Status {
	head, _ := d.cfg.Source.Head()
	now := d.cfg.Clock.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	status := Status{
		Up:        d.stored && d.failed == nil,
		Seq:       d.pos.Event(),
		Head:      head,
		Error:     d.failed,
		At:        d.pos.At,
		Batches:   d.figures.batches.Load(),
		Rows:      d.figures.rows.Load(),
		Retries:   d.figures.retries.Load(),
		Snapshots: d.figures.snapshots.Load(),
		LastWrite: spec.Span(
			d.figures.lastWrite.Load(),
		),
		SamplesStored:  d.figures.samplesStored.Load(),
		SamplesRefused: d.figures.samplesRefused.Load(),
		SamplesLeftOut: d.figures.samplesLeftOut.Load(),
		SamplesWaiting: d.samples.countWaiting(),
	}
	if d.writing != 0 && status.Up && now.Sub(d.writing) > slowWrite {
		status.Up, status.Error = false, fmt.Errorf(
			"the store has not answered for %d s: it hangs, or has too much to do",
			now.Sub(d.writing)/spec.Second,
		)
	}
	if head > d.pos.Event() && d.began != 0 {
		since := d.pos.At
		switch {
		case !d.stored:
			since = d.began // how far the store is could not be read yet
		case d.flying != 0:
			since = d.flying
		case d.counted != 0:
			since = d.counted
		}
		status.Lag = max(now.Sub(since), 0)
	}
	return status
}

// publishPosition notes what was stored and wakes whoever waits for it.
func (d *Daemon) publishPosition(position tally.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.publishLocked(position)
}

// publishLocked is publishPosition for callers that hold the lock.
func (d *Daemon) publishLocked(position tally.Position) {
	d.pos = position
	d.stored = true
	d.flying = 0
	d.failed = nil
	close(d.changed)
	d.changed = make(chan struct{})
}

// noteRolled notes what was added up.
func (d *Daemon) noteRolled(position tally.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pos.Rolled = position.Rolled
}

// noteFailure remembers why nothing is stored; nil when it is again.
func (d *Daemon) noteFailure(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = d.cfg.Store.Explain(err)
}

// Waits notes why Run cannot be called yet: what the store needs does not start.
func (d *Daemon) Waits(err error) {
	d.noteFailure(err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beginLocked()
}

// beginLocked notes since when events wait that nobody has asked the store for.
func (d *Daemon) beginLocked() {
	if d.began == 0 {
		d.began = d.cfg.Clock.Now()
	}
}

// noteBuilding notes the instant of the first event of a batch.
func (d *Daemon) noteBuilding(at spec.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.counted = at
}

// noteCut notes that the batch is on its way to the store.
func (d *Daemon) noteCut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flying == 0 {
		d.flying = d.counted
	}
	d.counted = 0
}

// noteWrite notes when a write to the store began; 0 = none is under way.
func (d *Daemon) noteWrite(at spec.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.writing = at
}

// slowWrite is how long a write may take before the store counts as away.
const slowWrite = 30 * spec.Second

// storePosition is the store's position: what the ingester knows or, where none
// has run yet, what the store says. changed closes when there is a newer one.
func (d *Daemon) storePosition(
	ctx context.Context,
) (position tally.Position, ledger [16]byte, changed <-chan struct{}, err error) {
	d.mu.Lock()
	position = d.pos
	ledger = d.ledger
	changed = d.changed
	stored := d.stored
	known := d.known
	failed := d.failed
	d.mu.Unlock()
	switch {
	case errors.Is(failed, tally.ErrNewer):
		err = failed // what its columns mean is not known here
	case stored:
	case !known && failed != nil:
		err = failed
	case !known:
		err = errors.New("it is starting")
	default:
		position, err = d.cfg.Store.Position(ctx, ledger)
	}
	return position, ledger, changed, err
}

// openScope is what part of the store questions are about. It waits, up to
// ReadWait, until the store has an event; behind is how many are still missing
// then.
func (d *Daemon) openScope(
	ctx context.Context,
	seq uint64,
) (scope query.Scope, behind uint64, err error) {
	late, stop := d.cfg.Clock.After(d.cfg.ReadWait)
	defer stop()
	for {
		position, ledger, changed, err := d.storePosition(ctx)
		if err != nil {
			return scope, 0, err
		}
		scope = query.Scope{
			Database: d.cfg.Store.Database(),
			Ledger:   ledger,
			Cluster:  d.clusterName(),
			Seq:      position.Seq,
			Shift:    position.Shift,
			Gen:      position.Gen,
			Rolled:   query.Rolled(position.Rolled),
			Lost:     d.lost(),
			Now:      d.cfg.Clock.Now(),
		}
		if position.Event() >= seq {
			return scope, 0, nil
		}
		d.hastenIngest()
		select {
		case <-changed:
		case <-late:
			return scope, seq - position.Event(), nil
		case <-ctx.Done():
			return scope, 0, ctx.Err()
		}
	}
}

// lost gives the positions of a history that was lost.
func (d *Daemon) lost() []query.Gap {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.gaps
}

// hastenIngest tells the ingester that somebody waits for what is not stored yet.
func (d *Daemon) hastenIngest() {
	select {
	case d.hurry <- struct{}{}:
	default:
	}
}

// scopeOf is scope of this cluster, or of one that was imported.
func (d *Daemon) scopeOf(
	ctx context.Context,
	cluster string,
	seq uint64,
) (scope query.Scope, behind uint64, err error) {
	if cluster == "" || cluster == d.clusterName() {
		return d.openScope(ctx, seq)
	}
	ledger := tally.ImportedLedger(cluster)
	position, err := d.cfg.Store.Position(ctx, ledger)
	if err != nil {
		return scope, 0, err
	}
	if position.Seq == 0 {
		return scope, 0, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"there is no cluster %q: this one is %s, and muster import brings others",
				cluster,
				d.clusterName(),
			),
		)
	}
	return query.Scope{
		Database: d.cfg.Store.Database(),
		Ledger:   ledger,
		Cluster:  cluster,
		Seq:      position.Seq,
		Gen:      position.Gen,
		Rolled:   query.Rolled(position.Rolled),
		Now:      d.cfg.Clock.Now(),
	}, 0, nil
}

// sleepFor waits, or tells that the context ended first.
func (d *Daemon) sleepFor(ctx context.Context, span spec.Span) bool {
	fires, stop := d.cfg.Clock.After(span)
	defer stop()
	select {
	case <-fires:
		return true
	case <-ctx.Done():
		return false
	}
}
