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
