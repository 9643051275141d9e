package clickhouse

import (
	"fmt"
	"strings"
)

// A row says nothing twice. Words that belong together (the user with their
// account and association, the device with its node) are one entry of a
// dictionary. What follows from other columns of the row is not stored, or is
// stored as the distance from them, which is nearly always the same. Queries
// still find every name: those columns are ALIAS columns.
//
// What grows with the number of jobs is sorted by job, not by time: rows of one
// job lie together and repeat each other, and job numbers rise evenly. Jobs are
// numbered as they are submitted, so the minmax index of a time still excludes
// most of the table.

// Types that recur. Times are UTC microseconds.
const (
	tTime     = "DateTime64(6, 'UTC')"
	tTimeNull = "Nullable(DateTime64(6, 'UTC'))"
	tWord     = "LowCardinality(String)"
	tLines    = "Array(LowCardinality(String))"
	tAmounts  = "Map(LowCardinality(String), Int64)"
	tNullInt  = "Nullable(Int64)"
)

// Codecs. Times and amounts often have a common divisor, whole seconds, and use
// few of their bits: GCD and T64 store half of what general compression of
// differences takes. The others were chosen by measuring 20 million jobs.
const (
	none        = ""
	codecNumber = "GCD, T64, ZSTD(1)"
	codecEven   = "DoubleDelta, ZSTD(1)"               // rises evenly, or stays
	codecSeq    = "Delta, T64, ZSTD(1)"                // rises
	codecRepeat = "Delta, ZSTD(1)"                     // rises, and repeats in neighbouring rows
	codecSpan   = "GCD, T64('bit'), ZSTD(1)"           // any length, evenly spread
	codecAt     = "GCD, Delta(8), T64, ZSTD(1)"        // instants in order
	codecNear   = "GCD, Delta(8), T64('bit'), ZSTD(1)" // instants nearly in order
	codecAgain  = "GCD, T64, ZSTD(3)"                  // numbers that repeat in neighbouring rows
	codecText   = "ZSTD(1)"
	codecWord   = "ZSTD(3)" // entries of a dictionary
)

const (
	minmaxIndex = " TYPE minmax GRANULARITY 1"
	bloomIndex  = " TYPE bloom_filter(0.01) GRANULARITY 1"
)

// widePart is the size from which a part has a file for each column. Only such
// parts compress well, and smaller ones are written faster as one file.
const widePart = 32 << 20

// unit separates words that are stored as one.
const unit = "\x1f"

// packWords joins words to one. The separator inside a word becomes a question
// mark.
func packWords(words ...string) string {
	for i, w := range words {
		if strings.Contains(w, unit) {
			words[i] = strings.ReplaceAll(w, unit, "?")
		}
	}
	return strings.Join(words, unit)
}

// unpackedSQL is the SQL of the nth word of a packed column, counted from 1.
func unpackedSQL(column string, nth int) string {
	first := fmt.Sprintf(`substringIndex(%s, '\x1f', %d)`, column, nth)
	if nth == 1 {
		return first
	}
	return fmt.Sprintf(`substringIndex(%s, '\x1f', -1)`, first)
}

// microsSQL is the SQL of an instant as microseconds.
func microsSQL(column string) string { return "toUnixTimestamp64Micro(" + quoteName(column) + ")" }

// instantBehind is the SQL of an instant that lies some microseconds after another.
func instantBehind(column, gap string) string {
	return "fromUnixTimestamp64Micro(" + microsSQL(column) + " + " + gap + ", 'UTC')"
}

// derivedColumn is a column that is not stored but computed from others.
func derivedColumn(name, typ, sql string) columnDef {
	return columnDef{name, typ + aliasMark + sql, none}
}

// aliasMark separates a column's type from the SQL that computes it.
const aliasMark = " ALIAS "

// isDerived reports whether a column is computed from others.
func (c columnDef) isDerived() bool { return strings.Contains(c.typ, aliasMark) }

// plainType is the type of a column without default or SQL.
func (c columnDef) plainType() string {
	typ, _, _ := strings.Cut(c.typ, " DEFAULT ")
	typ, _, _ = strings.Cut(typ, aliasMark)
	return typ
}

