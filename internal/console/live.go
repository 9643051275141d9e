package console

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// pulse is the least time between two messages to open pages. A page that is
// told reads itself again, so this bounds what pages cost, however fast the
// ledger grows.
const pulse = time.Second

// beat is how often a page that is told nothing gets a comment, so that a
// proxy does not end its stream.
const beat = 20 * time.Second

// maxStreams bounds the open pages of one user.
const maxStreams = 64

// live tells open pages that the cluster has changed.
type live struct {
	mu      sync.Mutex
	seq     uint64
	changed chan struct{}
	open    map[string]int // streams by user
	ended   bool
}

func newLive() *live { return &live{changed: make(chan struct{}), open: map[string]int{}} }

// Run follows the published view until the context ends. What happens after a
// while of nothing is told at once.
func (c *Console) Run(ctx context.Context) error {
	defer c.live.end()
	for {
		seq, changed := c.cfg.Changed()
		c.live.tell(seq)
		told := time.Now()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(pulse - time.Since(told)):
		case <-ctx.Done():
			return nil
		}
	}
}

func (l *live) tell(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq == l.seq || l.ended {
		return
	}
	l.seq = seq
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *live) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	close(l.changed)
}

// currentPosition is the newest position and what closes when there is a newer one.
func (l *live) currentPosition() (seq uint64, changed <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seq, l.changed, l.ended
}

// enter counts a stream of a user in, or refuses it.
func (l *live) enter(user string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[user] >= maxStreams {
		return false
	}
	l.open[user]++
	return true
}

func (l *live) leave(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[user]--
	if l.open[user] == 0 {
		delete(l.open, user)
	}
}

// serveLive sends the position of the ledger each time it has grown, as
// server-sent events. It carries nothing else: what a visitor may see of the
// change he finds out by reading his page again. The stream ends when his
// token does.
func (c *Console) serveLive(writer http.ResponseWriter, request *http.Request) {
	v, err := c.identifyVisitor(request)
	if err != nil {
		http.Error(writer, "sign in first", http.StatusUnauthorized)
		return
	}
	key := v.id.Key()
	if !c.live.enter(key) {
		http.Error(
			writer,
			fmt.Sprintf("you have %d pages open already", maxStreams),
			http.StatusTooManyRequests,
		)
		return
	}
	defer c.live.leave(key)
	writer.Header().Set("Content-Type", "text/event-stream")
	writer.Header().Set("Cache-Control", "no-store")
	writer.Header().Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(writer)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		seq, changed, ended := c.live.currentPosition()
		if ended {
			return
		}
		if _, err := fmt.Fprintf(writer, "data: %d\n\n", seq); err != nil ||
			control.Flush() != nil {
			return
		}
		waiting := true
		for waiting {
			select {
			case <-changed:
				waiting = false
			case <-ticker.C:
				if _, err := c.identifyVisitor(request); err != nil {
					return
				}
				if _, err := fmt.Fprint(writer, ": open\n\n"); err != nil ||
					control.Flush() != nil {
					return
				}
			case <-request.Context().Done():
				return
			}
		}
	}
}
