package clickhouse

// schemaTen lists every table as version 10 makes it: a run has what
// administrators, users and the controller say of it beside its comment, a step
// its address space and the frequency of its CPUs.
func schemaTen() []tableDef {
	out := schemaNine()
	for i := range out {
		out[i].columns = join(out[i].columns, saidColumns()[out[i].name])
	}
	return out
}

// saidColumns are the new columns by their table. They are empty, NULL and 0
// in rows that were stored before there were such columns.
func saidColumns() map[string][]columnDef {
	run := []columnDef{{"admin_comment", "String", codecWord}, {"system_comment", "String", codecWord}, {"extra", "String", codecWord}, {"mcs_label", tWord, codecWord},
		{"failed_node", tWord, codecWord}, {"segment", "UInt32", codecNumber}}
	return map[string][]columnDef{"jobs": run, "live": run, "steps": {{"peak_vm", "Nullable(Int64)", codecNumber}, {"cpu_khz", "UInt32", codecNumber}}}
}

// toTen renders the statements of version 10.
func toTen(db string, l Layout) []string {
	var out []string
	for _, table := range [...]string{"jobs", "live", "steps"} {
		out = append(out, addColumns(db, l, table, saidColumns()[table])...)
	}
	return out
}
