package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/musterhpc/muster/kube/chart"
	"github.com/musterhpc/muster/kube/nodesets"
)

const (
	nodesFolder = "../../deploy/helm/muster-nodes"
	nodesSpace  = "hpc"
)

// elastic is a cluster of Muster whose nodes are pods. Its kubelets are this test: the
// agent of each pod that is bound runs in a PID namespace of its own, as in a container,
// with what the pod's spec gives it.
type elastic struct {
	*lab
	t      *testing.T
	dir    string
	port   int
	mu     sync.Mutex
	agents map[string]*exec.Cmd // by UID of the pod
}

func newElastic(t *testing.T, l *lab) *elastic {
	t.Helper()
	e := &elastic{lab: l, t: t, dir: filepath.Join(l.dir, "elastic"), agents: map[string]*exec.Cmd{}}
	var err error
	if e.port, err = ports(30); err != nil {
		t.Fatal(err)
	}
	e.must("init", "--dir", e.dir, "--cluster", "elastic", "--nodes", "2", "--cpus", "2", "--mem", "2000", "--gpus", "0", "--port", strconv.Itoa(e.port))
	conf := filepath.Join(e.dir, "slurm.conf")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "State=UNKNOWN", "State=CLOUD", 1)
	if changed == string(text) {
		t.Fatalf("slurm.conf has no node to change:\n%s", text)
	}
	changed += "ResumeProgram=/bin/true\nSuspendProgram=/bin/true\nSuspendTime=5\nSuspendTimeout=5\nResumeTimeout=600\n"
	if err := os.WriteFile(conf, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	e.must("up", "--dir", e.dir)
	t.Cleanup(func() {
		_, _ = e.muster("down", "--dir", e.dir, "--jobs")
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, cmd := range e.agents {
			_ = cmd.Process.Kill() // it takes its namespace with it
			_ = cmd.Wait()
		}
	})
	return e
}

