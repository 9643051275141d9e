package place

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

func TestSockets(t *testing.T) {
	n := &state.Node{Spec: &spec.NodeSpec{Name: "n", CPUs: 16, Sockets: 2, CoresPerSocket: 4, ThreadsPerCore: 2}, CPUs: 16}
	for i := range 4 {
		var near spec.Bitset
		for k := range 8 {
			near = near.Set(8*(i/2) + k)
		}
		n.GPUs = append(n.GPUs, spec.GPU{Index: uint32(i), UUID: string(rune('a' + i)), CPUs: near})
	}
	names := func(refs []spec.GPURef) (out string) {
		for _, r := range refs {
			out += r.UUID
		}
		return out
	}
	gpus := spec.Count{Name: "gpu", N: 2}
	if got := names(nearSockets(n, nil, gpus, 1)); got != "ac" {
		t.Errorf("one GPU near each of two sockets: %q", got)
	}
	if got := names(nearSockets(n, nil, gpus, 2)); got != "ab" {
		t.Errorf("two GPUs near one socket: %q", got)
	}
	n.UsedGPU = n.UsedGPU.Set(0)
	if got := names(nearSockets(n, nil, gpus, 2)); got != "cd" {
		t.Errorf("two GPUs near one socket, one of the first being used: %q", got)
	}
	if got := nearSockets(n, nil, spec.Count{Name: "gpu", N: 4}, 2); got != nil {
		t.Errorf("two near each socket, though one has but one: %v", got)
	}
	d := &Demand{PerSocket: 1, CPUsPerTask: 2}
	if got := overSockets(n, 4, d).Members(); !slices.Equal(got, []int{0, 1, 8, 9}) {
		t.Errorf("a task on each socket: %v", got)
	}
	n.UsedCPU = spec.FullBitset(8)
	if got := overSockets(n, 4, d).Members(); !slices.Equal(got, []int{8, 9, 10, 11}) {
		t.Errorf("where the first socket is full: %v", got)
	}
	if got := overSockets(n, 9, d); got != nil {
		t.Errorf("nine of eight CPUs: %v", got)
	}
	if got := ForTasks(n, spec.FullBitset(16), &spec.JobSpec{Size: spec.Size{CoreSpec: 2}}).Members(); len(got) != 12 || got[11] != 11 {
		t.Errorf("two cores for the system: %v", got)
	}
}
