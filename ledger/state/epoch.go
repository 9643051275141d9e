package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Epoch is the time of one controller's lead, from its EpochBegan on.
type Epoch struct {
	Value uint64 `cbor:"1,keyasint"`
	Seq   uint64 `cbor:"2,keyasint"` // of its EpochBegan
}

// LostHistory is what is known of the last loss of history.
type LostHistory struct {
	At      spec.Instant   `cbor:"1,keyasint"`
	Witness string         `cbor:"2,keyasint"`
	Seen    event.Position `cbor:"3,keyasint"`
	Times   uint64         `cbor:"4,keyasint"` // how many were recorded
}

// maxEpochs bounds the epochs that a state remembers. A position in an older
// one cannot be judged and counts as unknown.
const maxEpochs = 4096

func (s *State) applyEpochBegan(env *event.Envelope, epoch *event.EpochBegan) error {
	if epoch.Value == 0 {
		return contradictionError("an epoch has no value")
	}
	if s.epochIndex(epoch.Value) >= 0 {
		return contradictionError("epoch %016x begins twice", epoch.Value)
	}
	next := slices.Clone(s.Epochs)
	if len(next) >= maxEpochs {
		next = slices.Delete(next, 0, len(next)-maxEpochs+1)
	}
	s.Epochs = append(next, Epoch{Value: epoch.Value, Seq: env.Seq})
	if s.FirstLeader == "" {
		s.FirstLeader = epoch.Host
	}
	s.Leader = epoch.Host
	return nil
}

func (s *State) applyHistoryLost(env *event.Envelope, e *event.HistoryLost) error {
	if s.HasSeen(e.Seen.Epoch, e.Seen.Seq) {
		return contradictionError(
			"event %d of epoch %016x is said to be lost, but is here",
			e.Seen.Seq,
			e.Seen.Epoch,
		)
	}
	lost := LostHistory{At: env.At, Witness: e.Witness, Seen: e.Seen, Times: 1}
	if s.Lost != nil {
		lost.Times += s.Lost.Times
	}
	s.Lost = &lost
	s.NextUID = max(s.NextUID, e.Seen.NextUID)
	s.NextID = max(s.NextID, e.Seen.NextID)
	return nil
}

// CurrentEpoch is the epoch of the controller that leads; 0 in a ledger of an
// older release.
func (s *State) CurrentEpoch() uint64 {
	if len(s.Epochs) == 0 {
		return 0
	}
	return s.Epochs[len(s.Epochs)-1].Value
}

// LeadBegan is the number of the event with which the lead of the present
// controller began; 0 in a ledger of an older release.
func (s *State) LeadBegan() uint64 {
	if len(s.Epochs) == 0 {
		return 0
	}
	return s.Epochs[len(s.Epochs)-1].Seq
}

// epochIndex is the place of an epoch in Epochs, or -1.
func (s *State) epochIndex(value uint64) int {
	return slices.IndexFunc(s.Epochs, func(e Epoch) bool { return e.Value == value })
}

// KnowsEpoch tells whether an epoch is part of this history; 0, which older
// releases leave it at, always is.
func (s *State) KnowsEpoch(value uint64) bool { return value == 0 || s.epochIndex(value) >= 0 }

// HasSeen tells whether the event with a sequence number, written in an epoch,
// is part of this history. Epoch 0 is the time before the first epoch.
func (s *State) HasSeen(epoch, seq uint64) bool {
	at := -1
	if epoch != 0 {
		at = s.epochIndex(epoch)
		if at < 0 || seq < s.Epochs[at].Seq {
			return false
		}
	}
	if at+1 < len(s.Epochs) {
		return seq < s.Epochs[at+1].Seq
	}
	return seq <= s.Seq
}

// EpochAt is the epoch in which an event was written; 0 = before the first, or
// longer ago than the state remembers.
func (s *State) EpochAt(seq uint64) uint64 {
	value := uint64(0)
	for _, epoch := range s.Epochs {
		if epoch.Seq > seq {
			break
		}
		value = epoch.Value
	}
	return value
}

// Position is the place of this state in its history.
func (s *State) Position() event.Position {
	return event.Position{Epoch: s.CurrentEpoch(), Seq: s.Seq, NextUID: s.NextUID, NextID: s.NextID}
}
