package daemon

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// seenFor is how long what findings of a window are made of is kept: a page asks for
// several reports about the same window, and its questions are the largest of all.
const seenFor = 30 * time.Second

// maxSeen bounds how many windows are kept.
const maxSeen = 8

// seenWindows keeps what was read of windows, and lets callers who ask for the same at
// once wait for one reader.
type seenWindows struct {
	mu   sync.Mutex
	list map[string]*seenWindow
}

// seenWindow is what was read of one window.
type seenWindow struct {
	done  chan struct{} // closed when what follows is set
	until spec.Instant  // guarded by the mutex of seenWindows; endless while it is read
	seq   uint64
	seen  findings.Seen
	sql   []string
	err   error
}

// readSeen reads what findings of a window are made of, or takes what was read moments ago
// at a position that suffices. The answer must not be changed.
func (r *report) readSeen(ctx context.Context, ask query.Report) (findings.Seen, error) {
	key := fmt.Sprintf("%x %q %+v", r.scope.Ledger, r.scope.Cluster, ask)
	now := r.s.D.cfg.Clock.Now()
	w, mine := r.s.D.seen.join(key, now, r.q.GetMinSeq())
	if mine {
		w.seq = r.scope.Event()
		before := len(r.sql)
		w.seen, w.err = r.querySeen(ctx, ask)
		w.sql = r.sql[before:len(r.sql):len(r.sql)]
		if w.err != nil {
			r.s.D.seen.drop(key, w)
		} else {
			// A window that took long to read is kept as long as any other.
			r.s.D.seen.keep(w, r.s.D.cfg.Clock.Now().Add(spec.Span(seenFor)))
		}
		close(w.done)
		return w.seen, w.err
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return findings.Seen{}, context.Cause(ctx)
	}
	if w.err != nil || w.seq < r.q.GetMinSeq() {
		// The reader may have been cancelled, or have begun before what this caller saw.
		return r.querySeen(ctx, ask)
	}
	r.sql = append(r.sql, w.sql...)
	return w.seen, nil
}

// join gives what is kept of a window, or a place to fill for the caller alone.
func (s *seenWindows) join(key string, now spec.Instant, minSeq uint64) (w *seenWindow, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w = s.list[key]
	if w != nil && now <= w.until && !w.tooOld(minSeq) {
		return w, false
	}
	if s.list == nil {
		s.list = map[string]*seenWindow{}
	}
	for other, kept := range s.list {
		if now > kept.until || len(s.list) >= maxSeen {
			delete(s.list, other)
		}
	}
	w = &seenWindow{done: make(chan struct{}), until: math.MaxInt64}
	s.list[key] = w
	return w, true
}

// keep lets others have a window until an instant.
func (s *seenWindows) keep(w *seenWindow, until spec.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.until = until
}

// tooOld tells whether what was read lacks events that the caller has seen.
func (w *seenWindow) tooOld(minSeq uint64) bool {
	select {
	case <-w.done:
		return w.seq < minSeq
	default:
		return false
	}
}

func (s *seenWindows) drop(key string, w *seenWindow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list[key] == w {
		delete(s.list, key)
	}
}
