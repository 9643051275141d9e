package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// scriptOnly are the variables of a batch script that prolog and epilog have
// too, with the same values; the devices are always counted as the node does.
func scriptShared() []string {
	return []string{
		"SLURM_CLUSTER_NAME",
		"SLURM_CONF",
		"SLURMD_NODENAME",
		"SLURM_JOB_ID",
		"SLURM_JOBID",
		"SLURM_JOB_PARTITION",
		"SLURM_JOB_ACCOUNT",
		"SLURM_JOB_RESERVATION",
		"SLURM_JOB_LICENSES",
		"SLURM_JOB_USER",
		"SLURM_JOB_UID",
		"SLURM_JOB_GID",
		"SLURM_JOB_START_TIME",
		"SLURM_JOB_END_TIME",
		"SLURM_JOB_NODELIST",
		"SLURM_JOB_NUM_NODES",
		"SLURM_JOB_CPUS_PER_NODE",
		"SLURM_JOB_GPUS",
		"CUDA_VISIBLE_DEVICES",
		"GPU_DEVICE_ORDINAL",
		"ROCR_VISIBLE_DEVICES",
	}
}

// ScriptEnv is the environment of the node's prolog and epilog for a job. There
// is no PATH in it, as there is none in Slurm's.
func ScriptEnv(job *Job, node *Node) []string {
	facts := batchFacts(nil, job, node)
	facts.GPUsFenced = false // they run outside of the job's fence
	var out []string
	shared := scriptShared()
	for _, v := range slices.Concat(identityVariables(), placeVariables()) {
		if text := v.value(facts); text != "" && slices.Contains(shared, v.name) {
			out = append(out, v.name+"="+text)
		}
	}
	out = append(out, ShareEnv(job.Here.Shares, node.MPSEach)...)
	stdin, stdout, stderr := Files(job, node)
	io := &job.Spec.IO
	dir := cmp.Or(io.WorkDir, "/tmp")
	in := func(file string) string {
		if file == "" || strings.HasPrefix(file, "/") {
			return file
		}
		return dir + "/" + file
	}
	for _, v := range [...][2]string{
		{"SLURM_JOB_WORK_DIR", dir}, {"SLURM_JOB_COMMENT", job.Spec.Comment}, {"SLURM_JOB_CONSTRAINTS", job.Spec.Place.Constraint},
		{"SLURM_JOB_RESTART_COUNT", strconv.FormatUint(uint64(job.Restarts), 10)}, {"SLURM_JOB_STDIN", cmp.Or(in(stdin), "/dev/null")},
		{"SLURM_JOB_STDOUT", in(stdout)}, {"SLURM_JOB_STDERR", cmp.Or(in(stderr), in(stdout))},
	} {
		if v[1] != "" {
			out = append(out, v[0]+"="+v[1])
		}
	}
	return out
}

// PrologEnv completes ScriptEnv for the prolog.
func PrologEnv(env []string) []string {
	return append(slices.Clip(env), "SLURM_SCRIPT_CONTEXT=prolog_slurmd")
}

// EpilogEnv completes ScriptEnv for the epilog; e is the batch script's exit,
// nil on a node that had none. The code is what wait() gives.
func EpilogEnv(env []string, exit *Exit) []string {
	out := append(slices.Clip(env), "SLURM_SCRIPT_CONTEXT=epilog_slurmd")
	if exit != nil && !exit.Unknown() {
		out = append(out, "SLURM_JOB_EXIT_CODE="+strconv.Itoa(int(exit.Code)<<8|int(exit.Signal)))
	}
	return out
}
