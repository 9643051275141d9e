package nodesets

import (
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestMetricsOfNodeSets: what a NodeSet has is told by state, and ends with the NodeSet.
func TestMetricsOfNodeSets(t *testing.T) {
	m := NewMetrics("c")
	m.noteSet("cpu", &Status{Nodes: 5, Pods: 4, Ready: 3, Busy: 2, Draining: 1})
	m.noteSet("gpu", &Status{Nodes: 9})
	m.forgetSets(map[string]bool{"cpu": true})
	for state, want := range map[string]float64{"wanted": 5, "created": 4, "ready": 3, "busy": 2, "draining": 1} {
		if got := testutil.ToFloat64(m.Gauge("muster_kube_nodes_nodes", "cpu", state)); got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
	if n, err := testutil.GatherAndCount(m, "muster_kube_nodes_nodes"); err != nil || n != 5 {
		t.Errorf("%d series (%v), want those of the NodeSet that is there", n, err)
	}
	for _, tc := range []struct {
		err  error
		want float64
	}{{nil, 1}, {errors.New("away"), 0}, {nil, 1}} {
		m.noteConnection(tc.err)
		if got := testutil.ToFloat64(m.connected); got != tc.want {
			t.Errorf("connected is %v after %v", got, tc.err)
		}
	}
}
