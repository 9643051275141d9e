//go:build linux && (amd64 || arm64)

package spawn

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ErrTainted means that a thread could not take its own identity back. The
// goroutine must end without unlocking, so that the thread dies with it.
var ErrTainted = errors.New("a thread could not restore its credentials")

// Thread is one operating system thread with its own file creation mask and
// work directory, which can act on files as another user. What it blocks on
// (a hung file server) blocks no other thread.
type Thread struct {
	root   bool
	groups []uint32
}

// NewThread locks the calling goroutine to its thread for good and separates
// the thread's mask and work directory from the process's. The goroutine must
// never unlock it: the thread ends when the goroutine does.
func NewThread() (*Thread, error) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return nil, fmt.Errorf("separate a launch thread: %w", err)
	}
	own, err := os.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("separate a launch thread: %w", err)
	}
	thread := &Thread{root: os.Geteuid() == 0}
	for _, g := range own {
		thread.groups = append(thread.groups, uint32(g))
	}
	return thread, nil
}

// As runs fn with the file access rights, umask and groups of the user. The
// umask and work directory that fn leaves are inherited by a process that this
// thread starts. A nil cred keeps the thread's own identity.
func (t *Thread) As(cred *Cred, umask int, fn func() error) error {
	unix.Umask(umask)
	if cred == nil || !t.root {
		return fn()
	}
	if err := setThreadGroups(cred.Groups); err != nil {
		return fmt.Errorf("take groups of user %d: %w", cred.UID, err)
	}
	err := setFS(cred.GID, cred.UID)
	if err == nil {
		err = fn()
	}
	// The user goes first: setting groups needs no file capability, but a
	// half restored thread must not keep root's groups with a user's id.
	if e := setFS(0, 0); e != nil {
		return errors.Join(ErrTainted, e)
	}
	if e := setThreadGroups(t.groups); e != nil {
		return errors.Join(ErrTainted, e)
	}
	return err
}

// setFS sets the thread's file system group and user, and verifies both: the
// calls themselves report no error.
func setFS(gid, uid uint32) error {
	syscall.RawSyscall(unix.SYS_SETFSGID, uintptr(gid), 0, 0)
	syscall.RawSyscall(unix.SYS_SETFSUID, uintptr(uid), 0, 0)
	g, _, _ := syscall.RawSyscall(unix.SYS_SETFSGID, ^uintptr(0), 0, 0)
	u, _, _ := syscall.RawSyscall(unix.SYS_SETFSUID, ^uintptr(0), 0, 0)
	if uint32(g) != gid || uint32(u) != uid {
		return fmt.Errorf("take file rights of %d:%d: %w", uid, gid, unix.EPERM)
	}
	return nil
}

// setThreadGroups changes this thread only; the library's call changes all.
func setThreadGroups(groups []uint32) error {
	var p *uint32
	if len(groups) > 0 {
		p = &groups[0]
	}
	_, _, e := syscall.RawSyscall(
		unix.SYS_SETGROUPS,
		uintptr(len(groups)),
		uintptr(unsafe.Pointer(p)),
		0,
	)
	if e != 0 {
		return e
	}
	return nil
}
