package daemon

import (
	"context"
	"io"
	"log/slog"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/internal/slo"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Entry is one entry of the ledger: a batch of events, encoded.
type Entry struct {
	First, Last uint64 // sequence numbers of its events
	Events      []byte
}

// Source is the whole history of the ledger.
type Source interface {
	// Open returns a cursor that begins with the entry that holds an event, or
	// behind the end if that is still to come.
	Open(ctx context.Context, seq uint64) (Cursor, error)
	// Head is the newest durable event.
	Head() (seq uint64, at spec.Instant)
	// Epochs are those of the ledger, with its newest event: they tell its history
	// from one that was lost.
	Epochs(ctx context.Context) (epochs []state.Epoch, head uint64, err error)
}

// Cursor walks the ledger. Next waits for the next entry.
type Cursor interface {
	Next(ctx context.Context) (Entry, error)
}

// Writer stores one ledger's batches; see package clickhouse.
type Writer interface {
	Write(ctx context.Context, batch *tally.Batch) error
	Generation(ctx context.Context, rows []tally.LiveRow) error
	Hold(ctx context.Context) error
	// RollUp adds up days that are over; more tells that there are others.
	RollUp(ctx context.Context) (more bool, err error)
	Position() tally.Position
	// Branch goes on with a history that parts from what the store has.
	Branch(ctx context.Context, branch tally.Branch) error
}

// Store is the accounting store.
type Store interface {
	// Ping asks for a sign of life, without waiting for other questions.
	Ping(ctx context.Context) error
	Migrate(ctx context.Context) error
	Position(ctx context.Context, ledger [16]byte) (tally.Position, error)
	LastSnapshot(ctx context.Context, ledger [16]byte, at uint64) (tally.Snapshot, bool, error)
	PutSnapshot(ctx context.Context, ledger [16]byte, snap tally.Snapshot) error
	// LastRuns gives the last run of each job between two positions, EndedRuns the
	// attempts that ended there; Numbers are the greatest job numbers that the store
	// has seen.
	LastRuns(ctx context.Context, ledger [16]byte, from, to uint64) (map[spec.JobUID]uint32, error)
	EndedRuns(ctx context.Context, ledger [16]byte, from, to uint64) ([]tally.EndedRun, error)
	Numbers(ctx context.Context, ledger [16]byte) (spec.JobUID, spec.JobID, error)
	Query(ctx context.Context, q query.Query, each func(scan func(dest ...any) error) error) error
	// Raw asks a question read-only and within limits, and gives the answer in
	// one of the engine's formats.
	Raw(ctx context.Context, q query.Query, format string, lim query.Limits) (io.ReadCloser, error)
	// PutSamples and PutUsage store readings of GPUs and of runs; KeepSamples says
	// for how long.
	PutSamples(ctx context.Context, ledger [16]byte, cluster string, rows []tally.GPUSample) error
	PutUsage(ctx context.Context, ledger [16]byte, cluster string, rows []tally.UsageSample) error
	KeepSamples(ctx context.Context, span spec.Span) error
	// Backup copies the store under a name; Restore replaces it by the copy,
	// while nobody writes.
	Backup(ctx context.Context, name string) error
	Restore(ctx context.Context, name string) error
	// Archive writes a month to files below a folder; Purge deletes a month, with
	// a record of what went, and with a folder only what is archived there;
	// EndPurges ends those that were broken off; Unarchive brings it back.
	Archive(ctx context.Context, s query.Scope, m query.Month, root string) ([]query.Finding, error)
	Purge(
		ctx context.Context,
		scope query.Scope,
		month query.Month,
		root string,
		tables ...string,
	) ([]query.Finding, error)
	EndPurges(ctx context.Context, scope query.Scope) error
	Unarchive(
		ctx context.Context,
		scope query.Scope,
		month query.Month,
		root string,
	) ([]query.Finding, error)
	// Examine looks for what is wrong with the store itself.
	Examine(ctx context.Context, ledger [16]byte) ([]query.Finding, error)
	// Explain says in a sentence for people what an error of the store means;
	// one that it does not know comes back as it is.
	Explain(err error) error
	Database() string
	Target() string
}

// Clock is the time of this machine.
type Clock interface {
	Now() spec.Instant
	// After delivers once after d; stop frees it early.
	After(d spec.Span) (fires <-chan struct{}, stop func())
}

// Caller is who calls, as the channel proved it.
type Caller struct {
	User    string // "" = not a user
	Admin   bool
	Limited bool // a compute node vouches for the user: he is no operator and no coordinator
}

// Progress is what the ingester tells the controller.
type Progress struct {
	Seq  uint64 // everything up to here is in the store
	Keep uint64 // the ledger's history is needed from this event on
}

// Config is what the service is made of. Zero settings take the defaults
// named.
type Config struct {
	Source Source
	Store  Store
	// OpenWriter takes the lease on the ledger's accounting.
	OpenWriter func(ctx context.Context, ledger [16]byte, cluster string) (Writer, tally.Resume, error)
	// Feed, where it is set, stores a history that no ledger is behind, until
	// the context ends: it tells of each position it reached, and what keeps it
	// from going on.
	Feed  func(ctx context.Context, stored func(tally.Position), failed func(error))
	Codec *event.Codec
	Clock Clock
	Log   *slog.Logger
	// Identity tells which ledger it is; it is asked once, when Run begins.
	Identity func() (ledger [16]byte, cluster string)
	// Confirm is called after every stored batch; nil = nobody asks.
	Confirm func(Progress)
	// Lost tells the controller of a position that the store has seen and that the
	// ledger does not hold: its history was lost. Nil = nobody is told.
	Lost func(ctx context.Context, seen event.Position) error
	// Content gives a script or an environment by its hash, from the
	// controller's content; nil = it cannot be had here.
	Content func(ctx context.Context, hash spec.Hash) ([]byte, error)
	// Identify tells who calls a service; nil = everyone is an administrator.
	Identify func(ctx context.Context) Caller
	// Private tells what PrivateData keeps from the caller of a service; nil =
	// nothing.
	Private func(ctx context.Context) []string
	// Operators: Private does not know who is an operator; the store does.
	Operators bool

	// MayPut refuses a caller who is not the agent of a node; nil = everyone may.
	MayPut func(ctx context.Context, node string) error
	// SampleKeep is how long samples of GPUs and runs are kept; 90 days. SampleInterval is
	// how long those that come wait for others; 5 s.
	SampleKeep, SampleInterval spec.Span

	// Archive is the folder of archives; "" = there are none.
	Archive string
	// Retention is how long rows of the tables of query.AgedTables are kept; a
	// table that is not named keeps them for ever. Months go as a whole.
	Retention   map[string]spec.Span
	RetainEvery spec.Span // how often is looked for what is too old; 1 h

	// Objectives are the site's service objectives; those about waits are reported.
	Objectives []slo.Objective
	// Rates turn use into money and carbon.
	Rates kpi.Rates
	// Enforce is told all budgets that are enforced as often as they are computed;
	// nil = nobody does it.
	Enforce func(ctx context.Context, budgets []kpi.Spent)

	Interval      spec.Span // how long an event waits for others; 100 ms
	BatchRows     int       // rows that go into one insert, about, at most; 100,000
	LiveRows      int       // rows of the live table before a new generation begins; 100,000
	SnapshotEvery uint64    // events between two snapshots of the counting state; 500,000
	Refresh       spec.Span // between two computations of the KPIs, at least; 15 s; below 0 none are computed
	RefreshShare  int64     // percentage of the time that they may take; 10
	ReadWait      spec.Span // how long a question waits for the event it names; 2 s
	WriteWait     spec.Span // how long one write may take before it is given up and tried again; 5 min
}

func (c Config) withDefaults() Config {
	if c.SampleKeep <= 0 {
		c.SampleKeep = 90 * spec.Day
	}
	if c.SampleInterval <= 0 {
		c.SampleInterval = 5 * spec.Second
	}
	if c.Interval <= 0 {
		c.Interval = 100 * spec.Millisecond
	}
	if c.BatchRows <= 0 {
		c.BatchRows = 100_000
	}
	if c.LiveRows <= 0 {
		c.LiveRows = 100_000
	}
	if c.SnapshotEvery == 0 {
		c.SnapshotEvery = 500_000
	}
	if c.Refresh == 0 {
		c.Refresh = 15 * spec.Second
	}
	if c.RefreshShare <= 0 {
		c.RefreshShare = 10
	}
	if c.ReadWait <= 0 {
		c.ReadWait = 2 * spec.Second
	}
	if c.WriteWait <= 0 {
		c.WriteWait = 5 * spec.Minute
	}
	if c.RetainEvery <= 0 {
		c.RetainEvery = spec.Hour
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}
