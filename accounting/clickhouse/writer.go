package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// Writer writes one ledger's accounting. One owner.
type Writer struct {
	s    *Store
	from source
	id   uuid.UUID

	pos    tally.Position
	n      uint64    // of its newest row of ingest
	intent phaseRow  // the newest intent
	spoke  time.Time // when this writer last wrote a row of ingest
	doubt  bool      // rows of the batch after the position may be there already
	fresh  bool      // it has begun a generation of the live table of its own
	halve  int       // so many rows of a table go in two inserts at once; 0 = never

	// hook, in tests, runs before each step and may fail it or kill the process.
	hook func(step string) error
}

// NewWriter takes the lease on a ledger. It fails with tally.ErrLease while another
// writer is alive.
func (s *Store) NewWriter(
	ctx context.Context,
	ledger [16]byte,
	cluster string,
) (*Writer, tally.Resume, error) {
	writer := &Writer{s: s, from: source{ledger: ledger, cluster: cluster}, id: uuid.New()}
	done, intent, err := s.readPhases(ctx, ledger)
	if err != nil {
		return nil, tally.Resume{}, err
	}
	if done == nil {
		done = &phaseRow{}
	}
	if intent == nil {
		intent = &phaseRow{}
	}
	for _, row := range [...]*phaseRow{done, intent} {
		if silent := row.now.Sub(row.written); row.n > 0 && s.opts.Socket == "" &&
			silent < s.opts.Lease {
			return nil, tally.Resume{}, fmt.Errorf(
				"it wrote %s ago, and is taken for dead after %s: %w",
				silent.Round(time.Millisecond),
				s.opts.Lease,
				tally.ErrLease,
			)
		}
	}
	writer.intent = *intent
	writer.n = max(done.n, intent.n)
	if done.n > 0 {
		writer.pos = done.readPosition()
		writer.from.shift = writer.pos.Shift
	}
	if err := writer.setPosition(ctx, writer.pos.Seq, writer.pos.At, writer.pos.Gen); err != nil {
		return nil, tally.Resume{}, err
	}
	if err := writer.stillMine(ctx); err != nil {
		return nil, tally.Resume{}, err
	}
	result := tally.Resume{Position: writer.pos}
	if intent.last > done.last {
		result.Redo, writer.doubt = intent.last-writer.pos.Shift, true
	}
	result.History, err = s.History(ctx, ledger, writer.pos.Seq)
	if err != nil {
		return nil, tally.Resume{}, err
	}
	return writer, result, nil
}

// Position is what this writer last made visible.
func (w *Writer) Position() tally.Position { return w.pos }

// runStepHook runs the hook of tests.
func (w *Writer) runStepHook(name string) error {
	if w.hook == nil {
		return nil
	}
	return w.hook(name)
}

// setPosition writes a position row: from then on readers use it.
func (w *Writer) setPosition(ctx context.Context, seq uint64, at spec.Instant, gen uint32) error {
	if err := w.runStepHook("position"); err != nil {
		return err
	}
	n := w.n + 1
	if err := w.s.setPhase(ctx, w.from.ledger, phaseDone, phaseRow{
		n:      n,
		writer: w.id,
		last:   seq,
		at:     cutTime(at),
		gen:    gen,
		rolled: w.pos.Rolled,
		shift:  w.from.shift,
	}); err != nil {
		return err
	}
	w.pos, w.n = tally.Position{
		Seq:    seq,
		Shift:  w.from.shift,
		At:     at,
		Gen:    gen,
		Rolled: w.pos.Rolled,
	}, n
	w.spoke = time.Now()
	return w.runStepHook("after position")
}

// stillMine fails with tally.ErrLease if another writer has written since.
func (w *Writer) stillMine(ctx context.Context) error {
	done, intent, err := w.s.readPhases(ctx, w.from.ledger)
	if err != nil {
		return err
	}
	for _, row := range [...]*phaseRow{done, intent} {
		if row != nil && row.n >= w.n && row.writer != w.id {
			return fmt.Errorf("writer %s took over: %w", row.writer, tally.ErrLease)
		}
	}
	return nil
}

