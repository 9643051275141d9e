//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"golang.org/x/sys/unix"
)

// GuardVerb is the first argument with which this program is the guard of leases;
// the second is the shepherd's folder.
const GuardVerb = "lease-guard"

const (
	guardLock  = "lease-guard.lock"
	guardLog   = "lease-guard.log"
	guardLook  = time.Second
	guardIdle  = 20 * time.Second // without runs until it ends
	guardStart = 5 * time.Second
)

// guardLives tells whether a guard holds the lock of a shepherd's folder.
func guardLives(dir string) bool {
	file, err := os.OpenFile(filepath.Join(dir, guardLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	return errors.Is(unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// ensureGuard starts a guard unless there is one, and waits until it is at its place.
func (s *Shepherd) ensureGuard() error {
	s.guarding.Lock()
	defer s.guarding.Unlock()
	if guardLives(s.dir) {
		return nil
	}
	if err := s.startGuard(); err != nil {
		return fmt.Errorf("start the guard of leases: %w", err)
	}
	for until := time.Now().Add(guardStart); !guardLives(s.dir); {
		if time.Now().After(until) {
			return fmt.Errorf(
				"the guard of leases did not start; see %s",
				filepath.Join(s.dir, guardLog),
			)
		}
		//muster:sleep another process takes a lock, which tells nobody
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

func (s *Shepherd) startGuard() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(
		filepath.Join(s.dir, guardLog),
		os.O_WRONLY|os.O_CREATE|os.O_APPEND,
		0o600,
	)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	// The shepherd reaps it with all its children; only its lock is looked at.
	process, err := os.StartProcess(
		self,
		[]string{self, GuardVerb, s.dir},
		&os.ProcAttr{
			Dir:   "/",
			Env:   os.Environ(),
			Files: []*os.File{null, out, out},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		},
	)
	if err != nil {
		return err
	}
	putToken(s.born)
	return process.Release()
}

// guardMain is the guard: it kills the runs of a shepherd's folder whose leases are
// over, and ends when there have been none for a while.
func guardMain(args []string, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "muster-shepherd: usage: muster-shepherd "+GuardVerb+
			" FOLDER (the shepherd starts it)")
		return exitUsage
	}
	signal.Ignore(unix.SIGHUP, unix.SIGPIPE)
	dir := args[0]
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	lock, err := os.OpenFile(filepath.Join(dir, guardLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		logger.Error("guard of leases", "err", err)
		return exitFailed
	}
	defer func() { _ = lock.Close() }()
	// The kernel must not choose this process when memory is short. Only root may
	// ask for that.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
	boot, err := proc.BootID()
	if err != nil {
		logger.Error("guard of leases", "err", err)
		return exitFailed
	}
	g := &guard{dir: dir, boot: boot, log: logger, said: map[string]bool{}}
	for {
		if !takeGuardLock(lock) {
			return exitRunning
		}
		g.watchRuns()
		// A shepherd writes the file before it looks whether there is a guard. So a run
		// that came in this moment is seen here, or starts another guard.
		_ = unix.Flock(int(lock.Fd()), unix.LOCK_UN)
		if !g.killOverdue() {
			return exitOK
		}
	}
}

// takeGuardLock tells whether this process is the guard of its folder now.
func takeGuardLock(lock *os.File) bool {
	for until := time.Now().Add(guardStart); time.Now().Before(until); {
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			return true
		}
		//muster:sleep who looks whether there is a guard holds the lock for a moment
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

// guard is the guard of one shepherd's folder.
type guard struct {
	dir, boot string
	log       *slog.Logger
	said      map[string]bool // runs whose end was logged
}

// watchRuns looks once a second until there have been no runs for a while, or the folder
// is gone.
func (g *guard) watchRuns() {
	for idle := time.Duration(0); idle < guardIdle; idle += guardLook {
		if g.killOverdue() {
			idle = 0
		}
		if _, err := os.Stat(g.dir); errors.Is(err, os.ErrNotExist) {
			return
		}
		//muster:sleep a lease ends by the clock, and by nothing that could be waited for
		time.Sleep(guardLook)
	}
}

// killOverdue kills what must not live any more. It tells whether there are runs with
// leases.
func (g *guard) killOverdue() bool {
	table, err := readLeases(g.dir, g.boot)
	if err != nil {
		g.log.Error("guard of leases", "err", err)
		return true
	}
	clock := proc.BootClock()
	for i := range table.Runs {
		r := &table.Runs[i]
		if !r.Lease.Over(table.Grant, clock) {
			continue
		}
		killed, err := killLeased(table.Mode, r)
		if err != nil {
			g.log.Error("a run whose lease is over could not be killed", aboutMark(r.Mark), "err", err)
		} else if killed && !g.said[r.Mark] {
			g.said[r.Mark] = true
			g.log.Warn("killed a run whose lease is over and which its shepherd did not end", aboutMark(r.Mark))
		}
	}
	return len(table.Runs) > 0
}

// killLeased kills the processes of a run and tells whether there were any.
func killLeased(mode cgroup.Mode, r *leasedRun) (bool, error) {
	if r.Group != "" {
		group := cgroup.At(mode, r.Group)
		pids, err := group.Procs()
		if errors.Is(err, os.ErrNotExist) || err == nil && len(pids) == 0 {
			return false, nil // it is over
		}
		return true, errors.Join(err, group.Kill())
	}
	all, err := proc.All()
	if err != nil {
		return false, err
	}
	root := r.PID
	if st, err := proc.ReadStat(root); root == 0 || err != nil || st.StartTicks != r.Ticks {
		root = -1 // the number may have passed on
	}
	killed := false
	for _, stat := range proc.Tree(all, root, os.Getpid(), func(pid int) bool {
		return proc.HasEnv(pid, markName+
			"="+r.Mark)
	}) {
		if stat.State != 'Z' && stat.State != 'X' {
			killed = true
			_ = unix.Kill(stat.PID, unix.SIGKILL)
		}
	}
	return killed, nil
}
