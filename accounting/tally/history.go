package tally

import "github.com/musterhpc/muster/ledger/state"

// A store counts positions of its own. They are the ledger's sequence numbers
// until a ledger is restored from an older copy: its events then have numbers
// that the store has given to others, and are stored at positions above these.
// What the store holds of the lost events stays where it is.

// Segment says which part of which history stands at a position: from At on,
// the store holds the events of an epoch from one with a sequence number on.
type Segment struct {
	At    uint64 // position
	Epoch uint64 // 0 = before the first epoch
	Seq   uint64 // sequence number in the ledger; 0 = no events stand from At on
}

// History is what a store holds of a ledger: segments by position, up to the
// position End.
type History struct {
	Segments []Segment
	End      uint64
}

// Stretch is a range of positions, both included, that belongs to the history of
// a ledger. The event at a position has that number less Shift.
type Stretch struct {
	From, To uint64
	Shift    uint64
}

// Gap is a range of positions, both included, that does not belong to the
// history of a ledger: it was lost.
type Gap struct{ From, To uint64 }

// Last is the event at the end of the history, with its epoch.
func (h History) Last() (epoch, seq uint64) {
	var last Segment
	end := uint64(0) // of last
	for _, segment := range append([]Segment{{At: 1, Seq: 1}}, h.Segments...) {
		if segment.At > h.End {
			break
		}
		if segment.Seq == 0 {
			end = segment.At - 1
			continue
		}
		last, end = segment, h.End
	}
	return last.Epoch, last.Seq + end - last.At
}

// Shared gives the stretches of a store that belong to the history of a ledger
// with these epochs and this last event. In ledger order they are without gaps.
// The histories have parted if the last one ends before the store does. It may
// be empty, behind the end: the place where a new part begins.
func (h History) Shared(epochs []state.Epoch, head uint64) []Stretch {
	segments := append([]Segment{{At: 1, Seq: 1}}, h.Segments...)
	var stretches []Stretch
	for i, segment := range segments {
		if segment.Seq == 0 || segment.At > h.End+1 {
			continue
		}
		to := h.End
		if i+1 < len(segments) {
			to = min(to, segments[i+1].At-1)
		}
		last, ok := lastOf(segment.Epoch, epochs, head)
		if !ok || last < segment.Seq {
			continue
		}
		to = min(to, segment.At+last-segment.Seq)
		shift := segment.At - segment.Seq
		if n := len(stretches); n > 0 && stretches[n-1].Shift == shift &&
			stretches[n-1].To+1 == segment.At {
			stretches[n-1].To = to
			continue
		}
		stretches = append(stretches, Stretch{From: segment.At, To: to, Shift: shift})
	}
	return stretches
}

// Event is the number of the last event of some stretches; 0 = they are empty.
func Event(shared []Stretch) uint64 {
	if len(shared) == 0 {
		return 0
	}
	last := shared[len(shared)-1]
	return last.To - last.Shift
}

// lastOf is the last event that a ledger has of an epoch.
func lastOf(epoch uint64, epochs []state.Epoch, head uint64) (uint64, bool) {
	next := 0 // of Epochs, behind the one that is meant
	if epoch != 0 {
		for next < len(epochs) && epochs[next].Value != epoch {
			next++
		}
		if next == len(epochs) {
			return 0, false
		}
		next++
	}
	if next < len(epochs) {
		return epochs[next].Seq - 1, true
	}
	return head, true
}

// EpochAt is the epoch of an event of a ledger.
func EpochAt(epochs []state.Epoch, seq uint64) uint64 {
	value := uint64(0)
	for _, epoch := range epochs {
		if epoch.Seq <= seq {
			value = epoch.Value
		}
	}
	return value
}

// Gaps are the positions up to one that are in no stretch.
func Gaps(shared []Stretch, end uint64) []Gap {
	var gaps []Gap
	next := uint64(1)
	for _, stretch := range shared {
		if stretch.From > next {
			gaps = append(gaps, Gap{From: next, To: stretch.From - 1})
		}
		next = stretch.To + 1
	}
	if next <= end {
		gaps = append(gaps, Gap{From: next, To: end})
	}
	return gaps
}
