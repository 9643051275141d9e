//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/journal"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// restoreJournal reads our own journal and takes its runs up again.
func (s *Shepherd) restoreJournal() error {
	h := newHistory()
	jr, torn, err := journal.Open(filepath.Join(s.dir, journalName), h.applyRecord)
	if err != nil {
		return err
	}
	s.jr = jr
	if torn > 0 {
		s.log.Warn("the journal's last record was torn and is dropped", "bytes", torn)
	}
	buffer, err := (&record{Boot: s.hello.BootID}).encodeRecord()
	if err != nil {
		return err
	}
	if _, err := jr.AppendReserved(buffer); err != nil {
		return err
	}
	for _, g := range h.acked {
		s.ended.addTombstone(g)
	}
	s.resumeRuns(h)
	s.clearStrays()
	s.tidySpool()
	return nil
}

// resumeRuns makes runs of a history's entries and finds their processes.
func (s *Shepherd) resumeRuns(h *history) {
	var marks map[string]int
	for _, key := range h.order {
		p := h.runs[key]
		if p == nil {
			continue
		}
		if p.started == nil && p.begun && marks == nil {
			marks = leadersByMark()
		}
		r := s.reviveRun(p, marks)
		s.mu.Lock()
		s.runs[key] = r
		if r.exit != nil {
			s.setSpoolAside(r)
		} else if r.Spool != "" {
			s.spools[r.Spool] = true
		}
		s.mu.Unlock()
		switch {
		case r.exit != nil:
		case p.boot != s.hello.BootID:
			s.loseRun(r, "the node restarted while it ran")
		case p.ended != nil:
			s.concludeRun(r, p.ended)
		case !p.begun:
			s.concludeRun(
				r,
				&plan.Exit{
					Key:     key,
					Code:    1,
					Failure: plan.NotBegun,
					Message: "the shepherd died before it began",
				},
			)
		default:
			s.adoptRun(r)
		}
	}
}

// reviveRun makes a run of what the journal tells; nobody else knows it yet.
func (s *Shepherd) reviveRun(p *past, marks map[string]int) *run {
	r := &run{launchRecord: p.launch, pidfd: -1, adopted: true, begun: p.begun, state: plan.Running}
	if p.started != nil {
		r.startedRecord = *p.started
	}
	switch {
	case p.exit != nil:
		r.state, r.exit = plan.Exited, p.exit
	case p.boot == s.hello.BootID:
		r.group = s.host.Open(r.Key.String())
		if p.started == nil && p.begun {
			s.findUnregistered(r, marks[s.runMark(r.Key)])
		}
	}
	return r
}

// leadersByMark finds the first processes of runs whose start was not
// recorded: they lead their session and carry our mark.
func leadersByMark() map[string]int {
	out := map[string]int{}
	all, err := proc.All()
	if err != nil {
		return out
	}
	for _, stat := range all {
		if stat.PID == stat.Session {
			if v := proc.Env(stat.PID, markName); v != "" {
				out[v] = stat.PID
			}
		}
	}
	return out
}

// findUnregistered fills in what the missing record of the start would say.
func (s *Shepherd) findUnregistered(r *run, pid int) {
	if pid == 0 {
		return
	}
	stat, err := proc.ReadStat(pid)
	if err != nil {
		return
	}
	r.startedRecord = startedRecord{RunKey: r.Key, PID: pid, Ticks: stat.StartTicks}
	r.StartBoot = int64(stat.StartTicks) * int64(tickLength)
	r.Start = wallClock().Add(-spec.Span(proc.BootClock() - r.StartBoot))
	_ = s.saveRecord(record{Started: &r.startedRecord})
}

