package clickhouse

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// column turns one field of many rows into one column of a block.
type column[R any] struct {
	name   string
	values func(rows []R) any
	encode encoder[R] // writes the same values straight into a block
	// isDefault tells whether every value is what the server puts into an omitted column: zero, empty
	// or NULL. It is nil if that is not known.
	isDefault func(rows []R) bool
}

func defineColumn[R, V any](name string, get func(*R) V) column[R] {
	return column[R]{name, func(rows []R) any {
		out := make([]V, len(rows))
		for i := range rows {
			out[i] = get(&rows[i])
		}
		return out
	}, encoderOf(get), isDefaultOf(get)}
}

// timeCol is an instant that is always known.
func timeCol[R any](name string, get func(*R) tally.Micros) column[R] {
	c := defineColumn(name, func(r *R) time.Time { return time.UnixMicro(get(r)) })
	c.encode = encoder[R]{wireTime, putEach(get, (*stream).putInt64)}
	c.isDefault = isDefaultOf(get)
	return c
}

// nullTime is an instant that is NULL when it is 0.
func nullTime[R any](name string, get func(*R) tally.Micros) column[R] {
	return column[R]{name, func(rows []R) any {
		all, out := make([]time.Time, len(rows)), make([]*time.Time, len(rows))
		for i := range rows {
			if at := get(&rows[i]); at != 0 {
				all[i] = time.UnixMicro(at)
				out[i] = &all[i]
			}
		}
		return out
	}, encoder[R]{wireNullTime, func(s *stream, rows []R) {
		for i := range rows {
			s.putBit(get(&rows[i]) == 0)
		}
		for i := range rows {
			s.putInt64(get(&rows[i]))
		}
	}}, isDefaultOf(get)}
}

// source is whose rows they are.
type source struct {
	ledger  uuid.UUID
	cluster string
	shift   uint64 // what positions have more than the numbers of events
}

func identityOf[R any](s source, seq func(*R) uint64) []column[R] {
	return []column[R]{
		defineColumn("ledger", func(*R) uuid.UUID { return s.ledger }),
		defineColumn("cluster", func(*R) string { return s.cluster }),
		defineColumn("seq", func(r *R) uint64 { return seq(r) + s.shift }),
	}
}

func amountsOf[R any](prefix string, get func(*R) *tally.Amounts) []column[R] {
	return []column[R]{
		defineColumn(prefix+"cpus", func(r *R) int64 { return get(r).CPUs }),
		defineColumn(prefix+"mem_mib", func(r *R) int64 { return get(r).Mem }),
		defineColumn(prefix+"nodes", func(r *R) int64 { return get(r).Nodes }),
		defineColumn(prefix+"gpus", func(r *R) int64 { return get(r).GPUs }),
		defineColumn(prefix+"billing", func(r *R) int64 { return get(r).Billing }),
		defineColumn(prefix+"tres", func(r *R) map[string]int64 { return tresMap(get(r).Other) }),
	}
}

func tresMap(list []spec.TRESCount) map[string]int64 {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]int64, len(list))
	for _, count := range list {
		m[count.Name] = count.N
	}
	return m
}

func usedOf[R any](get func(*R) *tally.Used) []column[R] {
	return []column[R]{
		defineColumn("measured", func(r *R) bool { return get(r).Measured }),
		defineColumn("user_cpu_us", func(r *R) int64 { return get(r).UserCPU }),
		defineColumn("system_cpu_us", func(r *R) int64 { return get(r).SystemCPU }),
		defineColumn("peak_rss", func(r *R) *int64 { return get(r).PeakRSS }),
		defineColumn("mem_mib_s", func(r *R) int64 { return get(r).MemMiBS }),
		defineColumn("read_bytes", func(r *R) int64 { return get(r).Read }),
		defineColumn("write_bytes", func(r *R) int64 { return get(r).Write }),
		defineColumn("energy_mj", func(r *R) *int64 { return get(r).Energy }),
		defineColumn("maj_faults", func(r *R) int64 { return get(r).MajFaults }),
		defineColumn("counters", func(r *R) map[string]int64 { return counterMap(get(r).Counters) }),
	}
}