// muster runs a command of this cluster.
func (e *elastic) muster(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(e.bin, "muster"), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(e.dir, "run", "muster.sock"))
	cmd.Dir = e.lab.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("muster %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func (e *elastic) must(args ...string) string {
	e.t.Helper()
	out, err := e.muster(args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

func (e *elastic) says(want string, args ...string) {
	e.t.Helper()
	wait(e.t, strings.Join(args, " ")+" says "+want, func() (bool, string) {
		e.serve()
		out, err := e.muster(args...)
		return err == nil && out == want, fmt.Sprint(out, err)
	})
}

// serve starts the agents of pods that are bound, and ends those of pods that are gone.
func (e *elastic) serve() {
	list, err := e.kube.CoreV1().Pods(nodesSpace).List(context.Background(), metav1.ListOptions{LabelSelector: nodesets.SetLabel})
	if err != nil {
		e.t.Log(err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	there := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		there[string(pod.UID)] = true
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || e.agents[string(pod.UID)] != nil {
			continue
		}
		cmd, err := e.startAgent(pod)
		if err != nil {
			e.t.Errorf("pod %s: %v", pod.Name, err)
			continue
		}
		e.agents[string(pod.UID)] = cmd
	}
	for uid, cmd := range maps.Clone(e.agents) {
		if !there[uid] {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			delete(e.agents, uid)
		}
	}
}

// startAgent does what kubelet and the runtime do with the container called agent: its
// mounts are folders of this pod's own.
func (e *elastic) startAgent(pod *corev1.Pod) (*exec.Cmd, error) {
	root := filepath.Join(e.dir, "p", pod.Name+"-"+string(pod.UID)[:4])
	var agent *corev1.Container
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == nodesets.AgentContainer {
			agent = &pod.Spec.Containers[i]
		}
	}
	if agent == nil || len(agent.Command) != 1 || agent.Command[0] != "muster-agent" {
		return nil, fmt.Errorf("no agent: %+v", pod.Spec)
	}
	replace := []string{}
	for _, mount := range agent.VolumeMounts {
		folder := filepath.Join(root, mount.Name)
		if err := os.MkdirAll(folder, 0o711); err != nil {
			return nil, err
		}
		replace = append(replace, mount.MountPath, folder)
		for _, v := range pod.Spec.Volumes {
			if v.Name != mount.Name || v.Secret == nil {
				continue
			}
			secret, err := e.kube.CoreV1().Secrets(pod.Namespace).Get(context.Background(), v.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			for key, data := range secret.Data {
				if err := os.WriteFile(filepath.Join(folder, key), data, os.FileMode(*v.Secret.DefaultMode)); err != nil {
					return nil, err
				}
			}
		}
	}
	paths := strings.NewReplacer(replace...)
	args := []string{"--pid", "--fork", "--kill-child", filepath.Join(e.bin, "muster-agent")}
	for _, a := range agent.Args {
		args = append(args, paths.Replace(a))
	}
	cmd := exec.Command("unshare", args...)
	log, err := os.OpenFile(filepath.Join(e.lab.dir, "agents.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}

// installNodes applies the chart and starts the program with its rights.
func (e *elastic) installNodes() {
	e.t.Helper()
	ctx := e.t.Context()
	r, err := chart.Render(nodesFolder, "nodes", nodesSpace, serverVersion, e.values())
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: nodesSpace}}, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	kubectl := filepath.Join(e.kubeBin, "kubectl")
	if _, _, err := e.feed(r.CRDs, kubectl, "apply", "-f", "-"); err != nil {
		e.t.Fatal(err)
	}
	e.kubectl(e.t, "wait", "--for=condition=Established", "crd/nodesets.musterhpc.github.io")
	if out, warnings, err := e.feed(r.All("access.yaml", "network.yaml", "nodesets.yaml"), kubectl, "apply", "--validate=strict", "-f", "-"); err != nil || warnings != "" {
		e.t.Fatal(out, warnings, err)
	}
	day := int64(86400)
	token, err := e.kube.CoreV1().ServiceAccounts(nodesSpace).CreateToken(ctx, "nodes",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	config := filepath.Join(e.dir, "nodes.kubeconfig")
	if err := e.writeConfig(config, token.Status.Token); err != nil {
		e.t.Fatal(err)
	}
	p, err := e.begin(filepath.Join(e.bin, "muster-kube-nodes"), "--kubeconfig", config, "--namespace", nodesSpace,
		"--socket", filepath.Join(e.dir, "run", "rest.sock"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(p.kill)
}

func (e *elastic) values() map[string]any {
	return map[string]any{
		"controllers": []any{fmt.Sprintf("127.0.0.1:%d", e.port)},
		"nodeSets": map[string]any{"pool": map[string]any{"nodes": "node[1-2]", "args": []any{"--metrics", "off"},
			"resources": map[string]any{"requests": map[string]any{"cpu": "1m"}}}},
	}
}

// pods names the pods that there are.
func (e *elastic) pods() string {
	list, err := e.kube.CoreV1().Pods(nodesSpace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func (e *elastic) hasPods(want string) {
	e.t.Helper()
	wait(e.t, "the pods are "+want, func() (bool, string) {
		e.serve()
		now := e.pods()
		return now == want, now
	})
}

// TestNodeSets: a node has a pod while the queue needs it, a NodeSet that is deleted
// takes no job with it, drains of others stay, and specs that cannot work are refused.
func TestNodeSets(t *testing.T) {
	l := need(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	e := newElastic(t, l)
	e.installNodes()
	wait(t, "the NodeSet is accepted", func() (bool, string) {
		out := l.kubectl(t, "-n", nodesSpace, "get", "nodeset", "pool", "-o", `jsonpath={.status.nodes} {.status.conditions[?(@.type=="Accepted")].status}`)
		return out == "2 True", out
	})
	if pods := e.pods(); pods != "" {
		t.Errorf("pods that nobody needs: %s", pods)
	}
	// A job needs a node: it gets a pod, which joins with a token of its own.
	e.must("sbatch", "-w", "node2", "-J", "keeps", "--wrap", "sleep 3600")
	e.hasPods("node2")
	e.says("R node2", "squeue", "-h", "-n", "keeps", "-o", "%t %R")
	wait(t, "the NodeSet counts it", func() (bool, string) {
		out := l.kubectl(t, "-n", nodesSpace, "get", "nodeset", "pool")
		return strings.Contains(out, "AllRegistered"), out
	})
	// An administrator drains the other node. It stays so.
	e.must("scontrol", "update", "nodename=node1", "state=drain", "reason=disk")
	// The NodeSet is deleted while the job runs. The job goes on, and nothing new starts.
	l.kubectl(t, "-n", nodesSpace, "delete", "nodeset", "pool", "--wait=false", "--cascade=foreground")
	e.says("draining", "sinfo", "-h", "-n", "node2", "-o", "%T")
	e.says("R node2", "squeue", "-h", "-n", "keeps", "-o", "%t %R")
	if pods := e.pods(); pods != "node2" {
		t.Errorf("pods: %q", pods)
	}
	e.must("scancel", "-n", "keeps")
	e.hasPods("")
	wait(t, "the NodeSet is gone", func() (bool, string) {
		e.serve()
		_, err := e.nodeSet()
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	// It comes back: its own drain is undone, that of the administrator is not.
	r, err := chart.Render(nodesFolder, "nodes", nodesSpace, serverVersion, e.values())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.feed(r.All("nodesets.yaml"), filepath.Join(l.kubeBin, "kubectl"), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	e.must("sbatch", "-J", "again", "-n1", "--wrap", "sleep 2")
	e.says("", "squeue", "-h", "-n", "again")
	e.says("disk", "sinfo", "-h", "-R", "-o", "%E")
	// Nobody needs the node any more: its power goes, and the pod with it.
	e.hasPods("")
	e.says("COMPLETED|node2", "sacct", "-n", "-X", "-P", "--name", "again", "-o", "State,NodeList")
	l.refusedNodeSets(t)
	l.nodesRights(t, e)
}

func (e *elastic) nodeSet() (string, error) {
	out, _, err := e.run(filepath.Join(e.kubeBin, "kubectl"), "-n", nodesSpace, "get", "nodeset", "pool", "-o", "yaml")
	if err != nil && strings.Contains(err.Error(), "NotFound") {
		return "", apierrors.NewNotFound(nodesets.Resource.GroupResource(), "pool")
	}
	return out, err
}

// refusedNodeSets: the API server refuses what cannot work, with words that help.
func (l *lab) refusedNodeSets(t *testing.T) {
	t.Helper()
	good := "apiVersion: musterhpc.github.io/v1alpha1\nkind: NodeSet\nmetadata: {name: x, namespace: " + nodesSpace + "}\nspec:\n" +
		"  nodes: n[0-3]\n  controllers: ['ctl:6817']\n  template: {spec: {containers: [{name: agent, image: x}]}}\n"
	kubectl := filepath.Join(l.kubeBin, "kubectl")
	if _, _, err := l.feed([]byte(good), kubectl, "apply", "--dry-run=server", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, bad, want string }{
		{"name: agent", "name: other", "must be called agent"},
		{"'ctl:6817'", "'https://ctl:6817'", "HOST:PORT"},
		{"'ctl:6817'", "'ctl:6817', 'ctl:6817'", "named twice"},
		{"n[0-3]", "N1", "spec.nodes"},
		{"spec: {containers", "spec: {restartPolicy: Never, containers", "restartPolicy"},
	} {
		_, _, err := l.feed([]byte(strings.Replace(good, c.old, c.bad, 1)), kubectl, "apply", "--dry-run=server", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.bad, err, c.want)
		}
	}
}

// nodesRights: the program's account can neither read tokens nor reach another namespace.
func (l *lab) nodesRights(t *testing.T, e *elastic) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(e.dir, "nodes.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	robot, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, read := robot.CoreV1().Secrets(nodesSpace).List(t.Context(), metav1.ListOptions{})
	_, elsewhere := robot.CoreV1().Pods("web").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(read) || !apierrors.IsForbidden(elsewhere) {
		t.Error(errors.Join(read, elsewhere))
	}
}
