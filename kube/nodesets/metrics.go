package nodesets

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/kube/program"
)

// Metrics are the series of muster-kube-nodes.
type Metrics struct {
	*program.Metrics
	Leader    prometheus.Gauge
	connected prometheus.Gauge
	failures  prometheus.Counter
	reconcile prometheus.Observer
	told      map[string]bool // NodeSets that have series
}

// NewMetrics makes the series of one cluster of Muster.
func NewMetrics(cluster string) *Metrics {
	all := program.NewMetrics(catalogue.NodeSetsEndpoint, map[string]string{"cluster": cluster})
	return &Metrics{
		Metrics:   all,
		Leader:    all.Gauge("muster_kube_nodes_leader"),
		connected: all.Gauge("muster_kube_nodes_connected"),
		failures:  all.Counter("muster_kube_nodes_reconcile_failures_total"),
		reconcile: all.Histogram("muster_kube_nodes_reconcile_seconds"),
		told:      map[string]bool{},
	}
}

// byState are the counts of a status by the states of muster_kube_nodes_nodes.
func byState(s *Status) map[string]int {
	return map[string]int{
		"wanted":   s.Nodes,
		"created":  s.Pods,
		"ready":    s.Ready,
		"busy":     s.Busy,
		"draining": s.Draining,
	}
}

// noteConnection says whether the controller has answered.
func (m *Metrics) noteConnection(err error) {
	if err != nil {
		m.connected.Set(0)
		return
	}
	m.connected.Set(1)
}

// noteSet says what a round has seen of a NodeSet.
func (m *Metrics) noteSet(name string, s *Status) {
	m.told[name] = true
	for state, count := range byState(s) {
		m.Gauge("muster_kube_nodes_nodes", name, state).Set(float64(count))
	}
}

// forgetSets drops the series of NodeSets that are not there any more.
func (m *Metrics) forgetSets(there map[string]bool) {
	for name := range m.told {
		if there[name] {
			continue
		}
		for state := range byState(&Status{}) {
			m.DropGauge("muster_kube_nodes_nodes", name, state)
		}
		delete(m.told, name)
	}
}
