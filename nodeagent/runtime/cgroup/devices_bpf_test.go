//go:build linux

package cgroup

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSignalsDoNotKeepDeviceProgramsOut: the kernel's verifier stops where a signal is pending,
// which a shepherd has for each process that ends. A job that starts meanwhile is fenced all the same.
func TestSignalsDoNotKeepDeviceProgramsOut(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	program := deviceProgram(&[nvidiaControl]bool{})
	fd, err := loadDeviceProgram(program)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("device programs cannot be loaded here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)

	var over atomic.Bool
	done := make(chan struct{})
	thread := unix.Gettid()
	go func() {
		defer close(done)
		for !over.Load() {
			_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG) // Go's runtime ignores those that are not its own
		}
	}()
	const loads = 2000
	failed := 0
	for range loads {
		fd, err := loadDeviceProgram(program)
		if err != nil {
			failed++
			continue
		}
		_ = unix.Close(fd)
	}
	over.Store(true)
	<-done
	if failed > 0 {
		t.Errorf("%d of %d programs were not loaded", failed, loads)
	}
}
