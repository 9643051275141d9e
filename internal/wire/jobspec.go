package wire

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// JobSpec writes a job as it was asked for.
func JobSpec(j *spec.JobSpec) *apiv1.JobSpec {
	s := &j.Size
	t := &j.Time
	p := &j.Place
	q := &j.Queue
	out := &apiv1.JobSpec{
		Name: j.Name, Account: j.Account, Qos: j.QOSText(), Partitions: j.Partitions, Wckey: j.WCKey, Comment: j.Comment,
		MinNodes: s.MinNodes, MaxNodes: s.MaxNodes, Tasks: s.Tasks, TasksPerNode: s.TasksPerNode,
		TasksPerSocket: s.TasksPerSocket, TasksPerCore: s.TasksPerCore, TasksPerGpu: s.TasksPerGPU,
		CpusPerTask: s.CPUsPerTask, CpusPerGpu: s.CPUsPerGPU, MinCpusPerNode: s.MinCPUsPerNode,
		MemPerNode: s.MemPerNode, MemPerCpu: s.MemPerCPU, MemPerGpu: s.MemPerGPU, AllMem: s.AllMem,
		PerNode: Counts(s.PerNode), PerJob: Counts(s.PerJob), PerTask: Counts(s.PerTask), PerSocket: Counts(s.PerSocket),
		TmpDisk: s.TmpDisk, ThreadsPerCore: s.ThreadsPerCore, CoreSpec: s.CoreSpec, Licenses: Counts(j.Licenses),
		TimeLimit: Span(t.Limit), TimeMin: int64(t.Min), Begin: int64(t.Begin), Deadline: int64(t.Deadline),
		Signal: t.Signal, SignalBefore: int64(t.SignalBefore), SignalBatch: t.SignalBatch, SignalResv: t.SignalResv,
		Nodes: p.Nodes, Exclude: p.Exclude, Constraint: p.Constraint, Prefer: p.Prefer, Sharing: uint32(p.Sharing),
		Contiguous: p.Contiguous, Spread: p.Spread, Reservation: p.Reservation, Switches: p.Switches,
		SwitchWait: int64(p.SwitchWait), Distribution: p.Distribution, Segment: p.Segment, SpreadSegments: p.ApartSegments, McsLabel: j.MCSLabel, AnyLicense: j.AnyLicense,
		SocketsPerNode: s.SocketsPerNode, CoresPerSocket: s.CoresPerSocket, Overcommit: s.Overcommit, UseMinNodes: s.FewestNodes, ThreadSpec: s.ThreadSpec,
		GpuBind: j.GPUBind, GpuFreq: j.GPUFreq, Attended: j.Attended,
		Extra: j.Extra, AdminComment: j.AdminComment, SystemComment: j.SystemComment, SampleEvery: Span(j.SampleEvery), Container: container(j.Container),
		Hold: q.Hold != spec.NotHeld, Nice: q.Nice, Priority: q.Priority, Requeue: apiv1.Tri(q.Requeue),
		Dependency: q.Dependency.String(), KillOnInvalidDep: apiv1.Tri(q.KillInvalid), MailTypes: q.MailTypes,
		MailUser: q.MailUser, Immediate: q.ImmediateOnly, Reboot: q.Reboot, NoKill: q.NoKill,
		WorkDir: j.IO.WorkDir, Stdin: j.IO.Stdin, Stdout: j.IO.Stdout, Stderr: j.IO.Stderr, Append: apiv1.Tri(j.IO.Append),
		Umask: j.IO.Umask, Rlimits: Counts(j.IO.Rlimits),
		Args: j.Args, Command: j.Command, SubmitLine: j.Line, SubmitHost: j.Host, Shell: j.Shell,
	}
	if q.Array != nil {
		out.Array, out.ArrayThrottle = Tasks(q.Array.Tasks), q.Array.Throttle
	}
	return out
}

