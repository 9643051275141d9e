package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SlurmResource is that of SlurmClusters, which users of ACK have.
var SlurmResource = schema.GroupVersionResource{Group: "kai.alibabacloud.com", Version: "v1", Resource: "slurmclusters"}

// ackTokenSecret is where users of ACK's chart find the token for REST, under the name of
// the cluster.
const ackTokenSecret = "ack-slurm-jwt-token"

// SlurmCluster is a cluster as users of ACK's chart describe it. Parts are read one by one,
// so that what is not understood can be named.
type SlurmCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              map[string]any `json:"spec"`
	Status            SlurmStatus    `json:"status,omitempty"`
}

// SlurmStatus is what has become of it.
type SlurmStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// ackPart are the fields of a head node or of a group of workers.
type ackPart struct {
	GroupName          string                        `json:"groupName"`
	Name               string                        `json:"name"`
	Resources          corev1.ResourceRequirements   `json:"resources"`
	NodeSelector       map[string]string             `json:"nodeSelector"`
	Tolerations        []corev1.Toleration           `json:"tolerations"`
	Affinity           *corev1.Affinity              `json:"affinity"`
	Volumes            []corev1.Volume               `json:"volumes"`
	VolumeMounts       []corev1.VolumeMount          `json:"volumeMounts"`
	SecurityContext    *corev1.SecurityContext       `json:"securityContext"`
	PodSecurityContext *corev1.PodSecurityContext    `json:"podSecurityContext"`
	ImagePullSecrets   []corev1.LocalObjectReference `json:"imagePullSecrets"`
	HostNetwork        bool                          `json:"hostNetwork"`
	SetHostnameAsFQDN  *bool                         `json:"setHostnameAsFQDN"`
	Env                []corev1.EnvVar               `json:"env"`
	Labels             map[string]string             `json:"labels"`
	Annotations        map[string]string             `json:"annotations"`
}

// ackSpec are the fields that are understood.
type ackSpec struct {
	HeadNodeConfig    map[string]any `json:"headNodeConfig"`
	WorkerNodesConfig map[string]any `json:"workerNodesConfig"`
	SlurmConfigs      struct {
		CreateConfigsByConfigMap bool     `json:"createConfigsByConfigMap"`
		ConfigMapName            string   `json:"configMapName"`
		FilesInConfigMap         []string `json:"filesInConfigMap"`
	} `json:"slurmConfigs"`
}

// why says what becomes of fields that have no effect.
var why = map[string]string{
	"mungeConfigs":            "Muster's agents have certificates of their own, and munge's key is not used",
	"slurmdbdConfigs":         "accounting runs in the controller, with its engine on the controller's volume; a MusterCluster can name a ClickHouse server",
	"slurmrestdConfigs":       "REST is served by the controllers at Service NAME-slurmrestd, over TLS",
	"slurmConfigPathInPod":    "configuration is at /etc/muster in the pods",
	"image":                   "pods run the image of muster-operator's --image: that of Slurm has no programs of Muster",
	"replicas":                "the queue determines how many workers there are: all nodes of the group in slurm.conf, those with State=CLOUD while jobs need them",
	"deleteSelfBeforeSuspend": "a worker's pod is deleted when the controller has powered its node down",
}

// Translate makes a MusterCluster of a SlurmCluster. The notes name what is ignored.
func Translate(s *SlurmCluster, image string) (*MusterCluster, []string, error) {
	t := translator{}
	var spec ackSpec
	t.read("spec", s.Spec, &spec, "headNodeConfig", "workerNodesConfig", "slurmConfigs")
	refused := func(format string, args ...any) (*MusterCluster, []string, error) {
		return nil, t.notes, fmt.Errorf("the SlurmCluster cannot be followed: "+format, args...)
	}
	if t.err != nil {
		return refused("%w", t.err)
	}
	if configs, ok := s.Spec["slurmConfigs"].(map[string]any); ok {
		t.ignore("spec.slurmConfigs", configs, "createConfigsByConfigMap", "configMapName", "filesInConfigMap")
	}
	if !spec.SlurmConfigs.CreateConfigsByConfigMap || spec.SlurmConfigs.ConfigMapName == "" {
		return refused("slurm.conf has to be in a ConfigMap: slurmConfigs.createConfigsByConfigMap: true, with configMapName")
	}
	out := &MusterCluster{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Namespace: s.Namespace}}
	out.Spec = Spec{
		Image:       image,
		Config:      Config{ConfigMap: spec.SlurmConfigs.ConfigMapName, Only: spec.SlurmConfigs.FilesInConfigMap},
		TokenSecret: &TokenSecret{Name: ackTokenSecret, Key: s.Name, User: "root"},
	}
	head := t.part("spec.headNodeConfig", spec.HeadNodeConfig)
	out.Spec.Controllers.Pod, out.Spec.ImagePullSecrets = head.pod("musterd"), head.ImagePullSecrets
	groups, _ := spec.WorkerNodesConfig["workerGroups"].([]any)
	t.ignore("spec.workerNodesConfig", spec.WorkerNodesConfig, "workerGroups")
	for i, g := range groups {
		at := fmt.Sprintf("spec.workerNodesConfig.workerGroups[%d]", i)
		fields, ok := g.(map[string]any)
		group := t.part(at, fields)
		name := group.GroupName
		if name == "" {
			name = group.Name
		}
		if !ok || name == "" {
			return refused("%s has no groupName", at)
		}
		out.Spec.NodeSets = append(out.Spec.NodeSets, NodeSet{
			Name: s.Name + "-worker-" + name, Nodes: s.Name + "-worker-" + name + "-*", Pod: group.pod("agent"),
		})
	}
	if t.err != nil {
		return refused("%w", t.err)
	}
	return out, t.notes, nil
}

