package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPrologAndEpilog: both run around a job on its node with Slurm's
// variables; a failure sets the node aside, and of a prolog holds the job.
func TestPrologAndEpilog(t *testing.T) {
	scripts := shortDir(t)
	path := func(name string) string { return filepath.Join(scripts, name) }
	put := func(name, text string) {
		if err := os.WriteFile(path(name), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put("prolog", `echo "prolog $SLURM_JOB_ID $SLURM_JOB_USER $SLURM_JOB_GPUS $SLURM_SCRIPT_CONTEXT" >>`+path("log")+`
test ! -e `+path("no-prolog")+` || { echo no scratch; exit 7; }
`)
	put("epilog", `echo "epilog $SLURM_JOB_ID $SLURM_JOB_EXIT_CODE $SLURM_SCRIPT_CONTEXT" >>`+path("log")+`
while test -e `+path("hang")+`; do /bin/sleep 0.1; done
test ! -e `+path("no-epilog")+`
`)
	c := start(t, "Prolog="+path("prolog"), "Epilog="+path("epilog"), "PrologFlags=Alloc", "PrologEpilogTimeout=60")

	put("hang", "")
	id := c.must("sbatch", "--parsable", "--gres=gpu:2", "--wrap", "cat "+path("log")+"; exit 3")
	c.until("FAILED|3:0", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State,ExitCode") // while its epilog runs
	c.until(id+" CG", "squeue", "-h", "-o", "%i %t")
	if err := os.Remove(path("hang")); err != nil {
		t.Fatal(err)
	}
	c.until("", "squeue", "-h")
	out, err := os.ReadFile(filepath.Join(c.dir, "slurm-"+id+".out"))
	if want := "prolog " + id + " root 0,1 prolog_slurmd\n"; err != nil || os.Getuid() == 0 && string(out) != want {
		t.Errorf("before the script %q, %v, want %q", out, err, want)
	}
	data, err := os.ReadFile(path("log"))
	if err != nil || !strings.HasSuffix(string(data), "epilog "+id+" 768 epilog_slurmd\n") {
		t.Errorf("%v %q", err, data)
	}

	put("no-epilog", "")
	id = c.must("sbatch", "--parsable", "-w", "node1", "--wrap", "true")
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	c.until("drained|Epilog error: "+path("epilog")+": exit status 1", "sinfo", "-h", "-n", "node1", "-o", "%T|%E")
	if err := os.Remove(path("no-epilog")); err != nil {
		t.Fatal(err)
	}

	put("no-prolog", "")
	id = c.must("sbatch", "--parsable", "--wrap", "true")
	c.until("drained|Prolog error: "+path("prolog")+": exit status 7: no scratch", "sinfo", "-h", "-n", "node2", "-o", "%T|%E")
	c.until("PD JobHeldAdmin", "squeue", "-h", "-j", id, "-o", "%t %r")
	if err := os.Remove(path("no-prolog")); err != nil {
		t.Fatal(err)
	}
	c.must("scontrol", "update", "nodename=node2", "state=resume")
	c.must("scontrol", "release", id)
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
}
