package query

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// The lengths of what is added up, in microseconds.
const (
	quarterUS int64 = 900_000_000
	hourUS          = 4 * quarterUS
	dayUS           = 24 * hourUS
)

// piece is a stretch of time with the runs that are to be added up over it,
// row by row.
type piece struct {
	lo, hi string // the stretch, as parameters
	cond   string // which of the runs that are over; "" = all
	live   bool   // those that are not over too
	later  bool   // behind others: runs that began before it were counted there
	now    string // a parameter
}

// pieces is how a report's window is put together.
type pieces struct {
	inner bool // the rollups have [inner_from, inner_to)
	left  bool // there is a piece before it
	rows  []piece
}

// rolledColumn is the column of the rollups for a TRES; "" = they do not have
// it.
func rolledColumn(tres string) string {
	switch tres {
	case "", "cpu":
		return "cpu_us"
	case "mem":
		return "mem_mib_us"
	case "node":
		return "node_us"
	case "gres/gpu":
		return "gpu_us"
	case "billing":
		return "billing_us"
	}
	return ""
}

// rolledAmounts are a run's amounts and their columns in the rollups.
func rolledAmounts() [][2]string {
	return [][2]string{
		{"alloc_cpus", "cpu_us"},
		{"alloc_mem_mib", "mem_mib_us"},
		{"alloc_nodes", "node_us"},
		{"alloc_gpus", "gpu_us"},
		{"alloc_billing", "billing_us"},
	}
}

// cutWindow cuts the window: what the rollups have in whole units inside it, and
// what is added up from the runs. Both together are each run's time once:
// runs that the rollups do not have are taken over the whole window, those that
// they have only over its ends.
func (r *Report) cutWindow(b *builder, unit int64) pieces {
	now := b.nowMicros()
	all := pieces{rows: []piece{{lo: "{from:Int64}", hi: "{to:Int64}", live: true, now: now}}}
	rolled := b.scope.Rolled
	if rolled.Build == 0 || rolledColumn(r.TRES) == "" || len(r.Jobs) > 0 || len(r.Nodes) > 0 {
		return all
	}
	from, to := int64(
		r.Start,
	)/int64(
		spec.Microsecond,
	), int64(
		min(r.End, b.scope.Now),
	)/int64(
		spec.Microsecond,
	)
	lo := (from + unit - 1) / unit * unit
	hi := min(to/unit*unit, rolled.Until)
	if from < 0 || lo >= hi {
		return all
	}
	b.bindValue("inner_from", "Int64", lo)
	b.bindValue("inner_to", "Int64", hi)
	b.bindValue("rolled_build", "UInt32", rolled.Build)
	b.bindValue("rolled_until", "Int64", rolled.Until)
	b.bindValue("rolled_seq", "UInt64", rolled.Seq)
	const until = "fromUnixTimestamp64Micro({rolled_until:Int64}, 'UTC')"
	const covered = "end < " + until + " AND seq <= {rolled_seq:UInt64}"
	out := pieces{
		inner: true,
		rows: []piece{{lo: "{from:Int64}", hi: "{to:Int64}", cond: "(end >= " +
			until + " OR seq > {rolled_seq:UInt64})", live: true, now: now}},
	}
	if from < lo {
		out.left = true
		out.rows = append(
			out.rows,
			piece{lo: "{from:Int64}", hi: "{inner_from:Int64}", cond: covered, now: now},
		)
	}
	if hi < to && hi < rolled.Until {
		out.rows = append(
			out.rows,
			piece{lo: "{inner_to:Int64}", hi: "{to:Int64}", cond: covered, later: true, now: now},
		)
	}
	return out
}

// rolledWithin is the condition on rows of a rollup within the window; instant is
// what its column makes of a number of microseconds.
func (b *builder) rolledWithin(column, instant string) string {
	return "ledger = {ledger:UUID} AND build <= {rolled_build:UInt32} AND " + column + " >= " +
		fmt.Sprintf(instant, "{inner_from:Int64}") +
		" AND " + column + " < " + fmt.Sprintf(instant, "{inner_to:Int64}")
}

