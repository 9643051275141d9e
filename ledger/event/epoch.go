package event

import "github.com/musterhpc/muster/spec"

// EpochBegan is the first event of every controller that begins to lead. Value
// is random: two histories that part from one backup have different values from
// there on, so that a position and the key of a run tell which history they
// belong to. An attempt carries the epoch in which it was started.
type EpochBegan struct {
	Value   uint64 `cbor:"1,keyasint"`
	Host    string `cbor:"2,keyasint,omitempty"` // of the controller
	Version string `cbor:"3,keyasint,omitempty"` // its release
}

// Position is a place in a history: the event with this sequence number,
// written in this epoch. NextID and NextUID are the job numbers that came next
// there.
type Position struct {
	Epoch   uint64      `cbor:"1,keyasint"`
	Seq     uint64      `cbor:"2,keyasint"`
	NextUID spec.JobUID `cbor:"3,keyasint,omitempty"`
	NextID  spec.JobID  `cbor:"4,keyasint,omitempty"`
}

// LostNumbersSince is the ledger's version from which on HistoryLost tells which job numbers
// were skipped.
const LostNumbersSince = 2

// HistoryLost records that somebody has seen a part of the history which this
// ledger does not hold: it was restored from an older copy. The job numbers of
// Seen are not given away again.
type HistoryLost struct {
	Witness string   `cbor:"1,keyasint"` // node NAME, archive, or accounting store
	Seen    Position `cbor:"2,keyasint"`
	// FirstUID and FirstID are the job numbers that came next here. Those from them up to
	// Seen's were given away in the lost history only, so that a run of it which is adopted
	// can have its own again. 0 = recorded by an older release: nothing is known of them.
	FirstUID spec.JobUID `cbor:"3,keyasint,omitempty" since:"2"`
	FirstID  spec.JobID  `cbor:"4,keyasint,omitempty" since:"2"`
}