// translator reads parts and notes what it did not understand.
type translator struct {
	notes []string
	err   error
}

// read reads fields into a struct, and notes those that are not named.
func (t *translator) read(at string, fields map[string]any, into any, known ...string) {
	t.ignore(at, fields, known...)
	text, err := json.Marshal(fields)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil && t.err == nil {
		t.err = fmt.Errorf("%s: %w", at, err)
	}
}

// ignore notes the fields that are not named.
func (t *translator) ignore(at string, fields map[string]any, known ...string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(known, name) {
			continue
		}
		note := at + "." + name + " is ignored"
		if reason := why[name]; reason != "" {
			note += ": " + reason
		}
		t.notes = append(t.notes, note)
	}
}

func (t *translator) part(at string, fields map[string]any) ackPart {
	var p ackPart
	t.read(at, fields, &p, "groupName", "name", "resources", "nodeSelector", "tolerations", "affinity", "volumes", "volumeMounts",
		"securityContext", "podSecurityContext", "imagePullSecrets", "hostNetwork", "setHostnameAsFQDN", "env", "labels", "annotations")
	return p
}

// pod is what the part says of its pods.
func (p *ackPart) pod(container string) *corev1.PodTemplateSpec {
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations},
		Spec: corev1.PodSpec{
			NodeSelector:      p.NodeSelector,
			Tolerations:       p.Tolerations,
			Affinity:          p.Affinity,
			Volumes:           p.Volumes,
			SecurityContext:   p.PodSecurityContext,
			ImagePullSecrets:  p.ImagePullSecrets,
			HostNetwork:       p.HostNetwork,
			SetHostnameAsFQDN: p.SetHostnameAsFQDN,
			Containers: []corev1.Container{{
				Name: container, Resources: p.Resources, VolumeMounts: p.VolumeMounts, SecurityContext: p.SecurityContext, Env: p.Env,
			}},
		},
	}
}

// translate keeps the MusterCluster of a SlurmCluster, which owns it: what is deleted with it
// has a finalizer of its own.
func (o *Operator) translate(ctx context.Context, s *SlurmCluster) error {
	if s.DeletionTimestamp != nil {
		return nil
	}
	about := &corev1.ObjectReference{APIVersion: SlurmResource.GroupVersion().String(), Kind: "SlurmCluster",
		Namespace: s.Namespace, Name: s.Name, UID: s.UID}
	cluster, notes, err := Translate(s, o.Image)
	for _, note := range notes {
		o.tellOnce(about, s.Generation, "Ignored", note)
	}
	condition := metav1.Condition{Type: Accepted, Status: metav1.ConditionTrue, Reason: "Translated", ObservedGeneration: s.Generation,
		Message: "MusterCluster " + s.Name + " has its state"}
	if err == nil {
		yes := true
		cluster.OwnerReferences = []metav1.OwnerReference{{APIVersion: about.APIVersion, Kind: about.Kind, Name: s.Name, UID: s.UID, Controller: &yes}}
		m := maker{cluster: cluster}
		m.add(Resource, "MusterCluster", Resource.GroupVersion().String(), cluster)
		if err = m.err; err == nil {
			err = o.apply(ctx, s.UID, m.out[0])
		}
	}
	if err != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Refused", err.Error()
	}
	return o.reportSlurm(ctx, s, condition, err)
}
