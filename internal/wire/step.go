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
	if f := s.Cast; f != nil {
		out.Cast = &apiv1.Cast{
			Path:     f.Path,
			Size:     f.Size,
			Mode:     f.Mode,
			Modified: int64(f.Modified),
			Force:    f.Force,
		}
	}
	if world := s.World; world != nil {
		out.World = &apiv1.StepWorld{Job: uint32(world.Job), Place: world.Place}
		for i := range world.Parts {
			p := &world.Parts[i]
			out.World.Parts = append(
				out.World.Parts,
				&apiv1.WorldPart{Nodes: p.Nodes, Tasks: p.Tasks, Distribution: p.Distribution},
			)
		}
	}
	return out
}

// ToStepSpec reads it; the hash of the environment is not in the message.
func ToStepSpec(m *apiv1.StepSpec) (*spec.StepSpec, error) {
	out := &spec.StepSpec{
		Name: m.GetName(), Argv: m.GetArgv(), WorkDir: m.GetWorkDir(), Umask: m.GetUmask(), Rlimits: ToCounts(m.GetRlimits()), MinNodes: m.GetMinNodes(),
		MaxNodes: m.GetMaxNodes(), Tasks: m.GetTasks(), TasksPerNode: m.GetTasksPerNode(), CPUsPerTask: m.GetCpusPerTask(), Overlap: m.GetOverlap(),
		Exact: m.GetExact(), MemPerNode: m.GetMemPerNode(), MemPerCPU: m.GetMemPerCpu(), PerNode: ToCounts(m.GetPerNode()), PerStep: ToCounts(m.GetPerStep()),
		PerTask: ToCounts(
			m.GetPerTask(),
		), NoGRES: m.GetNoGres(), Nodes: m.GetNodes(), Exclude: m.GetExclude(), Relative: m.GetRelative(),
		TaskNodes: m.GetTaskNodes(), Distribution: m.GetDistribution(), Overcommit: m.GetOvercommit(), Limit: spec.Span(m.GetTimeLimit()), External: m.GetExternal(),
		Stdin: m.GetStdin(), Stdout: m.GetStdout(), Stderr: m.GetStderr(), Append: m.GetAppend(), InputTask: m.GetInputTask(), Pty: m.GetPty(),
		Rows: m.GetRows(), Columns: m.GetColumns(), Unbuffered: m.GetUnbuffered(), TaskProlog: m.GetTaskProlog(), TaskEpilog: m.GetTaskEpilog(),
		CPUBind: m.GetCpuBind(), GPUBind: m.GetGpuBind(), MPI: m.GetMpi(), KillOnFail: m.GetKillOnBadExit(), KeepOnFail: m.GetKeepOnBadExit(), Wait: m.GetWait(),
		KeepSizes: m.GetPreserveEnv(), LimitsAsked: m.GetLimitsAsked(),
	}
	for _, program := range m.GetPrograms() {
		ranks, err := ToTasks(program.GetRanks())
		if err != nil {
			return nil, err
		}
		out.Programs = append(out.Programs, spec.TaskProgram{Ranks: ranks, Argv: program.GetArgv()})
	}
	out.Container = toContainer(m.GetContainer())
	if f := m.GetCast(); f != nil {
		out.Cast = &spec.Cast{
			Path:     f.GetPath(),
			Size:     f.GetSize(),
			Mode:     f.GetMode(),
			Modified: spec.Instant(f.GetModified()),
			Force:    f.GetForce(),
		}
	}
	if world := m.GetWorld(); world != nil {
		out.World = &spec.StepWorld{Job: spec.JobID(world.GetJob()), Place: world.GetPlace()}
		for _, p := range world.GetParts() {
			out.World.Parts = append(
				out.World.Parts,
				spec.WorldPart{
					Nodes:        p.GetNodes(),
					Tasks:        p.GetTasks(),
					Distribution: p.GetDistribution(),
				},
			)
		}
	}
	return out, nil
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
