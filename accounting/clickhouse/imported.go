package clickhouse

import (
	"context"
	"fmt"
	"math/big"

	ch "github.com/ClickHouse/clickhouse-go/v2"
	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/tally"
)

// An imported cluster has no ledger behind it from which an interrupted batch
// could be made again: its rows are deleted, and the import reads on.

// halveRows is how many rows of an import go in two inserts at once. The store
// makes an insert with one CPU, and an import has little else to wait for;
// a ledger's batch has rows for several tables, which keep it busy enough.
const halveRows = 40_000

// NewImportWriter takes the lease on an imported cluster. What a batch that
// was interrupted left is deleted; the runs that have not ended stay.
func (s *Store) NewImportWriter(
	ctx context.Context,
	ledger [16]byte,
	cluster string,
) (*Writer, error) {
	writer, result, err := s.NewWriter(ctx, ledger, cluster)
	if err != nil {
		return nil, err
	}
	writer.halve = halveRows
	if result.Redo > result.Seq {
		rest := &tally.Batch{First: result.Seq + 1, Last: result.Redo}
		for _, p := range writer.splitBatch(rest) {
			if err := writer.eraseBatch(ctx, p.table, rest); err != nil {
				return nil, err
			}
		}
		writer.intent = phaseRow{}
	}
	if writer.pos.Gen == 0 {
		return writer, writer.Generation(ctx, nil)
	}
	writer.fresh = true // the generation that is there goes on
	return writer, nil
}

// readKeys reads two lists that a query gives as arrays.
func (s *Store) readKeys(
	ctx context.Context,
	sql string,
	args ...any,
) (uids []uint64, restarts []uint32, err error) {
	rows, err := s.conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, nil, fmt.Errorf("look for imported runs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var u []uint64
		var r []uint32
		if err := rows.Scan(&u, &r); err != nil {
			return nil, nil, fmt.Errorf("look for imported runs: %w", err)
		}
		uids, restarts = append(uids, u...), append(restarts, r...)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, fmt.Errorf("look for imported runs: %w", err)
	}
	return uids, restarts, nil
}

// Ended finds which runs of an imported cluster that ended within [from, to]
// are stored.
func (s *Store) Ended(
	ctx context.Context,
	ledger [16]byte,
	from, to tally.Micros,
) (uids []uint64, restarts []uint32, err error) {
	return s.readKeys(
		ctx,
		"SELECT groupArray(uid), groupArray(restarts)"+
			" FROM "+s.qualifyTable("jobs")+
			" WHERE ledger = {ledger:UUID} AND end >= fromUnixTimestamp64Micro({from:Int64}, 'UTC')"+
			" AND end <= fromUnixTimestamp64Micro({to:Int64}, 'UTC')",
		ch.Named("ledger", uuid.UUID(ledger).String()),
		ch.Named("from", from),
		ch.Named("to", to),
	)
}

// Open finds the runs of an imported cluster that have not ended.
func (s *Store) Open(
	ctx context.Context,
	ledger [16]byte,
) (uids []uint64, restarts []uint32, err error) {
	position, err := s.Position(ctx, ledger)
	if err != nil {
		return nil, nil, err
	}
	return s.readKeys(ctx, "SELECT groupArray(uid), groupArray(restarts)"+
		" FROM "+s.qualifyTable("live")+" FINAL"+
		" WHERE ledger = {ledger:UUID} AND gen = {gen:UInt32} AND NOT final",
		ch.Named("ledger", uuid.UUID(ledger).String()), ch.Named("gen", position.Gen))
}

// Sums are the exact sums over the runs of an imported cluster that ended, in
// microseconds.
func (s *Store) Sums(
	ctx context.Context,
	ledger [16]byte,
) (runs uint64, cpu, gpu, waited *big.Int, err error) {
	position, err := s.Position(ctx, ledger)
	if err != nil {
		return 0, nil, nil, nil, err
	}
	var text [3]string
	row := s.conn.QueryRow(
		ch.Context(ctx, ch.WithSettings(askSettings())),
		"SELECT count(), toString(sum(toInt128(alloc_cpus) * elapsed_us)), toString(sum(toInt128(alloc_gpus) * elapsed_us)), "+
			"toString(sum(ifNull(toInt128(toUnixTimestamp64Micro(start) - toUnixTimestamp64Micro(submit)), 0))) FROM "+
			s.qualifyTable(
				"jobs",
			)+
			" WHERE ledger = {ledger:UUID} AND seq <= {seq:UInt64}",
		ch.Named("ledger", uuid.UUID(ledger).String()),
		ch.Named("seq", position.Seq),
	)
	if err := row.Scan(&runs, &text[0], &text[1], &text[2]); err != nil {
		return 0, nil, nil, nil, fmt.Errorf("add up imported runs: %w", err)
	}
	var sums [3]*big.Int
	for i := range text {
		n, ok := new(big.Int).SetString(text[i], 10)
		if !ok {
			return 0, nil, nil, nil, fmt.Errorf("add up imported runs: the store says %q", text[i])
		}
		sums[i] = n
	}
	return runs, sums[0], sums[1], sums[2], nil
}

// NodeStates gives the newest row of each node of an imported cluster, without
// its partitions.
func (s *Store) NodeStates(ctx context.Context, ledger [16]byte) ([]tally.NodeStateRow, error) {
	position, err := s.Position(ctx, ledger)
	if err != nil {
		return nil, err
	}
	newest := func(what string) string { return "argMax(" + what + ", (at, seq))" }
	rows, err := s.conn.Query(ctx, "SELECT node, max(toUnixTimestamp64Micro(at)), "+
		newest("toString(state)")+", "+newest("toString(class)")+", "+newest("cpus")+", "+
		newest("mem_mib")+", "+
		newest("gpus")+" FROM "+s.qualifyTable("node_states")+
		" WHERE ledger = {ledger:UUID} AND seq <= {seq:UInt64}"+
		" GROUP BY node"+
		" ORDER BY node",
		ch.Named("ledger", uuid.UUID(ledger).String()), ch.Named("seq", position.Seq))
	if err != nil {
		return nil, fmt.Errorf("look for imported nodes: %w", err)
	}
	defer rows.Close()
	var nodeStateRows []tally.NodeStateRow
	for rows.Next() {
		var row tally.NodeStateRow
		if err := rows.Scan(&row.Node, &row.At, &row.State, &row.Class, &row.CPUs, &row.Mem, &row.GPUs); err != nil {
			return nil, fmt.Errorf("look for imported nodes: %w", err)
		}
		nodeStateRows = append(nodeStateRows, row)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for imported nodes: %w", err)
	}
	return nodeStateRows, nil
}
