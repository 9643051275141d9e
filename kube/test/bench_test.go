package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/grpcx"
)

// What the bench measures with. The nodes are Nodes of Kubernetes without kubelets, and
// nodes of Muster whose agents are stand-ins that register and send heartbeats.
const (
	benchNodes = 1000
	benchPods  = 2000
	admitted   = 300
	benchSpace = "bench"
	benchLabel = "musterhpc.github.io/bench" // of pods that no kubelet serves
)

// benching tells that this run measures.
func benching() bool { return os.Getenv("MUSTER_BENCH_KUBE") != "" }

// benchConfig are the options of muster init for the nodes of the bench.
func benchConfig() []string {
	if !benching() {
		return nil
	}
	nodes := fmt.Sprintf("k[0001-%04d]", benchNodes)
	return []string{
		"--conf", "NodeName=" + nodes + " CPUs=32 RealMemory=128000",
		"--conf", "PartitionName=kube Nodes=" + nodes + " MaxTime=INFINITE",
	}
}

// standIn registers a node and sends heartbeats until the context ends.
func standIn(ctx context.Context, agents service.AgentsClient, name string) error {
	stream, err := agents.Connect(ctx)
	if err != nil {
		return err
	}
	inventory := &apiv1.Inventory{
		BootId: "boot-" + name, Hostname: name, Os: "linux", Arch: "amd64",
		Cpus: 32, Sockets: 1, CoresPerSocket: 32, ThreadsPerCore: 1, Mem: 128000,
	}
	registration := &apiv1.Registration{Node: name, Inventory: inventory, Place: name, Epochs: true}
	if err := stream.Send(&apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Registration{Registration: registration}}); err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	go func() {
		for err := error(nil); err == nil; _, err = stream.Recv() {
		}
	}()
	beat := time.NewTicker(max(time.Duration(first.GetWelcome().GetHeartbeat()), time.Second))
	go func() {
		defer beat.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-beat.C:
			}
			alive := &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Heartbeat{Heartbeat: &apiv1.Heartbeat{MemFree: 100000}}}
			if stream.Send(alive) != nil {
				return // the run is over, or the controller has cut it off, which its figures show
			}
		}
	}()
	return nil
}

// withBenchNodes makes the nodes on both sides.
func (l *lab) withBenchNodes(t *testing.T) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(16)
	var agents []service.AgentsClient
	for range 10 { // a connection carries some streams only
		conn, err := grpcx.DialUnix(filepath.Join(l.muster, "run", "muster.sock"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		agents = append(agents, service.NewAgentsClient(conn))
	}
	for i := range benchNodes {
		name := fmt.Sprintf("k%04d", i+1)
		all.Go(func() error {
			if err := l.addNode(t.Context(), name); err != nil {
				return err
			}
			return standIn(t.Context(), agents[i%len(agents)], name)
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	wait(t, "all nodes are idle", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.bin, "muster"), "sinfo", "-h", "-p", "kube", "-t", "idle", "-o", "%D")
		return err == nil && strings.TrimSpace(out) == fmt.Sprint(benchNodes), fmt.Sprint(out, err)
	})
}

// benchPod is a small pod for the nodes of the bench.
func benchPod(space, name string) *corev1.Pod {
	pod := podOf(name, "100m", "64Mi", 0)
	pod.Namespace = space
	pod.Labels = map[string]string{benchLabel: "1"}
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

// sightings are when pods were first seen as something wants them.
type sightings struct {
	is   func(*corev1.Pod) bool
	want int
	at   map[string]time.Time // by name
}

// note takes a look at a pod, and tells whether all have been seen.
func (s *sightings) note(pod *corev1.Pod) bool {
	if s.at[pod.Name].IsZero() && s.is(pod) {
		s.at[pod.Name] = time.Now()
	}
	return len(s.at) == s.want
}

// follow lists the pods and watches them until all have been seen. A watch that ends,
// which an API server under load may do, is begun anew.
func (s *sightings) follow(ctx context.Context, pods typedcorev1.PodInterface) error {
	for {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: benchLabel})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if s.note(&list.Items[i]) {
				return nil
			}
		}
		w, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: benchLabel, ResourceVersion: list.ResourceVersion})
		if err != nil {
			return err
		}
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && e.Type != watch.Deleted && s.note(pod) {
				w.Stop()
				return nil
			}
		}
	}
}

