package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/kube/claims"
)

// nodeProgram is muster-kube-dra of one node.
type nodeProgram struct {
	node   string
	dir    string
	config string // kubeconfig of its pod
	*process
}

// startDRA starts the program of a node with the rights of the chart: the token is that
// of a pod on the node, as the DaemonSet's pods have them.
func (l *lab) startDRA(t *testing.T, node string) *nodeProgram {
	t.Helper()
	p := &nodeProgram{node: node, dir: filepath.Join(l.dir, "dra-"+node)}
	for _, dir := range []string{"registry", "plugin"} {
		if err := os.MkdirAll(filepath.Join(p.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	pod := podOf("dra-"+node, "1m", "1Mi", 0)
	pod.Namespace = system
	pod.Spec.ServiceAccountName = release + "-dra"
	pod.Spec.NodeName = node
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	made := l.make(t, pod)
	t.Cleanup(func() {
		_ = l.kube.CoreV1().Pods(system).Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
	})
	day := int64(86400)
	token, err := l.kube.CoreV1().ServiceAccounts(system).CreateToken(t.Context(), pod.Spec.ServiceAccountName,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: &day,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: made.Name, UID: made.UID},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.config = filepath.Join(p.dir, "kubeconfig")
	if err := l.writeConfig(p.config, token.Status.Token); err != nil {
		t.Fatal(err)
	}
	p.begin(t, l)
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *nodeProgram) begin(t *testing.T, l *lab) {
	t.Helper()
	var err error
	p.process, err = l.begin(filepath.Join(l.bin, "muster-kube-dra"), "--node", p.node, "--kubeconfig", p.config,
		"--agent-socket", filepath.Join(l.muster, "state", "agents", p.node, "pods.sock"),
		"--plugin-dir", filepath.Join(p.dir, "plugin"), "--registry-dir", filepath.Join(p.dir, "registry"),
		"--cdi-dir", filepath.Join(p.dir, "cdi"))
	if err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///socket", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// kubelet finds the program as kubelet does.
func (p *nodeProgram) kubelet(t *testing.T) drapb.DRAPluginClient {
	t.Helper()
	var info *registerapi.PluginInfo
	wait(t, "the program of "+p.node+" registers", func() (bool, string) {
		var err error
		conn := dial(t, filepath.Join(p.dir, "registry", claims.Driver+"-reg.sock"))
		info, err = registerapi.NewRegistrationClient(conn).GetInfo(t.Context(), &registerapi.InfoRequest{})
		return err == nil, fmt.Sprint(err)
	})
	return drapb.NewDRAPluginClient(dial(t, info.Endpoint))
}

// prepare asks for a claim as kubelet does before it starts the containers.
func prepare(t *testing.T, kubelet drapb.DRAPluginClient, claim *resourceapi.ResourceClaim) *drapb.NodePrepareResourceResponse {
	t.Helper()
	uid := string(claim.UID)
	rep, err := kubelet.NodePrepareResources(t.Context(), &drapb.NodePrepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: uid}}})
	if err != nil {
		t.Fatal(err)
	}
	return rep.Claims[uid]
}

// claimTemplate is one for GPUs of the ledger.
func (l *lab) claimTemplate(t *testing.T, name string, count int64) {
	t.Helper()
	template := &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "web"},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: claims.Driver, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}}}}}},
	}
	if _, err := l.kube.ResourceV1().ResourceClaimTemplates("web").Create(t.Context(), template, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.kube.ResourceV1().ResourceClaimTemplates("web").Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

func claiming(name, template string) *corev1.Pod {
	pod := podOf(name, "100m", "50Mi", 0)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpus", ResourceClaimTemplateName: &template}}
	pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpus"}}
	return pod
}

// claimOf is the claim that Kubernetes made for a pod.
func (l *lab) claimOf(t *testing.T, pod string) *resourceapi.ResourceClaim {
	t.Helper()
	statuses := l.get(t, pod).Status.ResourceClaimStatuses
	if len(statuses) != 1 || statuses[0].ResourceClaimName == nil {
		t.Fatalf("pod %s has claims %+v", pod, statuses)
	}
	claim, err := l.kube.ResourceV1().ResourceClaims("web").Get(t.Context(), *statuses[0].ResourceClaimName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// TestClaims: a pod that asks for GPUs by a claim gets the devices of its hold, by the
// allocation that muster-kube writes, the stock scheduler and the node's program; their
// metrics name it; and nobody gets any past the ledger.
func TestClaims(t *testing.T) {
	l := need(t)
	t.Cleanup(func() { l.clear(t) })
	programs := map[string]*nodeProgram{}
	for _, node := range []string{"node1", "node2"} {
		programs[node] = l.startDRA(t, node)
	}
	published := map[string]string{} // node by device name
	wait(t, "the devices are published", func() (bool, string) {
		list, err := l.kube.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		clear(published)
		for _, s := range list.Items {
			for _, d := range s.Spec.Devices {
				published[d.Name] = *s.Spec.NodeName
			}
		}
		return len(published) == 8, fmt.Sprintf("%d devices", len(published))
	})
	l.claimTemplate(t, "two", 2)
	l.make(t, claiming("train", "two"))
	node := l.runs(t, "train")
	gpus := strings.Split(l.get(t, "train").Annotations["musterhpc.github.io/gpus"], ",")
	claim := l.claimOf(t, "train")
	var names []string
	for _, r := range claim.Status.Allocation.Devices.Results {
		names = append(names, r.Device)
		if published[r.Device] != node || r.Pool != node {
			t.Errorf("the claim has %+v, and the pod is on %s", r, node)
		}
	}
	if len(gpus) != 2 || !slices.Equal(names, []string{claims.DeviceName(gpus[0]), claims.DeviceName(gpus[1])}) {
		t.Errorf("the hold has %q, the claim %q", gpus, names)
	}
	if show := l.must(t, "scontrol", "show", "node", node); !strings.Contains(show, gpus[0]) || !strings.Contains(show, gpus[1]) {
		t.Errorf("the ledger has others:\n%s", show)
	}

	program := programs[node]
	kubelet := program.kubelet(t)
	got := prepare(t, kubelet, claim)
	if got.Error != "" || len(got.Devices) != 2 {
		t.Fatalf("%v", got)
	}
	env := func(answer *drapb.NodePrepareResourceResponse) []string {
		t.Helper()
		cache, err := cdi.NewCache(cdi.WithSpecDirs(filepath.Join(program.dir, "cdi")), cdi.WithAutoRefresh(false))
		if err != nil {
			t.Fatal(err)
		}
		var spec oci.Spec
		for _, d := range answer.Devices {
			if _, err := cache.InjectDevices(&spec, d.CdiDeviceIds...); err != nil {
				t.Fatal(err)
			}
		}
		return spec.Process.Env
	}
	has := func(env []string, uuid string) bool {
		return slices.ContainsFunc(env, func(e string) bool { return strings.HasSuffix(e, "="+uuid) })
	}
	if e := env(got); !has(e, gpus[0]) || !has(e, gpus[1]) {
		t.Errorf("the container has %q", e)
	}
	// The agent's metrics name the pod from the next reading on.
	wait(t, "metrics name the pod", func() (bool, string) {
		page, err := l.metricsOf(node)
		if err != nil {
			return false, err.Error()
		}
		labels := `namespace="web",pod="train",container="main"`
		return strings.Count(page, "muster_gpu_pod_info{") == 2 && strings.Contains(page, labels), "no labels"
	})

	// The program is killed, and kubelet asks again while no controller answers.
	program.kill()
	l.killMuster(t)
	program.begin(t, l)
	kubelet = program.kubelet(t)
	if again := prepare(t, kubelet, claim); again.Error != "" || !has(env(again), gpus[0]) {
		t.Errorf("after a restart: %v", again)
	}
	l.must(t, "up", "--dir", l.muster)

	// Past the ledger: the stock scheduler gives out no device, and one that somebody
	// allocates by hand is refused.
	stranger := claiming("stranger", "two")
	stranger.Namespace = "default"
	l.pastTheLedger(t, stranger, program, kubelet, gpus[0])

	// What the ledger cannot give is said.
	uid := string(claim.UID)
	if _, err := kubelet.NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{
		Claims: []*drapb.Claim{{Namespace: "web", Name: claim.Name, Uid: uid}}}); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(program.dir, "cdi")); err != nil || len(left) != 0 {
		t.Errorf("specs are left: %v, %v", left, err)
	}
	l.kubectl(t, "-n", "web", "delete", "pod", "train")
	wait(t, "the hold is given back", func() (bool, string) {
		return l.holdsOf(t, "train") == 0, l.must(t, "scontrol", "show", "node")
	})
}

// pastTheLedger tries to have devices without a hold.
func (l *lab) pastTheLedger(t *testing.T, pod *corev1.Pod, program *nodeProgram, kubelet drapb.DRAPluginClient, uuid string) {
	t.Helper()
	ctx := t.Context()
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: pod.Namespace},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{
			{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: claims.Driver, Count: 1}}}}},
	}
	claim, err := l.kube.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpus", ResourceClaimName: &claim.Name}
	made, err := l.kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.kube.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
		_ = l.kube.ResourceV1().ResourceClaims(pod.Namespace).Delete(context.Background(), claim.Name, metav1.DeleteOptions{})
	})
	wait(t, "the stock scheduler gives no device", func() (bool, string) {
		now, err := l.kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range now.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return strings.Contains(c.Message, "cannot allocate all claims"), c.Message
			}
		}
		return false, fmt.Sprintf("%+v", now.Status)
	})
	want := claims.Want{GPUs: 1, Claims: []*resourceapi.ResourceClaim{claim}}
	if err := claims.Give(ctx, l.kube, made, &want, program.node, []string{uuid}); err != nil {
		t.Fatal(err)
	}
	if claim, err = l.kube.ResourceV1().ResourceClaims(pod.Namespace).Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "a forged claim is refused by the ledger", func() (bool, string) {
		got := prepare(t, kubelet, claim)
		return strings.Contains(got.Error, "refused") && len(got.Devices) == 0, got.Error // the controller has just come back
	})
	// It was bound to the node all the same, which the ledger cannot undo: nothing is
	// started beside it until somebody has looked.
	wait(t, "the node is drained and names the pod", func() (bool, string) {
		out := l.must(t, "sinfo", "-h", "-R", "-o", "%E")
		return strings.Contains(out, pod.Namespace+"/"+pod.Name+" runs without room"), out
	})
	if err := l.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the pod is gone", func() (bool, string) {
		_, err := l.kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	l.must(t, "scontrol", "update", "nodename="+program.node, "state=resume")
}

// metricsOf is what the agent of a node serves.
func (l *lab) metricsOf(node string) (string, error) {
	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(l.muster, "run", "rest.sock"))
	}}}
	defer local.CloseIdleConnections()
	body := strings.NewReader(`{"nodes":["` + node + `"]}`)
	text, err := read(local.Post("http://controller/v1/Cluster/ListNodes", "application/json", body))
	if err != nil {
		return "", err
	}
	nodes := &apiv1.ListNodesReply{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, nodes); err != nil {
		return "", err
	}
	if len(nodes.GetNodes()) != 1 || nodes.GetNodes()[0].GetMetricsAddr() == "" {
		return "", errors.New("the node tells no address of its metrics")
	}
	text, err = read(http.Get("http://" + nodes.GetNodes()[0].GetMetricsAddr() + "/metrics"))
	return string(text), err
}

func read(rep *http.Response, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer rep.Body.Close()
	return io.ReadAll(rep.Body)
}
