package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSgather: each node's file arrives whole under the node's name, with its mode and
// time where that is asked for; the source stays only with --keep; a file that is
// there, or not on the node, is named.
func TestSgather(t *testing.T) {
	c := start(t)
	from, to := filepath.Join(c.dir, "from"), filepath.Join(c.dir, "to")
	data := bytes.Repeat([]byte{0, 1, '\n', 27, 255}, 300_000) // nothing of it may be translated
	old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(from, old, old); err != nil {
		t.Fatal(err)
	}
	gather := func(args ...string) (string, int) {
		_, errs, code := c.run(append([]string{"salloc", "-Q", "-N2", bin("muster"), "sgather"}, args...)...)
		return errs, code
	}
	if errs, code := gather("-k", "-p", from, to); code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, node := range []string{"node1", "node2"} {
		got, err := os.ReadFile(to + "." + node)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: %d bytes arrived (%v)", node, len(got), err)
		}
		if st, err := os.Stat(to + "." + node); err != nil || st.Mode().Perm() != 0o600 || !st.ModTime().Equal(old) {
			t.Errorf("%s: %v (%v)", node, st, err)
		}
	}
	if errs, code := gather("-k", from, to); code == 0 || strings.Count(errs, "exists; -f replaces it") != 2 {
		t.Errorf("exit %d: %s", code, errs)
	}
	if errs, code := gather("-f", filepath.Join(c.dir, "none"), to); code == 0 || !strings.Contains(errs, "2 of 2 nodes failed") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if got, err := os.ReadFile(to + ".node1"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("a copy that failed has replaced the file: %d bytes, %v", len(got), err)
	}
	c.must("salloc", "-Q", "-N1", bin("muster"), "sgather", from, to+"-one")
	if _, err := os.Stat(from); !os.IsNotExist(err) {
		t.Errorf("without --keep the file is still there (%v)", err)
	}
	if _, errs, code := c.run("sgather", from, to); code == 0 || !strings.Contains(errs, "SLURM_JOB_ID is not set") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