// schemaTables lists every table.
func schemaTables() []tableDef {
	tables := []tableDef{
		eventsTable(),
		jobsTable(),
		liveTable(),
		stepsTable(),
		jobNodesTable(),
		jobGpusTable(),
		nodeStatesTable(),
		pendingReasonsTable(),
		associationsTable(),
		ingestTable(),
		historiesTable(),
		tallySnapshotsTable(),
		samplesDef(),
	}
	tables = append(tables, rollupTables()...)
	return append(tables, purgesDef(), usageDef())
}

// eventsTable holds the ledger, event by event.
//
//muster:table one entry for each column
func eventsTable() tableDef {
	return tableDef{
		name:    "events",
		comment: "the ledger, event by event: the audit trail",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, none},
			{"seq", "UInt64", codecRepeat},
			{"at", tTime, codecEven},
			{"kind", tWord, none},
			{"actor_kind", tWord, none},
			{"actor_uid", "UInt32", codecText},
			{"actor", tWord, none},
			{"host", tWord, none},
			{"command", tWord, none},
			{"cause_seq", "UInt64", codecText},
			{"uid", "UInt64", codecText},
			{"attempt", "UInt32", codecText},
			{"node", tWord, none},
			{"body", "String", codecText},
		},
		order:     "(ledger, seq)",
		partition: "toYYYYMM(at)",
		shard:     "intDiv(seq, 100000)",
		tokens:    true,
		indexes: []string{
			"ix_uid uid" + bloomIndex,
		},
	}
}

