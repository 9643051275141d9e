package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/musterhpc/muster/kube/chart"
)

const (
	chartFolder = "../../deploy/helm/muster-kube"
	system      = "muster-system" // namespace of the release
	release     = "muster-kube"
	connector   = "daemon" // a user of this machine without rights in Muster, whose token is for pods
)

func quantity(text string) resource.Quantity { return resource.MustParse(text) }

// resources are those of a node or a pod.
func resources(cpu, mem string, gpus int) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceCPU: quantity(cpu), corev1.ResourceMemory: quantity(mem)}
	if gpus > 0 {
		out["nvidia.com/gpu"] = quantity(strconv.Itoa(gpus))
	}
	return out
}

// startMuster brings a cluster up of the same nodes, with a token for muster-kube.
func (l *lab) startMuster() error {
	l.muster = filepath.Join(l.dir, "muster")
	muster := filepath.Join(l.bin, "muster")
	for _, args := range [][]string{
		append([]string{"init", "--dir", l.muster, "--nodes", "2", "--cpus", "6", "--mem", "8000", "--gpus", "4",
			"--port", strconv.Itoa(l.port)}, benchConfig()...),
		{"up", "--dir", l.muster},
		{"sacctmgr", "-i", "add", "account", "ops"},
		{"sacctmgr", "-i", "add", "user", connector, "account=ops"},
	} {
		if _, _, err := l.run(muster, args...); err != nil {
			return err
		}
	}
	out, _, err := l.run(muster, "scontrol", "token", "username="+connector, "scope=pods", "lifespan=86400")
	if err != nil {
		return err
	}
	_, token, ok := strings.Cut(strings.TrimSpace(out), "=")
	if !ok {
		return fmt.Errorf("scontrol token says %q", out)
	}
	return os.WriteFile(filepath.Join(l.dir, "muster.token"), []byte(token), 0o600)
}

// install puts the chart's resources into the API server, all but the Deployment,
// which this machine cannot run, and starts the program as its service account.
func (l *lab) install(ctx context.Context) error {
	parts, err := chart.Render(chartFolder, release, system, serverVersion, chartValues())
	if err != nil {
		return err
	}
	kubectl := filepath.Join(l.kubeBin, "kubectl")
	if _, _, err := l.feed(parts.CRDs, kubectl, "apply", "-f", "-"); err != nil {
		return err
	}
	if _, _, err := l.run(kubectl, "wait", "--for=condition=Established", "crd/genericnodes.kai.alibabacloud.com"); err != nil {
		return err
	}
	for name, labels := range map[string]map[string]string{system: nil, "web": {"musterhpc.github.io/colocate": "true"}} {
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		if _, err := l.kube.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if _, _, err := l.feed(parts.All("rbac.yaml", "gate.yaml", "dra-access.yaml"), kubectl, "apply", "-f", "-"); err != nil {
		return err
	}
	day := int64(86400)
	token, err := l.kube.CoreV1().ServiceAccounts(system).CreateToken(ctx, release,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	l.robot = filepath.Join(l.dir, "robot.kubeconfig")
	if err := l.writeConfig(l.robot, token.Status.Token); err != nil {
		return err
	}
	// A policy takes effect some time after it was made.
	if err := until(func() error { return l.gates(ctx) }); err != nil {
		return err
	}
	return l.startCopy()
}

func chartValues() map[string]any {
	return map[string]any{
		"muster": map[string]any{"addresses": []any{"https://controller.example.org:6820"}},
		"dra": map[string]any{"enabled": true, "deviceClasses": []any{
			map[string]any{"name": "gpu.musterhpc.github.io"},
			map[string]any{"name": "other.musterhpc.github.io", "gresType": "other"},
		}},
	}
}

// gates tells whether the API server puts the gate on pods by now.
func (l *lab) gates(ctx context.Context) error {
	probe := podOf("probe", "1m", "1Mi", 0)
	made, err := l.kube.CoreV1().Pods("web").Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	if len(made.Spec.SchedulingGates) == 0 {
		return errors.New("the policy of the gate has no effect yet")
	}
	return nil
}

// startCopy starts the only muster-kube.
func (l *lab) startCopy() (err error) {
	l.copy, err = l.beginCopy("")
	return err
}

// listens is where a muster-kube answers probes and scrapes; empty: a copy beside the only one.
func (l *lab) listens(lease string) string {
	if lease != "" {
		return ""
	}
	return fmt.Sprintf("127.0.0.1:%d", l.port-5)
}

// beginCopy starts muster-kube with what the chart would give it.
func (l *lab) beginCopy(lease string) (*process, error) {
	return l.begin(filepath.Join(l.bin, "muster-kube"), "--muster", fmt.Sprintf("https://127.0.0.1:%d", l.port+3),
		"--muster-token", filepath.Join(l.dir, "muster.token"), "--muster-ca", filepath.Join(l.muster, "state", "tls", "ca.crt"),
		"--kubeconfig", l.robot, "--namespace", system, "--lease", lease, "--listen", l.listens(lease))
}

func podOf(name, cpu, mem string, gpus int) *corev1.Pod {
	need := resources(cpu, mem, gpus)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "web"},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers: []corev1.Container{{Name: "main", Image: "none",
				Resources: corev1.ResourceRequirements{Requests: need, Limits: need}}},
		},
	}
}

