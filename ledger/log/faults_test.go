package log_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

var bg = context.Background()

func mustOpen(t *testing.T, opts log.Options) *log.Durable {
	t.Helper()
	l, err := log.Open(bg, opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l
}

func mustAppend(t *testing.T, l log.Log, h *history) {
	t.Helper()
	pos, err := l.Append(payload(h.next)).Wait(bg)
	if err != nil {
		t.Fatalf("append %d: %v", h.next, err)
	}
	h.acked[pos] = h.next
	h.next++
}

func mustClose(t *testing.T, l log.Log) {
	t.Helper()
	if err := l.Close(bg); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func filesOf(d *logtest.Disk, suffix string) []string {
	var out []string
	for _, f := range d.Files() {
		if strings.HasSuffix(f, suffix) {
			out = append(out, f)
		}
	}
	return out
}

// TestMissingFiles removes files one by one: only the older snapshot and what lies behind the newer one may be missed.
func TestMissingFiles(t *testing.T) {
	disk, h, want := filledDisk(t, true)
	for _, f := range disk.Files() {
		broken := disk.Clone()
		if err := broken.FS().Remove(f); err != nil {
			t.Fatal(err)
		}
		m := &logtest.Machine{}
		l, err := log.Open(bg, simOptions(broken, m))
		if err == nil {
			if err := errors.Join(h.check(m), l.Close(bg)); err != nil || m.Hash() != want {
				t.Errorf("without %s the state is another: %v", f, err)
			}
			continue
		}
		var ce *durable.CorruptError
		if !errors.As(err, &ce) || ce.Cure == "" || ce.File == "" {
			t.Errorf("without %s: %v", f, err)
		}
	}
}

// TestDamagedSnapshotCure follows the advice in the error.
func TestDamagedSnapshotCure(t *testing.T) {
	disk, h, want := filledDisk(t, true)
	snaps := filesOf(disk, ".snap")
	if len(snaps) != 2 {
		t.Fatalf("snapshots %v", snaps)
	}
	disk.Flip(snaps[1], 8*int64(len(disk.Content(snaps[1]))/2))
	_, err := log.Open(bg, simOptions(disk, &logtest.Machine{}))
	var ce *durable.CorruptError
	if !errors.As(err, &ce) || ce.File != snaps[1] || !strings.Contains(ce.Cure, "move the file away") {
		t.Fatalf("damaged snapshot: %v", err)
	}
	if err := disk.FS().Rename(snaps[1], "/elsewhere"); err != nil {
		t.Fatal(err)
	}
	m := &logtest.Machine{}
	l := mustOpen(t, simOptions(disk, m))
	defer mustClose(t, l)
	if err := h.check(m); err != nil || m.Hash() != want {
		t.Fatalf("after the cure: %v", err)
	}
}

func TestArchiveKnowsMore(t *testing.T) {
	disk, _, _ := filledDisk(t, true)
	opts := simOptions(disk, &logtest.Machine{})
	opts.AtLeast = 301
	if _, err := log.Open(bg, opts); !errors.Is(err, log.ErrCorrupt) {
		t.Fatalf("a log that ends at 300 when 301 was acknowledged: %v", err)
	}
	opts.AtLeast = 300
	opts.Machine = &logtest.Machine{}
	mustClose(t, mustOpen(t, opts))
}

// TestDiskFull fills the disk at chosen and random points, also in the middle of segments, rotations and snapshots. In a
// cluster of one the log promises that an error means the batch will not be applied, ever.
func TestDiskFull(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel() // most of the time it waits for elections
			diskFull(t, seed)
		})
	}
}

func diskFull(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	disk := logtest.NewDisk(seed)
	h := &history{next: 1, acked: map[log.Position]int{}}
	m := &logtest.Machine{}
	l := mustOpen(t, simOptions(disk, m))
	for range 4 {
		disk.SetCapacity(disk.Used() + rng.Uint64N(40_000))
		waiting := fillUp(t, l, h, rng)
		if head, err := l.Headroom(); err != nil || !head.Low() {
			t.Fatalf("seed %d: headroom of a full disk %+v %v", seed, head, err)
		}
		if err := l.Resume(bg); !errors.Is(err, log.ErrDiskFull) {
			// A snapshot may have failed meanwhile and given its space back.
			if err != nil {
				t.Fatalf("seed %d: resume on a full disk: %v", seed, err)
			}
		}
		disk.SetCapacity(1 << 40)
		if err := l.Resume(bg); err != nil {
			t.Fatalf("seed %d: resume: %v", seed, err)
		}
		for _, w := range waiting {
			pos, err := w.pending.Wait(bg)
			if err != nil {
				t.Fatalf("seed %d: batch %d was neither applied nor refused while the disk was full, and then failed: %v", seed, w.batch, err)
			}
			h.acked[pos] = w.batch
		}
		if n := len(m.Batches()); n != len(h.acked) {
			t.Fatalf("seed %d: %d batches applied, %d acknowledged", seed, n, len(h.acked))
		}
		mustAppend(t, l, h)
	}
	mustClose(t, l)
	m = &logtest.Machine{}
	l = mustOpen(t, simOptions(disk, m))
	if n := len(m.Batches()); n != len(h.acked) || h.check(m) != nil {
		t.Fatalf("seed %d: %d batches after the restart, %d acknowledged: %v", seed, n, len(h.acked), h.check(m))
	}
	mustClose(t, l)
}

// late is a batch that is stored, and is applied when a leader can store again:
// the log steps down over a later write before it has reported this one.
type late struct {
	pending log.Pending
	batch   int
}

