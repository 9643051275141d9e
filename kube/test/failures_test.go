package test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// holdsOf counts the holds of a pod in the ledger.
func (l *lab) holdsOf(t *testing.T, name string) int {
	t.Helper()
	return strings.Count(l.must(t, "scontrol", "show", "node"), "Hold=web/"+name+" ")
}

// TestServerAway: the API server is killed and comes back. Holds stay meanwhile, jobs
// start beside them, and afterwards pods come and go as before.
func TestServerAway(t *testing.T) {
	l := need(t)
	t.Cleanup(func() { l.clear(t) }) // also where it fails: the lab is shared
	l.make(t, podOf("stays", "1", "100Mi", 1))
	l.runs(t, "stays")
	l.apiServer.kill()
	l.must(t, "sbatch", "-J", "beside", "-c", "2", "--mem=200", "--wrap", "sleep 600")
	l.says(t, "R", "squeue", "-h", "-n", "beside", "-o", "%t")
	if n := l.holdsOf(t, "stays"); n != 1 {
		t.Errorf("the pod has %d holds while the API server is away", n)
	}
	if err := l.startAPI(); err != nil {
		t.Fatal(err)
	}
	wait(t, "the API server answers", func() (bool, string) {
		err := l.kube.RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
		if err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	watch := l.observe(t)
	l.make(t, podOf("later", "1", "100Mi", 1))
	l.runs(t, "later")
	if a, b := l.holdsOf(t, "stays"), l.holdsOf(t, "later"); a != 1 || b != 1 {
		t.Errorf("the pods have %d and %d holds", a, b)
	}
	l.kubectl(t, "-n", "web", "delete", "pod", "stays")
	wait(t, "the hold is given back", func() (bool, string) {
		return l.holdsOf(t, "stays") == 0, l.must(t, "scontrol", "show", "node")
	})
	l.says(t, "R", "squeue", "-h", "-n", "beside", "-o", "%t")
	watch()
}

// TestEndsUnseen: a pod succeeds while nobody watches. The next copy gives its hold back,
// and the pod stays to be read.
func TestEndsUnseen(t *testing.T) {
	l := need(t)
	t.Cleanup(func() { l.clear(t) }) // also where it fails: the lab is shared
	watch := l.observe(t)
	l.make(t, podOf("ends", "1", "100Mi", 1))
	l.runs(t, "ends")
	l.copy.kill()
	pod := l.get(t, "ends")
	pod.Status.Phase = corev1.PodSucceeded
	if _, err := l.kube.CoreV1().Pods("web").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := l.holdsOf(t, "ends"); n != 1 {
		t.Errorf("%d holds while nobody watches", n)
	}
	if err := l.startCopy(); err != nil {
		t.Fatal(err)
	}
	wait(t, "the hold is given back", func() (bool, string) {
		return l.holdsOf(t, "ends") == 0, l.must(t, "scontrol", "show", "node")
	})
	if phase := l.get(t, "ends").Status.Phase; phase != corev1.PodSucceeded {
		t.Errorf("the pod is %s", phase)
	}
	watch()
}

// TestNodeDeleted: somebody deletes a Node from Kubernetes. The batch job on the host goes
// on, the pods' holds go with the pods, and the node takes pods again when it is back.
func TestNodeDeleted(t *testing.T) {
	l := need(t)
	t.Cleanup(func() { l.clear(t) }) // also where it fails: the lab is shared
	watch := l.observe(t)
	l.must(t, "sbatch", "-J", "host", "-w", "node2", "-c", "2", "--mem=200", "--wrap", "sleep 600")
	l.says(t, "R node2", "squeue", "-h", "-n", "host", "-o", "%t %R")
	first := podOf("first", "1", "100Mi", 1)
	first.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node2"}
	l.make(t, first)
	l.runs(t, "first")
	if err := l.kube.CoreV1().Nodes().Delete(t.Context(), "node2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The pod garbage collector takes pods of Nodes that are gone.
	wait(t, "the pod is gone", func() (bool, string) {
		_, err := l.kube.CoreV1().Pods("web").Get(t.Context(), "first", metav1.GetOptions{})
		return apierrors.IsNotFound(err), "it is there"
	})
	wait(t, "the hold is given back", func() (bool, string) {
		return l.holdsOf(t, "first") == 0, l.must(t, "scontrol", "show", "node", "node2")
	})
	l.says(t, "R node2", "squeue", "-h", "-n", "host", "-o", "%t %R")
	if err := l.addNode(t.Context(), "node2"); err != nil {
		t.Fatal(err)
	}
	second := podOf("second", "1", "100Mi", 1)
	second.Spec.NodeSelector = first.Spec.NodeSelector
	l.make(t, second)
	if node := l.runs(t, "second"); node != "node2" {
		t.Errorf("it runs on %s", node)
	}
	watch()
}
