package archive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/ledger/archive"
)

// rec is what the test believes of one batch.
type rec struct {
	first, last uint64
	batch       []byte
}

// history makes n batches; some hold no events.
func history(n int, seed uint64) []rec {
	rng := rand.New(rand.NewPCG(seed, 1))
	seq := uint64(1)
	out := make([]rec, n)
	for i := range out {
		events := uint64(rng.IntN(5))
		b := fmt.Appendf(nil, "batch %d ", i+1)
		for range rng.IntN(600) {
			b = append(b, byte(rng.IntN(256)))
		}
		out[i] = rec{seq, seq + events - 1, b}
		seq += events
	}
	return out
}

func open(t testing.TB, dir string, segBytes int64) *archive.Archive {
	t.Helper()
	a, err := archive.Open(dir, archive.Options{SegmentBytes: segBytes})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return a
}

func closed(t testing.TB, a *archive.Archive) {
	t.Helper()
	if err := a.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func put(t testing.TB, a *archive.Archive, from int, hs []rec) {
	t.Helper()
	for i, r := range hs {
		if err := a.Append(uint64(from+i), r.first, r.last, r.batch); err != nil {
			t.Fatalf("append %d: %v", from+i, err)
		}
	}
}

// same reads the whole archive and compares.
func same(a *archive.Archive, want []rec) error {
	it := a.ReadFrom(1)
	for i := 0; ; i++ {
		r, err := it.Next()
		if errors.Is(err, io.EOF) {
			if i != len(want) {
				return fmt.Errorf("%d batches, want %d", i, len(want))
			}
			return nil
		}
		if err != nil {
			return err
		}
		if i >= len(want) || r.Pos != uint64(i+1) || r.FirstSeq != want[i].first || r.LastSeq != want[i].last || !bytes.Equal(r.Batch, want[i].batch) {
			return fmt.Errorf("batch %d is another", i+1)
		}
	}
}

// sealedAll waits until only the newest segment is not sealed.
func sealedAll(a *archive.Archive) {
	for s := a.Stats(); s.Sealed < s.Segments-1; s = a.Stats() {
		time.Sleep(time.Millisecond) //muster:sleep sealing runs in the background, in real time
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "a")
		if err != nil {
			rt.Fatal(err)
		}
		hs := history(rapid.IntRange(1, 400).Draw(rt, "batches"), rapid.Uint64().Draw(rt, "seed"))
		segBytes := int64(rapid.SampledFrom([]int{1, 3000, 20_000, 1 << 20}).Draw(rt, "segment"))
		done := 0
		for done < len(hs) {
			a := open(t, dir, segBytes)
			n := min(rapid.IntRange(1, 150).Draw(rt, "run"), len(hs)-done)
			// The log replays some that are already here.
			again := rapid.IntRange(0, done).Draw(rt, "again")
			put(t, a, done-again+1, hs[done-again:done+n])
			done += n
			if rapid.Bool().Draw(rt, "wait") {
				sealedAll(a)
			}
			if err := same(a, hs[:done]); err != nil {
				rt.Fatal(err)
			}
			seq := rapid.Uint64Range(1, hs[done-1].last+2).Draw(rt, "seq")
			checkSeek(rt, a, hs[:done], seq)
			closed(t, a)
		}
		a := open(t, dir, segBytes)
		rep, err := a.Verify(nil)
		if err != nil || rep.Records != uint64(len(hs)) || rep.LastSeq != hs[len(hs)-1].last {
			rt.Fatalf("verify: %+v %v", rep, err)
		}
		closed(t, a)
	})
}

func checkSeek(t *rapid.T, a *archive.Archive, hs []rec, seq uint64) {
	it, err := a.Reader(seq)
	if err != nil {
		t.Fatal(err)
	}
	r, err := it.Next()
	if seq > hs[len(hs)-1].last {
		// Only batches without events may follow.
		for err == nil && r.LastSeq < r.FirstSeq {
			r, err = it.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("behind the end: %+v %v", r, err)
		}
		return
	}
	if err != nil || r.FirstSeq > seq || r.LastSeq < seq {
		t.Fatalf("event %d is in batch %d with %d to %d, %v", seq, r.Pos, r.FirstSeq, r.LastSeq, err)
	}
}

