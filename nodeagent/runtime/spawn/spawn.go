//go:build linux && (amd64 || arm64)

package spawn

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Cred is the identity a process starts with.
type Cred struct {
	UID, GID uint32
	Groups   []uint32
}

// Rlimit is one resource limit to set; both sides are real values.
type Rlimit struct {
	Resource   int
	Soft, Hard uint64
}

// Request describes one process. File descriptors must be 3 or above and stay
// open until Start returns; the process gets copies at 0, 1 and 2.
type Request struct {
	Paths                 []string // files to execute, tried in order
	Argv                  []string
	Env                   []string
	PIDVar                string // environment variable that shall hold the process id; may be empty
	Stdin, Stdout, Stderr int
	CgroupFD              int   // directory of the v2 group to be born in (needs CanCloneIntoGroup); -1 for none
	JoinFDs               []int // tasks or cgroup.procs files of other groups to enter
	Cred                  *Cred // nil keeps the caller's
	Rlimits               []Rlimit
	Nice                  int
	CPUs                  []int32
	Terminal              bool  // Stdin is a terminal, and becomes the process's own
	NoNewPrivs            bool  // no program that it executes gains rights
	Keep                  []int // further file descriptors that the process inherits, by the same numbers
}

// Child is a started process. PIDFD is owned by the caller; -1 where the
// kernel gives none.
type Child struct {
	PID   int
	PIDFD int
}

// Stage names the step in the child that failed.
type Stage uint32

// The steps between clone and exec.
const (
	StageNone Stage = iota
	StageCgroup
	StageSession
	StageRlimit
	StageNice
	StageAffinity
	StageCred
	StageFiles
	StageExec
	StageTerminal
	StagePrivs
)

// String names the stage.
func (s Stage) String() string {
	return [...]string{"none", "enter control group", "new session", "set limit", "set niceness",
		"set CPU affinity", "set credentials", "place files", "execute", "take the terminal", "give up new rights"}[s]
}

// Error is a start that failed in the child, which has exited with status 127
// and still has to be waited for, or in the clone itself (PID 0).
type Error struct {
	Stage Stage
	Errno syscall.Errno
	PID   int
}

// Error says which step failed and why.
func (e *Error) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("cannot make a process: %v", e.Errno)
	}
	return fmt.Sprintf("cannot %v: %v", e.Stage, e.Errno)
}

// Unwrap gives the errno.
func (e *Error) Unwrap() error { return e.Errno }

// ErrArgument is a string with a zero byte, which the kernel cannot take.
var ErrArgument = errors.New("a path, argument or variable holds a zero byte")

// cloneArgs is the kernel's struct clone_args, version 2.
type cloneArgs struct {
	Flags, Pidfd, ChildTid, ParentTid, ExitSignal uint64
	Stack, StackSize, TLS, SetTid, SetTidSize     uint64
	Cgroup                                        uint64
}

const maskWords = 64 // 4,096 CPUs

// frame is what parent and child share: everything is allocated before the
// clone, and the child writes only stage, errno and the digits of its pid.
type frame struct {
	paths      []*byte
	argv, env  []*byte
	pidDigits  *[10]byte
	stdio      [3]int
	args       cloneArgs
	pidfd      int32
	joins      []int
	keep       []int
	terminal   bool
	noPrivs    bool
	zero       *byte
	cred       *Cred
	groups     *uint32
	rlimits    []Rlimit
	rlims      []unix.Rlimit
	nice       int
	mask       [maskWords]uint64
	maskBytes  int
	emptyMask  uint64
	stage      Stage
	errno      syscall.Errno
	legacyCall bool
}

// Start makes the process. On failure in the child it returns both the Child
// (which exists as a zombie) and an *Error.
func Start(request *Request) (Child, error) {
	f, err := newFrame(request)
	if err != nil {
		return Child{PIDFD: -1}, err
	}
	pid, errno := forkChild(f)
	if errno == syscall.ENOSYS && request.CgroupFD < 0 {
		f.legacyCall = true
		pid, errno = forkChild(f)
	}
	runtime.KeepAlive(request)
	if errno != 0 {
		return Child{PIDFD: -1}, &Error{Errno: errno}
	}
	child := Child{PID: pid, PIDFD: int(f.pidfd)}
	if f.stage != StageNone {
		return child, &Error{Stage: f.stage, Errno: f.errno, PID: pid}
	}
	return child, nil
}

