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
	for _, stretch := range p.shared {
		if position+1 >= stretch.From && position <= stretch.To {
			seq, ours = position-stretch.Shift, true
		}
	}
	return seq, ours
}

// forks are all places where lost histories parted from the ledger's own.
func (p *parted) forks() []forkPoint {
	var points []forkPoint
	for i := 1; i < len(p.shared); i++ {
		points = append(points, p.forkBefore(i))
	}
	if p.now {
		points = append(points, forkPoint{p.lastEvent(), p.gaps[len(p.gaps)-1]})
	}
	return points
}

// beginAt sorts the fork points into those ahead of a counting state at a position
// and those behind it.
func (p *parted) beginAt(label uint64) {
	p.ahead = nil
	p.behind = nil
	for i := 1; i < len(p.shared); i++ {
		fork := p.forkBefore(i)
		if label < fork.gap.To {
			p.ahead = append(p.ahead, fork)
		} else {
			p.behind = append(p.behind, fork.gap)
		}
	}
}

// forkBefore is where the lost history in front of a stretch of the ledger's own history parted
// from it. The first stretch has none in front.
func (p *parted) forkBefore(stretch int) forkPoint {
	before := p.shared[stretch-1]
	gap := tally.Gap{From: before.To + 1, To: p.shared[stretch].From - 1}
	return forkPoint{before.To - before.Shift, gap}
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
func (s *session) compareHistories(ctx context.Context, result tally.Resume) error {
	epochs, head, err := s.d.cfg.Source.Epochs(ctx)
	if err != nil {
		return fmt.Errorf("ask for the epochs of the ledger: %w", err)
	}
	shared := result.History.Shared(epochs, head)
	s.parted = parted{shared: shared, gaps: tally.Gaps(shared, result.Seq)}
	if s.parted.lastEvent() == result.Event() && s.parted.endPosition() == result.Seq {
		return nil
	}
	next := s.parted.lastEvent() + 1
	if head < next {
		return fmt.Errorf(
			"the store has accounting up to event %d of this ledger, the ledger ends at %d: "+
				"a backup of the ledger was restored, or its history is still being read: %w",
			result.Event(),
			head,
			tally.ErrOrder,
		)
	}
	s.parted.now = true
	s.parted.epoch = tally.EpochAt(epochs, next)
	s.redo = 0
	return s.tellLost(ctx, result.History, epochs)
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
	for _, gap := range gaps {
		d.gaps = append(d.gaps, query.Gap{From: gap.From, To: gap.To})
	}
}
