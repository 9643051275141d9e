package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// logMachine lets the log drive the controller's fold.
type logMachine struct {
	m *daemon.Machine
	// sync puts on the disk what the machine has handed to archive and content
	// store.
	sync func() error
	// complete, if set, fetches from the other controllers what a snapshot names and
	// does not hold.
	complete func() error
}

func (l logMachine) Apply(
	pos log.Position,
	batch []byte,
) error {
	return l.m.Apply(uint64(pos), batch)
}

func (l logMachine) Restore(r io.Reader) error {
	if err := l.m.Restore(r); err != nil {
		return err
	}
	if l.complete == nil {
		return nil
	}
	return l.complete()
}

// Snapshot captures the state. A start from the snapshot does not apply the
// batches before it again, so what they added elsewhere must be on the disk
// before the snapshot is.
func (l logMachine) Snapshot() (func(io.Writer) error, error) {
	write, err := l.m.Snapshot()
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error {
		if err := l.sync(); err != nil {
			return err
		}
		return write(w)
	}, nil
}

// ledgerLog is the durable log as the writer sees it.
type ledgerLog struct{ d *log.Durable }

func (l ledgerLog) Append(batch []byte) daemon.Pending { return pending{l.d.Append(batch)} }
func (l ledgerLog) Resume(ctx context.Context) error   { return ledgerError(l.d.Resume(ctx)) }
func (l ledgerLog) LastPosition() uint64               { return uint64(l.d.LastPosition()) }
func (l ledgerLog) Low() (bool, error) {
	h, err := l.d.Headroom()
	return h.Low(), err
}

type pending struct{ p log.Pending }

func (p pending) Wait(ctx context.Context) error {
	_, err := p.p.Wait(ctx)
	return ledgerError(err)
}

// ledgerError names the errors that the writer must know apart.
func ledgerError(err error) error {
	var elsewhere *log.NotLeaderError
	switch {
	case errors.As(err, &elsewhere) && elsewhere.Unknown:
		return fmt.Errorf("%w: %w", daemon.ErrOutcomeUnknown, err)
	case errors.As(err, &elsewhere):
		return fmt.Errorf("%w: %w", daemon.ErrNotLeader, err)
	case errors.Is(err, log.ErrStopped), errors.Is(err, log.ErrClosed):
		return fmt.Errorf("%w: %w", daemon.ErrLogStopped, err)
	case errors.Is(err, log.ErrDiskFull):
		return fmt.Errorf("%w: %w", daemon.ErrDiskFull, err)
	}
	return err
}

// clockAdapter is the machine's clock in the form the controller wants.
type clockAdapter struct{ c clock.Clock }

func (c clockAdapter) Now() spec.Instant { return c.c.Now() }

func (c clockAdapter) Monotonic() spec.Span { return c.c.Monotonic() }

func (c clockAdapter) After(d spec.Span) (<-chan struct{}, func()) {
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

func newDirectory(l *slog.Logger) *directory {
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

// newCallerFunc makes the controller's view of an identity that the channel proved.
// self is the uid this process runs as: its owner administers the cluster.
func newCallerFunc(self uint32) func(ctx context.Context) daemon.Caller {
	return func(ctx context.Context) daemon.Caller {
		id := identity.From(ctx)
		switch id.Kind {
		case identity.LocalUser, identity.AttestedUser:
			caller := daemon.Caller{UID: id.UID, GID: id.GID, User: authz.UserName(id)}
			if id.Kind == identity.LocalUser {
				caller.Admin = id.UID == 0 || id.UID == self
			} else {
				caller.Host, caller.Limited = id.Node, id.By == identity.Agent
			}
			return caller
		case identity.Agent:
			return daemon.Caller{Node: id.Node}
		case identity.Login:
			return daemon.Caller{Login: id.Node}
		case identity.Admin:
			return daemon.Caller{
				UID:   identity.NoID,
				GID:   identity.NoID,
				NoUID: true,
				User:  id.User,
				Admin: true,
				Host:  "tls",
			}
		}
		return daemon.Caller{}
	}
}
