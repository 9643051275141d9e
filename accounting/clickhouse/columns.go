package clickhouse

import (
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
	encode encoder[R]          // the same straight into a block
	blank  func(rows []R) bool // every value is what the table puts where nothing is said; nil = not known
}

func col[R, V any](name string, get func(*R) V) column[R] {
	return column[R]{name, func(rows []R) any {
		out := make([]V, len(rows))
		for i := range rows {
			out[i] = get(&rows[i])
		}
		return out
	}, encoderOf(get), blankOf(get)}
}

// timeCol is an instant that is always known.
func timeCol[R any](name string, get func(*R) tally.Micros) column[R] {
	c := col(name, func(r *R) time.Time { return time.UnixMicro(get(r)) })
	c.encode, c.blank = encoder[R]{wireTime, each(get, (*stream).i64)}, blankOf(get)
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
			s.bit(get(&rows[i]) == 0)
		}
		for i := range rows {
			s.i64(get(&rows[i]))
		}
	}}, blankOf(get)}
}

// source is whose rows they are.
type source struct {
	ledger  uuid.UUID
	cluster string
	shift   uint64 // what positions have more than the numbers of events
}

func identityOf[R any](s source, seq func(*R) uint64) []column[R] {
	return []column[R]{
		col("ledger", func(*R) uuid.UUID { return s.ledger }),
		col("cluster", func(*R) string { return s.cluster }),
		col("seq", func(r *R) uint64 { return seq(r) + s.shift }),
	}
}

func amountsOf[R any](prefix string, get func(*R) *tally.Amounts) []column[R] {
	return []column[R]{
		col(prefix+"cpus", func(r *R) int64 { return get(r).CPUs }),
		col(prefix+"mem_mib", func(r *R) int64 { return get(r).Mem }),
		col(prefix+"nodes", func(r *R) int64 { return get(r).Nodes }),
		col(prefix+"gpus", func(r *R) int64 { return get(r).GPUs }),
		col(prefix+"billing", func(r *R) int64 { return get(r).Billing }),
		col(prefix+"tres", func(r *R) map[string]int64 { return tresMap(get(r).Other) }),
	}
}

func tresMap(list []spec.TRESCount) map[string]int64 {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]int64, len(list))
	for _, c := range list {
		m[c.Name] = c.N
	}
	return m
}

func usedOf[R any](get func(*R) *tally.Used) []column[R] {
	return []column[R]{
		col("measured", func(r *R) bool { return get(r).Measured }),
		col("user_cpu_us", func(r *R) int64 { return get(r).UserCPU }),
		col("system_cpu_us", func(r *R) int64 { return get(r).SystemCPU }),
		col("peak_rss", func(r *R) *int64 { return get(r).PeakRSS }),
		col("mem_mib_s", func(r *R) int64 { return get(r).MemMiBS }),
		col("read_bytes", func(r *R) int64 { return get(r).Read }),
		col("write_bytes", func(r *R) int64 { return get(r).Write }),
		col("energy_mj", func(r *R) *int64 { return get(r).Energy }),
		col("maj_faults", func(r *R) int64 { return get(r).MajFaults }),
	}
}

