package log

import (
	"context"
	"io"
)

// Position is the index of a batch in the log: 1-based, without gaps, the same on every member.
type Position uint64

// Machine is what the log replicates. Its methods are called one at a time, in order; only the write function returned by
// Snapshot runs beside later calls.
type Machine interface {
	// Apply consumes one batch. The slice is valid only during the call. An error stops the log with that error: a batch is
	// never skipped.
	Apply(position Position, batch []byte) error
	// Snapshot captures the present state cheaply; write encodes it later, concurrently with Apply. write is called at most once.
	Snapshot() (write func(w io.Writer) error, err error)
	// Restore replaces the state, whatever it was, by an encoded one.
	Restore(r io.Reader) error
}

// Pending is a batch on its way.
type Pending interface {
	// Wait returns the batch's position once it is durable on a majority and applied here, or the error that ended it.
	// Giving up by context does not withdraw the batch.
	Wait(ctx context.Context) (Position, error)
}

// Log is an ordered, durable sequence of batches. All methods may be called from any goroutine.
type Log interface {
	// Append enqueues a batch and returns at once; it copies the slice. After a failure every later Append fails with the
	// same cause until Resume.
	Append(batch []byte) Pending
	// Barrier returns when every batch appended before it is applied.
	Barrier(ctx context.Context) error
	// Resume accepts batches again after a failure. Only the writer may call it, after it knows which of its batches
	// failed. It waits for leadership in a cluster of one and returns ErrNotLeader elsewhere than on the leader.
	Resume(ctx context.Context) error
	// LastPosition is the position of the last batch applied here.
	LastPosition() Position
	// Leader says which member leads, as far as this one knows.
	Leader() Leadership
	// Snapshot writes a snapshot of the machine now and compacts the log behind the one before.
	Snapshot(ctx context.Context) error
	// Headroom reports the space left on the log's filesystem.
	Headroom() (Headroom, error)
	Stats() Stats
	// Done is closed when the log has stopped for good, by Close or by an error that Err then returns.
	Done() <-chan struct{}
	// Err is the error that stopped the log, nil while it runs, ErrClosed after Close.
	Err() error
	// Close waits, as long as ctx allows, for the batches under way and stops. Later calls return ErrClosed.
	Close(ctx context.Context) error
}

// Leadership is what a member knows about who leads.
type Leadership struct {
	Known   bool
	Self    bool
	ID      string
	Address string
}

// Headroom is the space left for the log, in bytes.
type Headroom struct {
	Free    uint64 // available to this process on the filesystem
	Reserve uint64 // kept for the ends and cancels of jobs; submissions stop when Free falls below it
}

// Low reports whether new work should be refused.
func (h Headroom) Low() bool { return h.Free < h.Reserve }

// Stats are counters since Open, and the present extent of the log.
type Stats struct {
	Batches       uint64 // applied
	Bytes         uint64 // of applied batches
	Fenced        uint64 // frames dropped because their predecessor failed
	Groups        uint64 // group commits (one sync each)
	GroupMax      uint64 // largest number of entries in one group
	SyncNanos     uint64 // total time spent in group commits
	Failures      uint64 // group commits that failed
	Pending       int    // batches appended and not yet answered
	PendingBytes  int
	LastPosition  Position
	SnapshotIndex uint64 // raft index of the newest snapshot
	FirstIndex    uint64 // raft index of the oldest entry kept
	LastIndex     uint64
	Snapshots     uint64 // taken since Open
	SnapshotError string // of the last attempt, empty when it succeeded
	DroppedTail   uint64 // bytes of torn tail removed at Open
}