// jobsTable holds the runs that are over.
//
//muster:table one entry for each column
func jobsTable() tableDef {
	return tableDef{
		name:    "jobs",
		comment: "one row for each run of a job that is over; never changed",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, codecWord},
			{"seq", "UInt64", codecSeq},
			{"uid", "UInt64", codecEven},
			{"restarts", "UInt32", codecNumber},
			{"attempt", "UInt32", codecNumber},
			{"job_id", "UInt32", codecEven},
			{"array_uid", "UInt64", codecNumber},
			{"array_job_id", "UInt32", codecNumber},
			{"array_task", "Int64", codecNumber},
			{"array_tasks", "String", codecText},
			{"count", "UInt64", codecNumber},
			{"name", "String", codecWord},
			{"owner", tWord, codecWord},
			{"partition", tWord, codecWord},
			{"qos", tWord, codecWord},
			{"wckey", tWord, codecWord},
			{"comment", "String", codecText},
			{"state", tWord, codecWord},
			{"exit_code", "Int32", codecNumber},
			{"exit_signal", "Int32", codecNumber},
			{"derived_code", "Int32", codecNumber},
			{"derived_signal", "Int32", codecNumber},
			{"cancelled_by", "Nullable(UInt32)", codecNumber},
			{"reason", tWord, codecWord},
			{"end_reason", tWord, codecWord},
			{"submit", tTime, codecAt},
			{"eligible_gap_us", tNullInt, codecSpan},
			{"start_gap_us", tNullInt, codecSpan},
			{"end", tTime, codecNear},
			{"limit_us", "Int64", codecSpan},
			{"suspended_us", "Int64", codecSpan},
			{"req_cpus", "Int64", codecNumber},
			{"req_mem_mib", "Int64", codecNumber},
			{"req_nodes", "Int64", codecNumber},
			{"req_gpus", "Int64", codecNumber},
			{"req_billing", "Int64", codecNumber},
			{"req_tres", tAmounts, none},
			{"alloc_cpus", "Int64", codecNumber},
			{"alloc_mem_mib", "Int64", codecNumber},
			{"alloc_nodes", "Int64", codecNumber},
			{"alloc_gpus", "Int64", codecNumber},
			{"alloc_billing", "Int64", codecNumber},
			{"alloc_tres", tAmounts, none},
			{"req_nodes_min", "UInt32", codecNumber},
			{"tasks", "UInt32", codecNumber},
			{"node_list", "String", codecWord},
			{"constraint", tWord, codecWord},
			{"reservation", tWord, codecWord},
			{"licenses", tWord, codecWord},
			{"priority", "UInt32", codecNumber},
			{"backfill", "Bool", none},
			{"batch", "Bool", none},
			{"work_dir", "String", codecText},
			{"submit_line", tWord, codecWord},
			{"stdin", "String", codecText},
			{"stdout", "String", codecText},
			{"stderr", "String", codecText},
			{"gpu_uuids", tLines, codecWord},
			{"measured", "Bool", none},
			{"user_cpu_us", "Int64", codecSpan},
			{"system_cpu_us", "Int64", codecSpan},
			{"peak_rss", tNullInt, codecNumber},
			{"mem_mib_s", "Int64", codecNumber},
			{"read_bytes", "Int64", codecNumber},
			{"write_bytes", "Int64", codecNumber},
			{"energy_mj", tNullInt, codecNumber},
			{"maj_faults", "Int64", codecNumber},
			{"gpu_measured_us", "Int64", codecSpan},
			{"gpu_util_us", "Int64", codecSpan},
			{"gpu_no_process_us", "Int64", codecSpan},
			{"gpu_idle_us", "Int64", codecSpan},
			{"gpu_busy_us", "Int64", codecSpan},
			derivedColumn("user", tWord, unpackedSQL("owner", 1)),
			derivedColumn("user_id", "UInt32", "toUInt32OrZero("+unpackedSQL("owner", 4)+")"),
			derivedColumn("group", tWord, unpackedSQL("owner", 2)),
			derivedColumn("group_id", "UInt32", "toUInt32OrZero("+unpackedSQL("owner", 5)+")"),
			derivedColumn("account", tWord, unpackedSQL("owner", 3)),
			derivedColumn("assoc", "UInt32", "toUInt32OrZero("+unpackedSQL("owner", 6)+")"),
			derivedColumn("eligible", tTimeNull, instantBehind("submit", "eligible_gap_us")),
			derivedColumn("start", tTimeNull, instantBehind("submit", "start_gap_us")),
			derivedColumn("elapsed_us", "Int64", "ifNull("+microsSQL("end")+" - "+microsSQL("submit")+" - start_gap_us - suspended_us, 0)"),
			{"het_job_id", "UInt32", codecNumber},
			{"het_offset", "UInt32", codecNumber},
			{"het_size", "UInt32", codecNumber},
			{"admin_comment", "String", codecWord},
			{"system_comment", "String", codecWord},
			{"extra", "String", codecWord},
			{"container", tWord, codecWord},
			{"mcs_label", tWord, codecWord},
			{"failed_node", tWord, codecWord},
			{"segment", "UInt32", codecNumber},
			{"promised", tTimeNull, codecEven},
			{"counters", tAmounts, none},
		},
		order:     "(ledger, uid, restarts)",
		partition: "toYYYYMM(end)",
		shard:     "uid",
		tokens:    true,
		indexes: []string{
			"ix_end end" + minmaxIndex,
			"ix_submit submit" + minmaxIndex,
			"ix_new (end, seq)" + minmaxIndex,
			"ix_near (job_id, if(array_job_id = 0, job_id, array_job_id))" + minmaxIndex,
			"ix_ids [job_id, array_job_id]" + bloomIndex,
		},
		wide: widePart,
	}
}