// ToJobSpec reads a submission. Who submits, and the hashes of script and
// environment, are not in the message: the caller knows them.
func ToJobSpec(m *apiv1.JobSpec) (*spec.JobSpec, error) {
	dep, err := spec.ParseDependency(m.GetDependency())
	if err != nil {
		return nil, &spec.Error{Kind: spec.CodeDependencyProblem, Detail: err.Error()}
	}
	if err := checkWords(m); err != nil {
		return nil, err
	}
	j := &spec.JobSpec{
		Name: m.GetName(), Account: m.GetAccount(), QOS: m.GetQos(), Partitions: m.GetPartitions(), WCKey: m.GetWckey(), Comment: m.GetComment(),
		Size: spec.Size{
			MinNodes: m.GetMinNodes(), MaxNodes: m.GetMaxNodes(), Tasks: m.GetTasks(), TasksPerNode: m.GetTasksPerNode(),
			TasksPerSocket: m.GetTasksPerSocket(), TasksPerCore: m.GetTasksPerCore(), TasksPerGPU: m.GetTasksPerGpu(),
			CPUsPerTask: m.GetCpusPerTask(), CPUsPerGPU: m.GetCpusPerGpu(), MinCPUsPerNode: m.GetMinCpusPerNode(),
			MemPerNode: m.GetMemPerNode(), MemPerCPU: m.GetMemPerCpu(), MemPerGPU: m.GetMemPerGpu(), AllMem: m.GetAllMem(),
			PerNode: ToCounts(m.GetPerNode()), PerJob: ToCounts(m.GetPerJob()), PerTask: ToCounts(m.GetPerTask()),
			PerSocket: ToCounts(m.GetPerSocket()), TmpDisk: m.GetTmpDisk(), ThreadsPerCore: m.GetThreadsPerCore(), CoreSpec: m.GetCoreSpec(),
			SocketsPerNode: m.GetSocketsPerNode(), CoresPerSocket: m.GetCoresPerSocket(), Overcommit: m.GetOvercommit(), FewestNodes: m.GetUseMinNodes(), ThreadSpec: m.GetThreadSpec(),
		},
		Time: spec.TimeAsk{Limit: ToSpan(m.GetTimeLimit()), Min: spec.Span(m.GetTimeMin()), Begin: spec.Instant(m.GetBegin()),
			Deadline: spec.Instant(m.GetDeadline()), Signal: m.GetSignal(), SignalBefore: spec.Span(m.GetSignalBefore()),
			SignalBatch: m.GetSignalBatch(), SignalResv: m.GetSignalResv()},
		Place: spec.PlaceAsk{Nodes: m.GetNodes(), Exclude: m.GetExclude(), Constraint: m.GetConstraint(), Prefer: m.GetPrefer(),
			Sharing: spec.Sharing(m.GetSharing()), Contiguous: m.GetContiguous(), Spread: m.GetSpread(), Reservation: m.GetReservation(),
			Switches: m.GetSwitches(), SwitchWait: spec.Span(m.GetSwitchWait()), Distribution: m.GetDistribution(),
			Segment: m.GetSegment(), ApartSegments: m.GetSpreadSegments()},
		Queue: spec.QueueAsk{Nice: m.GetNice(), Priority: m.GetPriority(), Requeue: spec.Tri(m.GetRequeue()), Dependency: dep,
			KillInvalid: spec.Tri(m.GetKillOnInvalidDep()), MailTypes: m.GetMailTypes(), MailUser: m.GetMailUser(),
			ImmediateOnly: m.GetImmediate(), Reboot: m.GetReboot(), NoKill: m.GetNoKill()},
		IO: spec.JobIO{WorkDir: m.GetWorkDir(), Stdin: m.GetStdin(), Stdout: m.GetStdout(), Stderr: m.GetStderr(),
			Append: spec.Tri(m.GetAppend()), Umask: m.GetUmask(), Rlimits: ToCounts(m.GetRlimits())},
		Licenses: ToCounts(m.GetLicenses()), AnyLicense: m.GetAnyLicense(), Args: m.GetArgs(), Command: m.GetCommand(), Line: m.GetSubmitLine(),
		Host: m.GetSubmitHost(), Shell: m.GetShell(), GPUBind: m.GetGpuBind(), GPUFreq: m.GetGpuFreq(), Attended: m.GetAttended(), Extra: m.GetExtra(), SampleEvery: ToSpan(m.GetSampleEvery()), Container: toContainer(m.GetContainer()),
	}
	if m.GetHold() {
		j.Queue.Hold = spec.HeldByUser
	}
	if len(m.GetArray()) > 0 {
		tasks, err := ToTasks(m.GetArray())
		if err != nil {
			return nil, err
		}
		j.Queue.Array = spec.NewArrayAsk(tasks, m.GetArrayThrottle())
	}
	return j, nil
}