// fillUp appends until the log fails. What gets no answer while the disk is
// full is returned.
func fillUp(t *testing.T, l log.Log, h *history, rng *rand.Rand) (waiting []late) {
	t.Helper()
	for {
		var ps []log.Pending
		first := h.next
		for range 1 + rng.IntN(9) {
			ps = append(ps, l.Append(payload(h.next)))
			h.next++
		}
		failed := false
		for i, p := range ps {
			ctx, cancel := context.WithTimeout(bg, 5*time.Second)
			pos, err := p.Wait(ctx)
			cancel()
			switch {
			case errors.Is(err, context.DeadlineExceeded) && !failed:
				waiting = append(waiting, late{p, first + i})
			case err == nil && (failed || len(waiting) > 0):
				t.Fatalf("batch %d was applied after one before it failed", first+i)
			case err == nil:
				h.acked[pos] = first + i
			case errors.Is(err, log.ErrDiskFull), errors.Is(err, log.ErrNotLeader):
				failed = true
			default:
				t.Fatalf("batch %d: %v", first+i, err)
			}
		}
		if failed || len(waiting) > 0 {
			return waiting
		}
	}
}

// TestSyncErrors: a failed sync stops the log; what it was for is not believed to be on disk.
func TestSyncErrors(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 6))
		disk := logtest.NewDisk(seed)
		h := &history{next: 1, acked: map[log.Position]int{}}
		l := mustOpen(t, simOptions(disk, &logtest.Machine{}))
		left := 20 + rng.IntN(300)
		disk.SyncError = func(path string) error {
			if left--; left <= 0 {
				return syscall.EIO
			}
			return nil
		}
		appendUntilDead(rng, l, h)
		<-l.Done()
		if err := l.Err(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("seed %d: stopped with %v", seed, err)
		}
		_ = l.Close(bg) // cannot sync either
		disk.SyncError = nil
		// The process starts again over what the system's cache shows, then the power goes.
		for round := range 2 {
			m := &logtest.Machine{}
			l = mustOpen(t, simOptions(disk, m))
			if err := h.check(m); err != nil {
				t.Fatalf("seed %d, round %d: %v", seed, round, err)
			}
			for i, b := range m.Batches() {
				n, _ := isPayload(b)
				h.acked[log.Position(i+1)] = n // what a restart has shown must stay
			}
			if round == 0 {
				disk.PowerCut()
				_ = l.Close(bg)
				disk.PowerOn()
			} else {
				mustClose(t, l)
			}
		}
	}
}

func TestCompactionWaitsForTheArchive(t *testing.T) {
	disk := logtest.NewDisk(1)
	m := &logtest.Machine{}
	opts := simOptions(disk, m)
	opts.SnapshotEvery = 1 << 40
	errBehind := errors.New("archive is synced to 0")
	var synced log.Position
	var asked []log.Position
	opts.BeforeCompact = func(pos log.Position) error {
		asked = append(asked, pos)
		if pos > synced {
			return errBehind
		}
		return nil
	}
	l := mustOpen(t, opts)
	h := &history{next: 1, acked: map[log.Position]int{}}
	for round := range 3 {
		for range 100 {
			mustAppend(t, l, h)
		}
		err := l.Snapshot(bg)
		if round == 0 && err != nil || round > 0 && !errors.Is(err, errBehind) {
			t.Fatalf("round %d: snapshot: %v", round, err)
		}
	}
	if first := l.Stats().FirstIndex; first != 1 {
		t.Fatalf("the log begins at %d although the archive is behind", first)
	}
	synced = 1 << 40
	mustAppend(t, l, h)
	if err := l.Snapshot(bg); err != nil {
		t.Fatal(err)
	}
	if first := l.Stats().FirstIndex; first < 200 || first > 310 {
		t.Fatalf("after compaction the log begins at %d", first)
	}
	if len(asked) != 3 || asked[2] != 301 {
		t.Fatalf("the archive was asked for %v", asked)
	}
	mustClose(t, l)
}

func TestOneProcessOneName(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, log.Options{Dir: dir, Machine: &logtest.Machine{}, NodeID: "a"})
	if _, err := log.Open(bg, log.Options{Dir: dir, Machine: &logtest.Machine{}, NodeID: "a"}); !errors.Is(err, log.ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	mustClose(t, l)
	_, err := log.Open(bg, log.Options{Dir: dir, Machine: &logtest.Machine{}, NodeID: "b"})
	if err == nil || !strings.Contains(err.Error(), "belongs to another member") {
		t.Fatalf("open under another name: %v", err)
	}
	mustClose(t, mustOpen(t, log.Options{Dir: dir, Machine: &logtest.Machine{}, NodeID: "a"}))
}

func TestBusy(t *testing.T) {
	disk := logtest.NewDisk(1)
	gate := make(chan struct{})
	m := &logtest.Machine{Refuse: func(log.Position, []byte) error { <-gate; return nil }}
	opts := simOptions(disk, m)
	opts.MaxPending = 10
	l := mustOpen(t, opts)
	var ps []log.Pending
	for i := range 12 {
		ps = append(ps, l.Append(fmt.Append(nil, i)))
	}
	for _, p := range ps[10:] {
		if _, err := p.Wait(bg); !errors.Is(err, log.ErrBusy) {
			t.Fatalf("beyond the bound: %v", err)
		}
	}
	close(gate)
	for _, p := range ps[:10] {
		if _, err := p.Wait(bg); err != nil {
			t.Fatalf("inside the bound: %v", err)
		}
	}
	if err := l.Resume(bg); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, &history{next: 1, acked: map[log.Position]int{}})
	mustClose(t, l)
}
