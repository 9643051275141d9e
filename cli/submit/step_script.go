package submit

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/musterhpc/muster/cli/tool"
)

// runWithScripts runs a step between the programs of --prolog and --epilog, which srun runs
// on its own host. As in Slurm, their exit codes change nothing: a step whose prolog
// fails still runs, and the failure is reported.
func runWithScripts(call *tool.Call, asks []stepAsk, step func() (int, error)) (int, error) {
	runStepScript(call, asks, "prolog")
	code, err := step()
	runStepScript(call, asks, "epilog")
	return code, err
}

// runStepScript runs the program of an option, if it was given, with the environment
// of srun and the variables of the job.
func runStepScript(call *tool.Call, asks []stepAsk, option string) {
	path := call.Opts.Text(option)
	if path == "" || strings.EqualFold(path, "none") {
		return
	}
	cmd := exec.CommandContext(call.Ctx, path) // in the folder where srun is
	cmd.Env = append(append(append([]string{}, call.Environ...), asks[0].vars...),
		"SLURM_JOB_ID="+asks[0].job, "SLURM_JOBID="+asks[0].job, "SLURM_SCRIPT_CONTEXT="+option+
			"_srun")
	cmd.Stdout, cmd.Stderr = call.Stdout, call.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(call.Stderr, "srun: error: --%s %s: %v\n", option, path, err)
	}
}
