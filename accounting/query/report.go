package query

import (
	"errors"
	"fmt"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// ErrTRES tells a TRES that a report cannot be about.
var ErrTRES = errors.New("this report knows cpu, mem, node, billing and gres/…")

// Report is what sreport asks. Empty lists do not restrict.
type Report struct {
	Start, End spec.Instant // half open; nothing later than the scope's now counts
	Accounts   []string
	Users      []string
	Partitions []string
	QOS        []string
	WCKeys     []string
	Jobs       []uint64 // numbers; an array's means all its tasks
	Nodes      []string
	TRES       string // cpu, mem, node, billing, gres/…; "" = cpu
}

// amountColumns gives the columns that hold a TRES: of a run's allocation and
// request, and of a node.
func (r *Report) amountColumns(b *builder) (alloc, request, node string, err error) {
	switch r.TRES {
	case "", "cpu":
		return "alloc_cpus", "req_cpus", "cpus", nil
	case "mem":
		return "alloc_mem_mib", "req_mem_mib", "mem_mib", nil
	case "node":
		return "alloc_nodes", "req_nodes", "1", nil
	case "gres/gpu":
		return "alloc_gpus", "req_gpus", "gpus", nil
	case "billing":
		return "alloc_billing", "req_billing", "", nil
	}
	if !strings.HasPrefix(r.TRES, "gres/") && !strings.HasPrefix(r.TRES, "license/") {
		return "", "", "", fmt.Errorf("%q: %w", r.TRES, ErrTRES)
	}
	p := b.bindValue("tres", "String", r.TRES)
	if strings.HasPrefix(r.TRES, "license/") {
		return "alloc_tres[" + p + "]", "req_tres[" + p + "]", "", nil
	}
	return "alloc_tres[" + p + "]", "req_tres[" + p + "]", "tres[" + p + "]", nil
}

// bindWindow binds the window; its end is never later than now.
func (r *Report) bindWindow(b *builder) (start, end string) {
	b.bindMicros("from", r.Start)
	b.bindMicros("to", min(r.End, b.scope.Now))
	return "{from:Int64}", "{to:Int64}"
}

// ran is the condition on runs that ran within the window.
const ran = "start < fromUnixTimestamp64Micro({to:Int64}, 'UTC') AND (end > fromUnixTimestamp64Micro({from:Int64}, 'UTC') OR isNull(end))"

// overlap is the part of a run within the window, in microseconds.
const overlap = "(least(ifNull(toUnixTimestamp64Micro(end), {to:Int64}), {to:Int64}) - greatest(ifNull(toUnixTimestamp64Micro(start), {to:Int64}), {from:Int64}))"

func (r *Report) filterClause(b *builder) string {
	out := ""
	add := func(column, name string, values []string) {
		if len(values) > 0 {
			out += " AND " + column + " IN " + b.bindValue(name, "Array(String)", values)
		}
	}
	add("account", "accounts", r.Accounts)
	add("user", "users", r.Users)
	add("partition", "partitions", r.Partitions)
	add("qos", "qos", r.QOS)
	add("wckey", "wckeys", r.WCKeys)
	if len(r.Jobs) > 0 {
		out += " AND " + keepNumbered(b.bindValue("jobs", "Array(UInt32)", r.Jobs))
	}
	if len(r.Nodes) > 0 {
		out += " AND " + onNodes(b, r.Nodes)
	}
	return out
}

// Key is what a report sums up by; the values are columns of a run.
type Key string

// The keys of a report.
const (
	KeyAccount Key = "account"
	KeyUser    Key = "user"
	KeyQOS     Key = "qos"
	KeyWCKey   Key = "wckey"
)

func keyList(by []Key) string {
	words := make([]string, len(by))
	for i, k := range by {
		words[i] = string(k)
	}
	return strings.Join(words, ", ")
}

// Used asks how much was used by some keys, by account and user if none are
// named: these, amount times microseconds
// (Int128), energy in millijoules. Partial sums are exact.
func (r *Report) Used(scope Scope, by ...Key) (Query, error) {
	b := newBuilder(scope)
	r.bindWindow(b)
	alloc, _, _, err := r.amountColumns(b)
	if err != nil {
		return Query{}, err
	}
	if len(by) == 0 {
		by = []Key{KeyAccount, KeyUser}
	}
	keys := keyList(by)
	w := r.cutWindow(b, dayUS)
	filters := r.filterClause(b)
	var parts []string
	if w.inner {
		parts = append(parts, "SELECT "+keys+", toInt128("+rolledColumn(r.TRES)+
			") AS part, toInt128(energy_mj) AS energy FROM "+b.qualifyTable("rollup_days")+
			" WHERE "+b.rolledWithin("day", "toDate(fromUnixTimestamp64Micro(%s, 'UTC'))")+filters)
	}
	for _, p := range w.rows {
		parts = append(parts, "SELECT "+keys+", toInt128("+alloc+") * "+p.overlapMicros()+
			" AS part, "+p.energyWithin()+" AS energy FROM "+
			b.pieceRuns(p, p.ranWithin()+filters, keys+", "+alloc+", "+heldColumns+", energy_mj"))
	}
	return b.buildQuery("SELECT " + keys +
		", toString(sum(part)) AS used, toInt64(sum(energy)) AS energy_mj\nFROM (\n  " +
		strings.Join(parts, "\n  UNION ALL ") + "\n)" +
		"\nGROUP BY " + keys + "\nORDER BY " + keys), nil
}

// Sizes asks how much time runs of some sizes used, by some keys: these, the
// index of the group, amount times microseconds (Int128), and how many runs it
// was. A group begins at each of the numbers of CPUs; group 0 is below.
func (r *Report) Sizes(scope Scope, groups []int64, by ...Key) (Query, error) {
	b := newBuilder(scope)
	r.bindWindow(b)
	alloc, _, _, err := r.amountColumns(b)
	if err != nil {
		return Query{}, err
	}
	keys := keyList(by)
	sizes := make([]uint64, len(groups))
	for i, n := range groups {
		sizes[i] = uint64(max(n, 0))
	}
	index := "arrayCount(n -> alloc_cpus >= n, " + b.bindValue("sizes", "Array(Int64)", sizes) + ")"
	w := r.cutWindow(b, dayUS)
	filters := r.filterClause(b)
	var parts []string
	if w.inner {
		// A run counts in the first day of the window that it touches.
		first := "began"
		if !w.left {
			first = "if(day = toDate(fromUnixTimestamp64Micro({inner_from:Int64}, 'UTC')), began + carried, began)"
		}
		parts = append(parts, "SELECT "+keys+", toUInt32("+
			strings.ReplaceAll(index, "alloc_cpus", "cpus")+") AS size, toInt128("+
			rolledColumn(r.TRES)+") AS part, toInt64("+first+") AS n FROM "+
			b.qualifyTable("rollup_days")+" WHERE "+
			b.rolledWithin("day", "toDate(fromUnixTimestamp64Micro(%s, 'UTC'))")+filters)
	}
	for _, p := range w.rows {
		name := "1"
		if p.later {
			name = "ifNull(toUnixTimestamp64Micro(start) >= " + p.lo + ", false)"
		}
		parts = append(parts, "SELECT "+keys+", toUInt32("+index+") AS size, toInt128("+alloc+
			") * "+p.overlapMicros()+" AS part, toInt64("+name+") AS n FROM "+
			b.pieceRuns(p, p.ranWithin()+filters, keys+", alloc_cpus, "+alloc+", "+heldColumns))
	}
	return b.buildQuery("SELECT " + keys +
		", size, toString(sum(part)) AS used, sum(n) AS jobs\nFROM (\n  " +
		strings.Join(parts, "\n  UNION ALL ") + "\n)" +
		"\nGROUP BY " + keys + ", size\nORDER BY " + keys + ", size"), nil
}

// Tree asks for the associations as they are now: id, parent, account, user.
func (r *Report) Tree(scope Scope) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT id, argMax(parent, seq) AS parent_id, argMax(account, seq) AS account_name, argMax(user, seq) AS user_name\nFROM " +
		b.qualifyTable("associations") + "\nWHERE " + b.knownEvents() +
		"\nGROUP BY id\nHAVING NOT argMax(removed, seq)\nORDER BY id")
}