// liveTable holds the runs that are open. Its rows change, so they are stored as
// they are written: few of them live long enough to be worth compressing.
//
//muster:table one entry for each column
func liveTable() tableDef {
	return tableDef{
		name:    "live",
		comment: "runs that are open, newest form wins; see the position for the generation in force",
		engine:  replacing,
		version: "seq",
		columns: []columnDef{
			{"gen", "UInt32", none},
			{"final", "Bool", none},
			{"ledger", "UUID", codecText},
			{"cluster", tWord, none},
			{"seq", "UInt64", codecRepeat},
			{"uid", "UInt64", codecRepeat},
			{"restarts", "UInt32", codecText},
			{"attempt", "UInt32", codecText},
			{"job_id", "UInt32", codecRepeat},
			{"array_uid", "UInt64", codecText},
			{"array_job_id", "UInt32", codecText},
			{"array_task", "Int64", codecText},
			{"array_tasks", "String", codecText},
			{"count", "UInt64", codecText},
			{"name", "String", codecText},
			{"user", tWord, none},
			{"user_id", "UInt32", codecText},
			{"group", tWord, none},
			{"group_id", "UInt32", codecText},
			{"account", tWord, none},
			{"assoc", "UInt32", codecText},
			{"partition", tWord, none},
			{"qos", tWord, none},
			{"wckey", tWord, none},
			{"comment", "String", codecText},
			{"state", tWord, none},
			{"exit_code", "Int32", codecText},
			{"exit_signal", "Int32", codecText},
			{"derived_code", "Int32", codecText},
			{"derived_signal", "Int32", codecText},
			{"cancelled_by", "Nullable(UInt32)", codecText},
			{"reason", tWord, none},
			{"end_reason", tWord, none},
			{"submit", tTime, codecEven},
			{"eligible", tTimeNull, codecEven},
			{"start", tTimeNull, codecEven},
			{"end", tTimeNull, codecEven},
			{"limit_us", "Int64", codecText},
			{"suspended_us", "Int64", codecText},
			{"elapsed_us", "Int64", codecText},
			{"req_cpus", "Int64", codecText},
			{"req_mem_mib", "Int64", codecText},
			{"req_nodes", "Int64", codecText},
			{"req_gpus", "Int64", codecText},
			{"req_billing", "Int64", codecText},
			{"req_tres", tAmounts, none},
			{"alloc_cpus", "Int64", codecText},
			{"alloc_mem_mib", "Int64", codecText},
			{"alloc_nodes", "Int64", codecText},
			{"alloc_gpus", "Int64", codecText},
			{"alloc_billing", "Int64", codecText},
			{"alloc_tres", tAmounts, none},
			{"req_nodes_min", "UInt32", codecText},
			{"tasks", "UInt32", codecText},
			{"node_list", "String", codecText},
			{"constraint", tWord, none},
			{"reservation", tWord, none},
			{"licenses", tWord, none},
			{"priority", "UInt32", codecText},
			{"backfill", "Bool", none},
			{"batch", "Bool", none},
			{"work_dir", "String", codecText},
			{"submit_line", "String", codecText},
			{"stdin", "String", codecText},
			{"stdout", "String", codecText},
			{"stderr", "String", codecText},
			{"gpu_uuids", "Array(String)", codecText},
			{"measured", "Bool", none},
			{"user_cpu_us", "Int64", codecText},
			{"system_cpu_us", "Int64", codecText},
			{"peak_rss", tNullInt, codecText},
			{"mem_mib_s", "Int64", codecText},
			{"read_bytes", "Int64", codecText},
			{"write_bytes", "Int64", codecText},
			{"energy_mj", tNullInt, codecText},
			{"maj_faults", "Int64", codecText},
			{"gpu_measured_us", "Int64", codecText},
			{"gpu_util_us", "Int64", codecText},
			{"gpu_no_process_us", "Int64", codecText},
			{"gpu_idle_us", "Int64", codecText},
			{"gpu_busy_us", "Int64", codecText},
			{"held_nodes", "Array(String)", codecText},
			{"held_cpus", "Array(Int64)", codecText},
			{"held_mem_mib", "Array(Int64)", codecText},
			{"held_gpus", "Array(Int64)", codecText},
			{"held_to", "Array(DateTime64(6, 'UTC'))", codecText},
			{"step_ids", "Array(Int32)", codecText},
			{"step_names", "Array(String)", codecText},
			{"step_starts", "Array(DateTime64(6, 'UTC'))", codecText},
			{"step_tasks", "Array(UInt32)", codecText},
			{"step_nodes", "Array(String)", codecText},
			{"het_job_id", "UInt32", codecNumber},
			{"het_offset", "UInt32", codecNumber},
			{"het_size", "UInt32", codecNumber},
			{"admin_comment", "String", codecWord},
			{"system_comment", "String", codecWord},
			{"extra", "String", codecWord},
			{"container", tWord, codecWord},
			{"mcs_label", tWord, codecWord},
			{"failed_node", tWord, codecWord},
			{"segment", "UInt32", codecNumber},
			{"promised", tTimeNull, codecEven},
			{"step_containers", "Array(String)", codecText},
			{"counters", tAmounts, none},
		},
		order:     "(ledger, gen, uid, restarts)",
		partition: "(ledger, gen)",
		shard:     "uid",
	}
}

