package slurmconf

import (
	"strings"
	"testing"
	"testing/fstest"
)

// TestUnconfined: a cgroup.conf that keeps jobs to what they have does so through the task plugin;
// where slurm.conf does not name it, that is said, for nothing else shows it.
func TestUnconfined(t *testing.T) {
	read := func(more, cgroup string) string {
		_, problems := ReadCluster(fstest.MapFS{"slurm.conf": file(minimal + more), "cgroup.conf": file(cgroup)}, "slurm.conf")
		return problems.String()
	}
	const confines = "ConstrainDevices=yes\nConstrainCores=no\nConstrainRAMSpace=YES\n"
	got := read("", confines)
	for _, want := range []string{"cgroup.conf:1: ", "ConstrainDevices", "cgroup.conf:3: ", "TaskPlugin of slurm.conf must name task/cgroup"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if strings.Contains(got, "ConstrainCores") {
		t.Errorf("what does not confine is warned of: %s", got)
	}
	for _, quiet := range []string{read("TaskPlugin=task/affinity,task/cgroup\n", confines), read("", "ConstrainCores=no\n")} {
		if strings.Contains(quiet, "TaskPlugin of slurm.conf") {
			t.Errorf("a warning of nothing: %s", quiet)
		}
	}
}