func TestAppendRules(t *testing.T) {
	for _, segBytes := range []int64{200, 1 << 20} {
		a := open(t, t.TempDir(), segBytes)
		hs := history(50, 3)
		put(t, a, 1, hs)
		sealedAll(a)
		other := append([]byte{}, hs[9].batch...)
		other[0] ^= 1
		for name, c := range map[string]struct {
			err error
			do  func() error
		}{
			"same again":      {nil, func() error { return a.Append(10, hs[9].first, hs[9].last, hs[9].batch) }},
			"other bytes":     {archive.ErrDiffers, func() error { return a.Append(10, hs[9].first, hs[9].last, other) }},
			"other sequences": {archive.ErrDiffers, func() error { return a.Append(10, hs[9].first+1, hs[9].last+1, hs[9].batch) }},
			"gap":             {archive.ErrGap, func() error { return a.Append(52, 999, 999, nil) }},
			"event gap":       {archive.ErrGap, func() error { return a.Append(51, hs[49].last+2, hs[49].last+2, nil) }},
		} {
			if err := c.do(); !errors.Is(err, c.err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := same(a, hs); err != nil {
			t.Error(err)
		}
		closed(t, a)
		if err := a.Append(51, 1, 1, nil); !errors.Is(err, archive.ErrClosed) {
			t.Errorf("append after close: %v", err)
		}
	}
}

// TestTornTail cuts the newest live file at every length: what is whole stays, and the log brings the rest again.
func TestTornTail(t *testing.T) {
	hs := history(12, 5)
	src := t.TempDir()
	a := open(t, src, 1<<20)
	put(t, a, 1, hs)
	closed(t, a)
	live, err := os.ReadFile(liveFile(t, src))
	if err != nil {
		t.Fatal(err)
	}
	most := 3
	if os.Getenv("MUSTER_LONG") == "" {
		most = 13
	}
	for cut := 0; cut <= len(live); cut += 1 + cut%most {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "segments"), 0o700); err != nil {
			t.Fatal(err)
		}
		b := append([]byte{}, live[:cut]...)
		if cut > 32 && cut%2 == 0 {
			b = append(b, make([]byte, 100)...) // the file was longer, but its last sectors did not arrive
		}
		if err := os.WriteFile(filepath.Join(dir, "segments", filepath.Base(liveFile(t, src))), b, 0o600); err != nil {
			t.Fatal(err)
		}
		a := open(t, dir, 1<<20)
		_, last := a.Bounds()
		if err := same(a, hs[:last]); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		put(t, a, 1, hs)
		if err := same(a, hs); err != nil {
			t.Fatalf("refilled after a cut at %d: %v", cut, err)
		}
		closed(t, a)
	}
}

func liveFile(t testing.TB, dir string) string {
	t.Helper()
	m, err := filepath.Glob(filepath.Join(dir, "segments", "*.live"))
	if err != nil || len(m) == 0 {
		t.Fatalf("no live segment: %v", err)
	}
	return m[len(m)-1]
}

