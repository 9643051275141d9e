package daemon

import (
	"context"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// What scontrol update does to a partition outlives a restart with the same
// file, and gives way to a file that says something else of that partition and
// to scontrol reconfigure, which tells of it.
func TestChangePartition(t *testing.T) {
	w := start(t)
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 0, User: "root", Admin: true} }
	w.c.deps.Reload = func() (*spec.Config, []string, error) { return testConfig(), nil, nil }
	name := testConfig().Partitions[0].Name
	change := func(part string, kv ...string) error {
		req := &apiv1.PartitionChange{Name: part}
		for _, s := range kv {
			k, v, _ := strings.Cut(s, "=")
			req.Set = append(req.Set, &apiv1.ConfigEntry{Key: k, Value: v})
		}
		_, err := w.svc.ChangePartition(t.Context(), req)
		return err
	}
	state := func() spec.PartitionState { return w.c.View().State.Parts.Find(name).Spec.State }
	restart := func(cfg *spec.Config) {
		t.Helper()
		if err := w.c.found(t.Context(), Create{Config: cfg}); err != nil {
			t.Fatal(err)
		}
	}
	if err := change("nowhere", "State=UP"); spec.CodeOf(err) != spec.CodeInvalidPartition {
		t.Errorf("a partition that is not there: %v", err)
	}
	if err := change(name, "Nodes=n1"); spec.CodeOf(err) != spec.CodeBadRequest || !strings.Contains(err.Error(), "cannot be updated") {
		t.Errorf("its nodes: %v", err)
	}
	if err := change(name, "State=DRAIN"); err != nil || state() != spec.PartitionDrain {
		t.Fatalf("%v, the partition is %s", err, state())
	}
	nodes := w.c.View().State.Parts.Find(name).Spec.NodeNames
	if want := testConfig().Partitions[0].NodeNames; len(nodes) == 0 || len(nodes) != len(want) {
		t.Errorf("its nodes are %v, were %v", nodes, want)
	}

	restart(testConfig())
	if state() != spec.PartitionDrain {
		t.Errorf("after a restart the partition is %s", state())
	}
	other := testConfig()
	other.Partitions[0].MaxTime = 3 * spec.Hour
	restart(other)
	if state() == spec.PartitionDrain {
		t.Error("the partition is drained, though the file says something else of it now")
	}

	restart(testConfig())
	if err := change(name, "State=DOWN"); err != nil || state() != spec.PartitionDown {
		t.Fatalf("%v, the partition is %s", err, state())
	}
	rep, err := w.svc.Reconfigure(t.Context(), nil)
	if err != nil || state() == spec.PartitionDown || len(rep.GetWarnings()) != 1 || !strings.Contains(rep.GetWarnings()[0], "partition "+name+" ") {
		t.Errorf("reconfigured: %s, %v, %v", state(), rep.GetWarnings(), err)
	}
	rep, err = w.svc.Reconfigure(t.Context(), nil)
	if err != nil || len(rep.GetWarnings()) != 0 {
		t.Errorf("reconfigured again: %v, %v", rep.GetWarnings(), err)
	}
}
