package log_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// dirStore is a folder of the real filesystem.
type dirStore struct{ dir string }

func (s dirStore) Open(_ testing.TB, m log.Machine) (log.Log, error) {
	return opened(log.Open(context.Background(), log.Options{Dir: s.dir, Machine: m, SegmentBytes: 64 << 10}))
}

func (s dirStore) Fault() func() { return nil }

func opened[L log.Log](l L, err error) (log.Log, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// simStore is a simulated disk, which can fill up.
type simStore struct{ disk *logtest.Disk }

func (s simStore) Open(_ testing.TB, m log.Machine) (log.Log, error) {
	return opened(log.Open(context.Background(), log.Options{Dir: "/d", FS: s.disk.FS(), Machine: m, SegmentBytes: 32 << 10}))
}

func (s simStore) Fault() func() {
	s.disk.SetCapacity(s.disk.Used())
	return func() { s.disk.SetCapacity(1 << 40) }
}

// memStore is the twin without a disk.
type memStore struct {
	store  *log.MemoryStore
	inline bool
	full   *atomic.Bool
}

func (s memStore) Open(_ testing.TB, m log.Machine) (log.Log, error) {
	return opened(log.OpenMemory(log.MemoryOptions{Store: s.store, Machine: m, Inline: s.inline, Fault: func([]byte) error {
		if s.full.Load() {
			return log.ErrDiskFull
		}
		return nil
	}}))
}

func (s memStore) Fault() func() {
	s.full.Store(true)
	return func() { s.full.Store(false) }
}

func TestConformance(t *testing.T) {
	for name, fresh := range map[string]func(t testing.TB) logtest.Store{
		"durable":   func(t testing.TB) logtest.Store { return dirStore{t.TempDir()} },
		"simulated": func(testing.TB) logtest.Store { return simStore{logtest.NewDisk(1)} },
		"memory": func(testing.TB) logtest.Store {
			return memStore{store: &log.MemoryStore{}, full: &atomic.Bool{}}
		},
		"memory inline": func(testing.TB) logtest.Store {
			return memStore{store: &log.MemoryStore{}, inline: true, full: &atomic.Bool{}}
		},
	} {
		t.Run(name, func(t *testing.T) { logtest.Suite(t, fresh) })
	}
}
