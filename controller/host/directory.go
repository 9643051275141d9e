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

// directory looks users and groups up in the machine's own databases.
type directory struct {
	now func() time.Time
	log *slog.Logger

	databases nss.Databases

	groups answers[groups]
	users  answers[account]
}

// groups are those of a user.
type groups struct {
	primary string
	ids     []uint32
}

// account is a user; known is false for a name that nobody has, or that the databases
// did not answer about.
type account struct {
	uid, gid uint32
	known    bool
}

const (
	groupsTTL = time.Minute
	// failureTTL is how long a database that did not answer about a user is not asked about
	// that user again. Each call would wait for it otherwise.
	failureTTL = 10 * time.Second
	// lookupLimit is how long a user database may take; a call waits for it.
	lookupLimit = 10 * time.Second
)

// NewDirectory makes a directory that remembers nothing yet.
func NewDirectory(logger *slog.Logger) *directory {
	return &directory{now: time.Now, log: logger, databases: nss.System(lookupLimit)}
}

// Groups implements daemon.Directory. What is known is remembered for a minute. A
// database that does not answer leaves a user the groups that it named last.
func (d *directory) Groups(ctx context.Context, name string, gid uint32) (string, []uint32) {
	number := strconv.FormatUint(uint64(gid), 10)
	found, ok := d.groups.findAnswer(ctx, d.now, name+"/"+number, func(last *groups) (groups, time.Duration) {
		out, err := d.groupsOf(name, gid)
		if err == nil {
			return out, groupsTTL
		}
		d.log.Warn("groups of a user cannot be looked up", "user", name, "error", err)
		if last != nil {
			return *last, failureTTL
		}
		return out, failureTTL
	})
	if !ok {
		return number, []uint32{gid}
	}
	return found.primary, found.ids
}

// groupsOf asks for the name of a group and for the groups of a user at once: both can
// hang. With an error the result holds what the files say.
func (d *directory) groupsOf(name string, gid uint32) (groups, error) {
	out := groups{primary: strconv.FormatUint(uint64(gid), 10)}
	var nameErr error
	named := make(chan struct{})
	go func() {
		defer close(named)
		var primary string
		primary, nameErr = d.databases.GroupName(context.Background(), gid)
		if nameErr == nil {
			out.primary = primary
		}
	}()
	ids, idsErr := d.databases.GroupsOf(context.Background(), name, gid)
	<-named
	out.ids = ids
	var failed error
	for _, err := range []error{nameErr, idsErr} {
		if err != nil && !errors.Is(err, nss.ErrUnknown) {
			failed = errors.Join(failed, err)
		}
	}
	return out, failed
}

// User implements daemon.Directory. Only that a database did not answer is remembered,
// for a moment: a new user is known at once.
func (d *directory) User(ctx context.Context, name string) (uid, gid uint32, ok bool) {
	found, _ := d.users.findAnswer(ctx, d.now, name, func(*account) (account, time.Duration) {
		of, err := d.databases.ByName(context.Background(), name)
		switch {
		case err == nil:
			return account{uid: of.UID, gid: of.GID, known: true}, 0
		case errors.Is(err, nss.ErrUnknown):
			return account{}, 0
		}
		d.log.Warn("a user cannot be looked up", "user", name, "error", err)
		return account{}, failureTTL
	})
	return found.uid, found.gid, found.known
}

// maxAnswers bounds what is remembered.
const maxAnswers = 10000

// answers remembers what was asked. A question is asked once at a time, however many
// wait for its answer.
type answers[V any] struct {
	mu    sync.Mutex
	known map[string]*answer[V]
}

// answer is a question that is being asked, or its answer.
type answer[V any] struct {
	done  chan struct{} // closed when the fields below are set
	value V
	until time.Time
}

// findAnswer gives the answer to a question, and false if ctx ends before. ask may take long; it is
// told the last answer, nil if there is none, and says how long its own is to be remembered.
func (a *answers[V]) findAnswer(
	ctx context.Context,
	now func() time.Time,
	key string,
	request func(last *V) (V, time.Duration),
) (V, bool) {
	a.mu.Lock()
	last := a.known[key]
	asked := last
	if last == nil || last.isOver() && !now().Before(last.until) {
		asked = a.beginQuestion(key, last)
		go func() {
			var before *V
			if last != nil {
				before = &last.value
			}
			var keep time.Duration
			asked.value, keep = request(before)
			asked.until = now().Add(keep)
			close(asked.done)
		}()
	}
	a.mu.Unlock()
	select {
	case <-asked.done:
		return asked.value, true
	case <-ctx.Done():
		var none V
		return none, false
	}
}

// beginQuestion puts a question in the place of its last answer; a.mu is held.
func (a *answers[V]) beginQuestion(key string, last *answer[V]) *answer[V] {
	if a.known == nil || last == nil && len(a.known) >= maxAnswers {
		a.known = map[string]*answer[V]{}
	}
	asked := &answer[V]{done: make(chan struct{})}
	a.known[key] = asked
	return asked
}

// isOver tells that the answer is there.
func (a *answer[V]) isOver() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
