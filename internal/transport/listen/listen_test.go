package listen

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, perm := range []fs.FileMode{0o600, 0o666} {
		l, err := Unix(path, perm)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != perm || info.Mode().Type() != fs.ModeSocket {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if l.Addr().String() != path {
			t.Errorf("address %s", l.Addr())
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		_, err = Unix(path, perm)
		if want := fmt.Sprintf("process %d (", os.Getpid()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), want) {
			t.Errorf("second listener: %v, want %q in it", err, want)
		}
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket stays: %v", err)
		}
	}
}

func TestUnixReplacesWhatAKilledProcessLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	l, err := Unix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestUnixLeavesOtherFilesAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Unix(path, 0o600); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("%v", err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := Unix(filepath.Join(t.TempDir(), strings.Repeat("x", 120)), 0o600); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("long path: %v", err)
	}
	if _, err := Unix(filepath.Join(t.TempDir(), "no", "s"), 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestTCPNamesTheOwner(t *testing.T) {
	l, err := TCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = TCP(t.Context(), l.Addr().String())
	if want := fmt.Sprintf("process %d (", os.Getpid()); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q in it", err, want)
	}
	if _, err := TCP(t.Context(), "256.0.0.1:1"); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("bad address: %v", err)
	}
}

func TestTCPOwnerFromProc(t *testing.T) {
	const table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1AA1 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n" +
		"   1: 0100007F:1AA1 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 777 1\n"
	proc := t.TempDir()
	for name, text := range map[string]string{"net/tcp": table, "12/comm": "slurmctld\n"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755), os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if got := tcpOwner(proc, "127.0.0.1:6817"); got != "a process of uid 1000" {
		t.Errorf("invisible owner: %s", got)
	}
	if got := tcpOwner(proc, "127.0.0.1:6818"); got != "another process" {
		t.Errorf("no owner: %s", got)
	}
	fd := filepath.Join(proc, "12", "fd")
	if err := errors.Join(os.MkdirAll(fd, 0o755), os.Symlink("socket:[777]", filepath.Join(fd, "3"))); err != nil {
		t.Fatal(err)
	}
	if got := tcpOwner(proc, "127.0.0.1:6817"); got != "process 12 (slurmctld)" {
		t.Errorf("owner: %s", got)
	}
}
