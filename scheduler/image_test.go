package scheduler_test

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// TestImageIsPinned: what an image's name meant first holds for the job; what a
// second node was told, or a node says of an attempt that is over, is not kept.
func TestImageIsPinned(t *testing.T) {
	tr := gpuCluster(t)
	report := func(attempt uint32, node, image, digest string) scheduler.Report {
		return scheduler.Report{
			Node:  node,
			Run:   scheduler.Run{UID: 1, Attempt: attempt},
			Epoch: tr.Job(1).Epoch,
			Image: &spec.PinnedImage{Image: image, Digest: digest},
		}
	}
	node := tr.Job(1).Alloc.Nodes[0].Name
	before := len(tr.Events)
	for _, c := range []scheduler.Report{
		report(1, node, "docker://app", "sha256:1"),
		report(1, node, "docker://app", "sha256:2"),
		report(2, node, "docker://late", "sha256:3"),
		report(1, "elsewhere", "docker://foreign", "sha256:4"),
		report(1, node, "docker://tool", "sha256:5"),
	} {
		if _, err := scheduler.Decide(tr, c); err != nil {
			t.Fatal(err)
		}
	}
	want := []spec.PinnedImage{
		{Image: "docker://app", Digest: "sha256:1"},
		{Image: "docker://tool", Digest: "sha256:5"},
	}
	if got := tr.Job(1).Images; !slices.Equal(got, want) {
		t.Errorf("pinned %v, not %v", got, want)
	}
	for _, e := range tr.Events[before:] {
		if e.Event.Kind() != event.KindImagePinned {
			t.Errorf("an event of kind %s", e.Event.Kind())
		}
	}
}
