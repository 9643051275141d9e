package blob

import (
	"errors"
	"os"
	"sort"

	"github.com/musterhpc/muster/internal/durable"
)

// Swept is what a Sweep did.
type Swept struct {
	Removed      int   // blobs forgotten
	RemovedBytes int64 // their bytes
	Files        int   // files removed
	Freed        int64 // bytes given back to the filesystem
}

// Sweep forgets every blob that keep does not want and gives back the space of files that are
// at least half empty. keep must know of every reference whose Put returned before Sweep was
// called; blobs put during the Sweep always stay. Only complete files are looked at, so that
// the newest blobs are left alone.
//
// Space inside a file that is more than half full is given back by a later Sweep; after a
// restart such blobs are known again until then.
func (s *Store) Sweep(keep func(Hash) bool) (Swept, error) {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	var swept Swept
	if err := s.syncActive(); err != nil {
		return swept, err
	}
	s.mu.Lock()
	s.touched = map[Hash]bool{}
	var ids []uint32
	for id, f := range s.files {
		if f.sealed {
			ids = append(ids, id)
		}
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.touched = nil
		s.mu.Unlock()
	}()
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	for _, id := range ids {
		if err := s.sweepFile(id, keep, &swept); err != nil {
			return swept, err
		}
	}
	return swept, nil
}

func (s *Store) sweepFile(id uint32, keep func(Hash) bool, swept *Swept) error {
	entries := readIndex(s.dir, id)
	s.mu.RLock()
	f := s.files[id]
	s.mu.RUnlock()
	if entries == nil {
		var err error
		entries, _, _, err = f.scanRecords()
		if err != nil {
			return err
		}
	}
	var live []entry
	var liveBytes int64
	for _, e := range entries {
		wanted := keep(e.hash)
		s.mu.Lock()
		switch {
		case s.index[e.hash] != e.at:
			// It is elsewhere, or was forgotten before.
		case wanted || s.touched[e.hash]:
			live = append(live, e)
			liveBytes += recordHeader + int64(e.at.n)
		default:
			delete(s.index, e.hash)
			s.bytes -= int64(e.at.n)
			s.cache.remove(e.hash)
			swept.Removed++
			swept.RemovedBytes += int64(e.at.n)
		}
		s.mu.Unlock()
	}
	if liveBytes > f.size/2 {
		return nil
	}
	if err := s.moveAll(live); err != nil {
		return err
	}
	// The copies must be durable before the originals go.
	if err := s.syncActive(); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.files, id)
	s.mu.Unlock()
	swept.Files++
	swept.Freed += f.size - liveBytes
	err := os.Remove(indexPath(s.dir, id))
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(f.f.Close(), err, os.Remove(f.path), durable.SyncDir(s.dir))
}

// moveAll copies blobs into the active file. A damaged one is forgotten, as Get would.
func (s *Store) moveAll(live []entry) error {
	for _, e := range live {
		data, at, err := s.readBlob(e.hash)
		if err == nil && Sum(data) != e.hash {
			err = s.forgetDamaged(e.hash, at)
		}
		if errors.Is(err, ErrCorrupt) {
			s.opts.Logger.Error("a blob is damaged", "error", err)
			continue
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		err = s.appendBlob(e.hash, data)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
