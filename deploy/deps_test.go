package deploy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDeps: the script reads its own table.
func TestDeps(t *testing.T) {
	list := func(args ...string) []string {
		out, err := exec.Command("deps/install.sh", append(args, "--list")...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Fields(string(out))
	}
	all, build, test := list(), list("build"), list("test")
	if !slices.Contains(build, "gcc") || !slices.Contains(test, "npm") || slices.Contains(build, "npm") || len(all) != len(build)+len(test) {
		t.Errorf("all %v, build %v, test %v", all, build, test)
	}
}
