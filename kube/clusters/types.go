// Package clusters runs whole clusters of Muster in Kubernetes: a MusterCluster says how
// many controllers there are, what their slurm.conf is, where accounting is kept, how users
// log in, and which nodes are pods, and the operator keeps the resources of Kubernetes that
// this needs.
//
// What a cluster consists of is a pure function of its spec (Make). The operator applies it,
// reports what has become of it, and never deletes a pod: StatefulSets do that one by one,
// and NodeSets only where no job is.
package clusters

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/musterhpc/muster/kube/nodesets"
)

// Names of the resource and of what is made for it.
const (
	// ClusterLabel is on everything that is made for a MusterCluster.
	ClusterLabel = nodesets.Domain + "/cluster"
	// Finalizer keeps a MusterCluster until its NodeSets are gone: their drains need controllers.
	Finalizer = nodesets.Domain + "/cluster"
	// ConfigAnnotation is the hash of the configuration with which a pod was made.
	ConfigAnnotation = nodesets.Domain + "/config"
)

// Resource is that of MusterClusters.
var Resource = schema.GroupVersionResource{Group: nodesets.Domain, Version: "v1alpha1", Resource: "musterclusters"}

// MusterCluster is a cluster of Muster.
type MusterCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

// Spec is what is wanted.
type Spec struct {
	// ClusterName is that of slurm.conf. Empty: the name of the resource.
	ClusterName string `json:"clusterName,omitempty"`
	// Image has the programs of Muster, muster-kube-nodes, and a shell.
	Image            string                        `json:"image"`
	ImagePullPolicy  corev1.PullPolicy             `json:"imagePullPolicy,omitempty"`
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	Controllers      Controllers                   `json:"controllers,omitempty"`
	Accounting       Accounting                    `json:"accounting,omitempty"`
	Config           Config                        `json:"config"`
	Login            *Login                        `json:"login,omitempty"`
	Web              bool                          `json:"web,omitempty"`
	NodeSets         []NodeSet                     `json:"nodeSets,omitempty"`
	TokenSecret      *TokenSecret                  `json:"tokenSecret,omitempty"`
}

// Controllers are one, two with a witness, or three.
type Controllers struct {
	Replicas int32   `json:"replicas,omitempty"` // 1 to 3; 0: 1
	Storage  Storage `json:"storage,omitempty"`
	// Pod is laid over the pods that the operator makes, as kubectl patch does it.
	Pod *corev1.PodTemplateSpec `json:"pod,omitempty"`
	// Witness is the third vote of two controllers: it keeps the newest part of the ledger's
	// log, and needs neither their memory nor their volumes.
	Witness *Witness `json:"witness,omitempty"`
}

// Witness is one small pod.
type Witness struct {
	Storage Storage                 `json:"storage,omitempty"` // size: default 4Gi
	Pod     *corev1.PodTemplateSpec `json:"pod,omitempty"`
}

// Storage is a volume for each pod.
type Storage struct {
	Size      string  `json:"size,omitempty"` // default 20Gi
	ClassName *string `json:"className,omitempty"`
}

// Accounting is embedded on the controllers' volumes, or in a ClickHouse server.
type Accounting struct {
	// DSNSecret has the data source name of a ClickHouse server. Nil: the embedded engine.
	DSNSecret *SecretKey `json:"dsnSecret,omitempty"`
}

// SecretKey is a key of a Secret in the same namespace.
type SecretKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

// Config is slurm.conf and what is beside it. One of the two is given.
type Config struct {
	// Files by name, with slurm.conf among them.
	Files map[string]string `json:"files,omitempty"`
	// ConfigMap has the same.
	ConfigMap string `json:"configMap,omitempty"`
	// Only these files of the ConfigMap are used. Empty: all.
	Only []string `json:"only,omitempty"`
	// Muster is more of muster.yaml: whole sections that the operator does not write itself.
	Muster string `json:"muster,omitempty"`
}

// Login is hosts on which users log in by SSH.
type Login struct {
	Replicas int32   `json:"replicas,omitempty"` // 0: 1
	Storage  Storage `json:"storage,omitempty"`
	// Image has sshd too. Empty: that of the cluster.
	Image string `json:"image,omitempty"`
	// HostKeysSecret has sshd's host keys under the names of their files. They are the same
	// on each login host, since users reach any of them under one name.
	HostKeysSecret string `json:"hostKeysSecret"`
	// ServiceType is that of the Service for SSH. Empty: ClusterIP.
	ServiceType corev1.ServiceType      `json:"serviceType,omitempty"`
	Pod         *corev1.PodTemplateSpec `json:"pod,omitempty"`
}

// NodeSet is nodes that are pods.
type NodeSet struct {
	Name  string `json:"name"`
	Nodes string `json:"nodes"` // hostlist of nodes in slurm.conf
	// Image of the agent. Empty: that of the cluster.
	Image string                  `json:"image,omitempty"`
	Pod   *corev1.PodTemplateSpec `json:"pod,omitempty"`
}

// TokenSecret is a Secret in which a token for REST is kept fresh.
type TokenSecret struct {
	Name string `json:"name"`
	Key  string `json:"key"`
	User string `json:"user"`
}

// Status is what there is.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Controllers        string             `json:"controllers,omitempty"` // ready/wanted
	Logins             string             `json:"logins,omitempty"`      // ready/wanted
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// Conditions of a MusterCluster.
const (
	Accepted = "Accepted" // the spec and its configuration can be followed
	Ready    = "Ready"    // all controllers and login hosts are ready
)

// replicas of the controllers.
func (s *Spec) replicas() int { return max(1, int(s.Controllers.Replicas)) }

// names of the parts of a cluster.
func (c *MusterCluster) clusterName() string {
	if c.Spec.ClusterName != "" {
		return c.Spec.ClusterName
	}
	return c.Name
}

func (c *MusterCluster) controllerSet() string { return c.Name + "-controller" }
func (c *MusterCluster) witnessSet() string    { return c.Name + "-witness" }
func (c *MusterCluster) loginSet() string      { return c.Name + "-login" }
func (c *MusterCluster) configMap() string     { return c.Name + "-config" }
func (c *MusterCluster) authority() string     { return c.Name + "-authority" }
func (c *MusterCluster) publicCA() string      { return c.Name + "-ca" }
func (c *MusterCluster) peers() string         { return c.Name + "-controllers" }
func (c *MusterCluster) rest() string          { return c.Name + "-slurmrestd" }
func (c *MusterCluster) web() string           { return c.Name + "-web" }
