//go:build linux

// Package stdfile opens the standard files of jobs and of tasks, with the
// rights of whoever calls, and says in the C library's words why one cannot be
// opened.
package stdfile

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Retry repeats a system call that a signal interrupted: the Go runtime
// signals its own threads.
func Retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// How says what a file is opened for.
type How struct {
	Dir    string // that relative names are relative to
	Input  bool
	Append bool // keeps what an output file holds
}

// Error is a file that cannot be opened.
type Error struct {
	Input bool
	Err   error
}

// Error says which file and why.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Open opens one file; an empty name is /dev/null. It never waits for the other
// end of a pipe: a user could hang every launch with one. Output is written at
// the end of the file in both open modes, so that a line of the node's own
// never overwrites the job's, nor one task's another's. The descriptor is 3 or
// above, and closed in what is executed.
func Open(name string, how How) (int, error) {
	if name == "" {
		name = "/dev/null"
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(how.Dir, name)
	}
	flags, after := unix.O_RDONLY, 0
	if !how.Input {
		flags, after = unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, unix.O_APPEND
		if !how.Append {
			flags |= unix.O_TRUNC
		}
	}
	fd, err := Retry(func() (int, error) {
		return unix.Open(name, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0o666)
	})
	if err != nil {
		what := "output"
		if how.Input {
			what = "input"
		}
		return -1, &Error{
			Input: how.Input,
			Err:   fmt.Errorf("cannot open %s file %s: %w", what, name, Describe(err)),
		}
	}
	if fd < 3 {
		high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		_ = unix.Close(fd)
		if err != nil {
			return -1, &Error{Input: how.Input, Err: err}
		}
		fd = high
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, after); err != nil {
		_ = unix.Close(fd)
		return -1, &Error{Input: how.Input, Err: err}
	}
	return fd, nil
}

// errnoText is an errno with the C library's text, which users search for.
type errnoText struct{ errno unix.Errno }

func (e errnoText) Error() string {
	switch e.errno {
	case unix.ENOENT:
		return "No such file or directory"
	case unix.EACCES:
		return "Permission denied"
	case unix.EISDIR:
		return "Is a directory"
	case unix.ENOTDIR:
		return "Not a directory"
	case unix.ENOEXEC:
		return "Exec format error"
	case unix.ENOSPC:
		return "No space left on device"
	case unix.EDQUOT:
		return "Disk quota exceeded"
	}
	return e.errno.Error()
}

func (e errnoText) Unwrap() error { return e.errno }

// Describe gives an error the C library's text where it is an errno.
func Describe(err error) error {
	var no unix.Errno
	if errors.As(err, &no) {
		return errnoText{no}
	}
	return err
}
