package tool

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestOpenFilesOfTheShell runs this program below a shell that has lowered its limit of open
// files: jobs inherit that limit, not the one to which the Go runtime raises its own.
func TestOpenFilesOfTheShell(t *testing.T) {
	const marker = "MUSTER_TEST_PRINT_RLIMITS"
	if os.Getenv(marker) != "" {
		for _, l := range rlimits() {
			fmt.Println(l.GetName(), l.GetN())
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := exec.Command("/bin/sh", "-c", `ulimit -Sn 57 && exec "$0" -test.run='^TestOpenFilesOfTheShell$'`, self)
	run.Env = append(os.Environ(), marker+"=1")
	out, err := run.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "NOFILE 57\n") {
		t.Errorf("%v, and printed:\n%s", err, out)
	}
}
