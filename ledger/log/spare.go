package log

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// spareName is the next segment before it has its name. raft-wal looks only at names that end
// in .wal.
const spareName = "next.spare"

// sparePiece is how much of a spare is written and synced at a time, and sparePause what lies
// between: a sync of the log waits behind one piece at most.
const (
	sparePiece = 512 << 10
	sparePause = 2 * time.Millisecond
)

// spare keeps the next segment ready, full of zeros that are on the disk.
//
// A segment whose blocks are only reserved is slow to sync: each sync of bytes that were never
// written before has to commit the filesystem's journal, and with it what anybody else has
// written there meanwhile. Over zeros only the bytes themselves are flushed. A new log has its
// first segment without, since small ones never need a second.
type spare struct {
	fs      FS
	dir     string
	size    int64
	reserve uint64 // bytes that must stay free beside it
	closing <-chan struct{}

	mu    sync.Mutex
	busy  bool // one is being made
	ready File // nil = none
	done  chan struct{}
}

// openSpare removes what an earlier run has left: how much of it is on the disk nobody knows.
func openSpare(
	fs FS,
	dir string,
	size int64,
	reserve uint64,
	closing <-chan struct{},
) (*spare, error) {
	s := &spare{fs: fs, dir: dir, size: size, reserve: reserve, closing: closing}
	err := fs.Remove(s.path())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return s, err
}

func (s *spare) path() string { return filepath.Join(s.dir, spareName) }

// prepareSoon begins to make one unless there is one, or no room for it.
func (s *spare) prepareSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || s.ready != nil {
		return
	}
	select {
	case <-s.closing:
		return
	default:
	}
	s.busy, s.done = true, make(chan struct{})
	go func() {
		file := s.makeSpare()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy, s.ready = false, file
		close(s.done)
	}()
}

// makeSpare returns nil when there is no room, when something fails, or when the log closes:
// then a segment is made when it is needed.
func (s *spare) makeSpare() File {
	if free, err := s.fs.Free(s.dir); err != nil || free < s.reserve+2*uint64(s.size) {
		return nil
	}
	file, err := s.fs.Create(s.path(), s.size)
	if err != nil {
		return nil
	}
	if s.fillSpare(file) != nil {
		_ = file.Close() // nothing in it counts
		_ = s.fs.Remove(s.path())
		return nil
	}
	return file
}

func (s *spare) fillSpare(file File) error {
	zeros := make([]byte, min(sparePiece, s.size))
	for at := int64(0); at < s.size; at += int64(len(zeros)) {
		if _, err := file.WriteAt(zeros[:min(int64(len(zeros)), s.size-at)], at); err != nil {
			return err
		}
		if err := file.Sync(); err != nil {
			return err
		}
		t := time.NewTimer(sparePause)
		select {
		case <-t.C:
		case <-s.closing:
			t.Stop()
			return ErrClosed
		}
	}
	return nil
}

// take gives the spare the name of a segment; false = there is none. The name is durable with
// the next sync of the folder.
func (s *spare) take(path string, size int64) (File, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == nil || size != s.size {
		return nil, false
	}
	file := s.ready
	s.ready = nil
	if err := s.fs.Rename(s.path(), path); err != nil {
		_ = file.Close() // nothing in it counts
		_ = s.fs.Remove(s.path())
		return nil, false
	}
	return file, true
}

// close waits for the one that is being made, and removes it. The log is closing already.
func (s *spare) close() error {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	if done != nil {
		<-done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready == nil {
		return nil
	}
	f := s.ready
	s.ready = nil
	return errors.Join(f.Close(), s.fs.Remove(s.path()))
}
