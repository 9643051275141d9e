package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// insert is the destination of rows: one table of a store, and what its columns require.
type insert struct {
	s     *Store
	table string
	types map[string]string // wire type by column
	// hasDefault names the columns with a DEFAULT clause. They are always sent, because an omitted
	// column gets that default and not the zero value of its type.
	hasDefault map[string]bool
}

func newInsert(store *Store, table string) insert {
	ins := insert{
		s:          store,
		table:      table,
		types:      map[string]string{},
		hasDefault: map[string]bool{},
	}
	for _, t := range schemaTables() {
		if t.name != table {
			continue
		}
		for _, c := range t.columns {
			ins.types[c.name] = wireType(c.plainType())
			ins.hasDefault[c.name] = strings.Contains(c.typ, " DEFAULT ")
		}
	}
	return ins
}

// blockSettings make the server store an insert as one block before it answers: a row that was
// acknowledged is durable, and a block that is sent again is recognised by its token.
func (ins insert) blockSettings(token string) ch.Settings {
	settings := ch.Settings{
		"async_insert":                0,
		"insert_deduplicate":          0,
		"max_insert_block_size":       4 << 20,
		"min_insert_block_size_rows":  0,
		"min_insert_block_size_bytes": 0,
	}
	if token != "" {
		settings["insert_deduplicate"] = 1
		settings["insert_deduplication_token"] = token
	}
	if ins.s.opts.Layout.Cluster != "" {
		settings["distributed_foreground_insert"] = 1
	}
	return settings
}

// sendRows inserts rows as one block. The server drops a block whose token it has seen before. An
// empty token is for tables without deduplication.
//
// The block is encoded here and posted over HTTP where every column has an encoder, and sent by the
// driver otherwise.
func sendRows[R any](
	ctx context.Context,
	ins insert,
	token string,
	cols []column[R],
	rows []R,
) error {
	if len(rows) == 0 {
		return nil
	}
	settings := ins.blockSettings(token)
	if ins.s.direct && canEncode(ins, cols) {
		cols = slices.DeleteFunc(
			slices.Clone(cols),
			func(c column[R]) bool {
				return c.isDefault != nil && !ins.hasDefault[c.name] && c.isDefault(rows)
			},
		)
		if err := postBlock(ctx, ins, settings, insertStatement(ins, cols), cols, rows); err != nil {
			return fmt.Errorf("insert %d rows into %s: %w", len(rows), ins.table, err)
		}
		return nil
	}
	opts := []ch.QueryOption{ch.WithSettings(settings)}
	if ins.s.http {
		types := make([]ch.ColumnNameAndType, len(cols))
		for i := range cols {
			types[i] = ch.ColumnNameAndType{Name: cols[i].name, Type: ins.types[cols[i].name]}
		}
		opts = append(opts, ch.WithColumnNamesAndTypes(types))
	}
	batch, err := ins.s.conn.PrepareBatch(ch.Context(ctx, opts...), insertStatement(ins, cols))
	if err != nil {
		return fmt.Errorf("insert into %s: %w", ins.table, err)
	}
	for i := range cols {
		if err := batch.Column(i).Append(cols[i].values(rows)); err != nil {
			_ = batch.Abort() // the first error is the one to report
			return fmt.Errorf("insert into %s, column %s: %w", ins.table, cols[i].name, err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert %d rows into %s: %w", len(rows), ins.table, err)
	}
	return nil
}

// insertStatement is the INSERT that takes these columns.
func insertStatement[R any](ins insert, cols []column[R]) string {
	names := make([]string, len(cols))
	for i := range cols {
		names[i] = quoteName(cols[i].name)
	}
	return "INSERT INTO " + ins.s.qualifyTable(ins.table) + " (" + strings.Join(names, ", ") + ")"
}
