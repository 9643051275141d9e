package spec_test

import (
	"fmt"
	"testing"

	"github.com/musterhpc/muster/spec"
)

// Each pod has a node and its own devices, whatever the number of tasks on a node.
func TestPlacesOfPods(t *testing.T) {
	set := &spec.PodSet{Pods: []spec.Pod{{UID: "a"}, {UID: "b"}, {UID: "c"}}}
	gpu := func(uuids ...string) (out []spec.GPURef) {
		for _, uuid := range uuids {
			out = append(out, spec.GPURef{UUID: uuid})
		}
		return out
	}
	alloc := &spec.Allocation{Nodes: []spec.NodeAlloc{
		{Name: "n1", Tasks: 2, GPUs: gpu("1", "2", "3", "4")},
		{Name: "n2", Tasks: 1, GPUs: gpu("5", "6")},
	}}
	got := ""
	for _, place := range set.Places(alloc) {
		got += fmt.Sprintf("%s@%s", place.Pod.UID, place.Node)
		for _, g := range place.GPUs {
			got += " " + g.UUID
		}
		got += "\n"
	}
	if want := "a@n1 1 2\nb@n1 3 4\nc@n2 5 6\n"; got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
