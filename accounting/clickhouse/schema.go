package clickhouse

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
)

// SchemaVersion is the version of the schema that this release makes and
// reads; each version is one entry of migrations.
const SchemaVersion = 2

// Layout says what kind of server the tables are made for.
type Layout struct {
	// Cluster names a ClickHouse cluster: every table becomes a replicated one
	// on each of its nodes with a distributed one before it. Empty: one server,
	// or the embedded engine.
	Cluster string
}

// engine is the kind of a table.
type engine uint8

const (
	appendOnly engine = iota
	replacing         // by the column named in table.version; without one, the row that came last stays
)

// tableDef defines a table for every layout.
type tableDef struct {
	name        string
	comment     string
	engine      engine
	version     string
	columns     []columnDef
	order       string
	partition   string
	shard       string // sharding expression of a distributed table; empty = the whole table on every node
	tokens      bool   // the table remembers the tokens of inserts
	indexes     []string
	projections []string
	settings    string // more of them, with a comma behind each
	wide        int    // size from which a part has a file for each column; 0 = 128 MiB
}

// columnDef is one column: its type in the table and how it is stored.
type columnDef struct{ name, typ, codec string }

// stem of the local tables of a cluster.
const localSuffix = "_local"

// createStatements renders the statements that make the table.
func (t *tableDef) createStatements(db string, layout Layout) []string {
	if layout.Cluster == "" {
		engine := "MergeTree"
		if t.engine == replacing {
			engine = "ReplacingMergeTree(" + t.newestArgument("") + ")"
		}
		// Plain tables forget insert tokens unless told otherwise.
		window := ""
		if t.tokens {
			window = "non_replicated_deduplication_window = 1000, "
		}
		return []string{t.bodySQL(db, t.name, "", engine, window)}
	}
	window := "replicated_deduplication_window = 0, "
	if t.tokens {
		window = "replicated_deduplication_window = 1000, "
	}
	on := " ON CLUSTER " + quoteName(layout.Cluster)
	shard := "{shard}"
	if t.shard == "" {
		shard = "all" // one path for all shards: every node has all of it
	}
	path := fmt.Sprintf("'/clickhouse/tables/%s/%s/%s', '{replica}'", shard, db, t.name)
	engine := "ReplicatedMergeTree(" + path + ")"
	if t.engine == replacing {
		engine = "ReplicatedReplacingMergeTree(" + path + t.newestArgument(", ") + ")"
	}
	if t.shard == "" {
		return []string{t.bodySQL(db, t.name, on, engine, window)}
	}
	return []string{
		t.bodySQL(db, t.name+localSuffix, on, engine, window),
		fmt.Sprintf(
			"CREATE TABLE IF NOT EXISTS %s.%s%s AS %s.%s ENGINE = Distributed(%s, %s, %s, %s)",
			quoteName(db),
			t.name,
			on,
			quoteName(db),
			t.name+localSuffix,
			quoteName(layout.Cluster),
			quoteName(db),
			t.name+localSuffix,
			t.shard,
		),
	}
}

// newestArgument is the argument of a replacing engine.
func (t *tableDef) newestArgument(comma string) string {
	if t.version == "" {
		return ""
	}
	return comma + t.version
}

func (t *tableDef) bodySQL(db, name, on, engine, settings string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "CREATE TABLE IF NOT EXISTS %s.%s%s (\n", quoteName(db), name, on)
	for i, c := range t.columns {
		if i > 0 {
			text.WriteString(",\n")
		}
		fmt.Fprintf(&text, "\t%s %s", quoteName(c.name), c.typ)
		if c.codec != "" {
			fmt.Fprintf(&text, " CODEC(%s)", c.codec)
		}
	}
	for _, ix := range t.indexes {
		text.WriteString(",\n\tINDEX " + ix)
	}
	for _, p := range t.projections {
		text.WriteString(",\n\tPROJECTION " + p)
	}
	fmt.Fprintf(&text, "\n) ENGINE = %s", engine)
	if t.partition != "" {
		fmt.Fprintf(&text, "\nPARTITION BY %s", t.partition)
	}
	wide := t.wide
	if wide == 0 {
		wide = 128 << 20
	}
	// What is acknowledged must be on the disk.
	fmt.Fprintf(
		&text,
		"\nORDER BY %s\nSETTINGS %sfsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = %d\nCOMMENT %s",
		t.order,
		settings+t.settings,
		wide,
		quoteText(t.comment),
	)
	return text.String()
}

func quoteName(text string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "`", "\\`") + "`"
}

