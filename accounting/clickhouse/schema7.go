package clickhouse

import "slices"

// schemaSeven lists every table as version 7 makes it: a run knows of which
// heterogeneous job it is a component.
func schemaSeven() []tableDef {
	out := schemaSix()
	for i := range out {
		if slices.Contains(hetTables(), out[i].name) {
			out[i].columns = join(out[i].columns, hetColumns())
		}
	}
	return out
}

// hetTables are the tables of runs.
func hetTables() []string { return []string{"jobs", "live"} }

// hetColumns say of which heterogeneous job a run is a component. They are 0
// in rows of other jobs and in those stored before there were such columns.
func hetColumns() []columnDef {
	return []columnDef{{"het_job_id", "UInt32", codecNumber}, {"het_offset", "UInt32", codecNumber}, {"het_size", "UInt32", codecNumber}}
}

// toSeven renders the statements of version 7.
func toSeven(db string, l Layout) []string {
	var out []string
	for _, table := range hetTables() {
		out = append(out, addColumns(db, l, table, hetColumns())...)
	}
	return out
}

// addColumns renders the statements that give a table that is sharded more
// columns.
func addColumns(db string, l Layout, table string, columns []columnDef) []string {
	on, places := "", []string{""}
	if l.Cluster != "" {
		on, places = " ON CLUSTER "+quoteName(l.Cluster), []string{localSuffix, ""}
	}
	var out []string
	for _, place := range places {
		for _, c := range columns {
			sql := "ALTER TABLE " + quoteName(db) + "." + table + place + on + " ADD COLUMN IF NOT EXISTS " + quoteName(c.name) + " " + c.typ
			if place != "" || l.Cluster == "" {
				sql += " CODEC(" + c.codec + ")"
			}
			out = append(out, sql)
		}
	}
	return out
}
