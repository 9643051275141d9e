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
	for _, entry := range entries {
		dir := filepath.Join(s.cfg.Dir, entry.Name())
		if _, err := os.Stat(filepath.Join(dir, lockName)); err != nil || dir == s.dir {
			continue
		}
		gone := s.drainOther(dir, entry.Name())
		inherit := func() {
			if err := s.inheritRuns(dir, entry.Name()); err != nil {
				s.log.Error(
					"older shepherd's runs could not be taken over",
					"release",
					entry.Name(),
					"err",
					err,
				)
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

// drainOther drains the shepherd that serves a folder and learns the keys of its runs. A shepherd
// that does not answer must not keep the node from new work for ever. So after DrainWait its keys
// are read from its journal, where every run is written before it is started, and an answer that
// comes later is heard then. The channel closes when that shepherd is gone, which may be at once.
func (s *Shepherd) drainOther(dir, release string) <-chan struct{} {
	gone := make(chan struct{})
	dialer := net.Dialer{Timeout: s.cfg.DrainWait}
	sock, err := dialer.Dial("unix", filepath.Join(dir, SocketName))
	if err != nil && !standsStill(err) {
		close(gone)
		return gone
	}
	var reader *protocol.Reader
	if err == nil {
		reader, err = s.askToDrain(sock)
	}
	if err == nil {
		err = s.hearDrained(reader, release)
	}
	if err != nil {
		s.log.Warn(
			"older shepherd does not answer while being drained",
			"release",
			release,
			"err",
			err,
		)
		s.learnFromJournal(dir, release)
	}
	if reader == nil {
		return gone // never known: its folder is looked at again at the next start
	}
	_ = sock.SetDeadline(time.Time{})
	go func() {
		defer close(gone)
		defer func() { _ = sock.Close() }()
		for s.hearDrained(reader, release) == nil {
		}
	}()
	return gone
}

// standsStill tells whether a failed dial found a listener that does not accept, and not a socket
// without one: that shepherd lives.
func standsStill(err error) bool {
	var ne net.Error
	return errors.Is(err, unix.EAGAIN) || errors.As(err, &ne) && ne.Timeout()
}

// askToDrain tells an older shepherd to start nothing any more.
func (s *Shepherd) askToDrain(sock net.Conn) (*protocol.Reader, error) {
	frame, err := protocol.Encode(protocol.Message{ID: 1, Op: protocol.OpDrain}, nil)
	if err != nil {
		return nil, err
	}
	reader, err := protocol.NewReader(sock)
	if err != nil {
		return nil, err
	}
	if err := sock.SetDeadline(time.Now().Add(s.cfg.DrainWait)); err != nil {
		return reader, err
	}
	_, err = sock.Write(frame)
	return reader, err
}

// hearDrained waits for the answer and notes the keys in it.
func (s *Shepherd) hearDrained(reader *protocol.Reader, release string) error {
	message, err := reader.Next()
	if err != nil {
		return err
	}
	var drain protocol.DrainReply
	if err := reader.Decode(message, &drain); err != nil {
		return err
	}
	s.markForeign(release, drain.Known)
	s.log.Info("older shepherd is drained", "release", release, "busy", drain.Busy)
	return nil
}

// learnFromJournal reads which runs a living shepherd has written down.
func (s *Shepherd) learnFromJournal(dir, release string) {
	h := newHistory()
	if err := journal.Read(filepath.Join(dir, journalName), h.applyRecord); err != nil {
		s.log.Error("older shepherd's journal", "release", release, "err", err)
		return
	}
	var known []plan.RunKey
	for _, g := range h.acked {
		known = append(known, g.key)
	}
	for key := range h.runs {
		known = append(known, key)
	}
	s.markForeign(release, known)
}

// markForeign notes keys that another release's shepherd has.
func (s *Shepherd) markForeign(release string, keys []plan.RunKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		s.foreign[key] = release
		if s.runs[key] != nil {
			s.log.Error("a run was started by two shepherds", aboutRun(s.runs[key]), "other", release)
		}
	}
}

// inheritRuns makes a dead shepherd's runs ours: they are written into our journal
// first, then its folder is removed.
func (s *Shepherd) inheritRuns(dir, release string) error {
	s.inheriting.Lock() // a drain that is taken back looks at the same folders again
	defer s.inheriting.Unlock()
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
	s.rememberGrant(dir)
	h := newHistory()
	jr, _, err := journal.Open(filepath.Join(dir, journalName), h.applyRecord)
	if err != nil {
		return err
	}
	_ = jr.Close()
	if err := s.copyHistory(h); err != nil {
		return err
	}
	s.mu.Lock()
	for _, g := range h.acked {
		s.ended.addTombstone(g)
	}
	for key, r := range s.foreign {
		if r == release {
			delete(s.foreign, key)
		}
	}
	s.mu.Unlock()
	s.resumeRuns(h)
	s.mu.Lock()
	for _, key := range h.order {
		if p, r := h.runs[key], s.runs[key]; p != nil && p.exit != nil && r != nil {
			s.publishEvent(plan.Event{Exited: r.exit})
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
		b, err := r.encodeRecord()
		out = append(out, b)
		return err
	}
	err := error(nil)
	for graves := range slices.Chunk(h.acked, 8192) {
		err = errors.Join(err, add(ackedRecord(graves)))
	}
	boot := s.hello.BootID
	for _, key := range h.order {
		p := h.runs[key]
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
		if p.ended != nil {
			err = errors.Join(err, add(record{Ended: p.ended}))
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
	for _, f := range []string{SocketName, journalName, journalName + ".new", leaseName, leaseName +
		".new"} {
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
