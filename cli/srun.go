package cli

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
)

// srunCommand answers srun --test-only; steps are not started yet.
func srunCommand() *command {
	c := &command{
		name: "srun", slurm: true, ownVerbose: true, badUsage: 255,
		summary: "say when and where a command would start (--test-only)",
		usage:   []string{"--test-only [OPTIONS] COMMAND [ARGUMENTS]"},
		about: `With --test-only it answers as sbatch does: when and where a job with these options would start if it were
submitted now. Job steps, and allocations without a batch script, are still to come.`,
		example: []example{{"srun --test-only -N 4 --gres=gpu:8 train", "says when and where it would start"}},
		exits:   []variable{{"255", "an option cannot be read"}},
		run:     runSrun,
	}
	c.options = srunOptions()
	return c
}

// srunOptions are sbatch's, but for those of batch scripts; its variables are
// those of srun.
func srunOptions() []opt.Option {
	batch := []string{"array", "batch", "export-file", "get-user-env", "hold", "ignore-pbs", "no-requeue", "parsable", "requeue", "wait", "wait-all-nodes", "wrap", "bbf"}
	var out []opt.Option
	for _, o := range jobOptions() {
		if slices.Contains(batch, o.Long) {
			continue
		}
		o.Option.Env = strings.ReplaceAll(o.Env, "SBATCH_", "SLURM_")
		if o.Long == "clusters" {
			o.Option.Env = "SLURM_CLUSTERS"
		}
		if o.apply == nil && o.Refused == "" && !slices.Contains([]string{"clusters", "quiet", "test-only"}, o.Long) {
			o.Option.Always = "it changes nothing about when a job starts"
		}
		out = append(out, o.Option)
	}
	return out
}

func runSrun(c *call) error {
	if !c.opts.On("test-only") {
		return c.errorf("only --test-only is in this release: %s", notYet("salloc"))
	}
	if len(c.args) == 0 {
		return fail(1, "srun: fatal: No command given to execute.")
	}
	if err := c.checkClusters(); err != nil {
		return err
	}
	js := &apiv1.JobSpec{Name: baseName(c.args[0]), WorkDir: c.Dir, Args: c.args[1:], Command: c.args[0], SubmitLine: c.submitLine(), SubmitHost: c.Host,
		Umask: c.umask(), Rlimits: c.Rlimits(), Shell: true}
	if err := c.request(js, c.opts); err != nil {
		return err
	}
	var rep apiv1.SubmitReply
	if err := c.ask(methodSubmit, &apiv1.SubmitRequest{Spec: js, TestOnly: true}, &rep); err != nil {
		return c.submitFailed(err, true)
	}
	if !c.opts.On("quiet") {
		c.sayTested(&rep)
	}
	return nil
}

// sayTested prints the answer to --test-only.
func (c *call) sayTested(rep *apiv1.SubmitReply) {
	for line := range strings.Lines(rep.GetMessage()) {
		fmt.Fprintf(c.Stderr, "%s: %s\n", c.cmd.name, strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(c.Stderr, "%s: Job %d to start at %s using %d processors on nodes %s in partition %s\n", c.cmd.name, rep.GetJobId(),
		c.time(rep.GetPlannedStart()), rep.GetPlannedCpus(), rep.GetPlannedNodes(), rep.GetPlannedPartition())
}
