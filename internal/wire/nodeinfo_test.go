package wire

import (
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

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
