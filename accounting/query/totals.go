package query

import "strings"

// Finding is one thing that was looked at.
type Finding struct {
	Name, Detail string
	Bad          bool
}

// Sum is one figure over a table by which two countings of the same events are
// compared. Sums are of 64 bits and wrap.
type Sum struct{ Name, SQL string }

// SumTable is a table with its figures, the number of its rows first.
type SumTable struct {
	Name string
	Sums []Sum
}

// SumTables lists what is compared. Package daemon has the same figures over
// the rows that a tally makes.
//
//muster:table one entry for each table
func SumTables() []SumTable {
	rows := Sum{"rows", "count()"}
	of := func(name, sql string) Sum { return Sum{name, "sum(toUInt64(" + sql + "))"} }
	span := func(a, b string) string {
		return "ifNull(toUnixTimestamp64Micro(" + b + ") - toUnixTimestamp64Micro(" + a + "), 0)"
	}
	cpu := "user_cpu_us + system_cpu_us"
	return []SumTable{
		{"events", []Sum{rows, of("jobs", "uid"), of("text", "length(body)")}},
		{"jobs", []Sum{rows, of("jobs", "uid"), of("tasks", "count"), of("time", span("start", "end")), {"CPU time allocated", "sum(toUInt64(alloc_cpus) * toUInt64(" + span("start", "end") + "))"},
			{"GPU time allocated", "sum(toUInt64(alloc_gpus) * toUInt64(" + span("start", "end") + "))"}, of("CPU time used", cpu), of("failed", "exit_code != 0")}},
		{"steps", []Sum{rows, of("jobs", "uid"), of("time", span("start", "end")), of("CPU time used", cpu)}},
		{"job_nodes", []Sum{rows, of("jobs", "uid"), {"CPU time held", "sum(toUInt64(cpus) * toUInt64(" + span("from", "to") + "))"}, of("CPU time used", cpu)}},
		{"job_gpus", []Sum{rows, of("jobs", "uid"), of("time held", span("from", "to")), of("utilisation", "util_us")}},
		{"node_states", []Sum{rows, of("CPUs", "cpus"), of("instants", "toUnixTimestamp64Micro(at)")}},
		{"pending_reasons", []Sum{rows, of("jobs", "uid"), of("instants", "toUnixTimestamp64Micro(at)")}},
		{"associations", []Sum{rows, of("ids", "id")}},
		{"live", []Sum{rows, of("jobs", "uid")}},
	}
}

// Totals asks for the figures of a table.
func Totals(scope Scope, table SumTable) Query {
	b := newBuilder(scope)
	list := make([]string, len(table.Sums))
	for i, sum := range table.Sums {
		list[i] = sum.SQL
	}
	from, where := b.qualifyTable(table.Name), b.knownEvents()
	if table.Name == "live" {
		from, where = from+" FINAL", open
	}
	return b.buildQuery("SELECT [" + strings.Join(list, ", ") + "]\nFROM " + from + "\nWHERE " +
		where)
}
