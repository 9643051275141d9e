package usertoken

import (
	"sync"
	"time"
)

// Uses remembers when tokens were shown last, for as long as the process lives. It is
// safe for several goroutines.
type Uses struct {
	mu   sync.Mutex
	last map[string]time.Time // by id
}

// Note notes that a token was shown and accepted.
func (u *Uses) Note(id string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last == nil {
		u.last = map[string]time.Time{}
	}
	u.last[id] = now
}

// Last gives the last uses of tokens, and forgets those of all other tokens.
func (u *Uses) Last(ids []string) map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	keep := make(map[string]time.Time, len(ids))
	for _, id := range ids {
		if at, used := u.last[id]; used {
			keep[id] = at
		}
	}
	u.last = keep
	out := make(map[string]time.Time, len(keep))
	for id, at := range keep {
		out[id] = at
	}
	return out
}
