package query

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// StateRequeued stands beside the numbers of spec.JobState in a filter.
const StateRequeued uint32 = 100

// Acct is what sacct asks. Empty lists do not restrict.
type Acct struct {
	Jobs        []JobRef
	Users       []string // names, or numbers
	Accounts    []string
	Partitions  []string
	QOS         []string
	Names       []string
	Nodes       []string // host names
	States      []uint32
	Assocs      []uint32     // numbers of associations
	Start, End  spec.Instant // both included
	Allocations bool         // no steps
	Duplicates  bool         // every run, not only the last
}

// JobRef is one number of -j.
type JobRef struct {
	ID   uint32
	Task int64  // spec.NoTask = the job, or the whole array
	Step string // "" = all
	Het  uint32 // number of the leader of a heterogeneous job, of which only component ID is meant; 0 = it was not said
}

// ParseJobRef reads 123, 123_4, 123.batch, 123_4.0, 123+1, 123+1.0.
func ParseJobRef(text string) (JobRef, error) {
	bad := fmt.Errorf(
		"invalid job id %q: want a number, number_task, number+component or number.step",
		text,
	)
	id, step, stepped := strings.Cut(strings.TrimSpace(text), ".")
	if stepped && step == "" {
		return JobRef{}, bad
	}
	id, task, tasked := strings.Cut(id, "_")
	id, offset, het := strings.Cut(id, "+")
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil || (het && (tasked || n == 0)) {
		return JobRef{}, bad
	}
	ref := JobRef{ID: uint32(n), Task: spec.NoTask, Step: step}
	if het {
		k, err := strconv.ParseUint(offset, 10, 32)
		if err != nil || n+k > math.MaxUint32 {
			return JobRef{}, bad
		}
		ref.Het, ref.ID = uint32(n), uint32(n+k) // their numbers are in a row
	}
	if tasked {
		ref.Task, err = strconv.ParseInt(task, 10, 64)
		if err != nil || ref.Task < 0 {
			return JobRef{}, bad
		}
	}
	if step != "" && step != "batch" && step != "extern" && step != "interactive" {
		if _, err := strconv.ParseUint(step, 10, 31); err != nil {
			return JobRef{}, bad
		}
	}
	return ref, nil
}

// beginning is a start before everything.
const beginning spec.Instant = 1

// Window fills in the window that sacct means when -S or -E is not given. The
// midnight is that of the caller's zone before now.
func (a *Acct) Window(now, midnight spec.Instant) {
	start := a.Start
	if start == 0 {
		switch {
		case len(a.Jobs) > 0:
			a.Start = beginning
		case len(a.States) > 0:
			a.Start = now
		default:
			a.Start = midnight
		}
	}
	if a.End == 0 {
		a.End = now
		if len(a.States) > 0 && start > beginning {
			a.End = start
		}
	}
}

// RunPart is what a question about runs can ask for: the columns behind one
// field of the answer, or behind some.
type RunPart struct {
	Field   string // "" = always
	Columns []string
	Live    []string // of runs that are not over, where these are kept in another way; nil = the same
	More    []string // further fields for which it is needed
}

// owner is who a run belongs to, in one word, as jobs keeps it: the reader takes
// it apart (Owner), which costs him less than it does the store.
const owner = "concat(replaceAll(toString(user), '\\x1f', '?'), '\\x1f', replaceAll(toString(`group`), '\\x1f', '?'), '\\x1f', replaceAll(toString(account), '\\x1f', '?'), " +
	"'\\x1f', toString(user_id), '\\x1f', toString(group_id), '\\x1f', toString(assoc)) AS owner"

// OwnerSQL is the column owner of jobs as an expression over the columns of live.
func OwnerSQL() string { return strings.TrimSuffix(owner, " AS owner") }

// Who is whose a run is.
type Who struct {
	User, Group, Account   string
	UserID, GroupID, Assoc uint32
}

