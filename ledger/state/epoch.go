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
	// Free are the job numbers that only lost histories gave away, oldest first.
	Free []LostNumbers `cbor:"5,keyasint,omitempty" since:"2"`
}

// LostNumbers are job numbers that this history skipped because a lost one had given them
// away: from the first up to, not including, the second.
type LostNumbers struct {
	UID   spec.JobUID `cbor:"1,keyasint,omitempty" since:"2"`
	UIDTo spec.JobUID `cbor:"2,keyasint,omitempty" since:"2"`
	ID    spec.JobID  `cbor:"3,keyasint,omitempty" since:"2"`
	IDTo  spec.JobID  `cbor:"4,keyasint,omitempty" since:"2"`
}

// maxLostNumbers bounds the ranges that a state remembers. A run with numbers of an older one
// cannot be adopted.
const maxLostNumbers = 256

// maxEpochs bounds the epochs that a state remembers. A position in an older
// one cannot be judged and counts as unknown.
const maxEpochs = 4096

func (s *State) applyEpochBegan(envelope *event.Envelope, epoch *event.EpochBegan) error {
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
	s.Epochs = append(next, Epoch{Value: epoch.Value, Seq: envelope.Seq})
	if s.FirstLeader == "" {
		s.FirstLeader = epoch.Host
	}
	s.Leader = epoch.Host
	return nil
}

func (s *State) applyHistoryLost(envelope *event.Envelope, e *event.HistoryLost) error {
	if s.HasSeen(e.Seen.Epoch, e.Seen.Seq) {
		return contradictionError(
			"event %d of epoch %016x is said to be lost, but is here",
			e.Seen.Seq,
			e.Seen.Epoch,
		)
	}
	lost := LostHistory{At: envelope.At, Witness: e.Witness, Seen: e.Seen, Times: 1}
	if s.Lost != nil {
		lost.Times += s.Lost.Times
		lost.Free = s.Lost.Free
	}
	if free := s.skippedNumbers(e); free != nil {
		lost.Free = append(slices.Clone(lost.Free), *free)
		lost.Free = lost.Free[max(0, len(lost.Free)-maxLostNumbers):]
	}
	s.Lost = &lost
	s.NextUID = max(s.NextUID, e.Seen.NextUID)
	s.NextID = max(s.NextID, e.Seen.NextID)
	return nil
}

// skippedNumbers are the job numbers that are skipped because a lost history gave them away;
// nil where there are none, or where an older release recorded the loss.
func (s *State) skippedNumbers(e *event.HistoryLost) *LostNumbers {
	if e.FirstUID != s.NextUID || e.FirstID != s.NextID || e.Seen.NextUID <= s.NextUID {
		return nil
	}
	return &LostNumbers{
		UID:   s.NextUID,
		UIDTo: e.Seen.NextUID,
		ID:    s.NextID,
		IDTo:  max(s.NextID, e.Seen.NextID),
	}
}

// IsLostUID tells whether only a lost history gave a uid away, and no run with it was adopted.
func (s *State) IsLostUID(uid spec.JobUID) bool {
	return s.Lost != nil && slices.ContainsFunc(
		s.Lost.Free,
		func(free LostNumbers) bool { return uid >= free.UID && uid < free.UIDTo },
	)
}

// IsLostID tells whether only a lost history gave a job number away, and no job has it now.
func (s *State) IsLostID(id spec.JobID) bool {
	return s.Lost != nil && !s.ByID.Has(uint64(id)) && slices.ContainsFunc(
		s.Lost.Free,
		func(free LostNumbers) bool { return id >= free.ID && id < free.IDTo },
	)
}

// takeLostUID notes that a job has a uid of a lost history: it is not given away again.
func (s *State) takeLostUID(uid spec.JobUID) {
	lost := *s.Lost
	lost.Free = nil
	for _, free := range s.Lost.Free {
		if uid < free.UID || uid >= free.UIDTo {
			lost.Free = append(lost.Free, free)
			continue
		}
		// The job numbers stay with the first part: whether one is used is seen from the jobs.
		below, above := free, free
		below.UIDTo, above.UID = uid, uid+1
		above.ID, above.IDTo = 0, 0
		lost.Free = append(lost.Free, below)
		if above.UID < above.UIDTo {
			lost.Free = append(lost.Free, above)
		}
	}
	s.Lost = &lost
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
