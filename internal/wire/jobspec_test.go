package wire

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// Two ranges meet exactly when a task is in both.
func TestRangesMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, from int64) spec.TaskRange {
			r := spec.TaskRange{First: rapid.Int64Range(from, from+60).Draw(t, name), Step: rapid.Int64Range(1, 25).Draw(t, name+"step")}
			r.Last = r.First + r.Step*rapid.Int64Range(0, 30).Draw(t, name+"n")
			return r
		}
		o := draw("o", 0)
		n := draw("t", o.First+1)
		want := false
		for k := n.First; k <= n.Last; k += n.Step {
			want = want || (k >= o.First && k <= o.Last && (k-o.First)%o.Step == 0)
		}
		if got := meet(o, n); got != want {
			t.Fatalf("%+v and %+v meet: %v, want %v", o, n, got, want)
		}
	})
}

func TestHostileArraysAreRefused(t *testing.T) {
	const big = math.MaxInt64
	dense := make([]*apiv1.TaskRange, maxArrayRanges+1)
	for i := range dense {
		dense[i] = &apiv1.TaskRange{First: int64(i), Last: int64(i), Step: 1}
	}
	for name, list := range map[string][]*apiv1.TaskRange{
		"two endless ranges": {{First: 0, Last: big, Step: 1}, {First: 1, Last: big, Step: 1}},
		"huge step":          {{First: 0, Last: 0, Step: big}},
		"negative":           {{First: -5, Last: 5, Step: 1}},
		"no step":            {{First: 0, Last: 5}},
		"the same twice":     {{First: 0, Last: 100, Step: 5}, {First: 3, Last: 99, Step: 4}},
		"nothing":            {nil},
		"too many":           dense,
	} {
		if set, err := ToTasks(list); spec.CodeOf(err) != spec.CodeInvalidArray {
			t.Errorf("%s: %v, %v", name, set, err)
		}
	}
	// Many ranges that never meet are quickly read: 2,048 of 1,954 tasks each.
	var comb []*apiv1.TaskRange
	for i := range int64(2048) {
		comb = append(comb, &apiv1.TaskRange{First: i, Last: i + 2048*1952, Step: 2048})
	}
	if set, err := ToTasks(comb); err != nil || set.Len() != 2048*1953 {
		t.Errorf("%d tasks: %v", set.Len(), err)
	}
}

func TestWordsThatMeanNothingAreRefused(t *testing.T) {
	for name, m := range map[string]*apiv1.JobSpec{
		"requeue": {Requeue: 7}, "append": {Append: -1}, "sharing": {Sharing: 99}, "NUL": {Args: []string{"a\x00b"}},
	} {
		if _, err := ToJobSpec(m); spec.CodeOf(err) != spec.CodeBadRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A submission arrives as it was sent, whatever kind of sharing it asks for.
func TestEveryKindOfSharingArrives(t *testing.T) {
	for kind := spec.ShareDefault; kind <= spec.Oversubscribe; kind++ {
		js, err := ToJobSpec(&apiv1.JobSpec{Sharing: uint32(kind)})
		if err != nil || js.Place.Sharing != kind {
			t.Errorf("kind %d: %+v, %v", kind, js, err)
		}
	}
}
