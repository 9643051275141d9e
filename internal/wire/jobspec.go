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
		Pods: PodSet(job.Pods), X11: string(job.X11),
	}
	if queue.Array != nil {
		out.Array, out.ArrayThrottle = Tasks(queue.Array.Tasks), queue.Array.Throttle
	}
	return out
}

// ToJobSpec reads a submission. Who submits, and the hashes of script and
// environment, are not in the message: the caller knows them.
func ToJobSpec(message *apiv1.JobSpec) (*spec.JobSpec, error) {
	dependency, err := spec.ParseDependency(message.GetDependency())
	if err != nil {
		return nil, &spec.Error{Kind: spec.CodeDependencyProblem, Detail: err.Error()}
	}
	if err := checkWords(message); err != nil {
		return nil, err
	}
	job := &spec.JobSpec{
		Name: message.GetName(), Account: message.GetAccount(), QOS: message.GetQos(),
		Partitions: message.GetPartitions(), WCKey: message.GetWckey(),
		Comment: message.GetComment(),
		Size: spec.Size{
			MinNodes: message.GetMinNodes(), MaxNodes: message.GetMaxNodes(),
			Tasks: message.GetTasks(), TasksPerNode: message.GetTasksPerNode(),
			TasksPerSocket: message.GetTasksPerSocket(), TasksPerCore: message.GetTasksPerCore(),
			TasksPerGPU: message.GetTasksPerGpu(),
			CPUsPerTask: message.GetCpusPerTask(), CPUsPerGPU: message.GetCpusPerGpu(),
			MinCPUsPerNode: message.GetMinCpusPerNode(),
			MemPerNode:     message.GetMemPerNode(), MemPerCPU: message.GetMemPerCpu(),
			MemPerGPU: message.GetMemPerGpu(), AllMem: message.GetAllMem(),
			PerNode: ToCounts(
				message.GetPerNode(),
			), PerJob: ToCounts(message.GetPerJob()), PerTask: ToCounts(message.GetPerTask()),
			PerSocket: ToCounts(
				message.GetPerSocket(),
			), TmpDisk: message.GetTmpDisk(), ThreadsPerCore: message.GetThreadsPerCore(),
			CoreSpec:       message.GetCoreSpec(),
			SocketsPerNode: message.GetSocketsPerNode(),
			CoresPerSocket: message.GetCoresPerSocket(), Overcommit: message.GetOvercommit(),
			FewestNodes: message.GetUseMinNodes(), ThreadSpec: message.GetThreadSpec(),
		},
		Time: spec.TimeAsk{
			Limit: ToSpan(message.GetTimeLimit()),
			Min:   spec.Span(message.GetTimeMin()),
			Begin: spec.Instant(message.GetBegin()),
			Deadline: spec.Instant(
				message.GetDeadline(),
			),
			Signal:       message.GetSignal(),
			SignalBefore: spec.Span(message.GetSignalBefore()),
			SignalBatch:  message.GetSignalBatch(),
			SignalResv:   message.GetSignalResv(),
		},
		Place: spec.PlaceAsk{
			Nodes:      message.GetNodes(),
			Exclude:    message.GetExclude(),
			Constraint: message.GetConstraint(),
			Prefer:     message.GetPrefer(),
			Sharing: spec.Sharing(
				message.GetSharing(),
			),
			Contiguous:    message.GetContiguous(),
			Spread:        message.GetSpread(),
			Reservation:   message.GetReservation(),
			Switches:      message.GetSwitches(),
			SwitchWait:    spec.Span(message.GetSwitchWait()),
			Distribution:  message.GetDistribution(),
			Segment:       message.GetSegment(),
			ApartSegments: message.GetSpreadSegments(),
		},
		Queue: spec.QueueAsk{
			Nice:       message.GetNice(),
			Priority:   message.GetPriority(),
			Requeue:    spec.Tri(message.GetRequeue()),
			Dependency: dependency,
			KillInvalid: spec.Tri(
				message.GetKillOnInvalidDep(),
			),
			MailTypes:     message.GetMailTypes(),
			MailUser:      message.GetMailUser(),
			ImmediateOnly: message.GetImmediate(),
			Reboot:        message.GetReboot(),
			NoKill:        message.GetNoKill(),
		},
		IO: spec.JobIO{
			WorkDir: message.GetWorkDir(),
			Stdin:   message.GetStdin(),
			Stdout:  message.GetStdout(),
			Stderr:  message.GetStderr(),
			Append: spec.Tri(
				message.GetAppend(),
			),
			Umask:   message.GetUmask(),
			Rlimits: ToCounts(message.GetRlimits()),

			LimitsAsked: message.GetLimitsAsked(),
			Login:       toLoginShell(message.GetLogin()),
		},
		Licenses: ToCounts(
			message.GetLicenses(),
		), AnyLicense: message.GetAnyLicense(), Args: message.GetArgs(),
		Command: message.GetCommand(), Line: message.GetSubmitLine(),
		Host: message.GetSubmitHost(), Shell: message.GetShell(), GPUBind: message.GetGpuBind(),
		GPUFreq: message.GetGpuFreq(), Attended: message.GetAttended(), Extra: message.GetExtra(),
		SampleEvery: ToSpan(message.GetSampleEvery()),
		Container:   toContainer(message.GetContainer()),
	}
	job.X11, err = spec.ParseX11(message.GetX11())
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if message.GetHold() {
		job.Queue.Hold = spec.HeldByUser
	}
	if len(message.GetArray()) > 0 {
		tasks, err := ToTasks(message.GetArray())
		if err != nil {
			return nil, err
		}
		job.Queue.Array = spec.NewArrayAsk(tasks, message.GetArrayThrottle())
	}
	return job, nil
}

