package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// TestEpilogSlurmctldOfADeadController: a controller that dies has begun the
// program for some of the jobs that ended, and for others not; the next one
// sees to it that it runs for each.
func TestEpilogSlurmctldOfADeadController(t *testing.T) {
	scripts := shortDir(t)
	path := func(name string) string { return filepath.Join(scripts, name) }
	text := "#!/bin/sh\nPATH=/usr/bin:/bin\nwhile test -e " + path("hang") + "; do sleep 0.2; done\necho \"$SLURM_JOB_ID $SLURM_JOB_EXIT_CODE2\" >>" + path("log") + "\n"
	for name, text := range map[string]string{"epilog": text, "hang": ""} {
		if err := os.WriteFile(path(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, "EpilogSlurmctld="+path("epilog"), "SlurmUser=root")
	const jobs = 100 // more than run at the same time
	c.must("sbatch", "--parsable", "-o", "/dev/null", fmt.Sprintf("--array=1-%d", jobs), "--wrap", "exit 3")
	c.until("", "squeue", "-h")
	c.kill9("musterd")
	if err := os.Remove(path("hang")); err != nil {
		t.Fatal(err)
	}
	c.must("up", "--dir", c.dir)
	ran := map[string]bool{}
	for range 2000 {
		data, err := os.ReadFile(path("log"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if id, exit, whole := strings.Cut(strings.TrimSpace(line), " 3:"); whole && exit == "0" {
				ran[id] = true
			}
		}
		if len(ran) == jobs {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Errorf("EpilogSlurmctld ran for %d of %d tasks", len(ran), jobs)
}
