package state

import (
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Totals count what ever happened, for metrics that survive restarts.
type Totals struct {
	Submitted  uint64                       `cbor:"1,keyasint,omitempty"` // tasks of arrays count each
	Started    uint64                       `cbor:"2,keyasint,omitempty"`
	Backfilled uint64                       `cbor:"3,keyasint,omitempty"`
	Requeued   uint64                       `cbor:"4,keyasint,omitempty"`
	Ended      [spec.OutOfMemory + 1]uint64 `cbor:"5,keyasint"`           // by final state
	Parts      []PartTotals                 `cbor:"6,keyasint,omitempty"` // by name; replaced on write
}

// PartTotals are the totals of one partition.
type PartTotals struct {
	Name      string                       `cbor:"1,keyasint"`
	Submitted uint64                       `cbor:"2,keyasint,omitempty"`
	Started   uint64                       `cbor:"3,keyasint,omitempty"`
	Ended     [spec.OutOfMemory + 1]uint64 `cbor:"4,keyasint"`
	Wait      Histogram                    `cbor:"5,keyasint"` // start - submit, seconds
	Run       Histogram                    `cbor:"6,keyasint"` // end - start, seconds
}

// Histogram counts durations in fixed buckets.
type Histogram struct {
	Buckets [16]uint64 `cbor:"1,keyasint"` // not cumulative; the last is everything beyond the bounds
	Count   uint64     `cbor:"2,keyasint,omitempty"`
	Sum     spec.Span  `cbor:"3,keyasint,omitempty"`
}

// HistogramBounds are the upper bounds of the buckets in seconds.
func HistogramBounds() [15]int64 {
	return [15]int64{1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800}
}

func (h *Histogram) add(d spec.Span) {
	d = max(d, 0)
	bounds := HistogramBounds()
	i := 0
	for i < len(bounds) && d > spec.Seconds(bounds[i]) {
		i++
	}
	h.Buckets[i]++
	h.Count++
	h.Sum += d
}

// part returns the totals of one partition for a change. The list is copied
// once after each Freeze or Fork.
func (s *State) part(name string) *PartTotals {
	t := &s.Totals
	if s.partsOwn != s.own {
		t.Parts, s.partsOwn = slices.Clone(t.Parts), s.own
	}
	i, ok := search(t.Parts, name, func(p *PartTotals) string { return p.Name })
	if !ok {
		t.Parts = slices.Insert(t.Parts, i, PartTotals{Name: name})
	}
	return &t.Parts[i]
}
