// Package enginetest gives tests the real ClickHouse engine.
package enginetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/accounting/embedded"
)

// Main is what a test binary does, and how it ends: it is the engine's process
// where it was started as that, and runs its tests otherwise. TestMain is
// os.Exit(enginetest.Main(m.Run)).
func Main(run func() int) int {
	if len(os.Args) > 1 && os.Args[1] == embedded.Subcommand {
		return embedded.Command(context.Background(), os.Args[2:], os.Stderr)
	}
	return run()
}

// Need skips a test that needs the engine when its library is not here, unless
// MUSTER_REQUIRE_ENGINE says that it must be.
func Need(t testing.TB) {
	t.Helper()
	if _, err := embedded.FindLibrary(); err != nil {
		if os.Getenv("MUSTER_REQUIRE_ENGINE") != "" {
			t.Fatalf("MUSTER_REQUIRE_ENGINE is set, but %v", err)
		}
		t.Skipf("NOT TESTED against the ClickHouse engine. %v", err)
	}
}

// Start runs an engine for one test, or skips it.
func Start(t testing.TB) *embedded.Supervisor {
	t.Helper()
	Need(t)
	dir, err := os.MkdirTemp("", "eng") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	supervisor, err := embedded.Start(
		context.Background(),
		embedded.Options{Data: filepath.Join(dir, "d"), Log: slog.New(slog.DiscardHandler)},
	)
	if err != nil {
		t.Fatalf("start the engine: %v", err)
	}
	t.Cleanup(func() {
		if err := supervisor.Close(); err != nil {
			t.Errorf("stop the engine: %v", err)
		}
	})
	return supervisor
}
