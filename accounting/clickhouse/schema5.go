package clickhouse

// schemaFive lists every table as version 5 makes it: with what is added up
// ahead of the questions. A build of the rollups adds what ended since the one
// before it; the row of ingest that says how far the runs are stored also says
// which builds count, so that both become visible at once.
func schemaFive() []tableDef {
	out := schemaFour()
	for i := range out {
		if out[i].name == "ingest" {
			out[i].columns = join(out[i].columns, rolledColumns())
		}
	}
	return append(out, rollups()...)
}

// rolledColumns are those of ingest that say what the rollups have.
func rolledColumns() []columnDef {
	return []columnDef{{"rolled_build", "UInt32", ""}, {"rolled_until", tTime, ""}, {"rolled_seq", "UInt64", ""}}
}

// rollups are the tables of what is added up. Amounts are times microseconds,
// exact; builds that bring more for the same day stand beside each other.
//
//muster:table one entry for each table
func rollups() []tableDef {
	big := func(names ...string) (out []columnDef) {
		for _, n := range names {
			out = append(out, columnDef{n, "Int128", cText})
		}
		return out
	}
	whose := []columnDef{{"ledger", "UUID", cText}, {"cluster", tWord, codecWord}, {"build", "UInt32", codecNumber}}
	word := func(names ...string) (out []columnDef) {
		for _, n := range names {
			out = append(out, columnDef{n, tWord, codecWord})
		}
		return out
	}
	return []tableDef{
		{name: "rollup_days", comment: "what runs that are over held on each UTC day, by who held it and how many CPUs the run had",
			columns: join(whose, []columnDef{{"day", "Date", "Delta, ZSTD(1)"}}, word("account", "user", "partition", "qos", "wckey"),
				[]columnDef{{"cpus", "Int64", codecNumber}, {"began", "UInt64", codecNumber}, {"carried", "UInt64", codecNumber}},
				big("cpu_us", "mem_mib_us", "node_us", "gpu_us", "billing_us"), []columnDef{{"energy_mj", "Int64", codecNumber}}),
			order: "(ledger, day, account, user, partition, qos, wckey, cpus, build)", partition: "toYYYYMM(day)", shard: "cityHash64(account)"},
		{name: "rollup_quarters", comment: "what runs that are over held, and what was waited for (waiting), in each quarter of an hour",
			columns: join(whose, []columnDef{{"at", "DateTime('UTC')", "Delta, ZSTD(1)"}}, word("account", "partition", "qos"), []columnDef{{"waiting", "Bool", cText}},
				big("cpu_us", "mem_mib_us", "node_us", "gpu_us", "billing_us")),
			order: "(ledger, at, account, partition, qos, waiting, build)", partition: "toYYYYMM(at)", shard: "cityHash64(account)"},
	}
}

// toFive renders the statements of version 5.
func toFive(db string, l Layout) []string {
	on := ""
	if l.Cluster != "" {
		on = " ON CLUSTER " + quoteName(l.Cluster)
	}
	var out []string
	for _, c := range rolledColumns() {
		out = append(out, "ALTER TABLE "+quoteName(db)+".ingest"+on+" ADD COLUMN IF NOT EXISTS "+quoteName(c.name)+" "+c.typ)
	}
	for _, t := range rollups() {
		out = append(out, t.create(db, l)...)
	}
	return out
}
