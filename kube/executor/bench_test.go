package executor

import (
	"fmt"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// BenchmarkThink is what a round thinks about one pod at the gate, beside 300 that have their holds,
// on 1,000 nodes: it is paid twice for each pod that comes alone, since a pause follows that is as long.
func BenchmarkThink(b *testing.B) {
	e := New(Config{GPUResource: "nvidia.com/gpu", Scheduler: "muster", Cluster: "c", Namespace: "n", Log: slog.New(slog.DiscardHandler)})
	e.books = newBooks(&e.cfg)
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	news := &apiv1.WatchHoldsReply{Seq: 1}
	for i := range 1000 {
		name := fmt.Sprintf("node%04d", i)
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{"kubernetes.io/hostname": name}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			}},
		})
		held := &apiv1.HeldNode{Name: name, Open: true, Cpus: 32, Mem: 128000, FreeCpus: 32, FreeMem: 128000}
		if i < 300 {
			uid := fmt.Sprint("p", i)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "web", UID: types.UID(uid)}}
			pod.Spec.NodeName = name
			pod.Spec.Containers = []corev1.Container{{Resources: amount("100m", "64Mi", "0")}}
			pods = append(pods, pod)
			held.Holds = []*apiv1.ForeignHold{{Id: uid, Space: "web", Owner: uid, MilliCpu: 100, Mem: 64}}
		}
		news.Nodes = append(news.Nodes, held)
	}
	waits := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new", Namespace: "web", UID: "new"}}
	waits.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}}
	waits.Spec.Containers = []corev1.Container{{Resources: amount("100m", "64Mi", "0")}}
	pods = append(pods, waits)
	e.ledger.take(news)
	for b.Loop() {
		names := namesOf(nodes)
		held, jobs, err := e.ledger.look()
		if err != nil {
			b.Fatal(err)
		}
		if _, orders := e.think(b.Context(), pods, nodes, &names, held, jobs); len(orders) != 1 {
			b.Fatalf("%d orders", len(orders))
		}
	}
}

// BenchmarkReadPods is what a round thinks about pods that wait for Muster: 2,000 of a
// deployment and 1,000 nodes.
func BenchmarkReadPods(b *testing.B) {
	reading := reader(b)
	reading.nodes = nil
	for i := range 1000 {
		reading.nodes = append(reading.nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%04d", i)},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			}},
		})
	}
	names := namesOf(reading.nodes)
	reading.names = &names
	var pods []*corev1.Pod
	for i := range 2000 {
		pods = append(pods, asking(func(p *corev1.Pod) {
			p.Name = fmt.Sprint("p", i)
			p.UID = types.UID(p.Name)
			p.Spec.SchedulerName = "muster"
		}))
	}
	for b.Loop() {
		reading.admitting = newAdmissions(reading.nodes, &names) // of this round
		for _, p := range pods {
			if out, ok := reading.read(p); !ok || out.Request.Admits != "node[0000-0999]" {
				b.Fatalf("%+v", out)
			}
		}
	}
}