// Hold keeps the lease while there is nothing to write. Call it at least
// every third of the lease.
func (w *Writer) Hold(ctx context.Context) error {
	if w.s.opts.Socket != "" || time.Since(w.spoke) < w.s.opts.Lease/3 {
		return nil // the engine serves one controller
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	return w.setPosition(ctx, w.pos.Seq, w.pos.At, w.pos.Gen)
}

// check looks whether the lease was lost, where that can have happened: only
// a writer that was silent for long can be taken for dead.
func (w *Writer) check(ctx context.Context) error {
	if w.s.opts.Socket != "" || time.Since(w.spoke) < w.s.opts.Lease/2 {
		return nil
	}
	return w.stillMine(ctx)
}

// Write stores a batch. It may be called again with the same batch after an
// error, any number of times; nothing else may be written before it succeeds.
func (w *Writer) Write(ctx context.Context, batch *tally.Batch) error {
	if batch.First != w.pos.Event()+1 || batch.Last < batch.First {
		return fmt.Errorf(
			"the batch of events %d to %d does not follow event %d: %w",
			batch.First,
			batch.Last,
			w.pos.Event(),
			tally.ErrOrder,
		)
	}
	if !w.fresh {
		return errors.New(
			"a writer must begin a generation of the live table before its first batch",
		)
	}
	first, last := w.place(batch)
	if w.intent.last > w.pos.Seq && (w.intent.first != first || w.intent.last != last) {
		return fmt.Errorf(
			"events %d to %d are to be written at %d to %d, but the batch that was begun is at %d to %d: %w",
			batch.First,
			batch.Last,
			first,
			last,
			w.intent.first,
			w.intent.last,
			tally.ErrCut,
		)
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	if w.intent.first != first || w.intent.last != last || w.intent.writer != w.id {
		if err := w.runStepHook("intent"); err != nil {
			return err
		}
		in := phaseRow{
			n:      w.n + 1,
			writer: w.id,
			first:  first,
			last:   last,
			at:     cutTime(batch.At),
			gen:    w.pos.Gen,
		}
		if err := w.s.setPhase(ctx, w.from.ledger, phaseIntent, in); err != nil {
			return err
		}
		w.n = in.n
		w.intent = in
		w.spoke = time.Now()
	}
	verify := w.doubt
	w.doubt = true
	if err := w.insertRows(ctx, batch, verify); err != nil {
		return err
	}
	if err := w.runStepHook("live"); err != nil {
		return err
	}
	if err := sendRows(ctx, newInsert(w.s, "live"), "", liveColumns(w.from, w.pos.Gen), batch.Live); err != nil {
		return err
	}
	for _, segment := range batch.Epochs {
		if err := w.putSegment(
			ctx,
			tally.Segment{At: segment.Seq + w.from.shift, Epoch: segment.Epoch, Seq: segment.Seq},
		); err != nil {
			return err
		}
	}
	if err := w.setPosition(ctx, last, batch.At, w.pos.Gen); err != nil {
		return err
	}
	w.doubt = false
	return nil
}

// place is where a batch stands in the store.
func (w *Writer) place(batch *tally.Batch) (first, last uint64) {
	return batch.First + w.from.shift, batch.Last + w.from.shift
}

// part is one table's rows of a batch.
type part struct {
	table string
	rows  int
	send  func(ctx context.Context, token string) error
}

func partOf[R any](writer *Writer, table string, cols []column[R], rows []R) part {
	return part{table, len(rows), func(ctx context.Context, token string) error {
		ins := newInsert(writer.s, table)
		if writer.halve == 0 || len(rows) < writer.halve {
			return sendRows(ctx, ins, token, cols, rows)
		}
		half := len(rows) / 2
		first := make(chan error, 1)
		go func() { first <- sendRows(ctx, ins, token+":1", cols, rows[:half]) }()
		err := writer.runStepHook("second half of " + table)
		if err == nil {
			err = sendRows(ctx, ins, token+":2", cols, rows[half:])
		}
		return errors.Join(<-first, err)
	}}
}

func (w *Writer) splitBatch(batch *tally.Batch) []part {
	return []part{
		partOf(w, "events", eventColumns(w.from), batch.Events),
		partOf(w, "jobs", jobColumns(w.from), batch.Jobs),
		partOf(w, "steps", stepColumns(w.from), batch.Steps),
		partOf(w, "job_nodes", nodeColumns(w.from), batch.Nodes),
		partOf(w, "job_gpus", gpuColumns(w.from), batch.GPUs),
		partOf(w, "node_states", nodeStateColumns(w.from), batch.NodeStates),
		partOf(w, "pending_reasons", reasonColumns(w.from), batch.Reasons),
		partOf(w, "associations", associationColumns(w.from), batch.Associations),
	}
}

// inserting is how many inserts of a batch run at once: most of one is
// waiting for the disk.
const inserting = 4

// insertRows inserts what is never changed again. With verify it makes sure that
// the tables have exactly the batch's rows.
func (w *Writer) insertRows(ctx context.Context, batch *tally.Batch, verify bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	slots := make(chan struct{}, inserting)
	var wg sync.WaitGroup
	parts := w.splitBatch(batch)
	errs := make([]error, len(parts))
	for i, p := range parts {
		if p.rows == 0 && !verify {
			continue
		}
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer func() { <-slots }()
			errs[i] = w.insertBatch(ctx, batch, p, verify)
			if errs[i] != nil {
				cancel()
			}
		}()
	}
	wg.Wait()
	var first error
	for _, err := range errs {
		if err != nil && (first == nil || errors.Is(first, context.Canceled)) {
			first = err
		}
	}
	return first
}

func (w *Writer) insertBatch(ctx context.Context, batch *tally.Batch, p part, verify bool) error {
	if err := w.runStepHook(p.table); err != nil {
		return err
	}
	first, last := w.place(batch)
	token := fmt.Sprintf("%s:%s:%d-%d", p.table, w.from.ledger, first, last)
	if err := p.send(ctx, token); err != nil {
		return err
	}
	if err := w.runStepHook("after " + p.table); err != nil || !verify {
		return err
	}
	have, err := w.countRows(ctx, p.table, batch)
	if err != nil || have == p.rows {
		return err
	}
	w.s.log.Warn(
		"rows of an interrupted batch are written anew",
		"table",
		p.table,
		"first",
		batch.First,
		"last",
		batch.Last,
		"found",
		have,
		"expected",
		p.rows,
	)
	if err := w.eraseBatch(ctx, p.table, batch); err != nil {
		return err
	}
	if err := p.send(ctx, token+":"+uuid.NewString()); err != nil {
		return err
	}
	have, err = w.countRows(ctx, p.table, batch)
	if err == nil && have != p.rows {
		err = fmt.Errorf(
			"table %s has %d rows of events %d to %d, there must be %d",
			p.table,
			have,
			batch.First,
			batch.Last,
			p.rows,
		)
	}
	return err
}

func (w *Writer) stretch(batch *tally.Batch) []any {
	first, last := w.place(batch)
	return []any{
		ch.Named("ledger", w.from.ledger.String()),
		ch.Named("first", first),
		ch.Named("last", last),
	}
}

const inStretch = " WHERE ledger = {ledger:UUID} AND seq >= {first:UInt64} AND seq <= {last:UInt64}"

func (w *Writer) countRows(ctx context.Context, table string, batch *tally.Batch) (int, error) {
	var n uint64
	if err := w.s.conn.QueryRow(ctx, "SELECT count() FROM "+w.s.qualifyTable(table)+inStretch, w.stretch(batch)...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the rows of a batch in %s: %w", table, err)
	}
	return int(n), nil
}

// eraseBatch deletes a batch's rows and waits until they are gone.
func (w *Writer) eraseBatch(ctx context.Context, table string, batch *tally.Batch) error {
	local, on := table, ""
	if c := w.s.opts.Layout.Cluster; c != "" {
		local, on = table+localSuffix, " ON CLUSTER "+quoteName(c)
		if table == "associations" {
			local = table
		}
	}
	ctx = ch.Context(ctx, ch.WithSettings(ch.Settings{"mutations_sync": 2}))
	if err := w.s.conn.Exec(ctx, "ALTER TABLE "+w.s.qualifyTable(local)+on+" DELETE"+inStretch, w.stretch(batch)...); err != nil {
		return fmt.Errorf("delete the rows of an interrupted batch in %s: %w", table, err)
	}
	return nil
}

// liveBlock is how many rows of a new generation go into one insert.
const liveBlock = 20_000

// Generation begins a new generation of the live table with every open run,
// and drops those that no reader uses any more.
func (w *Writer) Generation(ctx context.Context, rows []tally.LiveRow) error {
	if err := w.check(ctx); err != nil {
		return err
	}
	gen := w.pos.Gen + 1
	// A writer that died may have begun this number too: nobody reads it.
	if err := w.dropGenerations(ctx, "gen >= {gen:UInt32}", gen); err != nil {
		return err
	}
	for at := 0; at < len(rows); at += liveBlock {
		if err := w.runStepHook("generation"); err != nil {
			return err
		}
		if err := sendRows(ctx, newInsert(w.s, "live"), "", liveColumns(w.from, gen), rows[at:min(at+liveBlock, len(rows))]); err != nil {
			return err
		}
	}
	if err := w.setPosition(ctx, w.pos.Seq, w.pos.At, gen); err != nil {
		return err
	}
	w.fresh = true
	// The last one stays for queries that have begun.
	return w.dropGenerations(ctx, "gen + 1 < {gen:UInt32}", gen)
}

func (w *Writer) dropGenerations(ctx context.Context, which string, gen uint32) error {
	rows, err := w.s.conn.Query(ctx, "SELECT DISTINCT gen"+
		" FROM "+w.s.qualifyTable("live")+
		" WHERE ledger = {ledger:UUID} AND "+which,
		ch.Named("ledger", w.from.ledger.String()), ch.Named("gen", gen))
	if err != nil {
		return fmt.Errorf("look for old generations of the live table: %w", err)
	}
	var old []uint32
	for rows.Next() {
		var g uint32
		err = rows.Scan(&g)
		if err != nil {
			break
		}
		old = append(old, g)
	}
	err = errors.Join(err, rows.Err(), rows.Close())
	if err != nil {
		return fmt.Errorf("look for old generations of the live table: %w", err)
	}
	local, on := "live", ""
	if c := w.s.opts.Layout.Cluster; c != "" {
		local, on = "live"+localSuffix, " ON CLUSTER "+quoteName(c)
	}
	for _, g := range old {
		sql := fmt.Sprintf(
			"ALTER TABLE %s%s DROP PARTITION ('%s', %d)",
			w.s.qualifyTable(local),
			on,
			w.from.ledger,
			g,
		)
		if err := w.s.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("drop generation %d of the live table: %w", g, err)
		}
	}
	return nil
}
