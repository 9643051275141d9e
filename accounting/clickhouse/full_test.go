package clickhouse

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/spec"
)

// smallDisk mounts a file system of some size, which needs root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	enginetest.Need(t)
	dir, err := os.MkdirTemp("", "full")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("NOT TESTED with a full disk: a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestDiskFull: with no room left on the engine's disk a batch fails and says
// why, what is stored stays and can be read, and when there is room again the
// same batch is stored, each row once. Days that cannot be added up are added
// up later. So it is with the engine of this host, and with a server that is
// reached by its DSN.
func TestDiskFull(t *testing.T) {
	ctx := context.Background()
	dir := smallDisk(t, "224m")
	address, file := freeAddr(t), filepath.Join(dir, "pw")
	if err := os.WriteFile(file, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := embedded.Start(ctx, embedded.Options{
		Data:   filepath.Join(dir, "d"),
		TCP:    address,
		Logins: []embedded.Login{{Name: "muster", PasswordFile: file}},
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	t.Run("embedded", func(t *testing.T) { fullDisk(t, openStore(t, e.Socket(), "full"), dir) })
	t.Run("server", func(t *testing.T) {
		s, err := Open(Options{DSN: "http://muster:secret@" + address + "/served"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if err := s.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		fullDisk(t, s, dir)
	})
}

func fullDisk(t *testing.T, s *Store, dir string) {
	ctx := context.Background()
	w, _ := newWriter(t, s, tally.New())
	batch := func(first, n int) *tally.Batch {
		b := &tally.Batch{
			First: uint64(first),
			Last:  uint64(first + n - 1),
			At:    spec.AtUnix(1_792_454_400 + int64(first)*3600),
		}
		for i := range n {
			at := tally.Cut(b.At) - tally.Micros(n-i)*1_000_000
			noise := make([]byte, 2000)
			_, _ = rand.Read(noise) // never fails
			b.Jobs = append(b.Jobs, tally.JobRow{
				Seq:       uint64(first + i),
				UID:       uint64(first + i),
				JobID:     uint32(first + i),
				ArrayTask: -1,
				Count:     1,
				State:     "COMPLETED",
				User:      "u",
				Submit:    at,
				Start:     at,
				End:       at + 1,
				Comment:   fmt.Sprintf("%x", noise),
			})
		}
		return b
	}
	if err := w.Write(ctx, batch(1, 100)); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	first := 101
	for name, room := range map[string]int64{"none": 0, "for the intent alone": 3 << 20} {
		fill(t, ballast, room)
		next := batch(first, 3000)
		err := w.Write(ctx, next)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "space") {
			t.Fatalf("room %s: a batch is stored on a full disk: %v", name, err)
		}
		if told := s.Explain(err).Error(); !strings.Contains(strings.ToLower(told), "space") {
			t.Errorf("room %s: told as %q", name, told)
		}
		if found, err := s.Examine(ctx, tallytest.LedgerID); err != nil || !slices.ContainsFunc(found, func(f query.Finding) bool { return f.Bad && strings.HasPrefix(f.Name, "disk ") }) {
			t.Errorf("room %s: the doctor finds %+v, %v", name, found, err)
		}
		if pos, err := s.Position(ctx, tallytest.LedgerID); err != nil || pos.Seq != uint64(first-1) {
			t.Errorf("room %s: position %d, %v", name, pos.Seq, err)
		}
		if n := one[uint64](t, s, fmt.Sprintf("SELECT count() FROM %s.jobs WHERE seq < %d", s.Database(), first)); n != uint64(first-1) {
			t.Errorf("room %s: %d rows of %d are left", name, n, first-1)
		}
		// It may be done or not: a few kilobytes may be left.
		_, _ = w.RollUp(ctx)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(ctx, next); err != nil {
			t.Fatalf("room %s, with room again: %v", name, err)
		}
		first += 3000
		if n := one[uint64](t, s, "SELECT count() * (count() = uniqExact(uid)) FROM "+s.Database()+".jobs"); n != uint64(first-1) {
			t.Errorf("room %s: %d rows", name, n)
		}
		if _, err := w.RollUp(ctx); err != nil {
			t.Errorf("room %s, with room again: %v", name, err)
		}
	}
}

// fill writes a file until so much room is left.
func fill(t *testing.T, path string, room int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4096} {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	at, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(max(0, at.Size()-room)); err != nil {
		t.Fatal(err)
	}
}
