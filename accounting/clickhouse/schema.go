package clickhouse

import (
	"fmt"
	"strings"
)

// SchemaVersion is the version of the schema that this release makes and
// reads; each version is one entry of migrations.
const SchemaVersion = 11

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
	name      string
	comment   string
	engine    engine
	version   string
	columns   []columnDef
	order     string
	partition string
	shard     string // sharding expression of a distributed table; empty = the whole table on every node
	tokens    bool   // the table remembers the tokens of inserts
	resorted  bool   // its rows lie in another order than in the version before
	indexes   []string
	settings  string // more of them, with a comma behind each
	wide      int    // size from which a part has a file for each column; 0 = 128 MiB
}

// columnDef is one column: its type in the table and how it is stored.
type columnDef struct{ name, typ, codec string }

// stem of the local tables of a cluster.
const localSuffix = "_local"

// create renders the statements that make the table.
func (t *tableDef) create(db string, l Layout) []string {
	if l.Cluster == "" {
		engine := "MergeTree"
		if t.engine == replacing {
			engine = "ReplacingMergeTree(" + t.newest("") + ")"
		}
		// Plain tables forget insert tokens unless told otherwise.
		window := ""
		if t.tokens {
			window = "non_replicated_deduplication_window = 1000, "
		}
		return []string{t.body(db, t.name, "", engine, window)}
	}
	window := "replicated_deduplication_window = 0, "
	if t.tokens {
		window = "replicated_deduplication_window = 1000, "
	}
	on := " ON CLUSTER " + quoteName(l.Cluster)
	shard := "{shard}"
	if t.shard == "" {
		shard = "all" // one path for all shards: every node has all of it
	}
	path := fmt.Sprintf("'/clickhouse/tables/%s/%s/%s', '{replica}'", shard, db, t.name)
	engine := "ReplicatedMergeTree(" + path + ")"
	if t.engine == replacing {
		engine = "ReplicatedReplacingMergeTree(" + path + t.newest(", ") + ")"
	}
	if t.shard == "" {
		return []string{t.body(db, t.name, on, engine, window)}
	}
	return []string{
		t.body(db, t.name+localSuffix, on, engine, window),
		fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s.%s%s AS %s.%s ENGINE = Distributed(%s, %s, %s, %s)", quoteName(db), t.name, on,
			quoteName(db), t.name+localSuffix, quoteName(l.Cluster), quoteName(db), t.name+localSuffix, t.shard),
	}
}

// newest is the argument of a replacing engine.
func (t *tableDef) newest(comma string) string {
	if t.version == "" {
		return ""
	}
	return comma + t.version
}

func (t *tableDef) body(db, name, on, engine, settings string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE IF NOT EXISTS %s.%s%s (\n", quoteName(db), name, on)
	for i, c := range t.columns {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "\t%s %s", quoteName(c.name), c.typ)
		if c.codec != "" {
			fmt.Fprintf(&b, " CODEC(%s)", c.codec)
		}
	}
	for _, ix := range t.indexes {
		b.WriteString(",\n\tINDEX " + ix)
	}
	fmt.Fprintf(&b, "\n) ENGINE = %s", engine)
	if t.partition != "" {
		fmt.Fprintf(&b, "\nPARTITION BY %s", t.partition)
	}
	wide := t.wide
	if wide == 0 {
		wide = 128 << 20
	}
	// What is acknowledged must be on the disk.
	fmt.Fprintf(&b, "\nORDER BY %s\nSETTINGS %sfsync_after_insert = 1, fsync_part_directory = 1, min_bytes_for_wide_part = %d\nCOMMENT %s",
		t.order, settings+t.settings, wide, quoteText(t.comment))
	return b.String()
}

func quoteName(s string) string {
	return "`" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "`", "\\`") + "`"
}

func quoteText(s string) string {
	return "'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", `\'`) + "'"
}

// Types and codecs that recur. Times are UTC microseconds.
const (
	tTime     = "DateTime64(6, 'UTC')"
	tTimeNull = "Nullable(DateTime64(6, 'UTC'))"
	tWord     = "LowCardinality(String)"
	tAmounts  = "Map(LowCardinality(String), Int64)"
	cTime     = "DoubleDelta, ZSTD(1)"
	cSeq      = "Delta, ZSTD(1)"
	cText     = "ZSTD(1)"
)

