package nss

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Accounts remembers accounts by their number, and looks each up once at a time: a
// user with a thousand jobs costs one process, and one whose lookup hangs delays
// nobody else.
type Accounts struct {
	of  Databases
	ttl time.Duration

	mu    sync.Mutex
	known map[uint32]*lookup
}

// lookup is one that is going on, or its answer.
type lookup struct {
	done    chan struct{} // closed when the fields below are set
	account Account
	err     error
	until   time.Time
}

// The bounds of what is remembered.
const (
	accountTTL  = time.Minute
	maxAccounts = 4096
)

// NewAccounts remembers nothing yet.
func NewAccounts(of Databases) *Accounts {
	return &Accounts{of: of, ttl: accountTTL, known: map[uint32]*lookup{}}
}

// Find gives an account. That there is none is remembered too, a failure is not. It
// returns when ctx ends; the lookup goes on for others, at most as long as the
// databases may take.
func (a *Accounts) Find(ctx context.Context, uid uint32) (Account, error) {
	a.mu.Lock()
	look := a.known[uid]
	if look == nil || look.isOld() {
		look = a.begin(uid)
	}
	a.mu.Unlock()
	select {
	case <-look.done:
		return look.account, look.err
	case <-ctx.Done():
		return Account{}, context.Cause(ctx)
	}
}

// begin starts a lookup; a.mu is held.
func (a *Accounts) begin(uid uint32) *lookup {
	if len(a.known) >= maxAccounts {
		for other, old := range a.known {
			if old.isOld() || len(a.known) >= maxAccounts {
				delete(a.known, other)
			}
		}
	}
	look := &lookup{done: make(chan struct{})}
	a.known[uid] = look
	go func() {
		look.account, look.err = a.of.ByUID(context.Background(), uid)
		look.until = time.Now().Add(a.ttl)
		// Who hears of a failure and asks again must not find it here.
		if look.err != nil && !errors.Is(look.err, ErrUnknown) {
			a.forget(uid, look)
		}
		close(look.done)
	}()
	return look
}

// forget drops a lookup, unless another has taken its place.
func (a *Accounts) forget(uid uint32, look *lookup) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[uid] == look {
		delete(a.known, uid)
	}
}

// isOld tells that a lookup is over and was too long ago.
func (l *lookup) isOld() bool {
	select {
	case <-l.done:
		return !time.Now().Before(l.until)
	default:
		return false
	}
}
