package wire

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// A node that found fewer GPUs than are configured says so as its reason while it has no
// other, and is in service.
func TestNodeShortfall(t *testing.T) {
	st := state.New()
	st.Config = &spec.Config{}
	h100 := spec.GRESSpec{Name: "gpu", Type: "h100", N: 2}
	for _, tc := range []struct {
		name       string
		configured []spec.GRESSpec
		found      []string
		given      string // reason
		want       string // reason that is shown
	}{
		{"whole", []spec.GRESSpec{h100}, []string{"h100", "h100"}, "", ""},
		{"one gone", []spec.GRESSpec{h100}, []string{"h100"}, "", "gres/gpu:h100 count too low: 1 found, 2 configured"},
		{"other type", []spec.GRESSpec{h100}, []string{"a100", "a100"}, "", "gres/gpu:h100 count too low: 0 found, 2 configured"},
		{"any type", []spec.GRESSpec{{Name: "gpu", N: 2}}, []string{"a100"}, "", "gres/gpu count too low: 1 found, 2 configured"},
		{"more", []spec.GRESSpec{h100}, []string{"h100", "h100", "h100"}, "", ""},
		{"drained", []spec.GRESSpec{h100}, nil, "fan", "fan"},
	} {
		node := &state.Node{
			Spec:   &spec.NodeSpec{Name: "n1", GRES: tc.configured},
			Inv:    &spec.Inventory{},
			Reason: tc.given,
		}
		for _, typ := range tc.found {
			node.GPUs = append(node.GPUs, spec.GPU{Type: typ})
		}
		got := Node(st, node, NodeLive{}, false)
		if got.GetReason() != tc.want {
			t.Errorf("%s: reason %q, want %q", tc.name, got.GetReason(), tc.want)
		}
		if short := got.GetShortfall() != ""; short != (tc.want != "") {
			t.Errorf("%s: shortfall %q", tc.name, got.GetShortfall())
		}
		node.Inv = nil
		if got := Node(st, node, NodeLive{}, false); got.GetShortfall() != "" {
			t.Errorf("%s, not registered: shortfall %q", tc.name, got.GetShortfall())
		}
	}
}

// What a node has for jobs is shown with its billing, which is its CPUs for jobs.
func TestNodeBilling(t *testing.T) {
	st := state.New()
	st.Config = &spec.Config{}
	n := &state.Node{Spec: &spec.NodeSpec{Name: "n1", CPUs: 8, ThreadsPerCore: 2, CoreSpecCount: 1, Mem: 1000}}
	got := Node(st, n, NodeLive{}, false).GetCfgTres()
	if got.GetCpu() != 6 || got.GetBilling() != 6 || got.GetMem() != 1000 {
		t.Errorf("%+v, want 6 CPUs, a billing of 6 and 1000 MiB", got)
	}
}

// TestRebootReason: why a node is to be rebooted is shown until it has been, unless
// the node has a reason of its own.
func TestRebootReason(t *testing.T) {
	st := state.New()
	st.Config = &spec.Config{}
	spare := state.Node{
		Spec:   &spec.NodeSpec{Name: "n1"},
		Reboot: &state.Reboot{At: 7, ASAP: true, Next: event.NodeResume, Reason: "firmware"},
	}
	drained := spare
	drained.Reason = "disk"
	over := spare
	over.Reboot = nil
	for _, c := range []struct {
		node state.Node
		want string
	}{{spare, "firmware"}, {drained, "disk"}, {over, ""}} {
		got := Node(st, &c.node, NodeLive{}, false)
		if got.GetReason() != c.want {
			t.Errorf("the reason is %q, not %q", got.GetReason(), c.want)
		}
	}
	if got := Node(st, &spare, NodeLive{}, false); got.GetReasonTime() != 7 || got.GetNextState() != "RESUME" {
		t.Errorf("since %d, next %s", got.GetReasonTime(), got.GetNextState())
	}
}

// TestFenceReason: the reason of a silent node tells that the site's program fails to fence it, and
// an operator's own reason stays as it was given.
func TestFenceReason(t *testing.T) {
	st := state.New()
	st.Config = &spec.Config{}
	node := state.Node{
		Spec:     &spec.NodeSpec{Name: "n1"},
		Reason:   "Not responding",
		ReasonBy: event.Actor{Kind: event.ActorSystem},
		FenceTry: &state.FenceTry{Try: 2, Program: "/etc/muster/fence", Why: "exit status 3: bmc does not answer"},
	}
	const want = "Not responding, fence program failed 2 times: exit status 3: bmc does not answer"
	if got := Node(st, &node, NodeLive{}, false).GetReason(); got != want {
		t.Errorf("the reason is %q, want %q", got, want)
	}
	node.Reason = "disk"
	node.ReasonBy = event.Actor{Kind: event.ActorUser, Name: "root"}
	if got := Node(st, &node, NodeLive{}, false).GetReason(); got != "disk" {
		t.Errorf("an operator's reason is shown as %q", got)
	}
}
