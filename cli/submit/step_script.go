package submit

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/musterhpc/muster/cli/tool"
)

// scripted runs a step between the programs of --prolog and --epilog, which srun runs
// on its own host. As in Slurm, their exit codes change nothing: a step whose prolog
// fails still runs, and the failure is reported.
func scripted(c *tool.Call, asks []stepAsk, step func() (int, error)) (int, error) {
	runStepScript(c, asks, "prolog")
	code, err := step()
	runStepScript(c, asks, "epilog")
	return code, err
}

// runStepScript runs the program of an option, if it was given, with the environment
// of srun and the variables of the job.
func runStepScript(c *tool.Call, asks []stepAsk, option string) {
	path := c.Opts.Text(option)
	if path == "" || strings.EqualFold(path, "none") {
		return
	}
	cmd := exec.CommandContext(c.Ctx, path) // in the folder where srun is
	cmd.Env = append(append(append([]string{}, c.Environ...), asks[0].vars...),
		"SLURM_JOB_ID="+asks[0].job, "SLURM_JOBID="+asks[0].job, "SLURM_SCRIPT_CONTEXT="+option+"_srun")
	cmd.Stdout, cmd.Stderr = c.Stdout, c.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Fprintf(c.Stderr, "srun: error: --%s %s: %v\n", option, path, err)
	}
}
