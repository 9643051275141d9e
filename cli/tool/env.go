package tool

import (
	"context"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
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
	Nice    func() int // the nice value of this process; nil = 0
	// Number makes the number by which the controllers know one submission, should
	// its answer be lost and the way there send it again; nil = it has none.
	Number func() uint64

	// API is set where a command runs in the controller to answer a program over
	// REST: its documents are written on one line, and say who asked what.
	API *API

	// Outward: -M may lead to other clusters, by the sockets that they have on this host. It is
	// unset where a command runs in the controller, at a moment of the past or as a supposition.
	Outward bool

	// Relay is set where a command runs in the controller for a caller that
	// typed it on another machine or in another process; nil = it was typed here.
	Relay Relay
}

// API is a request over REST that a command answers.
type API struct {
	Plugin  string // of Slurm that answers such requests: slurmctld, slurmdbd
	Path    string // that was asked for
	User    string // who asks
	Cluster string
	// Changed is when the cluster changed last, in nanoseconds; 0 = not known.
	Changed int64
	// Warnings are what the command has said on standard error so far.
	Warnings func() []string
}

// LastUpdate is what a document says of its own age: over REST when the cluster changed last, so
// that an answer to the same question stays the same until then, and else the present.
func (c *Call) LastUpdate(now int64) int64 {
	if c.Env.API == nil || c.Env.API.Changed == 0 {
		return now
	}
	return c.Env.API.Changed
}

// Cluster is the cluster's name where it is known without asking.
func (e *Env) Cluster() string {
	if e.API == nil {
		return ""
	}
	return e.API.Cluster
}

// Relay stands for the caller of a command that was typed elsewhere.
type Relay interface {
	// Script gives the script that was sent along, with the path under which
	// the caller found it.
	Script(arg string) (path string, data []byte, err error)
	// StaysHome tells that the command must run where it was typed, because
	// these options need the caller's own files or clock zone.
	StaysHome(opts *opt.Values) bool
	// SendHome says that the caller must run the command itself.
	SendHome()
}

// OS is the real world.
func OS(version string) *Env {
	env := &Env{
		Args: os.Args, Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		UID: uint32(os.Getuid()), Version: version, Loc: time.Local,
		Now: time.Now, Pause: Pause, Beside: Beside, UserName: UserName, UserID: LookupUID, FullName: FullName, Rlimits: rlimits, Umask: umask, Nice: niceValue, Number: requestNumber,
		Exec: syscall.Exec, CPUs: ownCPUs,
		Terminal: terminal, Outward: true,
	}
	env.Dir = workDir()
	if host, err := os.Hostname(); err == nil {
		env.Host = host
	}
	env.Dial, env.DialPast = env.DialController, env.DialAccounting
	return env
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

func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func UserName(uid uint32) string {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return ""
	}
	return u.Username
}

func FullName(login string) string {
	u, err := user.Lookup(login)
	if err != nil {
		return ""
	}
	return u.Name
}

// HomeOf is the home of a user as this host knows it; "" when it does not.
func HomeOf(login string) string {
	u, err := user.Lookup(login)
	if err != nil {
		return ""
	}
	return u.HomeDir
}

func umask() uint32 {
	old := syscall.Umask(0o22)
	syscall.Umask(old)
	return uint32(old)
}

// niceValue is the nice value of this process. The system call counts from 40 down
// to 1, because a negative answer is an error.
func niceValue() int {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return 20 - raw
}

// rlimits are the soft limits of this process that jobs can inherit.
func rlimits() []*apiv1.Count {
	var counts []*apiv1.Count
	for _, limit := range spec.ResourceLimits() {
		var r unix.Rlimit
		if unix.Getrlimit(int(limit.Number), &r) != nil {
			continue
		}
		if limit.Number == unix.RLIMIT_NOFILE {
			r.Cur = startedOpenFiles(r)
		}
		// RLIM_INFINITY becomes -1
		counts = append(counts, &apiv1.Count{Name: limit.Name, N: int64(r.Cur)})
	}
	return counts
}

// startedOpenFiles is the soft limit of open files with which this process was started. The Go
// runtime raises its own to the hard limit now, and tells nobody what it was. A program that
// the standard library starts gets the original back, so one is asked.
func startedOpenFiles(now unix.Rlimit) uint64 {
	out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn").Output()
	if err != nil {
		return min(now.Cur, usualOpenFiles)
	}
	text := strings.TrimSpace(string(out))
	if text == "unlimited" {
		return unix.RLIM_INFINITY
	}
	soft, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return min(now.Cur, usualOpenFiles)
	}
	return soft
}

// usualOpenFiles is the soft limit of open files that Linux starts its first process with.
const usualOpenFiles = 1024

func terminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// ownCPUs are those that this process may run on.
func ownCPUs() spec.Bitset {
	var set unix.CPUSet
	var out spec.Bitset
	if unix.SchedGetaffinity(0, &set) != nil {
		return nil // nothing is near: all GPUs are
	}
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			out = out.Set(i)
		}
	}
	return out
}

// UnknownUser is the first of some users, by name or number, whom this host does not know.
func (e *Env) UnknownUser(users []string) string {
	for _, user := range users {
		if _, err := strconv.ParseUint(user, 10, 32); err != nil && e.UserID(user) == "" {
			return user
		}
	}
	return ""
}

// LookupUID finds the number of a user of this host.
func LookupUID(name string) string {
	if name == "root" {
		return "0"
	}
	u, err := user.Lookup(name)
	if err != nil {
		return ""
	}
	return u.Uid
}
