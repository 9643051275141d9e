package query

import (
	"fmt"
	"slices"
	"strings"
)

// View is a table as muster sql shows it: whole batches of the ledger, each
// run once, and only the rows that the asker may see.
type View struct {
	Name    string
	About   string
	Columns []ViewColumn
	tables  []string // that it is made of, the first one's rows and the second one's
	where   string   // besides what every view asks
	who     string   // condition on rows that a user may see; "" = everyone sees all
	admin   bool     // only administrators and operators see any

	// rows makes the view where it is not rows of tables; who is the condition
	// on rows that the viewer may see, with AND before it.
	rows func(b *builder, who string) string
}

// ViewColumn is a column of a view.
type ViewColumn struct{ Name, About string }

func viewColumns(text string) []ViewColumn {
	var out []ViewColumn
	for line := range strings.Lines(text) {
		names, about, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(names, ", ") {
			out = append(out, ViewColumn{name, about})
		}
	}
	return out
}

const usedBy = `measured: whether anything was measured
user_cpu_us, system_cpu_us: CPU time in microseconds
peak_rss: largest memory in bytes; NULL = not measured
mem_mib_s: memory over time, MiB times seconds
read_bytes, write_bytes: bytes from and to disks
energy_mj: energy in millijoules; NULL = not measured
maj_faults: page faults that read a disk
`

