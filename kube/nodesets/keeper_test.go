package nodesets

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
)

// ledger is what a controller knows of some nodes.
type ledger struct {
	mu     sync.Mutex
	nodes  map[string]*apiv1.NodeInfo
	away   error
	orders []string
	tokens int
	looks  int // how often the nodes were asked for
}

func (l *ledger) Call(_ context.Context, method string, req, rep proto.Message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away != nil {
		return l.away
	}
	switch r := req.(type) {
	case *apiv1.ListNodesRequest:
		l.looks++
		out := rep.(*apiv1.ListNodesReply)
		for _, name := range r.GetNodes() {
			if n := l.nodes[name]; n != nil {
				out.Nodes = append(out.Nodes, proto.CloneOf(n))
			}
		}
	case *apiv1.UpdateNodeRequest:
		l.orders = append(l.orders, r.GetState()+" "+r.GetNodes())
		n := l.nodes[r.GetNodes()]
		switch r.GetState() {
		case "drain":
			n.State, n.Reason = "ALLOCATED+CLOUD+DRAIN", r.GetReason()
		case "undrain":
			n.State, n.Reason = "IDLE+CLOUD", ""
		case "power_down":
			n.Power = uint32(event.PoweredDown)
		}
	case *apiv1.CreateTokenRequest:
		l.tokens++
		rep.(*apiv1.CreateTokenReply).Token = fmt.Sprintf("token-%s-%d", r.GetNode(), l.tokens)
	default:
		return errors.New("no such method: " + method)
	}
	return nil
}

func (l *ledger) set(name string, change func(*apiv1.NodeInfo)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.nodes[name])
}

// desk is a keeper between twins of both sides.
type desk struct {
	t       *testing.T
	ledger  *ledger
	kube    *fake.Clientset
	objects *dynamicfake.FakeDynamicClient
	metrics *Metrics
}

func newDesk(t *testing.T, s *NodeSet, prepare ...func(*fake.Clientset)) *desk {
	t.Helper()
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(Resource.GroupVersion().WithKind("NodeSet"))
	d := &desk{
		t: t, ledger: &ledger{nodes: map[string]*apiv1.NodeInfo{}}, kube: fake.NewClientset(), metrics: NewMetrics("c"),
		objects: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{Resource: "NodeSetList"}, u),
	}
	for _, change := range prepare {
		change(d.kube)
	}
	for _, name := range []string{"n1", "n2"} {
		d.ledger.nodes[name] = &apiv1.NodeInfo{Name: name, Cloud: true, Power: uint32(event.PoweredDown), State: "IDLE+CLOUD+POWERED_DOWN"}
	}
	keeper := New(Config{Kube: d.kube, Dynamic: d.objects, Muster: d.ledger, Namespace: "hpc",
		Recorder: record.NewFakeRecorder(100), Log: slog.New(slog.DiscardHandler), Metrics: d.metrics})
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
	return d
}

