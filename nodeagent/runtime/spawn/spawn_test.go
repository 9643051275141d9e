package spawn

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// collect starts a request with a pipe as output and gives what it wrote and
// how it ended.
func collect(t *testing.T, r Request) (string, syscall.WaitStatus, error) {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pr.Close()
	r.Stdin, r.Stdout, r.Stderr = int(null.Fd()), int(pw.Fd()), int(pw.Fd())
	c, startErr := Start(&r)
	pw.Close()
	if c.PIDFD >= 0 {
		defer unix.Close(c.PIDFD)
	}
	var ws syscall.WaitStatus
	out, err := io.ReadAll(pr)
	if err != nil {
		t.Fatal(err)
	}
	if c.PID != 0 {
		if _, err := syscall.Wait4(c.PID, &ws, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	return string(out), ws, startErr
}

func sh(script string) Request {
	return Request{Paths: []string{"/bin/sh"}, Argv: []string{"sh", "-c", script}, CgroupFD: -1}
}

func TestStartPassesEverything(t *testing.T) {
	r := sh(`echo $0-$A; ulimit -Sn; ulimit -Hn; nice; grep Cpus_allowed_list /proc/self/status; ps -o sid= -p $$ 2>/dev/null | tr -d ' '; exit 7`)
	r.Argv[0] = "sh"
	r.Env = []string{"A=b c", "PATH=/usr/bin:/bin"}
	r.PIDVar = "SLURM_TASK_PID"
	r.Rlimits = []Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 123, Hard: 456}}
	r.Nice = 5
	r.CPUs = []int32{0}
	out, ws, err := collect(t, r)
	if err != nil {
		t.Fatal(err)
	}
	if ws.ExitStatus() != 7 {
		t.Errorf("exit status %d", ws.ExitStatus())
	}
	lines := strings.Split(out, "\n")
	want := []string{"sh-b c", "123", "456", "5", "Cpus_allowed_list:\t0"}
	for i, w := range want {
		if i >= len(lines) || lines[i] != w {
			t.Errorf("line %d: got %q, want %q\n%s", i, lines[i], w, out)
		}
	}
}

func TestPIDVariableIsTheProcess(t *testing.T) {
	r := sh(`test "$SLURM_TASK_PID" = $$ && echo same`)
	r.PIDVar = "SLURM_TASK_PID"
	out, _, err := collect(t, r)
	if err != nil || out != "same\n" {
		t.Fatalf("got %q, %v", out, err)
	}
}

func TestProcessLeadsItsOwnSession(t *testing.T) {
	out, _, err := collect(t, sh(`cut -d' ' -f1,5,6 /proc/$$/stat`))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(out)
	if len(f) != 3 || f[0] != f[1] || f[0] != f[2] {
		t.Fatalf("pid, group and session differ: %q", out)
	}
}

func TestCredentials(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	r := sh(`id -u; id -g; id -G`)
	r.Env = []string{"PATH=/usr/bin:/bin"}
	r.Cred = &Cred{UID: 65534, GID: 65533, Groups: []uint32{7, 8}}
	out, _, err := collect(t, r)
	if err != nil || out != "65534\n65533\n65533 7 8\n" {
		t.Fatalf("got %q, %v", out, err)
	}
}

func TestFailuresNameTheirStage(t *testing.T) {
	missing := Request{Paths: []string{"/does/not/exist"}, Argv: []string{"x"}, CgroupFD: -1}
	badLimit := sh("true")
	badLimit.Rlimits = []Rlimit{{Resource: 99, Soft: 1, Hard: 1}}
	noCPU := sh("true")
	noCPU.CPUs = []int32{4000}
	badJoin := sh("true")
	badJoin.JoinFDs = []int{9999}
	for _, c := range []struct {
		req   Request
		stage Stage
		errno syscall.Errno
	}{
		{missing, StageExec, syscall.ENOENT},
		{badLimit, StageRlimit, syscall.EINVAL},
		{noCPU, StageAffinity, syscall.EINVAL},
		{badJoin, StageCgroup, syscall.EBADF},
	} {
		_, ws, err := collect(t, c.req)
		var se *Error
		if !errors.As(err, &se) || se.Stage != c.stage || se.Errno != c.errno {
			t.Errorf("got %v, want stage %v, errno %v", err, c.stage, c.errno)
		}
		if ws.ExitStatus() != 127 {
			t.Errorf("%v: the child exited with %v", c.stage, ws)
		}
	}
}

func TestPathsAreTriedInOrder(t *testing.T) {
	dir := t.TempDir()
	forbidden := filepath.Join(dir, "forbidden")
	if err := os.WriteFile(forbidden, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := sh("echo ran")
	r.Paths = []string{"/does/not/exist/sh", forbidden, "/bin/sh"}
	if out, _, err := collect(t, r); err != nil || out != "ran\n" {
		t.Fatalf("got %q, %v", out, err)
	}
	r.Paths = r.Paths[:2]
	_, _, err := collect(t, r)
	if !errors.Is(err, syscall.EACCES) {
		t.Fatalf("got %v, want the permission error and not the missing file", err)
	}
}

func TestZeroByteIsRefused(t *testing.T) {
	r := sh("true")
	r.Env = []string{"A=\x00"}
	if _, _, err := collect(t, r); !errors.Is(err, ErrArgument) {
		t.Fatalf("got %v", err)
	}
}

// TestManyStarts shakes the fork path while the collector and other
// goroutines run: a torn stack or a lost return address would crash here.
func TestManyStarts(t *testing.T) {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	done := make(chan error, 4)
	for range 4 {
		go func() {
			for i := range 100 {
				r := Request{Paths: []string{"/bin/true"}, Argv: []string{"true", strings.Repeat("x", i*100)},
					Stdin: fd, Stdout: fd, Stderr: fd, CgroupFD: -1}
				c, err := Start(&r)
				if err != nil {
					done <- err
					return
				}
				unix.Close(c.PIDFD)
				var ws syscall.WaitStatus
				if _, err := syscall.Wait4(c.PID, &ws, 0, nil); err != nil || ws.ExitStatus() != 0 {
					done <- errors.Join(err, errors.New("bad status"))
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
