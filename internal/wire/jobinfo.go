package wire

import (
	"cmp"
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
	"github.com/musterhpc/muster/scheduler/place"
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
func NewShower(snapshot *view.View, now spec.Instant, detail bool) *Shower {
	return &Shower{v: snapshot, now: now, detail: detail}
}

// Job writes a job as squeue and scontrol show it.
func (s *Shower) Job(job *state.Job) *apiv1.JobInfo {
	jobSpec := job.Spec
	out := &apiv1.JobInfo{
		Uid: uint64(
			job.UID,
		), JobId: uint32(job.ID), ArrayTask: job.Task, ArrayTasks: Tasks(job.Tasks),
		UserId: jobSpec.UID, User: jobSpec.User, GroupId: jobSpec.GID, Group: jobSpec.Group,
		State: uint32(
			job.State,
		), Completing: job.Completing() || (job.State.Active() && job.Ending != nil),
		Reason: Reason(
			job.Reason,
		), Hold: uint32(job.Hold), Attempt: job.Attempt, Restarts: job.Restarts,
		Submit: int64(
			job.Submitted,
		), Eligible: int64(job.Eligible), Start: int64(job.Started), End: int64(job.Ended),
		Partition: strings.Join(
			jobSpec.Partitions,
			",",
		), Qos: jobSpec.QOSText(), ReqTres: TRES(job.Req), NumNodes: uint32(job.Req.Node), NumCpus: uint32(job.Req.CPU),
		ExitCode: job.Exit.Code, ExitSignal: job.Exit.Signal, DerivedCode: job.Derived.Code, DerivedSignal: job.Derived.Signal,
		EndedBy: job.EndedBy, Changed: job.Changed, Backfilled: job.Backfill, TimeLimit: s.limitOf(job), Priority: s.priorityOf(job),
		NumTasks: s.countTasks(job), LastSchedEval: int64(s.v.Pass.LastAt),
	}
	out.Spec = JobSpec(jobSpec)
	out.DefaultMemPerCpu = s.defaultMemory(job)
	out.Stopped = job.Stopped
	out.Images = pinnedImages(job.Images)
	if job.Batch != nil {
		out.Failure = job.Batch.Detail
	}
	if array := s.v.State.ArrayOf(job); array != nil {
		out.ArrayJobId, out.ArrayThrottle = uint32(array.ID), jobSpec.Queue.Array.Throttle
	}
	if part := job.Het; part != nil {
		out.HetJobId = uint32(job.ID) - part.Offset
		out.HetOffset = part.Offset
		out.HetSize = part.Size
	}
	s.showAllocation(job, out)
	if job.State == spec.Pending {
		s.showPending(job, out)
	}
	for i := range job.Steps {
		out.Steps = append(out.Steps, stepInfo(&job.Steps[i]))
	}
	return out
}

func (s *Shower) limitOf(job *state.Job) int64 {
	if job.State != spec.Pending && job.Limit != 0 {
		return Span(job.Limit)
	}
	limit := job.Spec.Time.Limit
	if partition := s.v.State.Parts.Find(job.Partition()); partition != nil {
		limit = partition.Spec.TimeLimit(limit)
	}
	return Span(cmp.Or(limit, spec.Infinite))
}

// defaultMemory is the memory per CPU, in MiB, of a job that requested none: 0
// where the default is counted otherwise. It is no part of the request, which
// commands hand on to steps.
func (s *Shower) defaultMemory(job *state.Job) int64 {
	size := &job.Spec.Size
	if size.AllMem || size.MemPerNode > 0 || size.MemPerCPU > 0 || size.MemPerGPU > 0 {
		return 0
	}
	partition := s.v.State.Parts.Find(job.Partition())
	if partition == nil {
		return 0
	}
	wantsGPU := job.Req.Get("gres/gpu") > 0
	return place.DefaultMemory(s.v.State.Config, partition.Spec, wantsGPU).CPU
}

func (s *Shower) priorityOf(job *state.Job) uint32 {
	if job.State != spec.Pending {
		if s.running == nil {
			running := order.NewRunning(s.v.State, s.now)
			s.running = &running
		}
		return s.running.Of(job)
	}
	partition := s.v.State.Parts.Find(job.Partition())
	if partition == nil {
		return 0
	}
	if s.ranks == nil {
		s.ranks = order.NewContext(s.v.State, s.now)
	}
	return s.ranks.Of(job, partition.Spec).Total
}

func (s *Shower) countTasks(job *state.Job) uint32 {
	if job.Alloc != nil {
		return job.Alloc.Tasks
	}
	size := &job.Spec.Size
	if size.TasksPerGPU > 0 || len(size.PerTask) > 0 && len(size.PerJob)+len(size.PerNode) > 0 {
		// GPUs may say how many tasks there are, as where the job is placed.
		if partition := s.v.State.Parts.Find(job.Partition()); partition != nil {
			demand := place.Resolve(s.v.State.Config, partition.Spec, job.Spec)
			return uint32(demand.Tasks)
		}
	}
	if size.Tasks > 0 {
		return size.Tasks
	}
	return max(size.MinNodes, 1) * max(size.TasksPerNode, 1)
}

// showAllocation writes what a job holds or held.
func (s *Shower) showAllocation(job *state.Job, out *apiv1.JobInfo) {
	if job.Alloc == nil || job.State == spec.Pending {
		if job.State == spec.Pending {
			out.Start, out.End = 0, 0
		}
		return
	}
	allocation := job.Alloc
	out.Qos = job.QOS()
	out.Partition = allocation.Partition
	out.Nodes = hostlist.Fold(allocation.NodeNames())
	out.BatchHost = allocation.Nodes[0].Name
	out.NumNodes = uint32(len(allocation.Nodes))
	out.NumCpus = uint32(allocation.TRES.CPU)
	out.AllocTres = TRES(allocation.TRES)
	if at := job.Deadline(); job.State.Active() && at != spec.FarFuture {
		out.End = int64(at)
	}
	out.Paused, out.SuspendedAt = int64(job.Paused), int64(job.SuspendedAt)
	out.Configuring = job.Configuring()
	if out.Configuring {
		s.showBoot(job, out)
	} else if job.Ready != 0 {
		out.Start = int64(job.Ready) // its time began when its nodes were there
	}
	if !s.detail {
		return
	}
	for i := range allocation.Nodes {
		n := NodeAlloc(&allocation.Nodes[i])
		n.Done, n.Leaving = job.Done.Has(i), slices.Contains(job.Leaving, n.Name)
		out.Allocation = append(out.Allocation, n)
	}
}

// showBoot writes what a job waits for that has its nodes, but not up.
func (s *Shower) showBoot(job *state.Job, out *apiv1.JobInfo) {
	names := s.v.State.Booting(job)
	out.Booting, out.End = hostlist.Fold(names), 0
	for _, name := range names {
		node := s.v.State.Node(name)
		if by := node.PowerAt.Add(
			scheduler.PowerTimes(s.v.State, node).UpIn,
		); node.Power == event.PoweringUp &&
			(out.BootBy == 0 || int64(by) < out.BootBy) {
			out.BootBy = int64(by)
		}
	}
}

// NodeAlloc writes one node's part of an allocation.
func NodeAlloc(node *spec.NodeAlloc) *apiv1.NodeAlloc {
	allocation := &apiv1.NodeAlloc{
		Name:  node.Name,
		Cpus:  node.CPUs,
		Mem:   node.Mem,
		Gres:  Counts(node.GRES),
		Tasks: node.Tasks,
	}
	for _, gpu := range node.GPUs {
		allocation.Gpus = append(
			allocation.Gpus, &apiv1.GpuRef{Uuid: gpu.UUID, Index: gpu.Index, Type: gpu.Type},
		)
	}
	for _, share := range node.Shares {
		allocation.Shares = append(
			allocation.Shares,
			&apiv1.GpuShare{
				Uuid:  share.UUID,
				Index: share.Index,
				Type:  share.Type,
				Name:  share.Name,
				N:     share.N,
				Of:    share.Of,
			},
		)
	}
	return allocation
}

// showPending writes what is predicted for a waiting job.
func (s *Shower) showPending(job *state.Job, out *apiv1.JobInfo) {
	if planned := s.v.Plan.Of(job.UID); planned != nil {
		out.PlannedStart = int64(planned.Start)
		out.PlannedNodes = s.nodeNames(planned.Nodes)
		out.PlannedEstimate = planned.Estimate
	}
	if out.Start == 0 && job.Begin > s.now {
		out.Start = int64(job.Begin)
	}
	if dependency := job.Spec.Queue.Dependency; dependency != nil {
		var parts []string
		for i := range dependency.Terms {
			if st := scheduler.TermState(s.v.State, job, &dependency.Terms[i], s.now); st != "" {
				parts = append(parts, s.termText(&dependency.Terms[i])+"("+st+")")
			}
		}
		sep := ","
		if dependency.Any {
			sep = "?"
		}
		out.Dependency = strings.Join(parts, sep)
	}
}

// termText writes a term as Slurm shows it: with _* behind the number of an array.
func (s *Shower) termText(term *spec.DependencyTerm) string {
	if _, isArray := s.v.State.Arrays.Get(uint64(term.UID)); isArray {
		return term.StringOfArray()
	}
	return term.String()
}

func (s *Shower) nodeNames(ids []spec.NodeID) string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if node := s.v.State.NodeByID(id); node != nil {
			names = append(names, node.Spec.Name)
		}
	}
	return hostlist.Fold(names)
}

