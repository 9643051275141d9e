package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
)

// verifyRows is how many rows are counted at once.
const verifyRows = 50_000

// verifyTell is after how many events the caller hears how far it is.
const verifyTell = 500_000

// verifyStore counts the whole ledger again, as if for an empty store, and compares
// with what is stored up to the store's position. The store is asked first:
// it goes on growing meanwhile.
func (d *Daemon) verifyStore(
	ctx context.Context,
	tell func(done, of uint64),
) (found []query.Finding, err error) {
	scope, _, err := d.openScope(ctx, 0)
	if err != nil {
		return nil, err
	}
	stored := map[string][]uint64{}
	for _, table := range query.SumTables() {
		err := d.cfg.Store.Query(
			ctx,
			query.Totals(scope, table),
			func(scan func(...any) error) error {
				var sums []uint64
				err := scan(&sums)
				stored[table.Name] = sums
				return err
			},
		)
		if err != nil {
			return nil, err
		}
	}
	purged, unfinished, err := d.readPurged(ctx, scope)
	if err != nil {
		return nil, err
	}
	for _, p := range purged {
		for i := range stored[p.table] {
			stored[p.table][i] += p.sums[i]
		}
	}
	counted := sums{}
	if err := d.recountLedger(ctx, scope.Event(), counted, tell); err != nil {
		return nil, err
	}
	for _, table := range query.SumTables() {
		finding := query.Finding{
			Name:   table.Name,
			Detail: fmt.Sprintf("%d rows", counted.of(table.Name, len(table.Sums))[0]),
		}
		for i, sum := range table.Sums {
			have, want := stored[table.Name][i], counted.of(table.Name, len(table.Sums))[i]
			if have != want {
				finding.Bad = true
				finding.Detail += fmt.Sprintf(
					"; %s: the store has %d, the ledger gives %d",
					sum.Name,
					have,
					want,
				)
			}
		}
		found = append(found, finding)
	}
	rolled, err := d.verifyRolled(ctx, scope, purged)
	if len(purged) > 0 {
		finding := query.Finding{
			Name:   "purges",
			Detail: fmt.Sprintf("%d, whose recorded sums count above", len(purged)),
			Bad:    unfinished > 0,
		}
		if finding.Bad {
			finding.Detail += fmt.Sprintf(
				"; %d were broken off and are ended by the next",
				unfinished,
			)
		}
		found = append(found, finding)
	}
	return append(found, rolled...), err
}

// purge is what one purge took from a table.
type purge struct {
	table  string
	sums   []uint64
	rolled []string
}

// readPurged reads what was purged and not brought back.
func (d *Daemon) readPurged(
	ctx context.Context,
	scope query.Scope,
) (purges []purge, unfinished int, err error) {
	err = d.cfg.Store.Query(ctx, query.Purges(scope), func(scan func(...any) error) error {
		var p purge
		var id, month string
		var done bool
		if err := scan(&id, &month, &p.table, &done, &p.sums, &p.rolled); err != nil {
			return err
		}
		if !done {
			unfinished++
		}
		purges = append(purges, p)
		return nil
	})
	return purges, unfinished, err
}

// verifyRolled compares what is added up by day and quarter of an hour with the
// runs.
func (d *Daemon) verifyRolled(
	ctx context.Context,
	scope query.Scope,
	purged []purge,
) (found []query.Finding, err error) {
	if scope.Rolled.Build == 0 {
		return []query.Finding{{Name: "rollups", Detail: "nothing is added up yet"}}, nil
	}
	err = d.cfg.Store.Query(ctx, query.RolledCheck(scope), func(scan func(...any) error) error {
		var days, quarters, runs []string
		if err := scan(&days, &quarters, &runs); err != nil {
			return err
		}
		for _, p := range purged {
			for i := range p.rolled {
				have, err := parseAmount(runs[i])
				if err != nil {
					return err
				}
				gone, err := parseAmount(p.rolled[i])
				if err != nil {
					return err
				}
				runs[i] = have.Add(have, gone).String()
			}
		}
		until := time.UnixMicro(scope.Rolled.Until).UTC().Format(time.DateOnly)
		for _, t := range [...]struct {
			name string
			have []string
		}{{"rollup_days", days}, {"rollup_quarters", quarters}} {
			finding := query.Finding{
				Name:   t.name,
				Detail: fmt.Sprintf("%d builds, up to %s", scope.Rolled.Build, until),
			}
			for i, name := range t.have {
				if name != runs[i] {
					finding.Bad = true
					finding.Detail += fmt.Sprintf(
						"; sum %d: it has %s, the runs give %s",
						i+1,
						name,
						runs[i],
					)
				}
			}
			found = append(found, finding)
		}
		return nil
	})
	return found, err
}

