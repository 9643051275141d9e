package executor

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/kube/program"
)

// podStates are the states in which muster_kube_pods counts.
var podStates = [...]string{"gated", "held", "waiting", "bound"}

// Metrics are the series of muster-kube.
type Metrics struct {
	*program.Metrics
	Leader    prometheus.Gauge
	connected prometheus.Gauge
	orders    prometheus.Gauge
	failures  prometheus.Counter
	admission prometheus.Observer
	round     prometheus.Observer

	mu   sync.Mutex
	seen map[string]time.Time // when gated pods were first seen, by UID
}

// NewMetrics makes the series of one cluster of Muster.
func NewMetrics(cluster string) *Metrics {
	all := program.NewMetrics(catalogue.KubeEndpoint, map[string]string{"cluster": cluster})
	for _, state := range podStates {
		all.Gauge("muster_kube_pods", state)
	}
	return &Metrics{
		Metrics:   all,
		Leader:    all.Gauge("muster_kube_leader"),
		connected: all.Gauge("muster_kube_connected"),
		orders:    all.Gauge("muster_kube_orders"),
		failures:  all.Counter("muster_kube_failures_total"),
		admission: all.Histogram("muster_kube_admission_seconds"),
		round:     all.Histogram("muster_kube_round_seconds"),
		seen:      map[string]time.Time{},
	}
}

// noteSeen remembers when a pod that waits at the gate came.
func (m *Metrics) noteSeen(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || !gated(pod) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.seen[string(pod.UID)]; !known {
		m.seen[string(pod.UID)] = time.Now()
	}
}

// noteGone forgets a pod that was deleted.
func (m *Metrics) noteGone(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, string(pod.UID))
}

// noteAdmitted observes how long a pod waited that has been let through.
func (m *Metrics) noteAdmitted(pod *corev1.Pod) {
	m.mu.Lock()
	came, ok := m.seen[string(pod.UID)]
	delete(m.seen, string(pod.UID))
	m.mu.Unlock()
	if ok {
		program.Since(m.admission, came)
	}
}

func gated(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.SchedulingGates,
		func(g corev1.PodSchedulingGate) bool { return g.Name == Gate })
}

// notePods counts what a round has seen.
func (m *Metrics) notePods(pods []copilot.Pod, nodes []copilot.Node, scheduled []copilot.JobPod) {
	held := map[string]bool{}
	for i := range nodes {
		for k := range nodes[i].Holds {
			held[nodes[i].Holds[k].ID] = true
		}
	}
	count := map[string]int{}
	for i := range pods {
		switch pod := &pods[i]; {
		case pod.Over:
		case pod.Gated:
			count["gated"]++
		case held[pod.UID]:
			count["held"]++
		}
	}
	for i := range scheduled {
		switch pod := &scheduled[i]; {
		case pod.Over || pod.Gone:
		case pod.Node == "":
			count["waiting"]++
		default:
			count["bound"]++
		}
	}
	for _, state := range podStates {
		m.Gauge("muster_kube_pods", state).Set(float64(count[state]))
	}
}
