// Package limit bounds what one party can make a server hold and do: connections,
// bytes of requests, and calls per second.
//
// One Table serves the framed protocol, gRPC and REST together, so that nobody
// gets his share three times. A party is an identity where the channel proves
// one, and an address where it does not. Nothing here waits: what exceeds a limit
// is refused at once, before its body is read, and counted by its reason.
package limit

import (
	"container/list"
	"net"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// Reason says which limit was exceeded.
type Reason uint8

// The reasons.
const (
	Connections Reason = iota // connections that are open
	Anonymous                 // connections of one address that prove no identity
	Bytes                     // bytes of requests that are not handled yet
	Rate                      // calls per second
	Body                      // a request that does not become complete in time
	Complexity                // a request that costs too much to decode
	numReasons
)

// String returns the reason as metrics label it.
func (r Reason) String() string {
	return [...]string{"connections", "anonymous_connections", "bytes", "rate", "body_deadline", "complexity"}[r]
}

// Config are the limits. A zero field takes the value of Defaults.
type Config struct {
	// UserConnections is how many connections one user has at a time, and
	// MachineConnections how many a node or login host has, which carries the
	// commands of all of its users. Root and the owner of the process count as
	// machines.
	UserConnections    int
	MachineConnections int
	// AddressConnections is how many connections one address has that prove no
	// identity: those that came without a certificate, and, counted apart so that
	// they do not keep out who has one, those in their handshake.
	AddressConnections int
	// UserBytes and MachineBytes bound the requests that one party has sent and
	// that are not handled yet; AllBytes those of all parties together.
	UserBytes    int64
	MachineBytes int64
	AllBytes     int64
	// Rate limits the calls of users, as Slurm's rl_* parameters do. It is asked at
	// each call, so that a reconfiguration takes effect at once. nil = no limit.
	Rate func() RateConfig
	// Self is the uid of the process.
	Self uint32
}

// RateConfig is a bucket of calls for each user: each call takes one, and Refill
// are put back every Period, up to Bucket.
type RateConfig struct {
	Enabled bool
	Bucket  int
	Refill  int
	Period  time.Duration
	// Users is for how many users buckets are kept; the one that called longest
	// ago is forgotten first, with a full bucket.
	Users int
}

// Defaults are the limits of a controller that is configured with nothing. As in
// Slurm, calls per second are limited only where that is enabled.
func Defaults() Config {
	return Config{
		UserConnections: 512, MachineConnections: 2048, AddressConnections: 256,
		UserBytes: 64 << 20, MachineBytes: 192 << 20, AllBytes: 512 << 20,
	}
}

// orDefault takes the default where nothing is set.
func orDefault[T int | int64 | time.Duration](set *T, fallback T) {
	if *set <= 0 {
		*set = fallback
	}
}

func (c Config) withDefaults() Config {
	d := Defaults()
	orDefault(&c.UserConnections, d.UserConnections)
	orDefault(&c.MachineConnections, d.MachineConnections)
	orDefault(&c.AddressConnections, d.AddressConnections)
	orDefault(&c.UserBytes, d.UserBytes)
	orDefault(&c.MachineBytes, d.MachineBytes)
	orDefault(&c.AllBytes, d.AllBytes)
	return c
}

// DefaultRate has the figures that Slurm has without rl_bucket_size and its like.
func DefaultRate() RateConfig {
	return RateConfig{Enabled: true, Bucket: 30, Refill: 2, Period: time.Second, Users: 8192}
}

// rate is what limits calls now.
func (t *Table) rate() RateConfig {
	if t.cfg.Rate == nil {
		return RateConfig{}
	}
	rate, config := t.cfg.Rate(), DefaultRate()
	orDefault(&rate.Bucket, config.Bucket)
	orDefault(&rate.Refill, config.Refill)
	orDefault(&rate.Period, config.Period)
	orDefault(&rate.Users, config.Users)
	return rate
}

// Table counts what parties hold. It is safe for several goroutines.
type Table struct {
	cfg Config
	now func() time.Time

	mu          sync.Mutex
	connections map[string]int
	bytes       map[string]int64
	allBytes    int64
	buckets     map[string]*list.Element // of *bucket
	recent      *list.List               // of *bucket, last caller first
	refused     [numReasons]uint64
}

// bucket are the calls that a user may still make.
type bucket struct {
	key    string
	calls  int
	filled time.Time // up to when refills have been put in
}

// New makes a table.
func New(config Config, now func() time.Time) *Table {
	return &Table{
		cfg: config.withDefaults(), now: now,
		connections: make(map[string]int), bytes: make(map[string]int64),
		buckets: make(map[string]*list.Element), recent: list.New(),
	}
}

// Party is whose share something counts against.
type Party struct {
	key         string
	connections int
	bytes       int64
	reason      Reason // of a refused connection
	limited     bool   // its calls per second are
}

// PartyOf finds the party of a connection. Without an identity it is the address
// from which the connection comes.
func (t *Table) PartyOf(id identity.Identity, from net.Addr) Party {
	switch id.Kind {
	case identity.Anonymous:
		return Party{
			key:         "address:" + hostOf(from),
			connections: t.cfg.AddressConnections,
			bytes:       t.cfg.UserBytes,
			reason:      Anonymous,
			limited:     true,
		}
	case identity.LocalUser:
		if id.UID == 0 || id.UID == t.cfg.Self {
			return Party{
				key:         id.Key(),
				connections: t.cfg.MachineConnections,
				bytes:       t.cfg.MachineBytes,
			}
		}
	case identity.AttestedUser:
	default:
		return Party{
			key:         id.Key(),
			connections: t.cfg.MachineConnections,
			bytes:       t.cfg.MachineBytes,
		}
	}
	return Party{
		key:         id.Key(),
		connections: t.cfg.UserConnections,
		bytes:       t.cfg.UserBytes,
		limited:     true,
	}
}

// HandshakeOf is the party of a connection whose peer has still to prove who he
// is.
func (t *Table) HandshakeOf(from net.Addr) Party {
	return Party{
		key:         "handshake:" + hostOf(from),
		connections: t.cfg.AddressConnections,
		reason:      Anonymous,
	}
}

// hostOf is an address without its port.
func hostOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}

