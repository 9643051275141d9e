package clusters

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/musterhpc/muster/kube/nodesets"
)

// KeeperRole is the ClusterRole of the program beside the controllers. The operator's chart
// has it, so that the operator itself needs no rights to give away but this one.
const KeeperRole = "muster-operator-nodes"

// Object is a resource to apply.
type Object struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// Resources of what a cluster consists of.
var (
	configMaps      = corev1.SchemeGroupVersion.WithResource("configmaps")
	services        = corev1.SchemeGroupVersion.WithResource("services")
	serviceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	statefulSets    = appsv1.SchemeGroupVersion.WithResource("statefulsets")
	roleBindings    = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	budgets         = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	networkPolicies = networkingv1.SchemeGroupVersion.WithResource("networkpolicies")
)

// Make is everything that a cluster consists of, but for its secrets.
func Make(c *MusterCluster, cfg *Configuration) ([]Object, error) {
	m := maker{cluster: c, config: cfg}
	m.add(configMaps, "ConfigMap", "v1", &corev1.ConfigMap{ObjectMeta: m.meta(c.configMap(), ""), Data: cfg.Files})
	m.add(serviceAccounts, "ServiceAccount", "v1", &corev1.ServiceAccount{ObjectMeta: m.meta(c.controllerSet(), "controller")})
	m.add(roleBindings, "RoleBinding", rbacv1.SchemeGroupVersion.String(), &rbacv1.RoleBinding{
		ObjectMeta: m.meta(c.controllerSet(), "controller"),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: KeeperRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: c.controllerSet(), Namespace: c.Namespace}},
	})
	m.services()
	m.add(networkPolicies, "NetworkPolicy", networkingv1.SchemeGroupVersion.String(),
		m.policy(c.controllerSet(), "controller", grpcPort, restPort, metricsPort, keeperPort, webPort))
	if c.Spec.replicas() > 1 {
		// A witness has a vote as they have: of all of them one may be away.
		one := intstr.FromInt32(1)
		m.add(budgets, "PodDisruptionBudget", policyv1.SchemeGroupVersion.String(), &policyv1.PodDisruptionBudget{
			ObjectMeta: m.meta(c.controllerSet(), "controller"),
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: m.voters()},
		})
	}
	m.add(statefulSets, "StatefulSet", appsv1.SchemeGroupVersion.String(), m.controllers())
	if c.Spec.Controllers.Witness != nil {
		m.add(networkPolicies, "NetworkPolicy", networkingv1.SchemeGroupVersion.String(), m.policy(c.witnessSet(), "witness", grpcPort, metricsPort))
		m.add(statefulSets, "StatefulSet", appsv1.SchemeGroupVersion.String(), m.witness())
	}
	if c.Spec.Login != nil {
		m.add(statefulSets, "StatefulSet", appsv1.SchemeGroupVersion.String(), m.logins())
	}
	for i := range c.Spec.NodeSets {
		m.add(nodesets.Resource, "NodeSet", nodesets.Resource.GroupVersion().String(), m.nodeSet(&c.Spec.NodeSets[i]))
	}
	return m.out, m.err
}

// maker gathers the resources of a cluster.
type maker struct {
	cluster *MusterCluster
	config  *Configuration
	out     []Object
	err     error
}

// labels of a part; an empty part: of the whole.
func (m *maker) labels(part string) map[string]string {
	out := map[string]string{
		ClusterLabel:                   m.cluster.Name,
		"app.kubernetes.io/name":       "muster",
		"app.kubernetes.io/instance":   m.cluster.Name,
		"app.kubernetes.io/managed-by": "muster-operator",
	}
	if part != "" {
		out["app.kubernetes.io/component"] = part
	}
	return out
}

func (m *maker) selector(part string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{ClusterLabel: m.cluster.Name, "app.kubernetes.io/component": part}}
}

// voters selects controllers and witness.
func (m *maker) voters() *metav1.LabelSelector {
	return &metav1.LabelSelector{
		MatchLabels: map[string]string{ClusterLabel: m.cluster.Name},
		MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: "app.kubernetes.io/component", Operator: metav1.LabelSelectorOpIn, Values: []string{"controller", "witness"}}},
	}
}

func (m *maker) meta(name, part string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: m.cluster.Namespace, Labels: m.labels(part)}
}

// add notes a resource as it will be applied: without a status and empty fields, which
// would become the operator's otherwise.
func (m *maker) add(resource schema.GroupVersionResource, kind, version string, object any) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		m.err = fmt.Errorf("%s: %w", kind, err)
		return
	}
	delete(content, "status")
	content["apiVersion"], content["kind"] = version, kind
	u := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	for _, at := range [][]string{{"spec", "template"}, {"template"}} {
		unstructured.RemoveNestedField(content, append(at, "metadata", "creationTimestamp")...)
	}
	m.out = append(m.out, Object{Resource: resource, Object: u})
}