// microsToInstant is a number of microseconds as an instant.
func microsToInstant(us string) string { return "fromUnixTimestamp64Micro(" + us + ", 'UTC')" }

// ranWithin is the condition on runs that ran within a piece: one that began and
// ended in one instant belongs where it began.
func (p piece) ranWithin() string {
	return "start < " + microsToInstant(p.hi) + " AND (end > " + microsToInstant(p.lo) +
		" OR isNull(end) OR start >= " + microsToInstant(p.lo) + ")"
}

// ended is when a run that is over would have ended if it had never been
// suspended: what it held while it stood still others could use. Reports count
// until then; how long it stood is known, and not always when.
const ended = "(toUnixTimestamp64Micro(end) - suspended_us)"

// heldColumns are those that heldUntil needs.
const heldColumns = "start, end, state, suspended_us, elapsed_us"

// heldUntil is the same of any run, up to an instant in microseconds. Of one
// that is suspended now elapsed_us is what it ran.
func heldUntil(now string) string {
	return "if(isNull(end) AND state = 'SUSPENDED', ifNull(toUnixTimestamp64Micro(start), 0) + elapsed_us, ifNull(toUnixTimestamp64Micro(end), " +
		now + ") - suspended_us)"
}

// overlapMicros is the part of a run within the piece, in microseconds.
func (p piece) overlapMicros() string {
	return "greatest(0, least(" + heldUntil(p.now) + ", " + p.hi +
		") - greatest(ifNull(toUnixTimestamp64Micro(start), " + p.hi + "), " + p.lo + "))"
}

// energyWithin is what a run used within the piece, in millijoules: spread evenly
// over the time that it ran, whole at each instant, so that pieces add up.
func (p piece) energyWithin() string {
	const a, z = "ifNull(toUnixTimestamp64Micro(start), 0)", "ifNull(toUnixTimestamp64Micro(end), 9000000000000000)"
	return energyBetween("greatest("+p.lo+", "+a+")", "least("+p.hi+", "+z+")")
}

// energyBetween is what a run used from one instant to another.
func energyBetween(from, to string) string {
	const a = "ifNull(toUnixTimestamp64Micro(start), 0)"
	until := func(t string) string {
		return "least(toInt128(energy_mj), intDiv(toInt128(energy_mj) * greatest(0, " + t +
			" - " + a + "), if(elapsed_us > 0, elapsed_us, 1)))"
	}
	return "toInt128(if(ifNull(energy_mj, 0) = 0, 0, assumeNotNull(" + until(to) + " - " +
		until(from) + ")))"
}

// pieceRuns is a subquery over the runs of a piece. Columns are those that it is
// made of.
func (b *builder) pieceRuns(p piece, where, columns string) string {
	columns = uniqueColumns(columns)
	cond := ""
	if p.cond != "" {
		cond = " AND " + p.cond
	}
	// No run that was over before the piece is in it. Said on its own, this lets
	// the store leave out months; what where says of it is one of several ways.
	sql := "(SELECT " + columns + " FROM " + b.qualifyTable("jobs") + " WHERE " + stored +
		" AND end >= " + microsToInstant(p.lo) + " AND " + where + cond
	if p.live {
		sql += " UNION ALL SELECT " + columns + " FROM " + b.qualifyTable("live") +
			" FINAL WHERE " + open + " AND " + where
	}
	return sql + ")"
}

// uniqueColumns drops columns that a list names twice, and what is asked of one.
func uniqueColumns(columns string) string {
	list := strings.Split(columns, ", ")
	for i, c := range list {
		list[i], _, _ = strings.Cut(c, "[")
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ", ")
}

