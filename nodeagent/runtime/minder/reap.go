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
		var ws unix.WaitStatus
		var ru unix.Rusage
		pid, err := unix.Wait4(-1, &ws, 0, &ru)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no children now
			putToken(m.alone)
			<-m.born
		default:
			m.noteReaped(pid, ws, &ru)
		}
	}
}

func (m *minder) noteReaped(pid int, ws unix.WaitStatus, ru *unix.Rusage) {
	m.mu.Lock()
	t, helper := m.running[pid], m.helpers[pid]
	delete(m.running, pid)
	delete(m.helpers, pid)
	m.mu.Unlock()
	switch {
	case helper != nil:
		helper <- ws
	case t != nil:
		x := plan.TaskExit{Rank: t.Rank, Start: t.start, End: wallClock(), Usage: plan.Usage{
			UserCPU: spec.Span(
				ru.Utime.Nano(),
			), SystemCPU: spec.Span(ru.Stime.Nano()), PeakRSS: ru.Maxrss << 10, MinFaults: ru.Minflt,
			MajFaults: ru.Majflt, ReadB: ru.Inblock * 512, WriteB: ru.Oublock * 512, VolSwitch: ru.Nvcsw, InvSwitch: ru.Nivcsw}}
		if ws.Signaled() {
			x.Signal, x.Core = int32(ws.Signal()), ws.CoreDump()
			if ws.Signal() == unix.SIGKILL && m.outOfMemory() {
				x.Error = plan.OutOfMemory
			}
		} else {
			x.Code = int32(ws.ExitStatus())
		}
		go m.completeTask(t, x)
	}
}

// outOfMemory tells that the kernel has killed a process of the step for memory.
func (m *minder) outOfMemory() bool {
	n, err := cgroup.OOMKills(m.spec.OOMFile)
	return err == nil && n > 0
}

// completeTask completes a task: the programs that follow it run, as its user
// and with its environment. One that fails changes nothing of how it ended.
func (m *minder) completeTask(t *task, x plan.TaskExit) {
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
	m.noteTaskEnd(x)
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
	switch ws := <-ended; {
	case ws.Signaled():
		return fmt.Errorf("signal %d", ws.Signal())
	case ws.ExitStatus() != 0:
		return fmt.Errorf("exit code %d", ws.ExitStatus())
	}
	return nil
}