// stepsTable holds the steps that are over. Numbers of jobs rise nearly with the
// order of the rows, so that ix_job finds the steps of a job beside its run.
//
//muster:table one entry for each column
func stepsTable() tableDef {
	return tableDef{
		name:    "steps",
		comment: "one row for each step that is over; batch is the script itself",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, codecWord},
			{"seq", "UInt64", codecSeq},
			{"uid", "UInt64", codecEven},
			{"restarts", "UInt32", codecNumber},
			{"attempt", "UInt32", codecNumber},
			{"job_id", "UInt32", codecEven},
			{"step", "Int32", codecNumber},
			{"name", tWord, codecWord},
			{"who", tWord, codecWord},
			{"state", tWord, codecWord},
			{"exit_code", "Int32", codecNumber},
			{"exit_signal", "Int32", codecNumber},
			{"start", tTime, codecNear},
			{"end", tTime, codecNear},
			{"tasks", "UInt32", codecNumber},
			{"node_list", "String", codecWord},
			{"alloc_cpus", "Int64", codecNumber},
			{"alloc_mem_mib", "Int64", codecNumber},
			{"alloc_nodes", "Int64", codecNumber},
			{"alloc_gpus", "Int64", codecNumber},
			{"alloc_billing", "Int64", codecNumber},
			{"alloc_tres", tAmounts, none},
			{"measured", "Bool", none},
			{"user_cpu_us", "Int64", codecSpan},
			{"system_cpu_us", "Int64", codecSpan},
			{"peak_rss", tNullInt, codecNumber},
			{"mem_mib_s", "Int64", codecNumber},
			{"read_bytes", "Int64", codecNumber},
			{"write_bytes", "Int64", codecNumber},
			{"energy_mj", tNullInt, codecNumber},
			{"maj_faults", "Int64", codecNumber},
			derivedColumn("user", tWord, unpackedSQL("who", 1)),
			derivedColumn("account", tWord, unpackedSQL("who", 2)),
			{"peak_vm", tNullInt, codecNumber},
			{"cpu_khz", "UInt32", codecNumber},
			{"container", tWord, codecWord},
			{"counters", tAmounts, none},
			{"task_sum", tAmounts, none},
			{"task_min", tAmounts, none},
			{"task_max", tAmounts, none},
			{"task_min_at", tLines, codecWord},
			{"task_max_at", tLines, codecWord},
		},
		order:     "(ledger, uid, restarts, step)",
		partition: "toYYYYMM(end)",
		shard:     "uid",
		tokens:    true,
		indexes: []string{
			"ix_end end" + minmaxIndex,
			"ix_job job_id" + minmaxIndex,
		},
		wide: widePart,
	}
}

// jobNodesTable holds what each run held and used on each of its nodes.
//
//muster:table one entry for each column
func jobNodesTable() tableDef {
	return tableDef{
		name:    "job_nodes",
		comment: "what each run held and used on each of its nodes",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, codecWord},
			{"seq", "UInt64", codecSeq},
			{"uid", "UInt64", codecEven},
			{"restarts", "UInt32", codecNumber},
			{"attempt", "UInt32", codecNumber},
			{"job_id", "UInt32", codecEven},
			{"who", tWord, codecWord},
			{"node", tWord, codecWord},
			{"from", tTime, codecNear},
			{"to", tTime, codecNear},
			{"end_gap_us", "Int64", codecSpan},
			{"cpus", "Int64", codecNumber},
			{"mem_mib", "Int64", codecNumber},
			{"gpus", "Int64", codecNumber},
			{"tasks", "UInt32", codecNumber},
			{"lost", "Bool", none},
			{"measured", "Bool", none},
			{"user_cpu_us", "Int64", codecSpan},
			{"system_cpu_us", "Int64", codecSpan},
			{"peak_rss", tNullInt, codecNumber},
			{"mem_mib_s", "Int64", codecNumber},
			{"read_bytes", "Int64", codecNumber},
			{"write_bytes", "Int64", codecNumber},
			{"energy_mj", tNullInt, codecNumber},
			{"maj_faults", "Int64", codecNumber},
			derivedColumn("user", tWord, unpackedSQL("who", 1)),
			derivedColumn("account", tWord, unpackedSQL("who", 2)),
			derivedColumn("partition", tWord, unpackedSQL("who", 3)),
			derivedColumn("qos", tWord, unpackedSQL("who", 4)),
			derivedColumn("end", tTime, instantBehind("to", "end_gap_us")),
			{"counters", tAmounts, none},
		},
		order:     "(ledger, uid, restarts, node)",
		partition: "toYYYYMM(to)",
		shard:     "uid",
		tokens:    true,
		indexes: []string{
			"ix_to to" + minmaxIndex,
			"ix_from from" + minmaxIndex,
		},
		wide: widePart,
	}
}

