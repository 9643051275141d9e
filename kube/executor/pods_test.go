package executor

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/kube/claims"
)

func amount(cpu, mem, gpus string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu),
		corev1.ResourceMemory: resource.MustParse(mem), "nvidia.com/gpu": resource.MustParse(gpus)}}
}

// TestAsk: init containers run before the others, sidecars beside them, overhead
// comes on top, and memory is rounded up to whole MiB.
func TestAsk(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{
			{Name: "sidecar", RestartPolicy: &always, Resources: amount("100m", "10Mi", "0")},
			{Name: "setup", Resources: amount("3", "1", "0")},
		},
		Containers: []corev1.Container{{Name: "a", Resources: amount("250m", "1Gi", "1")}, {Name: "b", Resources: amount("1", "1", "1")}},
		Overhead:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m")},
	}}
	want := copilot.Ask{MilliCPU: 3105, Mem: 1024 + 10 + 1, GPUs: 2}
	if got := askOf(pod, "nvidia.com/gpu"); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func terms(t ...corev1.NodeSelectorTerm) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: t}}}}}
}

func field(node string) []corev1.NodeSelectorRequirement {
	return []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}
}

// TestPin: each alternative of a pod gets the node, once; a pod is pinned when all
// of them name the same one.
func TestPin(t *testing.T) {
	disk := []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}}
	for _, c := range []struct {
		pod  *corev1.Pod
		was  string
		want []corev1.NodeSelectorTerm
	}{
		{&corev1.Pod{}, "", []corev1.NodeSelectorTerm{{MatchFields: field("n1")}}},
		{terms(corev1.NodeSelectorTerm{MatchExpressions: disk}, corev1.NodeSelectorTerm{MatchFields: field("n2")}), "",
			[]corev1.NodeSelectorTerm{{MatchExpressions: disk, MatchFields: field("n1")}, {MatchFields: append(field("n2"), field("n1")...)}}},
		{terms(corev1.NodeSelectorTerm{MatchFields: field("n1")}), "n1", []corev1.NodeSelectorTerm{{MatchFields: field("n1")}}},
		{terms(corev1.NodeSelectorTerm{MatchFields: field("n1")}, corev1.NodeSelectorTerm{MatchFields: field("n2")}), "", nil},
	} {
		if got := pinnedTo(c.pod); got != c.was {
			t.Errorf("%+v is pinned to %q, want %q", c.pod.Spec.Affinity, got, c.was)
		}
		if got := pinTerms(c.pod, "n1"); c.want != nil && !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
}

// TestPodOf: a pod is at the gate only if no other gate is on it, and pinned only if
// none is; its node has the name that Muster knows.
func TestPodOf(t *testing.T) {
	names := namesOf([]*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n1.example.org", Labels: map[string]string{NodeLabel: "n1"}}}})
	gated := terms(corev1.NodeSelectorTerm{MatchFields: field("n1.example.org")})
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}}
	twice := gated.DeepCopy()
	twice.Spec.SchedulingGates = append(twice.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "example.org/quota"})
	let := gated.DeepCopy()
	let.Spec.SchedulingGates = nil
	bound := let.DeepCopy()
	bound.Spec.NodeName = "n1.example.org"
	bound.Status.Phase = corev1.PodFailed
	for name, c := range map[string]struct {
		pod          *corev1.Pod
		gated, over  bool
		pinned, node string
	}{
		"at the gate":         {gated, true, false, "", ""},
		"at two gates":        {twice, false, false, "", ""},
		"let through":         {let, false, false, "n1", ""},
		"bound and has ended": {bound, false, true, "n1", "n1"},
	} {
		got := podOf(c.pod, askOf(c.pod, "nvidia.com/gpu"), &claims.Want{GPUs: 2, Type: "h100"}, &names)
		if got.Gated != c.gated || got.Over != c.over || got.Pinned != c.pinned || got.Node != c.node ||
			got.Ask.GPUs != 2 || got.Ask.GPUType != "h100" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAdmits: what keeps Kubernetes' scheduler from a node keeps a hold from it too.
func TestAdmits(t *testing.T) {
	node := func(change func(n *corev1.Node)) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "fast"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
		change(n)
		return n
	}
	same := func(*corev1.Node) {}
	plain := &corev1.Pod{}
	slow := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "slow"}}}
	all := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}}}
	taint := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}} }
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		node *corev1.Node
		want int
	}{
		"as it is":           {plain, node(same), 1},
		"another label":      {slow, node(same), 0},
		"a taint":            {plain, node(taint), 0},
		"a tolerated taint":  {all, node(taint), 1},
		"cordoned":           {plain, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), 0},
		"cordoned, tolerant": {all, node(func(n *corev1.Node) { n.Spec.Unschedulable = true }), 1},
		"not ready":          {plain, node(func(n *corev1.Node) { n.Status.Conditions = nil }), 0},
	} {
		nodes := []*corev1.Node{c.node}
		names := namesOf(nodes)
		if got, err := newAdmissions(nodes, &names).of(c.pod); err != nil || len(got.nodes) != c.want {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

// TestAdmissionsAreShared: pods that say the same of their nodes share one list, and
// each difference that matters has a list of its own.
func TestAdmissionsAreShared(t *testing.T) {
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
	}}
	nodes := []*corev1.Node{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"disk": "fast"}},
			Status:     ready,
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "n2"},
			Status:     ready,
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{
				{Key: "k", Effect: corev1.TaintEffectNoSchedule},
			}},
		},
	}
	names := namesOf(nodes)
	a := newAdmissions(nodes, &names)
	of := func(pod *corev1.Pod) []string {
		t.Helper()
		got, err := a.of(pod)
		if err != nil {
			t.Fatal(err)
		}
		return got.nodes
	}
	tolerant := &corev1.Pod{Spec: corev1.PodSpec{
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}}
	selective := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "no"}}}
	pinned := terms(corev1.NodeSelectorTerm{MatchFields: field("n2")})
	for _, c := range []struct {
		pod  *corev1.Pod
		want []string
	}{
		{&corev1.Pod{}, []string{"n1"}},
		{tolerant, []string{"n1", "n2"}},
		{selective, []string{}},
		{pinned, []string{}},
	} {
		if got := of(c.pod); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.pod.Spec, got, c.want)
		}
	}
	again := tolerant.DeepCopy()
	again.Name = "another"
	if first, second := of(tolerant), of(again); &first[0] != &second[0] {
		t.Error("two pods that say the same have lists of their own")
	}
}
