//go:build linux

package shepherd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/journal"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"golang.org/x/sys/unix"
)

// takeOver looks for shepherds of other releases in the state folder. A living
// one is drained: it starts nothing any more, and keeps its runs until they
// are acknowledged. A dead one's runs become ours. It returns when it is known
// which runs the others have.
func (s *Shepherd) takeOver(ctx context.Context) {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		s.log.Error("older shepherds cannot be looked for", "err", err)
		return
	}
	for _, e := range entries {
		dir := filepath.Join(s.cfg.Dir, e.Name())
		if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil || dir == s.dir {
			continue
		}
		gone, err := s.drainOther(dir, e.Name())
		if err != nil {
			s.log.Error("older shepherd", "release", e.Name(), "err", err)
			continue
		}
		inherit := func() {
			if err := s.inherit(dir, e.Name()); err != nil {
				s.log.Error("older shepherd's runs could not be taken over", "release", e.Name(), "err", err)
			}
		}
		select {
		case <-gone: // dead when we came: its runs are ours before anything is asked of us
			inherit()
			continue
		default:
		}
		s.wg.Go(func() {
			select {
			case <-gone:
				inherit()
			case <-ctx.Done():
			case <-s.gone:
			}
		})
	}
}

// drainWait bounds how long an older shepherd may take to answer; one that
// stands still must not keep its node from new work for ever.
const drainWait = 10 * time.Second

// drainOther drains the shepherd that serves a folder and learns its keys. The
// channel closes when that shepherd is gone, which may be at once.
func (s *Shepherd) drainOther(dir, release string) (<-chan struct{}, error) {
	gone := make(chan struct{})
	sock, err := net.Dial("unix", filepath.Join(dir, SocketName))
	if err != nil {
		close(gone)
		return gone, nil
	}
	r, err := protocol.NewReader(sock)
	if err != nil {
		return nil, err
	}
	frame, err := protocol.Encode(protocol.Message{ID: 1, Op: protocol.OpDrain}, nil)
	if err == nil {
		err = sock.SetDeadline(time.Now().Add(drainWait))
	}
	if err == nil {
		_, err = sock.Write(frame)
	}
	if err == nil {
		var m protocol.Message
		var d protocol.DrainReply
		if m, err = r.Next(); err == nil {
			if err = r.Decode(m, &d); err == nil {
				s.mu.Lock()
				for _, k := range d.Known {
					s.foreign[k] = release
				}
				s.mu.Unlock()
				s.log.Info("older shepherd is drained", "release", release, "busy", d.Busy)
			}
		}
	}
	if err != nil {
		s.log.Info("older shepherd did not answer while being drained", "release", release, "err", err)
	}
	_ = sock.SetDeadline(time.Time{})
	go func() {
		defer close(gone)
		defer func() { _ = sock.Close() }()
		for {
			if _, err := r.Next(); err != nil {
				return
			}
		}
	}()
	return gone, nil
}

// inherit makes a dead shepherd's runs ours: they are written into our journal
// first, then its folder is removed.
func (s *Shepherd) inherit(dir, release string) error {
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	// Waits for children that are just being started.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	h := newHistory()
	jr, _, err := journal.Open(filepath.Join(dir, journalName), h.apply)
	if err != nil {
		return err
	}
	_ = jr.Close()
	if err := s.copyHistory(h); err != nil {
		return err
	}
	s.mu.Lock()
	for _, k := range h.acked {
		s.ended.add(k)
	}
	for k, r := range s.foreign {
		if r == release {
			delete(s.foreign, k)
		}
	}
	s.mu.Unlock()
	s.resume(h)
	s.mu.Lock()
	for _, k := range h.order {
		if p, r := h.runs[k], s.runs[k]; p != nil && p.exit != nil && r != nil {
			s.publish(plan.Event{Exited: r.exit})
		}
	}
	s.mu.Unlock()
	if len(h.runs) > 0 {
		s.log.Info("took over", "release", release, "runs", len(h.runs))
	}
	return s.removeFolder(dir)
}

// copyHistory writes another journal's truth into ours.
func (s *Shepherd) copyHistory(h *history) error {
	var out [][]byte
	add := func(r record) error {
		b, err := r.encode()
		out = append(out, b)
		return err
	}
	err := error(nil)
	for keys := range slices.Chunk(h.acked, 8192) {
		err = errors.Join(err, add(record{Acked: keys}))
	}
	boot := s.hello.BootID
	for _, k := range h.order {
		p := h.runs[k]
		if p == nil {
			continue
		}
		if p.boot != boot {
			boot = p.boot
			err = errors.Join(err, add(record{Boot: boot}))
		}
		err = errors.Join(err, add(record{Launch: &p.launch}))
		if p.begun {
			err = errors.Join(err, add(record{Begun: &p.launch.Key}))
		}
		if p.started != nil {
			err = errors.Join(err, add(record{Started: p.started}))
		}
		if p.exit != nil {
			err = errors.Join(err, add(record{Exit: p.exit}))
		}
	}
	err = errors.Join(err, add(record{Boot: s.hello.BootID}))
	if err != nil {
		return err
	}
	seq, err := s.jr.AppendReserved(out...)
	if err != nil {
		return err
	}
	return s.jr.Sync(seq)
}

// removeFolder removes what an older shepherd left, but no spooled script that
// still runs.
func (s *Shepherd) removeFolder(dir string) error {
	for _, f := range []string{SocketName, journalName, journalName + ".new"} {
		if err := os.Remove(filepath.Join(dir, f)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	_ = os.Remove(filepath.Join(dir, "spool"))
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		return err
	}
	_ = os.Remove(dir) // stays while a script in it runs
	return nil
}

// othersExist tells that an older release has a folder here: control groups
// without a run of ours may be its.
func (s *Shepherd) othersExist() bool {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return true
	}
	for _, e := range entries {
		dir := filepath.Join(s.cfg.Dir, e.Name())
		if dir == s.dir {
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, lockName)); err == nil {
			return true
		}
	}
	return false
}