// make makes a pod.
func (l *lab) make(t *testing.T, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	made, err := l.kube.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (l *lab) get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := l.kube.CoreV1().Pods("web").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// muster runs a command of Muster that has to succeed.
func (l *lab) must(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := l.run(filepath.Join(l.bin, "muster"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// kubectl runs a command of Kubernetes that has to succeed.
func (l *lab) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, _, err := l.run(filepath.Join(l.kubeBin, "kubectl"), args...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// wait asks until something is so.
func wait(t *testing.T, what string, ask func() (ok bool, now string)) {
	t.Helper()
	if err := until(func() error {
		if ok, now := ask(); !ok {
			return errors.New(now)
		}
		return nil
	}); err != nil {
		t.Fatalf("still not: %s\n%v", what, err)
	}
}

// says asks a command of Muster until its answer is the wanted one.
func (l *lab) says(t *testing.T, want string, args ...string) {
	t.Helper()
	wait(t, strings.Join(args, " ")+" says "+want, func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.bin, "muster"), args...)
		if err != nil {
			return false, err.Error()
		}
		return strings.TrimSpace(out) == want, out
	})
}

// runs waits until a pod runs, and tells where.
func (l *lab) runs(t *testing.T, name string) string {
	t.Helper()
	var node string
	wait(t, name+" runs", func() (bool, string) {
		pod := l.get(t, name)
		node = pod.Spec.NodeName
		return pod.Status.Phase == corev1.PodRunning, fmt.Sprintf("%s %v %v", pod.Status.Phase, pod.Spec.SchedulingGates, pod.Status.Conditions)
	})
	return node
}

// waits waits until a pod says why it waits, and gives the text.
func (l *lab) waits(t *testing.T, name, reason string) string {
	t.Helper()
	var text string
	wait(t, name+" waits with "+reason, func() (bool, string) {
		for _, c := range l.get(t, name).Status.Conditions {
			if c.Type == "musterhpc.github.io/Held" {
				text = c.Message
				return c.Status == corev1.ConditionFalse && c.Reason == reason, fmt.Sprintf("%+v", c)
			}
		}
		return false, "no condition"
	})
	return text
}

// clear takes all pods and jobs away, and waits until the ledger knows.
func (l *lab) clear(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, space := range []string{"web", "kube-system"} {
		if err := l.kube.CoreV1().Pods(space).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	}
	_, _, _ = l.run(filepath.Join(l.bin, "muster"), "scancel", "--user=root") // there may be none
	wait(t, "nodes are idle", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.bin, "muster"), "sinfo", "-h", "-N", "-o", "%N %T")
		if err != nil {
			return false, err.Error()
		}
		return strings.Count(out, " idle") == 2, out
	})
}
