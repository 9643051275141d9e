//go:build linux

package shepherd

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// targetRuns gives the runs that a scope reaches, the named one first. Only
// those that can still receive a signal are given.
func (s *Shepherd) targetRuns(key plan.RunKey, scope plan.Scope) ([]*run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	named := s.runs[key]
	var runs []*run
	if named != nil && scope != plan.ScopeSteps {
		runs = append(runs, named)
	}
	found := named != nil
	if scope == plan.ScopeSteps || scope == plan.ScopeJob {
		for _, r := range s.runs {
			if r == named || !r.Key.SameAttempt(key) {
				continue
			}
			found = true
			if scope == plan.ScopeJob || r.Key.Step != plan.StepBatch {
				runs = append(runs, r)
			}
		}
	}
	if !found {
		return nil, &protocol.Error{Code: protocol.CodeNotFound, Text: "no run " + key.String() +
			" on this node"}
	}
	return slices.DeleteFunc(runs, func(r *run) bool { return r.state == plan.Exited }), nil
}

// sendSignal sends one signal.
func (s *Shepherd) sendSignal(signal protocol.Signal) error {
	if signal.Notice != "" && signal.Signal == 0 {
		return s.noticeUser(signal)
	}
	if signal.Signal < 1 || signal.Signal > 64 || signal.Scope < plan.ScopeRun ||
		signal.Scope > plan.ScopeJob {
		return &protocol.Error{
			Code: protocol.CodeBadRequest,
			Text: fmt.Sprintf("signal %d to scope %d is not possible", signal.Signal, signal.Scope),
		}
	}
	list, err := s.targetRuns(signal.Key, signal.Scope)
	if err != nil {
		return err
	}
	scope := plan.ScopeRun
	if signal.Scope == plan.ScopeLeader {
		scope = plan.ScopeLeader
	}
	for _, r := range list {
		if r.Key.Step == plan.StepExtern && signal.Key != r.Key &&
			!reachesExtern(unix.Signal(signal.Signal)) {
			continue
		}
		s.mu.Lock()
		starting := r.state == plan.Starting
		if starting {
			r.pending = append(r.pending, pendingSig{unix.Signal(signal.Signal), scope})
		}
		s.mu.Unlock()
		if !starting {
			s.deliverSignal(r, unix.Signal(signal.Signal), scope)
		}
	}
	return nil
}

// reachesExtern tells whether a signal to a job is for the processes of its extern
// step too. Those were not started by the job: they stand still with it and end with
// it, and a signal that the job's program has a handler for would kill them.
func reachesExtern(signal unix.Signal) bool {
	switch signal {
	case unix.SIGSTOP, unix.SIGTSTP, unix.SIGCONT, unix.SIGKILL:
		return true
	}
	return false
}

// noticeUser writes a line into the error output of one run.
func (s *Shepherd) noticeUser(signal protocol.Signal) error {
	list, err := s.targetRuns(signal.Key, plan.ScopeRun)
	if err != nil {
		return err
	}
	for _, r := range list {
		s.tellUser(r, signal.Notice)
	}
	return nil
}

// deliverSignal sends a signal to a run that has a process. It does not end a
// placeholder: strikeRun and killRun do.
func (s *Shepherd) deliverSignal(r *run, signal unix.Signal, scope plan.Scope) {
	if r.Placeholder {
		s.signalGuests(r, signal)
		return
	}
	if scope == plan.ScopeLeader {
		s.signalLeader(r, signal)
		return
	}
	if signal == unix.SIGKILL {
		s.killRun(r)
		return
	}
	sent := map[int]bool{}
	for again := true; again; { // a process may make others before it is stopped itself
		pids, err := s.listMembers(r)
		if err != nil {
			s.log.Warn("signal not delivered", aboutRun(r), "err", err)
		}
		again = false
		for _, pid := range pids {
			if !sent[pid] {
				sent[pid], again = true, signal == unix.SIGSTOP
				_ = unix.Kill(pid, signal)
			}
		}
	}
}

// signalLeader sends a signal to the first process of a run.
func (s *Shepherd) signalLeader(r *run, signal unix.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The descriptor cannot mean another process, unlike the number.
	if r.pidfd >= 0 {
		_ = unix.PidfdSendSignal(r.pidfd, signal, nil, 0)
	} else if s.pids[r.PID] == r {
		_ = unix.Kill(r.PID, signal)
	}
}

// killRun ends every process of a run at once.
func (s *Shepherd) killRun(r *run) {
	s.mu.Lock()
	if r.killSent == 0 {
		r.killSent = wallClock()
	}
	group := r.group
	over := r.state == plan.Exited
	s.mu.Unlock()
	if over {
		return
	}
	if group == nil {
		s.killTree(r)
		return
	}
	if err := group.Kill(); err != nil {
		s.log.Warn("kill", aboutRun(r), "err", err)
	}
}

