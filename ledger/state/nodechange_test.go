package state_test

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// What an operator writes beside a node is no new configuration, at which the
// scheduler would look at its whole queue anew; its weight is.
func TestNodeCommentsLeaveTheConfiguration(t *testing.T) {
	st := state.New()
	apply := func(ev event.Event) {
		t.Helper()
		if err := st.Apply(&event.Envelope{Seq: st.Seq + 1, At: 1, Event: ev}); err != nil {
			t.Fatal(err)
		}
	}
	apply(&event.ClusterCreated{UUID: [16]byte{1}, Name: "test", Version: event.Version})
	apply(&event.ConfigAdopted{Config: &spec.Config{ClusterName: "test", Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 4, Mem: 4000, Features: []string{"a"}}}}})
	was := st.Config
	apply(&event.NodeChanged{Node: "n1", Features: []string{"a"}, Comment: "rack 7", Reason: "look"})
	if n := st.Node("n1"); st.Config != was || n.Comment != "rack 7" || n.Reason != "look" {
		t.Errorf("the configuration is new: %v; node %+v", st.Config != was, n)
	}
	apply(&event.NodeChanged{Node: "n1", Features: []string{"a"}, Weight: 3})
	if st.Config == was || st.Config.Nodes[0].Weight != 3 || st.Node("n1").Spec.Weight != 3 {
		t.Errorf("weights %d and %d", st.Config.Nodes[0].Weight, st.Node("n1").Spec.Weight)
	}
}

// What an operator wrote of a node stays when it answers again, also where it
// begins with the words of the controller.
func TestOperatorsReasonOutlivesSilence(t *testing.T) {
	st := state.New()
	operator := event.Actor{Kind: event.ActorUser, Name: "root"}
	apply := func(by event.Actor, ev event.Event) {
		t.Helper()
		if err := st.Apply(&event.Envelope{Seq: st.Seq + 1, At: 1, Actor: by, Event: ev}); err != nil {
			t.Fatal(err)
		}
	}
	system := event.Actor{Kind: event.ActorSystem}
	apply(system, &event.ClusterCreated{UUID: [16]byte{1}, Name: "test", Version: event.Version})
	apply(system, &event.ConfigAdopted{Config: &spec.Config{ClusterName: "test", Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 4}, {Name: "n2", CPUs: 4}}}})
	const words = "Not responding over IPMI, ticket 7"
	apply(operator, &event.NodeStateSet{Node: "n1", State: event.NodeDrain, Reason: words})
	for _, node := range []string{"n1", "n2"} {
		apply(system, &event.NodeLost{Node: node, LastSeen: 1, Why: "no shepherd"})
	}
	if reason := st.Node("n2").Reason; reason != "Not responding: no shepherd" {
		t.Errorf("a silent node has the reason %q", reason)
	}
	for _, node := range []string{"n1", "n2"} {
		apply(system, &event.NodeReturned{Node: node})
	}
	if n1, n2 := st.Node("n1").Reason, st.Node("n2").Reason; n1 != words || n2 != "" {
		t.Errorf("the reasons are %q and %q", n1, n2)
	}
}

// Many nodes that are changed between two snapshots share one new configuration;
// no snapshot sees what comes after it.
func TestChangedNodesAreOneConfiguration(t *testing.T) {
	st := state.New()
	apply := func(ev event.Event) {
		t.Helper()
		if err := st.Apply(&event.Envelope{Seq: st.Seq + 1, At: 1, Event: ev}); err != nil {
			t.Fatal(err)
		}
	}
	file := &spec.Config{ClusterName: "test", Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 4}, {Name: "n2", CPUs: 4}}, Partitions: []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1", "n2"}}}}
	apply(&event.ClusterCreated{UUID: [16]byte{1}, Name: "test", Version: event.Version})
	apply(&event.ConfigAdopted{Config: file})
	apply(&event.NodeChanged{Node: "n1", Weight: 1})
	first := st.Config
	apply(&event.NodeChanged{Node: "n2", Weight: 2})
	snapshot := st.Freeze()
	apply(&event.NodeChanged{Node: "n1", Weight: 3})
	apply(&event.NodeChanged{Node: "n2", Weight: 0})
	weights := func(c *spec.Config) [2]uint32 { return [2]uint32{c.Nodes[0].Weight, c.Nodes[1].Weight} }
	switch {
	case st.Parts.Find("p").Spec != &st.Config.Partitions[0]:
		t.Error("the partitions are of another configuration")
	case snapshot.Config != first:
		t.Error("two changes between two snapshots made two configurations")
	case weights(file) != [2]uint32{} || weights(snapshot.Config) != [2]uint32{1, 2} || weights(st.Config) != [2]uint32{3, 0}:
		t.Errorf("the file has %v, the snapshot %v, the state %v", weights(file), weights(snapshot.Config), weights(st.Config))
	case len(snapshot.Config.FileNodes) != 2 || len(st.Config.FileNodes) != 1 || st.Config.FileNodes[0].Name != "n1":
		t.Errorf("remembered of the file are %+v and %+v", snapshot.Config.FileNodes, st.Config.FileNodes)
	}
	apply(&event.ConfigAdopted{Config: file})
	apply(&event.NodeChanged{Node: "n1", Weight: 5})
	if weights(file) != [2]uint32{} {
		t.Errorf("the configuration of an event was changed: %v", weights(file))
	}
}
