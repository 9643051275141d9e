package sidebyside

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScenariosCanBeRead: every file is well-formed and refers to jobs that it submits.
func TestScenariosCanBeRead(t *testing.T) {
	scenarios, err := readScenarios("scenarios")
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for _, sc := range scenarios {
		commands += len(sc.lines)
	}
	if len(scenarios) < 6 || commands < 100 {
		t.Errorf("%d scenarios with %d commands", len(scenarios), commands)
	}
}

func TestBadScenarios(t *testing.T) {
	for text, says := range map[string]string{
		"  squeue\n":     ":1: nobody types this line",
		"alice\n  ! x\n": ":2: this reason belongs to no command",
	} {
		path := filepath.Join(t.TempDir(), "bad.txt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readScenario(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestNormalise: what differs between two clusters by nature is made equal, and nothing else.
func TestNormalise(t *testing.T) {
	var ids jobs
	ids.submitted("", "Submitted batch job 70012\n")
	ids.submitted("", "salloc: Granted job allocation 70015\n")
	if got := ids.fillIn("sacct -j $1,$2,$3"); got != "sacct -j 70012,70015,$3" {
		t.Error(got)
	}
	ids.submitted("refused", "sbatch: error: no\n")
	ids.submitted("big", "Submitted batch job 70020\n")
	if got := ids.fillIn("scancel $big $refused $bigger"); got != "scancel 70020 none $bigger" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"70020 70020_4":                    "J-big J-big_4",
		"70012_3 slurm-70015.out 700123":   "J1_3 slurm-J2.out 700123",
		"2026-11-24T10:00:00 00:00:07 x":   "INSTANT SHORT x",
		"alice  R       0:03      1 node1": "alice  R  SHORT  1 node1",
		"TimeLimit=01:00:00 10:03":         "TimeLimit=01:00:00 10:03",
	} {
		if got := ids.normalise(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