func (m *maker) services() {
	c := m.cluster
	port := func(name string, port, target int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(target), Protocol: corev1.ProtocolTCP}
	}
	add := func(name, part string, spec corev1.ServiceSpec) {
		spec.Selector = m.selector(part).MatchLabels
		m.add(services, "Service", "v1", &corev1.Service{ObjectMeta: m.meta(name, part), Spec: spec})
	}
	// Controllers find each other before they are ready.
	add(c.peers(), "controller", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
		Ports: []corev1.ServicePort{port("grpc", grpcPort, grpcPort), port("metrics", metricsPort, metricsPort), port("nodes", keeperPort, keeperPort)}})
	if c.Spec.Controllers.Witness != nil {
		add(c.witnessSet(), "witness", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{port("grpc", grpcPort, grpcPort), port("metrics", metricsPort, metricsPort)}})
	}
	add(c.rest(), "controller", corev1.ServiceSpec{Ports: []corev1.ServicePort{port("rest", restPort, restPort), port("slurmrestd", ackRESTPort, restPort)}})
	if c.Spec.Web {
		add(c.web(), "controller", corev1.ServiceSpec{Ports: []corev1.ServicePort{port("https", 443, webPort)}})
	}
	if login := c.Spec.Login; login != nil {
		add(c.loginSet(), "login", corev1.ServiceSpec{Type: login.ServiceType, Ports: []corev1.ServicePort{port("ssh", sshPort, sshPort)}})
	}
}

// policy lets agents, login hosts and controllers reach the ports of a part; REST, the
// console and metrics are open within the cluster, since each caller has to prove who he is
// or the site says so by its own policies.
func (m *maker) policy(name, part string, ports ...int32) *networkingv1.NetworkPolicy {
	tcp := corev1.ProtocolTCP
	var open []networkingv1.NetworkPolicyPort
	for _, p := range ports {
		at := intstr.FromInt32(p)
		open = append(open, networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: &at})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: m.meta(name, part),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *m.selector(part),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: open}},
		},
	}
}

// image names that of a part.
func (m *maker) image(of string) string {
	if of != "" {
		return of
	}
	return m.cluster.Spec.Image
}

// overlay lays the site's fields over a pod, as kubectl patch does.
func (m *maker) overlay(template corev1.PodTemplateSpec, over *corev1.PodTemplateSpec) corev1.PodTemplateSpec {
	if over == nil {
		return template
	}
	base, err := json.Marshal(template)
	if err != nil {
		m.err = err
		return template
	}
	patch, err := patchOf(over)
	if err != nil {
		m.err = err
		return template
	}
	both, err := strategicpatch.StrategicMergePatch(base, patch, corev1.PodTemplateSpec{})
	var out corev1.PodTemplateSpec
	if err == nil {
		err = json.Unmarshal(both, &out)
	}
	if err != nil {
		m.err = fmt.Errorf("%w: its pod: %w", ErrSpec, err)
		return template
	}
	return out
}

// patchOf is a template without the fields that Go writes although they are not there.
func patchOf(over *corev1.PodTemplateSpec) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(over)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	if spec, ok := content["spec"].(map[string]any); ok && spec["containers"] == nil {
		delete(spec, "containers")
	}
	return json.Marshal(content)
}

// claim is for a volume of a size, unless the site says another one.
func (m *maker) claim(s Storage, usual string) (corev1.PersistentVolumeClaim, error) {
	size := cmp.Or(s.Size, usual)
	q, err := resource.ParseQuantity(size)
	if err != nil {
		return corev1.PersistentVolumeClaim{}, fmt.Errorf("%w: storage.size %q: %w", ErrSpec, size, err)
	}
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "state", Labels: m.labels("")},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: s.ClassName,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: q}},
		},
	}, nil
}

// stateful is a StatefulSet whose pods keep their state and are all started at once.
func (m *maker) stateful(name, part string, replicas int32, storage Storage, template corev1.PodTemplateSpec) *appsv1.StatefulSet {
	usual, service := "20Gi", m.cluster.peers()
	if part == "witness" {
		usual, service = "4Gi", m.cluster.witnessSet() // its log is 2 GiB at most
	}
	claim, err := m.claim(storage, usual)
	if err != nil {
		m.err = err
	}
	return &appsv1.StatefulSet{
		ObjectMeta: m.meta(name, part),
		Spec: appsv1.StatefulSetSpec{
			Replicas:             &replicas,
			ServiceName:          service,
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			Selector:             m.selector(part),
			Template:             template,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim},
		},
	}
}

