//go:build linux

package shepherd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/proc"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// reapChildren waits for children for as long as the process lives: the runs' leaders
// and the orphans that jobs leave behind.
func (s *Shepherd) reapChildren() {
	for {
		var e ended
		pid, err := unix.Wait4(-1, &e.status, 0, &e.usage)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			<-s.born // no children now
		default:
			s.noteReaped(pid, e)
		}
	}
}

func (s *Shepherd) noteReaped(pid int, e ended) {
	s.mu.Lock()
	r := s.pids[pid]
	if after := s.after[pid]; after != nil {
		delete(s.after, pid)
		after <- e
		s.mu.Unlock()
		return
	}
	if r == nil {
		// An orphan, or a leader that was quicker than its registration.
		if s.spawning > 0 {
			s.early[pid] = e
		}
		s.mu.Unlock()
		return
	}
	delete(s.pids, pid)
	s.mu.Unlock()
	s.leaderEnded(r, e)
}

// leaderEnded turns the wait status into the run's exit.
func (s *Shepherd) leaderEnded(r *run, e ended) {
	exit := &plan.Exit{Key: r.Key, Started: true}
	setStatus(exit, e.status)
	exit.Usage = plan.Usage{Key: r.Key,
		UserCPU: spec.Span(e.usage.Utime.Nano()), SystemCPU: spec.Span(e.usage.Stime.Nano()),
		PeakRSS: e.usage.Maxrss << 10, MinFaults: e.usage.Minflt, MajFaults: e.usage.Majflt,
		ReadB: e.usage.Inblock * 512, WriteB: e.usage.Oublock * 512,
		VolSwitch: e.usage.Nvcsw, InvSwitch: e.usage.Nivcsw}
	addSwitches(&exit.Usage)
	s.completeRun(r, exit)
}

func setStatus(exit *plan.Exit, status unix.WaitStatus) {
	if status.Signaled() {
		exit.Signal, exit.Core = int32(status.Signal()), status.CoreDump()
	} else {
		exit.Code = int32(status.ExitStatus())
	}
}

// concludeRun ends the rest of the tree, reads the counters and completes the
// run. Only a run that left processes behind takes a goroutine.
func (s *Shepherd) concludeRun(r *run, x *plan.Exit) {
	if r.Minded {
		s.readResults(r, x)
	}
	if s.endedByLease(r, x) {
		x.Failure = plan.Lost
		x.Code = 0
		x.Signal = 0
		x.Message = "the controller had not answered its node for so long that its lease was over"
	}
	x.Start = r.Start
	x.End = wallClock()
	x.Adopted = r.adopted
	if r.StartBoot != 0 {
		x.Elapsed = spec.Span(proc.BootClock() - r.StartBoot)
	}
	s.mu.Lock()
	r.state = plan.Ending
	s.mu.Unlock()
	if x.Started && s.mayHaveLeftovers(r) {
		s.wg.Go(func() { s.clearTree(r, x) })
		return
	}
	stats, _ := r.group.Stats()
	if err := r.group.Remove(); err != nil {
		s.wg.Go(func() { s.clearTree(r, x) })
		return
	}
	s.recordExit(r, x, stats)
}

// mayHaveLeftovers tells whether the run may have living processes, cheaply: with a
// control group its removal tells, so the answer is no.
func (s *Shepherd) mayHaveLeftovers(r *run) bool {
	if r.group != nil {
		return false
	}
	if r.adopted {
		return true // its orphans are children of init: only a full search finds them
	}
	kids, err := proc.Children()
	if err != nil {
		return true
	}
	// As we are the subreaper, the leader's orphans became our children when
	// it ended; what they forked in turn goes with them.
	mark := markName + "=" + s.runMark(r.Key)
	for _, pid := range kids {
		s.mu.Lock()
		leader := s.pids[pid] != nil
		s.mu.Unlock()
		if leader {
			continue
		}
		if st, err := proc.ReadStat(pid); err == nil &&
			(st.Session == r.PID || proc.HasEnv(pid, mark)) {
			return true
		}
	}
	return false
}

