package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestReconfigureReachesAgents: prologs, epilogs and the health check change while agents
// run; what they read only when they start is named, and so is a file that is wrong.
func TestReconfigureReachesAgents(t *testing.T) {
	c := start(t)
	conf := filepath.Join(c.dir, "slurm.conf")
	before, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	set := func(lines ...string) {
		t.Helper()
		text := string(before) + strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seen := filepath.Join(c.dir, "seen")
	write := func(name, script string) string {
		t.Helper()
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	note := func(name string) string {
		return write(name, fmt.Sprintf("echo %s $SLURM_JOB_ID >> %s", name, seen))
	}
	has := func(line string) bool {
		data, _ := os.ReadFile(seen)
		return slices.Contains(strings.Split(string(data), "\n"), line)
	}
	// A job that runs meanwhile gets the epilog at its end.
	running := c.must("sbatch", "--parsable", "-w", "node1", "--wrap", "sleep 1000")
	c.until("RUNNING", "squeue", "-h", "-j", running, "-o", "%T")
	set("Prolog="+note("prolog"), "Epilog="+note("epilog"), "TaskProlog="+write("taskprolog", "echo export FROM=prolog"),
		"TaskEpilog="+write("taskepilog", "exit 0"))
	if out, errs, code := c.run("scontrol", "reconfigure"); code != 0 || out+errs != "" {
		t.Fatalf("reconfigure: exit %d, %s%s", code, out, errs)
	}
	out := filepath.Join(c.dir, "out")
	job := c.must("sbatch", "--parsable", "-w", "node1", "-o", out, "--wrap", "echo FROM=$FROM")
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", job, "-o", "State")
	c.must("scancel", running)
	c.until("", "squeue", "-h")
	if text, err := os.ReadFile(out); err != nil || string(text) != "FROM=prolog\n" {
		t.Errorf("the job wrote %q, %v", text, err)
	}
	for line, want := range map[string]bool{
		"prolog " + job: true, "epilog " + job: true, "prolog " + running: false, "epilog " + running: true,
	} {
		if has(line) != want {
			data, _ := os.ReadFile(seen)
			t.Errorf("%q was seen: %v, want %v in\n%s", line, has(line), want, data)
		}
	}
	set("GpuFreqDef=low")
	if _, errs, code := c.run("scontrol", "reconfigure"); code != 0 || !strings.Contains(errs, "node[1-2]: restart the agent for what else changed") {
		t.Errorf("with a key that agents read at their start: exit %d, %s", code, errs)
	}
	set("HealthCheckProgram="+write("health", "echo broken fan; exit 1"), "HealthCheckInterval=1")
	if _, errs, code := c.run("scontrol", "reconfigure"); code != 0 || errs != "" {
		t.Errorf("with a health check: exit %d, %s", code, errs)
	}
	c.until("drained", "sinfo", "-h", "-p", "gpu", "-o", "%T")
	set()
	c.must("scontrol", "reconfigure")
	c.until("idle", "sinfo", "-h", "-p", "gpu", "-o", "%T")
}
