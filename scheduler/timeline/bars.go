package timeline

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Window is a span of time, the end excluded.
type Window struct{ From, To spec.Instant }

// Bar keeps a job off nodes at some times: another's reservation, or
// everything outside of its own.
type Bar struct {
	Nodes   spec.Bitset
	All     bool // of all nodes
	Windows []Window
}

// Bars are those of one kind of job. Equal keys mean equal bars; no bars at
// all have the key "".
type Bars struct {
	Key  string
	List []Bar
}

// viewer is what Bars mean on the nodes of a timeline.
type viewer struct {
	spans [][]Window // by node id: in order, apart from each other
}

// viewerFor finds or makes the viewer of some bars; nil if there are none.
func (t *Timeline) viewerFor(bars Bars) *viewer {
	if len(bars.List) == 0 {
		return nil
	}
	if v := t.viewers[bars.Key]; v != nil {
		return v
	}
	v := &viewer{spans: make([][]Window, len(t.lanes))}
	for i := range bars.List {
		bar := &bars.List[i]
		own := Merge(bar.Windows)
		for id := range t.lanes {
			switch {
			case t.lanes[id] == nil || (!bar.All && !bar.Nodes.Has(id)):
			case v.spans[id] == nil:
				v.spans[id] = own // shared until another bar comes
			default:
				v.spans[id] = Merge(append(slices.Clone(v.spans[id]), own...))
			}
		}
	}
	t.viewers[bars.Key] = v
	return v
}

// Merge puts windows in order and joins those that touch.
func Merge(list []Window) []Window {
	windows := slices.Clone(list)
	slices.SortFunc(windows, func(a, b Window) int { return cmp.Compare(a.From, b.From) })
	n := 0
	for _, w := range windows {
		switch {
		case w.To <= w.From:
		case n > 0 && w.From <= windows[n-1].To:
			windows[n-1].To = max(windows[n-1].To, w.To)
		default:
			windows[n] = w
			n++
		}
	}
	return windows[:n]
}

// isBarred tells whether a window of a node cuts [at, end), and until when the
// answer stays the same if nothing else changes.
func (v *viewer) isBarred(id int32, at, end spec.Instant, limit spec.Span) (bool, spec.Instant) {
	if v == nil {
		return false, spec.FarFuture
	}
	return barredWithin(v.spans[id], at, end, limit)
}

// barredWithin is barred for a list of windows.
func barredWithin(windows []Window, at, end spec.Instant, limit spec.Span) (bool, spec.Instant) {
	for _, w := range windows {
		switch {
		case w.To <= at:
		case w.From < end:
			return true, w.To
		case limit == spec.Infinite:
			return false, at + 1
		default:
			return false, w.From.Add(-limit) + 1
		}
	}
	return false, spec.FarFuture
}

// cutBarred takes a node's windows out of the spans in which an index found room;
// tail is where the endless one begins.
func (v *viewer) cutBarred(id int, spans []window, tail spec.Instant) ([]window, spec.Instant) {
	if v == nil {
		return spans, tail
	}
	return cutWindows(v.spans[id], spans, tail)
}

// cutWindows takes windows that are in order and apart out of spans.
func cutWindows(windows []Window, spans []window, tail spec.Instant) ([]window, spec.Instant) {
	if len(windows) == 0 {
		return spans, tail
	}
	open := slices.Clone(spans)
	if tail != spec.FarFuture {
		open = append(open, window{tail, spec.FarFuture})
	}
	out, tail := spans[:0], spec.FarFuture
	for _, s := range open {
		for _, w := range windows {
			if w.To <= s.from || w.From >= s.to {
				continue
			}
			if w.From > s.from {
				out = append(out, window{s.from, w.From})
			}
			s.from = w.To
			if s.from >= s.to {
				break
			}
		}
		switch {
		case s.from >= s.to:
		case s.to == spec.FarFuture:
			tail = s.from
		default:
			out = append(out, s)
		}
	}
	return out, tail
}