// counterMap are counters by their names. One that this release does not know has its
// number for a name.
func counterMap(list spec.CounterValues) map[string]int64 {
	if len(list) == 0 {
		return nil
	}
	known := spec.Counters()
	m := make(map[string]int64, len(list))
	for _, value := range list {
		name := "counter_" + strconv.Itoa(int(value.Counter))
		if i := int(value.Counter) - 1; i >= 0 && i < len(known) {
			name = known[i].Name
		}
		m[name] = value.N
	}
	return m
}

// taskColumns are how the use of a step lay on its tasks, by kind.
func taskColumns() []column[tally.StepRow] {
	type R = tally.StepRow
	amounts := func(name string, get func(*spec.TaskSpread) int64) column[R] {
		return defineColumn(name, func(row *R) map[string]int64 {
			if len(row.Used.Tasks) == 0 {
				return nil
			}
			m := make(map[string]int64, len(row.Used.Tasks))
			for i := range row.Used.Tasks {
				m[row.Used.Tasks[i].Kind.String()] = get(&row.Used.Tasks[i])
			}
			return m
		})
	}
	places := func(name string, get func(*spec.TaskSpread) (rank uint32, node string)) column[R] {
		return defineColumn(name, func(row *R) []string {
			var out []string
			for i := range row.Used.Tasks {
				rank, node := get(&row.Used.Tasks[i])
				out = append(out, fmt.Sprintf("%s=%d@%s", row.Used.Tasks[i].Kind, rank, node))
			}
			return out
		})
	}
	return []column[R]{
		amounts("task_sum", func(t *spec.TaskSpread) int64 { return t.Sum }),
		amounts("task_min", func(t *spec.TaskSpread) int64 { return t.Min }),
		amounts("task_max", func(t *spec.TaskSpread) int64 { return t.Max }),
		places("task_min_at", func(t *spec.TaskSpread) (uint32, string) { return t.MinRank, t.MinNode }),
		places("task_max_at", func(t *spec.TaskSpread) (uint32, string) { return t.MaxRank, t.MaxNode }),
	}
}

