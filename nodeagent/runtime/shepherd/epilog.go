//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
)

// completeRun completes a run whose first process has ended: where the site has
// a TaskEpilog that runs before, as the job's user and in what the job holds,
// so that a kill of the job ends it too. How the script ended is written down
// first. An epilog that fails changes nothing of that; it is told in the job's
// output and in the log.
func (s *Shepherd) completeRun(r *run, exit *plan.Exit) {
	if r.TaskEpilog == "" {
		s.concludeRun(r, exit)
		return
	}
	exit.Start, exit.Adopted = r.Start, r.adopted
	s.mu.Lock()
	r.state, r.ended = plan.Ending, exit
	s.mu.Unlock()
	_ = s.saveRecord(record{Ended: exit})
	s.wg.Go(func() {
		if err := s.runTaskEpilog(r); err != nil {
			reason := fmt.Sprintf("TaskEpilog %s: %v", r.TaskEpilog, err)
			s.log.Warn("epilog of a task", aboutRun(r), "err", reason)
			s.tellUser(r, reason)
		}
		s.concludeRun(r, exit)
	})
}

// runTaskEpilog runs the TaskEpilog of a run to its end.
func (s *Shepherd) runTaskEpilog(r *run) error {
	if r.env == nil {
		return errors.New(
			"its environment is not known: the script ended while no shepherd was there",
		)
	}
	thread, err := spawn.NewThread() // ends with this goroutine
	if err != nil {
		return err
	}
	var files *stdio
	err = thread.As(r.credentialOf(s.root), 0o022, func() (err error) {
		spec := &plan.RunSpec{
			WorkDir: r.WorkDir,
			Stdout:  "/dev/null",
			Stderr:  r.Stderr,
			Append:  true,
		}
		if r.Spaced {
			spec.Space = &plan.Space{}
		}
		files, err = openFiles(spec, s.cfg.Prefix)
		return err
	})
	if err != nil {
		return err
	}
	defer files.close()
	if r.Spaced { // this thread ends with the epilog, and need not leave
		if _, err := s.spaces.Enter(r.Key); err != nil {
			return err
		}
		if err := thread.As(r.credentialOf(s.root), 0o022, func() error { return s.enterWorkDir(r.WorkDir, files) }); err != nil {
			return err
		}
	}
	entry, err := r.group.Enter()
	if err != nil {
		return err
	}
	defer entry.Close()
	env := append(
		append(make([]string, 0, len(r.env)+2), r.env...),
		"SLURM_SCRIPT_CONTEXT=epilog_task",
		markName+
			"="+s.runMark(r.Key),
	)
	request := &spawn.Request{
		Paths:    []string{r.TaskEpilog},
		Argv:     []string{r.TaskEpilog},
		Env:      env,
		Stdin:    files.in,
		Stdout:   files.out,
		Stderr:   files.err,
		Cred:     r.credentialOf(s.root),
		CgroupFD: entry.CgroupFD,
		JoinFDs:  entry.Joins,
	}
	s.mu.Lock()
	s.spawning++
	s.mu.Unlock()
	child, err := spawn.Start(request)
	closeFD(child.PIDFD)
	ended := s.endOf(child.PID, err == nil)
	putToken(s.born)
	if err != nil {
		return err
	}
	switch status := (<-ended).status; {
	case status.Signaled():
		return fmt.Errorf("signal %d", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", status.ExitStatus())
	}
	return nil
}

// endOf is where the end of a child that was just started is told.
func (s *Shepherd) endOf(pid int, started bool) <-chan ended {
	out := make(chan ended, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, over := s.early[pid]; over && started {
		out <- e
	} else if started {
		s.after[pid] = out
	}
	s.endSpawning()
	return out
}

// processEnv is the environment a living process was started with, less our mark.
func processEnv(pid int) []string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return nil
	}
	return withoutVariable(strings.Split(strings.TrimRight(string(data), "\x00"), "\x00"), markName)
}
