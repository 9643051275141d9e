package query

import (
	"fmt"
	"github.com/musterhpc/muster/spec"
	"slices"
	"strings"
)

// View is a table as muster sql shows it: whole batches of the ledger, each
// run once, and only the rows that the asker may see.
type View struct {
	Name    string
	About   string
	Example string // a question that it answers
	Columns []ViewColumn
	tables  []string // that it is made of, the first one's rows and the second one's
	where   string   // besides what every view asks
	who     string   // condition on rows that a user may see; "" = everyone sees all
	admin   bool     // only administrators and operators see any
	hides   string   // word of PrivateData that takes the view from users
	// private is the word of PrivateData that restricts users to the rows that
	// privateWho tells.
	private    string
	privateWho string

	// rows makes the view where it is not rows of tables; who is the condition
	// on rows that the viewer may see, with AND before it.
	rows func(b *builder, who string) string
}

// ownAssociations are the rows about associations that PrivateData=usage leaves to a user: the
// accounts' own, his, and those of accounts that he coordinates. sshare shows the same.
const ownAssociations = "(user = '' OR user = {me:String} OR account IN {mine:Array(String)})"

// ViewColumn is a column of a view.
type ViewColumn struct{ Name, About string }

// viewColumns reads lines of names and what they are: one text for all of a
// line, or one for each, with a / between them.
func viewColumns(text string) []ViewColumn {
	var columns []ViewColumn
	for line := range strings.Lines(text) {
		list, about, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		names, each := strings.Split(list, ", "), strings.Split(about, " / ")
		for i, name := range names {
			if len(each) == len(names) {
				about = each[i]
			}
			columns = append(columns, ViewColumn{name, about})
		}
	}
	return columns
}

// usedBy are the columns of what was used.
func usedBy() string {
	return usedColumns + "counters: what only some nodes can count, by name; one that is missing was not counted: " +
		counterTexts() + "\n"
}

// counterTexts says what each counter is.
func counterTexts() string {
	var out []string
	for _, counter := range spec.Counters() {
		text := counter.Name + " = "
		if counter.Unit != "" {
			text += counter.Unit + " "
		}
		out = append(out, text+counter.Help)
	}
	return strings.Join(out, "; ")
}

const usedColumns = `measured: whether anything was measured
user_cpu_us, system_cpu_us: CPU time of the programs, in microseconds / CPU time of the kernel for them, in microseconds
peak_rss: largest memory in bytes; NULL = not measured
mem_mib_s: memory over time, MiB times seconds
read_bytes, write_bytes: bytes read from disks / bytes written to disks
energy_mj: energy in millijoules: of a job or a step with its GPUs, of a node without them, which have rows of their own; NULL = not measured
maj_faults: page faults that read a disk
`