// runOf are the columns of a run, in jobs and in live.
//
//muster:table one entry for each column
func runOf[R any](s source, get func(*R) *tally.JobRow, end column[R]) []column[R] {
	word := func(name string, f func(*tally.JobRow) string) column[R] {
		return defineColumn(name, func(r *R) string { return f(get(r)) })
	}
	u32 := func(name string, f func(*tally.JobRow) uint32) column[R] {
		return defineColumn(name, func(r *R) uint32 { return f(get(r)) })
	}
	i64 := func(name string, f func(*tally.JobRow) int64) column[R] {
		return defineColumn(name, func(r *R) int64 { return f(get(r)) })
	}
	i32 := func(name string, f func(*tally.JobRow) int32) column[R] {
		return defineColumn(name, func(r *R) int32 { return f(get(r)) })
	}
	type J = tally.JobRow
	columns := append(
		identityOf(s, func(r *R) uint64 { return get(r).Seq }),
		defineColumn("uid", func(r *R) uint64 { return get(r).UID }),
		u32("restarts", func(j *J) uint32 { return j.Restarts }),
		u32("attempt", func(j *J) uint32 { return j.Attempt }),
		u32("job_id", func(j *J) uint32 { return j.JobID }),
		defineColumn("array_uid", func(r *R) uint64 { return get(r).ArrayUID }),
		u32("array_job_id", func(j *J) uint32 { return j.ArrayJobID }),
		i64("array_task", func(j *J) int64 { return j.ArrayTask }),
		word("array_tasks", func(j *J) string { return j.ArrayTasks }),
		defineColumn("count", func(r *R) uint64 { return get(r).Count }),
		word("name", func(j *J) string { return j.Name }),
		word("user", func(j *J) string { return j.User }),
		u32("user_id", func(j *J) uint32 { return j.UserID }),
		word("group", func(j *J) string { return j.Group }),
		u32("group_id", func(j *J) uint32 { return j.GroupID }),
		word("account", func(j *J) string { return j.Account }),
		u32("assoc", func(j *J) uint32 { return j.Assoc }),
		word("partition", func(j *J) string { return j.Partition }),
		word("qos", func(j *J) string { return j.QOS }),
		word("wckey", func(j *J) string { return j.WCKey }),
		word("comment", func(j *J) string { return j.Comment }),
		word("state", func(j *J) string { return j.State }),
		i32("exit_code", func(j *J) int32 { return j.Exit.Code }),
		i32("exit_signal", func(j *J) int32 { return j.Exit.Signal }),
		i32("derived_code", func(j *J) int32 { return j.Derived.Code }),
		i32("derived_signal", func(j *J) int32 { return j.Derived.Signal }),
		defineColumn("cancelled_by", func(r *R) *uint32 { return get(r).CancelledBy }),
		word("reason", func(j *J) string { return j.Reason }),
		word("end_reason", func(j *J) string { return j.EndReason }),
		timeCol("submit", func(r *R) int64 { return get(r).Submit }),
		nullTime("eligible", func(r *R) int64 { return get(r).Eligible }),
		nullTime("start", func(r *R) int64 { return get(r).Start }),
		end,
		i64("limit_us", func(j *J) int64 { return j.Limit }),
		i64("suspended_us", func(j *J) int64 { return j.Suspended }),
		i64("elapsed_us", elapsedSQL),
	)
	columns = append(columns, amountsOf("req_", func(r *R) *tally.Amounts {
		return &get(r).Req
	})...)
	columns = append(columns, amountsOf("alloc_", func(r *R) *tally.Amounts {
		return &get(r).Alloc
	})...)
	columns = append(
		columns,
		u32("req_nodes_min", func(j *J) uint32 { return j.ReqNodes }),
		u32("tasks", func(j *J) uint32 { return j.Tasks }),
		word("node_list", func(j *J) string { return j.NodeList }),
		word("constraint", func(j *J) string { return j.Constraint }),
		word("reservation", func(j *J) string { return j.Reservation }),
		word("licenses", func(j *J) string { return j.Licenses }),
		u32("priority", func(j *J) uint32 { return j.Priority }),
		defineColumn("backfill", func(r *R) bool { return get(r).Backfill }),
		defineColumn("batch", func(r *R) bool { return get(r).Batch }),
		word("work_dir", func(j *J) string { return j.WorkDir }),
		word("submit_line", func(j *J) string { return j.Line }),
		word("stdin", func(j *J) string { return j.Stdin }),
		word("stdout", func(j *J) string { return j.Stdout }),
		word("stderr", func(j *J) string { return j.Stderr }),
		defineColumn("gpu_uuids", func(r *R) []string { return get(r).GPUs }),
	)
	columns = append(columns, usedOf(func(r *R) *tally.Used { return &get(r).Used })...)
	return append(
		columns,
		i64("gpu_measured_us", func(j *J) int64 { return j.GPUTime }),
		i64("gpu_util_us", func(j *J) int64 { return j.GPUUtil }),
		i64("gpu_no_process_us", func(j *J) int64 { return j.GPUNoProc }),
		i64("gpu_idle_us", func(j *J) int64 { return j.GPUIdle }),
		i64("gpu_busy_us", func(j *J) int64 { return j.GPUBusy }),
		u32("het_job_id", func(j *J) uint32 { return j.HetJobID }),
		u32("het_offset", func(j *J) uint32 { return j.HetOffset }),
		u32("het_size", func(j *J) uint32 { return j.HetSize }),
		word("admin_comment", func(j *J) string { return j.Admin }),
		word("system_comment", func(j *J) string { return j.System }),
		word("extra", func(j *J) string { return j.Extra }),
		word("container", func(j *J) string { return j.Container }),
		word("mcs_label", func(j *J) string { return j.MCS }),
		word("failed_node", func(j *J) string { return j.FailedNode }),
		u32("segment", func(j *J) uint32 { return j.Segment }),
		nullTime("promised", func(r *R) int64 { return get(r).Promised }),
	)
}

// elapsedSQL is how long a run that is over ran, or one that is suspended now until
// it was; 0 for others.
func elapsedSQL(job *tally.JobRow) int64 {
	if job.Start != 0 && job.End == 0 && job.Stopped != 0 {
		return job.Stopped - job.Start - job.Suspended
	}
	if job.Start == 0 || job.End == 0 {
		return 0
	}
	return job.End - job.Start - job.Suspended
}

