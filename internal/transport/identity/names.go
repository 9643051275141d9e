package identity

import (
	"bufio"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ErrNoUser is wrapped when a uid has no name.
var ErrNoUser = errors.New("no user with this uid")

// Resolver finds the name of a uid. ErrNoUser says that there is none; any other error that it
// could not be found out.
type Resolver interface {
	UserName(ctx context.Context, uid uint32) (string, error)
}

// Passwd resolves names from a passwd file, and, for uids that are not in it, by asking getent,
// which knows LDAP, SSSD and the other sources of nsswitch.conf without linking libc.
type Passwd struct {
	File   string        // usually /etc/passwd
	Getent string        // path of getent; "" = do not ask it
	Limit  time.Duration // how long getent may take; 0 = 2 seconds
}

// SystemPasswd is Passwd for this machine: /etc/passwd, and getent where it is installed.
func SystemPasswd() Passwd {
	passwd := Passwd{File: "/etc/passwd"}
	if path, err := exec.LookPath("getent"); err == nil {
		passwd.Getent = path
	}
	return passwd
}

// UserName implements Resolver.
func (p Passwd) UserName(ctx context.Context, uid uint32) (string, error) {
	file, err := os.Open(p.File)
	if err != nil {
		return "", fmt.Errorf("name of uid %d: %w", uid, err)
	}
	defer file.Close()
	name, err := FindUser(file, uid)
	if !errors.Is(err, ErrNoUser) || p.Getent == "" {
		return name, err
	}
	return p.getent(ctx, uid)
}

func (p Passwd) getent(ctx context.Context, uid uint32) (string, error) {
	limit := p.Limit
	if limit == 0 {
		limit = 2 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.Getent, "passwd", strconv.FormatUint(uint64(uid), 10)).
		Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("name of uid %d: getent: %w", uid, ctx.Err())
	case errors.As(err, &exit) && exit.ExitCode() == 2: // getent's "key not found"
		return "", fmt.Errorf("uid %d: %w", uid, ErrNoUser)
	case err != nil:
		return "", fmt.Errorf("name of uid %d: getent: %w", uid, err)
	}
	return FindUser(strings.NewReader(string(out)), uid)
}

// FindUser returns the name of uid in text of the form of passwd(5); lines that are not of that
// form are skipped.
func FindUser(r io.Reader, uid uint32) (string, error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		field := strings.SplitN(lines.Text(), ":", 5)
		if len(field) < 4 || field[0] == "" || strings.ContainsAny(field[0][:1], "#+-") {
			continue
		}
		if n, err := strconv.ParseUint(field[2], 10, 32); err == nil && uint32(n) == uid {
			return field[0], nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", fmt.Errorf("name of uid %d: %w", uid, err)
	}
	return "", fmt.Errorf("uid %d: %w", uid, ErrNoUser)
}

// Cache remembers the answers of another Resolver, a bounded number of them for a bounded time,
// that a uid has no name too. Failures are not remembered.
type Cache struct {
	from Resolver
	max  int
	ttl  time.Duration
	now  func() time.Time

	mu    sync.Mutex
	byUID map[uint32]*list.Element
	order *list.List // of *entry, last used first
}

type entry struct {
	uid   uint32
	name  string // "" = the uid has no name
	until time.Time
}

// NewCache returns a cache of at most max answers (0 = 4096), each kept for ttl (0 = one minute).
func NewCache(from Resolver, max int, ttl time.Duration, now func() time.Time) *Cache {
	if max <= 0 {
		max = 4096
	}
	if ttl <= 0 {
		ttl = time.Minute
	}
	return &Cache{
		from:  from,
		max:   max,
		ttl:   ttl,
		now:   now,
		byUID: make(map[uint32]*list.Element),
		order: list.New(),
	}
}

// UserName implements Resolver.
func (c *Cache) UserName(ctx context.Context, uid uint32) (string, error) {
	if e, ok := c.lookup(uid); ok {
		if e.name == "" {
			return "", fmt.Errorf("uid %d: %w", uid, ErrNoUser)
		}
		return e.name, nil
	}
	name, err := c.from.UserName(ctx, uid) // outside the lock: it may be slow
	if err != nil && !errors.Is(err, ErrNoUser) {
		return "", err
	}
	c.store(entry{uid: uid, name: name, until: c.now().Add(c.ttl)})
	return name, err
}

func (c *Cache) lookup(uid uint32) (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byUID[uid]
	if !ok {
		return entry{}, false
	}
	e := el.Value.(*entry)
	if !c.now().Before(e.until) {
		c.order.Remove(el)
		delete(c.byUID, uid)
		return entry{}, false
	}
	c.order.MoveToFront(el)
	return *e, true
}

func (c *Cache) store(e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.byUID[e.uid]; ok {
		c.order.Remove(el)
	} else if c.order.Len() >= c.max {
		oldest := c.order.Back()
		c.order.Remove(oldest)
		delete(c.byUID, oldest.Value.(*entry).uid)
	}
	c.byUID[e.uid] = c.order.PushFront(&e)
}

// Len returns how many answers are held.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.order.Len()
}