// seenWhen watches the pods of a namespace and tells when each was as is wants it.
func (l *lab) seenWhen(t *testing.T, space string, count int, is func(*corev1.Pod) bool) func() map[string]time.Time {
	t.Helper()
	s := &sightings{is: is, want: count, at: map[string]time.Time{}}
	over := make(chan error, 1)
	go func() { over <- s.follow(t.Context(), l.kube.CoreV1().Pods(space)) }()
	return func() map[string]time.Time {
		if err := <-over; err != nil {
			t.Fatal(err)
		}
		return s.at
	}
}

// bound measures how many pods a second come from being created to being bound.
func (l *lab) bound(t *testing.T, who string, change func(*corev1.Pod)) {
	t.Helper()
	done := l.seenWhen(t, benchSpace, benchPods, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	began := time.Now()
	var all errgroup.Group
	all.SetLimit(32)
	for i := range benchPods {
		pod := benchPod(benchSpace, fmt.Sprintf("%s-%d", who, i))
		change(pod)
		all.Go(func() error {
			_, err := l.kube.CoreV1().Pods(benchSpace).Create(t.Context(), pod, metav1.CreateOptions{})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	created := time.Since(began)
	var last time.Time
	for _, at := range done() {
		if at.After(last) {
			last = at
		}
	}
	took := last.Sub(began)
	fmt.Printf("%-40s %d pods created in %.1f s, all bound after %.1f s: %.0f pods/s\n",
		who+" binds", benchPods, created.Seconds(), took.Seconds(), benchPods/took.Seconds())
	l.empty(t, benchSpace)
}

// empty takes the pods of a namespace away at once.
func (l *lab) empty(t *testing.T, space string) {
	t.Helper()
	err := l.kube.CoreV1().Pods(space).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
		metav1.ListOptions{LabelSelector: benchLabel})
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the jobs and holds are over", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.bin, "muster"), "sinfo", "-h", "-p", "kube", "-t", "idle", "-o", "%D")
		return err == nil && strings.TrimSpace(out) == fmt.Sprint(benchNodes), fmt.Sprint(out, err)
	})
}

// admission measures what colocation adds to the way of a pod: from its creation until its
// gate is gone, one pod after the other.
func (l *lab) admission(t *testing.T) {
	t.Helper()
	done := l.seenWhen(t, "web", admitted, func(p *corev1.Pod) bool { return len(p.Spec.SchedulingGates) == 0 })
	created := map[string]time.Time{}
	for i := range admitted {
		name := fmt.Sprint("admitted-", i)
		if _, err := l.kube.CoreV1().Pods("web").Create(t.Context(), benchPod("web", name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		created[name] = time.Now()
		time.Sleep(20 * time.Millisecond) // one at a time, as services are scaled
	}
	var took []time.Duration
	for name, at := range done() {
		took = append(took, at.Sub(created[name]))
	}
	slices.Sort(took)
	fmt.Printf("%-40s p50 %.1f ms, p99 %.1f ms\n", "admission beside jobs adds",
		float64(took[len(took)/2].Microseconds())/1000, float64(took[len(took)*99/100].Microseconds())/1000)
	l.empty(t, "web")
}

// resident is the memory of a process, and the most that it had.
func resident(t *testing.T, p *process) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	find := func(key string) string {
		return strings.Join(strings.Fields(string(regexp.MustCompile(key + `:(.*)`).FindSubmatch(text)[1])), " ")
	}
	return find("VmRSS") + ", at most " + find("VmHWM")
}

// TestBench prints what `make bench-kube` is for.
func TestBench(t *testing.T) {
	if !benching() {
		t.Skip("run make bench-kube")
	}
	l := need(t)
	load := func() string {
		text, _ := os.ReadFile("/proc/loadavg")
		return strings.Join(strings.Fields(string(text))[:3], " ")
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchSpace, Annotations: map[string]string{
		"musterhpc.github.io/account": "ops", "musterhpc.github.io/partition": "kube"}}}
	if _, err := l.kube.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("load before %s\n", load())
	began := time.Now()
	l.withBenchNodes(t)
	fmt.Printf("%-40s %.1f s\n", fmt.Sprintf("%d nodes made on both sides in", benchNodes), time.Since(began).Seconds())
	l.bound(t, "kube-scheduler", func(*corev1.Pod) {})
	l.bound(t, "muster", func(p *corev1.Pod) { p.Spec.SchedulerName = "muster" })
	l.admission(t)
	fmt.Printf("%-40s %s\n", "muster-kube has resident", resident(t, l.copy))
	fmt.Printf("load after %s\n", load())
}
