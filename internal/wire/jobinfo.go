package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Shower writes jobs of one view. Make one per answer: it sums the cluster up
// once for the priorities. It is for one goroutine.
type Shower struct {
	v       *view.View
	now     spec.Instant
	ranks   *order.Context // made when the first pending job asks for it
	running *order.Running // and the first of the others
	detail  bool
}

// NewShower prepares to write the jobs of a view.
func NewShower(v *view.View, now spec.Instant, detail bool) *Shower {
	return &Shower{v: v, now: now, detail: detail}
}

// Job writes a job as squeue and scontrol show it.
func (s *Shower) Job(j *state.Job) *apiv1.JobInfo {
	js := j.Spec
	out := &apiv1.JobInfo{
		Uid: uint64(j.UID), JobId: uint32(j.ID), ArrayTask: j.Task, ArrayTasks: Tasks(j.Tasks),
		UserId: js.UID, User: js.User, GroupId: js.GID, Group: js.Group,
		State: uint32(j.State), Completing: j.Completing() || (j.State.Active() && j.Ending != nil),
		Reason: Reason(j.Reason), Hold: uint32(j.Hold), Attempt: j.Attempt, Restarts: j.Restarts,
		Submit: int64(j.Submitted), Eligible: int64(j.Eligible), Start: int64(j.Started), End: int64(j.Ended),
		Partition: strings.Join(js.Partitions, ","), Qos: js.QOSText(), ReqTres: TRES(j.Req), NumNodes: uint32(j.Req.Node), NumCpus: uint32(j.Req.CPU),
		ExitCode: j.Exit.Code, ExitSignal: j.Exit.Signal, DerivedCode: j.Derived.Code, DerivedSignal: j.Derived.Signal,
		EndedBy: j.EndedBy, Changed: j.Changed, Backfilled: j.Backfill, TimeLimit: s.limit(j), Priority: s.priority(j),
		NumTasks: s.tasks(j), LastSchedEval: int64(s.v.Pass.LastAt),
	}
	out.Spec = JobSpec(js)
	out.Stopped = j.Stopped
	if j.Batch != nil {
		out.Failure = j.Batch.Detail
	}
	if a := s.v.State.ArrayOf(j); a != nil {
		out.ArrayJobId, out.ArrayThrottle = uint32(a.ID), js.Queue.Array.Throttle
	}
	if h := j.Het; h != nil {
		out.HetJobId = uint32(j.ID) - h.Offset
		out.HetOffset = h.Offset
		out.HetSize = h.Size
	}
	s.allocation(j, out)
	if j.State == spec.Pending {
		s.pending(j, out)
	}
	for i := range j.Steps {
		out.Steps = append(out.Steps, stepInfo(&j.Steps[i]))
	}
	return out
}

func (s *Shower) limit(j *state.Job) int64 {
	if j.State != spec.Pending && j.Limit != 0 {
		return Span(j.Limit)
	}
	limit := j.Spec.Time.Limit
	if p := s.v.State.Parts.Find(j.Partition()); limit == 0 && p != nil {
		limit = p.Spec.DefaultTime
		if limit == 0 {
			limit = p.Spec.MaxTime
		}
	}
	if limit == 0 {
		limit = spec.Infinite
	}
	return Span(limit)
}

func (s *Shower) priority(j *state.Job) uint32 {
	if j.State != spec.Pending {
		if s.running == nil {
			r := order.NewRunning(s.v.State, s.now)
			s.running = &r
		}
		return s.running.Of(j)
	}
	p := s.v.State.Parts.Find(j.Partition())
	if p == nil {
		return 0
	}
	if s.ranks == nil {
		s.ranks = order.NewContext(s.v.State, s.now)
	}
	return s.ranks.Of(j, p.Spec).Total
}

func (s *Shower) tasks(j *state.Job) uint32 {
	if j.Alloc != nil {
		return j.Alloc.Tasks
	}
	if j.Spec.Size.Tasks > 0 {
		return j.Spec.Size.Tasks
	}
	return max(j.Spec.Size.MinNodes, 1) * max(j.Spec.Size.TasksPerNode, 1)
}

// allocation writes what a job holds or held.
func (s *Shower) allocation(j *state.Job, out *apiv1.JobInfo) {
	if j.Alloc == nil || j.State == spec.Pending {
		if j.State == spec.Pending {
			out.Start, out.End = 0, 0
		}
		return
	}
	a := j.Alloc
	out.Qos = j.QOS()
	out.Partition, out.Nodes, out.BatchHost = a.Partition, hostlist.Fold(a.NodeNames()), a.Nodes[0].Name
	out.NumNodes, out.NumCpus, out.AllocTres = uint32(len(a.Nodes)), uint32(a.TRES.CPU), TRES(a.TRES)
	if at := j.Deadline(); j.State.Active() && at != spec.FarFuture {
		out.End = int64(at)
	}
	out.Paused, out.SuspendedAt = int64(j.Paused), int64(j.SuspendedAt)
	out.Configuring = j.Configuring()
	if out.Configuring {
		s.boot(j, out)
	} else if j.Ready != 0 {
		out.Start = int64(j.Ready) // its time began when its nodes were there
	}
	if !s.detail {
		return
	}
	for i := range a.Nodes {
		n := NodeAlloc(&a.Nodes[i])
		n.Done, n.Leaving = j.Done.Has(i), slices.Contains(j.Leaving, n.Name)
		out.Allocation = append(out.Allocation, n)
	}
}

