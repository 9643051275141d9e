package clickhouse

// schemaEight lists every table as version 8 makes it: with what jobs use over
// time.
func schemaEight() []tableDef { return append(schemaSeven(), usageDef()) }

const usageTable = "usage_samples"

// usageDef is the table of what runs use over time. It is sorted by run, node
// and time: it is asked for one job, and what differs between neighbours is
// small. As with GPUs, a day is a partition, and a reading that was sent twice
// is one row after the next merge.
func usageDef() tableDef {
	return tableDef{name: usageTable, comment: "readings of what runs use of CPU and memory on a node", engine: replacing, settings: "ttl_only_drop_parts = 1, ",
		columns: join([]columnDef{{"ledger", "UUID", cText}, {"cluster", tWord, ""}, {"uid", "UInt64", codecRepeat}, {"attempt", "UInt32", cText}},
			words("node"), []columnDef{{"step", "Int32", cText}, {"at", "DateTime('UTC')", "DoubleDelta, ZSTD(1)"}, {"job_id", "UInt32", codecRepeat}},
			words("user", "account", "partition"), []columnDef{{"seconds", "UInt16", cText}, {"cpu", "Nullable(UInt32)", "Delta, ZSTD(1)"}, {"rss_kib", "UInt64", "Delta, ZSTD(1)"}}),
		order: "(ledger, uid, attempt, node, step, at)", partition: "toYYYYMMDD(at)", shard: "cityHash64(node)"}
}
