package tidy_test

import (
	"os/exec"
	"path/filepath"
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
	skipWithoutModules(t, text)
	t.Errorf("go mod tidy -diff: %v\n%s", err, text)
}

// TestModulesBuildOnThisOne fails when a newer dependency of this module has made the go.mod
// of a module that builds on it stale. Nothing else here compiles those modules, so that
// `make kube` would be the first to refuse.
func TestModulesBuildOnThisOne(t *testing.T) {
	for _, folder := range []string{"kube", "test/grafana"} {
		t.Run(folder, func(t *testing.T) {
			cmd := exec.Command("go", "list", "-m", "-mod=readonly", "all")
			cmd.Dir = filepath.Join(root(t), folder)
			out, err := cmd.CombinedOutput()
			if err == nil {
				return
			}
			skipWithoutModules(t, string(out))
			t.Errorf("run `go mod tidy` in %s, and build it: %v\n%s", folder, err, out)
		})
	}
}

// skipWithoutModules skips a test on a machine that cannot load modules.
func skipWithoutModules(t *testing.T, output string) {
	t.Helper()
	for _, reason := range []string{
		"dial tcp", "module lookup disabled", "no such host", "connection refused", "i/o timeout",
	} {
		if strings.Contains(output, reason) {
			t.Skipf("the go command cannot load modules on this machine: %s",
				strings.TrimSpace(output))
		}
	}
}