// Owner takes apart who a run belongs to.
func Owner(word string) Who {
	var parts [6]string
	for i := range parts {
		var more bool
		parts[i], word, more = strings.Cut(word, "\x1f")
		if !more {
			break
		}
	}
	number := func(s string) uint32 {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return 0
		}
		return uint32(n)
	}
	return Who{parts[0], parts[1], parts[2], number(parts[3]), number(parts[4]), number(parts[5])}
}

// RunParts lists the parts of a run in the order of their columns. Instants are
// microseconds; what lies behind the submission is its distance from it.
//
//muster:table one entry for each part
func RunParts() []RunPart {
	always := func(more ...string) []string {
		return append([]string{"uid", "restarts", "job_id", "array_job_id", "array_task", "array_tasks", "state", "batch", "suspended_us",
			"het_job_id", "het_offset", "het_size", "toUnixTimestamp64Micro(submit) AS submit_us"}, more...)
	}
	columns := func(field string, names ...string) RunPart { return RunPart{Field: field, Columns: names} }
	gap := func(at string) string {
		return "toUnixTimestamp64Micro(" + at + ") - toUnixTimestamp64Micro(submit) AS " + at + "_gap_us"
	}
	amounts := func(p string) []string {
		return []string{p + "cpus", p + "mem_mib", p + "nodes", p + "gpus", p + "billing", p + "tres"}
	}
	return []RunPart{
		{Columns: always("start_gap_us", "toUnixTimestamp64Micro(end) AS end_us"), Live: always(gap("start"), "ifNull(toUnixTimestamp64Micro(end), 0) AS end_us")},
		columns("attempt", "attempt"), columns("tasks_count", "count"),
		{Field: "eligible", Columns: []string{"eligible_gap_us"}, Live: []string{gap("eligible")}},
		columns("name", "name"),
		{Field: "user", Columns: []string{"owner"}, Live: []string{owner}, More: []string{"user_id", "group", "account", "assoc_id"}},
		columns("partition", "partition"), columns("qos", "qos"), columns("wckey", "wckey"),
		columns("comment", "comment"), columns("admin_comment", "admin_comment"), columns("system_comment", "system_comment"), columns("extra", "extra"), columns("container", "container"),
		columns("mcs_label", "mcs_label"), columns("failed_node", "failed_node"), columns("segment", "segment"), columns("exit_code", "exit_code", "exit_signal"), columns("derived_code", "derived_code", "derived_signal"),
		columns("cancelled_by", "cancelled_by"), columns("reason", "reason"), columns("time_limit", "limit_us"),
		columns("req_tres", amounts("req_")...), columns("alloc_tres", amounts("alloc_")...),
		columns("req_nodes", "req_nodes_min"), columns("tasks", "tasks"), columns("node_list", "node_list"), columns("constraint", "constraint"),
		columns("reservation", "reservation"), columns("licenses", "licenses"), columns("priority", "priority"), columns("flags", "backfill"),
		columns("work_dir", "work_dir"), columns("submit_line", "submit_line"), columns("stdin", "stdin"), columns("stdout", "stdout"), columns("stderr", "stderr"),
		columns("usage", "measured", "user_cpu_us", "system_cpu_us", "peak_rss", "mem_mib_s", "read_bytes", "write_bytes", "energy_mj", "maj_faults", "counters"),
		columns("gpu_uuids", "gpu_uuids"),
		columns("array_uid", "array_uid"),
		columns("cpus", "alloc_cpus AS cpus", "alloc_nodes AS nodes", "req_cpus AS cpus_asked"), // without the rest of the vectors
	}
}

