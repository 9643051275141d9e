package daemon

import (
	"context"

	"github.com/musterhpc/muster/spec"
)

// Counting shares its machine with the controller, and mostly a process too.
// While the ledger grows so fast that the controller has work for every core
// (thousands of jobs a second are submitted), counting takes a small part of one
// and catches up afterwards, in larger batches that cost less for each row: the
// ledger keeps everything meanwhile. It does not fall behind without end, and
// who asks for what is new is not kept waiting.
const (
	burstEvents = 2_500                 // that the ledger grows by in a second, or more
	burstLook   = 50 * spec.Millisecond // how often that is looked at
	burstTimes  = 19                    // rest, in times of what counting an entry took
	burstRest   = 100 * spec.Millisecond
	burstLag    = 30 * spec.Second // the oldest event not counted may be so old
)

// pace tells bursts of the ledger. Its zero value has seen nothing.
type pace struct {
	at    spec.Instant // when the ledger's head was looked at last
	head  uint64
	burst bool
	asked uint64 // somebody waits for events up to here
}

// inBurst tells whether the ledger is in a burst.
func (p *pace) inBurst(now spec.Instant, head func() uint64) bool {
	span := now.Sub(p.at)
	if span >= 0 && span < burstLook {
		return p.burst
	}
	before, first := p.head, span < 0 || span > spec.Minute // the clock may have been set back
	p.at, p.head = now, head()
	p.burst = !first && p.head > before &&
		int64(p.head-before) > burstEvents*int64(span)/int64(spec.Second)
	return p.burst
}

// yieldAfter rests after an entry whose counting began at an instant, if there is a
// burst. old is the instant of the entry.
func (s *session) yieldAfter(ctx context.Context, began, old spec.Instant) {
	now := s.d.cfg.Clock.Now()
	burst := s.pace.inBurst(now, s.ledgerHead) && now.Sub(old) < burstLag &&
		s.tally.Seq() >= s.pace.asked
	s.burst.Store(burst)
	if !burst {
		return
	}
	over, stop := s.d.cfg.Clock.After(min(burstTimes*now.Sub(began), burstRest))
	defer stop()
	select {
	case <-over:
	case <-s.d.hurry:
		s.d.hastenIngest() // for count to see
	case <-ctx.Done():
	}
}

// countHurried counts on without rest up to the ledger's end, and wakes the writer.
func (s *session) countHurried() {
	s.pace.asked = s.ledgerHead()
	select {
	case s.awake <- struct{}{}:
	default:
	}
}

func (s *session) ledgerHead() uint64 {
	head, _ := s.d.cfg.Source.Head()
	return head
}
