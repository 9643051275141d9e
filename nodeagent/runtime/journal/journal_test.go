package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// read opens the journal and gives its records.
func read(t testing.TB, path string) ([]string, int64, error) {
	t.Helper()
	var got []string
	j, torn, err := Open(path, func(b []byte) error { got = append(got, string(b)); return nil })
	if err == nil {
		_ = j.Close()
	}
	return got, torn, err
}

func open(t testing.TB, path string) *Journal {
	t.Helper()
	j, _, err := Open(path, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func TestRecordsComeBackInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path)
	if _, err := j.Append([]byte("a"), []byte("b")); err != nil {
		t.Fatal(err)
	}
	seq, err := j.AppendReserved([]byte("c"))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Sync(seq); err != nil {
		t.Fatal(err)
	}
	if got, torn, err := read(t, path); err != nil || torn != 0 || strings.Join(got, "") != "abc" {
		t.Fatalf("got %q, torn %d, %v", got, torn, err)
	}
}

// TestAnyCutKeepsAPrefix cuts the file anywhere: what comes back is a prefix,
// and appending goes on after it.
func TestAnyCutKeepsAPrefix(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(t.TempDir(), "j")
		recs := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 50), 0, 10).Draw(rt, "records")
		j := open(t, path)
		for _, r := range recs {
			if _, err := j.Append(r); err != nil {
				rt.Fatal(err)
			}
		}
		size := j.Size()
		_ = j.Close()
		cut := rapid.Int64Range(0, size).Draw(rt, "cut")
		if err := os.Truncate(path, cut); err != nil {
			rt.Fatal(err)
		}
		got, _, err := read(t, path)
		if err != nil {
			rt.Fatal(err)
		}
		for i, g := range got {
			if g != string(recs[i]) {
				rt.Fatalf("record %d changed", i)
			}
		}
		j = open(t, path)
		if _, err := j.Append([]byte("after")); err != nil {
			rt.Fatal(err)
		}
		_ = j.Close()
		again, torn, err := read(t, path)
		if err != nil || torn != 0 || len(again) != len(got)+1 || again[len(got)] != "after" {
			rt.Fatalf("got %q, torn %d, %v", again, torn, err)
		}
	})
}

func TestDamageBeforeTheEndIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path)
	for i := range 5 {
		if _, err := j.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	_ = j.Close()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[bytes.Index(b, []byte("record 2"))] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(t, path); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("got %v", err)
	}
	if err := os.WriteFile(path, []byte("something else entirely"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := read(t, path); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a foreign file: %v", err)
	}
}

func TestRewriteKeepsOnlyWhatIsEmitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j := open(t, path)
	for range 1000 {
		if _, err := j.Append(bytes.Repeat([]byte("x"), 500)); err != nil {
			t.Fatal(err)
		}
	}
	err := j.Rewrite(func(add func([]byte) error) error { return errors.Join(add([]byte("one")), add([]byte("two"))) })
	if err != nil {
		t.Fatal(err)
	}
	seq, err := j.Append([]byte("three"))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Sync(seq); err != nil {
		t.Fatal(err)
	}
	got, _, err := read(t, path)
	if err != nil || strings.Join(got, " ") != "one two three" {
		t.Fatalf("got %d records, %v", len(got), err)
	}
	if err := j.Rewrite(func(func([]byte) error) error { return errors.New("no") }); err == nil {
		t.Error("a failed rewrite was not reported")
	}
	if got, _, _ := read(t, path); len(got) != 3 {
		t.Errorf("a failed rewrite changed the file: %q", got)
	}
}

func TestManySyncsShareFlushes(t *testing.T) {
	j := open(t, filepath.Join(t.TempDir(), "j"))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 20 {
				seq, err := j.Append([]byte("x"))
				if err == nil {
					err = j.Sync(seq)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// TestFullDiskKeepsRoomForEnds fills a real small file system: appends are
// refused with ErrFull while reserved ones still succeed, and room that comes
// back is used.
func TestFullDiskKeepsRoomForEnds(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	path := filepath.Join(dir, "j")
	j := open(t, path)
	big := bytes.Repeat([]byte("x"), 64<<10)
	if _, err := j.Append(big); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, bytes.Repeat(big, 200), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	var err error
	begun := 0
	for err == nil {
		if _, err = j.Append(big); err == nil {
			begun++
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("got %v", err)
	}
	ends := 0
	for ; ends < Reserve/len(big)-1; ends++ {
		if _, err := j.AppendReserved(big); err != nil {
			t.Fatalf("end %d: %v", ends, err)
		}
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append([]byte("room again")); err != nil {
		t.Fatal(err)
	}
	_ = j.Close()
	got, torn, err := read(t, path)
	if err != nil || torn != 0 || len(got) != 1+begun+ends+1 {
		t.Fatalf("%d records, want %d; torn %d, %v", len(got), 1+begun+ends+1, torn, err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte(magic))
	f.Add([]byte(magic + "\x01\x00\x00\x00\x00\x00\x00\x00x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		first, _, err := read(t, path)
		if err != nil {
			return
		}
		second, torn, err := read(t, path)
		if err != nil || torn != 0 || len(first) != len(second) {
			t.Fatalf("a second reading differs: %d, %d, %d, %v", len(first), len(second), torn, err)
		}
	})
}