// JobName is how people name a record, or one task of it: 12, 36_4,
// 36_[5-9%2].
func JobName(cluster *state.State, job *state.Job, task int64) string {
	array := cluster.ArrayOf(job)
	switch {
	case array == nil:
		return strconv.FormatUint(uint64(job.ID), 10)
	case task != spec.NoTask:
		return fmt.Sprintf("%d_%d", array.ID, task)
	case job.IsArrayRecord():
		throttle := ""
		if n := job.Spec.Queue.Array.Throttle; n > 0 {
			throttle = fmt.Sprintf("%%%d", n)
		}
		return fmt.Sprintf("%d_[%s%s]", array.ID, job.Tasks, throttle)
	}
	return fmt.Sprintf("%d_%d", array.ID, job.Task)
}

// Files are the paths of a job's standard files, relative ones under its work
// directory, with the patterns expanded that do not depend on the node.
func Files(cluster *state.State, job *state.Job) (stdin, stdout, stderr string) {
	jobSpec := job.Spec
	def := "slurm-%j.out"
	if job.Array != 0 {
		def = "slurm-%A_%a.out"
	}
	stdin = jobSpec.IO.Stdin
	stdout = jobSpec.IO.Stdout
	stderr = jobSpec.IO.Stderr
	if stdin == "" {
		stdin = "/dev/null"
	}
	if stdout == "" {
		stdout = def
	}
	if stderr == "" {
		stderr = stdout
	}
	return expand(cluster, job, stdin), expand(cluster, job, stdout), expand(cluster, job, stderr)
}

