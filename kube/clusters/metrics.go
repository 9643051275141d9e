package clusters

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/kube/program"
)

// Kinds of resources that describe clusters.
const (
	kindMuster = "MusterCluster"
	kindSlurm  = "SlurmCluster"
)

// Metrics are the series of the operator.
type Metrics struct {
	*program.Metrics
	Leader prometheus.Gauge
}

// NewMetrics makes the series. Those of both kinds are there from the start, so that the first
// failure of a kind is an increase.
func NewMetrics() *Metrics {
	all := program.NewMetrics(catalogue.OperatorEndpoint, nil)
	for _, kind := range []string{kindMuster, kindSlurm} {
		all.Counter("muster_operator_reconcile_failures_total", kind)
		all.Histogram("muster_operator_reconcile_seconds", kind)
		all.Gauge("muster_operator_objects", kind)
		all.Gauge("muster_operator_queue", kind)
	}
	return &Metrics{Metrics: all, Leader: all.Gauge("muster_operator_leader")}
}
