//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/nodeagent/runtime/space"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"golang.org/x/sys/unix"
)

// openSpaces finds the private folders of jobs, and whether any can be made.
func (s *Shepherd) openSpaces() error {
	var err error
	s.spaces, err = space.New(
		s.cfg.Dir,
		s.id,
		func(path string, env []string) error { return s.runScript(path, env, initWait) },
	)
	if err != nil {
		return err
	}
	s.hello.Enforces.Spaces = s.root && space.Possible() == nil
	return nil
}

// makeSpace makes the private folders of a run's attempt if it is the first.
func (s *Shepherd) makeSpace(r *run) error {
	sp := r.spec.Space
	if !s.hello.Enforces.Spaces {
		return fmt.Errorf(
			"this node cannot give jobs their own %v: its agent is not root, or may not make mount namespaces",
			sp.Dirs,
		)
	}
	for _, needed := range []string{s.cfg.Dir, s.cfg.Spool} {
		if dir := coveredBy(needed, sp.Dirs); dir != "" {
			return fmt.Errorf(
				"the agent's folder %s lies in %s, which is private to each job",
				needed,
				dir,
			)
		}
	}
	return s.spaces.Make(r.Key, sp)
}

// coveredBy gives the folder of a list in which a path lies.
func coveredBy(path string, dirs []string) string {
	for _, d := range dirs {
		if rel, err := filepath.Rel(d, path); err == nil && filepath.IsLocal(rel) {
			return d
		}
	}
	return ""
}

// placeError is why a run cannot be started where its processes are to be.
type placeError struct {
	failure plan.Failure
	err     error
}

func (e *placeError) Error() string { return e.err.Error() }

func (e *placeError) Unwrap() error { return e.err }

// inSpace calls a function on the calling thread where the run's processes are
// to be: in the private folders of its attempt, in its container, and in its work
// directory. The run's files are open already: those of the node, so that output
// outlives the job. beside is called before the container is entered: it starts
// what is of the run and of the node's files. With tainted the thread must end,
// whatever became of the calls.
func (s *Shepherd) inSpace(
	thread *spawn.Thread,
	r *run,
	files *stdio,
	beside, fn func() error,
) (err, tainted error) {
	box := r.spec.Container
	if r.Placeholder || !r.Spaced && box == nil {
		if err := beside(); err != nil {
			return err, nil
		}
		return fn(), nil
	}
	asUser := func(fn func() error) error { return thread.As(r.credentialOf(s.root), int(r.spec.Umask&0o777), fn) }
	leave := func() error { return nil }
	dir := r.spec.WorkDir
	if r.Spaced {
		leave, err = s.spaces.Enter(r.Key)
		if err != nil {
			return &placeError{plan.FailSpace, err}, nil
		}
	}
	if err := beside(); err != nil {
		return err, taint(leave())
	}
	if box != nil {
		shows := []space.Show{{Path: s.cfg.Spool}}
		for _, program := range box.Programs {
			shows = append(shows, space.Show{Path: program, ReadOnly: true, Optional: true})
		}
		out, err := s.spaces.EnterContainer(box, shows, asUser)
		if out != nil {
			leave = out
		}
		if err != nil {
			return &placeError{plan.FailContainer, err}, taint(leave())
		}
		dir = box.WorkDir
	}
	if !r.Minded { // a minder goes to its tasks' folder itself
		err = asUser(func() error { return s.enterWorkDir(dir, files) })
	} else {
		unix.Umask(0o077)
	}
	if err == nil {
		err = fn()
	}
	tainted = taint(leave())
	if errors.Is(err, spawn.ErrTainted) {
		tainted = errors.Join(tainted, err)
	}
	return err, tainted
}

// taint is the error of a thread that must end.
func taint(err error) error {
	if err != nil {
		return errors.Join(spawn.ErrTainted, err)
	}
	return nil
}

// enterWorkDir goes to a run's work directory as it is in its space.
func (s *Shepherd) enterWorkDir(dir string, files *stdio) error {
	_, err := stdfile.Retry(func() (int, error) { return 0, unix.Chdir(dir) })
	if err == nil {
		return nil
	}
	files.warnUser(
		fmt.Sprintf(
			"%scannot enter work directory %s: %v; running in /tmp",
			s.cfg.Prefix,
			dir,
			stdfile.Describe(err),
		),
	)
	if err := unix.Chdir("/tmp"); err != nil {
		return fmt.Errorf("enter /tmp: %w", err)
	}
	return nil
}

// initWait bounds InitScript, as Slurm bounds programs around jobs.
const initWait = 60 * time.Second

// runScript runs a program of the site as the shepherd's user to its end. What
// it prints is in the shepherd's log.
func (s *Shepherd) runScript(path string, env []string, limit time.Duration) error {
	null, err := stdfile.Open("/dev/null", stdfile.How{Input: true})
	if err != nil {
		return err
	}
	defer closeFD(null)
	out, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	defer closeFD(out)
	s.mu.Lock()
	s.spawning++
	s.mu.Unlock()
	child, err := spawn.Start(
		&spawn.Request{
			Paths:    []string{path},
			Argv:     []string{path},
			Env:      env,
			Stdin:    null,
			Stdout:   out,
			Stderr:   out,
			CgroupFD: -1,
		},
	)
	over := s.endOf(child.PID, err == nil)
	putToken(s.born)
	defer closeFD(child.PIDFD)
	if err != nil {
		return err
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	var e ended
	select {
	case e = <-over:
	case <-timer.C:
		_ = unix.Kill(-child.PID, unix.SIGKILL) // it leads its session
		<-over
		return fmt.Errorf("it was ended after %v", limit)
	}
	switch {
	case e.status.Signaled():
		return fmt.Errorf("signal %d", e.status.Signal())
	case e.status.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", e.status.ExitStatus())
	}
	return nil
}

// listSpaces gives the attempts that have private folders. base is where spaces
// are made now: what is there and was never written down is found too.
func (s *Shepherd) listSpaces(base string) ([]plan.RunKey, error) {
	if base != "" {
		if err := s.spaces.Adopt(base); err != nil {
			return nil, err
		}
	}
	return s.spaces.List()
}

// vacate removes the private folders of an attempt that is over. It is refused
// while a run of the attempt lives here; the agent, who asks, has heard the ends
// of those that the shepherds of other releases had.
func (s *Shepherd) vacate(key plan.RunKey) error {
	key = space.Attempt(key)
	s.mu.Lock()
	for _, r := range s.runs {
		if r.state != plan.Exited && space.Attempt(r.Key) == key {
			s.mu.Unlock()
			return &protocol.Error{
				Code: protocol.CodeBadRequest,
				Text: fmt.Sprintf("run %s is in its private folders", r.Key),
			}
		}
	}
	s.vacating[key] = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.vacating, key)
		s.mu.Unlock()
	}()
	return s.spaces.Remove(key)
}
