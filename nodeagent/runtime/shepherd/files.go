//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
	"golang.org/x/sys/unix"
)

// scriptName is the name that a batch script sees in $0, as Slurm's.
const scriptName = "slurm_script"

// spoolScript writes the script for its user, and for nobody else to read. The
// folder stays root's, so that nothing of one user can be left in it for the
// next. Folder and file are kept for the next script of the same user (making
// them costs more than the fork); for another's the file is always a new one.
func (s *Shepherd) spoolScript(r *run) error {
	path := filepath.Join(r.Spool, scriptName)
	if was := s.spareFolder(r); was != nil {
		if err := unix.Rename(was.folder, r.Spool); err != nil {
			_ = os.RemoveAll(was.folder)
		} else if was.mark.Uid == r.UID && was.mark.Gid == r.GID && rewriteScript(path, r, &was.mark) == nil {
			return nil
		} else if err := unix.Unlink(path); err == nil || errors.Is(err, unix.ENOENT) {
			return s.newScript(r, path)
		}
	}
	if err := s.spoolFolder(r.Spool); err != nil {
		return err
	}
	return s.newScript(r, path)
}

// newScript writes the script into a new file.
func (s *Shepherd) newScript(r *run, path string) error {
	fd, err := stdfile.Retry(func() (int, error) {
		return unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, scriptMode)
	})
	if err != nil {
		return &os.PathError{Op: "store script", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if err := writeScript(fd, r.spec.Script); err != nil {
		return &os.PathError{Op: "store script", Path: path, Err: err}
	}
	if !s.root {
		return nil
	}
	if err := unix.Fchown(fd, int(r.UID), int(r.GID)); err != nil {
		return &os.PathError{Op: "give script to its user", Path: path, Err: err}
	}
	return unix.Fstat(fd, (*unix.Stat_t)(&r.script))
}

// rewriteScript writes the script into the file of an earlier one of the same user,
// unless anything was done to that since.
func rewriteScript(path string, r *run, was *scriptMark) error {
	fd, err := stdfile.Retry(func() (int, error) {
		// Its owner may have a lease on it, for which other opens would wait.
		return unix.Open(path, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if !was.isScript(func(st *unix.Stat_t) error { return unix.Fstat(fd, st) }) {
		return unix.ESTALE
	}
	if err := writeScript(fd, r.spec.Script); err != nil {
		return err
	}
	// Not to no length and up again: filesystems write such a file to the disk
	// when it is closed.
	if size := int64(len(r.spec.Script)); size < was.Size {
		if err := unix.Ftruncate(fd, size); err != nil {
			return err
		}
	}
	return unix.Fstat(fd, (*unix.Stat_t)(&r.script))
}

func writeScript(fd int, data []byte) error {
	for len(data) > 0 {
		n, err := stdfile.Retry(func() (int, error) { return unix.Write(fd, data) })
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

const scriptMode = 0o500

// scriptMark is a script's file as the shepherd wrote it. Its owner may change
// the mode, link it or write to it: each of these shows in the time of change.
type scriptMark unix.Stat_t

// isScript tells that a file is the script's, and as it was written.
func (m *scriptMark) isScript(stat func(*unix.Stat_t) error) bool {
	var status unix.Stat_t
	if m.Ino == 0 || stat(&status) != nil {
		return false
	}
	sameFile := status.Ino == m.Ino && status.Dev == m.Dev
	sameOwner := status.Uid == m.Uid && status.Gid == m.Gid
	unchanged := status.Ctim == m.Ctim && status.Size == m.Size
	asWritten := status.Mode == unix.S_IFREG|scriptMode && status.Nlink == 1
	return sameFile && sameOwner && unchanged && asWritten
}

// spareSpool is a folder, with the script of a run that is over if its mark is
// set.
type spareSpool struct {
	folder string
	mark   scriptMark
}

// spareFolder takes a folder that is free: one with a script of the run's user, or
// the newest.
func (s *Shepherd) spareFolder(r *run) *spareSpool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.freeSpools)
	if n == 0 {
		return nil
	}
	at := n - 1
	for i := n - 1; i >= max(n-spareLooks, 0); i-- {
		if mark := &s.freeSpools[i].mark; mark.Ino != 0 && mark.Uid == r.UID && mark.Gid == r.GID {
			at = i
			break
		}
	}
	was := s.freeSpools[at]
	s.freeSpools = slices.Delete(s.freeSpools, at, at+1)
	return was
}

// spoolFolder makes a folder.
func (s *Shepherd) spoolFolder(name string) error {
	err := unix.Mkdir(name, 0o711)
	if errors.Is(err, unix.EEXIST) {
		// Of a run that a dead shepherd could not clean up: no living run
		// uses this name.
		if err := os.RemoveAll(name); err != nil {
			return err
		}
		err = unix.Mkdir(name, 0o711)
	}
	if err != nil {
		return &os.PathError{Op: "make spool folder", Path: name, Err: err}
	}
	return nil
}

const (
	maxFreeSpools = 256      // bounds the folders kept for the next scripts
	spareLooks    = 16       // how many of them are looked at for one of the user's
	maxSpareBytes = 64 << 10 // a larger script is removed
)

// setSpoolAside sets the folder aside for the next script, with the file if nothing
// was done to it; else that is removed. mu is held.
func (s *Shepherd) setSpoolAside(r *run) {
	if r.Spool == "" {
		return
	}
	delete(s.spools, r.Spool)
	if r.Minded {
		_ = os.RemoveAll(r.Spool)
		return
	}
	path := filepath.Join(r.Spool, scriptName)
	if !r.script.isScript(func(st *unix.Stat_t) error { return unix.Lstat(path, st) }) ||
		r.script.Size > maxSpareBytes {
		r.script = scriptMark{}
	}
	clean := r.script.Ino != 0 || unix.Unlink(path) == nil
	if clean && len(s.freeSpools) < maxFreeSpools && filepath.Dir(r.Spool) == s.cfg.Spool {
		s.spoolSeq++
		free := filepath.Join(s.cfg.Spool, fmt.Sprintf("free-%d-%d", os.Getpid(), s.spoolSeq))
		if unix.Rename(r.Spool, free) == nil {
			s.freeSpools = append(s.freeSpools, &spareSpool{folder: free, mark: r.script})
			return
		}
	}
	if err := unix.Rmdir(r.Spool); err != nil && !errors.Is(err, unix.ENOENT) {
		_ = os.RemoveAll(r.Spool)
	}
}

// tidySpool removes what no run of ours needs, after a restart.
func (s *Shepherd) tidySpool() {
	entries, err := os.ReadDir(s.cfg.Spool)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(s.cfg.Spool, entry.Name())
		s.mu.Lock()
		used := s.spools[path]
		s.mu.Unlock()
		if !used &&
			(strings.HasPrefix(entry.Name(), "job") || strings.HasPrefix(entry.Name(), "free-") ||
				strings.HasPrefix(entry.Name(), stepFolder)) {
			_ = os.RemoveAll(path)
		}
	}
}

// stdio are a run's three open files.
type stdio struct{ in, out, err int }

func fileFailure(err error) plan.Failure {
	var fe *stdfile.Error
	switch {
	case !errors.As(err, &fe):
		return plan.FailSpawn
	case fe.Input:
		return plan.FailInput
	}
	return plan.FailOutput
}

// openFiles enters the work directory and opens the run's files, all with the
// rights of the calling thread, which are the user's. Files are relative to
// the work directory even where that cannot be entered.
func openFiles(spec *plan.RunSpec, prefix string) (*stdio, error) {
	f := &stdio{in: -1, out: -1, err: -1}
	_, enter := stdfile.Retry(func() (int, error) { return 0, unix.Chdir(spec.WorkDir) })
	if enter != nil {
		if err := unix.Chdir("/tmp"); err != nil {
			return f, fmt.Errorf("enter /tmp: %w", err)
		}
	}
	var err error
	f.in, err = openFile(spec, spec.Stdin, true)
	if err != nil {
		return f, err
	}
	f.out, err = openFile(spec, spec.Stdout, false)
	if err != nil {
		return f, err
	}
	if spec.Stderr == "" || spec.Stderr == spec.Stdout {
		f.err = f.out
	} else if f.err, err = openFile(spec, spec.Stderr, false); err != nil {
		return f, err
	}
	if enter != nil && spec.Space == nil { // whether it is in the job's own folders is seen there
		f.warnUser(
			fmt.Sprintf(
				"%scannot enter work directory %s: %v; running in /tmp",
				prefix,
				spec.WorkDir,
				stdfile.Describe(enter),
			),
		)
	}
	return f, nil
}

// openFile opens one of a run's files.
func openFile(runSpec *plan.RunSpec, name string, input bool) (int, error) {
	return stdfile.Open(
		name, stdfile.How{Dir: runSpec.WorkDir, Input: input, Append: runSpec.Append},
	)
}

// warnUser writes one line into the run's standard error; a full disk there is
// the user's affair.
func (f *stdio) warnUser(line string) {
	if f.err >= 0 {
		_, _ = stdfile.Retry(func() (int, error) { return unix.Write(f.err, []byte(line+"\n")) })
	}
}

func (f *stdio) close() {
	if f == nil {
		return
	}
	closeFD(f.in)
	closeFD(f.out)
	if f.err != f.out {
		closeFD(f.err)
	}
	f.in = -1
	f.out = -1
	f.err = -1
}

// execMessage explains a failed execution; a missing interpreter is named,
// because the kernel's answer reads as if the script were missing.
func execMessage(r *run, errno unix.Errno) string {
	if r.Minded { // its spool has no script
		return fmt.Sprintf(
			"the step: the job's user cannot execute muster-shepherd: %v",
			stdfile.Describe(errno),
		)
	}
	if r.Spool == "" {
		return fmt.Sprintf("cannot execute %s: %v", r.spec.Argv[0], stdfile.Describe(errno))
	}
	if r.spec.Login != nil {
		return fmt.Sprintf(
			"login environment: the job's user cannot execute muster-shepherd: %v",
			stdfile.Describe(errno),
		)
	}
	if r.spec.TaskProlog != "" { // the program that was executed is our own
		return fmt.Sprintf(
			"TaskProlog %s: the job's user cannot execute muster-shepherd: %v",
			r.spec.TaskProlog,
			stdfile.Describe(errno),
		)
	}
	return scriptMessage(r.spec.Script, errno)
}

func scriptMessage(script []byte, errno unix.Errno) string {
	first, _, _ := strings.Cut(string(script), "\n")
	if interp, ok := strings.CutPrefix(first, "#!"); ok && errno == unix.ENOENT {
		if name := strings.Fields(strings.ReplaceAll(interp, "\r", "^M ")); len(name) > 0 {
			return fmt.Sprintf(
				"cannot execute the script: bad interpreter (%s): %v",
				name[0],
				stdfile.Describe(errno),
			)
		}
	}
	return fmt.Sprintf("cannot execute the script: %v", stdfile.Describe(errno))
}
