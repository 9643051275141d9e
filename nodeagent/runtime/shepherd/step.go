//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// stepFolder begins the names of steps' folders in the spool. Such a folder is
// root's; in it are what the step's minder is told, its socket, and the file
// into which it writes how the tasks ended.
const stepFolder = "step"

// badTasks says what is wrong with the tasks of a step, or "".
func badTasks(tasks *plan.Tasks) string {
	bad := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	switch {
	case len(tasks.List) == 0:
		return "the step has no tasks here"
	case !filepath.IsAbs(tasks.WorkDir):
		return fmt.Sprintf("the work directory %q is not absolute", tasks.WorkDir)
	case slices.ContainsFunc(tasks.Env, bad) || slices.ContainsFunc(tasks.Argv, bad):
		return "an argument or variable holds a zero byte"
	}
	for i := range tasks.List {
		task := &tasks.List[i]
		switch {
		case len(task.Argv) == 0 && len(tasks.Argv) == 0:
			return fmt.Sprintf("task %d has no command", task.Rank)
		case slices.ContainsFunc(
			slices.Concat(task.Env, task.Argv, []string{task.Stdin, task.Stdout, task.Stderr}), bad,
		):
			return fmt.Sprintf(
				"a path, argument or variable of task %d holds a zero byte", task.Rank,
			)
		case task.Rank > math.MaxInt32:
			return fmt.Sprintf("a task has the rank %d", task.Rank)
		}
	}
	return ""
}

// spoolStep writes what the minder is told, for its user to read.
func (s *Shepherd) spoolStep(r *run) error {
	tasks := *r.spec.Tasks
	limits, warnings := s.limits.applyLimits(tasks.Rlimits)
	tasks.Rlimits = nil
	for _, rlimit := range limits {
		tasks.Rlimits = append(
			tasks.Rlimits,
			plan.Rlimit{Resource: int32(rlimit.Resource), Soft: rlimit.Soft, Hard: rlimit.Hard},
		)
	}
	tasks.Prefix, tasks.OOMFile = s.cfg.Prefix, r.group.OOMFile()
	tasks.Notices = nil
	for _, w := range slices.Concat(r.spec.Tasks.Notices, warnings) {
		tasks.Notices = append(tasks.Notices, s.cfg.Prefix+w)
	}
	data, err := cbor.Marshal(&tasks)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.Spool); err != nil { // of a run that a dead shepherd could not clean up
		return err
	}
	if err := unix.Mkdir(r.Spool, 0o711); err != nil {
		return &os.PathError{Op: "make spool folder", Path: r.Spool, Err: err}
	}
	path := filepath.Join(r.Spool, minder.TasksName)
	if err := os.WriteFile(path, data, 0o400); err != nil {
		return err
	}
	if s.root {
		return os.Chown(path, int(r.UID), int(r.GID))
	}
	return nil
}

// openMinder opens the standard files of a step's minder: the socket on which
// it serves, the file of results, and its log. None but the shepherd's user can
// open them by their names.
func openMinder(r *run) (*stdio, error) {
	f := &stdio{in: -1, out: -1, err: -1}
	path := filepath.Join(r.Spool, minder.SocketName)
	if len(path) > maxSocketPath {
		return f, fmt.Errorf(
			"the path of the step's socket is %d bytes long, and the kernel takes %d: %s",
			len(path),
			maxSocketPath,
			path,
		)
	}
	sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		f.in = sock
		err = unix.Bind(sock, &unix.SockaddrUnix{Name: path})
		if err == nil {
			err = unix.Listen(sock, 64)
		}
	}
	if err != nil {
		return f, fmt.Errorf("the step's socket: %w", err)
	}
	f.out, err = stdfile.Open(filepath.Join(r.Spool, minder.ResultsName), stdfile.How{})
	if err != nil {
		return f, err
	}
	f.err, err = stdfile.Open(filepath.Join(r.Spool, minder.LogName), stdfile.How{})
	return f, err
}

// minderCommand is the command line of a step's minder: this program.
func minderCommand(r *run) (paths, argv []string) {
	return []string{"/proc/self/exe"}, []string{"muster-shepherd", minder.Verb, r.Spool}
}

// What is read of files that a user's process writes, in bytes, in tasks and in
// bytes of a text.
const (
	maxResults = 64 << 20
	maxTasks   = 1 << 16
	maxText    = 2000
)

// mostCPU bounds the CPU time that a step says it has used.
const mostCPU = 100 * 365 * spec.Day

// plainText is a text of a user's process as it may stand in a record.
func plainText(text string) string {
	return strings.ToValidUTF8(strings.TrimSpace(text[:min(len(text), maxText)]), "\ufffd")
}

