package spec

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Every counter has one row, in the order of its number, and a name of its own.
func TestCountersAreATable(t *testing.T) {
	names := map[string]bool{}
	for i, info := range Counters() {
		if int(info.Counter) != i+1 || names[info.Name] || info.Name == "" || info.Help == "" {
			t.Errorf("row %d: %+v", i, info)
		}
		names[info.Name] = true
	}
}

// Lists add up like maps, and what one part is taken off is the other.
func TestCounterValuesAddUp(t *testing.T) {
	list := rapid.Custom(func(t *rapid.T) CounterValues {
		var c CounterValues
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			c = c.With(Counter(rapid.IntRange(1, 8).Draw(t, "counter")), rapid.Int64Range(0, 1<<40).Draw(t, "amount"))
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		before := slices.Clone(a)
		sum := a.Add(b)
		if !slices.Equal(a, before) {
			t.Fatal("a list that was added to has changed")
		}
		for counter := Counter(1); counter <= 8; counter++ {
			x, inA := a.Get(counter)
			y, inB := b.Get(counter)
			if n, ok := sum.Get(counter); ok != (inA || inB) || n != x+y {
				t.Fatalf("%v + %v = %v", a, b, sum)
			}
		}
		if !slices.IsSortedFunc(sum, func(x, y CounterValue) int { return int(x.Counter) - int(y.Counter) }) {
			t.Fatalf("%v is not in order", sum)
		}
		rest := sum.Without(b)
		for _, c := range rest {
			if n, _ := a.Get(c.Counter); n != c.N {
				t.Fatalf("%v - %v = %v, want %v", sum, b, rest, a)
			}
		}
	})
}

// Three tasks on two nodes: the extremes know their task and node.
func TestTaskSpreads(t *testing.T) {
	a := TaskSpreads(nil).Observe(TaskCPU, 0, 50).Observe(TaskCPU, 1, 10).Observe(TaskRSS, 0, 7).On("n1")
	b := TaskSpreads(nil).Observe(TaskCPU, 2, 90).On("n2")
	sum := a.Add(b)
	got, ok := sum.Get(TaskCPU)
	want := TaskSpread{Kind: TaskCPU, Tasks: 3, Sum: 150, Min: 10, Max: 90, MinRank: 1, MaxRank: 2, MinNode: "n1", MaxNode: "n2"}
	if !ok || got != want || got.Mean() != 50 || got.Imbalance() != 800 {
		t.Errorf("%+v, mean %d, imbalance %d", got, got.Mean(), got.Imbalance())
	}
	if first, _ := a.Get(TaskCPU); first.Tasks != 2 || first.Max != 50 {
		t.Errorf("a list that was added to has changed: %+v", first)
	}
	if _, ok := sum.Get(TaskPages); ok {
		t.Error("what nobody measured is there")
	}
	if none := (&TaskSpread{}); none.Mean() != 0 || none.Imbalance() != 0 {
		t.Error("of no tasks there is no imbalance")
	}
}

// An older version of the ledger has no words for counters, and everything else of the use is kept.
func TestUsageInVersion(t *testing.T) {
	used := Usage{
		MajFaults: 7,
		Counters:  CounterValues{{Counter: CounterNetIn, N: 1}},
		Tasks:     TaskSpreads{{Kind: TaskRSS, Sum: 2}},
	}
	old := used.InVersion(1)
	if len(old.Counters)+len(old.Tasks) != 0 || old.MajFaults != 7 {
		t.Errorf("version 1 is given %+v", old)
	}
	if now := used.InVersion(2); len(now.Counters) != 1 || len(now.Tasks) != 1 {
		t.Errorf("version 2 is given %+v", now)
	}
}
