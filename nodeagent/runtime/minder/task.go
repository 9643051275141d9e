//go:build linux

package minder

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/receive"
	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// task is one task. What a task's process and its pumps share is set before
// either begins.
type task struct {
	*plan.Task
	index  int
	argv   []string
	start  spec.Instant
	pid    int
	outs   [2]*os.File // its standard and error output, as the minder reads them; nil: into a file
	input  *input      // nil: it reads no input of a client
	term   *os.File    // the terminal's other side, which is outs[0] too
	stderr int         // file of its error output, for the minder's own lines; -1 = the client
}

// closeOutput gives up what can still be read of the task.
func (t *task) closeOutput() {
	for _, f := range t.outs {
		if f != nil {
			_ = f.Close()
		}
	}
}

// startTasks begins all tasks.
func (m *minder) startTasks() {
	files := shared{}
	var begun plan.TaskPIDs
	unix.Umask(int(m.spec.Umask & 0o777))
	if err := unix.Chdir(m.spec.WorkDir); err != nil {
		m.tellUser(
			nil,
			fmt.Sprintf(
				"couldn't chdir to `%s': %v: going to /tmp instead",
				m.spec.WorkDir,
				stdfile.Describe(err),
			),
		)
		if err := unix.Chdir("/tmp"); err != nil {
			m.tellUser(nil, fmt.Sprintf("couldn't chdir to /tmp: %v", stdfile.Describe(err)))
		}
	}
	for i := range m.spec.List {
		t := &task{Task: &m.spec.List[i], index: i, argv: m.spec.Argv, stderr: -1}
		if len(t.Argv) > 0 {
			t.argv = t.Argv
		}
		m.mu.Lock()
		m.tasks = append(m.tasks, t)
		m.mu.Unlock()
		if err := m.beginTask(t, files); err != nil {
			m.failTask(t, err)
			continue
		}
		begun.Ranks, begun.PIDs = append(begun.Ranks, t.Rank), append(begun.PIDs, int32(t.pid))
	}
	if len(begun.Ranks) > 0 {
		m.out.addFrame(plan.Frame{Started: &begun})
	}
}

// failTask ends a task that has no process.
func (m *minder) failTask(t *task, err error) {
	exit := plan.TaskExit{
		Rank: t.Rank, Code: 1, Error: err.Error(), Start: wallClock(), End: wallClock(),
	}
	var fe *stdfile.Error
	var se *spawn.Error
	switch {
	case errors.As(err, &fe):
		exit.Code, exit.Signal = 0, plan.IOErrorSignal
	case errors.As(err, &se) && se.Stage == spawn.StageExec:
		exit.Code = int32(se.Errno)
		exit.Error = fmt.Sprintf("execve(): %s: %v", t.argv[0], stdfile.Describe(se.Errno))
	}
	m.tellUser(t, exit.Error)
	m.noteTaskEnd(exit)
}

// tellUser writes a line for the user, where the task's errors go.
func (m *minder) tellUser(t *task, text string) {
	line := m.spec.Prefix + text
	if t != nil && t.stderr >= 0 {
		_, _ = stdfile.Retry(func() (int, error) { return unix.Write(t.stderr, []byte(line+"\n")) })
		return
	}
	m.out.addFrame(plan.Frame{Notice: line})
}

// beginTask opens a task's files and makes its process.
func (m *minder) beginTask(t *task, files shared) error {
	ends, err := m.openFiles(t, files)
	defer ends.close()
	if err != nil {
		return err
	}
	served, err := m.pmix.environ(t.Rank)
	if err != nil {
		return err
	}
	request := &spawn.Request{
		Env:      withVariables(m.taskEnv(t), served),
		PIDVar:   "SLURM_TASK_PID",
		Stdin:    ends.fd[0],
		Stdout:   ends.fd[1],
		Stderr:   ends.fd[2],
		CgroupFD: -1,
		CPUs:     t.CPUs,
		Terminal: t.term != nil,
	}
	for _, rlimit := range m.spec.Rlimits {
		request.Rlimits = append(
			request.Rlimits,
			spawn.Rlimit{Resource: int(rlimit.Resource), Soft: rlimit.Soft, Hard: rlimit.Hard},
		)
	}
	if m.spec.PMI != nil {
		fd, err := m.serveTask(t)
		if err != nil {
			return fmt.Errorf("PMI: %w", err)
		}
		defer func() { _ = unix.Close(fd) }()
		request.Keep = []int{fd}
		request.Env = append(request.Env, fmt.Sprintf("PMI_FD=%d", fd))
	}
	request.Paths, request.Argv = spawn.SearchPath(t.argv[0], request.Env), t.argv
	if cast := m.spec.Cast; cast != nil {
		file := receive.File{
			Path: cast.Path, Size: cast.Size, Mode: fs.FileMode(cast.Mode), Force: cast.Force,
		}
		if cast.Modified != 0 {
			file.Modified = time.Unix(0, int64(cast.Modified))
		}
		request.Paths, request.Argv = []string{SelfExe}, append([]string{SelfExe}, file.Args()...)
	}
	if len(m.spec.Prologs) > 0 {
		verb := TaskVerb
		if m.spec.Contained {
			verb = ContainedTaskVerb
		}
		request.Paths, request.Argv = []string{SelfExe}, t.argv
		for i := len(m.spec.Prologs) - 1; i >= 0; i-- {
			request.Argv = ThroughProlog(verb, m.spec.Prefix, m.spec.Prologs[i], request.Argv)
		}
	}
	m.mu.Lock()
	child, err := spawn.Start(request)
	if child.PIDFD >= 0 {
		_ = unix.Close(child.PIDFD)
	}
	putToken(m.born)
	if err != nil {
		m.mu.Unlock()
		return err
	}
	t.pid, t.start = child.PID, wallClock()
	m.running[t.pid] = t
	if m.aborted {
		_ = unix.Kill(-t.pid, unix.SIGKILL)
	}
	m.mu.Unlock()
	for i, f := range t.outs {
		if f != nil {
			m.pumps.Add(1)
			go m.pumpOutput(t, f, uint8(i+1))
		}
	}
	return nil
}

