package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/tally"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// serverPassword opens the engine of startServer.
const serverPassword = "s3cret-of-the-test"

// startServer starts an engine that is reached as a server of its own is: over
// TCP, with a login.
func startServer(t *testing.T) (address string) {
	t.Helper()
	enginetest.Need(t)
	dir, err := os.MkdirTemp("", "accts")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = free.Addr().String()
	free.Close()
	file := filepath.Join(dir, "pw")
	if err := os.WriteFile(file, []byte(serverPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(context.Background(), embedded.Options{Data: filepath.Join(dir, "d"), TCP: address, Logins: []embedded.Login{{Name: "muster", PasswordFile: file}},
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("start the engine: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return address
}

// road leads to a server, and may be bad.
type road struct {
	net.Listener
	to string

	mu     sync.Mutex
	hangs  chan struct{} // closed when what the server says goes through again; nil = it does
	lag    time.Duration // before each piece of what the server says
	closed bool
	conns  []net.Conn
}

func newRoad(t *testing.T, to string) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{Listener: l, to: to}
	t.Cleanup(func() { r.hang(false); r.block(true); l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			if r.closed {
				c.Close()
			} else {
				r.conns = append(r.conns, c)
				go r.carry(c)
			}
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *road) carry(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() { _, _ = io.Copy(s, c) }() // ends with either
	buf := make([]byte, 64<<10)
	for {
		n, err := s.Read(buf)
		r.mu.Lock()
		hangs, lag := r.hangs, r.lag
		r.mu.Unlock()
		if hangs != nil {
			<-hangs
		}
		if lag > 0 {
			time.Sleep(lag) //muster:sleep this is the slow road
		}
		if _, werr := c.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// hang keeps what the server says from arriving, or lets it.
func (r *road) hang(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case on && r.hangs == nil:
		r.hangs = make(chan struct{})
	case !on && r.hangs != nil:
		close(r.hangs)
		r.hangs = nil
	}
}

// block ends all connections and takes no more, or takes them again.
func (r *road) block(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed = on; on {
		for _, c := range r.conns {
			c.Close()
		}
		r.conns = nil
	}
}

func (r *road) slow(lag time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lag = lag
}

// safeBuffer is a log that is read while it is written.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// byDSN is a service whose store is a server.
func byDSN(t *testing.T, ledger *memLedger, address, password string) (*rig, *safeBuffer) {
	t.Helper()
	r := newRig(t, "unused", ledger)
	store, err := clickhouse.Open(clickhouse.Options{DSN: "http://muster:" + password + "@" + address + "/muster?dial_timeout=2s&read_timeout=2s"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	log := &safeBuffer{}
	r.store, r.cfg.Store = store, store
	r.cfg.OpenWriter = func(ctx context.Context, id [16]byte, cluster string) (daemon.Writer, tally.Resume, error) {
		return store.NewWriter(ctx, id, cluster)
	}
	r.cfg.ReadWait, r.cfg.WriteWait = 50*spec.Millisecond, 2*spec.Second
	r.cfg.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	r.cfg.Identify = func(context.Context) daemon.Caller { return daemon.Caller{Admin: true} }
	return r, log
}

// until waits for something that must come.
func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) { //muster:sleep until it is so
		if time.Since(began) > time.Minute {
			r.t.Fatalf("%s: it does not come about: %+v", what, r.Status())
		}
	}
}

// told wants one clear sentence in the status and the log, and one in sacct's
// refusal and the doctor's findings, without the password.
func (r *rig) told(log *safeBuffer, want, asked string) {
	r.t.Helper()
	r.until(want, func() bool { return r.Status().Error != nil && strings.Contains(r.Status().Error.Error(), want) })
	// Nothing waits for longer than since the first event, whenever this test runs.
	oldest := spec.Span(time.Since(time.Unix(t0, 0))) + spec.Span(spec.Hour)
	if st := r.Status(); st.Up || st.Lag < 0 || st.Lag > oldest {
		r.t.Errorf("%s: %+v", want, st)
	}
	r.until("the log: "+want, func() bool { return strings.Contains(log.String(), want) })
	_, err := r.Service().Jobs(r.t.Context(), &apiv1.AcctQuery{AllUsers: true})
	if spec.CodeOf(err) != spec.CodeDatabaseUnreachable || !strings.Contains(err.Error(), asked) {
		r.t.Errorf("sacct is told %v, not %s", err, asked)
	}
	bad := strings.Join(r.care("doctor", ""), "\n")
	if !strings.Contains(bad, "error: ") || !strings.Contains(bad, want) || !strings.Contains(bad, asked) {
		r.t.Errorf("the doctor finds %q, not %s and %s", bad, want, asked)
	}
	if all := log.String() + bad + fmt.Sprint(err); strings.Contains(all, serverPassword) || strings.Contains(all, "sendQuery") {
		r.t.Errorf("said: %s", all)
	}
}

// TestEngineDoesNotStart: what keeps the engine from starting is told to whoever
// asks, and how far behind the store is counts from the service's start.
func TestEngineDoesNotStart(t *testing.T) {
	ledger := newLedger(t)
	ledger.add(t, busy(t, 20), 10)
	r := newRig(t, filepath.Join(t.TempDir(), "none"), ledger)
	r.Daemon = daemon.New(r.cfg)
	const why = "lock the data path: read-only file system"
	if st := r.Status(); st.Up || st.Lag > spec.Minute {
		t.Errorf("before anything is known: %+v", st)
	}
	r.Waits(errors.New(why))
	if st := r.Status(); st.Up || st.Error == nil || st.Error.Error() != why || st.Lag > spec.Minute {
		t.Errorf("%+v", st)
	}
	_, err := r.Service().Jobs(t.Context(), &apiv1.AcctQuery{AllUsers: true})
	if spec.CodeOf(err) != spec.CodeDatabaseUnreachable || !strings.Contains(err.Error(), why) {
		t.Errorf("sacct is told %v", err)
	}
	if bad := strings.Join(r.care("doctor", ""), "\n"); !strings.Contains(bad, "error: "+why) || strings.Contains(bad, "the store takes rows") {
		t.Errorf("the doctor finds %q", bad)
	}
}

// TestServerFaults: a server of its own that refuses the login, is not there,
// hangs, breaks off, is slow, or was migrated by a newer release is told about
// in one clear sentence everywhere, and once it is well everything is stored
// once.
func TestServerFaults(t *testing.T) {
	log := busy(t, 120)
	ledger := newLedger(t)
	ledger.add(t, log[:len(log)/2], 10)
	address := startServer(t)

	r, said := byDSN(t, ledger, address, "wrong")
	r.start()
	r.told(said, "the store refuses the login", "the store refuses the login")
	r.stop()

	road := newRoad(t, address)
	road.block(true)
	r, said = byDSN(t, ledger, road.Addr().String(), serverPassword)
	r.start()
	r.told(said, "the connection to the store at", "the connection to the store at")
	road.block(false)
	r.stored(uint64(len(log) / 2))

	road.hang(true)
	ledger.add(t, log[len(log)/2:len(log)*3/4], 10)
	r.told(said, "does not answer in time", "does not answer in time")
	road.hang(false)
	road.slow(20 * time.Millisecond)
	ledger.add(t, log[len(log)*3/4:], 10)
	r.stored(uint64(len(log)))
	if got, w := r.rows(), want(t, log); got != w {
		t.Errorf("over a bad road:\n%s\nwant\n%s", got, w)
	}
	if bad := r.care("verify", ""); bad != nil {
		t.Errorf("over a bad road: %v", bad)
	}
	road.slow(0)
	if err := r.store.Exec(t.Context(), fmt.Sprintf("INSERT INTO muster.schema_versions (version) VALUES (%d)", clickhouse.SchemaVersion+1)); err != nil {
		t.Fatal(err)
	}
	r.stop()
	road.Close()
	road.block(true)
	r, said = byDSN(t, ledger, address, serverPassword)
	r.start()
	r.told(said, "made by a newer release of muster: upgrade this one", "made by a newer release of muster: upgrade this one")

	r, said = byDSN(t, ledger, road.Addr().String(), serverPassword)
	r.start()
	r.told(said, "the store cannot be reached: dial tcp", "the store cannot be reached: dial tcp")
}