// Reservations asks for everything that happened to reservations, in order: the event's instant
// in microseconds, whether it ended one, and of it name, start, end (nanoseconds), TRES.
func Reservations(scope Scope) Query {
	b := newBuilder(scope)
	of := func(name, typ string) string {
		return "JSONExtract" + typ + "(body, 'Reservation', '" +
			name + "')"
	}
	return b.buildQuery("SELECT toUnixTimestamp64Micro(at) AS at_us, kind = 'ReservationRemoved' AS over, if(over, JSONExtractString(body, 'Name'), " +
		of("Name", "String") + ") AS name, " +
		of("Start", "Int") + " AS start_ns, " + of("End", "Int") + " AS end_ns, " +
		of("TRES", "String") + " AS amounts\nFROM " + b.qualifyTable("events") +
		"\nWHERE " + stored +
		" AND kind IN ('ReservationPut', 'ReservationRemoved')\nORDER BY seq")
}

// Fairshares asks how each user's association stood at the end of each day
// (UTC) of the window: day, account, user, its part of all shares, its part of
// all use, its factor; by association and day.
func (r *Report) Fairshares(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	only := ""
	for _, f := range [...]struct {
		column, name string
		list         []string
	}{{"a.account", "accounts", r.Accounts}, {"a.user", "users", r.Users}} {
		if len(f.list) > 0 {
			only += " AND " + f.column + " IN " + b.bindValue(f.name, "Array(String)", f.list)
		}
	}
	return b.buildQuery("SELECT toString(toDate(at, 'UTC')) AS day, a.account AS account, a.user AS user, argMax(n.2, at) / 1e6 AS shares, argMax(n.3, at) / 1e6 AS used, argMax(n.4, at) / 1e6 AS factor\n" +
		"FROM (SELECT at, arrayJoin(JSONExtract(body, 'Shares', 'Array(Tuple(Assoc UInt32, Norm Int64, Used Int64, Factor Int64, Raw Int64))')) AS n FROM " +
		b.qualifyTable("events") +
		" WHERE " + stored + " AND kind = 'SharesNoted' AND at >= " + windowFrom + " AND at < " +
		windowTo + ") AS s\n" +
		"JOIN (SELECT id, argMax(toString(account), seq) AS account, argMax(toString(user), seq) AS user FROM " +
		b.qualifyTable("associations") + " WHERE " + b.knownEvents() +
		" GROUP BY id) AS a ON n.1 = a.id\n" +
		"WHERE a.user != ''" + only +
		"\nGROUP BY day, n.1, account, user\nORDER BY account, user, n.1, day")
}