// RollUp is the SQL that adds up runs into rollup_days and rollup_quarters: what
// a build adds to those before it. The runs are those that ended in [From,
// Until), and late ones, that ended before From and came with an event after
// Seq.
type RollUp struct {
	Build       uint32
	From, Until int64 // midnights UTC, microseconds
	Seq         uint64
	Cluster     string
}

func (u RollUp) begin(scope Scope) (b *builder, where string) {
	b = newBuilder(scope)
	b.params = slices.DeleteFunc(b.params, func(p Param) bool { return p.Name == "gen" })
	b.bindValue("build", "UInt32", u.Build)
	b.bindValue("cluster", "String", u.Cluster)
	from, until := b.bindValue("first", "Int64", u.From), b.bindValue("until", "Int64", u.Until)
	return b, stored + " AND ((end >= " + microsToInstant(from) + " AND end < " +
		microsToInstant(until) + ") OR (end < " + microsToInstant(from) + " AND seq > " +
		b.bindValue("before", "UInt64", u.Seq) + "))"
}

// Days adds up what runs held, by UTC day and who held it.
func (u RollUp) Days(scope Scope) Query {
	b, where := u.begin(scope)
	return b.buildQuery("INSERT INTO " + b.qualifyTable("rollup_days") +
		" (ledger, cluster, build, " + strings.Join(RolledDayColumns(), ", ") +
		")\nSELECT {ledger:UUID}, {cluster:String}, {build:UInt32}, * FROM (" +
		b.splitIntoDays(b.qualifyTable("jobs")+" WHERE "+where, ended) + ")")
}

// RolledDayColumns are the columns of rollup_days, but those that say whose
// they are.
func RolledDayColumns() []string {
	return []string{
		"day",
		"account",
		"user",
		"partition",
		"qos",
		"wckey",
		"cpus",
		"began",
		"carried",
		"cpu_us",
		"mem_mib_us",
		"node_us",
		"gpu_us",
		"billing_us",
		"energy_mj",
	}
}

// splitIntoDays splits runs that ran into UTC days. A run that begins and ends at one
// instant is one of that day. Last is when a run's time ends.
func (b *builder) splitIntoDays(from, last string) string {
	const day = "toInt64(86400000000)"
	const a = "toUnixTimestamp64Micro(assumeNotNull(start))"
	held := "greatest(0, y - x)"
	sums := ""
	for _, c := range rolledAmounts() {
		sums += ", sum(toInt128(" + c[0] + ") * " + held + ") AS " + c[1]
	}
	return "SELECT toDate(d) AS day, account, user, partition, qos, wckey, alloc_cpus AS cpus, toUInt64(countIf(a >= d * " +
		day + ")) AS began, toUInt64(countIf(a < d * " + day + ")) AS carried" + sums +
		", toInt64(sum(" + energyBetween("x", "y") +
		")) AS energy_mj FROM (SELECT account, user, partition, qos, wckey, alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, alloc_billing, energy_mj, elapsed_us, start, " +
		a + " AS a, " + last + " AS z, arrayJoin(range(toUInt16(intDiv(a, " + day +
		")), toUInt16(intDiv(greatest(z - 1, a), " + day +
		") + 1))) AS d, greatest(a, d * " + day + ") AS x, least(z, (d + 1) * " + day +
		") AS y FROM " + from +
		" AND isNotNull(start)) GROUP BY day, account, user, partition, qos, wckey, cpus"
}

// Quarters adds up what runs held and what they waited for, by quarter of an
// hour.
func (u RollUp) Quarters(scope Scope) Query {
	b, where := u.begin(scope)
	return b.buildQuery("INSERT INTO " + b.qualifyTable("rollup_quarters") +
		" (ledger, cluster, build, " + strings.Join(RolledQuarterColumns(), ", ") +
		")\nSELECT {ledger:UUID}, {cluster:String}, {build:UInt32}, * FROM (" +
		b.splitIntoQuarters(b.qualifyTable("jobs")+" WHERE "+where, ended) + ")")
}

