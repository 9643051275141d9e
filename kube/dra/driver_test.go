package dra

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/podserver"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
	"github.com/musterhpc/muster/nodeagent/telemetry"
)

// machine is a node: the agent's own socket with simulated devices, an API server's
// twin, and a kubelet, which is this test.
type machine struct {
	t       *testing.T
	dir     string
	kube    *fake.Clientset
	devices []device.Device

	mu    sync.Mutex
	holds []*apiv1.ForeignHold
	away  error // of the controllers
	asked int
	pods  []telemetry.PodOnNode

	stop func() // the driver
}

const node = "gpu01.example.org" // in Kubernetes; the agent says gpu01

func newMachine(t *testing.T, lines ...simulated.Declared) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &machine{t: t, dir: dir, kube: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, UID: "n1"}})}
	if m.devices, err = simulated.Devices("gpu01", lines); err != nil {
		t.Fatal(err)
	}
	server, err := podserver.Open(podserver.Options{
		Node: "gpu01", Socket: m.path("pods.sock"), Log: slog.New(slog.DiscardHandler),
		Devices: func() []device.Device {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.devices
		},
		Holds: func(context.Context, string) ([]*apiv1.ForeignHold, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.asked++
			return m.holds, m.away
		},
		SetPods: func(pods []telemetry.PodOnNode) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.pods = pods
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	server.Serve(ctx, &wg)
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	if err := os.Mkdir(m.path("registry"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(m.path("plugin"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.start()
	t.Cleanup(func() { m.stop() })
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// start runs a driver as the program does.
func (m *machine) start() {
	m.t.Helper()
	driver, err := New(Config{
		Kube: m.kube, Agent: podapi.NewClient(m.path("pods.sock")), Node: node,
		PluginDir: m.path("plugin"), Registry: m.path("registry"),
		CDIDir: m.path("cdi"), CDIRead: []string{m.path("etc-cdi")}, CDIVendor: "nvidia.com/gpu",
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- driver.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			m.t.Errorf("the driver ends: %v", err)
		}
	})
}

// eventually asks until something is so. The bound ends a test that would never end.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	var err error
	for range 1200 {
		if err = ask(); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("still not: %s: %v", what, err)
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kubelet finds the driver as kubelet does: by its socket in the registry.
func (m *machine) kubelet() drapb.DRAPluginClient {
	m.t.Helper()
	socket := filepath.Join(m.path("registry"), claims.Driver+"-reg.sock")
	registry := registerapi.NewRegistrationClient(dial(m.t, socket))
	var info *registerapi.PluginInfo
	eventually(m.t, "the driver registers", func() (err error) {
		info, err = registry.GetInfo(m.t.Context(), &registerapi.InfoRequest{})
		return err
	})
	if info.Type != registerapi.DRAPlugin || info.Name != claims.Driver || !slices.Contains(info.SupportedVersions, drapb.DRAPluginService) {
		m.t.Fatalf("it registers as %v", info)
	}
	if _, err := registry.NotifyRegistrationStatus(m.t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true}); err != nil {
		m.t.Fatal(err)
	}
	return drapb.NewDRAPluginClient(dial(m.t, info.Endpoint))
}

// hold is what the ledger gives to a pod.
func (m *machine) hold(pod string, uuids ...string) {
	h := &apiv1.ForeignHold{Id: "uid-" + pod, Space: "web", Owner: pod}
	for _, uuid := range uuids {
		h.Gpus = append(h.Gpus, &apiv1.HeldGpu{Uuid: uuid})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = append(m.holds, h)
}

// claim makes a pod and its claim, allocated with these devices.
func (m *machine) claim(pod string, uuids ...string) *drapb.Claim {
	m.t.Helper()
	entry := "claim-" + pod
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "web", UID: types.UID("uid-" + pod)},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimName: &entry}},
			Containers: []corev1.Container{
				{Name: "main", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpus"}}}},
				{Name: "side"},
			},
		},
	}
	c := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: entry, Namespace: "web", UID: types.UID("c-" + pod)},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: claims.Driver, Count: int64(len(uuids))}}}}},
		Status: resourceapi.ResourceClaimStatus{
			Allocation:  &resourceapi.AllocationResult{},
			ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: p.UID}},
		},
	}
	for _, uuid := range uuids {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourceapi.DeviceRequestAllocationResult{Request: "gpu", Driver: claims.Driver, Pool: node, Device: claims.DeviceName(uuid)})
	}
	_, err := m.kube.CoreV1().Pods("web").Create(m.t.Context(), p, metav1.CreateOptions{})
	_, err2 := m.kube.ResourceV1().ResourceClaims("web").Create(m.t.Context(), c, metav1.CreateOptions{})
	if err := errors.Join(err, err2); err != nil {
		m.t.Fatal(err)
	}
	return &drapb.Claim{Namespace: "web", Name: entry, Uid: string(c.UID)}
}

