package tally

import (
	"errors"

	"github.com/musterhpc/muster/spec"
)

// What a store of batches and those who use it agree on. Compare the errors
// with errors.Is.
var (
	// ErrLease tells that another writer is at work on the same ledger.
	ErrLease = errors.New("another ingester writes this ledger's accounting")
	// ErrCut tells a batch that is cut otherwise than the one that a crash
	// interrupted.
	ErrCut = errors.New("an interrupted batch must be written again as it was cut")
	// ErrOrder tells a batch that does not follow what the store has.
	ErrOrder = errors.New("the batch does not follow what the accounting store has")
	// ErrNewer tells a store that a newer release has migrated.
	ErrNewer = errors.New(
		"the accounting store was made by a newer release of muster: upgrade this one, or restore a backup of before",
	)
)

// Position is how far a store has a ledger.
type Position struct {
	Seq   uint64       // everything up to here is in the store
	Shift uint64       // what Seq has more than the number of the event there
	At    spec.Instant // of that event
	Gen   uint32       // generation of the live rows

	Rolled Rolled // what is added up
}

// Event is the last event of the ledger that the store has.
func (p Position) Event() uint64 { return p.Seq - p.Shift }

// Rolled is what the rollups of a store have: every run that ended before Until
// and whose row came with event Seq or before, each once, in the builds up to
// Build.
type Rolled struct {
	Build uint32
	Until Micros
	Seq   uint64
}

// Resume is where a new writer must go on.
type Resume struct {
	Position
	Redo    uint64 // beyond Event: the last event of a batch that was being written; 0 = none
	History History
}

// Branch is where the history of a ledger parts from what a store holds.
type Branch struct {
	Event uint64 // the last one that both have
	Epoch uint64 // of the next one in the ledger
	// Waiting and Running are runs that were not over at Event and go on in the
	// ledger: the store does not close them.
	Waiting []spec.JobUID
	Running []Attempt
}

// Attempt is one start of a job.
type Attempt struct {
	UID     spec.JobUID
	Attempt uint32
}

// Snapshot is a counting state that a store keeps.
type Snapshot struct {
	Seq  uint64
	Data []byte
}