// jobGpusTable holds which run held which device. The method is how its use was
// separated from that of others, share its part of the device in thousandths.
//
//muster:table one entry for each column
func jobGpusTable() tableDef {
	return tableDef{
		name:    "job_gpus",
		comment: "which run held which device, from when to when",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, codecWord},
			{"seq", "UInt64", codecRepeat},
			{"uid", "UInt64", codecRepeat},
			{"restarts", "UInt32", codecNumber},
			{"attempt", "UInt32", codecNumber},
			{"job_id", "UInt32", codecEven},
			{"who", tWord, codecWord},
			{"device", tWord, codecWord},
			{"from", tTime, codecAgain},
			{"to", tTime, codecAgain},
			{"end_gap_us", "Int64", codecSpan},
			{"measured", "Bool", none},
			{"no_process_us", "Int64", codecAgain},
			{"idle_us", "Int64", codecAgain},
			{"rest_us", "Int64", codecSpan},
			{"util_us", "Int64", codecAgain},
			{"sm_us", "Int64", codecAgain},
			{"tensor_us", "Int64", codecAgain},
			{"peak_mem", "Int64", codecNumber},
			{"mem_mib_s", "Int64", codecNumber},
			{"energy_mj", "Int64", codecNumber},
			{"throttled_us", "Int64", codecAgain},
			{"xids", "Int64", codecNumber},
			derivedColumn("user", tWord, unpackedSQL("who", 1)),
			derivedColumn("account", tWord, unpackedSQL("who", 2)),
			derivedColumn("partition", tWord, unpackedSQL("who", 3)),
			derivedColumn("qos", tWord, unpackedSQL("who", 4)),
			derivedColumn("node", tWord, unpackedSQL("device", 2)),
			derivedColumn("end", tTime, instantBehind("to", "end_gap_us")),
			derivedColumn("gpu_uuid", tWord, unpackedSQL("device", 1)),
			derivedColumn("gpu_index", "UInt32", "toUInt32OrZero("+unpackedSQL("device", 3)+")"),
			derivedColumn("gpu_type", tWord, unpackedSQL("device", 4)),
			derivedColumn("busy_us", "Int64", "if(measured, "+microsSQL("to")+" - "+microsSQL("from")+", 0) - no_process_us - idle_us - rest_us"),
			{"method", tWord, codecWord},
			{"share", "Int64", codecNumber},
		},
		order:     "(ledger, uid, restarts, device)",
		partition: "toYYYYMM(to)",
		shard:     "uid",
		tokens:    true,
		indexes: []string{
			"ix_to to" + minmaxIndex,
			"ix_from from" + minmaxIndex,
		},
		wide: widePart,
	}
}

// nodeStatesTable holds what applies to a node from an instant on.
//
//muster:table one entry for each column
func nodeStatesTable() tableDef {
	return tableDef{
		name:    "node_states",
		comment: "what holds for a node from an instant on; said again at each midnight UTC (restated)",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, none},
			{"seq", "UInt64", codecRepeat},
			{"at", tTime, codecEven},
			{"node", tWord, none},
			{"state", tWord, none},
			{"class", tWord, none},
			{"restated", "Bool", none},
			{"cpus", "Int64", codecText},
			{"mem_mib", "Int64", codecText},
			{"gpus", "Int64", codecText},
			{"tres", tAmounts, none},
			{"partitions", tLines, codecText},
			{"reason", tWord, none},
			{"by", tWord, none},
			{"by_uid", "UInt32", codecText},
		},
		order:     "(ledger, at, node, seq)",
		partition: "toYYYYMM(at)",
		shard:     "cityHash64(node)",
		tokens:    true,
	}
}

