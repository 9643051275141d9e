package executor

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/spec"
)

// TestMetricsOfPods: pods that have ended count nowhere, and each other one in one state.
func TestMetricsOfPods(t *testing.T) {
	m := NewMetrics("c")
	m.notePods(
		[]copilot.Pod{{UID: "a", Gated: true}, {UID: "b"}, {UID: "c", Over: true}, {UID: "d"}, {UID: "e", Gated: true}},
		[]copilot.Node{{Holds: []spec.ForeignHold{{ID: "a"}, {ID: "b"}, {ID: "c"}}}},
		[]copilot.JobPod{{Node: "n1"}, {}, {}, {}, {Node: "n1", Over: true}, {Gone: true}},
	)
	for state, want := range map[string]float64{"gated": 2, "held": 1, "waiting": 3, "bound": 1} {
		if got := testutil.ToFloat64(m.Gauge("muster_kube_pods", state)); got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}

// TestMetricsOfAdmission: a gated pod is observed once, when it is let through; one that is deleted
// before that is forgotten, and one without a gate never waits.
func TestMetricsOfAdmission(t *testing.T) {
	m := NewMetrics("c")
	pod := func(uid string, gates ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
		for _, g := range gates {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
		}
		return p
	}
	a, b, c := pod("a", Gate), pod("b", Gate), pod("c", "example.org/other")
	for _, p := range []*corev1.Pod{a, b, c} {
		m.noteSeen(p)
	}
	m.noteGone(cache.DeletedFinalStateUnknown{Obj: b})
	for _, p := range []*corev1.Pod{a, a, b, c} {
		m.noteAdmitted(p)
	}
	if len(m.seen) != 0 {
		t.Errorf("left: %v", m.seen)
	}
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "muster_kube_admission_seconds" {
			if n := f.GetMetric()[0].GetHistogram().GetSampleCount(); n != 1 {
				t.Errorf("%d pods were observed", n)
			}
			return
		}
	}
	t.Error("the admission is not served")
}