// Views are the tables of muster sql.
//
//muster:table one entry for each view
func Views() []View {
	const key = "uid: number of the job, never used twice\nrestarts: which of its runs, from 0\nattempt: number of the start; 0 = never started\njob_id: number that people see\n"
	const owner = "user, account, partition, qos: whose it is, and where\n"
	const mine = "(user = {me:String} OR account IN {mine:Array(String)})"
	return []View{
		{Name: "jobs", About: "one row for each run of a job, open ones too", tables: []string{"jobs", "live"}, who: mine, Columns: viewColumns(key +
			`array_job_id: number of the array; 0 = none
array_task: task of the array; -1 = none, or a record that stands for several
array_tasks: those it stands for
het_job_id: number of the leader of its heterogeneous job; 0 = none
het_offset, het_size: which component of that it is, from 0, and how many there are
count: how many jobs the row stands for: sums and counts multiply by it
name, user, group, account, partition, qos, wckey, comment: what the job said, and who it is
user_id, group_id: numbers of the user and the group
assoc: number of the association
state: PENDING, RUNNING, COMPLETED, FAILED, REQUEUED and so on
exit_code, exit_signal: how it ended
derived_code, derived_signal: the worst end of its steps
cancelled_by: user number of who cancelled it; NULL = nobody
reason: the last for which it waited
submit: when it was submitted, or requeued
eligible, start, end: when it could start, did and was over; NULL = not yet
limit_us: time limit in microseconds; -1 = none
suspended_us: time it was suspended, in microseconds; without the time since then where it is suspended now
req_cpus, req_mem_mib, req_nodes, req_gpus, req_billing, req_tres: what it asked for
alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, alloc_billing, alloc_tres: what it got
tasks: number of tasks
node_list: its nodes
constraint, reservation, licenses: what else it asked for
priority: at its start
backfill: started ahead of its turn
batch: it has a script
work_dir, submit_line, stdin, stdout, stderr: paths and the command line
gpu_uuids: its devices
` + usedBy + `gpu_measured_us, gpu_util_us, gpu_no_process_us, gpu_idle_us, gpu_busy_us: GPU time measured, its integral of utilisation, and its parts
`)},
		{Name: "steps", About: "one row for each step that is over; -5 (batch) is the script itself", tables: []string{"steps"}, who: mine, Columns: viewColumns(key +
			`step: number; -5 = batch
name, user, account: what it is, and whose
state, exit_code, exit_signal: how it ended
start, end: when
tasks: number of tasks
node_list: its nodes
alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, alloc_billing, alloc_tres: what it had
` + usedBy)},
		{Name: "job_nodes", About: "what each run that is over held and used on each of its nodes", tables: []string{"job_nodes"}, who: mine, Columns: viewColumns(key + owner +
			`node: name of the node
from, to: since when, and when it was given back
end: when the run was over
cpus, mem_mib, gpus, tasks: what it held
lost: the node was lost, so nothing was measured
` + usedBy)},
		{Name: "job_gpus", About: "which run held which device", tables: []string{"job_gpus"}, who: mine, Columns: viewColumns(key + owner +
			`node: name of the node
from, to, end: since when, when it was given back, when the run was over
gpu_uuid, gpu_index, gpu_type: the device
measured: whether anything was measured
no_process_us, idle_us, busy_us: time without a process, with one that did nothing, with one that worked, in microseconds; of a run that had a part of the device, as all that follows, times that part
util_us, sm_us, tensor_us: integrals of utilisation, SM and tensor activity, in microseconds
peak_mem: largest memory in bytes
mem_mib_s: memory over time, MiB times seconds
energy_mj: energy in millijoules
throttled_us: time throttled, in microseconds
xids: errors of the driver
method: how that became the run's: counted (it had the device alone), by slices (a MIG instance: counted, but for the energy, which is its device's by compute slices of seven), by share (it had a part); '' = nothing was measured, or it was stored by an older version
share: the part of the device that the run had, in thousandths: 1000 = all; 0 = as above
`)},
		{Name: "gpu_samples", About: "what each GPU and MIG instance did every ten seconds, and in whose hands; a reading that was sent twice may be there twice for some minutes",
			tables: []string{"gpu_samples"}, who: mine, Columns: viewColumns(
				`at: when
node: name of the node
gpu_uuid, gpu_index, profile: the device or MIG instance, and its profile
uid, attempt, job_id: the job that held it alone; 0 = none did
user, account, partition: whose that is
seconds: to the next reading: sums of it are GPU time
util, mem_util: utilisation, and time that memory was read or written, in percent; NULL = not measured, as all that follows
engine, sm, occupancy, tensor, dram: engine, multiprocessors, resident warps, tensor pipe and memory interface, in thousandths
memory_mib: memory in use in MiB
power_w, energy_j: power in watts, and energy since the driver was loaded in joules
temp_c, mem_temp_c: temperature of device and memory in degrees Celsius
sm_mhz, mem_mhz: clocks in MHz
throttle: what holds the clocks down, as the bits of DCGM
pcie_tx_mb, pcie_rx_mb, nvlink_tx_mb, nvlink_rx_mb: sent and received in MB a second
xid: number of the last error of the driver; 0 = none
processes: on the device
`)},
		{Name: "usage_samples", About: "what each run used of CPU and memory on each node, every JobAcctGatherFrequency; a reading that was sent twice may be there twice for some minutes",
			tables: []string{"usage_samples"}, who: mine, Columns: viewColumns(
				`at: when
node: name of the node
uid, attempt, job_id: which start of which job
step: number of the step; -5 = the batch script
user, account, partition: whose that is
seconds: to the next reading
cpu: CPUs in use since the reading before, in thousandths; NULL = not known
rss_kib: memory resident in KiB
`)},
		{Name: "pending_reasons", About: "why a run waits from an instant on, until its next reason, its start or its end", tables: []string{"pending_reasons"}, who: mine, Columns: viewColumns(
			`uid, restarts, job_id, count: which run, and how many jobs it stands for
` + owner + `at: since when
code: the reason
tres, limit, in_use, asked: the limit that is in the way, with numbers
subject: whose limit
blocker: uid of the job that is in the way
detail: the rest in words
`)},
		{Name: "node_states", About: "what holds for a node from an instant on; said again at each midnight UTC (restated)", tables: []string{"node_states"}, Columns: viewColumns(
			`at: since when
node: its name
state, class: its state, and whether that is up, down, planned or gone
restated: nothing has changed
cpus, mem_mib, gpus, tres: what it offers
partitions: in which it is
reason, by: why, and who said so
`)},
		{Name: "associations", About: "associations as they were made and changed; the newest row of an id holds", tables: []string{"associations"}, Columns: viewColumns(
			`at: when
id: number
account, user, partition, parent: who with whom
shares: of the account
removed: it is no more
`)},
		{Name: "rollup_days", About: "what was held on each UTC day, added up, with what runs now up to now", tables: []string{"rollup_days"}, who: mine,
			rows: func(b *builder, who string) string { return b.upToNow("rollup_days", RolledDayColumns(), b.days, who) }, Columns: viewColumns(
				`day: in UTC
account, user, partition, qos, wckey: who held it
cpus: how many CPUs the runs had
began: runs that began that day
carried: runs that had begun before and still ran
cpu_us, mem_mib_us, node_us, gpu_us, billing_us: amount times microseconds
energy_mj: energy in millijoules
`)},
		{Name: "rollup_quarters", About: "what was held and waited for in each quarter of an hour, up to now: the days of every time zone add up from them, those of 23 and 25 hours too (coordinators see their accounts)",
			tables: []string{"rollup_quarters"}, who: "account IN {mine:Array(String)}",
			rows: func(b *builder, who string) string {
				return b.upToNow("rollup_quarters", RolledQuarterColumns(), b.quarters, who)
			}, Columns: viewColumns(
				`at: when it begins, UTC
account, partition, qos: who held it, and where
waiting: it was asked for and not there yet; else it was held
cpu_us, mem_mib_us, node_us, gpu_us, billing_us: amount times microseconds
`)},
		{Name: "qos_history", About: "every QOS as it was made and changed; the newest row of a name holds", tables: []string{"events"},
			rows: func(b *builder, _ string) string {
				return b.fromEvents("'QOSPut', 'QOSRemoved'", "QOS", []string{"JSONExtractUInt(body, 'QOS', 'Priority') AS priority", "JSONExtract(body, 'QOS', 'Preempt', 'Array(String)') AS preempt",
					"JSONExtract(body, 'QOS', 'Flags', 'Array(String)') AS flags", "JSONExtractString(body, 'QOS', 'MaxTRESPerUser') AS max_tres_per_user", "JSONExtractString(body, 'QOS', 'MaxTRESPerJob') AS max_tres_per_job",
					"JSONExtractString(body, 'QOS', 'GrpTRES') AS grp_tres", "JSONExtractRaw(body, 'QOS') AS settings"})
			}, Columns: viewColumns(`at: when
name: of the QOS
by: who did it
removed: it is no more
priority, preempt, flags, max_tres_per_user, max_tres_per_job, grp_tres: as sacctmgr sets them
settings: all of them, as JSON
`)},
		{Name: "reservations", About: "every reservation as it was made, changed and ended; the newest row of a name holds", tables: []string{"events"},
			rows: func(b *builder, _ string) string {
				at := func(name string) string {
					return "if(JSONHas(body, 'Reservation', '" + name + "'), toNullable(" + instant("intDiv(JSONExtractInt(body, 'Reservation', '"+name+"'), 1000)") + "), NULL)"
				}
				return b.fromEvents("'ReservationPut', 'ReservationRemoved'", "Reservation", []string{at("Start") + " AS start", at("End") + " AS end",
					"JSONExtract(body, 'Reservation', 'Nodes', 'Array(String)') AS nodes", "JSONExtract(body, 'Reservation', 'Users', 'Array(String)') AS users",
					"JSONExtract(body, 'Reservation', 'Accounts', 'Array(String)') AS accounts", "JSONExtractString(body, 'Reservation', 'TRES') AS tres", "JSONExtractString(body, 'Why') AS why"})
			}, Columns: viewColumns(`at: when that was said
name: of the reservation
by: who did it
removed: it is over
start, end: of this occurrence
nodes, users, accounts: what is reserved, and for whom
tres: what the nodes have
why: what ended it
`)},
		{Name: "fairshare", About: "use and shares of every association, as the controller notes them", tables: []string{"events", "associations"}, rows: func(b *builder, _ string) string {
			return "  SELECT at, n.1 AS id, a.account AS account, a.user AS user, n.2 / 1e6 AS shares, n.3 / 1e6 AS used, n.4 / 1e6 AS factor, n.5 AS raw\n  FROM (SELECT at, arrayJoin(JSONExtract(body, 'Shares', " +
				"'Array(Tuple(Assoc UInt32, Norm Int64, Used Int64, Factor Int64, Raw Int64))')) AS n FROM " + b.table("events") + " WHERE " + stored + " AND kind = 'SharesNoted') AS s" +
				"\n  LEFT JOIN (SELECT id, argMax(toString(account), seq) AS account, argMax(toString(user), seq) AS user FROM " + b.table("associations") + " WHERE " + stored + " GROUP BY id) AS a ON s.n.1 = a.id"
		}, Columns: viewColumns(`at: when
id, account, user: the association; user is empty for an account's own
shares, used: its part of all shares and of all use, from 0 to 1
factor: the fair-share factor, from 0 to 1
raw: decayed use, billing seconds
`)},
		{Name: "events", About: "the ledger, event by event (administrators and operators only)", tables: []string{"events"}, admin: true, Columns: viewColumns(
			`seq: its number
at: when
kind: what happened
actor_kind, actor_uid, actor, host, command: who did it, from where
uid, attempt, node: what it is about
body: all of it, as JSON
`)},
	}
}

