package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// Env is everything that a command can see of the world.
type Env struct {
	Args    []string // as the program was called, its own name first
	Environ []string // NAME=value
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
	Dir     string // the working directory
	Host    string // this host's name
	UID     uint32
	Version string // of this release
	Loc     *time.Location

	Now      func() time.Time
	Dial     func(ctx context.Context) (Conn, error)
	DialPast func(ctx context.Context) (Conn, error)    // to accounting where it runs apart; nil, or a nil Conn = it does not
	Terminal func(stream any) bool                      // whether Stdin, Stdout or Stderr is a terminal
	Pause    func(ctx context.Context, d time.Duration) // waits, or returns early at the end of ctx
	UserName func(uid uint32) string                    // "" when it is not known here
	// Beside runs a program that lies beside this one: what few commands need
	// and would make every command start slower is there.
	Beside func(ctx context.Context, stdin io.Reader, program string, args ...string) error
	// Exec replaces this process; CPUs are those that it may run on.
	Exec     func(path string, argv, environ []string) error
	CPUs     func() spec.Bitset
	UserID   func(user string) string // a user's number; "" when it is not known here
	FullName func(user string) string // a person's name; "" when it is not known here
	// Metrics reads the metrics of an agent; nil asks it over the network.
	Metrics func(ctx context.Context, addr string) (string, error)
	Rlimits func() []*apiv1.Count // soft limits of this process, -1 = unlimited
	Umask   func() uint32

	typed *typed // set where the command was typed elsewhere
}

// OS is the real world.
func OS(version string) *Env {
	e := &Env{
		Args: os.Args, Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		UID: uint32(os.Getuid()), Version: version, Loc: time.Local,
		Now: time.Now, Pause: pause, Beside: beside, UserName: userName, UserID: lookupUID, FullName: fullName, Rlimits: rlimits, Umask: umask,
		Exec: syscall.Exec, CPUs: ownCPUs,
		Terminal: terminal,
	}
	e.Dir = workDir()
	if host, err := os.Hostname(); err == nil {
		e.Host = host
	}
	e.Dial, e.DialPast = e.dial, e.dialPast
	return e
}

// workDir prefers the shell's name of the folder, as users know it, to the
// resolved one.
func workDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return "/"
	}
	return dir
}

// Lookup finds an environment variable.
func (e *Env) Lookup(name string) (string, bool) {
	for i := len(e.Environ) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(e.Environ[i], "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// Getenv is the value of an environment variable, empty when it is not set.
func (e *Env) Getenv(name string) string {
	v, _ := e.Lookup(name)
	return v
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func userName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

func fullName(login string) string {
	u, err := user.Lookup(login)
	if err != nil {
		return ""
	}
	return u.Name
}

func umask() uint32 {
	old := syscall.Umask(0o22)
	syscall.Umask(old)
	return uint32(old)
}

// rlimitNames are the limits that Slurm propagates, by its names.
func rlimitNames() []struct {
	name string
	id   int
} {
	return []struct {
		name string
		id   int
	}{
		{"AS", unix.RLIMIT_AS}, {"CORE", unix.RLIMIT_CORE}, {"CPU", unix.RLIMIT_CPU}, {"DATA", unix.RLIMIT_DATA},
		{"FSIZE", unix.RLIMIT_FSIZE}, {"MEMLOCK", unix.RLIMIT_MEMLOCK}, {"NOFILE", unix.RLIMIT_NOFILE}, {"NPROC", unix.RLIMIT_NPROC},
		{"RSS", unix.RLIMIT_RSS}, {"STACK", unix.RLIMIT_STACK},
	}
}

func rlimits() []*apiv1.Count {
	var out []*apiv1.Count
	for _, l := range rlimitNames() {
		var r unix.Rlimit
		if unix.Getrlimit(l.id, &r) != nil {
			continue
		}
		out = append(out, &apiv1.Count{Name: l.name, N: int64(r.Cur)}) // RLIM_INFINITY becomes -1
	}
	return out
}

func terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// errSilent ends a command with its exit code and no further text.
var errSilent = errors.New("already reported")
