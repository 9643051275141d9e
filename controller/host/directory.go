package host

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/nss"
	"github.com/musterhpc/muster/spec"
)

// Clock is the machine's clock in the form the controller wants.
type Clock struct{ Of clock.Clock }

// Now implements daemon.Clock.
func (c Clock) Now() spec.Instant { return c.Of.Now() }

// Monotonic implements daemon.Clock.
func (c Clock) Monotonic() spec.Span { return c.Of.Monotonic() }

// After implements daemon.Clock.
func (c Clock) After(d spec.Span) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	t := time.AfterFunc(time.Duration(d), func() { close(ch) })
	return ch, func() { t.Stop() }
}

// directory looks groups up in the machine's own databases and remembers them
// for a minute.
type directory struct {
	mu    sync.Mutex
	known map[string]groups
	log   *slog.Logger

	databases nss.Databases
}

type groups struct {
	primary string
	ids     []uint32
	until   time.Time
}

const (
	groupsTTL = time.Minute
	// lookupLimit is how long a user database may take; a call waits for it.
	lookupLimit = 10 * time.Second
)

// NewDirectory makes a directory that remembers nothing yet.
func NewDirectory(l *slog.Logger) *directory {
	return &directory{known: map[string]groups{}, log: l, databases: nss.System(lookupLimit)}
}

// Groups implements daemon.Directory.
func (d *directory) Groups(ctx context.Context, name string, gid uint32) (string, []uint32) {
	d.mu.Lock()
	g, ok := d.known[name]
	d.mu.Unlock()
	if ok && time.Now().Before(g.until) {
		return g.primary, g.ids
	}
	g = d.lookUp(ctx, name, gid) // which may take long: others need not wait
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) > 10000 {
		clear(d.known)
	}
	d.known[name] = g
	return g.primary, g.ids
}

// User implements daemon.Directory.
func (d *directory) User(ctx context.Context, name string) (uid, gid uint32, ok bool) {
	account, err := d.databases.ByName(ctx, name)
	if err != nil && !errors.Is(err, nss.ErrUnknown) {
		d.log.Warn("a user cannot be looked up", "user", name, "error", err)
	}
	return account.UID, account.GID, err == nil
}

// lookUp asks the databases. It logs what they cannot answer now, and the next call asks
// again.
func (d *directory) lookUp(ctx context.Context, name string, gid uint32) groups {
	out := groups{
		primary: strconv.FormatUint(uint64(gid), 10),
		until:   time.Now().Add(groupsTTL),
	}
	primary, err := d.databases.GroupName(ctx, gid)
	if err == nil {
		out.primary = primary
	}
	ids, groupsErr := d.databases.GroupsOf(ctx, name, gid)
	out.ids = ids
	for _, err := range []error{err, groupsErr} {
		if err != nil && !errors.Is(err, nss.ErrUnknown) {
			d.log.Warn("groups of a user cannot be looked up", "user", name, "error", err)
			out.until = time.Time{}
		}
	}
	return out
}
