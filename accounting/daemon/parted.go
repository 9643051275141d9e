package daemon

import (
	"context"
	"fmt"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
)

// parted is where the ledger's history parts from what the store holds. A ledger
// that was restored from an older copy goes on with numbers of events that the
// store has already, for events that are lost: those stay in the store, and what
// comes is stored behind them.
type parted struct {
	shared []tally.Stretch
	gaps   []tally.Gap
	ahead  []forkPoint // that the tally has not passed yet
	behind []tally.Gap // that it has passed
	now    bool        // the store has a newest part that the ledger has lost
	epoch  uint64      // of the ledger's first event that the store does not have, if now
}

// forkPoint is a lost stretch of the store, and the ledger's last event before
// it.
type forkPoint struct {
	event uint64
	gap   tally.Gap
}

// lastEvent is the ledger's last event that the store has.
func (p *parted) lastEvent() uint64 { return tally.Event(p.shared) }

// endPosition is the position of that event.
func (p *parted) endPosition() uint64 {
	if len(p.shared) == 0 {
		return 0
	}
	return p.shared[len(p.shared)-1].To
}

// eventAt is the number of the event at a position, if that is of the ledger's own
// history. The position right before a stretch has its counting state too: it is
// where a branch began.
func (p *parted) eventAt(position uint64) (seq uint64, ours bool) {
	for _, s := range p.shared {
		if position+1 >= s.From && position <= s.To {
			seq, ours = position-s.Shift, true
		}
	}
	return seq, ours
}

// forks are all places where lost histories parted from the ledger's own.
func (p *parted) forks() []forkPoint {
	var out []forkPoint
	for i := 1; i < len(p.shared); i++ {
		before, next := p.shared[i-1], p.shared[i]
		gap := tally.Gap{From: before.To + 1, To: next.From - 1}
		out = append(out, forkPoint{before.To - before.Shift, gap})
	}
	if p.now {
		out = append(out, forkPoint{p.lastEvent(), p.gaps[len(p.gaps)-1]})
	}
	return out
}

// beginAt sorts the fork points into those ahead of a counting state at a position
// and those behind it.
func (p *parted) beginAt(label uint64) {
	p.ahead = nil
	p.behind = nil
	for i := 1; i < len(p.shared); i++ {
		before, next := p.shared[i-1], p.shared[i]
		gap := tally.Gap{From: before.To + 1, To: next.From - 1}
		if label+1 < next.From {
			p.ahead = append(p.ahead, forkPoint{before.To - before.Shift, gap})
		} else {
			p.behind = append(p.behind, gap)
		}
	}
}

// renumberRuns has the tally number its runs above those of a lost stretch.
func (s *session) renumberRuns(ctx context.Context, gap tally.Gap) error {
	used, err := s.d.cfg.Store.LastRuns(ctx, s.d.ledger, gap.From, gap.To)
	if err != nil {
		return err
	}
	s.tally.Renumber(used)
	return nil
}

// passFork takes the tally, which stands where two histories part, past the lost
// stretch: what runs there and ended in the stretch is counted already.
func (s *session) passFork(ctx context.Context, gap tally.Gap) error {
	ended, err := s.d.cfg.Store.EndedRuns(ctx, s.d.ledger, gap.From, gap.To)
	if err != nil {
		return err
	}
	s.tally.CountOnce(ended)
	return s.renumberRuns(ctx, gap)
}

// compareHistories finds out where the histories of store and ledger part.
func (s *session) compareHistories(ctx context.Context, res tally.Resume) error {
	epochs, head, err := s.d.cfg.Source.Epochs(ctx)
	if err != nil {
		return fmt.Errorf("ask for the epochs of the ledger: %w", err)
	}
	shared := res.History.Shared(epochs, head)
	s.parted = parted{shared: shared, gaps: tally.Gaps(shared, res.Seq)}
	if s.parted.lastEvent() == res.Event() && s.parted.endPosition() == res.Seq {
		return nil
	}
	next := s.parted.lastEvent() + 1
	if head < next {
		return fmt.Errorf(
			"the store has accounting up to event %d of this ledger, the ledger ends at %d: "+
				"a backup of the ledger was restored, or its history is still being read: %w",
			res.Event(),
			head,
			tally.ErrOrder,
		)
	}
	s.parted.now = true
	s.parted.epoch = tally.EpochAt(epochs, next)
	s.redo = 0
	return s.tellLost(ctx, res.History, epochs)
}

// tellLost tells the controller what the store has seen.
func (s *session) tellLost(ctx context.Context, history tally.History, epochs []state.Epoch) error {
	epoch, seq := history.Last()
	uid, id, err := s.d.cfg.Store.Numbers(ctx, s.d.ledger)
	if err != nil {
		return err
	}
	seen := event.Position{Epoch: epoch, Seq: seq, NextUID: uid + 1, NextID: id + 1}
	s.d.cfg.Log.Error(
		"the store has seen a part of the history that the ledger has lost; it is kept, and what comes is stored behind it",
		"epoch",
		fmt.Sprintf("%016x", epoch),
		"seq",
		seq,
		"last_common_event",
		s.parted.lastEvent(),
		"epochs",
		len(epochs),
	)
	if s.d.cfg.Lost == nil {
		return nil
	}
	if err := s.d.cfg.Lost(ctx, seen); err != nil {
		return fmt.Errorf("tell the controller of the history that was lost: %w", err)
	}
	return nil
}

// branchStore makes the store go on behind what was lost.
func (s *session) branchStore(ctx context.Context) error {
	waiting, running := s.tally.Goes()
	last := s.parted.endPosition()
	if err := s.writer.Branch(ctx, tally.Branch{Event: s.tally.Seq(), Epoch: s.parted.epoch, Waiting: waiting, Running: running}); err != nil {
		return err
	}
	gap := tally.Gap{From: last + 1, To: s.writer.Position().Seq}
	s.parted.gaps[len(s.parted.gaps)-1] = gap // it has become longer
	return s.passFork(ctx, gap)
}

// setParted notes which positions of the store hold a history that was lost, and
// where that parted.
func (d *Daemon) setParted(gaps []tally.Gap, forks []forkPoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forks = forks
	d.gaps = nil
	for _, g := range gaps {
		d.gaps = append(d.gaps, query.Gap{From: g.From, To: g.To})
	}
}
