package tally_test

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestReasonsOfSilence: a node that gets no answer has a reason, in the agent's words
// where there are any, until it answers. What an operator wrote stays, whatever it
// says.
func TestReasonsOfSilence(t *testing.T) {
	const words = "Not responding over IPMI, ticket 7"
	h := tallytest.New(t, spec.AtUnix(1_700_000_000))
	h.Nodes(2, 8, 8000, 0)
	h.Put(&event.NodeStateSet{Node: "n1", State: event.NodeDrain, Reason: words})
	for _, node := range []string{"n1", "n2"} {
		h.Put(&event.NodeLost{Node: node, LastSeen: h.Now, Why: "no shepherd"})
		h.Put(&event.NodeReturned{Node: node})
	}
	counted := tally.New()
	for i := range h.Log {
		if err := counted.Apply(&h.Log[i]); err != nil {
			t.Fatal(err)
		}
	}
	reasons := map[string][]string{}
	for _, row := range counted.Take().NodeStates {
		reasons[row.Node] = append(reasons[row.Node], row.Reason)
	}
	last := func(node string) []string { return reasons[node][len(reasons[node])-2:] }
	if got := last("n1"); !slices.Equal(got, []string{words, words}) {
		t.Errorf("n1 has the reasons %q", got)
	}
	if got := last("n2"); !slices.Equal(got, []string{"Not responding: no shepherd", ""}) {
		t.Errorf("n2 has the reasons %q", got)
	}
}
