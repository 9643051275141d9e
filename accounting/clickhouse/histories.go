package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// History reads which events of a ledger stand where, up to a position.
func (s *Store) History(ctx context.Context, ledger [16]byte, end uint64) (tally.History, error) {
	history := tally.History{End: end}
	// The segment right behind the end tells where the next event comes from.
	rows, err := s.conn.Query(ctx, "SELECT at, epoch, event"+
		" FROM "+s.qualifyTable("histories")+" FINAL"+
		" WHERE ledger = {ledger:UUID} AND at <= {end:UInt64} + 1"+
		" ORDER BY at",
		ch.Named("ledger", uuid.UUID(ledger).String()), ch.Named("end", end))
	if err != nil {
		return history, fmt.Errorf("read the histories of accounting: %w", err)
	}
	for rows.Next() {
		var segment tally.Segment
		err = rows.Scan(&segment.At, &segment.Epoch, &segment.Seq)
		if err != nil {
			break
		}
		history.Segments = append(history.Segments, segment)
	}
	return history, wrapError(
		"read the histories of accounting",
		errors.Join(err, rows.Err(), rows.Close()),
	)
}

// KnownLedger is a ledger of which the store has rows.
type KnownLedger struct {
	Ledger [16]byte
	Seq    uint64       // its last event that is stored
	At     spec.Instant // and its instant
}

// LedgersOf tells which ledgers of a cluster the store has, by the cluster's name.
// Imported clusters have no ledger and do not count. A store without tables has none;
// nothing is made.
func (s *Store) LedgersOf(ctx context.Context, cluster string) ([]KnownLedger, error) {
	var tables uint64
	row := s.conn.QueryRow(ctx, "SELECT count() FROM system.tables"+
		" WHERE database = {db:String} AND name IN ('events', 'histories', 'ingest')", ch.Named("db", s.db))
	if err := row.Scan(&tables); err != nil {
		return nil, fmt.Errorf("look for the tables of accounting: %w", err)
	}
	if tables < 3 {
		return nil, nil
	}
	ledgers, err := s.listLedgers(ctx)
	if err != nil {
		return nil, err
	}
	var knownLedgers []KnownLedger
	for _, l := range ledgers {
		var named uint64
		row := s.conn.QueryRow(ctx, "SELECT count() FROM"+
			" (SELECT cluster FROM "+s.qualifyTable("events")+
			" WHERE ledger = {ledger:UUID} LIMIT 1)"+
			" WHERE cluster = {cluster:String}",
			ch.Named("ledger", l.String()), ch.Named("cluster", cluster))
		if err := row.Scan(&named); err != nil {
			return nil, fmt.Errorf("read whose ledger the store has: %w", err)
		}
		if named == 0 {
			continue
		}
		position, err := s.Position(ctx, l)
		if err != nil {
			return nil, err
		}
		knownLedgers = append(knownLedgers, KnownLedger{l, position.Seq, position.At})
	}
	return knownLedgers, nil
}

// listLedgers are those that have begun an epoch, which only a controller does.
func (s *Store) listLedgers(ctx context.Context) ([]uuid.UUID, error) {
	rows, err := s.conn.Query(ctx, "SELECT DISTINCT ledger FROM "+s.qualifyTable("histories")+
		" WHERE epoch != 0 ORDER BY ledger")
	if err != nil {
		return nil, fmt.Errorf("read which ledgers the store has: %w", err)
	}
	var out []uuid.UUID
	for rows.Next() {
		var l uuid.UUID
		err = rows.Scan(&l)
		if err != nil {
			break
		}
		out = append(out, l)
	}
	return out, wrapError(
		"read which ledgers the store has",
		errors.Join(err, rows.Err(), rows.Close()),
	)
}

// putSegment notes what stands from a position on.
func (w *Writer) putSegment(ctx context.Context, segment tally.Segment) error {
	err := w.s.conn.Exec(
		ctx,
		"INSERT INTO "+w.s.qualifyTable("histories")+" (ledger, at, epoch, event)"+
			" SELECT {ledger:UUID}, {at:UInt64}, {epoch:UInt64}, {event:UInt64}",
		ch.Named("ledger", w.from.ledger.String()),
		ch.Named("at", segment.At),
		ch.Named("epoch", segment.Epoch),
		ch.Named("event", segment.Seq),
	)
	return wrapError("note a history of accounting", err)
}

