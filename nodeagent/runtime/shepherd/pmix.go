//go:build linux

package shepherd

import (
	"fmt"
	"os"
	"strconv"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"golang.org/x/sys/unix"
)

// servePMIx prepares muster-pmix for a step: serve starts it, as the run's user
// and in the run's control group, and the request of the minder inherits the
// connection to it. It sees the files of the node also where the tasks are in a
// container, whose image has no PMIx library. It ends when the minder does.
func (s *Shepherd) servePMIx(
	r *run,
	files *stdio,
	request *spawn.Request,
) (serve func() error, closeEnds func()) {
	pmIx := r.spec.Tasks.PMIx
	pair := [2]int{-1, -1}
	closeEnds = func() {
		closeFD(pair[0])
		closeFD(pair[1])
	}
	serve = func() error {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		pair = ends
		null, err := stdfile.Open("/dev/null", stdfile.How{})
		if err != nil {
			return err
		}
		defer closeFD(null)
		env := append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/"}, pmIx.Env...)
		child, err := spawn.Start(&spawn.Request{
			Paths:      []string{pmIx.Program},
			Argv:       []string{"muster-pmix", "serve"},
			Env:        append(env, markName+"="+s.runMark(r.Key)),
			Stdin:      pair[1],
			Stdout:     null,
			Stderr:     files.err,
			CgroupFD:   request.CgroupFD,
			JoinFDs:    request.JoinFDs,
			Cred:       request.Cred,
			Nice:       request.Nice,
			CPUs:       request.CPUs,
			NoNewPrivs: true,
		})
		closeFD(child.PIDFD)
		putToken(s.born)
		if err != nil {
			return &placeError{plan.FailPMIx, fmt.Errorf("%s: %w", pmIx.Program, err)}
		}
		request.Keep = []int{pair[0]}
		request.Argv = append(request.Argv, strconv.Itoa(pair[0]))
		return nil
	}
	return serve, closeEnds
}

// removePMIx removes the files of a run's muster-pmix, which does that itself
// unless it was killed. It acts with the user's rights, since the folder is the
// user's to change.
func (s *Shepherd) removePMIx(r *run) {
	if _, err := os.Lstat(r.PMIxFolder); r.PMIxFolder == "" || err != nil {
		return
	}
	s.wg.Go(func() {
		thread, err := spawn.NewThread() // ends with this goroutine
		if err == nil {
			err = thread.As(r.credentialOf(s.root), 0o077, func() error { return os.RemoveAll(r.PMIxFolder) })
		}
		if err != nil {
			s.log.Warn("the folder of muster-pmix stays", "folder", r.PMIxFolder, "err", err)
		}
	})
}
