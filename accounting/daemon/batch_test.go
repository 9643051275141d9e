package daemon

import (
	"slices"
	"testing"
)

// Where batches end while a ledger of so many events, each of them a row, is
// counted.
func TestCutter(t *testing.T) {
	for _, c := range []struct {
		name string
		head uint64
		busy int  // so many events are counted while a batch is stored
		ripe bool // somebody waits, all the time
		want []uint64
	}{
		{"less than a batch", 40, 0, true, []uint64{40}},
		{"nobody waits", 40, 0, false, nil},
		{"the writer is quick", 1000, 0, true, []uint64{100, 200, 300, 400, 500, 600, 700, 800, 900, 1000}},
		{"what is left goes with the last", 1040, 0, true, []uint64{100, 200, 300, 400, 500, 600, 700, 800, 900, 1040}},
		{"the writer is slow", 2000, 300, true, []uint64{100, 400, 700, 1000, 1300, 1600, 2000}},
		{"the writer hangs", 2000, 5000, true, []uint64{100, 900, 1700}}, // what is left waits for it
	} {
		var got []uint64
		last, free := uint64(0), uint64(0) // the writer is free from then on
		cut := cutter{usual: 100, ripe: c.ripe}
		for seq := uint64(1); seq <= c.head; seq++ {
			cut.free = seq >= free
			if cut.cutsNow(int(seq-last), seq, func() uint64 { return c.head }) {
				got = append(got, seq)
				last, free = seq, seq+uint64(c.busy)
				cut = cutter{usual: 100, ripe: c.ripe}
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: batches end with %v, want %v", c.name, got, c.want)
		}
	}
	cut := cutter{usual: 100, ripe: true, free: true}
	for i, c := range []struct {
		rows int
		want bool
	}{{120, false}, {799, false}, {800, true}} { // most rows are of few events
		if got := cut.cutsNow(c.rows, uint64(10+i), func() uint64 { return 40 }); got != c.want {
			t.Errorf("of %d rows, with few events left: %v", c.rows, got)
		}
	}
}
