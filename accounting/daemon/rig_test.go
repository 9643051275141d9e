package daemon_test

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// TestMain lets the test binary be the engine process, and the ingester that
// a test kills.
func TestMain(m *testing.M) {
	os.Exit(enginetest.Main(func() int {
		if os.Getenv(monthsEnv) != "" {
			return months()
		}
		return m.Run()
	}))
}

// startEngine runs an engine for one test.
func startEngine(t testing.TB) *embedded.Supervisor { return enginetest.Start(t) }

// memLedger is a ledger in memory: a Source.
type memLedger struct {
	codec *event.Codec

	mu      sync.Mutex
	entries []daemon.Entry
	epochs  []state.Epoch
	at      spec.Instant
	grown   chan struct{}
}

func newLedger(t testing.TB) *memLedger {
	t.Helper()
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	return &memLedger{codec: codec, grown: make(chan struct{})}
}

// add appends events as entries of at most size events.
func (l *memLedger) add(t testing.TB, events []event.Envelope, size int) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := 0; at < len(events); at += size {
		part := events[at:min(at+size, len(events))]
		data, err := l.codec.Encode(part)
		if err != nil {
			t.Fatal(err)
		}
		l.entries = append(l.entries, daemon.Entry{First: part[0].Seq, Last: part[len(part)-1].Seq, Events: data})
		l.at = part[len(part)-1].At
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

// come appends entries that are encoded already.
func (l *memLedger) come(entries []daemon.Entry, at spec.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.at = append(l.entries, entries...), at
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *memLedger) Head() (uint64, spec.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.entries) == 0 {
		return 0, 0
	}
	return l.entries[len(l.entries)-1].Last, l.at
}

func (l *memLedger) Open(_ context.Context, seq uint64) (daemon.Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range l.entries {
		if e.Last >= seq {
			return &memCursor{l, i}, nil
		}
	}
	return &memCursor{l, len(l.entries)}, nil
}

type memCursor struct {
	l  *memLedger
	at int
}

func (c *memCursor) Next(ctx context.Context) (daemon.Entry, error) {
	for {
		c.l.mu.Lock()
		grown := c.l.grown
		if c.at < len(c.l.entries) {
			e := c.l.entries[c.at]
			c.at++
			c.l.mu.Unlock()
			return e, nil
		}
		c.l.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return daemon.Entry{}, ctx.Err()
		}
	}
}

// testClock is real time, but Now may be set.
type testClock struct {
	mu  sync.Mutex
	now spec.Instant // 0 = the machine's
}

func (c *testClock) Now() spec.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != 0 {
		return c.now
	}
	return spec.Instant(time.Now().UnixNano())
}

func (c *testClock) set(at spec.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = at
}

func (c *testClock) After(d spec.Span) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	t := time.AfterFunc(time.Duration(d), func() { close(ch) })
	return ch, func() { t.Stop() }
}

// rig is a service over an engine.
type rig struct {
	*daemon.Daemon
	t      testing.TB
	ledger *memLedger
	clock  *testClock
	store  *clickhouse.Store
	socket string // of the engine
	cfg    daemon.Config
	stop   func()
	keep   chan daemon.Progress
}

// newRig prepares a service; start runs it.
func newRig(t testing.TB, socket string, ledger *memLedger) *rig {
	t.Helper()
	return newRigIn(t, socket, "muster", ledger)
}

// newRigIn is newRig in a database of its own.
func newRigIn(t testing.TB, socket, db string, ledger *memLedger) *rig {
	t.Helper()
	store, err := clickhouse.Open(clickhouse.Options{Socket: socket, Database: db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r := &rig{t: t, ledger: ledger, socket: socket, clock: &testClock{}, store: store, keep: make(chan daemon.Progress, 10000)}
	r.cfg = daemon.Config{Source: ledger, Store: store, Codec: ledger.codec, Clock: r.clock,
		OpenWriter: func(ctx context.Context, id [16]byte, cluster string) (daemon.Writer, tally.Resume, error) {
			return store.NewWriter(ctx, id, cluster)
		},
		Identity: func() ([16]byte, string) { return tallytest.LedgerID, "peer" },
		Confirm:  func(p daemon.Progress) { r.keep <- p },
		Interval: spec.Millisecond, SampleInterval: 20 * spec.Millisecond,
		Refresh: -1, // the first KPIs alone take seconds
		Log:     slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelError}))}
	return r
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

func (r *rig) start() *rig {
	r.Daemon = daemon.New(r.cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() { cancel(); <-done })
	r.t.Cleanup(func() { r.stop() })
	return r
}

// stored waits until the store has an event.
func (r *rig) stored(seq uint64) {
	r.t.Helper()
	for {
		reply, err := r.Service().Jobs(r.t.Context(), &apiv1.AcctQuery{MinSeq: seq, AllUsers: true, Jobs: []string{"4000000"}})
		switch {
		case err == nil && reply.GetSeq() >= seq:
			return
		case r.t.Context().Err() != nil:
			r.t.Fatalf("event %d is not stored: %v", seq, r.Status())
		case err != nil && spec.CodeOf(err) != spec.CodeDatabaseUnreachable:
			r.t.Fatalf("%v", err)
		}
	}
}

// acct asks for jobs.
func (r *rig) acct(q *apiv1.AcctQuery) []*apiv1.AcctRow {
	r.t.Helper()
	reply, err := r.Service().Jobs(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply.GetRows()
}
