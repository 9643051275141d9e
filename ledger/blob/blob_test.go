package blob_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/ledger/blob"
)

func open(t testing.TB, dir string, fileBytes int64) *blob.Store {
	t.Helper()
	s, err := blob.Open(dir, blob.Options{FileBytes: fileBytes, CacheBytes: 2000})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func closed(t testing.TB, s *blob.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// script makes blob n.
func script(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	b := fmt.Appendf(nil, "#!/bin/sh\n# %d\n", n)
	for range rng.IntN(300) {
		b = append(b, byte(rng.IntN(256)))
	}
	if n == 0 {
		return nil // the empty environment
	}
	return b
}

func put(t testing.TB, s *blob.Store, n int) {
	t.Helper()
	h, err := s.Put(script(n))
	if err != nil || h != blob.Sum(script(n)) {
		t.Fatalf("put %d: %s %v", n, h, err)
	}
}

func check(s *blob.Store, n int, want bool) error {
	h := blob.Sum(script(n))
	got, err := s.Get(h)
	switch {
	case s.Has(h) != want:
		return fmt.Errorf("blob %d: Has says %v", n, !want)
	case want && (err != nil || !bytes.Equal(got, script(n))):
		return fmt.Errorf("blob %d: %d bytes, %v", n, len(got), err)
	case !want && !errors.Is(err, blob.ErrNotFound):
		return fmt.Errorf("blob %d that is not there: %v", n, err)
	}
	return nil
}

// TestModel compares the store with a set, over restarts and sweeps.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "b")
		if err != nil {
			rt.Fatal(err)
		}
		size := int64(rapid.SampledFrom([]int{1, 1000, 5000, 1 << 20}).Draw(rt, "file"))
		s := open(t, dir, size)
		have := map[int]bool{}
		maybe := map[int]bool{} // removed by a sweep, known again after a restart
		id := rapid.IntRange(0, 60)
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				n := id.Draw(rt, "n")
				put(t, s, n)
				have[n] = true
				delete(maybe, n)
			},
			"sync": func(rt *rapid.T) {
				if err := s.Sync(); err != nil {
					rt.Fatal(err)
				}
			},
			"reopen": func(*rapid.T) {
				closed(t, s)
				s = open(t, dir, size)
				for n := range maybe {
					have[n] = s.Has(blob.Sum(script(n)))
					if !have[n] {
						delete(maybe, n)
					}
				}
			},
			"sweep": func(rt *rapid.T) {
				mod := rapid.IntRange(2, 5).Draw(rt, "keep")
				want := map[blob.Hash]bool{}
				for n := range have {
					want[blob.Sum(script(n))] = n%mod == 0
				}
				if _, err := s.Sweep(func(h blob.Hash) bool { return want[h] }); err != nil {
					rt.Fatal(err)
				}
				for n, there := range have {
					if there && n%mod != 0 {
						// What lies in the newest file stays until that is complete.
						if have[n] = s.Has(blob.Sum(script(n))); !have[n] {
							maybe[n] = true
						}
					}
				}
			},
			"": func(rt *rapid.T) {
				n := id.Draw(rt, "look")
				if err := check(s, n, have[n]); err != nil {
					rt.Fatal(err)
				}
			},
		})
		for n := range 60 {
			if err := check(s, n, have[n]); err != nil {
				rt.Fatal(err)
			}
		}
		closed(t, s)
	})
}