// SelfExe is the program that runs, also where its user cannot pass through the
// folders above it.
const SelfExe = "/proc/self/exe"

// TaskVerb is the argument with which the shepherd's program goes through a
// TaskProlog and becomes the task.
const TaskVerb = "task"

// ContainedTaskVerb is TaskVerb in a container, whose image may not be able to run
// the TaskProlog: the task begins without it then.
const ContainedTaskVerb = "task-in-container"

// NotInImage is why a program of the site did not run in a container.
const NotInImage = "it or its interpreter is not in the image"

// ThroughProlog is the command line of a process that goes through a TaskProlog
// first.
func ThroughProlog(verb, prefix, prolog string, argv []string) []string {
	return append([]string{SelfExe, verb, prefix, prolog}, argv...)
}

// taskEnv is a task's; what is the task's own comes last and counts.
func (m *minder) taskEnv(t *task) []string {
	env := make([]string, 0, len(m.spec.Env)+len(t.Env)+3)
	own := make(map[string]bool, len(t.Env)+1)
	for _, e := range t.Env {
		name, _, _ := strings.Cut(e, "=")
		own[name] = true
	}
	own[MarkName] = true
	own["SLURM_TASK_PID"] = true
	own["PMI_FD"] = true
	for _, e := range m.spec.Env {
		if name, _, _ := strings.Cut(e, "="); !own[name] {
			env = append(env, e)
		}
	}
	return append(append(env, t.Env...), MarkName+"="+m.mark)
}

// ends are a task's ends of its files, to be closed once it has them.
type ends struct {
	fd    [3]int
	owned []int
}

func (e *ends) own(fd int) int {
	e.owned = append(e.owned, fd)
	return fd
}

func (e *ends) close() {
	for _, fd := range e.owned {
		_ = unix.Close(fd)
	}
	e.owned = nil
}

// openFiles opens what a task reads and writes.
func (m *minder) openFiles(t *task, s shared) (*ends, error) {
	e := &ends{}
	if m.spec.Terminal != nil && t.index == 0 {
		return e, m.openTerminal(t, e)
	}
	reads := m.spec.Input == spec.InputAll || m.spec.Input == int32(t.Rank)
	if t.Stdin == "" && reads {
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return e, err
		}
		e.fd[0] = e.own(p[0])
		t.input = newInput(newPolledFile(p[1]))
	} else {
		fd, err := stdfile.Open(t.Stdin, stdfile.How{Dir: m.spec.WorkDir, Input: true})
		if err != nil {
			return e, err
		}
		e.fd[0] = e.own(fd)
	}
	names := [2]string{t.Stdout, cmp.Or(t.Stderr, t.Stdout)}
	for i := 1; i >= 0; i-- { // the error output first: the user is told there of the other one
		fd, err := m.openOutput(t, i, names[i], s, e)
		if err != nil {
			return e, err
		}
		e.fd[i+1] = fd
		if i == 1 && names[1] != "" {
			t.stderr = fd
		}
	}
	return e, nil
}

// openOutput opens one output: a file, or a pipe that the minder reads.
func (m *minder) openOutput(t *task, i int, name string, s shared, e *ends) (int, error) {
	if name != "" {
		return s.open(name, stdfile.How{Dir: m.spec.WorkDir, Append: m.spec.Append})
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, err
	}
	t.outs[i] = newPolledFile(p[0])
	return e.own(p[1]), nil
}

// openTerminal gives a task a terminal instead of files.
func (m *minder) openTerminal(t *task, e *ends) error {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("no terminal: %w", err)
	}
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		_ = unix.Close(master)
		return fmt.Errorf("no terminal: %w", err)
	}
	slave, _, errno := unix.Syscall(
		unix.SYS_IOCTL,
		uintptr(master),
		unix.TIOCGPTPEER,
		unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC,
	)
	if errno != 0 {
		_ = unix.Close(master)
		return fmt.Errorf("no terminal: %w", errno)
	}
	e.own(int(slave))
	e.fd = [3]int{int(slave), int(slave), int(slave)}
	t.term = newPolledFile(master)
	t.outs[0], t.input = t.term, newInput(t.term)
	t.input.terminal = true
	return resizeTerminal(t.term, m.spec.Terminal)
}

// newPolledFile makes a file of a descriptor that goroutines wait at.
func newPolledFile(fd int) *os.File {
	_ = unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "of a task")
}

// shared are the files that tasks have by name: one name is opened once, so
// that a second task does not empty what the first has written. They stay open
// for lines of the minder's own.
type shared map[string]int

func (s shared) open(name string, how stdfile.How) (int, error) {
	if fd, ok := s[name]; ok {
		return fd, nil
	}
	fd, err := stdfile.Open(name, how)
	if err == nil {
		s[name] = fd
	}
	return fd, err
}
