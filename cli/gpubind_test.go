package cli

import (
	"maps"
	"strings"
	"testing"
)

// TestGPUBind: what a task is started with, by what its job asked for and by
// what its launcher says.
func TestGPUBind(t *testing.T) {
	whole := map[string]string{"CUDA_VISIBLE_DEVICES": "0,1,2,3", "GPU_DEVICE_ORDINAL": "0,1,2,3", "ROCR_VISIBLE_DEVICES": "0,1,2,3", "ZE_AFFINITY_MASK": "0,1,2,3",
		"SLURM_JOB_GPUS": "4,5,6,7", "SLURM_LOCALID": "0", "MUSTER_GPU_CPUS": "4-7;4-7;0-3;0-3"}
	for name, c := range map[string]struct {
		env  map[string]string
		line string
		want string // in the output
		code int
	}{
		"no binding": {nil, "true", "CUDA_VISIBLE_DEVICES=0,1,2,3 GPU_DEVICE_ORDINAL=0,1,2,3 ROCR_VISIBLE_DEVICES=0,1,2,3 SLURM_JOB_GPUS=4,5,6,7 SLURM_STEP_GPUS=4,5,6,7 ZE_AFFINITY_MASK=0,1,2,3]", 0},
		"of the job": {map[string]string{"SLURM_GPU_BIND": "closest"}, "true",
			"CUDA_VISIBLE_DEVICES=2,3 GPU_DEVICE_ORDINAL=2,3 ROCR_VISIBLE_DEVICES=2,3 SLURM_JOB_GPUS=4,5,6,7 SLURM_STEP_GPUS=6,7 ZE_AFFINITY_MASK=2,3]", 0},
		"Open MPI's number goes before the script's own": {map[string]string{"SLURM_GPU_BIND": "single:1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "true", "CUDA_VISIBLE_DEVICES=3 ", 0},
		"torchrun":                {map[string]string{"SLURM_GPU_BIND": "map_gpu:3,1", "LOCAL_RANK": "3"}, "true", "CUDA_VISIBLE_DEVICES=1 ", 0},
		"an option":               {map[string]string{"SLURM_GPU_BIND": "closest"}, "--gpu-bind=mask_gpu:0x9 true", "CUDA_VISIBLE_DEVICES=0,3 ", 0},
		"number of GPUs per task": {map[string]string{"SLURM_TRES_PER_TASK": "cpu=2,gres/gpu:h100=2", "MPI_LOCALRANKID": "1"}, "true", "CUDA_VISIBLE_DEVICES=0,1 ", 0},
		"number of tasks per GPU": {map[string]string{"SLURM_NTASKS_PER_GPU": "2", "PMIX_LOCAL_RANK": "3"}, "true", "CUDA_VISIBLE_DEVICES=3 ", 0},
		"none against implied":    {map[string]string{"SLURM_NTASKS_PER_GPU": "2", "SLURM_GPU_BIND": "none"}, "true", "CUDA_VISIBLE_DEVICES=0,1,2,3 ", 0},
		"numbers of the node":     {map[string]string{"CUDA_VISIBLE_DEVICES": "4,5,6,7", "GPU_DEVICE_ORDINAL": "4,5,6,7", "SLURM_GPU_BIND": "map_gpu:6"}, "true", "CUDA_VISIBLE_DEVICES=6 ", 0},
		"UUIDs":                   {map[string]string{"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c,GPU-d", "SLURM_GPU_BIND": "map_gpu:2"}, "true", "CUDA_VISIBLE_DEVICES=GPU-c ", 0},
		"verbose":                 {map[string]string{"SLURM_GPU_BIND": "verbose,closest"}, "true", "task 0 of this node, on CPUs 0-1, has 2 of 4 GPUs: CUDA_VISIBLE_DEVICES=2,3", 0},
		"outside":                 {map[string]string{"SLURM_GPU_BIND": "map_gpu:9"}, "true", "names devices that task 0 of this node cannot have", 0},
		"outside, the first":      {map[string]string{"SLURM_GPU_BIND": "map_gpu:9"}, "true", "CUDA_VISIBLE_DEVICES=0 ", 0},
		"no GPU":                  {map[string]string{"CUDA_VISIBLE_DEVICES": "", "SLURM_GPU_BIND": "verbose,closest"}, "true", "the job has no GPU on this node", 0},
		"a bad binding":           {map[string]string{"SLURM_GPU_BIND": "nearest"}, "true", "is no binding of tasks to GPUs", 1},
		"no launcher":             {map[string]string{"SLURM_LOCALID": ""}, "true", "give --local-id", 1},
		"a bad number":            {map[string]string{"LOCAL_RANK": "first"}, "true", "LOCAL_RANK=first is no number", 1},
		"bad CPUs":                {map[string]string{"MUSTER_GPU_CPUS": "1;2;3;x"}, "true", "MUSTER_GPU_CPUS=1;2;3;x", 1},
		"no command":              {nil, "", "a command is expected", 1},
		"an unknown command":      {nil, "muster-no-such-command", "command not found", 127},
		"its own options":         {nil, "--local-id 0 true --gpu-bind=closest -x", "[true --gpu-bind=closest -x]", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := everything(t)
			w.env = maps.Clone(whole)
			maps.Copy(w.env, c.env)
			got := w.shell(strings.TrimSpace("muster gpu-bind " + c.line))
			if text := got.out + got.errOut; got.code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("code %d, want %d:\n%s\nwant %s", got.code, c.code, text, c.want)
			}
		})
	}
}