// Viewer is who asks. An administrator sees every row.
type Viewer struct {
	User     string
	Accounts []string // that he coordinates, with those below them
	Admin    bool
}

// Sees are the views that are there for a viewer.
func (v Viewer) Sees() []string {
	var out []string
	for _, view := range Views() {
		if v.Admin || !view.admin {
			out = append(out, view.Name)
		}
	}
	return out
}

// SQL puts a user's question above the views. The question has passed Guard.
// Only the views that it names are made, so that a question costs what it
// reads.
func SQL(s Scope, v Viewer, text string) (Query, error) {
	sees := v.Sees()
	if err := Guard(text, sees); err != nil {
		return Query{}, err
	}
	tokens, err := cut(text)
	if err != nil {
		return Query{}, err
	}
	b := begin(s)
	if !v.Admin {
		b.bind("me", "String", v.User)
		b.bind("mine", "Array(String)", v.Accounts)
	}
	var with []string
	for _, view := range Views() {
		if slices.Contains(sees, view.Name) && slices.ContainsFunc(tokens, func(t token) bool { return t.named() && t.text == view.Name }) {
			with = append(with, "`"+view.Name+"` AS (\n"+view.sql(b, v)+"\n)")
		}
	}
	sql := "SELECT * FROM (\n" + text + "\n)"
	if len(with) > 0 {
		sql = "WITH " + strings.Join(with, ",\n") + "\n" + sql
	}
	return b.query(sql), nil
}