// certificateContainer makes a controller's certificate, before musterd starts.
func (m *maker) certificateContainer(service string, alias ...string) corev1.Container {
	c := m.cluster
	args := []string{"--authority", authorityDir, "--tls", stateDir + "/tls", "--name", "$(POD_NAME)",
		"--host", fmt.Sprintf("$(POD_NAME).%s.%s.svc", service, c.Namespace)}
	for _, name := range alias {
		for _, host := range []string{name, name + "." + c.Namespace, name + "." + c.Namespace + ".svc"} {
			args = append(args, "--host", host)
		}
	}
	return corev1.Container{
		Name: "certificate", Image: c.Spec.Image, ImagePullPolicy: c.Spec.ImagePullPolicy,
		Command: []string{"muster-operator", "certificate"},
		Args:    args,
		Env:     []corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name")},
		VolumeMounts: []corev1.VolumeMount{{Name: "state", MountPath: stateDir},
			{Name: "authority", MountPath: authorityDir, ReadOnly: true}},
	}
}

// musterd is the container of a controller or a witness.
func (m *maker) musterd(args ...string) corev1.Container {
	c := m.cluster
	return corev1.Container{
		Name: "musterd", Image: c.Spec.Image, ImagePullPolicy: c.Spec.ImagePullPolicy,
		Command: []string{"musterd"},
		Args:    append([]string{"--config", configDir + "/muster.yaml"}, args...),
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 5, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("metrics")}}},
		Ports: []corev1.ContainerPort{{Name: "grpc", ContainerPort: grpcPort}, {Name: "metrics", ContainerPort: metricsPort}},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: configDir, ReadOnly: true},
			{Name: "state", MountPath: stateDir}, {Name: "run", MountPath: runDir}},
	}
}

// controllerVolumes are those of controllers and witness, beside their state.
func (m *maker) controllerVolumes() []corev1.Volume {
	c := m.cluster
	closed := int32(0o400)
	return []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: c.configMap()}}}},
		{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "authority", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: c.authority(), DefaultMode: &closed}}},
	}
}

// apart has the pods of a group run on different machines where that is possible.
func (m *maker) apart() *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
			LabelSelector: m.voters(), TopologyKey: corev1.LabelHostname}}}}}
}

// controllerMeta is that of the pods of controllers or a witness: another configuration makes
// other pods.
func (m *maker) controllerMeta(part string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Labels: m.labels(part), Annotations: map[string]string{
		ConfigAnnotation: m.config.Hash(),
		"kubectl.kubernetes.io/default-container": "musterd",
	}}
}

// witness is the third vote of two controllers.
func (m *maker) witness() *appsv1.StatefulSet {
	c := m.cluster
	template := corev1.PodTemplateSpec{
		ObjectMeta: m.controllerMeta("witness"),
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool), // it has no business with Kubernetes
			ImagePullSecrets:             c.Spec.ImagePullSecrets,
			InitContainers:               []corev1.Container{m.certificateContainer(c.witnessSet())},
			Containers:                   []corev1.Container{m.musterd("--role", "witness")},
			Volumes:                      m.controllerVolumes(),
			Affinity:                     m.apart(),
		},
	}
	return m.stateful(c.witnessSet(), "witness", 1, c.Spec.Controllers.Witness.Storage, m.overlay(template, c.Spec.Controllers.Witness.Pod))
}

func (m *maker) controllers() *appsv1.StatefulSet {
	c := m.cluster
	closed := int32(0o400)
	main := m.musterd()
	main.Ports = append(main.Ports, corev1.ContainerPort{Name: "rest", ContainerPort: restPort}, corev1.ContainerPort{Name: "web", ContainerPort: webPort})
	template := corev1.PodTemplateSpec{
		ObjectMeta: m.controllerMeta("controller"),
		Spec: corev1.PodSpec{
			ServiceAccountName: c.controllerSet(),
			ImagePullSecrets:   c.Spec.ImagePullSecrets,
			InitContainers:     []corev1.Container{m.certificateContainer(c.peers(), c.rest(), c.web(), c.peers())},
			Containers: []corev1.Container{main, {
				Name: "nodes", Image: c.Spec.Image, ImagePullPolicy: c.Spec.ImagePullPolicy,
				Command:      []string{"muster-kube-nodes"},
				Args:         m.keeperArgs(),
				Ports:        []corev1.ContainerPort{{Name: "nodes", ContainerPort: keeperPort}},
				Env:          []corev1.EnvVar{fieldEnv("POD_NAMESPACE", "metadata.namespace")},
				VolumeMounts: []corev1.VolumeMount{{Name: "run", MountPath: runDir}},
			}},
			Volumes: m.controllerVolumes(),
		},
	}
	if dsn := c.Spec.Accounting.DSNSecret; dsn != nil {
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: "dsn",
			VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: dsn.Name, DefaultMode: &closed}}})
		main := &template.Spec.Containers[0]
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "dsn", MountPath: dsnDir, ReadOnly: true})
	}
	if c.Spec.replicas() > 1 {
		template.Spec.Affinity = m.apart()
	}
	return m.stateful(c.controllerSet(), "controller", int32(c.Spec.replicas()), c.Spec.Controllers.Storage, m.overlay(template, c.Spec.Controllers.Pod))
}

