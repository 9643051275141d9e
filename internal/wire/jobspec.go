package wire

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// JobSpec writes a job as it was asked for.
func JobSpec(job *spec.JobSpec) *apiv1.JobSpec {
	size := &job.Size
	time := &job.Time
	place := &job.Place
	queue := &job.Queue
	out := &apiv1.JobSpec{
		Name: job.Name, Account: job.Account, Qos: job.QOSText(), Partitions: job.Partitions, Wckey: job.WCKey, Comment: job.Comment,
		MinNodes: size.MinNodes, MaxNodes: size.MaxNodes, Tasks: size.Tasks, TasksPerNode: size.TasksPerNode,
		TasksPerSocket: size.TasksPerSocket, TasksPerCore: size.TasksPerCore, TasksPerGpu: size.TasksPerGPU,
		CpusPerTask: size.CPUsPerTask, CpusPerGpu: size.CPUsPerGPU, MinCpusPerNode: size.MinCPUsPerNode,
		MemPerNode: size.MemPerNode, MemPerCpu: size.MemPerCPU, MemPerGpu: size.MemPerGPU, AllMem: size.AllMem,
		PerNode: Counts(
			size.PerNode,
		), PerJob: Counts(size.PerJob), PerTask: Counts(size.PerTask), PerSocket: Counts(size.PerSocket),
		TmpDisk: size.TmpDisk, ThreadsPerCore: size.ThreadsPerCore, CoreSpec: size.CoreSpec, Licenses: Counts(job.Licenses),
		TimeLimit: Span(
			time.Limit,
		), TimeMin: int64(time.Min), Begin: int64(time.Begin), Deadline: int64(time.Deadline),
		Signal: time.Signal, SignalBefore: int64(time.SignalBefore), SignalBatch: time.SignalBatch, SignalResv: time.SignalResv,
		Nodes: place.Nodes, Exclude: place.Exclude, Constraint: place.Constraint, Prefer: place.Prefer, Sharing: uint32(place.Sharing),
		Contiguous: place.Contiguous, Spread: place.Spread, Reservation: place.Reservation, Switches: place.Switches,
		SwitchWait: int64(
			place.SwitchWait,
		), Distribution: place.Distribution, Segment: place.Segment, SpreadSegments: place.ApartSegments, McsLabel: job.MCSLabel, AnyLicense: job.AnyLicense,
		SocketsPerNode: size.SocketsPerNode, CoresPerSocket: size.CoresPerSocket, Overcommit: size.Overcommit, UseMinNodes: size.FewestNodes, ThreadSpec: size.ThreadSpec,
		GpuBind: job.GPUBind, GpuFreq: job.GPUFreq, Attended: job.Attended,
		Extra: job.Extra, AdminComment: job.AdminComment, SystemComment: job.SystemComment, SampleEvery: Span(job.SampleEvery), Container: writeContainer(job.Container), Cron: job.Cron,
		Hold: queue.Hold != spec.NotHeld, Nice: queue.Nice, Priority: queue.Priority, Requeue: apiv1.Tri(queue.Requeue),
		Dependency: queue.Dependency.String(), KillOnInvalidDep: apiv1.Tri(queue.KillInvalid), MailTypes: queue.MailTypes,
		MailUser: queue.MailUser, Immediate: queue.ImmediateOnly, Reboot: queue.Reboot, NoKill: queue.NoKill,
		WorkDir: job.IO.WorkDir, Stdin: job.IO.Stdin, Stdout: job.IO.Stdout, Stderr: job.IO.Stderr, Append: apiv1.Tri(job.IO.Append),
		Umask: job.IO.Umask, Rlimits: Counts(job.IO.Rlimits), LimitsAsked: job.IO.LimitsAsked, Login: loginShell(job.IO.Login),
		Args: job.Args, Command: job.Command, SubmitLine: job.Line, SubmitHost: job.Host, Shell: job.Shell,
		Pods: PodSet(job.Pods),
	}
	if queue.Array != nil {
		out.Array, out.ArrayThrottle = Tasks(queue.Array.Tasks), queue.Array.Throttle
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
	job := &spec.JobSpec{
		Name: m.GetName(), Account: m.GetAccount(), QOS: m.GetQos(), Partitions: m.GetPartitions(), WCKey: m.GetWckey(), Comment: m.GetComment(),
		Size: spec.Size{
			MinNodes: m.GetMinNodes(), MaxNodes: m.GetMaxNodes(), Tasks: m.GetTasks(), TasksPerNode: m.GetTasksPerNode(),
			TasksPerSocket: m.GetTasksPerSocket(), TasksPerCore: m.GetTasksPerCore(), TasksPerGPU: m.GetTasksPerGpu(),
			CPUsPerTask: m.GetCpusPerTask(), CPUsPerGPU: m.GetCpusPerGpu(), MinCPUsPerNode: m.GetMinCpusPerNode(),
			MemPerNode: m.GetMemPerNode(), MemPerCPU: m.GetMemPerCpu(), MemPerGPU: m.GetMemPerGpu(), AllMem: m.GetAllMem(),
			PerNode: ToCounts(
				m.GetPerNode(),
			), PerJob: ToCounts(m.GetPerJob()), PerTask: ToCounts(m.GetPerTask()),
			PerSocket: ToCounts(
				m.GetPerSocket(),
			), TmpDisk: m.GetTmpDisk(), ThreadsPerCore: m.GetThreadsPerCore(), CoreSpec: m.GetCoreSpec(),
			SocketsPerNode: m.GetSocketsPerNode(), CoresPerSocket: m.GetCoresPerSocket(), Overcommit: m.GetOvercommit(), FewestNodes: m.GetUseMinNodes(), ThreadSpec: m.GetThreadSpec(),
		},
		Time: spec.TimeAsk{
			Limit: ToSpan(m.GetTimeLimit()),
			Min:   spec.Span(m.GetTimeMin()),
			Begin: spec.Instant(m.GetBegin()),
			Deadline: spec.Instant(
				m.GetDeadline(),
			),
			Signal:       m.GetSignal(),
			SignalBefore: spec.Span(m.GetSignalBefore()),
			SignalBatch:  m.GetSignalBatch(),
			SignalResv:   m.GetSignalResv(),
		},
		Place: spec.PlaceAsk{
			Nodes:      m.GetNodes(),
			Exclude:    m.GetExclude(),
			Constraint: m.GetConstraint(),
			Prefer:     m.GetPrefer(),
			Sharing: spec.Sharing(
				m.GetSharing(),
			),
			Contiguous:    m.GetContiguous(),
			Spread:        m.GetSpread(),
			Reservation:   m.GetReservation(),
			Switches:      m.GetSwitches(),
			SwitchWait:    spec.Span(m.GetSwitchWait()),
			Distribution:  m.GetDistribution(),
			Segment:       m.GetSegment(),
			ApartSegments: m.GetSpreadSegments(),
		},
		Queue: spec.QueueAsk{
			Nice:       m.GetNice(),
			Priority:   m.GetPriority(),
			Requeue:    spec.Tri(m.GetRequeue()),
			Dependency: dep,
			KillInvalid: spec.Tri(
				m.GetKillOnInvalidDep(),
			),
			MailTypes:     m.GetMailTypes(),
			MailUser:      m.GetMailUser(),
			ImmediateOnly: m.GetImmediate(),
			Reboot:        m.GetReboot(),
			NoKill:        m.GetNoKill(),
		},
		IO: spec.JobIO{
			WorkDir: m.GetWorkDir(),
			Stdin:   m.GetStdin(),
			Stdout:  m.GetStdout(),
			Stderr:  m.GetStderr(),
			Append: spec.Tri(
				m.GetAppend(),
			),
			Umask:   m.GetUmask(),
			Rlimits: ToCounts(m.GetRlimits()),

			LimitsAsked: m.GetLimitsAsked(),
			Login:       toLoginShell(m.GetLogin()),
		},
		Licenses: ToCounts(
			m.GetLicenses(),
		), AnyLicense: m.GetAnyLicense(), Args: m.GetArgs(), Command: m.GetCommand(), Line: m.GetSubmitLine(),
		Host: m.GetSubmitHost(), Shell: m.GetShell(), GPUBind: m.GetGpuBind(), GPUFreq: m.GetGpuFreq(), Attended: m.GetAttended(), Extra: m.GetExtra(), SampleEvery: ToSpan(m.GetSampleEvery()), Container: toContainer(m.GetContainer()),
	}
	if m.GetHold() {
		job.Queue.Hold = spec.HeldByUser
	}
	if len(m.GetArray()) > 0 {
		tasks, err := ToTasks(m.GetArray())
		if err != nil {
			return nil, err
		}
		job.Queue.Array = spec.NewArrayAsk(tasks, m.GetArrayThrottle())
	}
	return job, nil
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
func Tasks(set spec.TaskSet) []*apiv1.TaskRange {
	out := make([]*apiv1.TaskRange, len(set))
	for i, r := range set {
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
		task := spec.TaskRange{First: r.GetFirst(), Last: r.GetLast(), Step: r.GetStep()}
		switch {
		case !task.Valid() || task.Last > maxArrayTask || task.Step > maxArrayTask,
			i > 0 && task.First <= out[i-1].First:
			return nil, spec.Refuse(spec.CodeInvalidArray, "the ranges are not in order")
		case slices.ContainsFunc(out, func(o spec.TaskRange) bool { return meet(o, task) }):
			return nil, spec.Refuse(spec.CodeInvalidArray, "a task is named twice")
		}
		out = append(out, task)
	}
	return out, nil
}

// meet tells whether two ranges have a task in common. o begins first.
func meet(o, task spec.TaskRange) bool {
	last := min(o.Last, task.Last)
	if last < task.First {
		return false
	}
	g, inv := gcdInverse(task.Step, o.Step)
	gap := o.First - task.First
	if gap%g != 0 {
		return false
	}
	// The least k >= 0 with t.First + k*t.Step = o.First modulo o.Step.
	mod := o.Step / g
	k := ((gap/g)%mod*inv%mod + mod) % mod
	return task.First+k*task.Step <= last
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

func loginShell(l *spec.LoginShell) *apiv1.LoginShell {
	if l == nil {
		return nil
	}
	return &apiv1.LoginShell{Timeout: int64(l.Timeout), Plain: l.Plain}
}

func toLoginShell(m *apiv1.LoginShell) *spec.LoginShell {
	if m == nil {
		return nil
	}
	return &spec.LoginShell{Timeout: spec.Span(m.GetTimeout()), Plain: m.GetPlain()}
}
