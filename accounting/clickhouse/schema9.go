package clickhouse

// schemaNine lists every table as version 9 makes it: what a run used of a
// device says how it was told apart from what others used of it.
func schemaNine() []tableDef {
	out := schemaEight()
	for i := range out {
		if out[i].name == "job_gpus" {
			out[i].columns = join(out[i].columns, methodColumns())
		}
	}
	return out
}

// methodColumns are the method and, in thousandths, the part of the device
// that the run had. They are empty and 0 in rows without a measurement, and in
// those stored before there were such columns.
func methodColumns() []columnDef {
	return []columnDef{{"method", tWord, codecWord}, {"share", "Int64", codecNumber}}
}

// toNine renders the statements of version 9.
func toNine(db string, l Layout) []string { return addColumns(db, l, "job_gpus", methodColumns()) }