// Connect counts a connection in, or refuses it.
func (t *Table) Connect(party Party) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.connections[party.key] >= party.connections {
		t.refused[party.reason]++
		return false
	}
	t.connections[party.key]++
	return true
}

// Disconnect counts a connection out.
func (t *Table) Disconnect(party Party) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connections[party.key]--
	if t.connections[party.key] <= 0 {
		delete(t.connections, party.key)
	}
}

// Take counts bytes of a request in, before there is room for them, or refuses
// them.
func (t *Table) Take(party Party, n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bytes[party.key]+n > party.bytes || t.allBytes+n > t.cfg.AllBytes {
		t.refused[Bytes]++
		return false
	}
	t.bytes[party.key] += n
	t.allBytes += n
	return true
}

// Give counts bytes out.
func (t *Table) Give(party Party, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.allBytes -= n
	t.bytes[party.key] -= n
	if t.bytes[party.key] <= 0 {
		delete(t.bytes, party.key)
	}
}

// Call takes one call out of the party's bucket, or refuses it.
func (t *Table) Call(party Party) bool {
	rate := t.rate()
	if !rate.Enabled || !party.limited {
		return true
	}
	now := t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bucketOf(party.key, rate, now)
	periods := int64(now.Sub(b.filled) / rate.Period)
	if periods > 0 {
		missing := int64(max(rate.Bucket-b.calls, 0))
		// The product of two large figures could overflow, and more than what is
		// missing never goes in.
		b.calls += int(min(missing, min(periods, missing)*int64(rate.Refill)))
		b.filled = b.filled.Add(time.Duration(periods) * rate.Period)
	}
	if b.calls == 0 {
		t.refused[Rate]++
		return false
	}
	b.calls--
	return true
}

func (t *Table) bucketOf(key string, rate RateConfig, now time.Time) *bucket {
	if element := t.buckets[key]; element != nil {
		t.recent.MoveToFront(element)
		return element.Value.(*bucket)
	}
	for t.recent.Len() >= rate.Users {
		oldest := t.recent.Back()
		delete(t.buckets, oldest.Value.(*bucket).key)
		t.recent.Remove(oldest)
	}
	b := &bucket{key: key, calls: rate.Bucket, filled: now}
	t.buckets[key] = t.recent.PushFront(b)
	return b
}

// Refuse counts what a server has refused by a limit of its own.
func (t *Table) Refuse(why Reason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refused[why]++
}

// Refused tells how often each limit was exceeded.
func (t *Table) Refused() map[Reason]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[Reason]uint64, numReasons)
	for reason, n := range t.refused {
		out[Reason(reason)] = n
	}
	return out
}