// sql is the view for a viewer.
func (w View) sql(b *builder, v Viewer) string {
	names := make([]string, len(w.Columns))
	for i, c := range w.Columns {
		names[i] = "`" + c.Name + "`"
	}
	if w.rows != nil {
		who := ""
		if !v.Admin && w.who != "" {
			who = " AND " + w.who
		}
		return w.rows(b, who)
	}
	var parts []string
	for _, table := range w.tables {
		rows, final := stored, ""
		switch table {
		case "live":
			rows, final = open, " FINAL"
		case "gpu_samples", "usage_samples":
			rows = readings
		}
		if !v.Admin && w.who != "" {
			rows += " AND " + w.who
		}
		cols := slices.Clone(names)
		for i, c := range w.Columns {
			// Both halves of a view must be of one type.
			if len(w.tables) > 1 && c.Name == "end" {
				cols[i] = "toNullable(end) AS end"
			}
		}
		parts = append(parts, "  SELECT "+strings.Join(cols, ", ")+"\n  FROM "+b.table(table)+final+"\n  WHERE "+rows)
	}
	return strings.Join(parts, "\n  UNION ALL\n")
}

// fromEvents is a view over events of some kinds that are about one thing by
// name, in a field of the body where it is put and at its top where it goes.
func (b *builder) fromEvents(kinds, field string, columns []string) string {
	return "  SELECT at, if(JSONHas(body, '" + field + "'), JSONExtractString(body, '" + field + "', 'Name'), JSONExtractString(body, 'Name')) AS name, toString(actor) AS by, endsWith(kind, 'Removed') AS removed, " +
		strings.Join(columns, ", ") + "\n  FROM " + b.table("events") + "\n  WHERE " + stored + " AND kind IN (" + kinds + ")"
}

