package executor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Names that this program and the chart's policies share.
const (
	Domain = "musterhpc.github.io"
	// Gate keeps a pod from being scheduled until its hold is durable. A policy of the
	// API server puts it on pods when they are made.
	Gate = Domain + "/hold"
	// NodeLabel is on a Node whose name in Muster is another one.
	NodeLabel = Domain + "/node"
	// DevicesAnnotation lists the GPUs of a pod's hold by UUID.
	DevicesAnnotation = Domain + "/gpus"
	// Condition of a pod: it has its hold, or why not.
	Condition corev1.PodConditionType = Domain + "/Held"
)

// nodeField is the field by which a pod is pinned: a label could be another's.
const nodeField = "metadata.name"

// names translates between the names of a node here and there.
type names struct {
	muster map[string]string // by Kubernetes' name
	kube   map[string]string // by Muster's
}

func namesOf(nodes []*corev1.Node) names {
	n := names{
		muster: make(map[string]string, len(nodes)),
		kube:   make(map[string]string, len(nodes)),
	}
	for _, node := range nodes {
		name := node.Labels[NodeLabel]
		if name == "" {
			name = node.Name
		}
		n.muster[node.Name] = name
		n.kube[name] = node.Name
	}
	return n
}

// inMuster is a node's name in Muster. A pod may be on a Node that was deleted.
func (n *names) inMuster(node string) string {
	if name, ok := n.muster[node]; ok {
		return name
	}
	return node
}

// asks are what pods request, found once for each version of a pod that the watch has brought: most
// pods are the same in the next round. An informer never changes a pod that it has handed out.
type asks struct{ was, is map[*corev1.Pod]copilot.Ask }

// begin forgets the pods that the last round has not seen.
func (a *asks) begin() {
	a.was = a.is
	a.is = make(map[*corev1.Pod]copilot.Ask, len(a.was))
}

func (a *asks) of(p *corev1.Pod, gpu corev1.ResourceName) copilot.Ask {
	ask, known := a.is[p]
	if known {
		return ask
	}
	ask, known = a.was[p]
	if !known {
		ask = askOf(p, gpu)
	}
	if a.is != nil {
		a.is[p] = ask
	}
	return ask
}

// podOf is a pod as the copilot sees it, with what it requests; want is what its claims ask for.
func podOf(p *corev1.Pod, ask copilot.Ask, want *claims.Want, n *names) copilot.Pod {
	out := copilot.Pod{
		UID:       string(p.UID),
		Namespace: p.Namespace,
		Name:      p.Name,
		Created:   spec.Instant(p.CreationTimestamp.UnixNano()),
		Ask:       ask,
		Over: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
			onlyKept(p),
		Deleting: p.DeletionTimestamp != nil,
	}
	out.Ask.GPUs += want.GPUs
	out.Ask.GPUType = want.Type
	if p.Spec.Priority != nil {
		out.Priority = int64(*p.Spec.Priority)
	}
	if p.Spec.NodeName != "" {
		out.Node = n.inMuster(p.Spec.NodeName)
	}
	gates := p.Spec.SchedulingGates
	// While somebody else's gate is on a pod, it could not go where it is let go, and
	// a hold would only keep others out.
	out.Gated = len(gates) == 1 && gates[0].Name == Gate
	if pin := pinnedTo(p); pin != "" && len(gates) == 0 {
		out.Pinned = n.inMuster(pin)
	}
	return out
}

// askOf sums what a pod requests, as Kubernetes' own scheduler does.
func askOf(p *corev1.Pod, gpu corev1.ResourceName) copilot.Ask {
	sum := resource.PodRequests(p, resource.PodResourcesOptions{})
	const mib = 1 << 20
	return copilot.Ask{
		MilliCPU: sum.Cpu().MilliValue(),
		Mem:      (sum.Memory().Value() + mib - 1) / mib,
		GPUs:     sum.Name(gpu, "").Value(),
	}
}

// requiredTerms are the alternatives that a pod requires of its node.
func requiredTerms(p *corev1.Pod) []corev1.NodeSelectorTerm {
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil ||
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// pinnedTo is the only Node that a pod may go to; empty: there may be several.
func pinnedTo(p *corev1.Pod) string {
	pin := ""
	for _, term := range requiredTerms(p) {
		at := slices.IndexFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == nodeField && r.Operator == corev1.NodeSelectorOpIn && len(r.Values) == 1
		})
		if at < 0 || pin != "" && pin != term.MatchFields[at].Values[0] {
			return ""
		}
		pin = term.MatchFields[at].Values[0]
	}
	return pin
}

