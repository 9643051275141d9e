package clickhouse

import (
	"context"
	"fmt"

	ch "github.com/ClickHouse/clickhouse-go/v2"

	"github.com/musterhpc/muster/accounting/query"
)

// askSettings are the settings of every question. ClickHouse compiles
// expressions that it has met a few times, and what it compiles for 128-bit
// numbers is wrong (26.7: greatest(x, 0) of a negative Int128 gives x): amounts
// of use are such numbers.
func askSettings() ch.Settings {
	return ch.Settings{"compile_expressions": 0, "compile_aggregate_expressions": 0}
}

// Query runs a query and calls each for every row; scan reads the row into
// pointers of the columns' types. When ctx ends, the server stops too.
func (s *Store) Query(
	ctx context.Context,
	q query.Query,
	each func(scan func(dest ...any) error) error,
) error {
	args := make([]any, len(q.Params))
	for i, param := range q.Params {
		args[i] = ch.Named(param.Name, param.Value)
	}
	rows, err := s.conn.Query(ch.Context(ctx, ch.WithSettings(askSettings())), q.SQL, args...)
	if err != nil {
		return fmt.Errorf("ask the accounting store: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return fmt.Errorf("read the accounting store's answer: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the accounting store's answer: %w", err)
	}
	return nil
}