// checkWords refuses what is no value of its kind.
func checkWords(m *apiv1.JobSpec) error {
	for _, t := range [...]apiv1.Tri{apiv1.Tri(m.GetRequeue()), apiv1.Tri(m.GetKillOnInvalidDep()), apiv1.Tri(m.GetAppend())} {
		if _, known := apiv1.Tri_name[int32(t)]; !known {
			return spec.Refuse(spec.CodeBadRequest, "neither yes, no nor unset")
		}
	}
	if _, err := spec.ParseGPUBind(m.GetGpuBind()); m.GetGpuBind() != "" && err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if _, err := spec.ParseGPUFreq(m.GetGpuFreq()); m.GetGpuFreq() != "" && err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if m.GetSharing() > uint32(spec.Oversubscribe) {
		return spec.Refuse(spec.CodeBadRequest, "an unknown kind of sharing")
	}
	for _, s := range append([]string{m.GetName(), m.GetAccount(), m.GetQos(), m.GetWorkDir(), m.GetStdin(), m.GetStdout(), m.GetStderr(), m.GetCommand()}, m.GetArgs()...) {
		if strings.IndexByte(s, 0) >= 0 {
			return spec.Refuse(spec.CodeBadRequest, "a text contains a NUL byte")
		}
	}
	return nil
}

// Tasks writes a set of array tasks.
func Tasks(s spec.TaskSet) []*apiv1.TaskRange {
	out := make([]*apiv1.TaskRange, len(s))
	for i, r := range s {
		out[i] = &apiv1.TaskRange{First: r.First, Last: r.Last, Step: r.Step}
	}
	return out
}

// Bounds of an array in a message: the largest MaxArraySize there is, and so
// many ranges that checking them takes no time.
const (
	maxArrayTask   = 4_000_000
	maxArrayRanges = 4096
)

// ToTasks reads a set of array tasks and refuses ranges that are not
// ascending and disjoint.
func ToTasks(list []*apiv1.TaskRange) (spec.TaskSet, error) {
	if len(list) > maxArrayRanges {
		return nil, spec.Refuse(spec.CodeInvalidArray, "too many ranges")
	}
	out := make(spec.TaskSet, 0, len(list))
	for i, r := range list {
		t := spec.TaskRange{First: r.GetFirst(), Last: r.GetLast(), Step: r.GetStep()}
		switch {
		case t.First < 0 || t.Last < t.First || t.Last > maxArrayTask || t.Step < 1 || t.Step > maxArrayTask || (t.Last-t.First)%t.Step != 0,
			i > 0 && t.First <= out[i-1].First:
			return nil, spec.Refuse(spec.CodeInvalidArray, "the ranges are not in order")
		case slices.ContainsFunc(out, func(o spec.TaskRange) bool { return meet(o, t) }):
			return nil, spec.Refuse(spec.CodeInvalidArray, "a task is named twice")
		}
		out = append(out, t)
	}
	return out, nil
}

// meet tells whether two ranges have a task in common. o begins first.
func meet(o, t spec.TaskRange) bool {
	last := min(o.Last, t.Last)
	if last < t.First {
		return false
	}
	g, inv := gcdInverse(t.Step, o.Step)
	gap := o.First - t.First
	if gap%g != 0 {
		return false
	}
	// The least k >= 0 with t.First + k*t.Step = o.First modulo o.Step.
	mod := o.Step / g
	k := ((gap/g)%mod*inv%mod + mod) % mod
	return t.First+k*t.Step <= last
}

// gcdInverse returns the greatest common divisor g of two positive numbers,
// and the inverse of a/g modulo b/g.
func gcdInverse(a, b int64) (g, inv int64) {
	r0 := a
	r1 := b
	x0 := int64(1)
	x1 := int64(0)
	for r1 != 0 {
		q := r0 / r1
		r0, r1, x0, x1 = r1, r0-q*r1, x1, x0-q*x1
	}
	return r0, x0
}