// runOf are the columns of a run, in jobs and in live.
//
//muster:table one entry for each column
func runOf[R any](s source, get func(*R) *tally.JobRow, end column[R]) []column[R] {
	word := func(name string, f func(*tally.JobRow) string) column[R] {
		return col(name, func(r *R) string { return f(get(r)) })
	}
	u32 := func(name string, f func(*tally.JobRow) uint32) column[R] {
		return col(name, func(r *R) uint32 { return f(get(r)) })
	}
	i64 := func(name string, f func(*tally.JobRow) int64) column[R] {
		return col(name, func(r *R) int64 { return f(get(r)) })
	}
	i32 := func(name string, f func(*tally.JobRow) int32) column[R] {
		return col(name, func(r *R) int32 { return f(get(r)) })
	}
	type J = tally.JobRow
	out := append(
		identityOf(s, func(r *R) uint64 { return get(r).Seq }),
		col("uid", func(r *R) uint64 { return get(r).UID }),
		u32("restarts", func(j *J) uint32 { return j.Restarts }),
		u32("attempt", func(j *J) uint32 { return j.Attempt }),
		u32("job_id", func(j *J) uint32 { return j.JobID }),
		col("array_uid", func(r *R) uint64 { return get(r).ArrayUID }),
		u32("array_job_id", func(j *J) uint32 { return j.ArrayJobID }),
		i64("array_task", func(j *J) int64 { return j.ArrayTask }),
		word("array_tasks", func(j *J) string { return j.ArrayTasks }),
		col("count", func(r *R) uint64 { return get(r).Count }),
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
		col("cancelled_by", func(r *R) *uint32 { return get(r).CancelledBy }),
		word("reason", func(j *J) string { return j.Reason }),
		word("end_reason", func(j *J) string { return j.EndReason }),
		timeCol("submit", func(r *R) int64 { return get(r).Submit }),
		nullTime("eligible", func(r *R) int64 { return get(r).Eligible }),
		nullTime("start", func(r *R) int64 { return get(r).Start }),
		end,
		i64("limit_us", func(j *J) int64 { return j.Limit }),
		i64("suspended_us", func(j *J) int64 { return j.Suspended }),
		i64("elapsed_us", elapsed),
	)
	out = append(out, amountsOf("req_", func(r *R) *tally.Amounts { return &get(r).Req })...)
	out = append(out, amountsOf("alloc_", func(r *R) *tally.Amounts { return &get(r).Alloc })...)
	out = append(
		out,
		u32("req_nodes_min", func(j *J) uint32 { return j.ReqNodes }),
		u32("tasks", func(j *J) uint32 { return j.Tasks }),
		word("node_list", func(j *J) string { return j.NodeList }),
		word("constraint", func(j *J) string { return j.Constraint }),
		word("reservation", func(j *J) string { return j.Reservation }),
		word("licenses", func(j *J) string { return j.Licenses }),
		u32("priority", func(j *J) uint32 { return j.Priority }),
		col("backfill", func(r *R) bool { return get(r).Backfill }),
		col("batch", func(r *R) bool { return get(r).Batch }),
		word("work_dir", func(j *J) string { return j.WorkDir }),
		word("submit_line", func(j *J) string { return j.Line }),
		word("stdin", func(j *J) string { return j.Stdin }),
		word("stdout", func(j *J) string { return j.Stdout }),
		word("stderr", func(j *J) string { return j.Stderr }),
		col("gpu_uuids", func(r *R) []string { return get(r).GPUs }),
	)
	out = append(out, usedOf(func(r *R) *tally.Used { return &get(r).Used })...)
	return append(
		out,
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
	)
}

// elapsed is how long a run that is over ran, or one that is suspended now until
// it was; 0 for others.
func elapsed(j *tally.JobRow) int64 {
	if j.Start != 0 && j.End == 0 && j.Stopped != 0 {
		return j.Stopped - j.Start - j.Suspended
	}
	if j.Start == 0 || j.End == 0 {
		return 0
	}
	return j.End - j.Start - j.Suspended
}

