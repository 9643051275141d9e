package clickhouse

import (
	"context"
	"fmt"
	"slices"
	"strings"

	ch "github.com/ClickHouse/clickhouse-go/v2"
)

// insert is where the rows of one table go.
type insert struct {
	s     *Store
	table string
	types map[string]string // column -> wire type
	says  map[string]bool   // columns with a default of their own: they are always sent
}

func newInsert(store *Store, table string) insert {
	ins := insert{s: store, table: table, types: map[string]string{}, says: map[string]bool{}}
	for _, t := range schemaTables() {
		if t.name == table {
			for _, c := range t.columns {
				ins.types[c.name] = wireType(c.plainType())
				ins.says[c.name] = strings.Contains(c.typ, " DEFAULT ")
			}
		}
	}
	return ins
}

// sendRows inserts rows as one block. token makes the server drop the block if it
// has had it; empty = no token, for tables that remember none.
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
	settings := ch.Settings{
		"async_insert":                0,
		"insert_deduplicate":          0,
		"max_insert_block_size":       4 << 20,
		"min_insert_block_size_rows":  0,
		"min_insert_block_size_bytes": 0,
	}
	if token != "" {
		settings["insert_deduplicate"], settings["insert_deduplication_token"] = 1, token
	}
	if ins.s.opts.Layout.Cluster != "" {
		settings["distributed_foreground_insert"] = 1
	}
	if ins.s.direct && canEncode(ins, cols) {
		cols = slices.DeleteFunc(
			slices.Clone(cols),
			func(c column[R]) bool { return c.blank != nil && !ins.says[c.name] && c.blank(rows) },
		)
		if err := postBlock(ctx, ins, settings, insertStatement(ins, cols), cols, rows); err != nil {
			return fmt.Errorf("insert %d rows into %s: %w", len(rows), ins.table, err)
		}
		return nil
	}
	types := make([]ch.ColumnNameAndType, len(cols))
	for i := range cols {
		types[i] = ch.ColumnNameAndType{Name: cols[i].name, Type: ins.types[cols[i].name]}
	}
	opts := []ch.QueryOption{ch.WithSettings(settings)}
	if ins.s.http {
		opts = append(opts, ch.WithColumnNamesAndTypes(types))
	}
	batch, err := ins.s.conn.PrepareBatch(ch.Context(ctx, opts...), insertStatement(ins, cols))
	if err != nil {
		return fmt.Errorf("insert into %s: %w", ins.table, err)
	}
	for i := range cols {
		if err := batch.Column(i).Append(cols[i].values(rows)); err != nil {
			_ = batch.Abort() // the error that counts is the first
			return fmt.Errorf("insert into %s, column %s: %w", ins.table, cols[i].name, err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert %d rows into %s: %w", len(rows), ins.table, err)
	}
	return nil
}

// insertStatement is the statement that takes these columns.
func insertStatement[R any](ins insert, cols []column[R]) string {
	names := make([]string, len(cols))
	for i := range cols {
		names[i] = quoteName(cols[i].name)
	}
	return "INSERT INTO " + ins.s.qualifyTable(ins.table) + " (" + strings.Join(names, ", ") + ")"
}