// prepare asks as kubelet does, and gives the answer for the claim.
func (m *machine) prepare(kubelet drapb.DRAPluginClient, claim *drapb.Claim) *drapb.NodePrepareResourceResponse {
	m.t.Helper()
	rep, err := kubelet.NodePrepareResources(m.t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{claim}})
	if err != nil {
		m.t.Fatal(err)
	}
	return rep.Claims[claim.Uid]
}

func (m *machine) unprepare(kubelet drapb.DRAPluginClient, claim *drapb.Claim) {
	m.t.Helper()
	rep, err := kubelet.NodeUnprepareResources(m.t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{claim}})
	if err != nil || rep.Claims[claim.Uid] == nil || rep.Claims[claim.Uid].Error != "" {
		m.t.Fatalf("%v, %v", rep, err)
	}
}

// container is what a container runtime makes of CDI names: environment and devices.
func (m *machine) container(names []string) (env, files []string) {
	m.t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(m.path("etc-cdi"), m.path("cdi")), cdi.WithAutoRefresh(false))
	if err != nil {
		m.t.Fatal(err)
	}
	var spec oci.Spec
	if missing, err := cache.InjectDevices(&spec, names...); err != nil {
		m.t.Fatalf("%v: %v", err, missing)
	}
	if spec.Linux != nil {
		for _, d := range spec.Linux.Devices {
			files = append(files, d.Path)
		}
	}
	return spec.Process.Env, files
}

// TestPodGetsItsDevices: the whole way of a claim, with a restart of the driver while
// no controller answers.
func TestPodGetsItsDevices(t *testing.T) {
	m := newMachine(t, simulated.Declared{Type: "h100", Count: 4})
	kubelet := m.kubelet()
	one, two := m.devices[1].UUID, m.devices[3].UUID
	m.hold("front", one, two)
	claim := m.claim("front", one, two)
	got := m.prepare(kubelet, claim)
	if got.Error != "" || len(got.Devices) != 2 {
		t.Fatalf("%v", got)
	}
	var names []string
	for i, d := range got.Devices {
		if d.DeviceName != claims.DeviceName([]string{one, two}[i]) || d.PoolName != node || !slices.Equal(d.RequestNames, []string{"gpu"}) {
			t.Errorf("%v", d)
		}
		names = append(names, d.CdiDeviceIds...)
	}
	env, _ := m.container(names)
	for _, want := range []string{"MUSTER_GPU_1=" + one, "MUSTER_GPU_3=" + two, "NVIDIA_VISIBLE_DEVICES=void"} {
		if !slices.Contains(env, want) {
			t.Errorf("the container has %q, without %s", env, want)
		}
	}
	eventually(t, "the agent knows the pod", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.pods) != 2 || m.pods[0].UUID != one || m.pods[0].Pod != "front" || m.pods[0].Namespace != "web" || m.pods[0].Container != "main" {
			return errors.New("it has other pods")
		}
		return nil
	})

	m.stop()
	m.mu.Lock()
	asked := m.asked
	m.away = errors.New("no controller answers")
	m.mu.Unlock()
	if err := os.RemoveAll(m.path("cdi")); err != nil { // the node was rebooted
		t.Fatal(err)
	}
	m.start()
	kubelet = m.kubelet()
	again := m.prepare(kubelet, claim)
	if !reflect.DeepEqual(again.Devices, got.Devices) || again.Error != "" {
		t.Errorf("after a restart: %v, before it: %v", again, got)
	}
	if env, _ := m.container(names); !slices.Contains(env, "MUSTER_GPU_1="+one) {
		t.Errorf("after a restart the container has %q", env)
	}
	m.mu.Lock()
	if m.asked != asked {
		t.Errorf("the ledger was asked again for a claim that was prepared")
	}
	m.mu.Unlock()
	// A new claim waits for the ledger, and says so.
	if wait := m.prepare(kubelet, m.claim("later", m.devices[0].UUID)); !strings.Contains(wait.Error, "no controller answers") {
		t.Errorf("without a controller: %v", wait)
	}
	for range 2 { // kubelet may have lost the answer
		m.unprepare(kubelet, claim)
	}
	if left, err := os.ReadDir(m.path("cdi")); err != nil || len(left) != 0 {
		t.Errorf("specs are left: %v %v", left, err)
	}
	eventually(t, "the agent knows that it has gone", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.pods) != 0 {
			return errors.New("it has pods")
		}
		return nil
	})
}

