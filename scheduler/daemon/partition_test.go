package daemon

import (
	"context"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
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
		if err := w.c.foundCluster(t.Context(), Create{Config: cfg}); err != nil {
			t.Fatal(err)
		}
	}
	if err := change("nowhere", "State=UP"); spec.CodeOf(err) != spec.CodeInvalidPartition {
		t.Errorf("a partition that is not there: %v", err)
	}
	if err := change(name, "AllocNodes=n1"); spec.CodeOf(err) != spec.CodeBadRequest || !strings.Contains(err.Error(), "cannot be updated") {
		t.Errorf("what only a file can say: %v", err)
	}
	// Keys are abbreviated, and what is not known is refused by name.
	for _, set := range []string{"allowaccount=physics", "maxt=10-0", "prioritytier=3", "denyq=normal", "denyqos="} {
		if err := change(name, set); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
	if spec := w.c.View().State.Parts.Find(name).Spec; strings.Join(spec.AllowAccounts, ",") != "physics" || spec.PriorityTier != 3 {
		t.Errorf("after keys that were abbreviated: %+v", spec)
	}
	for set, want := range map[string]string{
		"maxm=5":     "is ambiguous: MaxMemPerCPU, MaxMemPerNode",
		"maxtme=5":   "did you mean MaxTime?",
		"zzzzzzzz=5": "is not a key of a partition",
	} {
		if err := change(name, set); spec.CodeOf(err) != spec.CodeBadRequest || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", set, err, want)
		}
	}
	for _, set := range []string{"DenyQos=nowhere", "AllowQos=nowhere", "QOS=nowhere"} {
		if err := change(name, set); spec.CodeOf(err) != spec.CodeInvalidQOS {
			t.Errorf("%s: %v", set, err)
		}
	}
	for _, set := range []string{"AllowAccounts=ALL", "MaxTime=INFINITE", "PriorityTier=1"} {
		if err := change(name, set); err != nil {
			t.Fatal(err)
		}
	}
	names := func() string { return strings.Join(w.c.View().State.Parts.Find(name).Spec.NodeNames, " ") }
	for _, x := range [][2]string{{"Nodes=n1", "n1"}, {"Nodes=+n2", "n1 n2"}, {"Nodes=-n1", "n2"}} {
		if err := change(name, x[0]); err != nil || names() != x[1] {
			t.Errorf("%s: %q, %v", x[0], names(), err)
		}
	}
	if restart(testConfig()); names() != "n2" {
		t.Errorf("after a restart its nodes are %q", names())
	}
	if err := change(name, "Nodes=n[1-2]"); err != nil {
		t.Fatal(err)
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

// What scontrol update says of nodes, and partitions that no file names, outlive a
// restart and a reconfiguration as far as no file says otherwise.
func TestChangeNodes(t *testing.T) {
	w := start(t)
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 0, User: "root", Admin: true} }
	w.c.deps.Reload = func() (*spec.Config, []string, error) { return testConfig(), nil, nil }
	name := testConfig().Nodes[0].Name
	update := func(kv ...string) error {
		req := &apiv1.UpdateNodeRequest{Nodes: name}
		for _, s := range kv {
			k, v, _ := strings.Cut(s, "=")
			req.Set = append(req.Set, &apiv1.ConfigEntry{Key: k, Value: v})
		}
		_, err := w.svc.UpdateNode(t.Context(), req)
		return err
	}
	for _, bad := range []string{"weight=x", "weight=-1", "features=a,,b", "features=a&b", "activefeatures=never", "gres=gpu:1"} {
		if err := update("weight=9", bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	bad := &apiv1.UpdateNodeRequest{Nodes: name, State: "asleep", Set: []*apiv1.ConfigEntry{{Key: "weight", Value: "9"}}}
	if _, err := w.svc.UpdateNode(t.Context(), bad); spec.CodeOf(err) != spec.CodeInvalidNodeState {
		t.Errorf("a state that there is not: %v", err)
	}
	if err := update("gres=gpu:8"); err != nil {
		t.Errorf("the GRES that are configured: %v", err)
	}
	for _, state := range []string{"idle", "undrain"} {
		in := &apiv1.UpdateNodeRequest{Nodes: name, State: state}
		if _, err := w.svc.UpdateNode(t.Context(), in); err != nil {
			t.Errorf("state=%s of a node in service: %v", state, err)
		}
	}
	resume := &apiv1.UpdateNodeRequest{Nodes: name, State: "resume"}
	if _, err := w.svc.UpdateNode(t.Context(), resume); spec.CodeOf(err) != spec.CodeInvalidNodeState {
		t.Errorf("state=resume of a node in service: %v", err)
	}
	if n := w.c.View().State.Node(name); n.Spec.Weight == 9 {
		t.Error("half of a bad change is made")
	}
	if err := update("weight=9", "features=a,b", "activefeatures=b", "comment=rack 7", "reason=look"); err != nil {
		t.Fatal(err)
	}
	shows := func(when string, weight uint32, features string) {
		t.Helper()
		n := w.c.View().State.Node(name)
		if n.Spec.Weight != weight || strings.Join(n.Spec.Features, ",") != features || n.Comment != "rack 7" || n.Reason != "look" {
			t.Errorf("%s: weight %d, features %v of %v, %q, %q", when, n.Spec.Weight, n.Spec.Features, n.Spec.Available, n.Comment, n.Reason)
		}
	}
	shows("changed", 9, "b")
	// That node has a reason, others have none: without one nothing is drained.
	drain := &apiv1.UpdateNodeRequest{Nodes: "ALL", State: "drain", Set: []*apiv1.ConfigEntry{{Key: "weight", Value: "5"}}}
	if _, err := w.svc.UpdateNode(t.Context(), drain); spec.CodeOf(err) != spec.CodeInvalidNodeState {
		t.Errorf("nodes without a reason: %v", err)
	}
	if n := w.c.View().State.Node(name); n.Admin != event.NodeResume {
		t.Error("one of several nodes was drained though another refused")
	}
	shows("refused", 9, "b")
	part := &apiv1.PartitionChange{Name: "made", Create: true, Set: []*apiv1.ConfigEntry{{Key: "Nodes", Value: name}, {Key: "MaxTime", Value: "30"}}}
	if _, err := w.svc.ChangePartition(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	if err := w.c.foundCluster(t.Context(), Create{Config: testConfig()}); err != nil {
		t.Fatal(err)
	}
	shows("restarted", 9, "b")
	was := testConfig().Nodes[0]
	rep, err := w.svc.Reconfigure(t.Context(), nil)
	if err != nil || len(rep.GetWarnings()) != 1 || !strings.Contains(rep.GetWarnings()[0], "node "+name+" ") {
		t.Errorf("reconfigured: %v, %v", rep.GetWarnings(), err)
	}
	shows("reconfigured", was.Weight, strings.Join(was.Features, ","))
	if p := w.c.View().State.Parts.Find("made"); p == nil || p.Nodes.Count() != 1 || p.Spec.MaxTime != 30*spec.Minute {
		t.Errorf("the partition that was made: %+v", p)
	}
	if _, err := w.svc.ChangePartition(t.Context(), &apiv1.PartitionChange{Name: "made", Delete: true}); err != nil || w.c.View().State.Parts.Find("made") != nil {
		t.Errorf("deleted: %v", err)
	}
	if _, err := w.svc.ChangePartition(t.Context(), &apiv1.PartitionChange{Name: testConfig().Partitions[0].Name, Delete: true}); spec.CodeOf(err) != spec.CodeInvalidPartition {
		t.Errorf("a partition of the file is deleted: %v", err)
	}
}
