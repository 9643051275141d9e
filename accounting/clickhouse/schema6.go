package clickhouse

// schemaSix lists every table as version 6 makes it: with the record of what
// was purged.
func schemaSix() []tableDef { return append(schemaFive(), purgesDef()) }

// purgesDef is the record of purges: for each, one row before it, one when its
// rows are gone, and one when an archive brought them back.
func purgesDef() tableDef {
	return tableDef{name: "purges", comment: "what was purged: how many rows, and their sums, which count as if they were there when totals are compared",
		columns: []columnDef{{"ledger", "UUID", ""}, {"cluster", tWord, ""}, {"id", "UUID", ""}, {"phase", tWord, ""}, {"at", "DateTime64(6, 'UTC') DEFAULT now64(6)", ""},
			{"month", tWord, ""}, {"table", tWord, ""}, {"upto", "UInt64", ""}, {"sums", "Array(UInt64)", cText}, {"rolled", "Array(String)", cText}},
		order: "(ledger, month, table, at)"}
}