// InReservation asks how much the runs in a reservation used within the
// report's window: amount times microseconds (Int128).
func (r *Report) InReservation(scope Scope, name string) (Query, error) {
	b := newBuilder(scope)
	r.bindWindow(b)
	alloc, _, _, err := r.amountColumns(b)
	if err != nil {
		return Query{}, err
	}
	return b.buildQuery("SELECT toString(sum(part))\nFROM " +
		b.allRuns("toInt128("+alloc+") * "+
			piece{lo: "{from:Int64}", hi: "{to:Int64}", now: b.nowMicros()}.overlapMicros()+
			" AS part", ran+" AND reservation = "+b.bindValue("reservation", "String", name))), nil
}

// hour is a bucket in microseconds. Planned time is idle time while jobs
// waited, hour by hour: a wait by night does not turn an idle day into one.
const hour = "3600000000"

// nodeIntervals is a subquery over what held for each node when, cut to the
// window: node, class, partitions, caps (an amount for each column), a, b.
func (b *builder) nodeIntervals(columns, more string) string {
	return `(
  SELECT node, class, partitions, caps, greatest(at_us, {from:Int64}) AS a, least(next_us, {to:Int64}) AS b
  FROM (
    SELECT node, class, partitions, [` + columns + `] AS caps, toUnixTimestamp64Micro(at) AS at_us,
      leadInFrame(toUnixTimestamp64Micro(at), 1, {to:Int64}) OVER (PARTITION BY node ORDER BY at, seq ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next_us
    FROM ` + b.qualifyTable("node_states") + `
    WHERE ` + stored + ` AND at < fromUnixTimestamp64Micro({to:Int64}, 'UTC')
      AND at >= (SELECT max(at) FROM ` + b.qualifyTable("node_states") + ` WHERE ` + stored +
		` AND restated AND at <= fromUnixTimestamp64Micro({from:Int64}, 'UTC'))` + more + `
  )
  WHERE next_us > at_us AND next_us > {from:Int64} AND class != 'gone'
)`
}

