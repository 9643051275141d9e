package submit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

// TestStepsInheritTaskDevices checks what srun in a batch script takes from the
// variables that sbatch exports, and that its own options replace them.
func TestStepsInheritTaskDevices(t *testing.T) {
	for name, tc := range map[string]struct {
		env  string // what the job exports
		args string // what srun is given
		want string // GPUs of each task, GPUs of the step, binding
	}{
		"nothing":                    {"", "", "||"},
		"gpus per task":              {"SLURM_GPUS_PER_TASK=2", "", "gpu:2||"},
		"typed gpus per task":        {"SLURM_GPUS_PER_TASK=h100:2", "", "gpu:h100:2||"},
		"tres per task":              {"SLURM_TRES_PER_TASK=gres/gpu:2", "", "gpu:2||"},
		"both, as sbatch exports":    {"SLURM_GPUS_PER_TASK=2 SLURM_TRES_PER_TASK=cpu=4,gres/gpu=2", "", "gpu:2||"},
		"other devices stay":         {"SLURM_GPUS_PER_TASK=2 SLURM_TRES_PER_TASK=gres/gpu=2,gres/nic=1", "", "gpu:2,nic:1||"},
		"binding":                    {"SLURM_GPU_BIND=map_gpu:1,0", "", "||map_gpu:1,0"},
		"tasks per GPU":              {"SLURM_NTASKS_PER_GPU=2", "", "||single:2"},
		"tasks per GPU with binding": {"SLURM_NTASKS_PER_GPU=2 SLURM_GPU_BIND=none", "", "||none"},
		"option replaces variable":   {"SLURM_GPUS_PER_TASK=2 SLURM_TRES_PER_TASK=gres/gpu=2", "--gpus-per-task=1", "gpu:1||"},
		"step of its own size":       {"SLURM_GPUS_PER_TASK=2 SLURM_TRES_PER_TASK=gres/gpu=2", "--gpus=1", "|gpu:1|"},
		"binding replaces variable":  {"SLURM_GPU_BIND=single:1", "--gpu-bind=none", "||none"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			c := stepCall(t, &out, &errOut)
			c.Environ = strings.Fields(tc.env)
			options := c.Command.Set()
			if err := options.FromEnviron(c.Lookup, tool.IsNo, c.Opts); err != nil {
				t.Fatal(err)
			}
			var err error
			if c.Operands, err = options.Parse(append(strings.Fields(tc.args), "true"), c.Opts, opt.FromCommand); err != nil {
				t.Fatal(err)
			}
			ask, err := stepWithin(c, "7", nil)
			if err != nil {
				t.Fatal(err)
			}
			step := ask.step
			got := fmt.Sprintf("%s|%s|%s", render.CountsText(step.GetPerTask(), "", ":"), render.CountsText(step.GetPerStep(), "", ":"), step.GetGpuBind())
			if got != tc.want {
				t.Errorf("%s srun %s: %s, want %s", tc.env, tc.args, got, tc.want)
			}
		})
	}
}

// TestStepsOpenFilesAsTheJob: what sbatch was told of --open-mode holds for its steps.
func TestStepsOpenFilesAsTheJob(t *testing.T) {
	for env, want := range map[string]bool{"SLURM_OPEN_MODE=a": true, "SLURM_OPEN_MODE=t": false, "": false} {
		var out, errOut bytes.Buffer
		c := stepCall(t, &out, &errOut)
		c.Environ = strings.Fields(env)
		if err := c.Command.Set().FromEnviron(c.Lookup, tool.IsNo, c.Opts); err != nil {
			t.Fatal(err)
		}
		c.Operands = []string{"true"}
		ask, err := stepWithin(c, "7", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := ask.step.GetAppend(); got != want {
			t.Errorf("%q: append %v, expected %v", env, got, want)
		}
	}
}

// TestAllocationVariablesRepeatTheRequest compares what salloc exports with the
// options of the allocation.
func TestAllocationVariablesRepeatTheRequest(t *testing.T) {
	request := &apiv1.JobSpec{
		PerTask:     []*apiv1.Count{{Name: "gpu", Type: "h100", N: 2}, {Name: "nic", N: 1}},
		PerJob:      []*apiv1.Count{{Name: "gpu", N: 8}},
		CpusPerTask: 3, TasksPerGpu: 2, MemPerGpu: 1024, GpuBind: "closest",
		Distribution: "plane=2",
	}
	want := "SLURM_GPUS=8 SLURM_GPUS_PER_TASK=h100:2 SLURM_GPU_BIND=closest " +
		"SLURM_TRES_PER_TASK=cpu=3,gres/gpu:h100=2,gres/nic=1 SLURM_NTASKS_PER_GPU=2 SLURM_DISTRIBUTION=plane SLURM_DIST_PLANESIZE=2 SLURM_MEM_PER_GPU=1024"
	if got := strings.Join(requestVariables(request), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := requestVariables(&apiv1.JobSpec{}); got != nil {
		t.Errorf("an empty request exports %v", got)
	}
}

// TestStepsReadNoFurtherThanNone: NONE ends the list of srun --export, and is a name to sbatch.
func TestStepsReadNoFurtherThanNone(t *testing.T) {
	for list, want := range map[string]string{"X=1,NONE,Y=2": "X=1", "NONE,X=1": "", "X=1,Y=2": "X=1 Y=2"} {
		for _, step := range []bool{true, false} {
			var out, errOut bytes.Buffer
			e := newEnvironment()
			if _, err := exportList(stepCall(t, &out, &errOut), e, list, step); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, name := range []string{"X", "Y"} {
				if value, ok := e.values[name]; ok {
					got = append(got, name+"="+value)
				}
			}
			expected := want
			if !step {
				expected = strings.TrimPrefix(strings.ReplaceAll(","+list, ",NONE", ""), ",")
				expected = strings.ReplaceAll(expected, ",", " ")
			}
			if text := strings.Join(got, " "); text != expected {
				t.Errorf("--export=%s, step %v: %q, want %q", list, step, text, expected)
			}
		}
	}
}