// clearTree kills what is left of the run's tree and waits until it is gone. A
// process that cannot be killed keeps the run in state Ending, for as long as
// it takes: its resources are not free.
func (s *Shepherd) clearTree(r *run, exit *plan.Exit) {
	for s.passesOutput(r) {
		//muster:sleep a process that is nobody's child tells nobody that it ends
		time.Sleep(clientInterval)
	}
	s.mu.Lock()
	if r.killSent == 0 {
		r.killSent = wallClock()
	}
	s.mu.Unlock()
	var stats cgroup.Stats
	wait := time.Millisecond
	for {
		if r.group == nil {
			if left := s.killTree(r); left == 0 {
				break
			}
		} else {
			if err := r.group.WaitEmpty(context.Background(), true); err != nil {
				s.log.Error("processes of an ended run cannot be cleared", aboutRun(r), "err", err)
			}
			stats, _ = r.group.Stats()
			if err := r.group.Remove(); err == nil {
				break
			}
		}
		//muster:sleep a dying process tells nobody when its group empties
		time.Sleep(wait)
		wait = min(2*wait, 200*time.Millisecond)
	}
	s.recordExit(r, exit, stats)
}

// clientInterval is how often the clients of steps are looked for that a script left
// behind.
const clientInterval = 50 * time.Millisecond

// passesOutput tells whether an srun is among what is left of a batch script that was
// told to end. A shell ends at once while the step that its srun started has the rest of
// KillWait: without its srun, what the step writes until then is lost. The kill that
// ends the run's time ends the srun too.
func (s *Shepherd) passesOutput(r *run) bool {
	s.mu.Lock()
	told := r.Key.Step == plan.StepBatch && r.termUntil != 0 && r.killSent == 0
	s.mu.Unlock()
	if !told {
		return false
	}
	pids, err := s.listMembers(r)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pids, func(pid int) bool {
		process, err := proc.ReadStat(pid)
		return err == nil && process.State != 'Z' && process.Name == stepClient
	})
}

// stepClient is the name of a process that passes on the output of a step.
const stepClient = "srun"

// killTree kills the living processes of an untracked run and says how many
// it saw.
func (s *Shepherd) killTree(r *run) int {
	pids, err := s.listMembers(r)
	if err != nil {
		s.log.Error("processes cannot be listed", "err", err)
		return 1
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return len(pids)
}

// recordExit writes the exit down and tells everyone.
func (s *Shepherd) recordExit(r *run, exit *plan.Exit, stats cgroup.Stats) {
	if r.stray {
		return
	}
	s.removePMIx(r)
	usage := &exit.Usage
	usage.Key = r.Key
	// rusage misses what daemons used; the group misses nothing but is coarser.
	if stats.CPU > usage.UserCPU+usage.SystemCPU {
		usage.UserCPU, usage.SystemCPU = stats.User, max(stats.CPU-stats.User, 0)
	}
	addGroup(usage, &stats)
	usage.Group = r.group.ID()
	usage.PeakRSS = max(usage.PeakRSS, r.peakRSS)
	usage.PeakGroup = stats.Peak
	usage.OOMKills = stats.OOMKills
	s.mu.Lock()
	usage.PeakVM, usage.KHz = r.peakVM, r.khz
	s.mu.Unlock()
	if stats.OOMKills > 0 {
		exit.OOM = true
		text := fmt.Sprintf(
			"Detected %d oom_kill event(s): the job used more memory than it was allocated",
			stats.OOMKills,
		)
		exit.Message = text
		s.tellUser(r, text)
	}
	err := s.saveRecord(record{Exit: exit})
	s.mu.Lock()
	r.state = plan.Exited
	r.exit = exit
	r.spec = nil
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	closeFD(r.pidfd)
	r.pidfd, r.group = -1, nil
	if err != nil {
		s.unsaved = append(s.unsaved, r)
	}
	s.setSpoolAside(r)
	s.publishEvent(plan.Event{Exited: exit})
	s.mu.Unlock()
}

// forgetAcked forgets runs whose exits the controller has.
func (s *Shepherd) forgetAcked(keys []plan.RunKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var done []tombstone
	for _, key := range keys {
		if r := s.runs[key]; r != nil && r.state == plan.Exited {
			delete(s.runs, key)
			grave := tombstone{key: key, launch: r.Launch}
			s.ended.addTombstone(grave)
			done = append(done, grave)
		}
	}
	if len(done) > 0 {
		// A lost acknowledgement only repeats the exit.
		_ = s.saveRecord(ackedRecord(done))
	}
	s.checkGone()
}

// checkGone ends a drained shepherd that has nothing left. mu is held.
func (s *Shepherd) checkGone() {
	if s.draining && len(s.runs) == 0 && !s.isGone {
		s.isGone = true
		close(s.gone)
	}
}
