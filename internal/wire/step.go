package wire

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// StepSpec writes a step as it was asked for.
func StepSpec(s *spec.StepSpec) *apiv1.StepSpec {
	out := &apiv1.StepSpec{
		Name: s.Name, Argv: s.Argv, WorkDir: s.WorkDir, Umask: s.Umask, Rlimits: Counts(s.Rlimits), MinNodes: s.MinNodes, MaxNodes: s.MaxNodes,
		Tasks: s.Tasks, TasksPerNode: s.TasksPerNode, CpusPerTask: s.CPUsPerTask, Overlap: s.Overlap, Exact: s.Exact, MemPerNode: s.MemPerNode,
		MemPerCpu: s.MemPerCPU, PerNode: Counts(s.PerNode), PerStep: Counts(s.PerStep), PerTask: Counts(s.PerTask), NoGres: s.NoGRES, Nodes: s.Nodes,
		Exclude: s.Exclude, Relative: s.Relative, Distribution: s.Distribution, Overcommit: s.Overcommit, TimeLimit: int64(s.Limit), External: s.External,
		Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Append: s.Append, InputTask: s.InputTask, Pty: s.Pty, Rows: s.Rows, Columns: s.Columns,
		Unbuffered: s.Unbuffered, TaskProlog: s.TaskProlog, TaskEpilog: s.TaskEpilog, CpuBind: s.CPUBind, GpuBind: s.GPUBind, Mpi: s.MPI,
		KillOnBadExit: s.KillOnFail, KeepOnBadExit: s.KeepOnFail, Wait: s.Wait, PreserveEnv: s.KeepSizes,
		TaskNodes: s.TaskNodes, LimitsAsked: s.LimitsAsked,
	}
	for i := range s.Programs {
		out.Programs = append(
			out.Programs,
			&apiv1.TaskProgram{Ranks: Tasks(s.Programs[i].Ranks), Argv: s.Programs[i].Argv},
		)
	}
	out.Container = writeContainer(s.Container)
	if cast := s.Cast; cast != nil {
		out.Cast = &apiv1.Cast{
			Path:     cast.Path,
			Size:     cast.Size,
			Mode:     cast.Mode,
			Modified: int64(cast.Modified),
			Force:    cast.Force,
		}
	}
	if world := s.World; world != nil {
		out.World = &apiv1.StepWorld{Job: uint32(world.Job), Place: world.Place}
		for i := range world.Parts {
			part := &world.Parts[i]
			out.World.Parts = append(
				out.World.Parts,
				&apiv1.WorldPart{
					Nodes: part.Nodes, Tasks: part.Tasks, Distribution: part.Distribution,
				},
			)
		}
	}
	return out
}

// ToStepSpec reads it; the hash of the environment is not in the message.
func ToStepSpec(message *apiv1.StepSpec) (*spec.StepSpec, error) {
	step := &spec.StepSpec{
		Name: message.GetName(), Argv: message.GetArgv(), WorkDir: message.GetWorkDir(),
		Umask: message.GetUmask(), Rlimits: ToCounts(message.GetRlimits()),
		MinNodes: message.GetMinNodes(),
		MaxNodes: message.GetMaxNodes(), Tasks: message.GetTasks(),
		TasksPerNode: message.GetTasksPerNode(), CPUsPerTask: message.GetCpusPerTask(),
		Overlap: message.GetOverlap(),
		Exact:   message.GetExact(), MemPerNode: message.GetMemPerNode(),
		MemPerCPU: message.GetMemPerCpu(), PerNode: ToCounts(message.GetPerNode()),
		PerStep: ToCounts(message.GetPerStep()),
		PerTask: ToCounts(
			message.GetPerTask(),
		), NoGRES: message.GetNoGres(), Nodes: message.GetNodes(), Exclude: message.GetExclude(),
		Relative:  message.GetRelative(),
		TaskNodes: message.GetTaskNodes(), Distribution: message.GetDistribution(),
		Overcommit: message.GetOvercommit(), Limit: spec.Span(message.GetTimeLimit()),
		External: message.GetExternal(),
		Stdin:    message.GetStdin(), Stdout: message.GetStdout(), Stderr: message.GetStderr(),
		Append: message.GetAppend(), InputTask: message.GetInputTask(), Pty: message.GetPty(),
		Rows: message.GetRows(), Columns: message.GetColumns(), Unbuffered: message.GetUnbuffered(),
		TaskProlog: message.GetTaskProlog(), TaskEpilog: message.GetTaskEpilog(),
		CPUBind: message.GetCpuBind(), GPUBind: message.GetGpuBind(), MPI: message.GetMpi(),
		KillOnFail: message.GetKillOnBadExit(), KeepOnFail: message.GetKeepOnBadExit(),
		Wait:      message.GetWait(),
		KeepSizes: message.GetPreserveEnv(), LimitsAsked: message.GetLimitsAsked(),
	}
	for _, program := range message.GetPrograms() {
		ranks, err := ToTasks(program.GetRanks())
		if err != nil {
			return nil, err
		}
		step.Programs = append(
			step.Programs, spec.TaskProgram{Ranks: ranks, Argv: program.GetArgv()},
		)
	}
	step.Container = toContainer(message.GetContainer())
	if cast := message.GetCast(); cast != nil {
		step.Cast = &spec.Cast{
			Path:     cast.GetPath(),
			Size:     cast.GetSize(),
			Mode:     cast.GetMode(),
			Modified: spec.Instant(cast.GetModified()),
			Force:    cast.GetForce(),
		}
	}
	if world := message.GetWorld(); world != nil {
		step.World = &spec.StepWorld{Job: spec.JobID(world.GetJob()), Place: world.GetPlace()}
		for _, part := range world.GetParts() {
			step.World.Parts = append(
				step.World.Parts,
				spec.WorldPart{
					Nodes:        part.GetNodes(),
					Tasks:        part.GetTasks(),
					Distribution: part.GetDistribution(),
				},
			)
		}
	}
	return step, nil
}

func stepInfo(step *state.Step) *apiv1.StepInfo {
	out := &apiv1.StepInfo{
		StepId: int32(step.ID),
		Name:   step.Name,
		Nodes:  step.Nodes,
		Tasks:  step.Tasks,
		Tres:   TRES(step.TRES),
		Start: int64(
			step.Started,
		),
		End:     int64(step.Ended),
		State:   uint32(step.State),
		Overlap: step.Shares(),
		Cpus:    uint32(step.TRES.CPU),
	}
	if step.Spec != nil {
		out.Distribution, out.TimeLimit = step.Spec.Distribution, int64(step.TimeLimit())
	}
	if step.Result != nil {
		out.ExitCode, out.ExitSignal = step.Result.Exit.Code, step.Result.Exit.Signal
	}
	return out
}
