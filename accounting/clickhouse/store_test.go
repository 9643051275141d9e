package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
)

// TestMigrate: the schema is made once, may be made again, and one of a newer
// release is refused.
func TestMigrate(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, startEngine(t).Socket(), "mig")
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if n := one[uint64](t, s, "SELECT count() FROM mig.schema_versions"); n != SchemaVersion {
		t.Errorf("%d migrations were noted", n)
	}
	for _, tab := range schemaTables() {
		want := "''"
		if tab.tokens {
			want = "'1000'"
		}
		got := one[string](t, s, fmt.Sprintf("SELECT concat('\\'', extract(create_table_query, 'non_replicated_deduplication_window = (\\\\d+)'), '\\'')"+
			" FROM system.tables"+
			" WHERE database = 'mig' AND name = '%s'", tab.name))
		if got != want {
			t.Errorf("%s remembers %s tokens, want %s", tab.name, got, want)
		}
	}
	if err := s.conn.Exec(ctx, fmt.Sprintf("INSERT INTO mig.schema_versions (version) VALUES (%d)", SchemaVersion+1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(ctx); !errors.Is(err, tally.ErrNewer) {
		t.Errorf("a newer schema: %v", err)
	}
}

// TestLayouts: the statements of every layout are ones that the engine can
// read, and differ only in what they must.
func TestLayouts(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "lay")
	for _, l := range []Layout{{}, {Cluster: "it's"}} {
		for _, sql := range DDL("some`db", l) {
			if err := s.conn.Exec(context.Background(), "EXPLAIN AST "+sql); err != nil {
				t.Errorf("%v\n%s", err, sql)
			}
			if on := strings.Contains(sql, " ON CLUSTER "); on != (l.Cluster != "" && !strings.HasPrefix(sql, "INSERT")) {
				t.Errorf("cluster %q: %s", l.Cluster, sql)
			}
		}
	}
	cluster := strings.Join(DDL("muster", Layout{Cluster: "c"}), "\n")
	for _, want := range []string{
		"ReplicatedMergeTree('/clickhouse/tables/{shard}/muster/jobs', '{replica}')",
		"Distributed(`c`, `muster`, jobs_local, uid)",
		"ReplicatedReplacingMergeTree('/clickhouse/tables/all/muster/ingest', '{replica}', n)",
	} {
		if !strings.Contains(cluster, want) {
			t.Errorf("the cluster's schema has no %s", want)
		}
	}
}

// TestSnapshots: large states come back whole, the newest that is not beyond
// the position, and only two stay.
func TestSnapshots(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, startEngine(t).Socket(), "snap")
	if _, ok, err := s.LastSnapshot(ctx, tallytest.LedgerID, 99); ok || err != nil {
		t.Fatal(ok, err)
	}
	big := make([]byte, 2*snapshotPart+17)
	for i := range big {
		big[i] = byte(i * i >> 8)
	}
	for i, data := range [][]byte{[]byte("one"), []byte("two"), big} {
		for range 2 { // again, as after an error that was none
			if err := s.PutSnapshot(ctx, tallytest.LedgerID, tally.Snapshot{Seq: uint64(10 * (i + 1)), Data: data}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for at, want := range map[uint64]string{99: string(big), 30: string(big), 29: "two", 20: "two"} {
		got, ok, err := s.LastSnapshot(ctx, tallytest.LedgerID, at)
		if err != nil || !ok || string(got.Data) != want {
			t.Errorf("at %d: %v %v, snapshot of event %d with %d bytes", at, ok, err, got.Seq, len(got.Data))
		}
	}
	if _, ok, err := s.LastSnapshot(ctx, tallytest.LedgerID, 19); ok || err != nil {
		t.Errorf("the oldest is still there: %v", err)
	}
	if _, ok, err := s.LastSnapshot(ctx, [16]byte{1}, 99); ok || err != nil {
		t.Errorf("another ledger's: %v", err)
	}
}

// tcpStore is a store by DSN, as on a server: leases count there.
func tcpStore(t *testing.T, lease time.Duration) func() *Store {
	t.Helper()
	enginetest.Need(t)
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	short, err := os.MkdirTemp("", "acct")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	addr := freeAddr(t)
	e, err := embedded.Start(context.Background(), embedded.Options{
		Data:   filepath.Join(short, "d"),
		TCP:    addr,
		Logins: []embedded.Login{{Name: "muster", PasswordFile: password}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return func() *Store {
		s, err := Open(Options{DSN: "http://muster:secret@" + addr + "/leases", Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Migrate(context.Background()); err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// TestLease: by DSN, one writer at a time; who comes later waits until the
// first is silent, and the first stops when it sees the other.
func TestLease(t *testing.T) {
	ctx := context.Background()
	open := tcpStore(t, time.Hour)
	log := shortJobs(t, 3)
	first := open()
	ta := tally.New()
	w, _ := newWriter(t, first, ta)
	if err := w.Write(ctx, fold(t, ta, log[:10])); err != nil {
		t.Fatal(err)
	}
	if first.Database() != "leases" || first.Target() == "" || strings.Contains(first.Target(), "secret") {
		t.Errorf("database %q at %q", first.Database(), first.Target())
	}
	second := open()
	if _, _, err := second.NewWriter(ctx, tallytest.LedgerID, "peer"); !errors.Is(err, tally.ErrLease) {
		t.Fatalf("the lease was taken from a living writer: %v", err)
	}
	if _, _, err := second.NewWriter(ctx, [16]byte{9}, "other"); err != nil {
		t.Errorf("another ledger has a lease of its own: %v", err)
	}
	second.opts.Lease = time.Nanosecond // to it, the first has been silent for long
	w2, res, err := second.NewWriter(ctx, tallytest.LedgerID, "peer")
	if err != nil || res.Seq != 10 || res.Redo != 0 {
		t.Fatalf("%+v %v", res, err)
	}
	w.spoke = w.spoke.Add(-2 * time.Hour) // the first wakes up after a long pause
	if err := w.Write(ctx, fold(t, ta, log[10:12])); !errors.Is(err, tally.ErrLease) {
		t.Errorf("the first writes on: %v", err)
	}
	if err := w.Hold(ctx); !errors.Is(err, tally.ErrLease) {
		t.Errorf("the first holds on: %v", err)
	}
	if err := w2.Hold(ctx); err != nil {
		t.Error(err)
	}
}

// TestCancel: a question ends with its context.
func TestCancel(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "can")
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	err := s.Query(ctx, query.Query{SQL: "SELECT number FROM system.numbers"}, func(scan func(...any) error) error {
		if n++; n == 1000 {
			cancel()
		}
		var v uint64
		return scan(&v)
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after %d rows: %v", n, err)
	}
	bad := query.Query{
		SQL:    "SELECT {x:UInt32}",
		Params: []query.Param{{Name: "x", Value: "1); DROP TABLE jobs"}},
	}
	if err := s.Query(context.Background(), bad, func(func(...any) error) error { return nil }); err == nil {
		t.Error("a parameter became text")
	}
}