func expand(cluster *state.State, job *state.Job, path string) string {
	if !strings.HasPrefix(path, "/") {
		path = strings.TrimSuffix(job.Spec.IO.WorkDir, "/") + "/" + path
	}
	arrayID, task := job.ID, "4294967294"
	if array := cluster.ArrayOf(job); array != nil {
		arrayID = array.ID
		if job.Task != spec.NoTask {
			task = strconv.FormatInt(job.Task, 10)
		}
	}
	var text strings.Builder
	for i := 0; i < len(path); i++ {
		if path[i] != '%' || i+1 == len(path) {
			text.WriteByte(path[i])
			continue
		}
		k := i + 1
		for k < len(path) && path[k] >= '0' && path[k] <= '9' {
			k++
		}
		width, _ := strconv.Atoi(path[i+1 : k])
		value, known := "", true
		switch {
		case k >= len(path):
			known = false
		case path[k] == 'j' || path[k] == 'J':
			value = strconv.FormatUint(uint64(job.ID), 10)
		case path[k] == 'A':
			value = strconv.FormatUint(uint64(arrayID), 10)
		case path[k] == 'a':
			value = task
		case path[k] == 'x':
			value = job.Spec.Name
		case path[k] == 'u':
			value = job.Spec.User
		case path[k] == '%':
			value = "%"
		default:
			known = false
		}
		if !known {
			text.WriteByte('%')
			continue
		}
		if n := min(width, 10) - len(value); n > 0 && value != "" && value[0] >= '0' &&
			value[0] <= '9' {
			value = strings.Repeat("0", n) + value
		}
		text.WriteString(value)
		i = k
	}
	return text.String()
}
