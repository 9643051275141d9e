package tidy_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestGoModTidy fails when `go mod tidy` would change go.mod or go.sum. The go
// command needs the modules of the tests of our dependencies for that; a
// machine that cannot load them skips the test.
func TestGoModTidy(t *testing.T) {
	cmd := exec.Command("go", "mod", "tidy", "-diff")
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	text := string(out)
	if strings.Contains(text, "diff current/go.") {
		t.Errorf("go.mod or go.sum is not tidy, run `go mod tidy`:\n%s", text)
		return
	}
	for _, reason := range []string{"dial tcp", "module lookup disabled", "no such host", "connection refused", "i/o timeout"} {
		if strings.Contains(text, reason) {
			t.Skipf("go mod tidy cannot load modules on this machine: %s", strings.TrimSpace(text))
		}
	}
	t.Errorf("go mod tidy -diff: %v\n%s", err, text)
}