func eventColumns(s source) []column[tally.EventRow] {
	type R = tally.EventRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		timeCol("at", func(r *R) int64 { return r.At }),
		col("kind", func(r *R) string { return r.Kind }),
		col("actor_kind", func(r *R) string { return r.ActorKind }),
		col("actor_uid", func(r *R) uint32 { return r.ActorUID }),
		col("actor", func(r *R) string { return r.Actor }),
		col("host", func(r *R) string { return r.Host }),
		col("command", func(r *R) string { return r.Command }),
		col("cause_seq", func(r *R) uint64 {
			if r.CauseSeq == 0 {
				return 0
			}
			return r.CauseSeq + s.shift
		}),
		col("uid", func(r *R) uint64 { return r.UID }),
		col("attempt", func(r *R) uint32 { return r.Attempt }),
		col("node", func(r *R) string { return r.Node }),
		col("body", func(r *R) string { return r.Body }),
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
				s.bit(at(&rows[i]) == 0)
			}
			for i := range rows {
				n := int64(0)
				if t := at(&rows[i]); t != 0 {
					n = t - rows[i].Submit
				}
				s.i64(n)
			}
		}}, blankOf(at)}
	}
	num := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	whole := runOf(s, func(r *R) *tally.JobRow { return r }, timeCol("end", func(r *R) int64 { return r.End }))
	return append(
		storedOnly(jobsTable(), whole),
		col("owner", func(r *R) string {
			return packed(r.User, r.Group, r.Account, num(r.UserID), num(r.GroupID), num(r.Assoc))
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
	out := []column[R]{
		col("gen", func(*R) uint32 { return gen }),
		col("final", func(r *R) bool { return r.Final }),
	}
	out = append(out, runOf(s, func(r *R) *tally.JobRow { return &r.JobRow }, nullTime("end", func(r *R) int64 { return r.End }))...)
	return append(
		out,
		col("held_nodes", func(r *R) []string { return r.HeldNodes }),
		col("held_cpus", func(r *R) []int64 { return r.HeldCPUs }),
		col("held_mem_mib", func(r *R) []int64 { return r.HeldMem }),
		col("held_gpus", func(r *R) []int64 { return r.HeldGPUs }),
		col("held_to", func(r *R) []time.Time { return times(r.HeldTo) }),
		col("step_ids", func(r *R) []int32 { return r.StepIDs }),
		col("step_names", func(r *R) []string { return r.StepNames }),
		col("step_starts", func(r *R) []time.Time { return times(r.StepStarts) }),
		col("step_tasks", func(r *R) []uint32 { return r.StepTasks }),
		col("step_nodes", func(r *R) []string { return r.StepNodes }),
	)
}

func stepColumns(s source) []column[tally.StepRow] {
	type R = tally.StepRow
	out := append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		col("uid", func(r *R) uint64 { return r.UID }),
		col("restarts", func(r *R) uint32 { return r.Restarts }),
		col("attempt", func(r *R) uint32 { return r.Attempt }),
		col("job_id", func(r *R) uint32 { return r.JobID }),
		col("step", func(r *R) int32 { return r.Step }),
		col("name", func(r *R) string { return r.Name }),
		col("who", func(r *R) string { return packed(r.User, r.Account) }),
		col("state", func(r *R) string { return r.State }),
		col("exit_code", func(r *R) int32 { return r.Exit.Code }),
		col("exit_signal", func(r *R) int32 { return r.Exit.Signal }),
		timeCol("start", func(r *R) int64 { return r.Start }),
		timeCol("end", func(r *R) int64 { return r.End }),
		col("tasks", func(r *R) uint32 { return r.Tasks }),
		col("node_list", func(r *R) string { return r.NodeList }),
	)
	out = append(out, amountsOf("alloc_", func(r *R) *tally.Amounts { return &r.Alloc })...)
	out = append(out, usedOf(func(r *R) *tally.Used { return &r.Used })...)
	return append(out, col("peak_vm", func(r *R) *int64 { return r.Used.PeakVM }), col("cpu_khz", func(r *R) uint32 { return r.Used.KHz }))
}

func nodeColumns(s source) []column[tally.NodeRow] {
	type R = tally.NodeRow
	out := append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		col("uid", func(r *R) uint64 { return r.UID }),
		col("restarts", func(r *R) uint32 { return r.Restarts }),
		col("attempt", func(r *R) uint32 { return r.Attempt }),
		col("job_id", func(r *R) uint32 { return r.JobID }),
		col("who", func(r *R) string { return packed(r.User, r.Account, r.Partition, r.QOS) }),
		col("node", func(r *R) string { return r.Node }),
		timeCol("from", func(r *R) int64 { return r.From }),
		timeCol("to", func(r *R) int64 { return r.To }),
		col("end_gap_us", func(r *R) int64 { return r.End - r.To }),
		col("cpus", func(r *R) int64 { return r.CPUs }),
		col("mem_mib", func(r *R) int64 { return r.Mem }),
		col("gpus", func(r *R) int64 { return r.GPUs }),
		col("tasks", func(r *R) uint32 { return r.Tasks }),
		col("lost", func(r *R) bool { return r.Lost }),
	)
	return append(out, usedOf(func(r *R) *tally.Used { return &r.Used })...)
}