// Branch goes on with a history that parts from what the store has: what comes
// is stored behind it. Runs that were not over there and are unknown to the
// ledger are closed as what they are, runs whose end nobody saw. It may be
// repeated after an error or a crash.
func (w *Writer) Branch(ctx context.Context, branch tally.Branch) error {
	if err := w.check(ctx); err != nil {
		return err
	}
	end := w.pos.Seq
	unfinished := max(end, w.intent.last)
	closing := unfinished + 1 // where the runs stand that are closed
	if err := w.eraseBehind(ctx, end); err != nil {
		return err
	}
	if err := w.runStepHook("branch"); err != nil {
		return err
	}
	if err := w.closeLost(ctx, closing, branch); err != nil {
		return err
	}
	if err := w.runStepHook("closed"); err != nil {
		return err
	}
	next := tally.Segment{At: closing + 1, Epoch: branch.Epoch, Seq: branch.Event + 1}
	for _, segment := range [...]tally.Segment{{At: end + 1}, next} {
		if err := w.putSegment(ctx, segment); err != nil {
			return err
		}
	}
	w.from.shift = next.At - next.Seq
	if err := w.setPosition(ctx, closing, w.pos.At, w.pos.Gen); err != nil {
		w.from.shift = w.pos.Shift
		return err
	}
	w.intent, w.doubt = phaseRow{}, false
	return nil
}

// eraseBehind deletes what a batch that was interrupted left behind a position,
// and what a branch that was interrupted noted there.
func (w *Writer) eraseBehind(ctx context.Context, end uint64) error {
	rest := &tally.Batch{First: end + 1 - w.from.shift, Last: math.MaxInt64}
	for _, p := range w.splitBatch(rest) {
		n, err := w.countRows(ctx, p.table, rest)
		if err != nil {
			return err
		}
		if n == 0 {
			continue
		}
		if err := w.eraseBatch(ctx, p.table, rest); err != nil {
			return err
		}
	}
	on := ""
	if c := w.s.opts.Layout.Cluster; c != "" {
		on = " ON CLUSTER " + quoteName(c)
	}
	ctx = ch.Context(ctx, ch.WithSettings(ch.Settings{"mutations_sync": 2}))
	err := w.s.conn.Exec(ctx, "ALTER TABLE "+w.s.qualifyTable("histories")+on+" DELETE"+
		" WHERE ledger = {ledger:UUID} AND at > {end:UInt64}",
		ch.Named("ledger", w.from.ledger.String()), ch.Named("end", end))
	return wrapError("delete the notes of an interrupted branch", err)
}

// How runs are closed whose history was lost: as a run whose end nobody saw, and
// as a job that is gone before it started.
const (
	lostReason = "HistoryLost"
	lostRan    = "NODE_FAIL"
	lostWaited = "CANCELLED"
)

// closeLost makes rows of jobs from the open runs that the ledger does not know.
// Their end is the last instant that the store knows of.
func (w *Writer) closeLost(ctx context.Context, at uint64, branch tally.Branch) error {
	sub := func(column string) string {
		return "toUnixTimestamp64Micro(" + column + ") - toUnixTimestamp64Micro(submit)"
	}
	as := map[string]string{
		"seq":             "{at:UInt64}",
		"owner":           query.OwnerSQL(),
		"state":           "if(isNull(start), '" + lostWaited + "', '" + lostRan + "')",
		"end_reason":      "'" + lostReason + "'",
		"end":             "greatest(fromUnixTimestamp64Micro({end:Int64}, 'UTC'), ifNull(start, submit))",
		"eligible_gap_us": sub("eligible"),
		"start_gap_us":    sub("start"),
	}
	live := liveTable()
	var names, values []string
	for _, c := range jobsTable().columns {
		value := as[c.name]
		known := slices.ContainsFunc(
			live.columns,
			func(l columnDef) bool { return l.name == c.name },
		)
		switch {
		case c.isDerived():
			continue
		case value == "" && !known:
			return fmt.Errorf("table jobs has a column %s that open runs do not have", c.name)
		case value == "":
			value = quoteName(c.name)
		}
		names, values = append(names, quoteName(c.name)), append(values, value)
	}
	waiting := make([]uint64, len(branch.Waiting))
	for i, uid := range branch.Waiting {
		waiting[i] = uint64(uid)
	}
	running, attempts := make([]uint64, len(branch.Running)), make([]uint32, len(branch.Running))
	for i, attempt := range branch.Running {
		running[i], attempts[i] = uint64(attempt.UID), attempt.Attempt
	}
	open := "SELECT * FROM " + w.s.qualifyTable("live") + " FINAL" +
		" WHERE ledger = {ledger:UUID} AND gen = {gen:UInt32} AND (NOT final OR seq > {seq:UInt64})"
	const unknown = "if(isNull(start)," +
		" NOT has({waiting:Array(UInt64)}, uid)," +
		" NOT has(arrayZip({running:Array(UInt64)}, {attempts:Array(UInt32)}), (uid, attempt)))"
	sql := "INSERT INTO " + w.s.qualifyTable("jobs") + " (" + strings.Join(names, ", ") + ")" +
		"\nSELECT " + strings.Join(values, ", ") +
		"\nFROM (" + open + ") AS open" +
		"\nWHERE " + unknown
	set := askSettings()
	set["insert_deduplicate"], set["distributed_foreground_insert"] = 0, 1
	err := w.s.conn.Exec(
		ch.Context(ctx, ch.WithSettings(set)),
		sql,
		ch.Named("ledger", w.from.ledger.String()),
		ch.Named("gen", w.pos.Gen),
		ch.Named("seq", w.pos.Seq),
		ch.Named("at", at),
		ch.Named("end", cutTime(w.pos.At).UnixMicro()),
		ch.Named("waiting", waiting),
		ch.Named("running", running),
		ch.Named("attempts", attempts),
	)
	return wrapError("close the runs of a lost history", err)
}

