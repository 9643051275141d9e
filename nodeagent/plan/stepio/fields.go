package stepio

import (
	"encoding/binary"
	"math"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// writer appends fields.
type writer struct{ b []byte }

func (w *writer) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) signed(n int64)  { w.b = binary.AppendVarint(w.b, n) }
func (w *writer) text(s string)   { w.number(uint64(len(s))); w.b = append(w.b, s...) }
func (w *writer) bytes(s []byte)  { w.number(uint64(len(s))); w.b = append(w.b, s...) }

// The frames, by what is in them.
const (
	hasStarted = iota + 1
	hasOutput
	hasExit
	hasEnd
	hasNotice
	hasFence
)

func (w *writer) frame(f *plan.Frame) {
	w.number(f.Number)
	switch {
	case f.Started != nil:
		w.number(hasStarted)
		// What it says of itself is the word of a process of the user's.
		n := min(len(f.Started.Ranks), len(f.Started.PIDs))
		w.number(uint64(n))
		for i := range n {
			w.number(uint64(f.Started.Ranks[i]))
			w.signed(int64(f.Started.PIDs[i]))
		}
	case f.Output != nil:
		w.number(hasOutput)
		w.number(uint64(f.Output.Rank))
		w.number(uint64(f.Output.Stream))
		w.bytes(f.Output.Data)
	case f.Exit != nil:
		x := f.Exit
		core := uint64(0)
		if x.Core {
			core = 1
		}
		w.number(hasExit)
		w.number(uint64(x.Rank))
		w.signed(int64(x.Code))
		w.signed(int64(x.Signal))
		w.number(core)
		w.text(x.Error)
		for _, n := range []int64{int64(x.Start), int64(x.End), int64(x.Usage.UserCPU), int64(x.Usage.SystemCPU), x.Usage.PeakRSS} {
			w.signed(n)
		}
	case f.End != nil:
		w.number(hasEnd)
		w.signed(int64(f.End.Code))
		w.signed(int64(f.End.Signal))
		w.text(f.End.Error)
	case f.Fence != nil:
		w.number(hasFence)
		w.fence(f.Fence)
	default:
		w.number(hasNotice)
		w.text(f.Notice)
	}
}

func (w *writer) fence(f *plan.Fence) {
	w.number(f.Number)
	w.number(uint64(f.Node))
	w.bytes(f.Data)
}

// reader takes fields apart; bad tells that one was not there.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	n, w := binary.Uvarint(r.b)
	if w <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[w:]
	return n
}

// below is a number that must be less than limit.
func (r *reader) below(limit uint64) uint64 {
	n := r.number()
	if n >= limit {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) signed() int64 {
	n, w := binary.Varint(r.b)
	if w <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[w:]
	return n
}

// small is a signed number of 32 bits.
func (r *reader) small() int32 {
	n := r.signed()
	if n < math.MinInt32 || n > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int32(n)
}

func (r *reader) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	if n == 0 {
		return nil
	}
	return out
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) frame(f *plan.Frame) {
	f.Number = r.number()
	switch r.number() {
	case hasStarted:
		n := r.number()
		if n > uint64(len(r.b)) {
			r.bad = true
			return
		}
		s := &plan.TaskPIDs{}
		for range n {
			s.Ranks, s.PIDs = append(s.Ranks, uint32(r.below(1<<32))), append(s.PIDs, r.small())
		}
		f.Started = s
	case hasOutput:
		f.Output = &plan.Output{Rank: uint32(r.below(1 << 32)), Stream: uint8(r.below(1 << 8)), Data: r.bytes()}
	case hasExit:
		x := &plan.TaskExit{Rank: uint32(r.below(1 << 32)), Code: r.small(), Signal: r.small(), Core: r.below(2) == 1, Error: r.text()}
		x.Start, x.End = spec.Instant(r.signed()), spec.Instant(r.signed())
		x.Usage.UserCPU, x.Usage.SystemCPU, x.Usage.PeakRSS = spec.Span(r.signed()), spec.Span(r.signed()), r.signed()
		f.Exit = x
	case hasEnd:
		f.End = &plan.FrameEnd{Code: r.small(), Signal: r.small(), Error: r.text()}
	case hasFence:
		fence := r.fence()
		f.Fence = &fence
	case hasNotice:
		f.Notice = r.text()
	default:
		r.bad = true
	}
}

func (r *reader) fence() plan.Fence {
	return plan.Fence{Number: r.number(), Node: uint32(r.below(1 << 32)), Data: r.bytes()}
}
