package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// needPrograms skips a test whose programs are not installed.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%v: deploy/deps/install.sh test installs it", err)
		}
	}
}

// xServer starts an X server that lets in who has its cookie, and gives the environment by
// which the user's programs find it.
func xServer(t *testing.T) []string {
	t.Helper()
	needPrograms(t, "Xvfb", "xauth", "xdpyinfo")
	authority := filepath.Join(shortDir(t), "own-authority")
	const cookie = "00112233445566778899aabbccddeeff"
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// The cookie must be there before the server reads it, and holds for each number.
	if err := os.WriteFile(authority, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("xauth", "-f", authority, "add", ":99", ".", cookie).CombinedOutput(); err != nil {
		t.Fatalf("xauth: %v: %s", err, out)
	}
	server := exec.Command("Xvfb", "-displayfd", "3", "-screen", "0", "320x240x24", "-nolisten", "tcp", "-auth", authority)
	server.ExtraFiles = []*os.File{writer}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		t.Fatalf("Xvfb did not begin: %v", err)
	}
	display := ":" + strings.TrimSpace(line)
	if out, err := exec.Command("xauth", "-f", authority, "add", display, ".", cookie).CombinedOutput(); err != nil {
		t.Fatalf("xauth: %v: %s", err, out)
	}
	env := []string{"DISPLAY=" + display, "XAUTHORITY=" + authority}
	check := exec.Command("xdpyinfo")
	check.Env = append(os.Environ(), env...)
	if out, err := check.CombinedOutput(); err != nil {
		t.Fatalf("the X server does not let its own user in: %v: %s", err, out)
	}
	return env
}

// TestX11 forwards the display of a real X server to jobs of srun, salloc and sbatch. The
// counter-tests: a program without the job's cookie is refused, a job on whose node no
// display was asked for has none, and the display goes with its job.
func TestX11(t *testing.T) {
	env := xServer(t)
	c := start(t, "PrologFlags=X11")
	const show = `echo $DISPLAY; xdpyinfo | grep dimensions:`
	const seen = "320x240"

	out, errs, code := c.runWith(env, "srun", "--x11", "-N1", "sh", "-c", show+`; cp $XAUTHORITY `+c.dir+`/kept; echo AUTH=$XAUTHORITY`)
	if code != 0 || !strings.Contains(out, seen) || !strings.HasPrefix(out, "localhost:") {
		t.Fatalf("srun --x11: %d %s %s", code, out, errs)
	}
	_, file, _ := strings.Cut(strings.TrimSpace(out), "AUTH=")
	until(t, "the cookie's file is removed with its job", func() bool {
		_, err := os.Stat(file)
		return os.IsNotExist(err)
	})

	out, errs, code = c.runWith(env, "salloc", "--x11=first", "-N2", "-n2", bin("muster"), "srun", "-l", "sh", "-c", show)
	// The node of the second task is this machine too, and its task has the DISPLAY of the caller.
	if code != 0 || strings.Count(out, ": localhost:") != 1 || !strings.Contains(out, "0: localhost:") ||
		!strings.Contains(out, "0:   dimensions:    "+seen) {
		t.Errorf("salloc --x11=first on two nodes: %d %s %s", code, out, errs)
	}

	out, errs, code = c.runWith(env, "srun", "--x11", "-N1", "sh", "-c", "XAUTHORITY=/dev/null xdpyinfo; true")
	if code != 0 || strings.Contains(out, seen) || !strings.Contains(errs, "cookie") {
		t.Errorf("a program without the cookie: %d %s %s", code, out, errs)
	}

	result := filepath.Join(c.dir, "batch.out")
	out, errs, code = c.runWith(env, "sbatch", "--parsable", "--x11", "-o", result, "--wrap", show+"; sleep 2; "+show)
	if code != 0 {
		t.Fatalf("sbatch --x11: %d %s %s", code, out, errs)
	}
	c.until("COMPLETED", "sacct", "-X", "-n", "-P", "-j", strings.TrimSpace(out), "-o", "State")
	text, err := os.ReadFile(result)
	if err != nil || strings.Count(string(text), seen) != 2 {
		t.Errorf("sbatch --x11: %v %s", err, text)
	}

	// Refusals: without a display, without a cookie, without xauth.
	nowhere := t.TempDir()
	for _, tc := range []struct {
		env  []string
		want string
	}{
		{[]string{"DISPLAY="}, "DISPLAY is not set"},
		{[]string{env[0], "XAUTHORITY=/dev/null"}, "xauth knows no cookie"},
		{append([]string{"PATH=" + nowhere}, env...), "xauth is not installed"},
	} {
		out, errs, code := c.runWith(tc.env, "srun", "--x11", "/bin/true")
		if code == 0 || !strings.Contains(errs, tc.want) {
			t.Errorf("%v: %d %s %s, want %s", tc.env, code, out, errs, tc.want)
		}
	}

	// The agent dies: a program that begins after it is back reaches the display.
	again := filepath.Join(c.dir, "again")
	cmd := c.commandWith(env, "srun", "--x11", "-N1", "-w", "node1", "sh", "-c",
		"echo begun; while ! test -e "+again+"; do sleep 0.1; done; "+show)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	lines.Scan()
	c.kill9("agent-node1")
	c.must("up", "--dir", c.dir)
	if err := os.WriteFile(again, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	rest := ""
	for lines.Scan() {
		rest += lines.Text() + "\n"
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(rest, seen) {
		t.Errorf("after a restart of the agent: %v %s", err, rest)
	}
}

// TestX11IsRefusedWhereItIsOff: without PrologFlags=X11 the controller says what is missing.
func TestX11IsRefusedWhereItIsOff(t *testing.T) {
	env := xServer(t)
	c := start(t)
	_, errs, code := c.runWith(env, "srun", "--x11", "true")
	if code == 0 || !strings.Contains(errs, "PrologFlags=X11") {
		t.Errorf("%d %s", code, errs)
	}
}

// until waits for what must come to be.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 600 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("it does not come to be that %s", what)
}

// commandWith is a muster command with variables of its own.
func (c *cluster) commandWith(env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(bin("muster"), args...)
	cmd.Env = append(append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(c.dir, "run", "muster.sock")), env...)
	cmd.Dir = c.dir
	return cmd
}

func (c *cluster) runWith(env []string, args ...string) (out, errs string, code int) {
	c.t.Helper()
	cmd := c.commandWith(env, args...)
	var outText, errText strings.Builder
	cmd.Stdout, cmd.Stderr = &outText, &errText
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		c.t.Fatalf("muster %v: %v", args, err)
	}
	return outText.String(), errText.String(), cmd.ProcessState.ExitCode()
}
