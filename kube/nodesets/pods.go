package nodesets

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/musterhpc/muster/spec/hostlist"
)

// Places in a node's pod.
const (
	stateVolume  = "muster-state"
	stateDir     = "/var/lib/muster"
	secretVolume = "muster-enrolment"
	secretDir    = "/run/muster-enrolment"
	tokenKey     = "token"
)

// ErrSpec is wrapped by what is wrong with a NodeSet.
var ErrSpec = errors.New("the NodeSet cannot be followed")

// maxNodes bounds a NodeSet.
const maxNodes = 10000

// names are the nodes of a NodeSet.
func names(set *NodeSet) ([]string, error) {
	list, err := hostlist.Expand(set.Spec.Nodes)
	if err != nil {
		return nil, fmt.Errorf("%w: spec.nodes: %w", ErrSpec, err)
	}
	if len(list) == 0 || len(list) > maxNodes {
		return nil, fmt.Errorf("%w: spec.nodes names %d nodes; 1 to %d are allowed", ErrSpec, len(list), maxNodes)
	}
	for _, name := range list {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%w: node %q cannot be the name of a pod: %s", ErrSpec, name, strings.Join(wrong, "; "))
		}
	}
	return list, nil
}

// check finds what of a NodeSet no pod can be made of.
func check(set *NodeSet) ([]string, error) {
	list, err := names(set)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(set.Spec.Template.Spec.Containers,
		func(c corev1.Container) bool { return c.Name == AgentContainer })
	if at < 0 {
		return nil, fmt.Errorf("%w: no container of spec.template is called %s", ErrSpec, AgentContainer)
	}
	if policy := set.Spec.Template.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
		return nil, fmt.Errorf("%w: restartPolicy %s; an agent that ends is started again (Always)", ErrSpec, policy)
	}
	return list, nil
}

func secretName(node string) string { return node + "-enrolment" }

// makePod is the pod of a node: the template, with the agent told who it is.
//
// Nobody owns it: Kubernetes would delete it with its owner, and the jobs on it too.
func makePod(set *NodeSet, node string) *corev1.Pod {
	template := set.Spec.Template.DeepCopy()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        node,
			Namespace:   set.Namespace,
			Labels:      template.Labels,
			Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[SetLabel] = set.Name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	// An autoscaler of machines must not take the one on which jobs run.
	if _, said := pod.Annotations[evictAnnotation]; !said {
		pod.Annotations[evictAnnotation] = "false"
	}
	pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if pod.Spec.Hostname == "" {
		pod.Spec.Hostname = node
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == stateVolume }) {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: stateVolume,
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	mode := int32(0o400)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: secretVolume,
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secretName(node), DefaultMode: &mode}}})
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		if c.Name != AgentContainer {
			continue
		}
		if len(c.Command) == 0 {
			c.Command = []string{"muster-agent"}
		}
		c.Args = append(c.Args,
			"--node", node,
			"--controller", strings.Join(set.Spec.Controllers, ","),
			"--state-dir", stateDir+"/agent/"+node,
			"--token-file", secretDir+"/"+tokenKey)
		if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == stateVolume }) {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: stateVolume, MountPath: stateDir})
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: secretVolume, MountPath: secretDir, ReadOnly: true})
	}
	return pod
}

const evictAnnotation = "cluster-autoscaler.kubernetes.io/safe-to-evict"