// pendingReasonsTable holds why runs wait.
//
//muster:table one entry for each column
func pendingReasonsTable() tableDef {
	return tableDef{
		name:    "pending_reasons",
		comment: "why a run waits from an instant on, until its next reason, start or end",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, none},
			{"seq", "UInt64", codecRepeat},
			{"uid", "UInt64", codecRepeat},
			{"restarts", "UInt32", codecText},
			{"job_id", "UInt32", codecRepeat},
			{"count", "UInt64", codecText},
			{"user", tWord, none},
			{"account", tWord, none},
			{"partition", tWord, none},
			{"qos", tWord, none},
			{"at", tTime, codecEven},
			{"code", tWord, none},
			{"tres", tWord, none},
			{"limit", "Int64", codecText},
			{"in_use", "Int64", codecText},
			{"asked", "Int64", codecText},
			{"subject", tWord, none},
			{"blocker", "UInt64", codecText},
			{"detail", "String", codecText},
		},
		order:     "(ledger, uid, restarts, at, seq)",
		partition: "toYYYYMM(at)",
		shard:     "uid",
		tokens:    true,
	}
}

// associationsTable holds associations as they were created and changed.
//
//muster:table one entry for each column
func associationsTable() tableDef {
	return tableDef{
		name:    "associations",
		comment: "associations as they were made and changed; the newest row of an id holds",
		columns: []columnDef{
			{"ledger", "UUID", codecText},
			{"cluster", tWord, none},
			{"seq", "UInt64", codecRepeat},
			{"at", tTime, codecEven},
			{"id", "UInt32", codecText},
			{"account", tWord, none},
			{"user", tWord, none},
			{"partition", tWord, none},
			{"parent", "UInt32", codecText},
			{"shares", "Int64", codecText},
			{"removed", "Bool", none},
		},
		order:  "(ledger, id, seq)",
		tokens: true,
	}
}

// ingestTable holds the position of the writer. Its row of phase done also names
// the builds of the rollups that count, so that both become visible at once.
//
//muster:table one entry for each column
func ingestTable() tableDef {
	return tableDef{
		name:    "ingest",
		comment: "where the writer is: one row for each phase, newest n wins",
		engine:  replacing,
		version: "n",
		columns: []columnDef{
			{"ledger", "UUID", none},
			{"phase", tWord, none},
			{"n", "UInt64", none},
			{"writer", "UUID", none},
			{"first", "UInt64", none},
			{"last", "UInt64", none},
			{"at", tTime, none},
			{"gen", "UInt32", none},
			{"written", "DateTime64(6, 'UTC') DEFAULT now64(6)", none},
			{"rolled_build", "UInt32", none},
			{"rolled_until", tTime, none},
			{"rolled_seq", "UInt64", none},
			{"shift", "UInt64", none},
		},
		order: "(ledger, phase)",
	}
}

// historiesTable says which part of which history of a ledger the store has
// where. The numbers of events are used again by a ledger that was restored from
// an older copy, so that positions in the store are then above them.
//
//muster:table one entry for each column
func historiesTable() tableDef {
	return tableDef{
		name:    "histories",
		comment: "which events stand from a position on: those of an epoch of the ledger, from an event on; 0 = none",
		engine:  replacing,
		version: "written",
		columns: []columnDef{
			{"ledger", "UUID", none},
			{"at", "UInt64", none},
			{"epoch", "UInt64", none},
			{"event", "UInt64", none},
			{"written", "DateTime64(6, 'UTC') DEFAULT now64(6)", none},
		},
		order: "(ledger, at)",
	}
}

// tallySnapshotsTable holds the counting state.
//
//muster:table one entry for each column
func tallySnapshotsTable() tableDef {
	return tableDef{
		name:    "tally_snapshots",
		comment: "the counting state, from which the writer resumes",
		columns: []columnDef{
			{"ledger", "UUID", none},
			{"seq", "UInt64", none},
			{"part", "UInt32", none},
			{"parts", "UInt32", none},
			{"data", "String", codecWord},
		},
		order: "(ledger, seq, part)",
	}
}