// RolledQuarterColumns are the columns of rollup_quarters, but those that say
// whose they are.
func RolledQuarterColumns() []string {
	return []string{
		"at",
		"account",
		"partition",
		"qos",
		"waiting",
		"cpu_us",
		"mem_mib_us",
		"node_us",
		"gpu_us",
		"billing_us",
	}
}

// splitIntoQuarters splits what runs held and waited for into quarters of an hour. A
// run counts where its time begins and where it ends, however long it is: what
// it has is added to all quarters from the one where it begins, and taken away
// behind the one where it ends; those two are set right by what it has of them.
// Last is when a run's time ends.
func (b *builder) splitIntoQuarters(from, last string) string {
	const quarter = "toInt64(900000000)"
	const key = "account, partition, qos, waiting"
	columns := RolledQuarterColumns()[5:]
	half := func(waiting, prefix, times, a, z, cond string) string {
		sql := "SELECT account, partition, qos, " + waiting + " AS waiting, " + a + " AS a, " +
			z + " AS z"
		for i, amount := range [...]string{"cpus", "mem_mib", "nodes", "gpus", "billing"} {
			sql += fmt.Sprintf(", toInt128(%s%s)%s AS v%d", prefix, amount, times, i)
		}
		return sql + " FROM " + from + " AND " + cond
	}
	all := "(" +
		half(
			"false",
			"alloc_",
			"",
			"toUnixTimestamp64Micro(assumeNotNull(start))",
			last,
			"isNotNull(start)",
		) +
		" UNION ALL " +
		half(
			"true",
			"req_",
			" * count",
			"toUnixTimestamp64Micro(assumeNotNull(eligible))",
			"ifNull(toUnixTimestamp64Micro(start), "+last+")",
			"isNotNull(eligible)",
		) +
		")"
	const until = "OVER (PARTITION BY " + key +
		" ORDER BY q ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
	const beyond = "OVER (PARTITION BY " + key +
		" ORDER BY q ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)"
	var sums, level, amounts string
	for i, c := range columns {
		sums += fmt.Sprintf(", sum(v%[1]d * e.2) AS d%[1]d, sum(v%[1]d * e.3) AS part%[1]d", i)
		level += fmt.Sprintf(", sum(d%[1]d) %[2]s AS level%[1]d, part%[1]d", i, until)
		amounts += fmt.Sprintf(
			", level%[1]d * %[2]s + if(at_q = q, part%[1]d, 0) AS %[3]s",
			i,
			quarter,
			c,
		)
	}
	ends := "(SELECT " + key + ", e.1 AS q, sum(e.2) AS dn" + sums +
		" FROM (SELECT *, intDiv(a, " + quarter + ") AS qa, intDiv(z - 1, " + quarter +
		") AS qb FROM " + all + " WHERE a < z) " +
		"ARRAY JOIN [(qa, toInt8(1), qa * " + quarter + " - a), (qb, toInt8(-1), z - qb * " +
		quarter + ")] AS e GROUP BY " + key + ", q)"
	levels := "(SELECT " + key + ", q, leadInFrame(q) " + beyond + " AS next, sum(dn) " + until +
		" AS n" + level + " FROM " + ends + ")"
	return "SELECT toDateTime(at_q * 900, 'UTC') AS at, " + key + amounts + " FROM " + levels +
		" ARRAY JOIN range(toUInt64(q), if(n > 0, toUInt64(next), toUInt64(q) + 1)) AS at_q"
}

// notRolled is the condition on runs that are over which the rollups do not
// have; without builds that is all of them.
func (b *builder) notRolled() string {
	b.bindOnce("rolled_build", "UInt32", b.scope.Rolled.Build)
	return "(end >= " +
		microsToInstant(b.bindOnce("rolled_until", "Int64", b.scope.Rolled.Until)) +
		" OR seq > " + b.bindOnce("rolled_seq", "UInt64", b.scope.Rolled.Seq) + ")"
}

