package audit

import (
	"sync"
	"time"
)

// Bounds of refusals.
const (
	partyBurst = 20 // refusals of one party at once, and then …
	partyRate  = 1  // … a second
	allBurst   = 500
	allRate    = 50
	// maxParties bounds what is remembered; who is not remembered has his burst again.
	maxParties       = 4096
	inboxRoom        = 2048 // lines that wait for one target
	tellLeftOutEvery = 10 * time.Second
)

// Refusals takes refusals from whoever refuses, never waits, and hands them to
// the exporters within its bounds.
type Refusals struct {
	origin Origin
	now    func() time.Time

	mu      sync.Mutex
	all     bucket
	parties map[string]*bucket
	inboxes []*inbox
	count   uint64
}

// bucket holds the refusals that may be written at once.
type bucket struct {
	left float64
	at   time.Time
}

func (b *bucket) take(now time.Time, rate, burst float64) bool {
	if b.at.IsZero() {
		b.left = burst
	} else {
		b.left = min(burst, b.left+now.Sub(b.at).Seconds()*rate)
	}
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// NewRefusals makes one that nobody reads yet.
func NewRefusals(origin Origin, now func() time.Time) *Refusals {
	return &Refusals{origin: origin, now: now, parties: map[string]*bucket{}}
}

// inbox are the refusals that wait for one target.
type inbox struct {
	lines chan string

	mu   sync.Mutex
	left uint64 // that were left out
	told uint64 // of these, in records
}

func (r *Refusals) attachInbox() *inbox {
	in := &inbox{lines: make(chan string, inboxRoom)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inboxes = append(r.inboxes, in)
	return in
}

// Report takes a refusal.
func (r *Refusals) Report(refusal Refusal) {
	now := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.admits(refusal, now) {
		for _, in := range r.inboxes {
			in.leaveOut()
		}
		return
	}
	r.count++
	line, err := r.origin.FromRefusal(now, r.count, refusal).Line()
	for _, in := range r.inboxes {
		if err != nil || !in.offer(line) {
			in.leaveOut()
		}
	}
}

// offer puts a line in if there is room.
func (in *inbox) offer(line string) bool {
	select {
	case in.lines <- line:
		return true
	default:
		return false
	}
}

// admits asks the bucket of the party before that of all, so that one who floods
// takes little of what others need.
func (r *Refusals) admits(refusal Refusal, now time.Time) bool {
	key := refusal.User + "\x00" + refusal.Node + "\x00" + refusal.Address
	b := r.parties[key]
	if b == nil {
		if len(r.parties) >= maxParties {
			clear(r.parties)
		}
		b = &bucket{}
		r.parties[key] = b
	}
	return b.take(now, partyRate, partyBurst) && r.all.take(now, allRate, allBurst)
}

func (in *inbox) leaveOut() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.left++
}

func (in *inbox) leftOut() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.left
}

// newlyLeftOut is how many were left out since it was last asked.
func (in *inbox) newlyLeftOut() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := in.left - in.told
	in.told = in.left
	return n
}

// addWaiting adds what else waits.
func (in *inbox) addWaiting(lines ...string) []string {
	for len(lines) < inboxRoom {
		select {
		case line := <-in.lines:
			lines = append(lines, line)
		default:
			return lines
		}
	}
	return lines
}
