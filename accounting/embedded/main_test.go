package embedded

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// TestMain lets the test binary be the engine process, as musterd is in production.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Subcommand {
		os.Exit(Command(context.Background(), os.Args[2:], os.Stderr))
	}
	os.Exit(m.Run())
}

// needLibrary skips a test that needs the real engine when its library is not here, unless MUSTER_REQUIRE_ENGINE says
// that it must be.
func needLibrary(t testing.TB) {
	t.Helper()
	if _, err := FindLibrary(); err != nil {
		if os.Getenv("MUSTER_REQUIRE_ENGINE") != "" {
			t.Fatalf("MUSTER_REQUIRE_ENGINE is set, but %v", err)
		}
		t.Skipf("NOT TESTED against the ClickHouse engine. %v", err)
	}
}

// testLog collects a supervisor's log and shows it when the test fails.
type testLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *testLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newTestLog(t testing.TB) (*testLog, *slog.Logger) {
	l := &testLog{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the supervisor and the engine:\n%s", l)
		}
	})
	return l, slog.New(slog.NewTextHandler(l, nil))
}

// startEngine runs an engine for one test, in a folder of its own unless o names one.
func startEngine(t testing.TB, o Options) *Supervisor {
	t.Helper()
	needLibrary(t)
	if o.Data == "" {
		o.Data = shortDir(t)
	}
	if o.Log == nil {
		_, o.Log = newTestLog(t)
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatalf("start the engine: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("stop the engine: %v", err)
		}
	})
	return s
}

// shortDir is a temporary folder whose name leaves room for a socket's.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "eng")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "d")
}

// clientOptions are what accounting uses: the driver as it is, over the socket.
func clientOptions(socket string) *clickhouse.Options {
	return &clickhouse.Options{
		Protocol: clickhouse.HTTP,
		Addr:     []string{"localhost"},
		DialContext: func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		Compression: &clickhouse.Compression{Method: clickhouse.CompressionNone},
	}
}

func open(t testing.TB, o *clickhouse.Options) driver.Conn {
	t.Helper()
	c, err := clickhouse.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func mustExec(t testing.TB, c driver.Conn, sql string, args ...any) {
	t.Helper()
	if err := c.Exec(context.Background(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// one reads a single value.
func one[T any](t testing.TB, c driver.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := c.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// wantCode checks that err is a ClickHouse exception with a code and text.
func wantCode(t testing.TB, err error, code int32, text string) {
	t.Helper()
	var e *clickhouse.Exception
	switch {
	case !errors.As(err, &e):
		t.Errorf("error %v, want exception %d", err, code)
	case e.Code != code || !strings.Contains(e.Message, text):
		t.Errorf("exception %d %q, want %d with %q", e.Code, e.Message, code, text)
	}
}