// adoptRun watches a run's first process, if it is still that process; else the
// run's end was not seen.
func (s *Shepherd) adoptRun(r *run) {
	stat, err := proc.ReadStat(r.PID)
	if r.PID == 0 || err != nil || stat.StartTicks != r.Ticks {
		s.loseRun(r, "it ended while no shepherd was there to see it")
		return
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if err == nil {
		// The number may have passed on between the look and the open.
		if again, e := proc.ReadStat(r.PID); e != nil || again.StartTicks != r.Ticks {
			closeFD(fd)
			s.loseRun(r, "it ended while no shepherd was there to see it")
			return
		}
		err = s.watch.addProcess(fd, r)
	}
	if err != nil {
		s.log.Error("run cannot be watched", aboutRun(r), "pid", r.PID, "err", err)
		closeFD(fd)
		s.loseRun(r, "its process cannot be watched: "+err.Error())
		return
	}
	s.mu.Lock()
	r.pidfd = fd
	if r.TaskEpilog != "" {
		r.env = processEnv(r.PID)
	}
	s.mu.Unlock()
	s.log.Info("run adopted", aboutRun(r), "pid", r.PID)
}

// loseRun ends a run whose end nobody saw; what is left of it is killed first.
func (s *Shepherd) loseRun(r *run, reason string) {
	s.concludeRun(r, &plan.Exit{Key: r.Key, Failure: plan.Lost, Started: true, Message: reason})
}

// clearStrays ends groups that no run owns: their launch was refused after
// all, or their end was recorded but not yet carried out.
func (s *Shepherd) clearStrays() {
	if s.othersExist() {
		return
	}
	names, err := s.host.Names()
	if err != nil {
		s.log.Warn("old control groups", "err", err)
		return
	}
	for _, name := range names {
		key, err := plan.ParseRunKey(name)
		if err != nil {
			continue
		}
		s.mu.Lock()
		r := s.runs[key]
		s.mu.Unlock()
		if r != nil && r.state != plan.Exited {
			continue
		}
		group := s.host.Open(name)
		s.wg.Go(func() {
			s.clearTree(
				&run{
					launchRecord: launchRecord{Key: key},
					pidfd:        -1,
					group:        group,
					state:        plan.Ending,
					stray:        true,
				},
				&plan.Exit{Key: key},
			)
		})
	}
}

// watcher waits for the ends of processes that are not our children.
type watcher struct {
	s      *Shepherd
	epoll  int
	wakeup int
}

func newWatcher(shepherd *Shepherd) (*watcher, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	ev, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(ep)
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	w := &watcher{s: shepherd, epoll: ep, wakeup: ev}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, ev, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(ev)}); err != nil {
		return nil, fmt.Errorf("watch processes: %w", err)
	}
	return w, nil
}

// addProcess watches the process behind the descriptor; the event carries its pid.
func (w *watcher) addProcess(fd int, r *run) error {
	w.s.mu.Lock()
	w.s.pids[r.PID] = r
	w.s.mu.Unlock()
	return unix.EpollCtl(
		w.epoll,
		unix.EPOLL_CTL_ADD,
		fd,
		&unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd), Pad: int32(r.PID)},
	)
}

func (w *watcher) stopWatching() { _, _ = unix.Write(w.wakeup, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (w *watcher) run() {
	events := make([]unix.EpollEvent, 64)
	for {
		n, err := unix.EpollWait(w.epoll, events, -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			w.s.log.Error("watch processes", "err", err)
			return
		}
		for i := range max(n, 0) {
			if events[i].Fd == int32(w.wakeup) {
				return
			}
			_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, int(events[i].Fd), nil)
			w.s.mu.Lock()
			r := w.s.pids[int(events[i].Pad)]
			delete(w.s.pids, int(events[i].Pad))
			w.s.mu.Unlock()
			if r != nil {
				w.s.wg.Go(func() { w.s.adoptedEnded(r) })
			}
		}
	}
}

// adoptedEnded finds out how a process ended that is not our child.
func (s *Shepherd) adoptedEnded(r *run) {
	if ws, ok := exitStatus(r.pidfd); ok {
		exit := &plan.Exit{Key: r.Key, Started: true}
		setStatus(exit, ws)
		s.completeRun(r, exit)
		return
	}
	s.loseRun(
		r,
		"it ended as the child of a shepherd that had died, and this kernel (before Linux 6.15) gives its status to no other process",
	)
}

// reapWait bounds the wait for init to reap a process: only then does the
// kernel give its status away.
const reapWait = 5 * time.Second

// exitStatus asks the kernel for the wait status behind a pidfd.
func exitStatus(fd int) (unix.WaitStatus, bool) {
	deadline := time.Now().Add(reapWait)
	for time.Now().Before(deadline) {
		info := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
		err := unix.IoctlPidfdInfo(fd, &info)
		if err == nil && info.Mask&unix.PIDFD_INFO_EXIT != 0 {
			return unix.WaitStatus(info.Exit_code), true
		}
		if slices.Contains([]error{unix.ENOTTY, unix.EINVAL, unix.ENOSYS}, err) {
			return 0, false
		}
		// POLLHUP comes when it has been reaped.
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, 100)
	}
	return 0, false
}
