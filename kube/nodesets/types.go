// Package nodesets keeps the nodes of a Muster cluster that are pods: a NodeSet names
// nodes of slurm.conf and says what their pods look like, and each node has a pod while
// the ledger says that its power is on.
//
// How many there are is thus decided by Muster's own scheduler, which knows what the
// queue needs: it powers a node up for a job, and down once it has been idle for
// SuspendTime. Nothing here counts jobs, and no pod is deleted on whose node a job may
// be. What administrators drain stays drained.
package nodesets

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the resource and of what is made for it.
const (
	Domain = "musterhpc.github.io"
	// SetLabel is on everything that is made for a NodeSet.
	SetLabel = Domain + "/nodeset"
	// ClusterLabel is on NodeSets and login hosts of a MusterCluster.
	ClusterLabel = Domain + "/cluster"
	// Finalizer keeps a NodeSet until no job is on its nodes.
	Finalizer = Domain + "/nodes"
	// AgentContainer is the container of the template that runs the node's agent.
	AgentContainer = "agent"
)

// Resource is that of NodeSets.
var Resource = schema.GroupVersionResource{Group: Domain, Version: "v1alpha1", Resource: "nodesets"}

// NodeSet is a set of nodes that are pods.
type NodeSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

// Spec is what is wanted.
type Spec struct {
	// Nodes is a hostlist of nodes in slurm.conf. Those with State=CLOUD have a pod
	// while a job needs them, the others always.
	Nodes string `json:"nodes"`
	// Controllers are where agents find the controllers: HOST:PORT.
	Controllers []string `json:"controllers"`
	// Template is that of the pods. One of its containers is called agent.
	Template corev1.PodTemplateSpec `json:"template"`
}

// Status is what there is.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Nodes              int                `json:"nodes"`    // that spec.nodes names
	Pods               int                `json:"pods"`     // that are there
	Ready              int                `json:"ready"`    // whose agent has registered
	Busy               int                `json:"busy"`     // with jobs
	Draining           int                `json:"draining"` // by whomever
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of a NodeSet.
const (
	Accepted = "Accepted" // the spec can be followed
	Ready    = "Ready"    // each node that is on has a pod whose agent has registered
)
