package log_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// payload makes batch n of a size that n determines; no part of it is zero, and it says what it is.
func payload(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 99))
	size := 8 + rng.IntN(400)
	if rng.IntN(10) == 0 {
		size = rng.IntN(9000) + 8
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(n))
	for len(b) < size {
		b = append(b, byte(rng.IntN(255)+1))
	}
	return b
}

func isPayload(b []byte) (int, bool) {
	if len(b) < 8 {
		return 0, false
	}
	n := int(binary.LittleEndian.Uint64(b))
	return n, bytes.Equal(b, payload(n))
}

// history is what the test knows: the numbers appended, and which of them were acknowledged where.
type history struct {
	next  int
	acked map[log.Position]int
}

// check proves that everything acknowledged is in the machine at its place and nothing else than whole appended batches in
// their order.
func (h *history) check(m *logtest.Machine) error {
	got := m.Batches()
	last := 0
	for i, b := range got {
		n, ok := isPayload(b)
		switch {
		case !ok:
			return fmt.Errorf("position %d holds %d bytes that were never appended", i+1, len(b))
		case n <= last:
			return fmt.Errorf("batch %d follows %d", n, last)
		case n >= h.next:
			return fmt.Errorf("batch %d is there before it was appended", n)
		}
		last = n
	}
	for pos, n := range h.acked {
		if int(pos) > len(got) {
			return fmt.Errorf("batch %d, acknowledged at position %d, is lost: the log ends at %d", n, pos, len(got))
		}
		if have, _ := isPayload(got[pos-1]); have != n {
			return fmt.Errorf("position %d holds batch %d, acknowledged was %d", pos, have, n)
		}
	}
	return nil
}

func simOptions(d *logtest.Disk, m log.Machine) log.Options {
	return log.Options{Dir: "/d", FS: d.FS(), Machine: m, SegmentBytes: 8 << 10, SnapshotEvery: 60, Trailing: 5}
}

// TestPowerCut cuts the power at a random operation of the disk, again and again, also while the log opens.
func TestPowerCut(t *testing.T) {
	seeds := 120
	if os.Getenv("MUSTER_LONG") == "" {
		seeds = 40
	}
	for seed := range seeds {
		if err := powerCuts(uint64(seed), 8); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func powerCuts(seed uint64, rounds int) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	disk := logtest.NewDisk(seed)
	h := &history{next: 1, acked: map[log.Position]int{}}
	for round := range rounds {
		disk.PowerOn()
		disk.CutAfter(1 + rng.IntN(250))
		m := &logtest.Machine{}
		l, err := log.Open(context.Background(), simOptions(disk, m))
		if err != nil {
			if !errors.Is(err, logtest.ErrPower) {
				return fmt.Errorf("round %d: open: %w", round, err)
			}
			continue
		}
		if err := h.check(m); err != nil {
			return fmt.Errorf("round %d: after the cut: %w", round, err)
		}
		appendUntilDead(rng, l, h)
		// The disk is gone, so Close can only fail.
		_ = l.Close(context.Background())
	}
	disk.PowerOn()
	m := &logtest.Machine{}
	l, err := log.Open(context.Background(), simOptions(disk, m))
	if err != nil {
		return fmt.Errorf("last open: %w", err)
	}
	if err := h.check(m); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	return l.Close(context.Background())
}

func appendUntilDead(rng *rand.Rand, l log.Log, h *history) {
	type flight struct {
		n int
		p log.Pending
	}
	for {
		var flights []flight
		for range 1 + rng.IntN(12) {
			flights = append(flights, flight{h.next, l.Append(payload(h.next))})
			h.next++
		}
		if rng.IntN(15) == 0 {
			// Fails when the power goes; the next append tells.
			_ = l.Snapshot(context.Background())
		}
		for _, f := range flights {
			pos, err := f.p.Wait(context.Background())
			if err != nil {
				return
			}
			h.acked[pos] = f.n
		}
	}
}

// filledDisk returns a disk with a log of several segments and two snapshots, and what is in it.
func filledDisk(t *testing.T, clean bool) (*logtest.Disk, *history, uint64) {
	t.Helper()
	disk := logtest.NewDisk(7)
	h := &history{next: 1, acked: map[log.Position]int{}}
	m := &logtest.Machine{}
	opts := simOptions(disk, m)
	opts.SnapshotEvery = 1 << 40
	l, err := log.Open(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 300; i++ {
		pos, err := l.Append(payload(h.next)).Wait(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		h.acked[pos] = h.next
		h.next++
		if i == 90 || i == 180 {
			if err := l.Snapshot(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if clean {
		if err := l.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	} else {
		disk.PowerCut()
		_ = l.Close(context.Background())
		disk.PowerOn()
	}
	return disk, h, m.Hash()
}

// TestBitFlips inverts single bits anywhere: the log either refuses by name or holds everything.
func TestBitFlips(t *testing.T) {
	for _, clean := range []bool{true, false} {
		disk, h, want := filledDisk(t, clean)
		rng := rand.New(rand.NewPCG(3, 4))
		var sizes []int64
		var total int64
		files := disk.Files()
		for _, f := range files {
			n := int64(len(bytes.TrimRight(disk.Content(f), "\x00")))
			sizes = append(sizes, n)
			total += n
		}
		refused, intact := 0, 0
		flips := 600
		if os.Getenv("MUSTER_LONG") == "" {
			flips = 100
		}
		for range flips {
			at, i := rng.Int64N(total), 0
			for at >= sizes[i] {
				at -= sizes[i]
				i++
			}
			bit := at*8 + rng.Int64N(8)
			broken := disk.Clone()
			broken.Flip(files[i], bit)
			m := &logtest.Machine{}
			l, err := log.Open(context.Background(), simOptions(broken, m))
			switch {
			case err == nil:
				intact++
				if err := errors.Join(h.check(m), l.Close(context.Background())); err != nil {
					t.Fatalf("clean %v: bit %d of %s: %v", clean, bit, files[i], err)
				}
				if m.Hash() != want {
					t.Fatalf("clean %v: bit %d of %s changed the state silently", clean, bit, files[i])
				}
			case errors.Is(err, log.ErrCorrupt) || errors.Is(err, log.ErrNewerVersion):
				refused++
			default:
				t.Fatalf("clean %v: bit %d of %s: %v", clean, bit, files[i], err)
			}
		}
		t.Logf("clean %v: %d flips refused, %d without effect on the state", clean, refused, intact)
		if refused < flips/10 {
			t.Fatalf("only %d of %d flips were noticed", refused, flips)
		}
	}
}
