package submit

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
)

// taskDeviceOptions give devices to each task. A job hands them to its steps in
// the variables SLURM_GPUS_PER_TASK, SLURM_TRES_PER_TASK and SLURM_NTASKS_PER_GPU.
var taskDeviceOptions = []string{"gpus-per-task", "tres-per-task", "ntasks-per-gpu"}

// stepGPUOptions size the GPUs of a step. Any of them on srun's command line
// replaces what the job's variables say: the job's request for each task need
// not fit the smaller step that the user asks for.
var stepGPUOptions = []string{
	"gpus",
	"gpus-per-node",
	"gpus-per-socket",
	"gpus-per-task",
	"gres",
	"ntasks-per-gpu",
	"tres-per-task",
}

// inheritedTaskDevices returns the part of a job's per-task variable that a step
// inherits, or "" for nothing.
func inheritedTaskDevices(call *tool.Call, option, text string) string {
	sizedByUser := slices.ContainsFunc(stepGPUOptions, func(long string) bool {
		value, ok := call.Opts.Get(long)
		return ok && value.From == opt.FromCommand
	})
	if option != "tres-per-task" {
		if sizedByUser {
			return ""
		}
		return text
	}
	// sbatch exports GPUs in both SLURM_GPUS_PER_TASK and SLURM_TRES_PER_TASK, and
	// CPUs in both SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK; counting either
	// one twice would double the request.
	_, gpusCounted := call.Opts.Get("gpus-per-task")
	var inherited []string
	for item := range strings.SplitSeq(text, ",") {
		isGPU := item == "gres/gpu" || strings.HasPrefix(item, "gres/gpu:") ||
			strings.HasPrefix(item, "gres/gpu=")
		if strings.HasPrefix(item, "cpu=") || strings.HasPrefix(item, "cpu:") {
			continue
		}
		if isGPU && (gpusCounted || sizedByUser) {
			continue
		}
		inherited = append(inherited, item)
	}
	return strings.Join(inherited, ",")
}
