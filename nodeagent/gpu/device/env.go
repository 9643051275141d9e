package device

import (
	"strconv"
	"strings"
)

// EnvOptions says how a job names its devices.
type EnvOptions struct {
	// UUIDs puts device UUIDs into CUDA_VISIBLE_DEVICES instead of numbers. A
	// MIG instance (a Device whose UUID is the instance's) has no number, so
	// its UUID is used in any case.
	UUIDs bool
	// Fenced is true when the job sees only its own devices (a device cgroup):
	// numbers then count from 0 inside the job. False: numbers of the node.
	Fenced bool
	// Step also sets SLURM_STEP_GPUS.
	Step bool
}

// VisibleEnv gives the environment, as NAME=value in a fixed order, that makes
// exactly the given devices visible to a program. SLURM_JOB_GPUS always holds
// the numbers of the node. An empty set hides every device: the variables are
// present and empty, since an absent variable shows all of them.
func VisibleEnv(devices []Device, options EnvOptions) []string {
	node := make([]string, len(devices))
	inside := make([]string, len(devices))
	visible := make([]string, len(devices))
	for i, device := range devices {
		node[i] = strconv.Itoa(device.Index)
		inside[i] = node[i]
		if options.Fenced {
			inside[i] = strconv.Itoa(i)
		}
		visible[i] = inside[i]
		if options.UUIDs || strings.HasPrefix(device.UUID, "MIG-") {
			visible[i] = device.UUID
		}
	}
	ordinals := strings.Join(inside, ",")
	env := []string{
		"CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"CUDA_VISIBLE_DEVICES=" + strings.Join(visible, ","),
		"GPU_DEVICE_ORDINAL=" + ordinals,
		"ROCR_VISIBLE_DEVICES=" + ordinals,
		"ZE_AFFINITY_MASK=" + ordinals,
	}
	if len(devices) > 0 {
		env = append(env, "SLURM_JOB_GPUS="+strings.Join(node, ","))
		if options.Step {
			env = append(env, "SLURM_STEP_GPUS="+strings.Join(node, ","))
		}
	}
	return env
}