// terminateRuns sends SIGCONT and the signal now, and SIGKILL after the grace.
func (s *Shepherd) terminateRuns(terminate plan.Terminate) error {
	if terminate.Scope < plan.ScopeRun || terminate.Scope > plan.ScopeJob || terminate.Grace < 0 {
		return &protocol.Error{Code: protocol.CodeBadRequest, Text: "terminate: bad scope or grace"}
	}
	list, err := s.targetRuns(terminate.Key, terminate.Scope)
	if err != nil {
		return err
	}
	deadline := wallClock().Add(terminate.Grace)
	var ready []*run
	for _, r := range list {
		terminate := terminate
		s.mu.Lock()
		if r.state == plan.Starting {
			r.killed = r.killed || terminate.Grace == 0
			r.term = &terminate // carried out when it has started, if it still does
		} else if terminate.Grace == 0 || r.termUntil == 0 {
			// A run has its warning once: the end of a job reaches its steps with the
			// job's own end, and again with the end of each step.
			ready = append(ready, r)
		}
		s.armKill(r, terminate, deadline)
		s.mu.Unlock()
	}
	for _, r := range ready {
		s.strikeRun(r, terminate)
		terminate.Notice = "" // one line for each request
	}
	return nil
}

// strikeRun carries a termination out on one run that has a process.
func (s *Shepherd) strikeRun(r *run, terminate plan.Terminate) {
	if terminate.Notice != "" {
		s.tellUser(r, terminate.Notice)
	}
	if terminate.Grace == 0 {
		s.killRun(r)
		return
	}
	scope, signal := plan.ScopeRun, unix.SIGTERM
	if terminate.Scope == plan.ScopeLeader {
		scope = plan.ScopeLeader
	}
	if terminate.Signal != 0 {
		signal = unix.Signal(terminate.Signal)
	}
	s.deliverSignal(r, unix.SIGCONT, plan.ScopeRun)
	s.deliverSignal(r, signal, scope)
	if r.Placeholder {
		s.signalLeader(r, signal)
	}
}

// armKill starts the timer of the final kill; an earlier deadline stays. mu is held.
func (s *Shepherd) armKill(r *run, terminate plan.Terminate, deadline spec.Instant) {
	if terminate.Grace == 0 || r.termUntil != 0 && r.termUntil <= deadline {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	r.termUntil = deadline
	r.timer = time.AfterFunc(time.Duration(terminate.Grace), func() { s.killRun(r) })
}

// notice is one line for a run's standard error.
type notice struct {
	path string
	cred *spawn.Cred
	line string
	done chan struct{}
}

// noticeWait bounds how long a signal waits for the line that explains it: a
// file server that hangs must not keep a job alive.
const noticeWait = time.Second

// tellUser writes a line into the run's standard error, as its user.
func (s *Shepherd) tellUser(r *run, text string) {
	if r.Minded {
		s.tellMinder(r, text)
		return
	}
	if r.Stderr == "" || r.Stderr == "/dev/null" {
		return
	}
	n := notice{
		path: r.Stderr,
		cred: r.credentialOf(s.root),
		line: s.cfg.Prefix + text + "\n",
		done: make(chan struct{}),
	}
	timer := time.NewTimer(noticeWait)
	defer timer.Stop()
	select {
	case s.notes <- n:
	case <-timer.C:
		return
	}
	select {
	case <-n.done:
	case <-timer.C:
	}
}

// writeNotices is the one goroutine that writes into the files of jobs.
func (s *Shepherd) writeNotices(ctx context.Context) {
	thread, err := spawn.NewThread()
	if err != nil {
		s.log.Error("job output will miss the shepherd's lines", "err", err)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.gone:
			return
		case n := <-s.notes:
			if err == nil {
				if werr := thread.As(n.cred, 0o022, func() error { return appendLine(n.path, n.line) }); werr != nil {
					s.log.Warn(
						"line for job output not written",
						"file",
						filepath.Base(n.path),
						"err",
						werr,
					)
				}
			}
			close(n.done)
		}
	}
}

func appendLine(path, line string) error {
	fd, err := stdfile.Retry(func() (int, error) {
		return unix.Open(
			path,
			unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK,
			0,
		)
	})
	if err != nil {
		return err
	}
	_, err = stdfile.Retry(func() (int, error) { return unix.Write(fd, []byte(line)) })
	_ = unix.Close(fd)
	return err
}