// Runs asks for the runs that match, with the parts that are wanted: those that
// are over, and those that are not, or are but not at the scope's position. Both
// come in the order in which sacct shows them, to be merged by it. A job's runs
// then stand next to each other, the last one last: who wants only that one
// drops the others. The reader may sort those that are over himself (unsorted).
// Two questions that are asked at once are answered earlier
// than one over both, and cost less.
func (a *Acct) Runs(scope Scope, want func(RunPart) bool, unsorted bool) (over, live Query) {
	var ended, running []string
	for _, part := range RunParts() {
		if want(part) {
			ended = append(ended, part.Columns...)
			if part.Live == nil {
				part.Live = part.Columns
			}
			running = append(running, part.Live...)
		}
	}
	list := func(columns []string) string {
		for i, c := range columns {
			if !strings.Contains(c, " ") {
				columns[i] = "`" + c + "`"
			}
		}
		return strings.Join(columns, ", ")
	}
	const order = "\nORDER BY if(array_job_id = 0, job_id, array_job_id), array_task < 0, array_task, uid, restarts"
	b := newBuilder(scope)
	over = b.buildQuery("SELECT " + list(ended) + "\nFROM " + b.qualifyTable("jobs") + "\n" +
		first + stored + a.whereClause(b, true))
	if !unsorted {
		over.SQL += order
	}
	b = newBuilder(scope)
	return over, b.buildQuery("SELECT " + list(running) + "\nFROM " + b.qualifyTable("live") +
		" FINAL\nWHERE " + open + a.whereClause(b, false) + order)
}

// first begins conditions that are looked at before other columns are read. The
// store does that by itself, but takes a millisecond to plan it, which is a
// tenth of a small question.
const first = "PREWHERE "

// RunKey names a run.
type RunKey struct {
	UID      uint64
	Restarts uint32
}

// stepKeys is how many runs are named to the store one by one; beyond it the
// range of their uids is asked for, which may bring more.
const stepKeys = 1000

// uidCondition is the condition on rows of runs.
func uidCondition(b *builder, runs []RunKey) string {
	lo, hi := runs[0].UID, runs[0].UID
	list := make([]uint64, 0, min(len(runs), stepKeys))
	for _, run := range runs {
		lo, hi = min(lo, run.UID), max(hi, run.UID)
		if len(list) < stepKeys {
			list = append(list, run.UID)
		}
	}
	text := "uid BETWEEN " + b.bindValue("lo", "UInt64", lo) + " AND " +
		b.bindValue("hi", "UInt64", hi)
	if len(runs) <= stepKeys {
		text += " AND uid IN " + b.bindValue("uids", "Array(UInt64)", list)
	}
	return text
}

// StepParts are what a question about steps can leave out.
type StepParts struct{ Amounts, Usage, Nodes, Tasks, Container bool }

// Steps asks for the ended steps of runs, and perhaps of others: the reader
// keeps those that it looks for. What a step has of its run is not among them.
func (a *Acct) Steps(scope Scope, runs []RunKey, parts StepParts) Query {
	b := newBuilder(scope)
	return b.endedSteps(uidCondition(b, runs), parts)
}

// endedSteps asks for the ended steps that meet a condition.
func (b *builder) endedSteps(where string, parts StepParts) Query {
	columns := "uid, restarts, step, name, state, exit_code, exit_signal, " + asMicros("start") +
		" AS start_us, " + asMicros("end") + " AS end_us, alloc_cpus, alloc_nodes"
	if parts.Amounts {
		columns += ", alloc_mem_mib, alloc_gpus, alloc_billing, alloc_tres"
	}
	if parts.Usage {
		columns += ", measured, user_cpu_us, system_cpu_us, peak_rss, mem_mib_s, read_bytes, write_bytes, energy_mj, maj_faults, counters, peak_vm, cpu_khz, task_sum, task_min, task_max, task_min_at, task_max_at"
	}
	if parts.Nodes {
		columns += ", node_list"
	}
	if parts.Tasks {
		columns += ", tasks"
	}
	if parts.Container {
		columns += ", container"
	}
	return b.buildQuery("SELECT " + columns + "\nFROM " + b.qualifyTable("steps") + "\n" + first +
		stored + " AND " + where + "\nORDER BY uid, restarts, step")
}

// StepsByNumber asks for the ended steps of jobs by their numbers, also of
// other runs of the same numbers.
func (a *Acct) StepsByNumber(scope Scope, numbers []uint32, parts StepParts) Query {
	b := newBuilder(scope)
	return b.endedSteps("job_id IN "+b.bindValue("ids", "Array(UInt32)", numbers), parts)
}