// LastRuns gives the last run of each job that the store has between two
// positions, both included.
func (s *Store) LastRuns(
	ctx context.Context,
	ledger [16]byte,
	from, to uint64,
) (map[spec.JobUID]uint32, error) {
	out := map[spec.JobUID]uint32{}
	rows, err := s.conn.Query(
		ctx,
		"SELECT uid, max(restarts)"+
			" FROM "+s.qualifyTable("jobs")+
			" WHERE ledger = {ledger:UUID} AND seq >= {from:UInt64} AND seq <= {to:UInt64}"+
			" GROUP BY uid",
		ch.Named("ledger", uuid.UUID(ledger).String()),
		ch.Named("from", from),
		ch.Named("to", to),
	)
	if err != nil {
		return nil, fmt.Errorf("look for runs of a lost history: %w", err)
	}
	for rows.Next() {
		var uid uint64
		var last uint32
		err = rows.Scan(&uid, &last)
		if err != nil {
			break
		}
		out[spec.JobUID(uid)] = last
	}
	return out, wrapError(
		"look for runs of a lost history",
		errors.Join(err, rows.Err(), rows.Close()),
	)
}

// EndedRuns gives the attempts whose end the store has between two positions, both
// included. A run that was only closed with its lost history has no end there.
func (s *Store) EndedRuns(
	ctx context.Context,
	ledger [16]byte,
	from, to uint64,
) ([]tally.EndedRun, error) {
	var runs []tally.EndedRun
	rows, err := s.conn.Query(
		ctx,
		"SELECT uid, attempt, toUnixTimestamp64Micro(assumeNotNull(start))"+
			" FROM "+s.qualifyTable("jobs")+
			" WHERE ledger = {ledger:UUID} AND seq >= {from:UInt64} AND seq <= {to:UInt64}"+
			" AND isNotNull(start) AND end_reason != '"+lostReason+"'"+
			" ORDER BY uid, attempt",
		ch.Named("ledger", uuid.UUID(ledger).String()),
		ch.Named("from", from),
		ch.Named("to", to),
	)
	if err != nil {
		return nil, fmt.Errorf("look for ends in a lost history: %w", err)
	}
	for rows.Next() {
		var uid uint64
		var attempt uint32
		var start int64
		err = rows.Scan(&uid, &attempt, &start)
		if err != nil {
			break
		}
		run := tally.Attempt{UID: spec.JobUID(uid), Attempt: attempt}
		runs = append(runs, tally.EndedRun{Attempt: run, Start: tally.Micros(start)})
	}
	return runs, wrapError(
		"look for ends in a lost history",
		errors.Join(err, rows.Err(), rows.Close()),
	)
}

// Numbers gives the greatest job numbers that the store has seen.
func (s *Store) Numbers(ctx context.Context, ledger [16]byte) (spec.JobUID, spec.JobID, error) {
	var uid uint64
	var id uint32
	of := func(table string) string {
		return "SELECT max(uid) AS u, max(greatest(job_id, array_job_id, het_job_id)) AS n" +
			" FROM " + s.qualifyTable(table) +
			" WHERE ledger = {ledger:UUID}"
	}
	sql := "SELECT max(u), max(n) FROM (" + of("jobs") + " UNION ALL " + of("live") + ")"
	err := s.conn.QueryRow(ctx, sql, ch.Named("ledger", uuid.UUID(ledger).String())).Scan(&uid, &id)
	return spec.JobUID(uid), spec.JobID(id), wrapError("look for the last job numbers", err)
}