func eventColumns(s source) []column[tally.EventRow] {
	type R = tally.EventRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		timeCol("at", func(r *R) int64 { return r.At }),
		defineColumn("kind", func(r *R) string { return r.Kind }),
		defineColumn("actor_kind", func(r *R) string { return r.ActorKind }),
		defineColumn("actor_uid", func(r *R) uint32 { return r.ActorUID }),
		defineColumn("actor", func(r *R) string { return r.Actor }),
		defineColumn("host", func(r *R) string { return r.Host }),
		defineColumn("command", func(r *R) string { return r.Command }),
		defineColumn("cause_seq", func(row *R) uint64 {
			if row.CauseSeq == 0 {
				return 0
			}
			return row.CauseSeq + s.shift
		}),
		defineColumn("uid", func(r *R) uint64 { return r.UID }),
		defineColumn("attempt", func(r *R) uint32 { return r.Attempt }),
		defineColumn("node", func(r *R) string { return r.Node }),
		defineColumn("body", func(r *R) string { return r.Body }),
	)
}

// jobColumns are the columns of a run that is over, as jobs stores them.
func jobColumns(s source) []column[tally.JobRow] {
	type R = tally.JobRow
	gap := func(name string, at func(*R) tally.Micros) column[R] {
		return column[R]{name, func(rows []R) any {
			all, out := make([]int64, len(rows)), make([]*int64, len(rows))
			for i := range rows {
				if t := at(&rows[i]); t != 0 {
					all[i] = t - rows[i].Submit
					out[i] = &all[i]
				}
			}
			return out
		}, encoder[R]{wireNullInt, func(s *stream, rows []R) {
			for i := range rows {
				s.putBit(at(&rows[i]) == 0)
			}
			for i := range rows {
				n := int64(0)
				if t := at(&rows[i]); t != 0 {
					n = t - rows[i].Submit
				}
				s.putInt64(n)
			}
		}}, isDefaultOf(at)}
	}
	num := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	whole := runOf(
		s,
		func(r *R) *tally.JobRow { return r },
		timeCol("end", func(r *R) int64 { return r.End }),
	)
	return append(
		storedOnly(jobsTable(), whole),
		defineColumn("owner", func(row *R) string {
			return packWords(
				row.User,
				row.Group,
				row.Account,
				num(row.UserID),
				num(row.GroupID),
				num(row.Assoc),
			)
		}),
		gap("eligible_gap_us", func(r *R) tally.Micros { return r.Eligible }),
		gap("start_gap_us", func(r *R) tally.Micros { return r.Start }),
	)
}

// storedOnly leaves out the columns of a table that are computed from others.
func storedOnly[R any](table tableDef, cols []column[R]) []column[R] {
	derived := map[string]bool{}
	for _, c := range table.columns {
		derived[c.name] = c.isDerived()
	}
	return slices.DeleteFunc(cols, func(c column[R]) bool { return derived[c.name] })
}

func liveColumns(s source, gen uint32) []column[tally.LiveRow] {
	type R = tally.LiveRow
	times := func(list []tally.Micros) []time.Time {
		out := make([]time.Time, len(list))
		for i, at := range list {
			out[i] = time.UnixMicro(at)
		}
		return out
	}
	columns := []column[R]{
		defineColumn("gen", func(*R) uint32 { return gen }),
		defineColumn("final", func(r *R) bool { return r.Final }),
	}
	columns = append(
		columns,
		runOf(
			s,
			func(r *R) *tally.JobRow { return &r.JobRow },
			nullTime("end", func(r *R) int64 { return r.End }),
		)...)
	return append(
		columns,
		defineColumn("held_nodes", func(r *R) []string { return r.HeldNodes }),
		defineColumn("held_cpus", func(r *R) []int64 { return r.HeldCPUs }),
		defineColumn("held_mem_mib", func(r *R) []int64 { return r.HeldMem }),
		defineColumn("held_gpus", func(r *R) []int64 { return r.HeldGPUs }),
		defineColumn("held_to", func(r *R) []time.Time { return times(r.HeldTo) }),
		defineColumn("step_ids", func(r *R) []int32 { return r.StepIDs }),
		defineColumn("step_names", func(r *R) []string { return r.StepNames }),
		defineColumn("step_starts", func(r *R) []time.Time { return times(r.StepStarts) }),
		defineColumn("step_tasks", func(r *R) []uint32 { return r.StepTasks }),
		defineColumn("step_nodes", func(r *R) []string { return r.StepNodes }),
		defineColumn("step_containers", func(r *R) []string { return r.StepContainers }),
	)
}

