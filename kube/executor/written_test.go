package executor

import (
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/spec"
)

// TestWrittenOnce: a round that still sees a pod as it was before this program let it through, or
// bound it, does not write again; one that sees a newer version does.
func TestWrittenOnce(t *testing.T) {
	seen := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a", UID: "u", ResourceVersion: "7"}}
	seen.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}}
	kube := fake.NewClientset(seen)
	e := New(Config{Kube: kube, Recorder: record.NewFakeRecorder(100), Log: slog.New(slog.DiscardHandler)})
	look := func(pod *corev1.Pod) *round {
		r := &round{
			Executor: e,
			names:    &names{kube: map[string]string{"n1": "n1"}},
			pods:     map[string]*corev1.Pod{"u": pod},
		}
		e.written.forget(r.pods)
		return r
	}
	writes := func() (n int) {
		for _, a := range kube.Actions() {
			if a.GetVerb() == "patch" || a.GetVerb() == "create" {
				n++
			}
		}
		return n
	}
	for range 3 {
		look(seen).letGo(t.Context(), copilot.LetGo{Pod: copilot.Pod{UID: "u"}, Node: "n1"})
	}
	if n := writes(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	newer := seen.DeepCopy()
	newer.ResourceVersion = "9"
	for range 3 {
		look(newer).bindPod(t.Context(), copilot.Bind{Pod: copilot.JobPod{UID: "u"}, Job: &copilot.PodJob{}, Place: spec.PodPlace{Node: "n1"}})
	}
	if n := writes(); n != 2 {
		t.Errorf("%d writes, want 2", n)
	}
	look(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "10"}})
	if len(e.written.at) != 0 {
		t.Errorf("left: %v", e.written.at)
	}
}