// boot writes what a job waits for that has its nodes, but not up.
func (s *Shower) boot(j *state.Job, out *apiv1.JobInfo) {
	names := s.v.State.Booting(j)
	out.Booting, out.End = hostlist.Fold(names), 0
	for _, name := range names {
		n := s.v.State.Node(name)
		if by := n.PowerAt.Add(scheduler.PowerTimes(s.v.State, n).UpIn); n.Power == event.PoweringUp && (out.BootBy == 0 || int64(by) < out.BootBy) {
			out.BootBy = int64(by)
		}
	}
}

// NodeAlloc writes one node's part of an allocation.
func NodeAlloc(n *spec.NodeAlloc) *apiv1.NodeAlloc {
	out := &apiv1.NodeAlloc{Name: n.Name, Cpus: n.CPUs, Mem: n.Mem, Gres: Counts(n.GRES), Tasks: n.Tasks}
	for _, g := range n.GPUs {
		out.Gpus = append(out.Gpus, &apiv1.GpuRef{Uuid: g.UUID, Index: g.Index, Type: g.Type})
	}
	for _, g := range n.Shares {
		out.Shares = append(out.Shares, &apiv1.GpuShare{Uuid: g.UUID, Index: g.Index, Type: g.Type, Name: g.Name, N: g.N, Of: g.Of})
	}
	return out
}

// pending writes what is predicted for a waiting job.
func (s *Shower) pending(j *state.Job, out *apiv1.JobInfo) {
	if p := s.v.Plan.Of(j.UID); p != nil {
		out.PlannedStart, out.PlannedNodes, out.PlannedEstimate = int64(p.Start), s.nodeNames(p.Nodes), p.Estimate
	}
	if out.Start == 0 && j.Begin > s.now {
		out.Start = int64(j.Begin)
	}
	if d := j.Spec.Queue.Dependency; d != nil {
		var parts []string
		for i := range d.Terms {
			if st := scheduler.TermState(s.v.State, j, &d.Terms[i], s.now); st != "" {
				parts = append(parts, d.Terms[i].String()+"("+st+")")
			}
		}
		sep := ","
		if d.Any {
			sep = "?"
		}
		out.Dependency = strings.Join(parts, sep)
	}
}

func (s *Shower) nodeNames(ids []spec.NodeID) string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if n := s.v.State.NodeByID(id); n != nil {
			names = append(names, n.Spec.Name)
		}
	}
	return hostlist.Fold(names)
}

// JobName is how people name a record, or one task of it: 12, 36_4,
// 36_[5-9%2].
func JobName(st *state.State, j *state.Job, task int64) string {
	a := st.ArrayOf(j)
	switch {
	case a == nil:
		return strconv.FormatUint(uint64(j.ID), 10)
	case task != spec.NoTask:
		return fmt.Sprintf("%d_%d", a.ID, task)
	case j.IsArrayRecord():
		throttle := ""
		if n := j.Spec.Queue.Array.Throttle; n > 0 {
			throttle = fmt.Sprintf("%%%d", n)
		}
		return fmt.Sprintf("%d_[%s%s]", a.ID, j.Tasks, throttle)
	}
	return fmt.Sprintf("%d_%d", a.ID, j.Task)
}

// Files are the paths of a job's standard files, relative ones under its work
// directory, with the patterns expanded that do not depend on the node.
func Files(st *state.State, j *state.Job) (stdin, stdout, stderr string) {
	js := j.Spec
	def := "slurm-%j.out"
	if j.Array != 0 {
		def = "slurm-%A_%a.out"
	}
	stdin = js.IO.Stdin
	stdout = js.IO.Stdout
	stderr = js.IO.Stderr
	if stdin == "" {
		stdin = "/dev/null"
	}
	if stdout == "" {
		stdout = def
	}
	if stderr == "" {
		stderr = stdout
	}
	return expand(st, j, stdin), expand(st, j, stdout), expand(st, j, stderr)
}

func expand(st *state.State, j *state.Job, path string) string {
	if !strings.HasPrefix(path, "/") {
		path = strings.TrimSuffix(j.Spec.IO.WorkDir, "/") + "/" + path
	}
	arrayID, task := j.ID, "4294967294"
	if a := st.ArrayOf(j); a != nil {
		arrayID = a.ID
		if j.Task != spec.NoTask {
			task = strconv.FormatInt(j.Task, 10)
		}
	}
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+1 == len(path) {
			b.WriteByte(path[i])
			continue
		}
		k := i + 1
		for k < len(path) && path[k] >= '0' && path[k] <= '9' {
			k++
		}
		width, _ := strconv.Atoi(path[i+1 : k])
		v, known := "", true
		switch {
		case k >= len(path):
			known = false
		case path[k] == 'j' || path[k] == 'J':
			v = strconv.FormatUint(uint64(j.ID), 10)
		case path[k] == 'A':
			v = strconv.FormatUint(uint64(arrayID), 10)
		case path[k] == 'a':
			v = task
		case path[k] == 'x':
			v = j.Spec.Name
		case path[k] == 'u':
			v = j.Spec.User
		case path[k] == '%':
			v = "%"
		default:
			known = false
		}
		if !known {
			b.WriteByte('%')
			continue
		}
		if n := min(width, 10) - len(v); n > 0 && v != "" && v[0] >= '0' && v[0] <= '9' {
			v = strings.Repeat("0", n) + v
		}
		b.WriteString(v)
		i = k
	}
	return b.String()
}