func stepColumns(s source) []column[tally.StepRow] {
	type R = tally.StepRow
	columns := append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		defineColumn("uid", func(r *R) uint64 { return r.UID }),
		defineColumn("restarts", func(r *R) uint32 { return r.Restarts }),
		defineColumn("attempt", func(r *R) uint32 { return r.Attempt }),
		defineColumn("job_id", func(r *R) uint32 { return r.JobID }),
		defineColumn("step", func(r *R) int32 { return r.Step }),
		defineColumn("name", func(r *R) string { return r.Name }),
		defineColumn("who", func(r *R) string { return packWords(r.User, r.Account) }),
		defineColumn("state", func(r *R) string { return r.State }),
		defineColumn("exit_code", func(r *R) int32 { return r.Exit.Code }),
		defineColumn("exit_signal", func(r *R) int32 { return r.Exit.Signal }),
		timeCol("start", func(r *R) int64 { return r.Start }),
		timeCol("end", func(r *R) int64 { return r.End }),
		defineColumn("tasks", func(r *R) uint32 { return r.Tasks }),
		defineColumn("node_list", func(r *R) string { return r.NodeList }),
	)
	columns = append(columns, amountsOf("alloc_", func(r *R) *tally.Amounts { return &r.Alloc })...)
	columns = append(columns, usedOf(func(r *R) *tally.Used { return &r.Used })...)
	columns = append(columns, taskColumns()...)
	return append(
		columns,
		defineColumn("peak_vm", func(r *R) *int64 { return r.Used.PeakVM }),
		defineColumn("cpu_khz", func(r *R) uint32 { return r.Used.KHz }),
		defineColumn("container", func(r *R) string { return r.Container }),
	)
}

func nodeColumns(s source) []column[tally.NodeRow] {
	type R = tally.NodeRow
	columns := append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		defineColumn("uid", func(r *R) uint64 { return r.UID }),
		defineColumn("restarts", func(r *R) uint32 { return r.Restarts }),
		defineColumn("attempt", func(r *R) uint32 { return r.Attempt }),
		defineColumn("job_id", func(r *R) uint32 { return r.JobID }),
		defineColumn(
			"who",
			func(row *R) string { return packWords(row.User, row.Account, row.Partition, row.QOS) },
		),
		defineColumn("node", func(r *R) string { return r.Node }),
		timeCol("from", func(r *R) int64 { return r.From }),
		timeCol("to", func(r *R) int64 { return r.To }),
		defineColumn("end_gap_us", func(r *R) int64 { return r.End - r.To }),
		defineColumn("cpus", func(r *R) int64 { return r.CPUs }),
		defineColumn("mem_mib", func(r *R) int64 { return r.Mem }),
		defineColumn("gpus", func(r *R) int64 { return r.GPUs }),
		defineColumn("tasks", func(r *R) uint32 { return r.Tasks }),
		defineColumn("lost", func(r *R) bool { return r.Lost }),
	)
	return append(columns, usedOf(func(r *R) *tally.Used { return &r.Used })...)
}

func gpuColumns(s source) []column[tally.GPURow] {
	type R = tally.GPURow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		defineColumn("uid", func(r *R) uint64 { return r.UID }),
		defineColumn("restarts", func(r *R) uint32 { return r.Restarts }),
		defineColumn("attempt", func(r *R) uint32 { return r.Attempt }),
		defineColumn("job_id", func(r *R) uint32 { return r.JobID }),
		defineColumn(
			"who",
			func(row *R) string { return packWords(row.User, row.Account, row.Partition, row.QOS) },
		),
		timeCol("from", func(r *R) int64 { return r.From }),
		timeCol("to", func(r *R) int64 { return r.To }),
		defineColumn("end_gap_us", func(r *R) int64 { return r.End - r.To }),
		defineColumn("device", func(row *R) string {
			return packWords(
				row.UUID, row.Node, strconv.FormatUint(uint64(row.Index), 10), row.Type,
			)
		}),
		defineColumn("measured", func(r *R) bool { return r.Measured }),
		defineColumn("no_process_us", func(r *R) int64 { return r.NoProcess }),
		defineColumn("idle_us", func(r *R) int64 { return r.Idle }),
		defineColumn("rest_us", func(row *R) int64 {
			if !row.Measured {
				return -row.NoProcess - row.Idle - row.Busy
			}
			return row.To - row.From - row.NoProcess - row.Idle - row.Busy
		}),
		defineColumn("util_us", func(r *R) int64 { return r.Util }),
		defineColumn("sm_us", func(r *R) int64 { return r.SM }),
		defineColumn("tensor_us", func(r *R) int64 { return r.Tensor }),
		defineColumn("peak_mem", func(r *R) int64 { return r.PeakMem }),
		defineColumn("mem_mib_s", func(r *R) int64 { return r.MemMiBS }),
		defineColumn("energy_mj", func(r *R) int64 { return r.Energy }),
		defineColumn("throttled_us", func(r *R) int64 { return r.Throttled }),
		defineColumn("xids", func(r *R) int64 { return r.XIDs }),
		defineColumn("method", func(r *R) string { return r.Method }),
		defineColumn("share", func(r *R) int64 { return r.Share }),
	)
}

