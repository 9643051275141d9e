//go:build linux

package login

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test's program stands for muster-shepherd.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Verb:
			os.Exit(Main(os.Args[2:], os.Stderr))
		case PrintVerb:
			os.Exit(Print(os.Stdout))
		}
	}
	os.Exit(m.Run())
}

const aMinute = time.Minute

// home makes a home folder with one login file, which sh and bash read.
func home(t *testing.T, profile string) *Shell {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".profile"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Shell{User: "alice", Home: dir, Timeout: aMinute}
}

// TestLoginFiles reads what login files set, whatever else they do.
func TestLoginFiles(t *testing.T) {
	for _, path := range []string{"", "/bin/bash"} {
		shell := home(t, "echo hello; echo 1=2 >&2\nexport A='one\ntwo' B=3\nC=unexported\nPATH=/site:$PATH\nsleep 1000 &\n")
		shell.Path = path
		env, err := shell.Environment(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"A=one\ntwo", "B=3", "USER=alice", "HOME=" + shell.Home} {
			if !slices.Contains(env, want) {
				t.Errorf("%q: %q is missing in %q", path, want, env)
			}
		}
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "PATH=/site:") }) {
			t.Errorf("PATH is missing in %q", env)
		}
		for _, variable := range env {
			for _, not := range []string{"C=", "SHLVL=", "_=", "PWD=", "OLDPWD="} {
				if strings.HasPrefix(variable, not) {
					t.Errorf("%q is the shell's own", variable)
				}
			}
		}
	}
}

// TestPlain leaves the login files out.
func TestPlain(t *testing.T) {
	shell := home(t, "export A=1\n")
	shell.Plain = true
	env, err := shell.Environment(t.Context())
	if err != nil || slices.Contains(env, "A=1") || !slices.Contains(env, "USER=alice") {
		t.Errorf("%q, %v", env, err)
	}
}

// TestHanging ends login files that wait, with all that they have started, and
// falls back to the cached environment.
func TestHanging(t *testing.T) {
	shell := home(t, "")
	fifo := filepath.Join(shell.Home, ".profile")
	if err := errors.Join(os.Remove(fifo), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	shell.Timeout = 50 * time.Millisecond
	if _, err := shell.Environment(t.Context()); err == nil || !strings.Contains(err.Error(), "within 50ms") {
		t.Errorf("no cache: %v", err)
	}
	shell.Cache = filepath.Join(shell.Home, "cache")
	if _, err := shell.Environment(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the cache is missing: %v", err)
	}
	if err := os.WriteFile(shell.Cache, []byte("A=1\nPWD=/x\nB=two\nlines=\n more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env, err := shell.Environment(t.Context())
	if want := []string{"A=1", "B=two", "lines=\n more"}; err != nil || !slices.Equal(env, want) {
		t.Errorf("%q, %v, want %q", env, err, want)
	}
	shell.Timeout = 0
	if env, err := shell.Environment(t.Context()); err != nil || !slices.Contains(env, "A=1") {
		t.Errorf("only the cache: %q, %v", env, err)
	}
}

// TestNoShell says why there is no environment.
func TestNoShell(t *testing.T) {
	shell := home(t, "exit 3\n")
	if _, err := shell.Environment(context.Background()); !errors.Is(err, ErrNotTold) {
		t.Errorf("a login file that ends the shell: %v", err)
	}
	shell.Path = "/bin/false"
	if _, err := shell.Environment(t.Context()); !errors.Is(err, ErrNotTold) {
		t.Errorf("an account without a shell: %v", err)
	}
	shell.Path = "/no/such/shell"
	if _, err := shell.Environment(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a shell that is not there: %v", err)
	}
}

// TestMainProgram runs a command in the environment: what it was started with
// takes precedence, and a login that fails is told and stops nothing.
func TestMainProgram(t *testing.T) {
	for profile, want := range map[string]string{
		"export A=profile B=profile PATH=/site\n": "A=job B=profile PATH=/site\n",
		"exit 1\n": "A=job B= PATH=" + DefaultPath + "\n",
	} {
		shell := home(t, profile)
		args, err := shell.Args(os.Args[0], "stepd: ", []string{"/bin/sh", "-c", `echo "A=$A B=$B PATH=$PATH"`})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = []string{"A=job"}
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil || out.String() != want {
			t.Errorf("%q: %q, %v, want %q", profile, out.String(), err, want)
		}
		told := strings.HasPrefix(errOut.String(), "stepd: Unable to get user's local environment")
		if told != strings.HasPrefix(profile, "exit") {
			t.Errorf("%q: %q", profile, errOut.String())
		}
	}
}
