package backup

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
)

// listenAt names, in the environment of the helper, where it listens.
const listenAt = "MUSTER_TEST_LISTEN"

// TestHelperListens is no test: it is a controller with much memory, which takes its
// time to die, for TestAKilledControllerDoesNotRun.
func TestHelperListens(t *testing.T) {
	path := os.Getenv(listenAt)
	if path == "" {
		t.Skip("only for another test")
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 1<<30)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	if _, err := os.Stdout.WriteString("listens\n"); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Pause()
	t.Fatal(len(memory), listener.Addr())
}

// TestAKilledControllerDoesNotRun: what was killed answers at its socket until its
// memory is freed. A restore right after the kill is not refused for it.
func TestAKilledControllerDoesNotRun(t *testing.T) {
	dir, err := os.MkdirTemp("", "killed") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := &conffile.Config{Socket: filepath.Join(dir, "s")}
	helper := exec.Command(os.Args[0], "-test.run=^TestHelperListens$")
	helper.Env = append(os.Environ(), listenAt+"="+cfg.Socket)
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = helper.Process.Kill() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "listens\n" {
		t.Fatalf("the helper says %q: %v", line, err)
	}
	if !controllerRuns(t.Context(), cfg) {
		t.Error("a controller that listens is said not to run")
	}
	if err := syscall.Kill(helper.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if controllerRuns(t.Context(), cfg) {
		t.Error("a controller that was killed is said to run")
	}
	_ = helper.Wait()
}
