package log

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hashicorp/raft"
)

// Options configure Open. Dir and Machine are required.
type Options struct {
	Dir     string
	Machine Machine
	Logger  *slog.Logger // default: discards

	// NodeID names this member for ever; the folder remembers it. Default "controller". A
	// folder of a cluster of one becomes that of the first member of a group when it is opened
	// with a Transport.
	NodeID string
	// Transport carries raft between members; nil means a cluster of one. The log closes it.
	// See NewTransport.
	Transport raft.Transport
	// Witness makes this member one that votes and keeps the log without state. It
	// has no Machine.
	Witness bool
	// Members are the first members of a new group, this one included. Ignored once the folder
	// has a log. A member that joins a group has none: it waits until the leader adds it.
	Members []Member
	// Found, if set, is asked before what a controller alone has written becomes the log of a
	// group. Its error refuses that: others may have gone on without this folder.
	Found func() error
	// Timeout is raft's heartbeat and election timeout. Default 50 ms for a cluster of one, 1 s
	// otherwise.
	Timeout time.Duration

	// A snapshot is taken after so many batches or bytes. Defaults 50,000 and 128 MiB.
	SnapshotEvery uint64
	SnapshotBytes uint64
	// Trailing entries stay behind a snapshot for members that lag a little. Default 256, or
	// 10,240 with a Transport.
	Trailing uint64
	// BeforeCompact is asked before batches up to pos are removed from the log: it must return
	// nil only when everything up to pos is synced elsewhere, that is in the archive and the
	// blob store. On an error the log keeps them.
	BeforeCompact func(position Position) error
	// AtLeast is a position known, from the archive, to have been applied: a log that ends
	// before it is damaged. Only for a cluster of one, whose log is complete when Open returns.
	AtLeast Position

	// StartAt is the position of the state that Machine has already: the next batch
	// gets the one behind it. Only a new log takes it, whose first snapshot must be
	// taken before the log is relied upon.
	StartAt Position

	// SegmentBytes is the size of a segment file. Default 16 MiB.
	SegmentBytes int
	// ReserveBytes is the space below which Headroom asks to refuse new work. Default 256 MiB.
	ReserveBytes uint64
	// MaxPending and MaxPendingBytes bound what Append holds. Defaults 16,384 and 64 MiB.
	MaxPending      int
	MaxPendingBytes int

	FS FS // default OS()
}

// Member is one controller of a cluster of several, or the witness.
type Member struct {
	ID      string
	Address string
	// Joining tells that it does not vote yet, because it lacks too much of the log.
	Joining bool
}

func (o Options) withDefaults() (Options, error) {
	if o.Witness {
		if o.Transport == nil {
			return o, errors.New("open the ledger's log: a witness needs a Transport")
		}
		o.Machine = noMachine{}
	}
	if o.Dir == "" || o.Machine == nil {
		return o, errors.New("open the ledger's log: Dir and Machine are required")
	}
	if o.Transport == nil && len(o.Members) > 1 {
		return o, fmt.Errorf("open the ledger's log: %d members need a Transport", len(o.Members))
	}
	alone := o.Transport == nil
	setDefault(&o.NodeID, "controller")
	setDefault(&o.SnapshotEvery, 50_000)
	setDefault(&o.SnapshotBytes, 128<<20)
	setDefault(&o.SegmentBytes, 16<<20)
	setDefault(&o.ReserveBytes, 256<<20)
	setDefault(&o.MaxPending, 16_384)
	setDefault(&o.MaxPendingBytes, 64<<20)
	if alone {
		setDefault(&o.Timeout, 50*time.Millisecond)
		setDefault(&o.Trailing, 256)
		o.Transport = nil
	} else {
		setDefault(&o.Timeout, time.Second)
		setDefault(&o.Trailing, 10_240)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = OS()
	}
	if o.BeforeCompact == nil {
		o.BeforeCompact = func(Position) error { return nil }
	}
	return o, nil
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// raftConfig is raft's configuration; heartbeat is the timeout to begin with.
func (o Options) raftConfig(notify chan<- bool, first time.Duration) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(o.NodeID)
	c.HeartbeatTimeout = first
	c.ElectionTimeout = first
	c.LeaderLeaseTimeout = o.Timeout
	c.MaxAppendEntries = 1024
	c.BatchApplyCh = true
	c.ShutdownOnRemove = false
	c.TrailingLogs = o.Trailing
	// Snapshots are taken on our own count of batches and bytes.
	c.SnapshotInterval, c.SnapshotThreshold = 24*time.Hour, 1<<62
	c.NotifyCh = notify
	c.NoLegacyTelemetry = true
	c.PreVoteDisabled = o.Transport == nil
	c.Logger = newHCLog(o.Logger)
	return c
}