// CanCloneIntoGroup tells whether the kernel makes processes inside a v2
// group: clone3 is there (containers may hide it) and is that of Linux 5.7.
func CanCloneIntoGroup() bool {
	_, _, e := syscall.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	if e == syscall.ENOSYS {
		return false
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	var major, minor int
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 5 || major == 5 && minor >= 7
}

// forkChild makes the child and returns in the parent once it has executed or exited.
func forkChild(f *frame) (int, syscall.Errno) {
	r := cloneAndExec(f)
	afterFork()
	if int(r) < 0 {
		return 0, syscall.Errno(-int(r))
	}
	return int(r), 0
}

func newFrame(request *Request) (*frame, error) {
	f := &frame{
		pidfd:    -1,
		joins:    request.JoinFDs,
		keep:     request.Keep,
		terminal: request.Terminal,
		noPrivs:  request.NoNewPrivs,
		zero:     &[]byte("0")[0],
		stdio: [3]int{
			request.Stdin,
			request.Stdout,
			request.Stderr,
		},
		cred:    request.Cred,
		nice:    request.Nice,
		rlimits: request.Rlimits,
	}
	for _, fd := range f.stdio {
		if fd < 3 {
			return nil, fmt.Errorf("spawn: file descriptor %d is below 3", fd)
		}
	}
	var err error
	f.paths, err = pointers(request.Paths, false)
	if err != nil {
		return nil, err
	}
	f.argv, err = pointers(request.Argv, true)
	if err != nil {
		return nil, err
	}
	f.env, err = pointers(request.Env, true)
	if err != nil {
		return nil, err
	}
	if request.PIDVar != "" {
		f.addPIDVar(request.PIDVar)
	}
	for _, rlimit := range request.Rlimits {
		f.rlims = append(f.rlims, unix.Rlimit{Cur: rlimit.Soft, Max: rlimit.Hard})
	}
	for _, c := range request.CPUs {
		if c < 0 || int(c) >= maskWords*64 {
			return nil, fmt.Errorf("spawn: CPU %d is out of range", c)
		}
		f.mask[c/64] |= 1 << (uint(c) % 64)
		f.maskBytes = max(f.maskBytes, int(c/64+1)*8)
	}
	if request.Cred != nil && len(request.Cred.Groups) > 0 {
		f.groups = &request.Cred.Groups[0]
	}
	f.args = cloneArgs{
		Flags:      unix.CLONE_VFORK | unix.CLONE_VM | unix.CLONE_PIDFD,
		Pidfd:      uint64(uintptr(unsafe.Pointer(&f.pidfd))),
		ExitSignal: uint64(unix.SIGCHLD),
	}
	if request.CgroupFD >= 0 {
		f.args.Flags |= unix.CLONE_INTO_CGROUP
		f.args.Cgroup = uint64(request.CgroupFD)
	}
	return f, nil
}

// addPIDVar appends NAME= with room for ten digits; the child fills it in.
func (f *frame) addPIDVar(name string) {
	data := make([]byte, len(name)+1+10+1)
	copy(data, name)
	data[len(name)] = '='
	f.pidDigits = (*[10]byte)(data[len(name)+1:])
	f.env[len(f.env)-1] = &data[0]
	f.env = append(f.env, nil)
}

func pointers(list []string, terminate bool) ([]*byte, error) {
	size := 0
	for _, s := range list {
		size += len(s) + 1
	}
	out := make([]*byte, 0, len(list)+2)
	buf := make([]byte, 0, size)
	for _, text := range list {
		for i := 0; i < len(text); i++ {
			if text[i] == 0 {
				return nil, ErrArgument
			}
		}
		at := len(buf)
		buf = append(append(buf, text...), 0)
		out = append(out, &buf[at])
	}
	if terminate {
		out = append(out, nil)
	}
	return out, nil
}