// bindOnce binds a parameter that several parts of a question use.
func (b *builder) bindOnce(name, typ string, value any) string {
	if !slices.ContainsFunc(b.params, func(p Param) bool { return p.Name == name }) {
		return b.bindValue(name, typ, value)
	}
	return "{" + name + ":" + typ + "}"
}

// nowMicros is the scope's instant, in microseconds.
func (b *builder) nowMicros() string {
	return b.bindOnce("now_us", "Int64", int64(b.scope.Now)/int64(spec.Microsecond))
}

// upToNow is a rollup as people see it: what is added up, and with it what the
// runs give that are not in it yet, open ones up to now.
func (b *builder) upToNow(
	table string,
	columns []string,
	add func(from, last string) string,
	who string,
) string {
	list := strings.Join(columns, ", ")
	rest := b.notRolled()
	now := b.nowMicros()
	return "  SELECT " + list + "\n  FROM " + b.qualifyTable(table) +
		"\n  WHERE ledger = {ledger:UUID} AND build <= {rolled_build:UInt32}" + who +
		"\n  UNION ALL\n  SELECT " + list + " FROM (" +
		add(b.qualifyTable("jobs")+" WHERE "+stored+" AND "+rest+who, ended) + ")" +
		"\n  UNION ALL\n  SELECT " + list + " FROM (" +
		add(b.qualifyTable("live")+" FINAL WHERE "+open+who, heldUntil(now)) + ")"
}

// RolledCheck asks for what the rollups have and what the runs give that they
// should have, in the same order: CPU, memory, node, GPU and billing time,
// waiting CPU and GPU time, all times microseconds, as texts.
func RolledCheck(scope Scope) Query {
	b := newBuilder(scope)
	b.params = slices.DeleteFunc(b.params, func(p Param) bool { return p.Name == "gen" })
	until := microsToInstant(b.bindValue("rolled_until", "Int64", scope.Rolled.Until))
	covered := stored + " AND end < " + until + " AND seq <= " +
		b.bindValue("rolled_seq", "UInt64", scope.Rolled.Seq)
	build := "ledger = {ledger:UUID} AND build <= " +
		b.bindValue("rolled_build", "UInt32", scope.Rolled.Build)
	sum := func(sql string) string { return "toString(sum(" + sql + "))" }
	var days, quarters []string
	for _, c := range rolledAmounts() {
		days = append(days, sum(c[1]))
		quarters = append(quarters, "toString(sumIf("+c[1]+", NOT waiting))")
	}
	quarters = append(
		quarters,
		"toString(sumIf(cpu_us, waiting))",
		"toString(sumIf(gpu_us, waiting))",
	)
	runs := rolledSums()
	list := func(l []string) string { return "[" + strings.Join(l, ", ") + "]" }
	return b.buildQuery("SELECT (SELECT " + list(days) + " FROM " +
		b.qualifyTable("rollup_days") + " WHERE " + build + "), (SELECT " + list(quarters) +
		" FROM " + b.qualifyTable("rollup_quarters") + " WHERE " + build +
		"), (SELECT " + list(runs) + " FROM " + b.qualifyTable("jobs") + " WHERE " + covered + ")")
}

// rolledSums are the sums over runs that the rollups have too.
func rolledSums() []string {
	const held = "greatest(0, ifNull(" + ended + " - toUnixTimestamp64Micro(start), 0))"
	const waited = "greatest(0, ifNull(toUnixTimestamp64Micro(ifNull(start, end)) - toUnixTimestamp64Micro(eligible), 0)) * count"
	var out []string
	for _, c := range rolledAmounts() {
		out = append(out, "toString(sum(toInt128("+c[0]+") * toInt128("+held+")))")
	}
	return append(
		out,
		"toString(sum(toInt128(req_cpus) * toInt128("+waited+")))",
		"toString(sum(toInt128(req_gpus) * toInt128("+
			waited+")))",
	)
}
