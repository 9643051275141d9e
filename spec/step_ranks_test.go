package spec

import (
	"fmt"
	"testing"
)

// TestStepRanks: which ranks each node gets, for every way to deal tasks over nodes.
// What is said of sockets, cores and packing must not change it.
func TestStepRanks(t *testing.T) {
	layout := []NodeAlloc{{Name: "n1", Tasks: 3}, {Name: "n2", Tasks: 2}}
	for distribution, want := range map[string]string{
		"":                      "[[0 1 2] [3 4]]",
		"block":                 "[[0 1 2] [3 4]]",
		"block:cyclic,nopack":   "[[0 1 2] [3 4]]",
		"cyclic":                "[[0 2 4] [1 3]]",
		"cyclic:block":          "[[0 2 4] [1 3]]",
		"cyclic:cyclic:fcyclic": "[[0 2 4] [1 3]]",
		"cyclic,pack":           "[[0 2 4] [1 3]]",
		"plane=2":               "[[0 1 4] [2 3]]",
		"plane=2,nopack":        "[[0 1 4] [2 3]]",
		"arbitrary":             "[[1 3 4] [0 2]]",
	} {
		s := &StepSpec{Distribution: distribution}
		if distribution == "arbitrary" {
			s.TaskNodes = []string{"n2", "n1", "n2", "n1", "n1"}
		}
		if got := fmt.Sprint(StepRanks(layout, s)); got != want {
			t.Errorf("%q: %s, want %s", distribution, got, want)
		}
	}
}
