//go:build linux

// Package receive writes a file that sbcast or srun --bcast sends to a node. It
// is a task of a step: a process of the job's user, in the job's place, that
// reads the file's bytes and behind them their SHA-256 from its standard input.
// The file gets its name when all of it is there and right, so that nobody finds
// a part of it.
package receive

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Verb is what this program is called by, as the first argument.
const Verb = "receive"

// File is what is to be written.
type File struct {
	Path     string
	Size     int64
	Mode     fs.FileMode
	Modified time.Time // zero: now
	Force    bool      // one that is there is replaced
}

// Args are the arguments that Main reads it from.
func (f *File) Args() []string {
	out := []string{Verb, "-size", fmt.Sprint(f.Size), "-mode", fmt.Sprint(uint32(f.Mode.Perm()))}
	if !f.Modified.IsZero() {
		out = append(out, "-modified", fmt.Sprint(f.Modified.UnixNano()))
	}
	if f.Force {
		out = append(out, "-force")
	}
	return append(out, "--", f.Path)
}

// Main receives one file and returns the exit code.
func Main(args []string, stdin io.Reader, stderr io.Writer) int {
	var file File
	var mode, modified int64
	set := flag.NewFlagSet(Verb, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Int64Var(&file.Size, "size", 0, "bytes")
	set.Int64Var(&mode, "mode", 0o600, "permissions")
	set.Int64Var(&modified, "modified", 0, "when it was modified, in nanoseconds")
	set.BoolVar(&file.Force, "force", false, "replace a file that is there")
	if err := set.Parse(args); err != nil || set.NArg() != 1 || file.Size < 0 {
		return 2
	}
	file.Path, file.Mode = set.Arg(0), fs.FileMode(mode).Perm()
	if modified != 0 {
		file.Modified = time.Unix(0, modified)
	}
	from, stop := untilTold(stdin)
	defer stop()
	if err := file.Receive(from); err != nil {
		host, _ := os.Hostname()
		fmt.Fprintf(stderr, "sbcast: error: %s: %v\n", host, err)
		return 1
	}
	return 0
}

// untilTold reads until a signal tells to end, so that nothing is left of a file
// that is not to come any more.
func untilTold(from io.Reader) (r io.Reader, stop func()) {
	out, in := io.Pipe()
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGHUP, unix.SIGINT, unix.SIGTERM)
	over := make(chan struct{})
	go func() {
		_, err := io.Copy(in, from)
		_ = in.CloseWithError(err)
	}()
	go func() {
		select {
		case sig := <-told:
			_ = in.CloseWithError(fmt.Errorf("%w: it was told to end (%v)", ErrDamaged, sig))
		case <-over:
		}
	}()
	return out, func() {
		signal.Stop(told)
		close(over)
		_ = out.Close()
	}
}

// ErrDamaged: what came is not what was sent.
var ErrDamaged = errors.New("the file did not arrive as it was sent")

// Receive writes the file.
func (f *File) Receive(from io.Reader) error {
	if _, err := os.Lstat(f.Path); err == nil && !f.Force {
		return &fs.PathError{Op: "create", Path: f.Path, Err: fs.ErrExist}
	}
	to, err := os.OpenFile(
		filepath.Join(filepath.Dir(f.Path), ".sbcast-"+rand.Text()),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL,
		0o600,
	)
	if err != nil {
		return err
	}
	if err := f.fill(to, from); err != nil {
		_ = to.Close()
		return errors.Join(err, os.Remove(to.Name()))
	}
	if err := f.renameIntoPlace(to.Name()); err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}

func (f *File) fill(to *os.File, from io.Reader) error {
	// A disk that is full says so before anything is sent for nothing.
	if err := unix.Fallocate(int(to.Fd()), 0, 0, max(f.Size, 1)); errors.Is(err, unix.ENOSPC) ||
		errors.Is(err, unix.EDQUOT) ||
		errors.Is(err, unix.EFBIG) {
		return &fs.PathError{Op: "write", Path: f.Path, Err: err}
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(to, sum), from, f.Size); err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s: %w: it was cut off", f.Path, ErrDamaged)
		}
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(from, want); err != nil || !bytes.Equal(want, sum.Sum(nil)) {
		return fmt.Errorf("%s: %w", f.Path, ErrDamaged)
	}
	if err := to.Truncate(f.Size); err != nil {
		return err
	}
	if err := to.Chmod(f.Mode); err != nil {
		return err
	}
	if err := to.Close(); err != nil { // a full disk of another machine is heard of here
		return err
	}
	if f.Modified.IsZero() {
		return nil
	}
	return os.Chtimes(to.Name(), f.Modified, f.Modified)
}

// renameIntoPlace gives the file its name; one that came meanwhile stays unless it may be
// replaced.
func (f *File) renameIntoPlace(temporary string) error {
	if f.Force {
		return os.Rename(temporary, f.Path)
	}
	if err := os.Link(temporary, f.Path); err != nil {
		return err
	}
	return os.Remove(temporary)
}