// Kinds asks which generic resources the nodes had within the window, by name:
// gres/gpu, gres/gpu:h100.
func (r *Report) Kinds(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	return b.buildQuery(
		"SELECT DISTINCT arrayJoin(arrayConcat(mapKeys(tres), if(gpus > 0, ['gres/gpu'], []))) AS name FROM " +
			b.qualifyTable(
				"node_states",
			) +
			" WHERE " + stored +
			" AND at < fromUnixTimestamp64Micro({to:Int64}, 'UTC') AND startsWith(name, 'gres/') ORDER BY name",
	)
}

// Capacity asks what the cluster had of a TRES over the window: the amount
// times microseconds (Int128).
func (r *Report) Capacity(scope Scope) (Query, error) {
	return r.overNodes(
		scope,
		"SELECT toString(sum(toInt128(caps[1]) * (b - a))) AS had_us FROM ",
		" WHERE a < b",
	)
}

// Most asks for the largest amount of a TRES that the cluster had within the
// window.
func (r *Report) Most(scope Scope) (Query, error) {
	return r.overNodes(
		scope,
		"SELECT ifNull(max(total), 0) AS count FROM (SELECT a AS at, sum(caps[1]) AS total FROM ",
		" GROUP BY a)",
	)
}

// overNodes puts the nodes' intervals with their amounts of a TRES between two
// parts of a statement.
func (r *Report) overNodes(scope Scope, before, behind string) (Query, error) {
	b := newBuilder(scope)
	r.bindWindow(b)
	_, _, node, err := r.amountColumns(b)
	if err != nil {
		return Query{}, err
	}
	if node == "" {
		return Query{}, fmt.Errorf("%q has no capacity: %w", r.TRES, ErrTRES)
	}
	return b.buildQuery(before + b.nodeIntervals("toInt64("+node+")", "") + behind), nil
}

