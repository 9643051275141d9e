package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSiteScripts: the scripts of a site judge what users type, in the controller and in their
// commands; a broken one is not taken, and what a script changed is in the ledger.
func TestSiteScripts(t *testing.T) {
	c := start(t)
	conf := filepath.Join(c.dir, "slurm.conf")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	before, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	put("job_submit.lua", `
function slurm_job_submit(job, parts, uid)
  if job.time_limit == slurm.NO_VAL then
    slurm.user_msg("say how long: --time")
    return slurm.ESLURM_INVALID_TIME_LIMIT
  end
  job.comment = "seen"
  job.admin_comment = "by the site"
  if job.script ~= nil then job.environment.SITE = "lua" end
end
function slurm_job_modify(job, record, parts, uid)
  if job.time_limit ~= slurm.NO_VAL and job.time_limit > record.time_limit then
    slurm.user_msg("job %d stays short", record.job_id)
    return slurm.ERROR
  end
end
`)
	put("cli_filter.lua", `
function slurm_cli_pre_submit(options)
  if options.mem == "0" then slurm.user_msg("not all memory") return slurm.ERROR end
  if options.time == nil and options.job_name == "short" then options.time = 7 end
end
`)
	if err := os.WriteFile(conf, append(before, "\nJobSubmitPlugins=lua\nCliFilterPlugins=lua\n"...), 0o644); err != nil {
		t.Fatal(err)
	}
	c.must("scontrol", "reconfigure")
	fails := func(want string, args ...string) {
		t.Helper()
		if _, stderr, code := c.run(args...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, %q, want %q", args, code, stderr, want)
		}
	}
	fails("say how long: --time", "sbatch", "--wrap", "true")
	fails("say how long: --time", "srun", "true")
	fails("not all memory", "sbatch", "-t5", "--mem=0", "--wrap", "true")
	id := c.must("sbatch", "--parsable", "-H", "-J", "short", "--wrap", "true")
	fails("stays short", "scontrol", "update", "jobid="+id, "timelimit=30")
	show := c.must("scontrol", "show", "job", id)
	for _, want := range []string{"TimeLimit=00:07:00", "Comment=seen", "AdminComment=by the site"} {
		if !strings.Contains(show, want) {
			t.Errorf("job %s lacks %s:\n%s", id, want, show)
		}
	}
	out := c.must("events", "--job", id, "--kind", "JobSubmitted")
	if !strings.Contains(out, "comment: (none) -> seen") {
		t.Errorf("the ledger does not tell what the script changed: %s", out)
	}
	batch := c.must("sbatch", "--parsable", "-W", "-t5", "--wrap", "echo $SITE")
	if got, err := os.ReadFile(filepath.Join(c.dir, "slurm-"+batch+".out")); err != nil || string(got) != "lua\n" {
		t.Errorf("the batch job has SITE=%q, %v", got, err)
	}
	c.must("srun", "-t5", "true")

	put("job_submit.lua", "function slurm_job_submit(")
	fails("job_submit.lua: at its end", "scontrol", "reconfigure")
	fails("say how long: --time", "sbatch", "--wrap", "true") // the old one judges on
	put("job_submit.lua", "function slurm_job_submit(job)\n  while true do end\nend")
	c.must("scontrol", "reconfigure")
	fails("job_submit.lua:2: it ran longer", "sbatch", "-t5", "--wrap", "true")
	if err := os.WriteFile(conf, before, 0o644); err != nil {
		t.Fatal(err)
	}
	c.must("scontrol", "reconfigure")
	c.must("sbatch", "--wrap", "true")
}
