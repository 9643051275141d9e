package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSubmissionsOfEveryClientCount: the objective of submissions counts what each way to submit
// submits, once: sbatch of muster, the small sbatch, srun, REST and Slurm's REST.
func TestSubmissionsOfEveryClientCount(t *testing.T) {
	c := start(t)
	socket := "MUSTER_SOCKET=" + filepath.Join(c.dir, "run", "muster.sock")
	counted := func(n string) {
		t.Helper()
		c.metric(c.port+4, `muster_slo_events_total{cluster="muster",slo="submit",class=""} `+n)
	}
	counted("0")
	c.must("sbatch", "-o", "/dev/null", "--wrap", "true")
	counted("1")
	sbatch := exec.Command(bin("muster-sbatch"), "-o", "/dev/null", "--wrap", "true")
	sbatch.Env = append(os.Environ(), socket)
	if out, err := sbatch.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	counted("2")
	c.must("srun", "true")
	counted("3")
	const body = `{"job": {"script": "#!/bin/sh\ntrue\n", "current_working_directory": "/tmp", "environment": ["PATH=/bin"]}}`
	submit := exec.Command("curl", "-sS", "--unix-socket", filepath.Join(c.dir, "run", "rest.sock"),
		"-H", "Content-Type: application/json", "http://muster/slurm/v0.0.44/job/submit", "-d", body)
	out, err := submit.CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"job_id":4`) {
		t.Fatalf("%v: %s", err, out)
	}
	counted("4")
}
