package catalogue

import "slices"

// Endpoints of the programs beside Kubernetes.
const (
	KubeEndpoint     = "muster-kube /metrics"
	OperatorEndpoint = "muster-operator /metrics"
	NodeSetsEndpoint = "muster-kube-nodes /metrics"
)

// Kubernetes lists what the programs beside Kubernetes serve. They are of a module of their own,
// which this one does not know: they make their series from these entries.
func Kubernetes() []Metric {
	return slices.Concat(kubeMetrics(), operatorMetrics(), nodeSetMetrics())
}

func kubeMetrics() []Metric {
	metrics := []Metric{
		{
			Name:        "muster_kube_leader",
			Type:        Gauge,
			Help:        "1 while this copy has the lease and works, else 0.",
			Source:      "lease in Kubernetes",
			Cardinality: "1",
		},
		{
			Name:        "muster_kube_connected",
			Type:        Gauge,
			Help:        "1 while a controller of Muster tells this copy what it holds; while it is 0, pods wait.",
			Source:      "watch of the ledger",
			Cardinality: "1",
		},
		{
			Name: "muster_kube_pods",
			Type: Gauge,
			Help: "Pods that have not ended, at the last round: gated (wait for a hold), held (let through with a hold)," +
				" waiting (to be scheduled by Muster), bound (by Muster).",
			Labels:      []string{"state"},
			Source:      "pods of Kubernetes and holds of the ledger",
			Cardinality: "4 states",
		},
		{
			Name:        "muster_kube_admission_seconds",
			Type:        Histogram,
			Unit:        Seconds,
			Help:        "Time from when a gated pod was first seen until its hold was durable and its gate removed.",
			Source:      "clock of the program",
			Cardinality: "1 histogram",
		},
		{
			Name:        "muster_kube_round_seconds",
			Type:        Histogram,
			Unit:        Seconds,
			Help:        "Time of a round: comparing pods with the ledger, and giving the orders that follow.",
			Source:      "clock of the program",
			Cardinality: "1 histogram",
		},
		{
			Name:        "muster_kube_failures_total",
			Type:        Counter,
			Help:        "Orders that failed and are given again.",
			Source:      "answers of Muster and of the API server",
			Cardinality: "1",
		},
		{
			Name:        "muster_kube_orders",
			Type:        Gauge,
			Help:        "Orders of the present round that are not done yet.",
			Source:      "plan of the round",
			Cardinality: "1",
		},
	}
	for i := range metrics {
		metrics[i].Endpoint = KubeEndpoint
		metrics[i].Labels = append([]string{"cluster"}, metrics[i].Labels...)
	}
	return metrics
}

func operatorMetrics() []Metric {
	metrics := []Metric{
		{
			Name:        "muster_operator_leader",
			Type:        Gauge,
			Help:        "1 while this copy has the lease and works, else 0.",
			Source:      "lease in Kubernetes",
			Cardinality: "1",
		},
		{
			Name:        "muster_operator_objects",
			Type:        Gauge,
			Help:        "Resources that describe clusters, at the last round.",
			Labels:      []string{"kind"},
			Source:      "MusterClusters and SlurmClusters of Kubernetes",
			Cardinality: "2 kinds",
		},
		{
			Name:        "muster_operator_reconcile_seconds",
			Type:        Histogram,
			Unit:        Seconds,
			Help:        "Time of bringing one resource on.",
			Labels:      []string{"kind"},
			Source:      "clock of the program",
			Cardinality: "2 kinds, 1 histogram each",
		},
		{
			Name:        "muster_operator_reconcile_failures_total",
			Type:        Counter,
			Help:        "Times that a resource could not be brought on; it is tried again in the next round.",
			Labels:      []string{"kind"},
			Source:      "answers of the API server",
			Cardinality: "2 kinds",
		},
		{
			Name:        "muster_operator_queue",
			Type:        Gauge,
			Help:        "Resources that the present round has not come to yet.",
			Labels:      []string{"kind"},
			Source:      "lists of the round",
			Cardinality: "2 kinds",
		},
	}
	for i := range metrics {
		metrics[i].Endpoint = OperatorEndpoint
	}
	return metrics
}

func nodeSetMetrics() []Metric {
	metrics := []Metric{
		{
			Name:        "muster_kube_nodes_leader",
			Type:        Gauge,
			Help:        "1 while this copy has the lease and works, else 0.",
			Source:      "lease in Kubernetes",
			Cardinality: "1",
		},
		{
			Name:        "muster_kube_nodes_connected",
			Type:        Gauge,
			Help:        "1 if the controller answered when it was last asked for nodes; while it is 0, no pod is created or deleted.",
			Source:      "answers of the controller",
			Cardinality: "1",
		},
		{
			Name: "muster_kube_nodes_nodes",
			Type: Gauge,
			Help: "Nodes of a NodeSet, at its last round: wanted (in its spec), created (have a pod)," +
				" ready (the agent has registered), busy (not idle), draining.",
			Labels:      []string{"nodeset", "state"},
			Source:      "pods of Kubernetes and nodes of the ledger",
			Cardinality: "NodeSets, 5 states each",
		},
		{
			Name:        "muster_kube_nodes_reconcile_seconds",
			Type:        Histogram,
			Unit:        Seconds,
			Help:        "Time of bringing one NodeSet on.",
			Source:      "clock of the program",
			Cardinality: "1 histogram",
		},
		{
			Name:        "muster_kube_nodes_reconcile_failures_total",
			Type:        Counter,
			Help:        "Times that a NodeSet could not be brought on; it is tried again in the next round.",
			Source:      "answers of the controller and of the API server",
			Cardinality: "1",
		},
	}
	for i := range metrics {
		metrics[i].Endpoint = NodeSetsEndpoint
		metrics[i].Labels = append([]string{"cluster"}, metrics[i].Labels...)
	}
	return metrics
}