// TestBitFlips: damage is either refused by name, at Open or by Verify, or cut off as a torn tail behind which nothing is.
func TestBitFlips(t *testing.T) {
	hs := history(120, 6)
	src := t.TempDir()
	a := open(t, src, 8000)
	put(t, a, 1, hs)
	if err := a.PutSnapshot(60, hs[59].last, strings.NewReader(strings.Repeat("state ", 1000))); err != nil {
		t.Fatal(err)
	}
	sealedAll(a)
	closed(t, a)
	files, err := filepath.Glob(filepath.Join(src, "s*", "*")) // chain_test.go has those of the chain
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 8))
	noticed, torn := 0, 0
	for range 400 {
		file := files[rng.IntN(len(files))]
		whole, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b := append([]byte{}, whole...)
		bit := rng.IntN(len(b) * 8)
		b[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := archive.Open(src, archive.Options{SegmentBytes: 8000})
		if err == nil {
			_, last := a.Bounds()
			if _, verr := a.Verify(nil); verr != nil {
				err = verr
			} else if serr := same(a, hs[:last]); serr != nil {
				t.Fatalf("bit %d of %s changed the history silently: %v", bit, file, serr)
			} else if last < 120 && !strings.HasSuffix(file, ".live") {
				t.Fatalf("bit %d of %s lost batches silently", bit, file)
			} else if last < 120 {
				torn++
			} else {
				t.Fatalf("bit %d of %s was not noticed", bit, file)
			}
			closed(t, a)
		}
		if err != nil {
			noticed++
			var ce *durable.CorruptError
			if !errors.As(err, &ce) && !errors.Is(err, archive.ErrNewerVersion) || errors.As(err, &ce) && (ce.File == "" || ce.Cure == "") {
				t.Fatalf("bit %d of %s: %v", bit, file, err)
			}
		}
		if err := os.WriteFile(file, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d flips refused, %d cut off as the last record", noticed, torn)
	if noticed < 300 {
		t.Fatal("too few were noticed")
	}
}

func TestMissingSegment(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir, 2000)
	put(t, a, 1, history(100, 9))
	sealedAll(a)
	closed(t, a)
	segs, err := filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
	if err != nil || len(segs) < 4 {
		t.Fatalf("%v %v", segs, err)
	}
	if err := os.Rename(segs[2], filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if _, err := archive.Open(dir, archive.Options{}); !errors.Is(err, archive.ErrCorrupt) {
		t.Fatalf("a segment is missing: %v", err)
	}
}

// TestFollow reads while others append, seal and sync.
func TestFollow(t *testing.T) {
	hs := history(3000, 11)
	a := open(t, t.TempDir(), 30_000)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			it := a.ReadFrom(1)
			for i := range hs {
				r, err := it.Follow(ctx)
				if err != nil || r.Pos != uint64(i+1) || !bytes.Equal(r.Batch, hs[i].batch) {
					t.Errorf("batch %d: got %d, %v", i+1, r.Pos, err)
					return
				}
			}
		}()
	}
	wg.Add(1)
	go func() {
		defer wg.Done()
		for ctx.Err() == nil {
			if pos, err := a.Sync(); err != nil || pos == 3000 {
				if err != nil {
					t.Errorf("sync: %v", err)
				}
				return
			}
		}
	}()
	put(t, a, 1, hs)
	wg.Wait()
	it := a.ReadFrom(3001)
	stop, end := context.WithCancel(ctx)
	end()
	if _, err := it.Follow(stop); !errors.Is(err, context.Canceled) {
		t.Fatalf("follow with a cancelled context: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := it.Follow(ctx)
		got <- err
	}()
	closed(t, a)
	if err := <-got; !errors.Is(err, archive.ErrClosed) {
		t.Fatalf("follow over a close: %v", err)
	}
}

// clock is a clock that the test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func TestSnapshotsAndThinning(t *testing.T) {
	c := &clock{time.Date(2026, 1, 30, 0, 30, 0, 0, time.UTC)}
	a, err := archive.Open(t.TempDir(), archive.Options{Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, a)
	content := func(i int) string { return strings.Repeat(fmt.Sprintf("state %d ", i), 100_000) }
	// Twice an hour for four days, from January into February, thinned each time as a daemon would.
	for i := 1; i <= 4*48; i++ {
		if err := a.PutSnapshot(uint64(i*10), uint64(i*100), strings.NewReader(content(i%3))); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Thin(archive.Keep{Hours: 6, Days: 2}); err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(30 * time.Minute)
	}
	snaps, err := a.Snapshots()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range snaps {
		got = append(got, s.At.Format("01-02T15:04"))
		r, err := a.OpenSnapshot(s)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil || string(b) != content(int(s.Pos/10)%3) || s.Seq != s.Pos*10 {
			t.Fatalf("snapshot of %d holds %d bytes, %v", s.Pos, len(b), err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	want := "01-30T00:30 02-01T00:00 02-02T00:00 02-02T19:00 02-02T20:00 02-02T21:00 02-02T22:00 02-02T23:00 02-03T00:00"
	if strings.Join(got, " ") != want {
		t.Fatalf("kept\n%s, want\n%s", strings.Join(got, " "), want)
	}
	if s, ok, err := a.SnapshotBefore(snaps[1].Pos + 1); err != nil || !ok || s.Pos != snaps[1].Pos {
		t.Fatalf("snapshot before %d: %d %v %v", snaps[1].Pos+1, s.Pos, ok, err)
	}
}

func TestRetain(t *testing.T) {
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	hs := history(300, 13)
	dir := t.TempDir()
	a, err := archive.Open(dir, archive.Options{Now: c.Now, SegmentBytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range hs {
		if err := a.Append(uint64(i+1), r.first, r.last, r.batch); err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(time.Hour)
	}
	sealedAll(a)
	drop := func(seq uint64, older time.Time, some bool) {
		t.Helper()
		n, err := a.Retain(seq, older)
		if err != nil || n > 0 != some {
			t.Fatalf("%d dropped, %v", n, err)
		}
	}
	all := hs[299].last
	drop(all, c.now, false) // no snapshot: what remains could not be folded
	if err := a.PutSnapshot(200, hs[199].last, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	drop(0, c.now, false)                                          // accounting is behind
	drop(all, time.Date(2025, 12, 1, 0, 0, 0, 0, time.UTC), false) // all are younger
	drop(all, time.Date(2026, 1, 3, 0, 0, 0, 0, time.UTC), true)
	first, _ := a.Bounds()
	if first <= 20 || first > 49 {
		t.Fatalf("after two days were dropped the archive begins at %d", first)
	}
	drop(all, c.now, true)
	if first, _ = a.Bounds(); first > 201 || first < 150 {
		t.Fatalf("the archive begins at %d, the snapshot is at 200", first)
	}
	if _, err := a.ReadFrom(1).Next(); !errors.Is(err, archive.ErrDropped) {
		t.Fatalf("reading what was dropped: %v", err)
	}
	if _, err := a.Reader(1); !errors.Is(err, archive.ErrDropped) {
		t.Fatalf("seeking what was dropped: %v", err)
	}
	closed(t, a)
	a = open(t, dir, 5000)
	defer closed(t, a)
	if rep, err := a.Verify(nil); err != nil || rep.FirstPos != first || rep.LastPos != 300 {
		t.Fatalf("%+v %v", rep, err)
	}
}

// TestInterruptedSeal: a crash after the sealed file was renamed into place leaves both.
func TestInterruptedSeal(t *testing.T) {
	hs := history(60, 15)
	dir := t.TempDir()
	a := open(t, dir, 1<<20)
	put(t, a, 1, hs)
	closed(t, a)
	live := liveFile(t, dir)
	raw, err := os.ReadFile(live)
	if err != nil {
		t.Fatal(err)
	}
	a = open(t, dir, 1) // the next append begins a new segment, and this one is sealed
	if err := a.Append(61, hs[59].last+1, hs[59].last+1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	sealedAll(a)
	closed(t, a)
	if err := os.WriteFile(live, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if bad := damaged(t, dir); bad != 0 {
		t.Fatalf("%d places are damaged", bad)
	}
	sealed := strings.TrimSuffix(live, ".live") + ".seg"
	harm(t, sealed)
	if bad := damaged(t, dir); bad == 0 {
		t.Error("damage of the sealed file, which is the one that counts, was not seen")
	}
	harm(t, sealed)
	a = open(t, dir, 1)
	defer closed(t, a)
	if err := same(a, append(hs, rec{hs[59].last + 1, hs[59].last + 1, []byte("x")})); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(live); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the raw file is still there: %v", err)
	}
}

// damaged is how many damaged places Examine finds.
func damaged(t *testing.T, dir string) int {
	t.Helper()
	bad, err := archive.Examine(dir, func(error) {}, func(archive.Report) {})
	if err != nil {
		t.Fatal(err)
	}
	return bad
}

// harm inverts the middle of a file; doing it twice mends it.
func harm(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 0xff
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTheFileKeepsPace: a batch is in the file soon after it was appended, without
// a sync, so that the end of the process leaves it there.
func TestTheFileKeepsPace(t *testing.T) {
	dir := t.TempDir()
	a, err := archive.Open(dir, archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for pos := uint64(1); pos <= 20; pos++ {
		if err := a.Append(pos, pos, pos, []byte("a batch")); err != nil {
			t.Fatal(err)
		}
		for { // without a limit: a test that waits for ever has failed
			var rep archive.Report
			if _, err := archive.Examine(dir, func(err error) { t.Error(err) }, func(r archive.Report) { rep = r }); err != nil {
				t.Fatal(err)
			}
			if rep.LastPos == pos {
				break
			}
			runtime.Gosched()
		}
	}
}
