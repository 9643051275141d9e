package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/spec/slurmconf"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == program.GateVerb {
		os.Exit(program.Gate(os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

// TestPlacedProlog: the process of a prolog is put into its place before the program
// begins, which has its environment and nothing else; it does not begin where that fails.
func TestPlacedProlog(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	file := filepath.Join(dir, "prolog")
	text := "#!/bin/sh\necho $$ >>" + out + "\n/usr/bin/env >>" + out + "\nread word && echo $word\nexit 0\n"
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	scripts := NewNodeScripts(&slurmconf.Agent{Prolog: []string{file}}, "n1")
	placed := 0
	err := scripts.Prolog(t.Context(), []string{"SLURM_JOB_ID=7"}, func(pid int) error {
		placed = pid
		if _, err := os.Stat(out); err == nil {
			t.Error("the program has begun before it was placed")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if err != nil || lines[0] != strconv.Itoa(placed) || !strings.Contains(string(data), "SLURM_JOB_ID=7\n") || strings.Contains(string(data), "HOME=") {
		t.Errorf("placed as %d, it wrote %q (%v)", placed, data, err)
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	err = scripts.Prolog(t.Context(), nil, func(int) error { return errors.New("there is no group") })
	if err == nil || err.Error() != "Prolog error: "+file+": there is no group" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a program that could not be placed has run")
	}
}
