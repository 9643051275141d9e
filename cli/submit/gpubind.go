package submit

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

func GPUBind() *tool.Command {
	return &tool.Command{
		Name:    "gpu-bind",
		Summary: "run a task of a job with the GPUs that --gpu-bind assigns to it",
		Usage:   []string{"[OPTIONS] COMMAND [ARGUMENT...]"},
		About: `A batch script has all GPUs of the job on its node. Where the script starts several tasks on a node, with mpirun or torchrun,
each of them started through this command has those that the job's --gpu-bind says: the variables that name GPUs are set, and the
command runs in place of this one. Without --gpu-bind, --gpus-per-task=N means per_task:N and --ntasks-per-gpu=N means single:N. A task's number on
its node is what its launcher says of it: Open MPI, MPICH, MVAPICH, Intel MPI, PMIx, torchrun and Slurm's own variables are known.
Near which CPUs a GPU is comes from the node, and where the task runs from its own CPU affinity.`,
		Options: []opt.Option{
			{
				Long: "gpu-bind",
				Arg:  "[verbose,]<type>",
				Help: "binding of tasks to GPUs, overriding the job's: closest, none, single:N, per_task:N, map_gpu:0,1, mask_gpu:0x3,0xc",
			},
			{
				Long: "local-id",
				Arg:  "N",
				Help: "number of the task on its node, if the launcher does not set it",
			},
		},
		Env: []tool.Variable{
			{Name: "SLURM_GPU_BIND", Help: "the job's --gpu-bind"},
			{Name: "SLURM_TRES_PER_TASK, SLURM_NTASKS_PER_GPU", Help: "defaults if not set"},
			{
				Name: "MUSTER_GPU_CPUS",
				Help: "the CPUs near each GPU of the job on this node, set by the agent",
			},
		},
		Example: []tool.Example{
			{
				Line: "mpirun -n 8 muster gpu-bind ./train",
				What: "starts eight tasks, each with its GPUs",
			},
			{
				Line: "mpirun -n 4 muster gpu-bind --gpu-bind=verbose,single:1 ./train",
				What: "gives each one GPU and says which",
			},
		},
		Exits: []tool.Variable{
			{Name: "126", Help: "the command cannot be executed"},
			{Name: "127", Help: "the command does not exist"},
			{Name: "any other", Help: "what the command ends with"},
		},
		Run: runGPUBind,
	}
}

// localIDs are the variables in which launchers tell a task its number on the
// node. Slurm's is last: a batch script has one, which its children inherit.
var localIDs = [...]string{
	"OMPI_COMM_WORLD_LOCAL_RANK",
	"PMIX_LOCAL_RANK",
	"MPI_LOCALRANKID",
	"MV2_COMM_WORLD_LOCAL_RANK",
	"PALS_LOCAL_RANKID",
	"LOCAL_RANK",
	"SLURM_LOCALID",
}

// visibleGPUs are the variables that name the GPUs of the job, all in one
// order, and taskGPUs those that name a task's.
var (
	visibleGPUs = [...]string{
		"CUDA_VISIBLE_DEVICES",
		"GPU_DEVICE_ORDINAL",
		"ROCR_VISIBLE_DEVICES",
		"ZE_AFFINITY_MASK",
		"SLURM_JOB_GPUS",
	}
	taskGPUs = [...]string{
		"CUDA_VISIBLE_DEVICES",
		"GPU_DEVICE_ORDINAL",
		"ROCR_VISIBLE_DEVICES",
		"ZE_AFFINITY_MASK",
		"SLURM_STEP_GPUS",
	}
)

func runGPUBind(call *tool.Call) error {
	if len(call.Operands) == 0 {
		return &opt.UsageError{Command: "muster gpu-bind", Text: "a command is expected"}
	}
	env, told, err := boundEnv(call, call.CPUs())
	if err != nil {
		return err
	}
	for _, line := range told {
		fmt.Fprintln(call.Stderr, "muster gpu-bind: "+line)
	}
	path, err := exec.LookPath(call.Operands[0])
	if err == nil {
		err = call.Exec(path, call.Operands, env)
	}
	switch {
	case err == nil: // only a test's
		return nil
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		return tool.Fail(127, "muster gpu-bind: error: "+call.Operands[0]+": command not found")
	}
	return tool.Fail(126, fmt.Sprintf("muster gpu-bind: error: %s: %v", call.Operands[0], err))
}