// Utilization asks what the cluster's resources did in the window. One row, in
// amount times microseconds: allocated, down, planned_down, idle, planned,
// reported, over.
func (r *Report) Utilization(scope Scope) (Query, error) {
	b := newBuilder(scope)
	r.bindWindow(b)
	alloc, request, node, err := r.amountColumns(b)
	if err != nil {
		return Query{}, err
	}
	if node == "" {
		return Query{}, fmt.Errorf("%q has no capacity: %w", r.TRES, ErrTRES)
	}
	caps := b.nodeIntervals("toInt64("+node+")", "")
	w := r.cutWindow(b, hourUS)
	var running, waiting []string
	for _, p := range w.rows {
		running = append(running, "SELECT toInt64("+alloc+
			") AS amount, greatest(toUnixTimestamp64Micro(assumeNotNull(start)), "+p.lo+
			") AS a, "+
			"least("+heldUntil(p.now)+", "+p.hi+") AS b FROM "+
			b.pieceRuns(p, "isNotNull(start) AND "+p.ranWithin(), alloc+", "+heldColumns))
		waiting = append(waiting, "SELECT toInt128("+request+
			") * count AS amount, greatest(toUnixTimestamp64Micro(assumeNotNull(eligible)), "+
			p.lo+") AS a, "+
			"least(ifNull(toUnixTimestamp64Micro(start), ifNull(toUnixTimestamp64Micro(end), "+
			p.hi+")), "+p.hi+") AS b FROM "+
			b.pieceRuns(p, "isNotNull(eligible) AND eligible < "+microsToInstant(p.hi)+
				" AND (isNull(end) OR end > "+microsToInstant(p.lo)+
				") AND (isNull(start) OR start > "+microsToInstant(p.lo)+")",
				request+", count, eligible, start, end"))
	}
	union := func(list []string) string { return "(" + strings.Join(list, " UNION ALL ") + ")" }
	added := ""
	if w.inner {
		added = "\n    UNION ALL SELECT if(waiting, 'wait', 'alloc') AS kind, toUInt64(intDiv(toUnixTimestamp(at), 3600)) AS h, sum(toInt128(" +
			rolledColumn(r.TRES) + ")) AS part FROM " +
			b.qualifyTable("rollup_quarters") + " WHERE " +
			b.rolledWithin("at", "toDateTime(fromUnixTimestamp64Micro(%s, 'UTC'))") +
			" GROUP BY kind, h"
	}
	// What jobs hold on a node that is out of service is allocated, not down.
	held := `(
  SELECT d.class AS class, h.amount AS amount, greatest(h.a, d.a) AS a, least(h.b, d.b) AS b
  FROM (` + b.heldOn(r.heldAmount()) + `) AS h
  INNER JOIN (SELECT node, class, a, b FROM ` +
		b.nodeIntervals("toInt64("+node+")", " AND "+b.outBeforeWindow()) +
		` WHERE class != 'up') AS d ON h.node = d.node
  WHERE h.a < d.b AND h.b > d.a
)`
	// Intervals that begin in one hour and end in another are put together
	// first, and the sums are split into hours: there are far fewer of them. At
	// each end of an interval the product fits in 64 bits.
	split := func(kind, amount, from string) string {
		return "SELECT kind, p.1 AS h, p.2 AS part FROM (" +
			"SELECT " + kind + " AS kind, intDiv(a, " + hour + ") AS ha, intDiv(b - 1, " + hour +
			") AS hb, sum(toInt128(" + amount + ")) AS amounts, " +
			"sum(toInt128(" + amount + " * (least(b, (ha + 1) * " + hour + ") - a))) AS first, " +
			"sum(toInt128(" + amount + " * (b - hb * " + hour + "))) AS last FROM " + from +
			" WHERE a < b GROUP BY kind, ha, hb" +
			") ARRAY JOIN arrayMap(h -> (toUInt64(h), multiIf(h = ha, first, h = hb, last, amounts * toInt128(" +
			hour + "))), range(toUInt64(ha), toUInt64(hb) + 1)) AS p"
	}
	return b.buildQuery(`SELECT
  toString(sum(allocated)) AS allocated_us, toString(sum(down)) AS down_us, toString(sum(planned_down)) AS planned_down_us,
  toString(sum(idle_h - planned_h)) AS idle_us, toString(sum(planned_h)) AS planned_us, toString(sum(reported)) AS reported_us,
  toString(sum(over)) AS over_us
FROM (
  SELECT h, sumIf(part, kind = 'alloc') AS allocated, sumIf(part, kind IN ('up', 'down', 'planned')) AS reported,
    greatest(sumIf(part, kind = 'down') - sumIf(part, kind = 'held down'), 0) AS down,
    greatest(sumIf(part, kind = 'planned') - sumIf(part, kind = 'held planned'), 0) AS planned_down,
    greatest(reported - allocated - down - planned_down, 0) AS idle_h,
    least(idle_h, sumIf(part, kind = 'wait')) AS planned_h,
    greatest(allocated + down + planned_down - reported, 0) AS over
  FROM (
    ` + split("toString(class)", "caps[1]", caps) + `
    UNION ALL ` + split("'alloc'", "amount", union(running)) + `
    UNION ALL ` + split("'wait'", "amount", union(waiting)) + `
    UNION ALL ` + split("concat('held ', toString(class))", "amount", held) + added + `
  )
  GROUP BY h
)`), nil
}