// TestRefused: a claim with devices that are not of its pod's hold is refused, with
// what to do.
func TestRefused(t *testing.T) {
	m := newMachine(t, simulated.Declared{Type: "h100", Count: 4})
	kubelet := m.kubelet()
	uuid := func(i int) string { return m.devices[i].UUID }
	m.hold("other", uuid(0), uuid(1))
	m.hold("none")
	m.hold("first", uuid(2))
	m.hold("second", uuid(2)) // the ledger never does this; the driver is the last line
	first := m.claim("first", uuid(2))
	if got := m.prepare(kubelet, first); got.Error != "" {
		t.Fatal(got.Error)
	}
	elsewhere := m.claim("other", uuid(0), uuid(3))
	for _, c := range []struct {
		claim *drapb.Claim
		says  []string
	}{
		{elsewhere, []string{"refused", uuid(3), uuid(0) + ", " + uuid(1), "delete the pod"}},
		{m.claim("stranger", uuid(3)), []string{"refused", "the ledger has nothing for its pod on node gpu01", "colocate=true"}},
		{m.claim("none", uuid(3)), []string{"refused", "no GPU"}},
		{m.claim("second", uuid(2)), []string{"claim web/claim-first of pod web/first has not given back yet", uuid(2)}},
		{m.claim("unknown", "GPU-0"), []string{"refused", "node " + node + " does not have"}},
	} {
		got := m.prepare(kubelet, c.claim)
		for _, want := range c.says {
			if !strings.Contains(got.Error, strings.TrimPrefix(want, "claim ")) {
				t.Errorf("%s: %q does not say %q", c.claim.Name, got.Error, want)
			}
		}
		if len(got.Devices) != 0 {
			t.Errorf("%s was refused and has %v", c.claim.Name, got.Devices)
		}
	}
	if specs, err := os.ReadDir(m.path("cdi")); err != nil || len(specs) != 1 {
		t.Errorf("refused claims have specs: %v %v", specs, err)
	}
	// Two pods with one claim.
	shared, err := m.kube.ResourceV1().ResourceClaims("web").Get(t.Context(), elsewhere.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	shared.Status.ReservedFor = append(shared.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "b", UID: "b"})
	if _, err := m.kube.ResourceV1().ResourceClaims("web").UpdateStatus(t.Context(), shared, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := m.prepare(kubelet, elsewhere); !strings.Contains(got.Error, "reserved for 2 consumers") {
		t.Errorf("a shared claim: %v", got)
	}
	// Once the first pod's devices are given back, the second one gets them.
	m.unprepare(kubelet, first)
	if got := m.prepare(kubelet, &drapb.Claim{Namespace: "web", Name: "claim-second", Uid: "c-second"}); got.Error != "" {
		t.Error(got.Error)
	}
}

// TestFiles: a real device brings its files, or the vendor's own CDI device where there
// is one. An instance without the latter is refused, since nobody else knows its files.
func TestFiles(t *testing.T) {
	m := newMachine(t, simulated.Declared{Type: "h100", Count: 2}, simulated.Declared{Type: "a100", Count: 1, MIG: []string{"1g.10gb"}})
	m.mu.Lock()
	for i := range m.devices {
		m.devices[i].Files = []string{"/dev/null"}
	}
	m.mu.Unlock()
	if err := os.Mkdir(m.path("etc-cdi"), 0o755); err != nil {
		t.Fatal(err)
	}
	vendor := map[string]any{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []any{map[string]any{
		"name": m.devices[1].UUID, "containerEdits": map[string]any{"deviceNodes": []any{map[string]any{"path": "/dev/zero"}}}}}}
	text, err := json.Marshal(vendor)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(m.path("etc-cdi"), "nvidia.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	kubelet := m.kubelet()
	for i, want := range []string{"/dev/null", "/dev/zero"} {
		pod := []string{"plain", "vendor"}[i]
		m.hold(pod, m.devices[i].UUID)
		got := m.prepare(kubelet, m.claim(pod, m.devices[i].UUID))
		if got.Error != "" {
			t.Fatal(got.Error)
		}
		env, files := m.container(got.Devices[0].CdiDeviceIds)
		if !slices.Contains(files, want) || !slices.ContainsFunc(env, func(e string) bool { return strings.HasSuffix(e, "="+m.devices[i].UUID) }) {
			t.Errorf("%s has %q and %q", pod, files, env)
		}
		if i == 1 && slices.Contains(files, "/dev/null") {
			t.Errorf("the vendor's device and ours: %q", files)
		}
	}
	mig := m.devices[2].MIG[0].UUID
	m.hold("part", mig)
	if got := m.prepare(kubelet, m.claim("part", mig)); !strings.Contains(got.Error, "nvidia-ctk cdi generate") {
		t.Errorf("an instance: %v", got)
	}
}

// TestPublished: what Kubernetes sees of the devices follows the node.
func TestPublished(t *testing.T) {
	m := newMachine(t, simulated.Declared{Type: "h100", Count: 2})
	seen := func(want int) *resourceapi.ResourceSlice {
		t.Helper()
		var out *resourceapi.ResourceSlice
		eventually(t, "the slices are there", func() error {
			list, err := m.kube.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if s := &list.Items[i]; len(s.Spec.Devices) == want {
					out = s
					return nil
				}
			}
			return errors.New("other devices")
		})
		return out
	}
	s := seen(2)
	d := s.Spec.Devices[1]
	if s.Spec.Driver != claims.Driver || s.Spec.Pool.Name != node || *s.Spec.NodeName != node || d.Name != claims.DeviceName(m.devices[1].UUID) ||
		*d.Attributes["uuid"].StringValue != m.devices[1].UUID || *d.Attributes["gresType"].StringValue != "h100" ||
		len(d.Taints) != 1 || d.Taints[0].Key != claims.LedgerTaint {
		t.Errorf("%+v", s.Spec)
	}
}

// TestResources: a partitioned device is published as its instances, whose counters the
// device has; a lost one is not there, and no slice is larger than Kubernetes takes.
func TestResources(t *testing.T) {
	devices, err := simulated.Devices("gpu01", []simulated.Declared{{Type: "h100", Count: 8},
		{Type: "a100", Count: 10, MIG: []string{"1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"}}})
	if err != nil {
		t.Fatal(err)
	}
	devices[0].Lost = true
	pool := resources(&podapi.Node{Name: "gpu01", Devices: devices}, node).Pools[node]
	sets := map[string]map[string]resourceapi.Counter{}
	var all []resourceapi.Device
	for _, s := range pool.Slices {
		if len(s.SharedCounters) > 8 || len(s.Devices) > 64 || len(s.SharedCounters) > 0 && len(s.Devices) > 0 {
			t.Errorf("a slice with %d counter sets and %d devices", len(s.SharedCounters), len(s.Devices))
		}
		for _, c := range s.SharedCounters {
			sets[c.Name] = c.Counters
		}
		all = append(all, s.Devices...)
	}
	if len(sets) != 10 || len(all) != 7+70 {
		t.Fatalf("%d counter sets, %d devices", len(sets), len(all))
	}
	for _, d := range all {
		if d.Name == claims.DeviceName(devices[0].UUID) {
			t.Error("a lost device is published")
		}
		for _, use := range d.ConsumesCounters {
			for name, n := range use.Counters {
				left := sets[use.CounterSet][name]
				left.Value.Sub(n.Value)
				if left.Value.Sign() < 0 {
					t.Errorf("the instances of %s have more %s than it", use.CounterSet, name)
				}
				sets[use.CounterSet][name] = left
			}
		}
	}
	part := all[7]
	if *part.Attributes["profile"].StringValue != "1g.10gb" || *part.Attributes["parentUUID"].StringValue != devices[8].UUID ||
		*part.Attributes["gresType"].StringValue != "1g.10gb" || claims.UUID(part.Name) != *part.Attributes["uuid"].StringValue {
		t.Errorf("%+v", part.Attributes)
	}
	whole := all[0]
	memory := whole.Capacity["memory"].Value
	if whole.Attributes["nvlinkDomain"].IntValue == nil || whole.Attributes["links"].StringValue == nil ||
		memory.Value() != devices[1].MemoryMiB<<20 {
		t.Errorf("%+v", whole)
	}
	empty := resources(&podapi.Node{}, node)
	if !reflect.DeepEqual(empty.Pools[node].Slices, []resourceslice.Slice{{}}) {
		t.Errorf("a node without devices: %+v", empty)
	}
}

// TestCheckpoint: a damaged or newer file is refused with what to do.
func TestCheckpoint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "checkpoint.json")
	for text, want := range map[string]string{"{": "is damaged", `{"version":2}`: "run the release that wrote it"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readCheckpoint(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