// boundEnv is the task's environment, and what there is to say of it.
func boundEnv(call *tool.Call, cpus spec.Bitset) (env, told []string, err error) {
	bind, text, err := gpuBinding(call)
	if err != nil {
		return nil, nil, err
	}
	local, err := localID(call)
	if err != nil {
		return nil, nil, err
	}
	gpus, err := jobGPUs(call)
	if err != nil || len(gpus) == 0 {
		if bind.Verbose && err == nil {
			told = append(told, "the job has no GPU on this node")
		}
		return call.Environ, told, err
	}
	places, missed := bind.Devices(spec.BoundTask{Local: local, CPUs: cpus}, gpus)
	if missed {
		told = append(
			told,
			fmt.Sprintf(
				"%s names devices that task %d of this node cannot have; it has those of the job that are left, at least the first",
				text,
				local,
			),
		)
	}
	env = slices.Clone(call.Environ)
	for i, name := range visibleGPUs {
		to := taskGPUs[i]
		if value := narrowToPlaces(call, name, places); value != "" {
			env = slices.DeleteFunc(env, func(e string) bool {
				return strings.HasPrefix(e, to+
					"=")
			})
			env = append(env, to+"="+value)
		}
	}
	if bind.Verbose {
		told = append(
			told,
			fmt.Sprintf(
				"%s: task %d of this node, on CPUs %s, has %d of %d GPUs: CUDA_VISIBLE_DEVICES=%s",
				text,
				local,
				cpus.Ranges(),
				len(places),
				len(gpus),
				narrowToPlaces(call, visibleGPUs[0], places),
			),
		)
	}
	return env, told, nil
}

// gpuBinding is the option's, the job's, or what follows from how the job
// counts its GPUs.
func gpuBinding(call *tool.Call) (spec.GPUBind, string, error) {
	text := call.Opts.Text("gpu-bind")
	if text == "" {
		text = call.Getenv("SLURM_GPU_BIND")
	}
	if text == "" {
		each := call.Getenv("SLURM_TRES_PER_TASK")
		for item := range strings.SplitSeq(each, ",") {
			if name, n, _ := strings.Cut(item, "="); name == "gres/gpu" ||
				strings.HasPrefix(name, "gres/gpu:") {
				text = "per_task:" + n
			}
		}
	}
	if text == "" {
		if n := call.Getenv("SLURM_NTASKS_PER_GPU"); n != "" {
			text = "single:" + n
		}
	}
	if text == "" {
		return spec.GPUBind{}, "none", nil
	}
	bind, err := spec.ParseGPUBind(text)
	if err != nil {
		return bind, text, call.Errorf("%v", err)
	}
	return bind, text, nil
}

func localID(call *tool.Call) (int, error) {
	text, from := call.Opts.Text("local-id"), "--local-id"
	for i := 0; text == "" && i < len(localIDs); i++ {
		text = call.Getenv(localIDs[i])
		from = localIDs[i]
	}
	if text == "" {
		return 0, call.Errorf(
			"the task's number on this node is not known: no launcher says it (%s); give --local-id",
			strings.Join(localIDs[:], ", "),
		)
	}
	n, err := strconv.ParseUint(text, 10, 20)
	if err != nil {
		return 0, call.Errorf("%s=%s is no number of a task", from, text)
	}
	return int(n), nil
}

// jobGPUs are the devices of the job on this node in the order in which the
// variables list them. Lists of a binding name them as programs see them.
func jobGPUs(call *tool.Call) ([]spec.BindableGPU, error) {
	value := call.Getenv("CUDA_VISIBLE_DEVICES")
	if value == "" {
		return nil, nil
	}
	numbers := call.Getenv("GPU_DEVICE_ORDINAL")
	ordinals := strings.Split(numbers, ",")
	near := call.Getenv("MUSTER_GPU_CPUS")
	lists := strings.Split(near, ";")
	gpus := make([]spec.BindableGPU, strings.Count(value, ",")+1)
	for i := range gpus {
		gpus[i].Number = uint32(i)
		if len(ordinals) == len(gpus) {
			n, err := strconv.ParseUint(ordinals[i], 10, 32)
			if err != nil {
				return nil, call.Errorf("GPU_DEVICE_ORDINAL=%s: expected numbers", numbers)
			}
			gpus[i].Number = uint32(n)
		}
		if len(lists) == len(gpus) {
			cpus, ok := spec.ParseRanges(lists[i], 1<<16)
			if !ok {
				return nil, call.Errorf(
					"MUSTER_GPU_CPUS=%s: expected a list of CPUs for each GPU",
					near,
				)
			}
			gpus[i].CPUs = cpus
		}
	}
	return gpus, nil
}

// narrowToPlaces gives the places of a list that a variable of the job holds.
func narrowToPlaces(call *tool.Call, name string, places []int) string {
	list := strings.Split(call.Getenv(name), ",")
	var kept []string
	for _, p := range places {
		if p < len(list) {
			kept = append(kept, list[p])
		}
	}
	return strings.Join(kept, ",")
}