// eventually asks until something is so. The bound ends a test that would never end.
func (d *desk) eventually(what string, ask func() string) {
	d.t.Helper()
	now := ""
	for range 600 {
		if now = ask(); now == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	d.t.Fatalf("still not: %s: %s", what, now)
}

func (d *desk) pods() string {
	list, err := d.kube.CoreV1().Pods("hpc").List(d.t.Context(), metav1.ListOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	var out []string
	for _, p := range list.Items {
		out = append(out, p.Name)
	}
	return strings.Join(out, " ")
}

func (d *desk) hasPods(want string) {
	d.t.Helper()
	d.eventually("the pods are "+want, func() string {
		if now := d.pods(); now != want {
			return "they are " + now
		}
		return ""
	})
}

func (d *desk) get() *NodeSet {
	d.t.Helper()
	u, err := d.objects.Resource(Resource).Namespace("hpc").Get(d.t.Context(), "gpus", metav1.GetOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	s := &NodeSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		d.t.Fatal(err)
	}
	return s
}

func (d *desk) says(condition, reason, text string) {
	d.t.Helper()
	d.eventually(condition+" is "+reason, func() string {
		c := meta.FindStatusCondition(d.get().Status.Conditions, condition)
		if c == nil || c.Reason != reason || !strings.Contains(c.Message, text) {
			return fmt.Sprintf("%+v", c)
		}
		return ""
	})
}

// TestKeeper: pods follow the power of nodes; nothing happens while the ledger cannot be
// asked; and a NodeSet that is deleted waits for the jobs of its nodes.
func TestKeeper(t *testing.T) {
	d := newDesk(t, set("n[1-2]", nil))
	d.says(Ready, "AllRegistered", "")
	if pods := d.pods(); pods != "" || d.get().Status.Nodes != 2 {
		t.Fatalf("pods %q, %+v", pods, d.get().Status)
	}
	d.ledger.set("n2", func(n *apiv1.NodeInfo) {
		n.Power, n.State, n.JobsRunning = uint32(event.PoweringUp), "ALLOCATED+CLOUD+POWERING_UP", 1
	})
	d.hasPods("n2")
	secret, err := d.kube.CoreV1().Secrets("hpc").Get(t.Context(), "n2-enrolment", metav1.GetOptions{})
	if err != nil || secret.StringData[tokenKey] != "token-n2-1" {
		t.Errorf("%v, %v", secret, err)
	}
	d.says(Ready, "Starting", "0 of 1 agents")
	d.ledger.set("n2", func(n *apiv1.NodeInfo) { n.Power, n.Registered = uint32(event.PowerOn), true })
	d.says(Ready, "AllRegistered", "")
	if s := d.get().Status; s.Pods != 1 || s.Ready != 1 || s.Busy != 1 {
		t.Errorf("%+v", s)
	}
	for state, want := range map[string]float64{"wanted": 2, "created": 1, "ready": 1, "busy": 1, "draining": 0} {
		if got := testutil.ToFloat64(d.metrics.Gauge("muster_kube_nodes_nodes", "gpus", state)); got != want {
			t.Errorf("metrics tell of %v nodes that are %s, want %v", got, state, want)
		}
	}

	// The pod is lost: a new one comes, with a new token.
	if err := d.kube.CoreV1().Pods("hpc").Delete(t.Context(), "n2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.eventually("a second token", func() string {
		s, err := d.kube.CoreV1().Secrets("hpc").Get(t.Context(), "n2-enrolment", metav1.GetOptions{})
		if err != nil || s.StringData[tokenKey] != "token-n2-2" {
			return fmt.Sprint(s, err)
		}
		return ""
	})
	d.hasPods("n2")

	d.ledger.mu.Lock()
	d.ledger.away = errors.New("no controller answers")
	d.ledger.mu.Unlock()
	d.says(Ready, "Failed", "no controller answers")
	if pods := d.pods(); pods != "n2" {
		t.Errorf("while the ledger is away there are the pods %q", pods)
	}
	d.eventually("metrics tell that the ledger is away", func() string {
		if connected, failed := testutil.ToFloat64(d.metrics.connected), testutil.ToFloat64(d.metrics.failures); connected != 0 || failed == 0 {
			return fmt.Sprint("connected ", connected, ", failures ", failed)
		}
		return ""
	})
	d.ledger.mu.Lock()
	d.ledger.away = nil
	d.ledger.mu.Unlock()
	d.says(Ready, "AllRegistered", "")

	now := metav1.Now()
	s := d.get()
	s.DeletionTimestamp = &now
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.objects.Resource(Resource).Namespace("hpc").Update(t.Context(), &unstructured.Unstructured{Object: object}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.says(Ready, "Leaving", "1 pods are drained")
	if pods := d.pods(); pods != "n2" || len(d.get().Finalizers) != 1 {
		t.Errorf("a job runs, and the pods are %q", pods)
	}
	d.ledger.set("n2", func(n *apiv1.NodeInfo) { n.State, n.JobsRunning = "IDLE+CLOUD+DRAIN", 0 })
	d.hasPods("")
	d.eventually("it may go", func() string { return strings.Join(d.get().Finalizers, " ") })
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	if got := strings.Join(d.ledger.orders, ", "); got != "drain n2, power_down n2" {
		t.Errorf("orders: %s", got)
	}
}

// TestKeeperWithALateWatch: a pod that the watch has not shown yet is not given a second
// token, however many rounds there are meanwhile.
func TestKeeperWithALateWatch(t *testing.T) {
	late := watch.NewFake() // shows nothing until the test says so
	d := newDesk(t, set("n[1-2]", nil), func(kube *fake.Clientset) {
		kube.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, late, nil
		})
	})
	d.says(Ready, "AllRegistered", "")
	d.ledger.set("n2", func(n *apiv1.NodeInfo) { n.Power, n.State = uint32(event.PoweringUp), "IDLE+CLOUD+POWERING_UP" })
	d.hasPods("n2")
	count := func() (looks, tokens int) {
		d.ledger.mu.Lock()
		defer d.ledger.mu.Unlock()
		return d.ledger.looks, d.ledger.tokens
	}
	before, _ := count()
	d.eventually("three more rounds", func() string {
		if now, _ := count(); now < before+3 {
			return fmt.Sprint(now-before, " rounds")
		}
		return ""
	})
	if _, tokens := count(); tokens != 1 {
		t.Errorf("%d tokens for one pod", tokens)
	}
	pod, err := d.kube.CoreV1().Pods("hpc").Get(t.Context(), "n2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	late.Add(pod)
	d.says(Ready, "Starting", "0 of 1 agents")
}

// TestKeeperOfMany: where many pods are to be made, one list says which are there: none of them is
// given a second token while the watch is late, and one of somebody else keeps its name.
func TestKeeperOfMany(t *testing.T) {
	const nodes = 3 * maxLooks
	late := watch.NewFake()
	d := newDesk(t, set(fmt.Sprintf("m[1-%d]", nodes), nil), func(kube *fake.Clientset) {
		kube.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
			return true, late, nil
		})
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "m1"}}
		if err := kube.Tracker().Add(other); err != nil {
			t.Fatal(err)
		}
	})
	d.says(Ready, "AllRegistered", "")
	d.ledger.mu.Lock()
	for i := range nodes {
		name := fmt.Sprint("m", i+1)
		d.ledger.nodes[name] = &apiv1.NodeInfo{Name: name, Cloud: true, Power: uint32(event.PoweringUp), State: "IDLE+CLOUD+POWERING_UP"}
	}
	before := d.ledger.looks
	d.ledger.mu.Unlock()
	d.says(Ready, "Failed", "pod m1 is there already and is not of this NodeSet")
	d.eventually("three more rounds", func() string {
		d.ledger.mu.Lock()
		defer d.ledger.mu.Unlock()
		if d.ledger.looks < before+4 {
			return fmt.Sprint(d.ledger.looks-before, " rounds")
		}
		return ""
	})
	if pods := len(strings.Fields(d.pods())); pods != nodes {
		t.Errorf("%d pods, want %d", pods, nodes)
	}
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	if d.ledger.tokens != nodes-1 {
		t.Errorf("%d tokens for %d pods", d.ledger.tokens, nodes-1)
	}
	looks := 0
	for _, action := range d.kube.Actions() {
		if action.Matches("get", "pods") {
			looks++
		}
	}
	if looks > 0 {
		t.Errorf("%d pods were looked at one by one", looks)
	}
}