// heldAmount gives the columns of what a run holds on one node: of job_nodes
// and of the live table's arrays.
func (r *Report) heldAmount() (stored, live string) {
	switch r.TRES {
	case "", "cpu":
		return "cpus", "held_cpu"
	case "mem":
		return "mem_mib", "held_mem"
	case "node":
		return "1", "1"
	}
	if strings.HasPrefix(r.TRES, "gres/gpu") {
		return "gpus", "held_gpu" // a node has one type of device in practice
	}
	return "0", "0"
}

// heldOn is a query over what runs hold on nodes that were ever out of service
// before the window's end, cut to the window: node, amount, a, b.
func (b *builder) heldOn(kept, live string) string {
	return "SELECT node, toInt64(" + kept +
		") AS amount, greatest(toUnixTimestamp64Micro(from), {from:Int64}) AS a, " +
		"least(toUnixTimestamp64Micro(least(to, end)), {to:Int64}) AS b FROM " +
		b.qualifyTable("job_nodes") + " WHERE " + stored +
		" AND from < fromUnixTimestamp64Micro({to:Int64}, 'UTC') AND to > fromUnixTimestamp64Micro({from:Int64}, 'UTC') AND " +
		b.outBeforeWindow() +
		" UNION ALL SELECT node, toInt64(" + live +
		") AS amount, greatest(toUnixTimestamp64Micro(assumeNotNull(start)), {from:Int64}) AS a, " +
		"least(if(toUnixTimestamp64Micro(to) = 0, {to:Int64}, toUnixTimestamp64Micro(to)), ifNull(toUnixTimestamp64Micro(end), {to:Int64}), {to:Int64}) AS b FROM " +
		b.qualifyTable("live") +
		" FINAL ARRAY JOIN held_nodes AS node, held_cpus AS held_cpu, held_mem_mib AS held_mem, held_gpus AS held_gpu, held_to AS to" +
		" WHERE " + open + " AND isNotNull(start)"
}

// outBeforeWindow is the condition that a node was out of service before the window's
// end: few are, and only of these it matters when.
func (b *builder) outBeforeWindow() string {
	return "node IN (SELECT DISTINCT node FROM " + b.qualifyTable("node_states") + " WHERE " +
		stored + " AND class != 'up' AND at < " + windowTo + ")"
}

// NodeEvents asks when nodes were not up: node, from, until (0 = still), state,
// reason, who; what began before the window's end and was not over at its
// beginning.
func (r *Report) NodeEvents(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	where := ""
	if len(r.Nodes) > 0 {
		where = " AND node IN " + b.bindValue("nodes", "Array(String)", r.Nodes)
	}
	return b.buildQuery(`SELECT node, at_us, next_us, state, reason, who
FROM (
  SELECT node, toUnixTimestamp64Micro(at) AS at_us, toString(state) AS state, toString(class) AS class, toString(reason) AS reason, toString(by) AS who,
    leadInFrame(toUnixTimestamp64Micro(at), 1, toInt64(0)) OVER (PARTITION BY node ORDER BY at, seq ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS next_us
  FROM ` + b.qualifyTable("node_states") + `
  WHERE ` + stored + ` AND NOT restated` + where + `
)
WHERE state != 'UP' AND class != 'gone' AND at_us < {to:Int64} AND (next_us = 0 OR next_us > {from:Int64}) AND next_us != at_us
ORDER BY at_us, node`)
}
