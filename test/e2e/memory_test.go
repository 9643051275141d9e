package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// startConfined starts a cluster whose nodes hold jobs to their memory.
func startConfined(t *testing.T) *cluster {
	t.Helper()
	need(t)
	c := &cluster{t: t, dir: shortDir(t), port: freePorts(t)}
	c.must("init", "--dir", c.dir, "--nodes", "1", "--gpus", "0", "--port", strconv.Itoa(c.port), "--conf", "TaskPlugin=task/cgroup")
	err := os.WriteFile(filepath.Join(c.dir, "cgroup.conf"), []byte("ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\n"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	c.must("up", "--dir", c.dir)
	t.Cleanup(func() { c.run("down", "--dir", c.dir, "--jobs") })
	return c
}

// TestOutOfMemory: a step that the kernel killed a process of is OUT_OF_MEMORY. Its job is
// too if the script failed for it, and not if the script goes on and succeeds, since Slurm
// judges a job by its script. A script that lost a process of its own has not succeeded.
func TestOutOfMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("control groups need root")
	}
	c := startConfined(t)
	srun := bin("muster") + " srun -n1 "
	const hog = "sh -c 'head -c 200m /dev/zero | tail >/dev/null'"
	for _, tc := range []struct{ name, script, want string }{
		{"the script succeeds", srun + hog + "; exit 0", "COMPLETED|0:0 COMPLETED|0:0 OUT_OF_MEMORY|0:125"},
		{"the script fails with its step", "exec " + srun + hog, "OUT_OF_MEMORY|0:125 OUT_OF_MEMORY|253:0 OUT_OF_MEMORY|0:125"},
		{"a later step succeeds and the script fails", srun + hog + "; " + srun + "true; exit 3", "FAILED|3:0 FAILED|3:0 OUT_OF_MEMORY|0:125 COMPLETED|0:0"},
		{"a process of the script", hog + "; exit 0", "OUT_OF_MEMORY|0:125 OUT_OF_MEMORY|0:125"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &cluster{t: t, dir: c.dir, port: c.port}
			id := c.must("sbatch", "--parsable", "-n1", "--mem=100", "-o", filepath.Join(c.dir, "out-%j"), "--wrap", tc.script)
			c.until("", "squeue", "-h", "-j", id)
			lines := 1 + strings.Count(tc.want, " ")
			c.untilShell("test $(" + bin("muster") + " sacct -n -P -j " + id + " -o State | wc -l) = " + strconv.Itoa(lines))
			got := strings.Join(strings.Fields(c.must("sacct", "-n", "-P", "-j", id, "-o", "State,ExitCode")), " ")
			if got != tc.want {
				text, _ := os.ReadFile(filepath.Join(c.dir, "out-"+id))
				t.Errorf("%s, want %s; its output: %s", got, tc.want, text)
			}
		})
	}
}
