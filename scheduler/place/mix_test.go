package place

import (
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// divided is a node whose GPUs are divided into ten shards each, with so many of
// each left.
func divided(id spec.NodeID, cpus int64, left ...int64) Candidate {
	s := &Shape{CPUs: cpus, Mem: 1000, Threads: 1, Devices: true, GPUs: int64(len(left)), Links: make([][]int32, len(left))}
	f := Free{CPU: cpus, Mem: 1000, GPU: int64(len(left)), More: left}
	for i := range left {
		s.Kinds = append(s.Kinds, Kind{Counts: CountsDevice, N: 10, Device: i, Part: "shard"})
	}
	return Candidate{Node: &state.Node{ID: id, Spec: &spec.NodeSpec{Name: "n"}}, Shape: s, Free: f}
}

// The mix decides between gaps by what others want of them: where a job leaves a
// gap that the others fill rather than one that nobody does, and CPUs where the
// GPUs that need them are.
func TestMix(t *testing.T) {
	shards := func(n int64) []spec.Count { return []spec.Count{{Name: "shard", N: n}} }
	for name, tc := range map[string]struct {
		mix   []Wanted
		ask   []spec.Count
		cpus  int64
		cands []Candidate
		node  int
		pos   int // of the device; -1 = none in parts
	}{
		"leaves what others want": {mix: []Wanted{{CPU: 1, Part: 500, Jobs: 9}, {CPU: 1, Part: 900, Jobs: 1}}, ask: shards(2), cpus: 1,
			cands: []Candidate{divided(0, 8, 3), divided(1, 8, 7)}, node: 0, pos: 0},
		"fills a gap that is of no use": {mix: []Wanted{{CPU: 1, GPUs: 1, Jobs: 1}}, ask: shards(2), cpus: 1,
			cands: []Candidate{divided(0, 8, 10, 10), divided(1, 8, 10, 4)}, node: 1, pos: 1},
		"CPUs where nobody needs them": {mix: []Wanted{{CPU: 4, GPUs: 1, Jobs: 1}}, ask: nil, cpus: 4,
			cands: []Candidate{divided(0, 4, 10), divided(1, 8, 10)}, node: 1, pos: -1},
		"a whole GPU off the larger set": {mix: []Wanted{{CPU: 1, GPUs: 2, Jobs: 1}, {CPU: 1, GPUs: 1, Jobs: 1}}, ask: []spec.Count{{Name: "gpu", N: 1}}, cpus: 1,
			cands: []Candidate{divided(0, 8, 10, 10), divided(1, 8, 10, 3)}, node: 1, pos: -1},
	} {
		t.Run(name, func(t *testing.T) {
			d := &Demand{MinNodes: 1, MaxNodes: 1, Tasks: 1, CPUsPerTask: tc.cpus, PerNode: tc.ask}
			parts := Pick(d, tc.cands, Options{Mix: NewMix(tc.mix)})
			if len(parts) != 1 || int(parts[0].Node.ID) != tc.node {
				t.Fatalf("placed as %+v", parts)
			}
			if tc.pos >= 0 && (len(parts[0].Devices) != 1 || parts[0].Devices[0].Pos != tc.pos) {
				t.Errorf("of devices %+v", parts[0].Devices)
			}
		})
	}
	if NewMix([]Wanted{{CPU: 1, Jobs: 1}}) != nil {
		t.Error("a mix without GPUs is no mix")
	}
}

func TestRoots(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 3, 4, 8, 9, 1<<60 - 1, 1 << 60} {
		if r := squareRoot(n); r*r > n || (r+1)*(r+1) <= n {
			t.Errorf("root(%d) = %d", n, r)
		}
	}
	if got := eighthRoot(1, 256); got != 1<<29 {
		t.Errorf("the eighth root of 1/256 is %d/2^30", got)
	}
	if got := eighthRoot(1<<62, 1<<62); got != 1<<30 {
		t.Errorf("the eighth root of 1 is %d/2^30", got)
	}
}
