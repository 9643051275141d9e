//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/login"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"golang.org/x/sys/unix"
)

// throughLogin has a batch script begin in the login environment of its user. The
// login files run in the process that becomes the script, so that the shepherd
// waits for none of them.
func (s *Shepherd) throughLogin(r *run, req *spawn.Request) error {
	if r.Spool == "" || r.spec.Container != nil {
		return errors.New("a login environment is for batch scripts outside of containers")
	}
	if r.spec.TaskProlog == "" {
		req.Argv = minder.ThroughProlog(minder.TaskVerb, s.cfg.Prefix, "", req.Argv)
	}
	ask := r.spec.Login
	shell := login.Shell{
		User:    ask.User,
		Home:    ask.Home,
		Path:    ask.Shell,
		Plain:   ask.Plain,
		Timeout: time.Duration(ask.Timeout),
		Cache:   ask.Cache,
	}
	argv, err := shell.Args(minder.SelfExe, s.cfg.Prefix, req.Argv)
	if err != nil {
		return fmt.Errorf("login environment: %w", err)
	}
	req.Argv = argv
	req.Paths = []string{minder.SelfExe}
	return nil
}

// niceOf is the nice value of a run, never below the shepherd's own: only root may
// have processes that the others yield to. 0 leaves it as it is.
func (s *Shepherd) niceOf(runSpec *plan.RunSpec) int {
	if runSpec.Nice == 0 && !runSpec.NiceAbove {
		return 0
	}
	// The system call counts from 40 down to 1, because a negative answer is an error.
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return int(runSpec.Nice)
	}
	own := 20 - raw
	if runSpec.NiceAbove {
		own = min(own+1, 19)
	}
	return max(int(runSpec.Nice), own)
}