// recountLedger folds the ledger from its first event to one.
func (d *Daemon) recountLedger(
	ctx context.Context,
	last uint64,
	into sums,
	tell func(done, of uint64),
) error {
	if head, _ := d.cfg.Source.Head(); head < last {
		return fmt.Errorf(
			"the store is compared with the ledger first, which ends at event %d, before event %d: %w",
			head,
			last,
			tally.ErrOrder,
		)
	}
	cursor, err := d.cfg.Source.Open(ctx, 1)
	if err != nil {
		return fmt.Errorf("read the ledger from its beginning: %w", err)
	}
	t := tally.New()
	d.mu.Lock()
	forks := d.forks
	d.mu.Unlock()
	told := uint64(0)
	for t.Seq() < last {
		entry, err := cursor.Next(ctx)
		if err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		if entry.Last < entry.First {
			continue
		}
		events, err := d.cfg.Codec.Decode(entry.Events)
		if err != nil {
			return fmt.Errorf("read the ledger: %w", err)
		}
		for i := range events {
			if events[i].Seq <= t.Seq() {
				continue
			}
			if err := t.Apply(&events[i]); err != nil {
				return fmt.Errorf("count: %w", err)
			}
			for len(forks) > 0 && forks[0].event == t.Seq() {
				gap := forks[0].gap
				forks = forks[1:]
				ended, err := d.cfg.Store.EndedRuns(ctx, d.ledger, gap.From, gap.To)
				if err != nil {
					return err
				}
				t.CountOnce(ended)
			}
		}
		if t.Rows() >= verifyRows {
			into.addBatch(t.Take())
		}
		if t.Seq() >= told+verifyTell {
			told = t.Seq()
			tell(told, last)
		}
	}
	into.addBatch(t.Take())
	for _, row := range t.AllLive() {
		into.putRow("live", row.UID)
	}
	return nil
}

// sums are the figures of query.SumTables over rows.
type sums map[string][]uint64

func (s sums) of(table string, n int) []uint64 {
	if len(s[table]) < n {
		s[table] = append(s[table], make([]uint64, n-len(s[table]))...)
	}
	return s[table]
}

// putRow counts a row.
func (s sums) putRow(table string, values ...uint64) {
	have := s.of(table, len(values)+1)
	have[0]++
	for i, v := range values {
		have[i+1] += v
	}
}

// addBatch counts the rows of a batch.
func (s sums) addBatch(batch *tally.Batch) {
	n := func(v int64) uint64 { return uint64(v) }
	cpu := func(u *tally.Used) uint64 { return n(u.UserCPU + u.SystemCPU) }
	for i := range batch.Events {
		s.putRow("events", batch.Events[i].UID, uint64(len(batch.Events[i].Body)))
	}
	for i := range batch.Jobs {
		row := &batch.Jobs[i]
		span, bad := uint64(0), uint64(0)
		if row.Start != 0 {
			span = n(row.End - row.Start)
		}
		if row.Exit.Code != 0 {
			bad = 1
		}
		s.putRow(
			"jobs",
			row.UID,
			row.Count,
			span,
			n(row.Alloc.CPUs)*span,
			n(row.Alloc.GPUs)*span,
			cpu(&row.Used),
			bad,
		)
	}
	for i := range batch.Steps {
		row := &batch.Steps[i]
		s.putRow("steps", row.UID, n(row.End-row.Start), cpu(&row.Used))
	}
	for i := range batch.Nodes {
		row := &batch.Nodes[i]
		s.putRow("job_nodes", row.UID, n(row.CPUs)*n(row.To-row.From), cpu(&row.Used))
	}
	for i := range batch.GPUs {
		row := &batch.GPUs[i]
		s.putRow("job_gpus", row.UID, n(row.To-row.From), n(row.Util))
	}
	for i := range batch.NodeStates {
		s.putRow("node_states", n(batch.NodeStates[i].CPUs), n(batch.NodeStates[i].At))
	}
	for i := range batch.Reasons {
		s.putRow("pending_reasons", batch.Reasons[i].UID, n(batch.Reasons[i].At))
	}
	for i := range batch.Associations {
		s.putRow("associations", uint64(batch.Associations[i].ID))
	}
}

// examineStore looks for what is wrong with accounting.
func (d *Daemon) examineStore(ctx context.Context) ([]query.Finding, error) {
	status := d.Status()
	d.mu.Lock()
	ledger := d.ledger
	d.mu.Unlock()
	findings := []query.Finding{
		{
			Name: "ingest",
			Detail: fmt.Sprintf(
				"event %d of %d is stored, %d missing, the oldest %.1f s old",
				status.Seq,
				status.Head,
				status.Head-min(status.Head, status.Seq),
				float64(status.Lag)/1e9,
			),
			Bad: !status.Up || status.Lag > lagBad,
		},
	}
	if status.Error != nil {
		findings = append(
			findings, query.Finding{Name: "error", Detail: status.Error.Error(), Bad: true},
		)
	}
	if status.Up && status.Lag > lagBad {
		findings = append(
			findings,
			query.Finding{
				Name:   "lag",
				Detail: "the store takes rows, but slower than events come, or it is catching up: muster_accounting_lag_seconds tells which",
				Bad:    true,
			},
		)
	}
	more, err := d.cfg.Store.Examine(ctx, ledger)
	if err != nil && ctx.Err() == nil {
		more, err = append(more, query.Finding{Name: "store", Detail: d.cfg.Store.Target() +
			": " + d.cfg.Store.Explain(err).Error(), Bad: true}), nil
	}
	return slices.Concat(findings, more), err
}

// lagBad is how old an event may be that is not stored.
const lagBad = 60_000_000_000