func quoteText(text string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(text, `\`, `\\`), "'", `\'`) + "'"
}

func joinColumns(lists ...[]columnDef) []columnDef {
	var columns []columnDef
	for _, l := range lists {
		columns = append(columns, l...)
	}
	return columns
}

func wordColumns(names ...string) []columnDef {
	columns := make([]columnDef, len(names))
	for i, n := range names {
		columns[i] = columnDef{n, tWord, none}
	}
	return columns
}

// versionsTable is the table that says which migrations were applied.
func versionsTable() tableDef {
	return tableDef{
		name:    "schema_versions",
		comment: "which migrations were applied",
		engine:  appendOnly,
		columns: []columnDef{
			{"version", "UInt32", ""},
			{"applied", "DateTime64(6, 'UTC') DEFAULT now64(6)", ""},
		},
		order: "version",
	}
}

// migrationStep is one statement of a migration.
type migrationStep struct {
	sql string
	// done, if there is one, asks how often the step was done already, by a migration that
	// was interrupted behind it. Without one the statement may run again.
	done string
	// byHour names the table that the statement copies: the rows of each hour go one after
	// the other, so that no statement takes longer than a connection waits.
	byHour string
}

// migrationSteps gives the steps that lead to a version from the one before.
// A version that was released never changes: a change to a table is a version
// of its own.
func migrationSteps(version int, db string, layout Layout) []migrationStep {
	var steps []migrationStep
	switch version {
	case 1:
		for _, table := range tablesOfVersion1() {
			for _, sql := range table.createStatements(db, layout) {
				steps = append(steps, migrationStep{sql: sql})
			}
		}
	case 2:
		return reorderSamples(db, layout)
	}
	return steps
}

// tablesOfVersion1 lists the tables as version 1 makes them.
func tablesOfVersion1() []tableDef {
	tables := schemaTables()
	for i := range tables {
		if tables[i].name == samplesTable {
			tables[i] = samplesDef1()
		}
	}
	return tables
}

// reorderSamples are the steps of version 2: samples of GPUs are copied into a table that
// is sorted by time first, hour by hour, and the tables change places.
func reorderSamples(db string, layout Layout) []migrationStep {
	table := samplesDef()
	table.name += "_by_time"
	on := ""
	local := ""
	if layout.Cluster != "" {
		on = " ON CLUSTER " + quoteName(layout.Cluster)
		local = localSuffix
	}
	name := func(table string) string { return quoteName(db) + "." + table }
	done := "SELECT count() FROM system.tables WHERE database = " + quoteText(db) + " AND name = " +
		quoteText(samplesTable+local) + " AND position(sorting_key, 'FifteenMinutes') > 0"
	var steps []migrationStep
	for _, sql := range table.createStatements(db, layout) {
		steps = append(steps, migrationStep{sql: sql, done: done})
	}
	// What an interrupted migration has copied goes first: rows that are there twice replace each
	// other only when the engine merges them.
	steps = append(steps,
		migrationStep{sql: "TRUNCATE TABLE " + name(table.name+local) + on, done: done},
		migrationStep{
			sql: "INSERT INTO " + name(table.name) + " SETTINGS distributed_foreground_insert = 1, " +
				"max_partitions_per_insert_block = 0 SELECT * FROM " + name(samplesTable),
			done:   done,
			byHour: samplesTable,
		},
		migrationStep{
			sql:  "EXCHANGE TABLES " + name(samplesTable+local) + " AND " + name(table.name+local) + on,
			done: done,
		},
		migrationStep{sql: "DROP TABLE IF EXISTS " + name(table.name+local) + on + " SYNC"})
	if layout.Cluster != "" {
		steps = append(
			steps, migrationStep{sql: "DROP TABLE IF EXISTS " + name(table.name) + on + " SYNC"},
		)
	}
	return steps
}

// viewsDDL gives the statements that make the stored views.
func viewsDDL(db string, layout Layout, rates *kpi.Rates) []string {
	on := ""
	if layout.Cluster != "" {
		on = " ON CLUSTER " + quoteName(layout.Cluster)
	}
	var out []string
	for _, stored := range query.StoredViews() {
		out = append(out, "CREATE OR REPLACE VIEW "+quoteName(db)+"."+stored.Name+on+" AS\n"+
			stored.SQL(db, rates))
	}
	return out
}

// DDL renders every statement that makes the schema of a layout, for
// documentation and for administrators who apply it themselves.
func DDL(db string, layout Layout) []string {
	on := ""
	if layout.Cluster != "" {
		on = " ON CLUSTER " + quoteName(layout.Cluster)
	}
	table := versionsTable()
	out := append(
		[]string{"CREATE DATABASE IF NOT EXISTS " + quoteName(db) + on},
		table.createStatements(db, layout)...)
	for v := 1; v <= SchemaVersion; v++ {
		for _, step := range migrationSteps(v, db, layout) {
			out = append(out, step.sql)
		}
	}
	return out
}
