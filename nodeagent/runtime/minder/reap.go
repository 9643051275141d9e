//go:build linux

package minder

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/cgroup"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// reapChildren waits for children for as long as the process lives: tasks, and what
// they leave behind.
func (m *minder) reapChildren() {
	for {
		var status unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &status, 0, &ru)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no children now
			putToken(m.alone)
			<-m.born
		default:
			m.noteReaped(pid, status, &ru)
		}
	}
}

func (m *minder) noteReaped(pid int, status unix.WaitStatus, ru *unix.Rusage) {
	m.mu.Lock()
	t, helper := m.running[pid], m.helpers[pid]
	delete(m.running, pid)
	delete(m.helpers, pid)
	m.mu.Unlock()
	switch {
	case helper != nil:
		helper <- status
	case t != nil:
		exit := plan.TaskExit{Rank: t.Rank, Start: t.start, End: wallClock(), Usage: plan.Usage{
			UserCPU: spec.Span(
				ru.Utime.Nano(),
			), SystemCPU: spec.Span(ru.Stime.Nano()), PeakRSS: ru.Maxrss << 10, MinFaults: ru.Minflt,
			MajFaults: ru.Majflt, ReadB: ru.Inblock * 512, WriteB: ru.Oublock * 512, VolSwitch: ru.Nvcsw, InvSwitch: ru.Nivcsw}}
		if status.Signaled() {
			exit.Signal, exit.Core = int32(status.Signal()), status.CoreDump()
			if status.Signal() == unix.SIGKILL && m.outOfMemory() {
				exit.Error = plan.OutOfMemory
			}
		} else {
			exit.Code = int32(status.ExitStatus())
		}
		go m.completeTask(t, exit)
	}
}

// outOfMemory tells that the kernel has killed a process of the step for memory.
func (m *minder) outOfMemory() bool {
	n, err := cgroup.OOMKills(m.spec.OOMFile)
	return err == nil && n > 0
}

// completeTask completes a task: the programs that follow it run, as its user
// and with its environment. One that fails changes nothing of how it ended.
func (m *minder) completeTask(t *task, exit plan.TaskExit) {
	if t.input != nil {
		t.input.dropInput()
	}
	for _, p := range m.spec.Epilogs {
		err := m.runTaskEpilog(t, p)
		if m.spec.Contained && errors.Is(err, fs.ErrNotExist) {
			m.tellUser(t, fmt.Sprintf("TaskEpilog %s is left out: %s", p, NotInImage))
			continue
		}
		if err != nil {
			m.tellUser(t, fmt.Sprintf("TaskEpilog %s: %v", p, err))
		}
	}
	m.noteTaskEnd(exit)
}

// runTaskEpilog runs one program to its end.
func (m *minder) runTaskEpilog(t *task, path string) error {
	null, err := stdfile.Open("", stdfile.How{})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(null) }()
	ended := make(chan unix.WaitStatus, 1)
	m.mu.Lock()
	child, err := spawn.Start(
		&spawn.Request{
			Paths:    []string{path},
			Argv:     []string{path},
			Env:      append(m.taskEnv(t), "SLURM_SCRIPT_CONTEXT=epilog_task"),
			PIDVar:   "",
			Stdin:    null,
			Stdout:   null,
			Stderr:   null,
			CgroupFD: -1,
			CPUs:     t.CPUs,
		},
	)
	if child.PIDFD >= 0 {
		_ = unix.Close(child.PIDFD)
	}
	if err == nil {
		m.helpers[child.PID] = ended
	}
	m.mu.Unlock()
	putToken(m.born)
	if err != nil {
		return err
	}
	switch status := <-ended; {
	case status.Signaled():
		return fmt.Errorf("signal %d", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", status.ExitStatus())
	}
	return nil
}