func nodeStateColumns(s source) []column[tally.NodeStateRow] {
	type R = tally.NodeStateRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		timeCol("at", func(r *R) int64 { return r.At }),
		defineColumn("node", func(r *R) string { return r.Node }),
		defineColumn("state", func(r *R) string { return r.State }),
		defineColumn("class", func(r *R) string { return r.Class }),
		defineColumn("restated", func(r *R) bool { return r.Restated }),
		defineColumn("cpus", func(r *R) int64 { return r.CPUs }),
		defineColumn("mem_mib", func(r *R) int64 { return r.Mem }),
		defineColumn("gpus", func(r *R) int64 { return r.GPUs }),
		defineColumn("tres", func(r *R) map[string]int64 { return tresMap(r.Other) }),
		defineColumn("partitions", func(r *R) []string { return r.Partitions }),
		defineColumn("reason", func(r *R) string { return r.Reason }),
		defineColumn("by", func(r *R) string { return r.By }),
		defineColumn("by_uid", func(r *R) uint32 { return r.ByUID }),
	)
}

func reasonColumns(s source) []column[tally.ReasonRow] {
	type R = tally.ReasonRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		defineColumn("uid", func(r *R) uint64 { return r.UID }),
		defineColumn("restarts", func(r *R) uint32 { return r.Restarts }),
		defineColumn("job_id", func(r *R) uint32 { return r.JobID }),
		defineColumn("count", func(r *R) uint64 { return r.Count }),
		defineColumn("user", func(r *R) string { return r.User }),
		defineColumn("account", func(r *R) string { return r.Account }),
		defineColumn("partition", func(r *R) string { return r.Partition }),
		defineColumn("qos", func(r *R) string { return r.QOS }),
		timeCol("at", func(r *R) int64 { return r.At }),
		defineColumn("code", func(r *R) string { return r.Code }),
		defineColumn("tres", func(r *R) string { return r.TRES }),
		defineColumn("limit", func(r *R) int64 { return r.Limit }),
		defineColumn("in_use", func(r *R) int64 { return r.InUse }),
		defineColumn("asked", func(r *R) int64 { return r.Asked }),
		defineColumn("subject", func(r *R) string { return r.Subject }),
		defineColumn("blocker", func(r *R) uint64 { return r.Blocker }),
		defineColumn("detail", func(r *R) string { return r.Detail }),
	)
}

func associationColumns(s source) []column[tally.AssociationRow] {
	type R = tally.AssociationRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		timeCol("at", func(r *R) int64 { return r.At }),
		defineColumn("id", func(r *R) uint32 { return r.ID }),
		defineColumn("account", func(r *R) string { return r.Account }),
		defineColumn("user", func(r *R) string { return r.User }),
		defineColumn("partition", func(r *R) string { return r.Partition }),
		defineColumn("parent", func(r *R) uint32 { return r.Parent }),
		defineColumn("shares", func(r *R) int64 { return r.Shares }),
		defineColumn("removed", func(r *R) bool { return r.Removed }),
	)
}

// wireType is the type in which a column is sent: the server turns plain
// strings into dictionaries far quicker than the client could.
func wireType(typ string) string {
	return strings.ReplaceAll(typ, "LowCardinality(String)", "String")
}
