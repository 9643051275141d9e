package submit

import (
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// requestVariables are the environment variables that hand the options of salloc to the sruns and
// launchers within the allocation. Their names are those that a batch script gets. An option that
// was not given has no variable.
func requestVariables(spec *apiv1.JobSpec) []string {
	var out []string
	way, plane, _ := strings.Cut(spec.GetDistribution(), "=")
	for _, variable := range []struct{ name, value string }{
		{"SLURM_GPUS", gpuOption(spec.GetPerJob())},
		{"SLURM_GPUS_PER_NODE", gpuOption(spec.GetPerNode())},
		{"SLURM_GPUS_PER_SOCKET", gpuOption(spec.GetPerSocket())},
		{"SLURM_GPUS_PER_TASK", gpuOption(spec.GetPerTask())},
		{"SLURM_GPU_BIND", spec.GetGpuBind()},
		{"SLURM_GPU_FREQ", spec.GetGpuFreq()},
		{"SLURM_TRES_PER_TASK", tresPerTask(spec)},
		{"SLURM_CPUS_PER_GPU", tool.Itoa(spec.GetCpusPerGpu())},
		{"SLURM_NTASKS_PER_CORE", tool.Itoa(spec.GetTasksPerCore())},
		{"SLURM_NTASKS_PER_SOCKET", tool.Itoa(spec.GetTasksPerSocket())},
		{"SLURM_NTASKS_PER_GPU", tool.Itoa(spec.GetTasksPerGpu())},
		{"SLURM_THREADS_PER_CORE", tool.Itoa(spec.GetThreadsPerCore())},
		{"SLURM_DISTRIBUTION", way},
		{"SLURM_DIST_PLANESIZE", plane},
		{"SLURM_MEM_PER_GPU", strconv.FormatInt(spec.GetMemPerGpu(), 10)},
	} {
		if variable.value != "" && variable.value != "0" {
			out = append(out, variable.name+"="+variable.value)
		}
	}
	return out
}

// gpuOption writes the GPUs of a list as --gpus takes them: 4 or h100:2,a100:2.
func gpuOption(list []*apiv1.Count) string {
	var parts []string
	for _, count := range list {
		if count.GetName() != "gpu" {
			continue
		}
		number := strconv.FormatInt(count.GetN(), 10)
		if count.GetType() != "" {
			number = count.GetType() + ":" + number
		}
		parts = append(parts, number)
	}
	return strings.Join(parts, ",")
}

// tresPerTask writes what each task gets as --tres-per-task takes it.
func tresPerTask(spec *apiv1.JobSpec) string {
	var parts []string
	if spec.GetCpusPerTask() > 0 {
		parts = append(parts, "cpu="+tool.Itoa(spec.GetCpusPerTask()))
	}
	for _, count := range spec.GetPerTask() {
		name := "gres/" + count.GetName()
		if count.GetType() != "" {
			name += ":" + count.GetType()
		}
		parts = append(parts, name+"="+strconv.FormatInt(count.GetN(), 10))
	}
	return strings.Join(parts, ",")
}
