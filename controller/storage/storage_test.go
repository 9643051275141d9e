package storage

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/log"
)

func configOf(dir string) *conffile.Config {
	config := conffile.Defaults()
	config.StateDir = dir
	config.Ledger.ArchiveDir = filepath.Join(dir, "archive")
	config.Ledger.ReserveBytes = 0
	return config
}

// TestOpenedTwice: what was opened and closed opens again, and a second process is refused
// meanwhile.
func TestOpenedTwice(t *testing.T) {
	config, quiet := configOf(t.TempDir()), slog.New(slog.DiscardHandler)
	for range 2 {
		storage, err := Open(config, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if storage.IsArchived() {
			t.Error("an archive without events holds something")
		}
		if err := storage.OpenLog(t.Context(), Place{}); err != nil {
			t.Fatal(err)
		}
		if seq := storage.Machine.Applied().Seq; seq != 0 {
			t.Errorf("an empty log was applied up to event %d", seq)
		}
		if err := storage.beforeCompact(1); err == nil || !strings.Contains(err.Error(), "may not forget up to 1") {
			t.Errorf("the log may forget what is not archived: %v", err)
		}
		if err := storage.beforeCompact(0); err != nil {
			t.Error(err)
		}
		if second, err := Open(config, quiet); err == nil {
			if err := second.OpenLog(t.Context(), Place{}); err == nil {
				t.Error("the log is open twice")
			}
			_ = second.Close()
		}
		if err := storage.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLogThatCannotBeOpened: the error names the state folder, and what was open can be closed.
func TestLogThatCannotBeOpened(t *testing.T) {
	config := configOf(t.TempDir())
	if err := os.WriteFile(filepath.Join(config.StateDir, "ledger"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	storage, err := Open(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	err = storage.OpenLog(t.Context(), Place{Options: log.Options{}})
	if err == nil || !strings.Contains(err.Error(), config.StateDir) {
		t.Errorf("the error is %v", err)
	}
	if err := storage.Close(); err != nil {
		t.Error(err)
	}
}