// LiveSteps asks for the numbered steps of runs that run now.
func (a *Acct) LiveSteps(scope Scope, runs []RunKey) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT uid, restarts, step_id, step_name, toUnixTimestamp64Micro(step_start) AS start_us, step_task, step_node, step_container" +
		"\nFROM " + b.qualifyTable("live") +
		" FINAL\nARRAY JOIN step_ids AS step_id, step_names AS step_name, step_starts AS step_start, " +
		"step_tasks AS step_task, step_nodes AS step_node, step_containers AS step_container\nWHERE " + open + " AND " +
		uidCondition(b, runs) + "\nORDER BY uid, restarts, step_id")
}

// Submission asks for a job as it was submitted: who, and the hashes of the
// script and the environment.
func Submission(scope Scope, uid uint64) Query {
	b := newBuilder(scope)
	p := b.bindValue("uid", "UInt64", uid)
	return b.buildQuery("SELECT toUInt32(JSONExtractUInt(body, 'Spec', 'UID')), JSONExtractString(body, 'Spec', 'Script'), JSONExtractString(body, 'Spec', 'Env')" +
		"\nFROM " + b.qualifyTable("events") + "\nWHERE " + stored + " AND uid = " + p +
		" AND kind = 'JobSubmitted'")
}

// whereClause are further conditions on a run; over: it is one of those that are
// over, all of which have an end.
func (a *Acct) whereClause(b *builder, over bool) string {
	all := []string{""}
	list := func(column, name string, values []string) {
		if len(values) > 0 {
			all = append(all, column+" IN "+b.bindValue(name, "Array(String)", values))
		}
	}
	if w := a.windowClause(b, over); w != "" {
		all = append(all, w)
	}
	if len(a.Jobs) > 0 {
		all = append(all, a.namedJobs(b))
	}
	if len(a.Users) > 0 {
		user := "user IN " + b.bindValue("users", "Array(String)", a.Users)
		if ids := userNumbers(a.Users); len(ids) > 0 {
			user = "(" + user + " OR user_id IN " +
				b.bindValue("user_ids", "Array(UInt32)", ids) + ")"
		}
		all = append(all, user)
	}
	if len(a.Assocs) > 0 {
		all = append(all, "assoc IN "+b.bindValue("assocs", "Array(UInt32)", a.Assocs))
	}
	list("account", "accounts", a.Accounts)
	list("qos", "qos", a.QOS)
	list("name", "names", a.Names)
	if len(a.Partitions) > 0 {
		all = append(all, "hasAny(splitByChar(',', toString(partition)), "+
			b.bindValue("partitions", "Array(String)", a.Partitions)+")")
	}
	if len(a.Nodes) > 0 {
		all = append(all, onNodes(b, a.Nodes))
	}
	return strings.Join(all, " AND ")
}

// userNumbers are those of some words that are numbers of users, as they are
// written.
func userNumbers(words []string) (out []uint64) {
	for _, w := range words {
		if n, err := strconv.ParseUint(w, 10, 32); err == nil && strconv.FormatUint(n, 10) == w {
			out = append(out, n)
		}
	}
	return out
}

// onNodes keeps the runs that held a node.
func onNodes(b *builder, nodes []string) string {
	p := b.bindValue("nodes", "Array(String)", nodes)
	return "(uid, restarts) IN (SELECT uid, restarts FROM " + b.qualifyTable("job_nodes") +
		" WHERE " + stored + " AND node IN " + p +
		" UNION ALL SELECT uid, restarts FROM " + b.qualifyTable("live") + " FINAL WHERE " +
		open + " AND hasAny(held_nodes, " + p + "))"
}