// rollupTables are the tables of what is added up. Amounts are times microseconds,
// exact; builds that bring more for the same day stand beside each other.
//
//muster:table one entry for each table
func rollupTables() []tableDef {
	big := func(names ...string) (columns []columnDef) {
		for _, n := range names {
			columns = append(columns, columnDef{n, "Int128", codecText})
		}
		return columns
	}
	whose := []columnDef{
		{"ledger", "UUID", codecText},
		{"cluster", tWord, codecWord},
		{"build", "UInt32", codecNumber},
	}
	word := func(names ...string) (columns []columnDef) {
		for _, n := range names {
			columns = append(columns, columnDef{n, tWord, codecWord})
		}
		return columns
	}
	return []tableDef{
		{
			name:    "rollup_days",
			comment: "what runs that are over held on each UTC day, by who held it and how many CPUs the run had",
			columns: joinColumns(
				whose,
				[]columnDef{{"day", "Date", "Delta, ZSTD(1)"}},
				word("account", "user", "partition", "qos", "wckey"),
				[]columnDef{
					{"cpus", "Int64", codecNumber},
					{"began", "UInt64", codecNumber},
					{"carried", "UInt64", codecNumber},
				},
				big("cpu_us", "mem_mib_us", "node_us", "gpu_us", "billing_us"),
				[]columnDef{{"energy_mj", "Int64", codecNumber}},
			),
			order:     "(ledger, day, account, user, partition, qos, wckey, cpus, build)",
			partition: "toYYYYMM(day)",
			shard:     "cityHash64(account)",
		},
		{
			name:    "rollup_quarters",
			comment: "what runs that are over held, and what was waited for (waiting), in each quarter of an hour",
			columns: joinColumns(
				whose,
				[]columnDef{{"at", "DateTime('UTC')", "Delta, ZSTD(1)"}},
				word("account", "partition", "qos"),
				[]columnDef{{"waiting", "Bool", codecText}},
				big("cpu_us", "mem_mib_us", "node_us", "gpu_us", "billing_us"),
			),
			order:     "(ledger, at, account, partition, qos, waiting, build)",
			partition: "toYYYYMM(at)",
			shard:     "cityHash64(account)",
		},
	}
}

// purgesDef is the record of purges: for each, one row before it, one when its
// rows are gone, and one when an archive brought them back.
func purgesDef() tableDef {
	return tableDef{
		name:    "purges",
		comment: "what was purged: how many rows, and their sums, which count as if they were there when totals are compared",
		columns: []columnDef{
			{"ledger", "UUID", ""},
			{"cluster", tWord, ""},
			{"id", "UUID", ""},
			{"phase", tWord, ""},
			{"at", "DateTime64(6, 'UTC') DEFAULT now64(6)", ""},
			{"month", tWord, ""},
			{"table", tWord, ""},
			{"upto", "UInt64", ""},
			{"sums", "Array(UInt64)", codecText},
			{"rolled", "Array(String)", codecText},
		},
		order: "(ledger, month, table, at)",
	}
}

const usageTable = "usage_samples"

// usageDef is the table of what runs use over time. It is sorted by run, node
// and time: it is asked for one job, and what differs between neighbours is
// small. As with GPUs, a day is a partition, and a reading that was sent twice
// is one row after the next merge.
func usageDef() tableDef {
	return tableDef{
		name:     usageTable,
		comment:  "readings of what runs use of CPU and memory on a node",
		engine:   replacing,
		settings: "ttl_only_drop_parts = 1, ",
		columns: joinColumns(
			[]columnDef{
				{"ledger", "UUID", codecText},
				{"cluster", tWord, ""},
				{"uid", "UInt64", codecRepeat},
				{"attempt", "UInt32", codecText},
			},
			wordColumns("node"),
			[]columnDef{
				{"step", "Int32", codecText},
				{"at", "DateTime('UTC')", "DoubleDelta, ZSTD(1)"},
				{"job_id", "UInt32", codecRepeat},
			},
			wordColumns("user", "account", "partition"),
			[]columnDef{
				{"seconds", "UInt16", codecText},
				{"cpu", "Nullable(UInt32)", "Delta, ZSTD(1)"},
				{"rss_kib", "UInt64", "Delta, ZSTD(1)"},
			},
		),
		order:     "(ledger, uid, attempt, node, step, at)",
		partition: "toYYYYMMDD(at)",
		shard:     "cityHash64(node)",
	}
}
