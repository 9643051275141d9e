package tally

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
)

// The number of open runs is kept, not counted: it is right after every event
// of a random history and after a restart; and batches made in the place of
// others are those that would have been made anew.
func TestOpenRunsAndRecycledBatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := tallytest.Random(rt, 60)
		ta, plain := New(), New()
		for i := range h.Log {
			if err := ta.Apply(&h.Log[i]); err != nil {
				rt.Fatal(err)
			}
			if err := plain.Apply(&h.Log[i]); err != nil {
				rt.Fatal(err)
			}
			n := 0
			for _, j := range ta.jobs {
				if !j.Over {
					n++
				}
			}
			if ta.Open() != n {
				rt.Fatalf("after %s: %d open runs, counted %d", h.Log[i].Event.Kind(), n, ta.Open())
			}
			if i%9 != 8 {
				continue
			}
			got, want := ta.Take(), plain.Take()
			if !same(got, want) {
				rt.Fatalf("event %d:\n%+v\nanew\n%+v", i, got, want)
			}
			ta.Recycle(got)
			data, err := ta.Snapshot()
			if err != nil {
				rt.Fatal(err)
			}
			if back, err := Restore(data); err != nil || back.Open() != n {
				rt.Fatalf("restored with %d open runs, there are %d (%v)", back.Open(), n, err)
			}
		}
	})
}

// same compares batches; a table without rows is one, with room or without.
func same(a, b *Batch) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		if f, g := x.Field(i), y.Field(i); f.Kind() == reflect.Slice && f.Len() == 0 && g.Len() == 0 {
			continue
		} else if !reflect.DeepEqual(f.Interface(), g.Interface()) {
			return false
		}
	}
	return true
}
