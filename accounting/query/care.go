package query

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Month is a month in UTC, as people write it: 2026-03.
type Month struct{ From, Until int64 } // microseconds

// monthOf makes a month of a year and the months since January, of which
// there may be any number.
func monthOf(year, month int64) Month {
	year, month = year+month/12, month%12
	return Month{firstOf(year, month) * dayUS, firstOf(year+(month+1)/12, (month+1)%12) * dayUS}
}

// firstOf counts the days from 1970 to the first of a month; 0 is January.
// Years begin in March here, so that a leap day is the last of its year.
func firstOf(year, month int64) int64 {
	month -= 2
	if month < 0 {
		month, year = month+12, year-1
	}
	return year*365 + year/4 - year/100 + year/400 + (153*month+2)/5 - 719_468
}

// ParseMonth reads 2026-03.
func ParseMonth(text string) (Month, error) {
	bad := fmt.Errorf("%q is not a month: it is written like 2026-03", text)
	y, m, ok := strings.Cut(text, "-")
	year, err1 := strconv.ParseUint(y, 10, 16)
	month, err2 := strconv.ParseUint(m, 10, 8)
	if !ok || err1 != nil || err2 != nil {
		return Month{}, bad
	}
	if len(y) != 4 || len(m) != 2 {
		return Month{}, bad
	}
	if year < 1970 || month < 1 || month > 12 {
		return Month{}, bad
	}
	return monthOf(int64(year), int64(month)-1), nil
}

// MonthOf is the month of an instant in microseconds.
func MonthOf(us int64) Month {
	year := 1970 + us/(366*dayUS) // or before it
	n := int64(0)
	for monthOf(year, n).Until <= us {
		n++
	}
	return monthOf(year, n)
}

// String is the month as ParseMonth reads it.
func (m Month) String() string {
	year, n := 1970+m.From/(366*dayUS), int64(0)
	for monthOf(year, n).From < m.From {
		n++
	}
	return fmt.Sprintf("%04d-%02d", year+n/12, n%12+1)
}

// Aged is a table whose rows are archived and purged by month.
type Aged struct {
	Name   string
	Column string // the instant by which a row belongs to a month
	Only   string // besides: which rows; "" = all
	After  uint64 // only rows that came behind this event
}

// AgedTables are the tables that grow with the number of jobs. Events stay
// where they are about no job: who is who follows from them.
//
//muster:table one entry for each table
func AgedTables() []Aged {
	return []Aged{{Name: "jobs", Column: "end"}, {Name: "steps", Column: "end"}, {Name: "job_nodes", Column: "to"}, {Name: "job_gpus", Column: "to"}, {Name: "pending_reasons", Column: "at"},
		{Name: "events", Column: "at", Only: "uid != 0"}}
}

// Rows is the condition on a table's rows of a stretch of time, as text without
// parameters: it also stands in statements that take none.
func (a Aged) Rows(scope Scope, from, until int64) string {
	at := func(us int64) string { return fmt.Sprintf("fromUnixTimestamp64Micro(toInt64(%d), 'UTC')", us) }
	sql := fmt.Sprintf(
		"ledger = toUUID('%s') AND seq <= %d AND `%s` >= %s AND `%s` < %s",
		uuidText(scope.Ledger),
		scope.Seq,
		a.Column,
		at(from),
		a.Column,
		at(until),
	)
	if a.After > 0 {
		sql += fmt.Sprintf(" AND seq > %d", a.After)
	}
	if a.Only != "" {
		sql += " AND " + a.Only
	}
	return sql
}

// Sums asks for the figures of SumTables over the rows of a month.
func (a Aged) Sums(scope Scope, month Month) Query {
	var list []string
	for _, table := range SumTables() {
		if table.Name == a.Name {
			for _, sum := range table.Sums {
				list = append(list, "toUInt64("+sum.SQL+")")
			}
		}
	}
	b := &builder{scope: scope}
	return b.buildQuery("SELECT [" + strings.Join(list, ", ") + "]\nFROM " +
		b.qualifyTable(a.Name) + "\nWHERE " + a.Rows(scope, month.From, month.Until))
}

// RolledSums asks for what the runs of a month gave to the rollups, in the
// order of RolledCheck, as texts.
func RolledSums(scope Scope, month Month) Query {
	b := &builder{scope: scope}
	return b.buildQuery("SELECT [" + strings.Join(rolledSums(), ", ") + "] FROM " +
		b.qualifyTable("jobs") + " WHERE " + AgedTables()[0].Rows(scope, month.From, month.Until))
}

// Purges asks for what was purged and not brought back: id, month (text), table,
// done (Bool), sums (UInt64s), rolled (texts).
func Purges(scope Scope) Query {
	b := newBuilder(scope)
	b.params = b.params[:1]
	return b.buildQuery(
		"SELECT toString(id), toString(any(month)), toString(any(`table`)), countIf(phase = 'done') > 0, any(sums), any(rolled)\nFROM " +
			b.qualifyTable(
				"purges",
			) +
			"\nWHERE ledger = {ledger:UUID}\nGROUP BY id\nHAVING countIf(phase = 'restored') = 0\nORDER BY any(at)",
	)
}

// OldestMonth asks for the month of a table's oldest row: the number of rows, and
// microseconds.
func (a Aged) OldestMonth(scope Scope) Query {
	b := &builder{scope: scope}
	return b.buildQuery("SELECT count(), toUnixTimestamp64Micro(min(`" + a.Column + "`)) FROM " +
		b.qualifyTable(a.Name) + " WHERE " +
		a.Rows(scope, 0, int64(scope.Now)/int64(spec.Microsecond)))
}