func gpuColumns(s source) []column[tally.GPURow] {
	type R = tally.GPURow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		col("uid", func(r *R) uint64 { return r.UID }),
		col("restarts", func(r *R) uint32 { return r.Restarts }),
		col("attempt", func(r *R) uint32 { return r.Attempt }),
		col("job_id", func(r *R) uint32 { return r.JobID }),
		col("who", func(r *R) string { return packed(r.User, r.Account, r.Partition, r.QOS) }),
		timeCol("from", func(r *R) int64 { return r.From }),
		timeCol("to", func(r *R) int64 { return r.To }),
		col("end_gap_us", func(r *R) int64 { return r.End - r.To }),
		col("device", func(r *R) string {
			return packed(r.UUID, r.Node, strconv.FormatUint(uint64(r.Index), 10), r.Type)
		}),
		col("measured", func(r *R) bool { return r.Measured }),
		col("no_process_us", func(r *R) int64 { return r.NoProcess }),
		col("idle_us", func(r *R) int64 { return r.Idle }),
		col("rest_us", func(r *R) int64 {
			if !r.Measured {
				return -r.NoProcess - r.Idle - r.Busy
			}
			return r.To - r.From - r.NoProcess - r.Idle - r.Busy
		}),
		col("util_us", func(r *R) int64 { return r.Util }),
		col("sm_us", func(r *R) int64 { return r.SM }),
		col("tensor_us", func(r *R) int64 { return r.Tensor }),
		col("peak_mem", func(r *R) int64 { return r.PeakMem }),
		col("mem_mib_s", func(r *R) int64 { return r.MemMiBS }),
		col("energy_mj", func(r *R) int64 { return r.Energy }),
		col("throttled_us", func(r *R) int64 { return r.Throttled }),
		col("xids", func(r *R) int64 { return r.XIDs }),
		col("method", func(r *R) string { return r.Method }),
		col("share", func(r *R) int64 { return r.Share }),
	)
}

func nodeStateColumns(s source) []column[tally.NodeStateRow] {
	type R = tally.NodeStateRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		timeCol("at", func(r *R) int64 { return r.At }),
		col("node", func(r *R) string { return r.Node }),
		col("state", func(r *R) string { return r.State }),
		col("class", func(r *R) string { return r.Class }),
		col("restated", func(r *R) bool { return r.Restated }),
		col("cpus", func(r *R) int64 { return r.CPUs }),
		col("mem_mib", func(r *R) int64 { return r.Mem }),
		col("gpus", func(r *R) int64 { return r.GPUs }),
		col("tres", func(r *R) map[string]int64 { return tresMap(r.Other) }),
		col("partitions", func(r *R) []string { return r.Partitions }),
		col("reason", func(r *R) string { return r.Reason }),
		col("by", func(r *R) string { return r.By }),
		col("by_uid", func(r *R) uint32 { return r.ByUID }),
	)
}

func reasonColumns(s source) []column[tally.ReasonRow] {
	type R = tally.ReasonRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		col("uid", func(r *R) uint64 { return r.UID }),
		col("restarts", func(r *R) uint32 { return r.Restarts }),
		col("job_id", func(r *R) uint32 { return r.JobID }),
		col("count", func(r *R) uint64 { return r.Count }),
		col("user", func(r *R) string { return r.User }),
		col("account", func(r *R) string { return r.Account }),
		col("partition", func(r *R) string { return r.Partition }),
		col("qos", func(r *R) string { return r.QOS }),
		timeCol("at", func(r *R) int64 { return r.At }),
		col("code", func(r *R) string { return r.Code }),
		col("tres", func(r *R) string { return r.TRES }),
		col("limit", func(r *R) int64 { return r.Limit }),
		col("in_use", func(r *R) int64 { return r.InUse }),
		col("asked", func(r *R) int64 { return r.Asked }),
		col("subject", func(r *R) string { return r.Subject }),
		col("blocker", func(r *R) uint64 { return r.Blocker }),
		col("detail", func(r *R) string { return r.Detail }),
	)
}

func associationColumns(s source) []column[tally.AssociationRow] {
	type R = tally.AssociationRow
	return append(
		identityOf(s, func(r *R) uint64 { return r.Seq }),
		timeCol("at", func(r *R) int64 { return r.At }),
		col("id", func(r *R) uint32 { return r.ID }),
		col("account", func(r *R) string { return r.Account }),
		col("user", func(r *R) string { return r.User }),
		col("partition", func(r *R) string { return r.Partition }),
		col("parent", func(r *R) uint32 { return r.Parent }),
		col("shares", func(r *R) int64 { return r.Shares }),
		col("removed", func(r *R) bool { return r.Removed }),
	)
}

// wireType is the type in which a column is sent: the server turns plain
// strings into dictionaries far quicker than the client could.
func wireType(typ string) string {
	return strings.ReplaceAll(typ, "LowCardinality(String)", "String")
}