// namedJobs keeps the jobs that are named. An array's number means all its tasks; a
// task that has no record of its own is shown by the array's.
func (a *Acct) namedJobs(b *builder) string {
	var whole, taskIDs []uint64
	var tasks []string
	for i, job := range a.Jobs {
		if job.Het != 0 {
			n := strconv.Itoa(i)
			tasks = append(tasks, "(job_id = "+b.bindValue("part"+n, "UInt32", job.ID)+
				" AND het_job_id = "+b.bindValue("het"+n, "UInt32", job.Het)+")")
			taskIDs = append(taskIDs, uint64(job.ID))
			continue
		}
		if job.Task == spec.NoTask {
			whole = append(whole, uint64(job.ID))
			continue
		}
		taskIDs = append(taskIDs, uint64(job.ID))
		n := strconv.Itoa(i)
		tasks = append(tasks, "(array_job_id = "+b.bindValue("array"+n, "UInt32", job.ID)+
			" AND (array_task = "+b.bindValue("task"+n, "Int64", job.Task)+" OR array_task < 0))")
	}
	var either []string
	if len(whole) > 0 {
		either = append(either, keepNumbered(b.bindValue("ids", "Array(UInt32)", whole)))
	}
	if len(tasks) > 0 {
		// The first condition is what the index knows.
		either = append(either, "("+keepNumbered(b.bindValue("arrays", "Array(UInt32)", taskIDs))+
			" AND ("+strings.Join(tasks, " OR ")+"))")
	}
	return "(" + strings.Join(either, " OR ") + ")"
}

// keepNumbered keeps runs by the numbers that people see. It says so twice: once
// for the index that knows where numbers in a row lie, once for the one that
// knows them wherever they lie.
func keepNumbered(list string) string {
	return "((job_id IN " + list + " OR if(array_job_id = 0, job_id, array_job_id) IN " + list +
		") AND hasAny([job_id, array_job_id], " + list + "))"
}

// windowClause keeps what lies in the window. Without states that is every run that
// had begun to count by its end and was not over at its beginning; with
// states, a run must have been in one of them within the window.
//
// As to Slurm, a job begins to count, and to be pending, when neither a hold nor a begin time nor a
// dependency keeps it any more. A job that is named is shown in any case.
func (a *Acct) windowClause(b *builder, over bool) string {
	s := "fromUnixTimestamp64Micro(" + b.bindMicros("start_us", a.Start) + ", 'UTC')"
	e := "fromUnixTimestamp64Micro(" + b.bindMicros("end_us", a.End) + ", 'UTC')"
	alive := "end >= " + s
	if !over {
		alive = "(" + alive + " OR isNull(end))"
	}
	eligible := "ifNull(ifNull(eligible, start) <= " + e + ", false)"
	if len(a.States) == 0 {
		var both []string // but for what every run meets: each condition has its price
		if a.End < b.scope.Now || len(a.Jobs) == 0 {
			both = append(
				both,
				"submit <= "+e,
			) // a job that is named is shown also if the clock was set back since
		}
		if len(a.Jobs) == 0 {
			both = append(both, eligible)
		}
		if a.Start > beginning {
			both = append(both, alive)
		}
		return strings.Join(both, " AND ")
	}
	var either, ended []string
	for _, code := range a.States {
		switch state := spec.JobState(code); {
		case code == StateRequeued:
			ended = append(ended, "REQUEUED")
		case code > uint32(spec.OutOfMemory):
		case state == spec.Pending:
			either = append(either, "(submit <= "+e+" AND "+eligible+" AND (start >= "+s+" OR isNull(start)) AND "+
				alive+")")
		case state == spec.Running:
			either = append(either, "(start <= "+e+" AND "+alive+")")
		case state == spec.Suspended:
			either = append(either, "(state = 'SUSPENDED' AND start <= "+e+")")
		case state.Terminal():
			ended = append(ended, state.String())
		}
	}
	if len(ended) > 0 {
		either = append(either, "(state IN "+b.bindValue("states", "Array(String)", ended)+
			" AND end >= "+s+" AND end <= "+e+")")
	}
	if len(either) == 0 {
		return "false"
	}
	return "(" + strings.Join(either, " OR ") + ")"
}
