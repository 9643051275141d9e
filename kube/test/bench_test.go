package test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/kube/chart"
)

// What the bench measures with. The nodes are Nodes of Kubernetes without kubelets, and
// nodes of Muster whose agents are stand-ins that register and send heartbeats.
const (
	benchNodes = 1000
	benchPods  = 2000
	benchTurns = 2
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

// bound measures how many pods a second come from being created to being bound, and what
// that costs.
func (l *lab) bound(t *testing.T, who string, change func(*corev1.Pod)) float64 {
	t.Helper()
	before := l.costsNow(t)
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
	fmt.Printf("%-40s %d pods created in %.1f s, all bound after %.1f s: %.0f pods/s (load %s)\n",
		who+" binds", benchPods, created.Seconds(), took.Seconds(), benchPods/took.Seconds(), loadNow())
	l.costOf(t, before, benchPods)
	l.empty(t, benchSpace)
	return benchPods / took.Seconds()
}

// loadNow is how many processes want the machine, averaged over 1, 5 and 15 minutes.
func loadNow() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// costs are what has been used so far. Unlike rates they hardly depend on what else the
// machine does.
type costs struct {
	cpu      map[string]float64 // seconds, by program
	requests map[string]float64 // that changed something, by verb and resource
}

// costsNow reads what the programs of the lab have used and what the API server was asked.
func (l *lab) costsNow(t *testing.T) costs {
	t.Helper()
	out := costs{cpu: map[string]float64{}, requests: map[string]float64{}}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		line, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err != nil || !strings.Contains(string(line), l.dir) {
			continue // it is over, or not of this lab
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		// After the name in brackets: the 12th and 13th are ticks of user and system.
		fields := strings.Fields(string(text[strings.LastIndex(string(text), ")")+1:]))
		for _, ticks := range fields[11:13] {
			n, err := strconv.ParseFloat(ticks, 64)
			if err != nil {
				t.Fatal(err)
			}
			program, _, _ := strings.Cut(string(line), "\x00")
			out.cpu[filepath.Base(program)] += n / 100
		}
	}
	text, err := l.kube.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	label := func(line, name string) string {
		_, rest, _ := strings.Cut(line, name+`="`)
		value, _, _ := strings.Cut(rest, `"`)
		return value
	}
	for line := range strings.Lines(string(text)) {
		verb := label(line, "verb")
		if !strings.HasPrefix(line, "apiserver_request_total{") || verb == "GET" || verb == "LIST" || verb == "WATCH" {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		if err != nil {
			t.Fatal(err)
		}
		key := verb + " " + label(line, ",resource")
		if part := label(line, "subresource"); part != "" {
			key += "/" + part
		}
		out.requests[key] += n
	}
	return out
}

// costOf prints what was used since then, for each of some pods.
func (l *lab) costOf(t *testing.T, since costs, pods int) {
	t.Helper()
	now := l.costsNow(t)
	list := func(what, unit string, was, is map[string]float64, least float64) {
		for _, key := range slices.Sorted(maps.Keys(is)) {
			if each := (is[key] - was[key]) / float64(pods); each >= least {
				fmt.Printf("  %-10s %-28s %.2f %s for each pod\n", what, key, each, unit)
			}
		}
	}
	for key, n := range now.cpu {
		now.cpu[key] = n * 1000
		since.cpu[key] *= 1000
	}
	list("CPU", "ms", since.cpu, now.cpu, 0.05)
	list("requests", "", since.requests, now.requests, 0.05)
}

// empty takes the pods of a namespace away at once.
func (l *lab) empty(t *testing.T, space string) {
	t.Helper()
	// An API server under load gives up such a request after a minute: what is left is asked
	// for again.
	wait(t, "the pods of "+space+" are deleted", func() (bool, string) {
		err := l.kube.CoreV1().Pods(space).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
			metav1.ListOptions{LabelSelector: benchLabel})
		return err == nil, fmt.Sprint(err)
	})
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
	before := l.costsNow(t)
	rounds := l.roundsNow(t)
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
	now := l.roundsNow(t)
	fmt.Printf("  %.0f rounds, each %.1f ms in the mean; seen by muster-kube itself: %.1f ms in the mean (load %s)\n",
		now.rounds-rounds.rounds, 1000*(now.roundTime-rounds.roundTime)/(now.rounds-rounds.rounds),
		1000*(now.waitTime-rounds.waitTime)/(now.waits-rounds.waits), loadNow())
	l.costOf(t, before, admitted)
	l.empty(t, "web")
}

// roundTimes are figures of muster-kube since it started.
type roundTimes struct{ rounds, roundTime, waits, waitTime float64 }

// roundsNow reads them.
func (l *lab) roundsNow(t *testing.T) roundTimes {
	t.Helper()
	read := func(series string) float64 {
		n, why := scrape(t, l.listens(""), series+`{cluster="muster"}`)
		if n < 0 {
			t.Fatal(why)
		}
		return n
	}
	return roundTimes{
		rounds:    read("muster_kube_round_seconds_count"),
		roundTime: read("muster_kube_round_seconds_sum"),
		waits:     read("muster_kube_admission_seconds_count"),
		waitTime:  read("muster_kube_admission_seconds_sum"),
	}
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

const benchSet = `apiVersion: musterhpc.github.io/v1alpha1
kind: NodeSet
metadata: {name: pool, namespace: hpc}
spec:
  nodes: k[0001-%04d]
  controllers: ["127.0.0.1:1"]
  template:
    metadata: {labels: {musterhpc.github.io/bench: "1"}}
    spec: {schedulerName: nobody, containers: [{name: agent, image: none}]}
`

// nodeSet measures how long a NodeSet of all nodes takes until each node has its pod, and then
// until one pod that is deleted has a successor. Nobody binds the pods.
func (l *lab) nodeSet(t *testing.T) {
	t.Helper()
	r, err := chart.Render(nodesFolder, "nodes", nodesSpace, serverVersion, map[string]any{
		"controllers": []any{"127.0.0.1:1"}, "nodeSets": map[string]any{"none": map[string]any{"nodes": "none"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nodesSpace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.apply(t, string(r.CRDs))
	wait(t, "NodeSets are known", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.kubeBin, "kubectl"), "wait", "--for=condition=Established", "crd/nodesets.musterhpc.github.io")
		return err == nil, fmt.Sprint(out, err)
	})
	l.apply(t, string(r.All("access.yaml")))
	config := filepath.Join(l.dir, "nodes.kubeconfig")
	l.account(t, nodesSpace, "nodes", config)
	p, err := l.begin(filepath.Join(l.bin, "muster-kube-nodes"), "--kubeconfig", config, "--namespace", nodesSpace,
		"--socket", filepath.Join(l.muster, "run", "rest.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	pods := l.kube.CoreV1().Pods(nodesSpace)
	all := func(what string, but types.UID) {
		wait(t, what, func() (bool, string) {
			list, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return false, err.Error()
			}
			old := slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.UID == but })
			return len(list.Items) == benchNodes && !old, fmt.Sprint(len(list.Items), " pods")
		})
	}
	before := l.costsNow(t)
	began := time.Now()
	l.apply(t, fmt.Sprintf(benchSet, benchNodes))
	all("every node has a pod", "")
	fmt.Printf("%-40s %.1f s (load %s)\n", fmt.Sprintf("NodeSet: %d pods made in", benchNodes), time.Since(began).Seconds(), loadNow())
	l.costOf(t, before, benchNodes)
	pod, err := pods.Get(t.Context(), "k0500", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if err := pods.Delete(t.Context(), "k0500", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	all("the pod has a successor", pod.UID)
	fmt.Printf("%-40s %.1f s (load %s)\n", "NodeSet: a lost pod is made anew after", time.Since(began).Seconds(), loadNow())
	fmt.Printf("%-40s %s\n", "muster-kube-nodes has resident", resident(t, p))
}

// TestBench prints what `make bench-kube` is for.
func TestBench(t *testing.T) {
	if !benching() {
		t.Skip("run make bench-kube")
	}
	l := need(t)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchSpace, Annotations: map[string]string{
		"musterhpc.github.io/account": "ops", "musterhpc.github.io/partition": "kube"}}}
	if _, err := l.kube.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("load before %s\n", loadNow())
	began := time.Now()
	l.withBenchNodes(t)
	fmt.Printf("%-40s %.1f s\n", fmt.Sprintf("%d nodes made on both sides in", benchNodes), time.Since(began).Seconds())
	wait(t, "every node has a GenericNode", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.kubeBin, "kubectl"), "get", "genericnodes", "-o", "name")
		return err == nil && strings.Count(out, "\n") >= benchNodes, fmt.Sprint(strings.Count(out, "\n"), err)
	})
	byMuster := func(p *corev1.Pod) { p.Spec.SchedulerName = "muster" }
	// In turn, because the load of the machine changes. kube-scheduler is alone in its turn:
	// muster-kube would count its pods as holds.
	for range benchTurns {
		l.copy.kill()
		theirs := l.bound(t, "kube-scheduler", func(*corev1.Pod) {})
		if err := l.startCopy(); err != nil {
			t.Fatal(err)
		}
		first := benchPod(benchSpace, "first")
		byMuster(first)
		l.make(t, first)
		wait(t, "muster-kube has read everything", func() (bool, string) {
			pod, err := l.kube.CoreV1().Pods(benchSpace).Get(t.Context(), "first", metav1.GetOptions{})
			return err == nil && pod.Spec.NodeName != "", fmt.Sprint(err)
		})
		l.empty(t, benchSpace)
		ours := l.bound(t, "muster", byMuster)
		fmt.Printf("%-40s %.2f\n", "muster beside kube-scheduler", ours/theirs)
	}
	l.admission(t)
	fmt.Printf("%-40s %s\n", "muster-kube has resident", resident(t, l.copy))
	l.nodeSet(t)
	fmt.Printf("load after %s\n", loadNow())
}
