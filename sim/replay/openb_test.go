package replay

import (
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/state"
)

// TestOpenb packs a GPU cluster with a real list of pods through the production
// pass: the mix of requests fills it further than the best published policy
// does, 95.39 % of its GPUs in the mean of ten orders of arrival, and nothing is
// given twice.
func TestOpenb(t *testing.T) {
	o, err := ReadOpenb(traceFile(t, "openb_node_list_all_node.csv.gz"), traceFile(t, "openb_pod_list_default.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.Pack(1, 130, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of %d pods, %d of %d GPU thousandths: %.2f %%", p.Placed, p.Pods, p.Alloc, p.Capacity, float64(p.Alloc)*100/float64(p.Capacity))
	if p.Alloc*10000 < p.Capacity*9539 {
		t.Errorf("%d of %d are allocated", p.Alloc, p.Capacity)
	}
	if err := state.CheckNodes(p.Passed); err != nil {
		t.Error(err)
	}
}

// TestSmallOpenb: two GPUs and pods that only the right order of filling takes.
func TestSmallOpenb(t *testing.T) {
	nodes := "sn,cpu_milli,memory_mib,gpu,model\na,8000,1000,2,G\nb,8000,1000,0,\n"
	pods := "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1000,10,1,600\np2,1000,10,1,400\np3,1000,10,1,1000\np4,8000,10,0,0\n"
	o, err := ReadOpenb(strings.NewReader(nodes), strings.NewReader(pods))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		p, err := o.Pack(seed, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		if p.Placed != 4 || p.Alloc != 2000 {
			t.Errorf("order %d: %d pods placed, %d of %d allocated", seed, p.Placed, p.Alloc, p.Capacity)
		}
	}
}