// pinTerms are a pod's alternatives, each of which names one Node too. Kubernetes
// lets a gated pod's affinity become narrower, never wider.
func pinTerms(p *corev1.Pod, node string) []corev1.NodeSelectorTerm {
	terms := requiredTerms(p)
	if len(terms) == 0 {
		terms = []corev1.NodeSelectorTerm{{}}
	}
	pin := corev1.NodeSelectorRequirement{
		Key:      nodeField,
		Operator: corev1.NodeSelectorOpIn,
		Values:   []string{node},
	}
	out := make([]corev1.NodeSelectorTerm, len(terms))
	for i := range terms {
		out[i] = *terms[i].DeepCopy()
		if !slices.ContainsFunc(out[i].MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == pin.Key && r.Operator == pin.Operator &&
				slices.Equal(r.Values, pin.Values)
		}) {
			out[i].MatchFields = append(out[i].MatchFields, pin)
		}
	}
	return out
}

// admits tells whether Kubernetes' scheduler could bind a pod to a Node, as far as
// labels, taints and conditions go.
func admits(p *corev1.Pod, affinity *nodeaffinity.RequiredNodeAffinity, node *corev1.Node) bool {
	if node.DeletionTimestamp != nil || !ready(node) {
		return false
	}
	if ok, err := affinity.Match(node); err != nil || !ok {
		return false
	}
	if node.Spec.Unschedulable && !toleratesCordon(p) {
		return false
	}
	binding := func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}
	_, repelled := corev1helpers.FindMatchingUntoleratedTaint(
		klog.Background(),
		node.Spec.Taints,
		p.Spec.Tolerations,
		binding,
		false,
	)
	return !repelled
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// toleratesCordon tells of a pod such as those of a DaemonSet.
func toleratesCordon(p *corev1.Pod) bool {
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return corev1helpers.TolerationsTolerateTaint(
		klog.Background(),
		p.Spec.Tolerations,
		&cordon,
		false,
	)
}

// admissions answers which nodes of Muster pods may be bound to, in one round. Pods of a
// deployment say the same of their nodes: the answer is found once for all of them, and
// they share the list, so that copilot.Reconcile too reads it once.
type admissions struct {
	nodes []*corev1.Node
	names *names
	known map[string]*admission // by what a pod says of its nodes
}

// admission is the nodes of Muster that some pods may be bound to.
type admission struct {
	nodes  []string
	folded string // the same as a hostlist; empty: nobody has asked
}

func newAdmissions(nodes []*corev1.Node, n *names) *admissions {
	return &admissions{nodes: nodes, names: n, known: map[string]*admission{}}
}

// list is the nodes as a hostlist.
func (a *admission) list() string {
	if a.folded == "" {
		a.folded = hostlist.Fold(a.nodes)
	}
	return a.folded
}

// of tells which nodes of Muster a pod may be bound to.
func (a *admissions) of(p *corev1.Pod) (*admission, error) {
	// All that admits reads of a pod.
	says, err := json.Marshal(struct {
		Selector    map[string]string
		Terms       []corev1.NodeSelectorTerm
		Tolerations []corev1.Toleration
	}{p.Spec.NodeSelector, requiredTerms(p), p.Spec.Tolerations})
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	if known, ok := a.known[string(says)]; ok {
		return known, nil
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(p)
	out := &admission{nodes: make([]string, 0, len(a.nodes))}
	for _, node := range a.nodes {
		if admits(p, &affinity, node) {
			out.nodes = append(out.nodes, a.names.muster[node.Name])
		}
	}
	a.known[string(says)] = out
	return out, nil
}

// needs says what a pod asks for.
func needs(a *copilot.Ask) string {
	out := fmt.Sprintf("cpu=%dm, memory=%dMi", a.MilliCPU, a.Mem)
	if a.GPUs > 0 {
		out += fmt.Sprintf(", %d GPUs", a.GPUs)
	}
	return out
}

// uuids lists devices.
func uuids(gpus []spec.GPURef) string {
	var out []string
	for _, g := range gpus {
		out = append(out, g.UUID)
	}
	return strings.Join(out, ",")
}
