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
func (r *report) readSeen(ctx context.Context, request query.Report) (findings.Seen, error) {
	key := fmt.Sprintf("%x %q %+v", r.scope.Ledger, r.scope.Cluster, request)
	now := r.s.D.cfg.Clock.Now()
	window, mine := r.s.D.seen.join(key, now, r.q.GetMinSeq())
	if mine {
		window.seq = r.scope.Event()
		before := len(r.sql)
		window.seen, window.err = r.querySeen(ctx, request)
		window.sql = r.sql[before:len(r.sql):len(r.sql)]
		if window.err != nil {
			r.s.D.seen.drop(key, window)
		} else {
			// A window that took long to read is kept as long as any other.
			r.s.D.seen.keep(window, r.s.D.cfg.Clock.Now().Add(spec.Span(seenFor)))
		}
		close(window.done)
		return window.seen, window.err
	}
	select {
	case <-window.done:
	case <-ctx.Done():
		return findings.Seen{}, context.Cause(ctx)
	}
	if window.err != nil || window.seq < r.q.GetMinSeq() {
		// The reader may have been cancelled, or have begun before what this caller saw.
		return r.querySeen(ctx, request)
	}
	r.sql = append(r.sql, window.sql...)
	return window.seen, nil
}

// join gives what is kept of a window, or a place to fill for the caller alone.
func (s *seenWindows) join(
	key string, now spec.Instant, minSeq uint64,
) (window *seenWindow, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	window = s.list[key]
	if window != nil && now <= window.until && !window.tooOld(minSeq) {
		return window, false
	}
	if s.list == nil {
		s.list = map[string]*seenWindow{}
	}
	for other, kept := range s.list {
		if now > kept.until || len(s.list) >= maxSeen {
			delete(s.list, other)
		}
	}
	window = &seenWindow{done: make(chan struct{}), until: math.MaxInt64}
	s.list[key] = window
	return window, true
}

// keep lets others have a window until an instant.
func (s *seenWindows) keep(window *seenWindow, until spec.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	window.until = until
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

func (s *seenWindows) drop(key string, window *seenWindow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list[key] == window {
		delete(s.list, key)
	}
}