// TestKeeperLeavesPodsOfOthers: a pod that has a node's name by chance keeps its own life, and
// the NodeSet says so.
func TestKeeperLeavesPodsOfOthers(t *testing.T) {
	d := newDesk(t, set("n[1-2]", nil), func(kube *fake.Clientset) {
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "hpc", Name: "n1"}}
		if err := kube.Tracker().Add(other); err != nil {
			t.Fatal(err)
		}
	})
	d.ledger.set("n1", func(n *apiv1.NodeInfo) { n.Power, n.State = uint32(event.PoweringUp), "IDLE+CLOUD+POWERING_UP" })
	d.says(Ready, "Failed", "pod n1 is there already and is not of this NodeSet")
	d.ledger.mu.Lock()
	defer d.ledger.mu.Unlock()
	if d.ledger.tokens != 0 {
		t.Errorf("%d tokens for a pod of somebody else", d.ledger.tokens)
	}
}

// TestKeeperSaysWhatIsWrong: a spec that cannot be followed changes nothing and says why.
func TestKeeperSaysWhatIsWrong(t *testing.T) {
	d := newDesk(t, set("n[1-2]", func(s *NodeSet) { s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "x"}} }))
	d.ledger.set("n1", func(n *apiv1.NodeInfo) { n.Power = uint32(event.PoweringUp) })
	d.says(Accepted, "Invalid", "is called agent")
	if pods := d.pods(); pods != "" {
		t.Errorf("pods %q", pods)
	}
}
