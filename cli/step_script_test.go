package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStepScripts runs srun with programs before and after the step: both run on its
// host with the job's number, and one that fails is reported and stops nothing.
func TestStepScripts(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	script := filepath.Join(dir, "script")
	text := "#!/bin/sh\necho $SLURM_SCRIPT_CONTEXT $SLURM_JOB_ID >>" + log + "\nexit 3\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	r := w.shell("srun --jobid=36 --prolog=" + script + " --epilog=" + script + " hostname")
	data, err := os.ReadFile(log)
	if err != nil || string(data) != "prolog_srun 36\nepilog_srun 36\n" {
		t.Errorf("%q, %v", data, err)
	}
	if n := strings.Count(r.errOut, "exit status 3"); n != 2 {
		t.Errorf("%d failures reported: %s", n, r.errOut)
	}
	if w.shell("srun --jobid=36 --prolog=none hostname"); strings.Contains(r.errOut, "--prolog none") {
		t.Errorf("none was run: %s", r.errOut)
	}
}