// TestSweepFrees: sweeping gives space back and keeps what is wanted.
func TestSweepFrees(t *testing.T) {
	s := open(t, t.TempDir(), 10_000)
	for n := range 1000 {
		put(t, s, n)
	}
	before := s.Stats()
	want := map[blob.Hash]bool{}
	for n := 0; n < 1000; n += 10 {
		want[blob.Sum(script(n))] = true
	}
	// Blobs put while the sweep runs stay, wanted or not, also those that were there before.
	var once sync.Once
	out, err := s.Sweep(func(h blob.Hash) bool {
		once.Do(func() { put(t, s, 555); put(t, s, 5000) })
		return want[h]
	})
	if err != nil {
		t.Fatal(err)
	}
	after := s.Stats()
	if after.OnDisk > before.OnDisk/4 || out.Files == 0 || after.Files >= before.Files/2 || out.Removed < 850 {
		t.Fatalf("%+v: %+v became %+v", out, before, after)
	}
	for n := range 1000 {
		if n%10 == 0 || n == 555 {
			if err := check(s, n, true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := check(s, 5000, true); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	if _, err := s.Put([]byte("x")); !errors.Is(err, blob.ErrClosed) {
		t.Fatalf("put after close: %v", err)
	}
}

func blobFiles(t testing.TB, dir string) []string {
	t.Helper()
	m, err := filepath.Glob(filepath.Join(dir, "*.blobs"))
	if err != nil || len(m) == 0 {
		t.Fatalf("no files: %v", err)
	}
	return m
}

// TestTornTail cuts the file anywhere: whole blobs stay, the others can be put again.
func TestTornTail(t *testing.T) {
	src := t.TempDir()
	s := open(t, src, 1<<20)
	for n := range 12 {
		put(t, s, n)
	}
	closed(t, s)
	whole, err := os.ReadFile(blobFiles(t, src)[0])
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut += 1 + cut%5 {
		dir := t.TempDir()
		b := append(append([]byte{}, whole[:cut]...), make([]byte, cut%3*50)...)
		if cut < 24 {
			b = whole[:cut]
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(blobFiles(t, src)[0])), b, 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir, 1<<20)
		if d := s.Stats().Damaged; d != 0 {
			t.Fatalf("cut at %d: %d bytes are called damaged", cut, d)
		}
		for n := range 12 {
			put(t, s, n)
			if err := check(s, n, true); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		closed(t, s)
	}
}

// TestBitFlips: a flipped blob is refused or gone, never returned, and putting it again heals it.
func TestBitFlips(t *testing.T) {
	for _, fileBytes := range []int64{2000, 1 << 20} {
		src := t.TempDir()
		s := open(t, src, fileBytes)
		for n := range 80 {
			put(t, s, n)
		}
		closed(t, s)
		rng := rand.New(rand.NewPCG(5, 5))
		files, err := filepath.Glob(filepath.Join(src, "*"))
		if err != nil {
			t.Fatal(err)
		}
		hurt := 0
		for range 150 {
			dir := t.TempDir()
			victim := rng.IntN(len(files))
			for i, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				if i == victim {
					bit := rng.IntN(len(b) * 8)
					b[bit/8] ^= 1 << (bit % 8)
				}
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(f)), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s, err := blob.Open(dir, blob.Options{FileBytes: fileBytes})
			if err != nil {
				var ce *durable.CorruptError
				if !errors.As(err, &ce) && !errors.Is(err, blob.ErrNewerVersion) {
					t.Fatal(err)
				}
				hurt++
				continue
			}
			lost := 0
			for n := range 80 {
				got, err := s.Get(blob.Sum(script(n)))
				if err != nil {
					if !errors.Is(err, blob.ErrCorrupt) && !errors.Is(err, blob.ErrNotFound) {
						t.Fatal(err)
					}
					lost++
					put(t, s, n)
					err = check(s, n, true)
				} else if !bytes.Equal(got, script(n)) {
					err = fmt.Errorf("blob %d came back changed", n)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if lost > 1 {
				t.Fatalf("one bit in %s cost %d blobs", files[victim], lost)
			}
			hurt += lost
			closed(t, s)
		}
		if hurt < 50 {
			t.Fatalf("only %d flips were noticed", hurt)
		}
	}
}

// TestExamine flips every bit of some bytes of a store's files: each is damage with a
// file's name, unless Open can make good what it hurt, or it looks like what a crash
// left behind the last record. Nothing is changed.
func TestExamine(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 2000)
	for n := range 40 {
		put(t, s, n)
	}
	want := s.Stats()
	closed(t, s)
	examine := func() (blob.Report, []error) {
		t.Helper()
		var found []error
		rep, err := blob.Examine(dir, func(err error) { found = append(found, err) })
		if err != nil {
			t.Fatal(err)
		}
		return rep, found
	}
	whole, found := examine()
	if len(found) > 0 || whole.Blobs != want.Blobs || whole.Bytes != want.Bytes || whole.Files != want.Files || whole.Files < 3 {
		t.Fatalf("a whole store: %+v, it says %+v: %v", whole, want, found)
	}
	files := blobFiles(t, dir)
	for _, path := range files[:len(files)-1] {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, 9, 21, 24, 30, 70, len(b) / 2, len(b) - 1} {
			b[at] ^= 16
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			rep, found := examine()
			if len(found) == 0 || rep.Blobs >= whole.Blobs || !strings.Contains(errors.Join(found...).Error(), path) {
				t.Errorf("byte %d of %s: %+v %v", at, path, rep, found)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
				t.Fatalf("%s was changed: %v", path, err)
			}
			b[at] ^= 16
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := blob.Examine(filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a store: %v", err)
	}
}

func TestConcurrent(t *testing.T) {
	s := open(t, t.TempDir(), 20_000)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 300 {
				n := i*4 + w%4 // every blob is put by two
				if _, err := s.Put(script(n)); err != nil {
					t.Error(err)
					return
				}
				if err := check(s, n, true); err != nil {
					t.Error(err)
					return
				}
				if i%100 == 50 {
					if err := s.Sync(); err != nil {
						t.Error(err)
					}
					if _, err := s.Sweep(func(blob.Hash) bool { return true }); err != nil {
						t.Error(err)
					}
				}
			}
		}()
	}
	wg.Wait()
	if n := s.Stats().Blobs; n != 1200 {
		t.Fatalf("%d blobs", n)
	}
	closed(t, s)
}

func TestHash(t *testing.T) {
	h := blob.Sum([]byte("x"))
	back, err := blob.ParseHash(h.String())
	if err != nil || back != h {
		t.Fatalf("%s %v", back, err)
	}
	for _, bad := range []string{"", "12", h.String() + "0", "zz" + h.String()[2:]} {
		if _, err := blob.ParseHash(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// BenchmarkPut stores different blobs of 12 KiB (a script and an environment), synced every 1,000.
func BenchmarkPut(b *testing.B) {
	s := open(b, b.TempDir(), 0)
	data := make([]byte, 12<<10)
	b.SetBytes(int64(len(data)))
	for i := range b.N {
		copy(data, fmt.Sprintf("%020d", i))
		if _, err := s.Put(data); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			if err := s.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	closed(b, s)
}

// BenchmarkPutKnown stores the same blob again.
func BenchmarkPutKnown(b *testing.B) {
	s := open(b, b.TempDir(), 0)
	data := make([]byte, 12<<10)
	for range b.N {
		if _, err := s.Put(data); err != nil {
			b.Fatal(err)
		}
	}
	closed(b, s)
}