// ViewsMarkdown is the page that describes the views.
func ViewsMarkdown() string {
	var b strings.Builder
	b.WriteString("# Views of muster sql\n\nGenerated from the definitions in accounting/query by `make generate`; do not edit.\n\n" +
		"`muster sql 'SELECT …'` asks these views. Users see the rows of their own jobs, coordinators those of their accounts and of the accounts below,\n" +
		"administrators and operators all. Times are UTC; `muster sql --explain-report NAME` prints the SQL behind a command.\n\n" +
		"```sql\nSELECT user, round(sum(alloc_gpus * dateDiff('second', start, end)) / 3600, 1) AS gpu_hours\nFROM jobs WHERE end >= now() - INTERVAL 7 DAY GROUP BY user ORDER BY gpu_hours DESC LIMIT 10\n```\n")
	for _, v := range Views() {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| column | what |\n|---|---|\n", v.Name, v.About)
		for _, c := range v.Columns {
			fmt.Fprintf(&b, "| `%s` | %s |\n", c.Name, c.About)
		}
	}
	b.WriteString("\n## Functions\n\nThese may be used, aggregate functions also with the endings If, Array, Distinct, OrNull and OrDefault:\n\n")
	names := append(functions(), aggregates()...)
	slices.Sort(names)
	b.WriteString("`" + strings.Join(slices.Compact(names), "` `") + "`\n")
	return b.String()
}

// Standing asks what a user may see beyond his own: his level and the accounts
// with their coordinators, as the newest events say.
func Standing(s Scope, user string) (level, accounts Query) {
	b := begin(s)
	p := b.bind("me", "String", user)
	level = b.query("SELECT toString(kind), JSONExtractString(body, 'User', 'AdminLevel')\nFROM " + b.table("events") + "\nWHERE " + stored +
		" AND ((kind = 'UserPut' AND JSONExtractString(body, 'User', 'Name') = " + p + ") OR (kind = 'UserRemoved' AND JSONExtractString(body, 'Name') = " + p + "))" +
		"\nORDER BY seq DESC\nLIMIT 1")
	b = begin(s)
	accounts = b.query("SELECT if(kind = 'AccountPut', JSONExtractString(body, 'Account', 'Name'), JSONExtractString(body, 'Name')) AS name,\n" +
		"  argMax(toString(kind), seq) AS last, argMax(JSONExtractString(body, 'Account', 'Parent'), seq) AS parent,\n" +
		"  argMax(JSONExtract(body, 'Account', 'Coordinators', 'Array(String)'), seq) AS coordinators\nFROM " + b.table("events") + "\nWHERE " + stored +
		" AND kind IN ('AccountPut', 'AccountRemoved')\nGROUP BY name\nORDER BY name")
	return level, accounts
}