// readResults completes the exit of a step's part by what its minder wrote. It
// is known also when the end of the minder was not seen; a minder that was
// killed before its tasks had ended took them with it.
func (s *Shepherd) readResults(r *run, exit *plan.Exit) {
	list, whole, text := parseResults(filepath.Join(r.Spool, minder.ResultsName))
	if log := readLog(filepath.Join(r.Spool, minder.LogName)); log != "" {
		text = log
		s.log.Warn("the minder of a step", aboutRun(r), "says", text)
	}
	var sum plan.Usage
	for i := range list {
		usage := &list[i].Usage
		sum.UserCPU = min(sum.UserCPU+min(max(usage.UserCPU, 0), mostCPU), mostCPU)
		sum.SystemCPU = min(sum.SystemCPU+min(max(usage.SystemCPU, 0), mostCPU), mostCPU)
		sum.PeakRSS = max(sum.PeakRSS, usage.PeakRSS)
	}
	if exit.Started || whole {
		exit.Usage.PeakRSS = sum.PeakRSS // and not the minder's own
		exit.Usage.Tasks = spreadOf(list)
		if exit.Usage.UserCPU+exit.Usage.SystemCPU == 0 {
			exit.Usage.UserCPU, exit.Usage.SystemCPU = sum.UserCPU, sum.SystemCPU
		}
	}
	code, sig := plan.Worst(list)
	switch {
	case whole:
		exit.Failure = plan.None
		exit.Message = ""
		exit.Code = code
		exit.Signal = sig
		exit.Started = true
		for i := range list {
			if list[i].Error != "" && exit.Message == "" {
				exit.Message = plainText(fmt.Sprintf("task %d: %s", list[i].Rank, list[i].Error))
			}
		}
	case exit.Failure != plan.None:
	case exit.Signal == 0: // it gave up
		exit.Failure, exit.Message = plan.FailSpawn, text
	case code != 0:
		exit.Code, exit.Signal = code, 0
	}
}

// spreadOf is how the use of a step lay on its tasks. The list is a file that the
// user's processes could have written: figures without sense are bounded.
func spreadOf(list []plan.TaskExit) (spreads spec.TaskSpreads) {
	for i := range list {
		rank := list[i].Rank
		usage := &list[i].Usage
		cpu := min(max(usage.UserCPU, 0), mostCPU) + min(max(usage.SystemCPU, 0), mostCPU)
		for _, figure := range []struct {
			kind spec.TaskKind
			n    int64
		}{
			{spec.TaskCPU, int64(cpu / spec.Microsecond)},
			{spec.TaskRSS, usage.PeakRSS},
			{spec.TaskRead, usage.ReadB},
			{spec.TaskWrite, usage.WriteB},
			{spec.TaskPages, usage.MajFaults},
		} {
			spreads = spreads.Observe(figure.kind, rank, min(max(figure.n, 0), mostOfTask))
		}
	}
	return spreads
}

// mostOfTask bounds a figure of one task, so that those of very many add up.
const mostOfTask = 1 << 50

// readLog is the beginning of what a minder has complained of.
func readLog(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	b, _ := io.ReadAll(io.LimitReader(file, maxText)) // what can be read
	return plainText(string(b))
}

// parseResults reads a file of results as far as it is one.
func parseResults(path string) (list []plan.TaskExit, whole bool, text string) {
	file, err := os.Open(path)
	if err != nil {
		return nil, false, err.Error()
	}
	defer func() { _ = file.Close() }()
	mode, err := protocol.Decoding()
	if err != nil {
		return nil, false, err.Error()
	}
	decoder := mode.NewDecoder(io.LimitReader(file, maxResults))
	for {
		var result minder.Result
		if err := decoder.Decode(&result); err != nil {
			if !errors.Is(err, io.EOF) {
				text = "its results are cut off"
			}
			return list, whole, text
		}
		if result.Task != nil && len(list) < maxTasks {
			list = append(list, *result.Task)
		}
		whole = whole || result.Done
	}
}

// tellMinder has a line told to the users of a step.
func (s *Shepherd) tellMinder(r *run, text string) {
	sock, err := net.DialTimeout("unix", filepath.Join(r.Spool, minder.SocketName), noticeWait)
	if err != nil {
		return // it has just ended
	}
	defer func() { _ = sock.Close() }()
	frame, err := protocol.Encode(
		protocol.Message{ID: 1, Op: protocol.OpStepNotice},
		protocol.StepNotice{Text: s.cfg.Prefix + text},
	)
	if err != nil {
		return
	}
	_ = sock.SetDeadline(time.Now().Add(noticeWait))
	if _, err := sock.Write(frame); err != nil {
		return
	}
	if answer, err := protocol.NewReader(sock); err == nil {
		_, _ = answer.Next() // so that it has taken the line before what the line explains
	}
}
