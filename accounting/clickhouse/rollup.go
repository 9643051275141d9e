package clickhouse

import (
	"context"
	"fmt"
	"time"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
)

// rollDays is how many days one build adds up at most.
const rollDays = 31

const dayMicros = tally.Micros(86_400_000_000)

// RollUp adds up the days that are over at the writer's position, some of them
// at a time; more tells that there are others. What it adds becomes visible by
// the position row, written last, as with a batch: a build that died is deleted
// by the next. Rows that come late, for days that are added up already, are
// added by the next build.
func (w *Writer) RollUp(ctx context.Context) (more bool, err error) {
	if err := w.check(ctx); err != nil {
		return false, err
	}
	have := w.pos.Rolled
	until := cutTime(w.pos.At).UnixMicro() / dayMicros * dayMicros
	if until <= have.Until {
		return false, nil
	}
	rollUp := query.RollUp{
		Build:   have.Build + 1,
		From:    have.Until,
		Until:   until,
		Seq:     have.Seq,
		Cluster: w.from.cluster,
	}
	if have.Build == 0 {
		// The first build begins where there is something.
		var first time.Time
		var rows uint64
		row := w.s.conn.QueryRow(ctx, "SELECT min(end), count()"+
			" FROM "+w.s.qualifyTable("jobs")+
			" WHERE ledger = {ledger:UUID} AND seq <= {seq:UInt64}",
			ch.Named("ledger", w.from.ledger.String()), ch.Named("seq", w.pos.Seq))
		if err := row.Scan(&first, &rows); err != nil {
			return false, fmt.Errorf("look for what is to be added up: %w", err)
		}
		if rows == 0 {
			return false, nil
		}
		rollUp.From = min(first.UnixMicro()/dayMicros*dayMicros, until)
	}
	if most := rollUp.From + rollDays*dayMicros; rollUp.Until > most {
		rollUp.Until, more = most, true
	}
	if err := w.dropBuilds(ctx, have.Build); err != nil {
		return false, err
	}
	scope := query.Scope{Database: w.s.db, Ledger: w.from.ledger, Seq: w.pos.Seq}
	for _, q := range []query.Query{rollUp.Days(scope), rollUp.Quarters(scope)} {
		if err := w.runStepHook("rollup"); err != nil {
			return false, err
		}
		args := make([]any, len(q.Params))
		for i, param := range q.Params {
			args[i] = ch.Named(param.Name, param.Value)
		}
		set := askSettings()
		// One run can become thousands of rows.
		set["max_block_size"] = 4096
		set["insert_deduplicate"] = 0
		set["distributed_foreground_insert"] = 1
		if err := w.s.conn.Exec(ch.Context(ctx, ch.WithSettings(set)), q.SQL, args...); err != nil {
			return false, fmt.Errorf(
				"add up the days before %s: %w",
				time.UnixMicro(rollUp.Until).UTC().Format(time.DateOnly),
				err,
			)
		}
	}
	// In the statement above a first build has no late rows: all are its own.
	w.pos.Rolled = tally.Rolled{Build: rollUp.Build, Until: rollUp.Until, Seq: w.pos.Seq}
	if err := w.setPosition(ctx, w.pos.Seq, w.pos.At, w.pos.Gen); err != nil {
		w.pos.Rolled = have
		return false, err
	}
	return more, nil
}

// dropBuilds deletes what builds that never became visible left.
func (w *Writer) dropBuilds(ctx context.Context, last uint32) error {
	for _, table := range rollupTables() {
		var n uint64
		args := []any{ch.Named("ledger", w.from.ledger.String()), ch.Named("build", last)}
		const beyond = " WHERE ledger = {ledger:UUID} AND build > {build:UInt32}"
		if err := w.s.conn.QueryRow(ctx, "SELECT count() FROM "+w.s.qualifyTable(table.name)+
			beyond, args...).Scan(&n); err != nil {
			return fmt.Errorf("look for an interrupted build of %s: %w", table.name, err)
		}
		if n == 0 {
			continue
		}
		local, on := table.name, ""
		if c := w.s.opts.Layout.Cluster; c != "" {
			local, on = table.name+localSuffix, " ON CLUSTER "+quoteName(c)
		}
		wait := ch.Context(ctx, ch.WithSettings(ch.Settings{"mutations_sync": 2}))
		if err := w.s.conn.Exec(wait, "ALTER TABLE "+w.s.qualifyTable(local)+on+" DELETE"+beyond, args...); err != nil {
			return fmt.Errorf("delete an interrupted build of %s: %w", table.name, err)
		}
	}
	return nil
}
