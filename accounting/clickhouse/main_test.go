package clickhouse

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
)

// TestMain lets the test binary be the engine process, and the ingester that
// a test kills.
func TestMain(m *testing.M) {
	os.Exit(enginetest.Main(func() int {
		if os.Getenv(victimEnv) != "" {
			return victim()
		}
		return m.Run()
	}))
}

// startEngine runs an engine for one test.
func startEngine(t testing.TB) *embedded.Supervisor { return enginetest.Start(t) }

// openStore opens a migrated store on an engine, in a database of its own.
func openStore(t testing.TB, socket, db string) *Store {
	t.Helper()
	s, err := Open(Options{Socket: socket, Database: db})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatalf("%+v", err)
	}
	return s
}

// one reads a single value.
func one[T any](t testing.TB, s *Store, sql string) T {
	t.Helper()
	var v T
	if err := s.conn.QueryRow(context.Background(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// fold folds events and ends the batch.
func fold(t testing.TB, ta *tally.Tally, log []event.Envelope) *tally.Batch {
	t.Helper()
	for i := range log {
		if err := ta.Apply(&log[i]); err != nil {
			t.Fatal(err)
		}
	}
	return ta.Take()
}

// newWriter takes the lease and begins a generation with the runs of ta.
func newWriter(t testing.TB, s *Store, ta *tally.Tally) (*Writer, tally.Resume) {
	t.Helper()
	w, res, err := s.NewWriter(context.Background(), tallytest.LedgerID, "peer")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Generation(context.Background(), ta.AllLive()); err != nil {
		t.Fatal(err)
	}
	return w, res
}

// freeAddr is an address that nobody listens on.
func freeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
