package clickhouse

import "slices"

// stepNumbers is the index that finds steps by the number of their job, so that
// they can be asked for beside their run and not behind it. Numbers rise with
// the order of the rows, nearly.
const stepNumbers = "ix_job job_id" + stdMinmax

// schemaEleven lists every table as version 11 makes it: steps are found by the
// number of their job.
func schemaEleven() []tableDef {
	out := schemaTen()
	for i := range out {
		if out[i].name == "steps" {
			out[i].indexes = append(slices.Clip(out[i].indexes), stepNumbers)
		}
	}
	return out
}

// toEleven renders the statements of version 11. The index of the rows that are
// there is made by the store in its own time; until then they are read without.
func toEleven(db string, l Layout) []string {
	on, place := "", ""
	if l.Cluster != "" {
		on, place = " ON CLUSTER "+quoteName(l.Cluster), localSuffix
	}
	alter := "ALTER TABLE " + quoteName(db) + ".steps" + place + on
	return []string{alter + " ADD INDEX IF NOT EXISTS " + stepNumbers, alter + " MATERIALIZE INDEX ix_job"}
}
