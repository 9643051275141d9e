package host

import (
	"context"
	"log/slog"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/clock"
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
}

type groups struct {
	primary string
	ids     []uint32
	until   time.Time
}

const groupsTTL = time.Minute

// NewDirectory makes a directory that remembers nothing yet.
func NewDirectory(l *slog.Logger) *directory {
	return &directory{known: map[string]groups{}, log: l}
}

// Groups implements daemon.Directory.
func (d *directory) Groups(_ context.Context, name string, gid uint32) (string, []uint32) {
	d.mu.Lock()
	g, ok := d.known[name]
	d.mu.Unlock()
	if ok && time.Now().Before(g.until) {
		return g.primary, g.ids
	}
	g = lookUp(name, gid) // which may take long: others need not wait
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) > 10000 {
		clear(d.known)
	}
	d.known[name] = g
	return g.primary, g.ids
}

// User implements daemon.Directory.
func (d *directory) User(_ context.Context, name string) (uid, gid uint32, ok bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, false
	}
	id, uerr := strconv.ParseUint(u.Uid, 10, 32)
	group, gerr := strconv.ParseUint(u.Gid, 10, 32)
	return uint32(id), uint32(group), uerr == nil && gerr == nil
}

func lookUp(name string, gid uint32) groups {
	g := groups{
		primary: strconv.FormatUint(uint64(gid), 10),
		ids:     []uint32{gid},
		until:   time.Now().Add(groupsTTL),
	}
	if pg, err := user.LookupGroupId(g.primary); err == nil {
		g.primary = pg.Name
	}
	if u, err := user.Lookup(name); err == nil {
		if ids, err := u.GroupIds(); err == nil {
			g.ids = g.ids[:0]
			for _, id := range ids {
				if n, err := strconv.ParseUint(id, 10, 32); err == nil {
					g.ids = append(g.ids, uint32(n))
				}
			}
		}
	}
	return g
}
