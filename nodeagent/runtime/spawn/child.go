//go:build linux && (amd64 || arm64)

package spawn

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

//go:linkname afterForkInChild syscall.runtime_AfterForkInChild
func afterForkInChild()

//go:noescape
func vforkCall(nr, a, b, c uintptr) (r uintptr)

// cloneAndExec returns only in the parent. The parent must leave this frame
// at once: the child has used it.
//
//go:noinline
//go:norace
//go:nocheckptr
func cloneAndExec(f *frame) uintptr {
	var r uintptr
	// From here to exec only nosplit functions may be called.
	beforeFork()
	if f.legacyCall {
		r = vforkCall(
			unix.SYS_CLONE,
			unix.CLONE_VFORK|unix.CLONE_VM|unix.CLONE_PIDFD|uintptr(unix.SIGCHLD),
			0,
			uintptr(unsafe.Pointer(&f.pidfd)),
		)
	} else {
		r = vforkCall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&f.args)), unsafe.Sizeof(f.args), 0)
	}
	if r != 0 {
		return r
	}
	afterForkInChild()
	f.prepareChild()
	if f.stage == StageNone {
		f.tryPaths()
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 127, 0, 0)
	}
}

//go:nosplit
//go:norace
func (f *frame) fail(stage Stage, e syscall.Errno) bool {
	if e == 0 {
		return false
	}
	f.stage, f.errno = stage, e
	return true
}

// prepareChild makes the child what the request says; it stops at the first failure.
//
//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func (f *frame) prepareChild() {
	for i := 0; i < len(f.joins); i++ {
		if _, _, e := syscall.RawSyscall(unix.SYS_WRITE, uintptr(f.joins[i]), uintptr(unsafe.Pointer(f.zero)), 1); f.fail(
			StageCgroup,
			e,
		) {
			return
		}
	}
	// A shepherd started with blocked signals must not pass them on.
	syscall.RawSyscall6(
		unix.SYS_RT_SIGPROCMASK,
		unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(&f.emptyMask)),
		0,
		8,
		0,
		0,
	)
	if _, _, e := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); f.fail(StageSession, e) {
		return
	}
	if f.setLimits() || f.setCred() {
		return
	}
	if f.noPrivs {
		_, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
		if f.fail(StagePrivs, e) {
			return
		}
	}
	for i := 0; i < 3; i++ {
		if _, _, e := syscall.RawSyscall(unix.SYS_DUP3, uintptr(f.stdio[i]), uintptr(i), 0); f.fail(
			StageFiles,
			e,
		) {
			return
		}
	}
	for i := 0; i < len(f.keep); i++ {
		if _, _, e := syscall.RawSyscall(unix.SYS_FCNTL, uintptr(f.keep[i]), unix.F_SETFD, 0); f.fail(
			StageFiles,
			e,
		) {
			return
		}
	}
	if f.terminal {
		if _, _, e := syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); f.fail(
			StageTerminal,
			e,
		) {
			return
		}
	}
	if f.pidDigits != nil {
		pid, _, _ := syscall.RawSyscall(unix.SYS_GETPID, 0, 0, 0)
		f.writePID(uint64(pid))
	}
}

//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func (f *frame) setLimits() bool {
	for i := 0; i < len(f.rlims); i++ {
		_, _, e := syscall.RawSyscall6(
			unix.SYS_PRLIMIT64,
			0,
			uintptr(f.rlimits[i].Resource),
			uintptr(unsafe.Pointer(&f.rlims[i])),
			0,
			0,
			0,
		)
		if f.fail(StageRlimit, e) {
			return true
		}
	}
	if f.nice != 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0, uintptr(f.nice)); f.fail(
			StageNice,
			e,
		) {
			return true
		}
	}
	if f.maskBytes != 0 {
		if _, _, e := syscall.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, uintptr(f.maskBytes), uintptr(unsafe.Pointer(&f.mask[0]))); f.fail(
			StageAffinity,
			e,
		) {
			return true
		}
	}
	return false
}

//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func (f *frame) setCred() bool {
	if f.cred == nil {
		return false
	}
	// Groups first, the user last: each step needs the right to take it.
	if _, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(f.cred.Groups)), uintptr(unsafe.Pointer(f.groups)), 0); f.fail(
		StageCred,
		e,
	) {
		return true
	}
	g, u := uintptr(f.cred.GID), uintptr(f.cred.UID)
	if _, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, g, g, g); f.fail(StageCred, e) {
		return true
	}
	_, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, u, u, u)
	return f.fail(StageCred, e)
}

// tryPaths tries the paths as execvp does: absent and forbidden ones are
// skipped, and the most telling errno is kept.
//
//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func (f *frame) tryPaths() {
	var worst syscall.Errno
	for i := 0; i < len(f.paths); i++ {
		_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(f.paths[i])),
			uintptr(unsafe.Pointer(&f.argv[0])), uintptr(unsafe.Pointer(&f.env[0])))
		if worst == 0 || e == syscall.EACCES {
			worst = e
		}
		if e != syscall.ENOENT && e != syscall.EACCES && e != syscall.ENOTDIR {
			worst = e
			break
		}
	}
	f.stage, f.errno = StageExec, worst
}

//go:nosplit
//go:norace
func (f *frame) writePID(pid uint64) {
	n := 1
	for v := pid; v >= 10; v /= 10 {
		n++
	}
	for i := n - 1; i >= 0; i-- {
		f.pidDigits[i] = byte('0' + pid%10)
		pid /= 10
	}
}