// Views are the tables of muster sql.
//
//muster:table one entry for each view
func Views() []View {
	const key = "uid: number of the job, never used twice\nrestarts: which of its runs, from 0\nattempt: number of the start; 0 = never started\njob_id: number that people see\n"
	const owner = "user, account, partition, qos: whose it is / the account it is charged to / where it ran / its QOS\n"
	const mine = "(user = {me:String} OR account IN {mine:Array(String)})"
	return []View{
		{Name: "jobs", Example: "SELECT user, count() AS runs, round(avg(dateDiff('second', submit, start)) / 60, 1) AS minutes_waited FROM jobs WHERE start >= now() - INTERVAL 7 DAY GROUP BY user ORDER BY minutes_waited DESC",
			About: "one row for each run of a job, open ones too", tables: []string{"jobs", "live"}, who: mine, Columns: viewColumns(key +
				`array_job_id: number of the array; 0 = none
array_task: task of the array; -1 = none, or a record that stands for several
array_tasks: those it stands for
het_job_id: number of the leader of its heterogeneous job; 0 = none
het_offset, het_size: which component of that it is, from 0 / how many components that has
count: how many jobs the row stands for: sums and counts multiply by it
name, user, group, account, partition, qos, wckey, comment: its name / its user / its group / the account it is charged to / where it ran, or shall / its QOS / its wckey / its comment
admin_comment, system_comment, extra: what administrators say of it / what the site's programs say of it / its user's second text (--extra)
container: image of its script, with the digest that its name meant; empty = it ran in the node's files
mcs_label: whose jobs it shares nodes with
failed_node: the first of its nodes that was lost while it ran
segment: nodes of a segment that it asked for; 0 = none
user_id, group_id: number of the user / number of the group
assoc: number of the association
state: PENDING, RUNNING, COMPLETED, FAILED, REQUEUED and so on
exit_code, exit_signal: exit code; 0 = well / the signal that ended it; 0 = none
derived_code, derived_signal: the worst exit code of its steps / and its signal
cancelled_by: user number of who cancelled it; NULL = nobody
reason: the last reason for which it waited
submit: when it was submitted, or requeued
eligible, start, end: since when nothing but room was missing; NULL = not yet / when it started; NULL = not yet, or never / when it was over; NULL = not yet
promised: the first start that it was promised; NULL = none, or void since it was held or changed
limit_us: time limit in microseconds; -1 = none
suspended_us: time it was suspended, in microseconds; without the time since then where it is suspended now
req_cpus, req_mem_mib, req_nodes, req_gpus, req_billing, req_tres: CPUs it asked for / memory it asked for, in MiB / nodes it asked for / GPUs it asked for / what that would be billed as / what else it asked for, by name
alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, alloc_billing, alloc_tres: CPUs it got / memory it got, in MiB / nodes it got / GPUs it got / what it was billed as / what else it got, by name
tasks: number of tasks
node_list: its nodes, as a list expression
constraint, reservation, licenses: features of nodes it asked for / the reservation it ran in / licenses it asked for
priority: its priority at its start
backfill: started ahead of its turn
batch: it has a script
work_dir, submit_line, stdin, stdout, stderr: folder it ran in / how it was submitted / file it read / file its output went to / file its errors went to
gpu_uuids: its devices
` + usedBy() + `gpu_measured_us, gpu_util_us, gpu_no_process_us, gpu_idle_us, gpu_busy_us: GPU time that was measured, in microseconds / utilisation times time; divided by gpu_measured_us it is the mean / time its GPUs had no process / time they had one that did nothing / time they worked
`)},
		{Name: "steps", Example: "SELECT job_id, steps.step, name, round(peak_rss / 1073741824, 2) AS gib FROM steps ORDER BY peak_rss DESC NULLS LAST LIMIT 10",
			About: "one row for each step that is over; -5 (batch) is the script itself", tables: []string{"steps"}, who: mine, Columns: viewColumns(key +
				`step: its number; -5 = the batch script, -4 extern, -6 interactive
name, user, account: its name / whose it is / the account it is charged to
state, exit_code, exit_signal: how it ended / exit code; 0 = well / the signal that ended it; 0 = none
start, end: when it began / when it was over
tasks: number of tasks
node_list: its nodes, as a list expression
alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, alloc_billing, alloc_tres: CPUs it had / memory it had, in MiB / nodes it had / GPUs it had / always 0: steps are not billed / what else it had, by name
` + usedBy() + `peak_vm: largest address space in bytes; NULL = nobody looked while it ran
cpu_khz: mean frequency of the CPUs it ran on, weighted by CPU time; 0 = not known
task_sum, task_min, task_max: sum over the tasks by kind (cpu_us, rss, read, write, pages) / the task with the least of it / the task with the most of it; divided by the mean, sum by tasks, it is how unevenly the work lay
task_min_at, task_max_at: which task that was, as kind=rank@node / which task that was, as kind=rank@node
container: image of its tasks, with the digest that its name meant; empty = they ran in the node's files
`)},
		{Name: "job_nodes", Example: "SELECT node, sum(cpus * dateDiff('second', job_nodes.from, job_nodes.to)) / 3600 AS cpu_hours FROM job_nodes GROUP BY node ORDER BY node",
			About:  "what each run held and used on each of its nodes; of one that is not over, up to now, as far as it was sampled",
			tables: []string{"job_nodes", "live", "usage_samples"}, who: mine,
			rows: func(b *builder, who string) string {
				return "  " + b.nodeRows(b.viewColumns("job_nodes"), who, false)
			}, Columns: viewColumns(key + owner +
				`node: name of the node
from, to: since when it was held / when it was given back
end: when the run was over; of one that is not, as to
cpus, mem_mib, gpus, tasks: CPUs held there / memory held there, in MiB / GPUs held there / tasks that ran there
lost: the node was lost, so nothing was measured
` + usedBy())},
		{Name: "job_gpus", Example: "SELECT user, round(sum(no_process_us + idle_us) / 3600e6, 2) AS idle_gpu_hours FROM job_gpus GROUP BY user ORDER BY idle_gpu_hours DESC",
			About:  "which run held which device and what it did with it; of one that is not over, up to now, as far as it was sampled",
			tables: []string{"job_gpus", "live", "gpu_samples"}, who: mine,
			rows: func(b *builder, who string) string {
				return "  " + b.deviceRows(b.viewColumns("job_gpus"), who, false)
			}, Columns: viewColumns(key + owner +
				`node: name of the node
from, to, end: since when it was held / when it was given back, or until when it was sampled / when the run was over; of one that is not, as to
gpu_uuid, gpu_index, gpu_type: the device / its number on the node / its type in Gres
measured: whether anything was measured
no_process_us, idle_us, busy_us: time without a process, with one that did nothing, with one that worked, in microseconds; of a run that had a part of the device, as all that follows, times that part
util_us, sm_us, tensor_us: utilisation times time, in microseconds / activity of the multiprocessors times time / activity of the tensor pipes times time
peak_mem: largest memory in bytes
mem_mib_s: memory over time, MiB times seconds
energy_mj: energy in millijoules
throttled_us: time throttled, in microseconds
xids: errors of the driver
method: how that became the run's: counted (it had the device alone), by slices (a MIG instance: counted, but for the energy, which is its device's by compute slices of seven), by share (it had a part), sampled (the run is not over: from the samples); '' = nothing was measured, or it was stored by an older version
share: the part of the device that the run had, in thousandths: 1000 = all; 0 = as above
`)},
		{Name: "gpu_samples", Example: "SELECT node, gpu_index, max(temp_c) AS hottest, round(avg(power_w)) AS watts FROM gpu_samples WHERE at >= now() - INTERVAL 1 HOUR GROUP BY node, gpu_index ORDER BY node, gpu_index",
			About:  "what each GPU and MIG instance did every ten seconds, and in whose hands; a reading that was sent twice may be there twice for some minutes",
			tables: []string{"gpu_samples"}, who: mine, Columns: viewColumns(
				`at: when
node: name of the node
gpu_uuid, gpu_index, profile: the device or MIG instance / its number on the node / the MIG profile; empty = a whole device
uid, attempt, job_id: the job that held it alone; 0 = none did
user, account, partition: whose that is / its account / its partition
seconds: to the next reading: sums of it are GPU time
util, mem_util: utilisation in percent; NULL = not measured, as all that follows / time that memory was read or written, in percent
engine, sm, occupancy, tensor, dram: the graphics engine was active, in thousandths / the multiprocessors were / warps resident on them / the tensor pipes were active / the memory interface was
memory_mib: memory in use in MiB
power_w, energy_j: power in watts / energy since the driver was loaded, in joules
temp_c, mem_temp_c: temperature of the device, in degrees Celsius / of its memory
sm_mhz, mem_mhz: clock of the multiprocessors, in MHz / of the memory
throttle: what holds the clocks down, as the bits of DCGM
pcie_tx_mb, pcie_rx_mb, nvlink_tx_mb, nvlink_rx_mb: sent over PCIe, in MB a second / received over PCIe / sent over NVLink / received over NVLink
xid: number of the last error of the driver; 0 = none
processes: how many ran on the device
`)},
		{Name: "usage_samples", Example: "SELECT job_id, max(rss_kib) / 1048576 AS gib FROM usage_samples WHERE at >= now() - INTERVAL 1 DAY GROUP BY job_id ORDER BY gib DESC LIMIT 10",
			About:  "what each run used of CPU and memory on each node, every JobAcctGatherFrequency; a reading that was sent twice may be there twice for some minutes",
			tables: []string{"usage_samples"}, who: mine, Columns: viewColumns(
				`at: when
node: name of the node
uid, attempt, job_id: which start of which job
step: number of the step; -5 = the batch script
user, account, partition: whose that is / its account / its partition
seconds: to the next reading
cpu: CPUs in use since the reading before, in thousandths; NULL = not known
rss_kib: memory resident in KiB
`)},
		{Name: "pending_reasons", Example: "SELECT code, sum(count) AS jobs FROM pending_reasons WHERE at >= now() - INTERVAL 1 DAY GROUP BY code ORDER BY jobs DESC",
			About: "why a run waits from an instant on, until its next reason, its start or its end", tables: []string{"pending_reasons"}, who: mine, Columns: viewColumns(
				`uid, restarts, job_id, count: which run, and how many jobs it stands for
` + owner + `at: since when
code: the reason
tres, limit, in_use, asked: the limit that is in the way, with numbers
subject: whose limit
blocker: uid of the job that is in the way
detail: the rest in words
`)},
		{Name: "node_states", Example: "SELECT node, at, state, reason FROM node_states WHERE class = 'down' AND NOT restated ORDER BY at DESC LIMIT 20",
			About: "what holds for a node from an instant on; said again at each midnight UTC (restated)", tables: []string{"node_states"}, hides: "nodes", Columns: viewColumns(
				`at: since when
node: its name
state, class: its state, as sinfo has it / whether that is up, down, planned or gone
restated: nothing has changed
cpus, mem_mib, gpus, tres: CPUs it offers / memory it offers, in MiB / GPUs it offers / what else it offers, by name
partitions: in which it is
reason, by: why it is so / who said so
`)},
		{Name: "holds", Example: "SELECT namespace, count() AS pods, round(sum(gpus * dateDiff('second', started, ifNull(ended, now64(6, 'UTC')))) / 3600, 1) AS gpu_hours FROM holds GROUP BY namespace ORDER BY gpu_hours DESC",
			About: "what other schedulers, Kubernetes, have had on nodes (administrators and operators only)", tables: []string{"events"}, admin: true,
			rows: func(b *builder, _ string) string { return holdRows(b) }, Columns: viewColumns(
				`started, ended: when it was taken / when it was given back; NULL = it is there
node: the node that it is on
id, namespace, pod: the other scheduler's own name for it, the UID of a pod / whom it is accounted to / as people know it
milli_cpu, mem_mib, gpus: thousandths of CPUs / memory in MiB / GPUs
gpu_uuids: those devices
priority: the other scheduler's
`)},
		{Name: "associations", Example: "SELECT id, argMax(account, at) AS account, argMax(user, at) AS user, argMax(shares, at) AS shares FROM associations GROUP BY id HAVING NOT argMax(removed, at) ORDER BY id",
			About: "associations as they were made and changed; the newest row of an id holds", tables: []string{"associations"},
			private: "usage", privateWho: ownAssociations, Columns: viewColumns(
				`at: when that was said
id: its number
account, user, partition, parent: its account / its user; empty = the account itself / its partition; empty = any / number of the association above it
shares: its part among those beside it
removed: it is no more
`)},
		{Name: "rollup_days", Example: "SELECT toStartOfMonth(day) AS month, account, round(sum(gpu_us) / 3600e6, 1) AS gpu_hours FROM rollup_days GROUP BY month, account ORDER BY month, account",
			About: "what was held on each UTC day, added up, with what runs now up to now", tables: []string{"rollup_days"}, who: mine,
			rows: func(b *builder, who string) string {
				return b.upToNow("rollup_days", RolledDayColumns(), b.splitIntoDays, who)
			}, Columns: viewColumns(
				`day: in UTC
account, user, partition, qos, wckey: the account / the user / the partition / the QOS / the wckey
cpus: how many CPUs the runs had
began: runs that began that day
carried: runs that had begun before and still ran
cpu_us, mem_mib_us, node_us, gpu_us, billing_us: CPUs times microseconds / memory in MiB times microseconds / nodes times microseconds / GPUs times microseconds / what is billed times microseconds
energy_mj: energy in millijoules
`)},
		{Name: "rollup_quarters", Example: "SELECT toDate(at, 'Europe/Berlin') AS day, round(sumIf(cpu_us, NOT waiting) / 3600e6, 1) AS held, round(sumIf(cpu_us, waiting) / 3600e6, 1) AS waited_for FROM rollup_quarters GROUP BY day ORDER BY day",
			About:  "what was held and waited for in each quarter of an hour, up to now: the days of every time zone add up from them, those of 23 and 25 hours too (coordinators see their accounts)",
			tables: []string{"rollup_quarters"}, who: "account IN {mine:Array(String)}",
			rows: func(b *builder, who string) string {
				return b.upToNow("rollup_quarters", RolledQuarterColumns(), b.splitIntoQuarters, who)
			}, Columns: viewColumns(
				`at: when it begins, UTC
account, partition, qos: the account / the partition / the QOS
waiting: it was asked for and not there yet; else it was held
cpu_us, mem_mib_us, node_us, gpu_us, billing_us: CPUs times microseconds / memory in MiB times microseconds / nodes times microseconds / GPUs times microseconds / what is billed times microseconds
`)},
		{Name: "qos_history", Example: "SELECT at, by, name, priority, removed FROM qos_history ORDER BY at",
			About: "every QOS as it was made and changed; the newest row of a name holds", tables: []string{"events"},
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
		{Name: "reservations", Example: "SELECT name, start, end, accounts, nodes FROM reservations WHERE NOT removed ORDER BY start",
			About: "every reservation as it was made, changed and ended; the newest row of a name holds", tables: []string{"events"}, hides: "reservations",
			rows: func(b *builder, _ string) string {
				at := func(name string) string {
					return "if(JSONHas(body, 'Reservation', '" + name + "'), toNullable(" + microsToInstant("intDiv(JSONExtractInt(body, 'Reservation', '"+name+"'), 1000)") + "), NULL)"
				}
				return b.fromEvents("'ReservationPut', 'ReservationRemoved'", "Reservation", []string{at("Start") + " AS start", at("End") + " AS end",
					"JSONExtract(body, 'Reservation', 'Nodes', 'Array(String)') AS nodes", "JSONExtract(body, 'Reservation', 'Users', 'Array(String)') AS users",
					"JSONExtract(body, 'Reservation', 'Accounts', 'Array(String)') AS accounts", "JSONExtractString(body, 'Reservation', 'TRES') AS tres", "JSONExtractString(body, 'Why') AS why"})
			}, Columns: viewColumns(`at: when that was said
name: of the reservation
by: who did it
removed: it is over
start, end: when this occurrence begins / when it ends
nodes, users, accounts: what is reserved / for which users / for which accounts
tres: what the nodes have
why: what ended it
`)},
		{Name: "fairshare", Example: "SELECT toDate(at) AS day, account, user, argMax(factor, at) AS factor FROM fairshare WHERE at >= now() - INTERVAL 30 DAY AND user != '' GROUP BY day, account, user ORDER BY account, user, day",
			About: "use and shares of every association, as the controller notes them", tables: []string{"events", "associations"},
			private: "usage", privateWho: ownAssociations, rows: func(b *builder, who string) string {
				return "  SELECT at, n.1 AS id, a.account AS account, a.user AS user, n.2 / 1e6 AS shares, n.3 / 1e6 AS used, n.4 / 1e6 AS factor, n.5 AS raw\n  FROM (SELECT at, arrayJoin(JSONExtract(body, 'Shares', " +
					"'Array(Tuple(Assoc UInt32, Norm Int64, Used Int64, Factor Int64, Raw Int64))')) AS n FROM " + b.qualifyTable("events") + " WHERE " + stored + " AND kind = 'SharesNoted') AS s" +
					"\n  LEFT JOIN (SELECT id, argMax(toString(account), seq) AS account, argMax(toString(user), seq) AS user FROM " + b.qualifyTable("associations") + " WHERE " + b.knownEvents() + " GROUP BY id) AS a ON s.n.1 = a.id\n  WHERE 1" + who
			}, Columns: viewColumns(`at: when
id, account, user: the association; user is empty for an account's own
shares, used: its part of all shares, from 0 to 1 / its part of all use, from 0 to 1
factor: the fair-share factor, from 0 to 1
raw: decayed use, billing seconds
`)},
		{Name: "events", Example: "SELECT kind, count() AS events FROM events WHERE at >= now() - INTERVAL 1 DAY GROUP BY kind ORDER BY events DESC",
			About: "the ledger, event by event (administrators and operators only)", tables: []string{"events"}, admin: true, Columns: viewColumns(
				`seq: its number
at: when
kind: what happened
actor_kind, actor_uid, actor, host, command: a user, a node or the controller / number of the user / who it was / from which host / with which command
uid, attempt, node: the job it is about; 0 = none / which start of it / the node it is about
body: all of it, as JSON
`)},
	}
}

// Viewer is who asks. An administrator sees every row.
type Viewer struct {
	User     string
	Accounts []string // that he coordinates, with those below them
	Admin    bool
	Private  []string // words of PrivateData that hold for him
}

// Sees are the views that are there for a viewer.
func (v Viewer) Sees() []string {
	var out []string
	for _, view := range Views() {
		if v.Admin || !view.admin && !slices.Contains(v.Private, view.hides) {
			out = append(out, view.Name)
		}
	}
	return out
}

// SQL puts a user's question above the views. The question has passed Guard.
// Only the views that it names are made, so that a question costs what it
// reads.
func SQL(scope Scope, viewer Viewer, text string) (Query, error) {
	sees := viewer.Sees()
	if err := Guard(text, sees, scope.Database); err != nil {
		return Query{}, err
	}
	tokens, err := tokenize(text)
	if err != nil {
		return Query{}, err
	}
	b := newBuilder(scope)
	if !viewer.Admin {
		b.bindValue("me", "String", viewer.User)
		b.bindValue("mine", "Array(String)", viewer.Accounts)
	}
	var with []string
	for _, view := range Views() {
		if slices.Contains(sees, view.Name) &&
			slices.ContainsFunc(
				tokens,
				func(t token) bool { return t.isName() && t.text == view.Name },
			) {
			with = append(with, "`"+view.Name+"` AS (\n"+view.viewSQL(b, viewer)+"\n)")
		}
	}
	sql := "SELECT * FROM (\n" + text + "\n)"
	if len(with) > 0 {
		sql = "WITH " + strings.Join(with, ",\n") + "\n" + sql
	}
	return b.buildQuery(sql), nil
}

// viewSQL is the view for a viewer.
func (w View) viewSQL(b *builder, viewer Viewer) string {
	names := make([]string, len(w.Columns))
	for i, column := range w.Columns {
		names[i] = "`" + column.Name + "`"
	}
	if w.rows != nil {
		who := ""
		if !viewer.Admin && w.who != "" {
			who = " AND " + w.who
		}
		if !viewer.Admin && slices.Contains(viewer.Private, w.private) {
			who += " AND " + w.privateWho
		}
		return w.rows(b, who)
	}
	var parts []string
	for _, table := range w.tables {
		rows, final := stored, ""
		switch table {
		case "live":
			rows, final = open, " FINAL"
		case "associations":
			rows = b.knownEvents()
		case "gpu_samples", "usage_samples":
			rows = readings
		}
		if !viewer.Admin && w.who != "" {
			rows += " AND " + w.who
		}
		if !viewer.Admin && slices.Contains(viewer.Private, w.private) {
			rows += " AND " + w.privateWho
		}
		cols := slices.Clone(names)
		for i, column := range w.Columns {
			// Both halves of a view must be of one type.
			if len(w.tables) > 1 && column.Name == "end" {
				cols[i] = "toNullable(end) AS end"
			}
		}
		parts = append(parts, "  SELECT "+strings.Join(cols, ", ")+"\n  FROM "+
			b.qualifyTable(table)+final+"\n  WHERE "+rows)
	}
	return strings.Join(parts, "\n  UNION ALL\n")
}

// viewColumns lists the columns of a view, as they stand in a query.
func (b *builder) viewColumns(name string) string {
	for _, view := range Views() {
		if view.Name != name {
			continue
		}
		quoted := make([]string, len(view.Columns))
		for i, column := range view.Columns {
			quoted[i] = "`" + column.Name + "`"
		}
		return strings.Join(quoted, ", ")
	}
	return ""
}

// fromEvents is a view over events of some kinds that are about one thing by
// name, in a field of the body where it is put and at its top where it goes.
func (b *builder) fromEvents(kinds, field string, columns []string) string {
	return "  SELECT at, if(JSONHas(body, '" + field + "'), JSONExtractString(body, '" + field +
		"', 'Name'), JSONExtractString(body, 'Name')) AS name, toString(actor) AS by, endsWith(kind, 'Removed') AS removed, " +
		strings.Join(columns, ", ") + "\n  FROM " + b.qualifyTable("events") + "\n  WHERE " +
		stored + " AND kind IN (" + kinds + ")"
}

// ViewsMarkdown is the page that describes the views.
func ViewsMarkdown() string {
	var text strings.Builder
	text.WriteString(
		"# Views of muster sql\n\nGenerated from the definitions in accounting/query by `make generate`; do not edit.\n\n" +
			"`muster sql 'SELECT …'` asks these views. Users see the rows of their own jobs, coordinators those of their accounts and of the accounts below,\n" +
			"administrators and operators all. Times are UTC; `muster sql --explain-report NAME` prints the SQL behind a command. A column whose name is a word of SQL\n(step, from) is written with its view: `steps.step`.\n\n" +
			"```sql\nSELECT user, round(sum(alloc_gpus * dateDiff('second', start, end)) / 3600, 1) AS gpu_hours\nFROM jobs WHERE end >= now() - INTERVAL 7 DAY GROUP BY user ORDER BY gpu_hours DESC LIMIT 10\n```\n",
	)
	for _, view := range Views() {
		fmt.Fprintf(
			&text,
			"\n## %s\n\n%s.\n\n```sql\n%s\n```\n\n| column | what |\n|---|---|\n",
			view.Name,
			view.About,
			view.Example,
		)
		for _, column := range view.Columns {
			fmt.Fprintf(&text, "| `%s` | %s |\n", column.Name, column.About)
		}
	}
	text.WriteString(
		"\n## Stored views\n\nThese stand in the database beside the tables, for Grafana and others that ask the store itself with a login of their own, which sees the rows of\n" +
			"all users. They count each run once, and runs that are not over up to now, as `muster kpi` and the views above do. `from` and `until` are Unix seconds.\n\n" +
			"```\nSELECT user, sum(no_process_s + idle_s) / 3600 AS idle_gpu_hours\nFROM gpus_within(cluster = 'lab', from = toUnixTimestamp(now() - 86400), until = toUnixTimestamp(now())) GROUP BY user\n```\n",
	)
	for _, v := range StoredViews() {
		fmt.Fprintf(
			&text,
			"\n### %s(%s)\n\n%s.\n\n| column | what |\n|---|---|\n",
			v.Name,
			strings.Join(v.Params, ", "),
			v.About,
		)
		for _, column := range v.Columns {
			fmt.Fprintf(&text, "| `%s` | %s |\n", column.Name, column.About)
		}
	}
	text.WriteString(
		"\n## Functions\n\nThese may be used, aggregate functions also with the endings If, Array, Distinct, OrNull and OrDefault:\n\n",
	)
	names := append(ordinaryFunctions(), aggregateFunctions()...)
	slices.Sort(names)
	text.WriteString("`" + strings.Join(slices.Compact(names), "` `") + "`\n")
	return text.String()
}

// Standing asks what a user may see beyond his own: his level and the accounts
// with their coordinators, as the newest events say.
func Standing(scope Scope, user string) (level, accounts Query) {
	b := newBuilder(scope)
	p := b.bindValue("me", "String", user)
	level = b.buildQuery("SELECT toString(kind), JSONExtractString(body, 'User', 'AdminLevel')\nFROM " +
		b.qualifyTable("events") + "\nWHERE " + b.knownEvents() +
		" AND ((kind = 'UserPut' AND JSONExtractString(body, 'User', 'Name') = " + p +
		") OR (kind = 'UserRemoved' AND JSONExtractString(body, 'Name') = " + p + "))" +
		"\nORDER BY seq DESC\nLIMIT 1")
	b = newBuilder(scope)
	accounts = b.buildQuery("SELECT if(kind = 'AccountPut', JSONExtractString(body, 'Account', 'Name'), JSONExtractString(body, 'Name')) AS name,\n" +
		"  argMax(toString(kind), seq) AS last, argMax(JSONExtractString(body, 'Account', 'Parent'), seq) AS parent,\n" +
		"  argMax(JSONExtract(body, 'Account', 'Coordinators', 'Array(String)'), seq) AS coordinators\nFROM " +
		b.qualifyTable("events") + "\nWHERE " + b.knownEvents() +
		" AND kind IN ('AccountPut', 'AccountRemoved')\nGROUP BY name\nORDER BY name")
	return level, accounts
}
