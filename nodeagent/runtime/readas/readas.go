//go:build linux && (amd64 || arm64)

// Package readas reads a part of a file that a job writes, with the rights of the
// job's user, for somebody who watches the job.
//
// The name comes from whoever submitted the job, so it may name anything. Every
// step of its lookup is made with the user's identity, as his own program would. The
// last name is not followed if it is a symbolic link, and what it names is looked
// at before it is opened: a pipe or a device would act, or wait. A file of somebody
// else is refused even where the user may read it, since the output of his job is his.
package readas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/nodeagent/runtime/spawn"
	"github.com/musterhpc/muster/nodeagent/runtime/stdfile"
)

const (
	// MaxBytes is what one reading gives at most.
	MaxBytes = 64 << 10
	// maxThreads bounds the files that are read at once: one on a server that hangs
	// keeps its thread until the server answers.
	maxThreads = 4
	// patience is how long a reading may take.
	patience = 4 * time.Second
)

// Ask is what is to be read.
type Ask struct {
	Path   string
	UID    uint32
	GID    uint32
	Groups []uint32
	From   int64 // first byte; negative: the last Most bytes
	Most   int   // 0 or more than MaxBytes: MaxBytes
	Shared bool  // it may belong to somebody else, whose file the user may read
}

// Part is a part of a file.
type Part struct {
	Data []byte
	From int64 // place of the first byte of Data
	Size int64 // of the file
}

// Errors of what is refused.
var (
	ErrKind  = errors.New("it is not a regular file")
	ErrOwner = errors.New("it does not belong to the user of the job")
	ErrBusy  = errors.New("too many files are being read on the node, or its file system does not answer; try again")
)

// Reader reads files, a few at a time.
type Reader struct {
	slots chan struct{}
}

// New makes a Reader.
func New() *Reader { return &Reader{slots: make(chan struct{}, maxThreads)} }

// result is what a thread found.
type result struct {
	part Part
	err  error
}

// Read reads a part of a file as its user.
func (r *Reader) Read(ctx context.Context, query Ask) (Part, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return Part{}, ErrBusy
	}
	back := make(chan result, 1)
	// The goroutine outlives this call where the file system hangs, and keeps its
	// slot until then. Its thread ends with it.
	go func() {
		defer func() { <-r.slots }()
		part, err := readOnThread(query)
		back <- result{part, err}
	}()
	select {
	case done := <-back:
		return done.part, done.err
	case <-ctx.Done():
		return Part{}, ErrBusy
	}
}

// readOnThread reads on a thread that takes the user's identity.
func readOnThread(query Ask) (part Part, err error) {
	if !filepath.IsAbs(query.Path) {
		return part, fmt.Errorf("%q is not a path from the root on", query.Path)
	}
	own := os.Geteuid()
	if own != 0 && uint32(own) != query.UID {
		return part, fmt.Errorf(
			"the agent runs as user %d and reads no file of user %d", own, query.UID,
		)
	}
	thread, err := spawn.NewThread()
	if err != nil {
		return part, err
	}
	cred := &spawn.Cred{UID: query.UID, GID: query.GID, Groups: query.Groups}
	err = thread.As(cred, 0o077, func() error {
		part, err = readPart(query)
		return err
	})
	return part, err
}

// readPart reads with the identity that the thread has.
func readPart(query Ask) (Part, error) {
	place, err := retryOpen(query.Path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC)
	if err != nil {
		return Part{}, describe(err)
	}
	defer unix.Close(place)
	var info unix.Stat_t
	if err := unix.Fstat(place, &info); err != nil {
		return Part{}, describe(err)
	}
	switch {
	case info.Mode&unix.S_IFMT != unix.S_IFREG:
		return Part{}, ErrKind
	case info.Uid != query.UID && !query.Shared:
		return Part{}, ErrOwner
	}
	// What was looked at is what is opened, whatever the name stands for by now.
	file, err := retryOpen("/proc/self/fd/"+strconv.Itoa(place),
		unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return Part{}, describe(err)
	}
	defer unix.Close(file)
	most := query.Most
	if most <= 0 || most > MaxBytes {
		most = MaxBytes
	}
	part := Part{From: query.From, Size: info.Size}
	if query.From < 0 {
		part.From = max(info.Size-int64(most), 0)
	}
	buf := make([]byte, most)
	n := 0
	for n < most {
		k, err := stdfile.Retry(func() (int, error) {
			return unix.Pread(file, buf[n:], part.From+int64(n))
		})
		if err != nil {
			return Part{}, describe(err)
		}
		if k == 0 {
			break
		}
		n += k
	}
	part.Data = buf[:n]
	part.Size = max(part.Size, part.From+int64(n)) // it may have grown meanwhile
	if n == 0 {
		part.Size = info.Size
	}
	return part, nil
}

func retryOpen(path string, flags int) (int, error) {
	return stdfile.Retry(func() (int, error) { return unix.Open(path, flags, 0) })
}

// describe gives an error the C library's text.
func describe(err error) error { return stdfile.Describe(err) }