// keeperArgs are those of the program that keeps nodes and tokens.
func (m *maker) keeperArgs() []string {
	c := m.cluster
	args := []string{"--cluster", c.Name, "--lease", c.controllerSet(), "--socket", runDir + "/rest.sock", "--listen", fmt.Sprintf(":%d", keeperPort)}
	if t := c.Spec.TokenSecret; t != nil {
		args = append(args, "--token-secret", t.Name, "--token-key", t.Key, "--token-user", t.User)
	}
	return args
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
}

// logins are hosts with an agent that passes users' commands on, and sshd.
func (m *maker) logins() *appsv1.StatefulSet {
	c, login := m.cluster, m.cluster.Spec.Login
	image := m.image(login.Image)
	run := corev1.VolumeMount{Name: "run", MountPath: runDir}
	closed, optional := int32(0o400), true
	agent := []string{"--login", "--node", "$(POD_NAME)", "--state-dir", stateDir + "/agent", "--token-file", tokenDir + "/$(POD_NAME)"}
	agent = append(agent, "--controller", strings.Join(addresses(c), ","))
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: m.labels("login"), Annotations: map[string]string{"kubectl.kubernetes.io/default-container": "sshd"}},
		Spec: corev1.PodSpec{
			ImagePullSecrets:             c.Spec.ImagePullSecrets,
			AutomountServiceAccountToken: new(bool), // users have no business with Kubernetes
			Containers: []corev1.Container{{
				Name: "sshd", Image: image, ImagePullPolicy: c.Spec.ImagePullPolicy,
				Command:        []string{"/bin/sh", "-ec"},
				Args:           []string{sshdScript},
				Ports:          []corev1.ContainerPort{{Name: "ssh", ContainerPort: sshPort}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("ssh")}}},
				VolumeMounts:   []corev1.VolumeMount{run, {Name: "host-keys", MountPath: hostKeysDir, ReadOnly: true}},
			}, {
				Name: "agent", Image: image, ImagePullPolicy: c.Spec.ImagePullPolicy,
				Command: []string{"muster-agent"}, Args: agent,
				Env:          []corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name")},
				VolumeMounts: []corev1.VolumeMount{run, {Name: "state", MountPath: stateDir}, {Name: "enrolment", MountPath: tokenDir, ReadOnly: true}},
			}},
			Volumes: []corev1.Volume{
				{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "host-keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: login.HostKeysSecret, DefaultMode: &closed}}},
				{Name: "enrolment", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
					SecretName: nodesets.LoginSecret(c.Name), DefaultMode: &closed, Optional: &optional}}},
			},
		},
	}
	return m.stateful(c.loginSet(), "login", max(1, login.Replicas), login.Storage, m.overlay(template, login.Pod))
}

const hostKeysDir = "/etc/ssh/host-keys"

// sshdScript offers each host key that the site's Secret has.
const sshdScript = `mkdir -p /run/sshd
set --
for key in ` + hostKeysDir + `/*; do
  case $key in *.pub) ;; *) set -- "$@" -h "$key" ;; esac
done
exec "$(command -v sshd || echo /usr/sbin/sshd)" -D -e "$@"`

// nodeSet is one of the cluster's. Its keeper runs beside the controllers.
func (m *maker) nodeSet(n *NodeSet) *nodesets.NodeSet {
	c := m.cluster
	privileged := true
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: m.labels("node")},
		Spec: corev1.PodSpec{
			ImagePullSecrets:             c.Spec.ImagePullSecrets,
			AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{
				Name: nodesets.AgentContainer, Image: m.image(n.Image), ImagePullPolicy: c.Spec.ImagePullPolicy,
				Ports: []corev1.ContainerPort{{Name: "steps", ContainerPort: stepsPort}, {Name: "metrics", ContainerPort: 9400}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
					HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromString("metrics")}}},
				SecurityContext: &corev1.SecurityContext{Privileged: &privileged},
			}},
		},
	}
	return &nodesets.NodeSet{
		ObjectMeta: m.meta(n.Name, "node"),
		Spec:       nodesets.Spec{Nodes: m.config.Nodes[n.Name], Controllers: addresses(c), Template: m.overlay(template, n.Pod)},
	}
}
