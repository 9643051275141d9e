// Package query writes the SQL of every report: sacct, sreport and the KPIs.
//
// What a user typed is never part of the text; it is bound as a parameter.
// The text differs only in which conditions there are. Every query takes the
// store's position in its Scope and asks for rows at or below it, so it sees
// whole batches of the ledger only, and each run exactly once (see package
// clickhouse).
package query

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// Query is SQL with its parameters.
type Query struct {
	SQL    string
	Params []Param
}

// Param is a value for {Name:Type} in the text. Value is a string, bool,
// int64, uint64, uint32, []string or []uint64.
type Param struct {
	Name  string
	Value any
}

// Text is the query with its parameters filled in, for people to read and run.
func (q Query) Text() string {
	pairs := make([]string, 0, 2*len(q.Params))
	for _, param := range q.Params {
		at := strings.Index(q.SQL, "{"+param.Name+":")
		if at < 0 {
			continue
		}
		end := strings.IndexByte(q.SQL[at:], '}')
		place := q.SQL[at : at+end+1]
		typ := strings.TrimSuffix(strings.TrimPrefix(place, "{"+param.Name+":"), "}")
		pairs = append(pairs, place, quoteLiteral(param.Value, typ))
	}
	return strings.NewReplacer(pairs...).Replace(q.SQL)
}

// quoteLiteral writes a value as SQL.
func quoteLiteral(value any, typ string) string {
	text := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	switch v := value.(type) {
	case string:
		if typ == "UUID" {
			return "toUUID(" + text(v) + ")"
		}
		return text(v)
	case []string:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = text(v[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case []uint64:
		return strings.ReplaceAll(fmt.Sprint(v), " ", ", ")
	case []uint32:
		return strings.ReplaceAll(fmt.Sprint(v), " ", ", ")
	}
	return fmt.Sprint(value)
}

// Limits bound a question of a user.
type Limits struct {
	Seconds int   // of time
	Memory  int64 // bytes
	Rows    int64 // of the answer
	Threads int
}

// Scope is what part of a store a query is about.
type Scope struct {
	Database string   // with the tables
	Ledger   [16]byte // its UUID
	Cluster  string   // its name
	Seq      uint64   // the store's position
	Shift    uint64   // what that has more than the number of the event there
	Gen      uint32   // and its generation of live runs
	Now      spec.Instant
	Rolled   Rolled // what is added up by day and quarter of an hour
	Lost     []Gap  // positions whose events the ledger has lost
}

// Event is the number of the last event that the store has.
func (s Scope) Event() uint64 { return s.Seq - s.Shift }

// Gap is a range of positions, both included.
type Gap struct{ From, To uint64 }

// Rolled is what the rollups have: every run that ended before Until and whose
// row came with event Seq or before, each once, in the builds up to Build. The
// rest is added up from the runs when it is asked for.
type Rolled struct {
	Build uint32 // 0 = nothing is added up
	Until int64  // a midnight UTC, in microseconds
	Seq   uint64
}

// builder collects a query.
type builder struct {
	scope  Scope
	params []Param
	rates  *kpi.Rates // of stored views; nil = no prices
}

func newBuilder(scope Scope) *builder {
	return &builder{
		scope:  scope,
		params: []Param{{"ledger", uuidText(scope.Ledger)}, {"seq", scope.Seq}, {"gen", scope.Gen}},
	}
}

// uuidText writes a UUID in the usual form.
func uuidText(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// bindValue adds a parameter and gives its place in the text.
func (b *builder) bindValue(name, typ string, value any) string {
	b.params = append(b.params, Param{name, value})
	return "{" + name + ":" + typ + "}"
}

// bindMicros binds an instant, as microseconds.
func (b *builder) bindMicros(name string, at spec.Instant) string {
	return b.bindValue(name, "Int64", int64(at)/int64(spec.Microsecond))
}

func (b *builder) qualifyTable(name string) string {
	return "`" + strings.ReplaceAll(b.scope.Database, "`", "") + "`." + name
}

// stored is the condition on tables of rows that never change.
const stored = "ledger = {ledger:UUID} AND seq <= {seq:UInt64}"

// knownEvents is stored without what the ledger has lost: what is so now follows from
// the ledger's own events. Runs of a lost history did run, so stored has them.
func (b *builder) knownEvents() string {
	text := stored
	for _, gap := range b.scope.Lost {
		text += fmt.Sprintf(" AND NOT (seq >= %d AND seq <= %d)", gap.From, gap.To)
	}
	return text
}

// open is the condition on live runs: those that are over count until the
// position covers them, for only then are they in jobs.
const open = "ledger = {ledger:UUID} AND gen = {gen:UInt32} AND (NOT final OR seq > {seq:UInt64})"

// allRuns is a subquery over every run: columns are expressions over the columns
// that jobs and live have in common, where is a condition on these.
func (b *builder) allRuns(columns, where string) string {
	if where != "" {
		where = " AND " + where
	}
	return "(\n  SELECT " + columns + "\n  FROM " + b.qualifyTable("jobs") + "\n  WHERE " +
		stored + where +
		"\n  UNION ALL\n  SELECT " + columns + "\n  FROM " + b.qualifyTable("live") +
		" FINAL\n  WHERE " + open + where + "\n)"
}

func (b *builder) buildQuery(sql string) Query { return Query{SQL: sql, Params: b.params} }

// asMicros is an instant column as microseconds.
func asMicros(column string) string { return "toUnixTimestamp64Micro(" + column + ")" }