// identity is what every row begins with.
func identity() []columnDef {
	return []columnDef{{"ledger", "UUID", cText}, {"cluster", tWord, ""}, {"seq", "UInt64", cSeq}}
}

// runKey tells which run a row belongs to.
func runKey() []columnDef {
	return []columnDef{{"uid", "UInt64", cSeq}, {"restarts", "UInt32", cText}, {"attempt", "UInt32", cText}, {"job_id", "UInt32", cSeq}}
}

func join(lists ...[]columnDef) []columnDef {
	var out []columnDef
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

func words(names ...string) []columnDef {
	out := make([]columnDef, len(names))
	for i, n := range names {
		out[i] = columnDef{n, tWord, ""}
	}
	return out
}

func numbers(names ...string) []columnDef {
	out := make([]columnDef, len(names))
	for i, n := range names {
		out[i] = columnDef{n, "Int64", cText}
	}
	return out
}

// usage is what was measured; measured is false where nothing was, and all
// else 0 or NULL then.
func usageColumns() []columnDef {
	return []columnDef{{"measured", "Bool", ""}, {"user_cpu_us", "Int64", cText}, {"system_cpu_us", "Int64", cText},
		{"peak_rss", "Nullable(Int64)", cText}, {"mem_mib_s", "Int64", cText}, {"read_bytes", "Int64", cText}, {"write_bytes", "Int64", cText},
		{"energy_mj", "Nullable(Int64)", cText}, {"maj_faults", "Int64", cText}}
}

func amountColumns(prefix string) []columnDef {
	return append(numbers(prefix+"cpus", prefix+"mem_mib", prefix+"nodes", prefix+"gpus", prefix+"billing"), columnDef{prefix + "tres", tAmounts, ""})
}

// runColumns are those of jobs and live.
func runColumns(end string) []columnDef {
	return join(identity(), runKey(),
		[]columnDef{{"array_uid", "UInt64", cText}, {"array_job_id", "UInt32", cText}, {"array_task", "Int64", cText}, {"array_tasks", "String", cText},
			{"count", "UInt64", cText}, {"name", "String", cText}, {"user", tWord, ""}, {"user_id", "UInt32", cText}, {"group", tWord, ""},
			{"group_id", "UInt32", cText}},
		words("account"), []columnDef{{"assoc", "UInt32", cText}}, words("partition", "qos", "wckey"), []columnDef{{"comment", "String", cText}},
		words("state"),
		[]columnDef{{"exit_code", "Int32", cText}, {"exit_signal", "Int32", cText}, {"derived_code", "Int32", cText}, {"derived_signal", "Int32", cText},
			{"cancelled_by", "Nullable(UInt32)", cText}},
		words("reason", "end_reason"),
		[]columnDef{{"submit", tTime, cTime}, {"eligible", tTimeNull, cTime}, {"start", tTimeNull, cTime}, {"end", end, cTime},
			{"limit_us", "Int64", cText}, {"suspended_us", "Int64", cText}, {"elapsed_us", "Int64", cText}},
		amountColumns("req_"), amountColumns("alloc_"),
		[]columnDef{{"req_nodes_min", "UInt32", cText}, {"tasks", "UInt32", cText}, {"node_list", "String", cText}, {"constraint", tWord, ""},
			{"reservation", tWord, ""}, {"licenses", tWord, ""}, {"priority", "UInt32", cText}, {"backfill", "Bool", ""}, {"batch", "Bool", ""},
			{"work_dir", "String", cText}, {"submit_line", "String", cText}, {"stdin", "String", cText}, {"stdout", "String", cText},
			{"stderr", "String", cText}, {"gpu_uuids", "Array(String)", cText}},
		usageColumns(),
		numbers("gpu_measured_us", "gpu_util_us", "gpu_no_process_us", "gpu_idle_us", "gpu_busy_us"))
}

// shareColumns are those that a node's and a GPU's part of a run have alike.
func shareColumns() []columnDef {
	return join(identity(), runKey(), words("user", "account", "partition", "qos", "node"),
		[]columnDef{{"from", tTime, cTime}, {"to", tTime, cTime}, {"end", tTime, cTime}})
}

// schemaOne lists every table as the first version made it.
//
//muster:table one entry for each table
func schemaOne() []tableDef {
	const bloom = " TYPE bloom_filter(0.01) GRANULARITY 1"
	return []tableDef{
		{name: "events", tokens: true, comment: "the ledger, event by event: the audit trail",
			columns: join(identity(), []columnDef{{"at", tTime, cTime}}, words("kind", "actor_kind"), []columnDef{{"actor_uid", "UInt32", cText}},
				words("actor", "host", "command"), []columnDef{{"cause_seq", "UInt64", cText}, {"uid", "UInt64", cText}, {"attempt", "UInt32", cText}},
				words("node"), []columnDef{{"body", "String", "ZSTD(1)"}}),
			order: "(ledger, seq)", partition: "toYYYYMM(at)", shard: "intDiv(seq, 100000)",
			indexes: []string{"ix_uid uid" + bloom}},
		{name: "jobs", tokens: true, comment: "one row for each run of a job that is over; never changed",
			columns: runColumns(tTime), order: "(ledger, end, uid, restarts)", partition: "toYYYYMM(end)", shard: "uid",
			indexes: []string{"ix_submit submit TYPE minmax GRANULARITY 1", "ix_ids [job_id, array_job_id]" + bloom}},
		{name: "live", comment: "runs that are open, newest form wins; see the position for the generation in force", engine: replacing, version: "seq",
			columns: join([]columnDef{{"gen", "UInt32", ""}, {"final", "Bool", ""}}, runColumns(tTimeNull), []columnDef{
				{"held_nodes", "Array(String)", cText}, {"held_cpus", "Array(Int64)", cText}, {"held_mem_mib", "Array(Int64)", cText},
				{"held_gpus", "Array(Int64)", cText}, {"held_to", "Array(DateTime64(6, 'UTC'))", cText},
				{"step_ids", "Array(Int32)", cText}, {"step_names", "Array(String)", cText}, {"step_starts", "Array(DateTime64(6, 'UTC'))", cText},
				{"step_tasks", "Array(UInt32)", cText}, {"step_nodes", "Array(String)", cText}}),
			order: "(ledger, gen, uid, restarts)", partition: "(ledger, gen)", shard: "uid"},
		{name: "steps", tokens: true, comment: "one row for each step that is over; batch is the script itself",
			columns: join(identity(), runKey(), []columnDef{{"step", "Int32", cText}, {"name", tWord, ""}}, words("user", "account", "state"),
				[]columnDef{{"exit_code", "Int32", cText}, {"exit_signal", "Int32", cText}, {"start", tTime, cTime}, {"end", tTime, cTime},
					{"tasks", "UInt32", cText}, {"node_list", "String", cText}}, amountColumns("alloc_"), usageColumns()),
			order: "(ledger, end, uid, restarts, step)", partition: "toYYYYMM(end)", shard: "uid",
			indexes: []string{"ix_uid uid" + bloom}},
		{name: "job_nodes", tokens: true, comment: "what each run held and used on each of its nodes",
			columns: join(shareColumns(), numbers("cpus", "mem_mib", "gpus"), []columnDef{{"tasks", "UInt32", cText}, {"lost", "Bool", ""}}, usageColumns()),
			order:   "(ledger, to, uid, restarts, node)", partition: "toYYYYMM(to)", shard: "uid",
			indexes: []string{"ix_from from TYPE minmax GRANULARITY 1", "ix_uid uid" + bloom}},
		{name: "job_gpus", tokens: true, comment: "which run held which device, from when to when",
			columns: join(shareColumns(), []columnDef{{"gpu_uuid", tWord, ""}, {"gpu_index", "UInt32", cText}, {"gpu_type", tWord, ""}, {"measured", "Bool", ""}},
				numbers("no_process_us", "idle_us", "busy_us", "util_us", "sm_us", "tensor_us", "peak_mem", "mem_mib_s", "energy_mj", "throttled_us", "xids")),
			order: "(ledger, to, uid, restarts, gpu_uuid)", partition: "toYYYYMM(to)", shard: "uid",
			indexes: []string{"ix_from from TYPE minmax GRANULARITY 1", "ix_uid uid" + bloom}},
		{name: "node_states", tokens: true, comment: "what holds for a node from an instant on; said again at each midnight UTC (restated)",
			columns: join(identity(), []columnDef{{"at", tTime, cTime}}, words("node", "state", "class"), []columnDef{{"restated", "Bool", ""}},
				numbers("cpus", "mem_mib", "gpus"), []columnDef{{"tres", tAmounts, ""}, {"partitions", "Array(LowCardinality(String))", cText}, {"reason", tWord, ""}},
				words("by"), []columnDef{{"by_uid", "UInt32", cText}}),
			order: "(ledger, at, node, seq)", partition: "toYYYYMM(at)", shard: "cityHash64(node)"},
		{name: "pending_reasons", tokens: true, comment: "why a run waits from an instant on, until its next reason, start or end",
			columns: join(identity(), []columnDef{{"uid", "UInt64", cSeq}, {"restarts", "UInt32", cText}, {"job_id", "UInt32", cSeq}, {"count", "UInt64", cText}},
				words("user", "account", "partition", "qos"), []columnDef{{"at", tTime, cTime}}, words("code", "tres"), numbers("limit", "in_use", "asked"),
				words("subject"), []columnDef{{"blocker", "UInt64", cText}, {"detail", "String", cText}}),
			order: "(ledger, uid, restarts, at, seq)", partition: "toYYYYMM(at)", shard: "uid"},
		{name: "associations", tokens: true, comment: "associations as they were made and changed; the newest row of an id holds",
			columns: join(identity(), []columnDef{{"at", tTime, cTime}, {"id", "UInt32", cText}}, words("account", "user", "partition"),
				[]columnDef{{"parent", "UInt32", cText}, {"shares", "Int64", cText}, {"removed", "Bool", ""}}),
			order: "(ledger, id, seq)"},
		{name: "ingest", comment: "where the writer is: one row for each phase, newest n wins", engine: replacing, version: "n",
			columns: []columnDef{{"ledger", "UUID", ""}, {"phase", tWord, ""}, {"n", "UInt64", ""}, {"writer", "UUID", ""}, {"first", "UInt64", ""},
				{"last", "UInt64", ""}, {"at", tTime, ""}, {"gen", "UInt32", ""}, {"written", "DateTime64(6, 'UTC') DEFAULT now64(6)", ""}},
			order: "(ledger, phase)"},
		{name: "tally_snapshots", comment: "the counting state, from which the writer resumes",
			columns: []columnDef{{"ledger", "UUID", ""}, {"seq", "UInt64", ""}, {"part", "UInt32", ""}, {"parts", "UInt32", ""},
				{"data", "String", "ZSTD(3)"}},
			order: "(ledger, seq, part)"},
	}
}

// versions is the table that says which migrations were applied.
func versions() tableDef {
	return tableDef{name: "schema_versions", comment: "which migrations were applied", engine: appendOnly,
		columns: []columnDef{{"version", "UInt32", ""}, {"applied", "DateTime64(6, 'UTC') DEFAULT now64(6)", ""}},
		order:   "version"}
}

// schema lists every table as it is now.
func schema() []tableDef { return schemaEleven() }

// migrations gives the statements that lead to a version from the one before.
// A version, once released, never changes; a new one is added at the end. The
// statements of a version may run again after a crash in their middle.
func migrations(version int, db string, l Layout) []string {
	var out []string
	switch version {
	case 1:
		for _, t := range schemaOne() {
			out = append(out, t.create(db, l)...)
		}
	case 2:
		for _, t := range schemaTwo() {
			if t.resorted {
				out = append(out, t.rebuild(db, l)...)
			}
		}
	case 3:
		t := samplesDef()
		out = t.create(db, l)
	case 4:
		for _, t := range schemaFour() {
			if isRecast(t.name) {
				out = append(out, recastTable(&t, db, l)...)
			}
		}
	case 5:
		out = toFive(db, l)
	case 6:
		t := purgesDef()
		out = t.create(db, l)
	case 7:
		out = toSeven(db, l)
	case 8:
		t := usageDef()
		out = t.create(db, l)
	case 9:
		out = toNine(db, l)
	case 10:
		out = toTen(db, l)
	case 11:
		out = toEleven(db, l)
	}
	return out
}

// DDL renders every statement that makes the schema of a layout, for
// documentation and for administrators who apply it themselves.
func DDL(db string, l Layout) []string {
	on := ""
	if l.Cluster != "" {
		on = " ON CLUSTER " + quoteName(l.Cluster)
	}
	t := versions()
	out := append([]string{"CREATE DATABASE IF NOT EXISTS " + quoteName(db) + on}, t.create(db, l)...)
	for v := 1; v <= SchemaVersion; v++ {
		out = append(out, migrations(v, db, l)...)
	}
	return out
}