// checkWords refuses what is no value of its kind.
func checkWords(message *apiv1.JobSpec) error {
	for _, t := range [...]apiv1.Tri{
		apiv1.Tri(message.GetRequeue()),
		apiv1.Tri(message.GetKillOnInvalidDep()),
		apiv1.Tri(message.GetAppend()),
	} {
		if _, known := apiv1.Tri_name[int32(t)]; !known {
			return spec.Refuse(spec.CodeBadRequest, "neither yes, no nor unset")
		}
	}
	if _, err := spec.ParseGPUBind(message.GetGpuBind()); message.GetGpuBind() != "" && err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if _, err := spec.ParseGPUFreq(message.GetGpuFreq()); message.GetGpuFreq() != "" && err != nil {
		return spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	if message.GetSharing() > uint32(spec.Oversubscribe) {
		return spec.Refuse(spec.CodeBadRequest, "an unknown kind of sharing")
	}
	for _, s := range append(
		[]string{
			message.GetName(),
			message.GetAccount(),
			message.GetQos(),
			message.GetWorkDir(),
			message.GetStdin(),
			message.GetStdout(),
			message.GetStderr(),
			message.GetCommand(),
		},
		message.GetArgs()...,
	) {
		if strings.IndexByte(s, 0) >= 0 {
			return spec.Refuse(spec.CodeBadRequest, "a text contains a NUL byte")
		}
	}
	return nil
}

// Tasks writes a set of array tasks.
func Tasks(set spec.TaskSet) []*apiv1.TaskRange {
	ranges := make([]*apiv1.TaskRange, len(set))
	for i, taskRange := range set {
		ranges[i] = &apiv1.TaskRange{
			First: taskRange.First, Last: taskRange.Last, Step: taskRange.Step,
		}
	}
	return ranges
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
	set := make(spec.TaskSet, 0, len(list))
	for i, taskRange := range list {
		task := spec.TaskRange{
			First: taskRange.GetFirst(), Last: taskRange.GetLast(), Step: taskRange.GetStep(),
		}
		switch {
		case !task.Valid() || task.Last > maxArrayTask || task.Step > maxArrayTask,
			i > 0 && task.First <= set[i-1].First:
			return nil, spec.Refuse(spec.CodeInvalidArray, "the ranges are not in order")
		case slices.ContainsFunc(set, func(o spec.TaskRange) bool { return meet(o, task) }):
			return nil, spec.Refuse(spec.CodeInvalidArray, "a task is named twice")
		}
		set = append(set, task)
	}
	return set, nil
}

// meet tells whether two ranges have a task in common. taskRange begins first.
func meet(taskRange, task spec.TaskRange) bool {
	last := min(taskRange.Last, task.Last)
	if last < task.First {
		return false
	}
	g, inventory := gcdInverse(task.Step, taskRange.Step)
	gap := taskRange.First - task.First
	if gap%g != 0 {
		return false
	}
	// The least k >= 0 with t.First + k*t.Step = taskRange.First modulo taskRange.Step.
	mod := taskRange.Step / g
	k := ((gap/g)%mod*inventory%mod + mod) % mod
	return task.First+k*task.Step <= last
}

// gcdInverse returns the greatest common divisor g of two positive numbers,
// and the inverse of a/g modulo b/g.
func gcdInverse(a, b int64) (g, inventory int64) {
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

func loginShell(shell *spec.LoginShell) *apiv1.LoginShell {
	if shell == nil {
		return nil
	}
	return &apiv1.LoginShell{Timeout: int64(shell.Timeout), Plain: shell.Plain}
}

func toLoginShell(message *apiv1.LoginShell) *spec.LoginShell {
	if message == nil {
		return nil
	}
	return &spec.LoginShell{Timeout: spec.Span(message.GetTimeout()), Plain: message.GetPlain()}
}
