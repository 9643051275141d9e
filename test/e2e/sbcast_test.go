package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSbcast: a file is on both nodes with its mode and time, over one that is
// there only with --force; a program goes with --bcast; what cannot be written
// says where and why.
func TestSbcast(t *testing.T) {
	c := start(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	from, to := filepath.Join(c.dir, "from"), filepath.Join(c.dir, "to")
	if err := os.WriteFile(from, data, 0o640); err != nil {
		t.Fatal(err)
	}
	hold := c.wait("srun", "-N", "2", "sleep", "300")
	c.until("1.0", "squeue", "-h", "-s", "-o", "%i")
	// Both nodes are this machine: the second replaces what the first has written.
	c.must("sbcast", "-f", "-p", "-j", "1", from, to)
	got, err := os.ReadFile(to)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes arrived (%v)", len(got), err)
	}
	a, _ := os.Stat(from)
	if b, err := os.Stat(to); err != nil || b.Mode() != a.Mode() || !b.ModTime().Equal(a.ModTime()) {
		t.Errorf("it is %v, not %v (%v)", b, a, err)
	}
	for text, args := range map[string][]string{
		"already exists":               {"-j", "1", "-w", "node2", from, to},
		"no such file":                 {"-j", "1.0", from, "/nowhere/at/all"},
		"not one of the job":           {"-f", "-j", "1", "-w", "node9", from, to},
		"Need two file names":          {"-j", "1", from},
		"--compress=lz4":               {"-j", "1", "-Clz4", from, to},
		"Invalid job id":               {"-j", "99", from, to},
		"no regular file":              {"-j", "1", c.dir, to},
		"only valid from within a job": {from, to},
	} {
		if _, errs, code := c.run(append([]string{"sbcast"}, args...)...); code == 0 || !strings.Contains(errs, text) {
			t.Errorf("sbcast %v: exit %d, %q without %q", args, code, errs, text)
		}
	}
	c.must("scancel", "1")
	hold()
	program := filepath.Join(c.dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho $0 $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out := c.must("srun", "-N", "2", "--bcast="+to+".sh", program, "word"); out != to+".sh word\n"+to+".sh word" {
		t.Errorf("--bcast: %q", out)
	}
	c.until("2.0|sbcast|COMPLETED\n2.1|program|COMPLETED", "sacct", "-n", "-P", "-j", "2.0,2.1", "-o", "JobID,JobName,State")
}
