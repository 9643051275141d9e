package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/musterhpc/muster/kube/chart"
)

const (
	operatorFolder = "../../deploy/helm/muster-operator"
	operatorName   = "muster-operator"
	ownSpace       = "own"
)

const ownConf = `ClusterName=other
SlurmctldHost=head
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
ReturnToService=2
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=5
SuspendTimeout=5
ResumeTimeout=600
NodeName=demo-worker-cpu-[0-1] CPUs=2 RealMemory=1000 State=CLOUD
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP
`

const ownCluster = `apiVersion: musterhpc.github.io/v1alpha1
kind: MusterCluster
metadata: {name: hpc, namespace: own}
spec:
  image: this-machine
  controllers: {storage: {size: 1Gi, className: ""}, pod: {spec: {containers: [{name: musterd, resources: {requests: {cpu: 1m}}}]}}}
  config: {configMap: site}
  login: {hostKeysSecret: host-keys, storage: {size: 1Gi, className: ""}}
  nodeSets:
    - {name: pool, nodes: 'demo-worker-cpu-*', pod: {spec: {containers: [{name: agent, args: [--metrics, "off"]}]}}}
  tokenSecret: {name: ack-slurm-jwt-token, key: hpc, user: root}
`

// apply gives a manifest to the API server.
func (l *lab) apply(t *testing.T, text string, args ...string) string {
	t.Helper()
	out, warnings, err := l.feed([]byte(text), filepath.Join(l.kubeBin, "kubectl"), append([]string{"apply", "--validate=strict", "-f", "-"}, args...)...)
	if err != nil || warnings != "" {
		t.Fatal(out, warnings, err)
	}
	return out
}

// account writes a kubeconfig of a service account.
func (l *lab) account(t *testing.T, namespace, name, file string) {
	t.Helper()
	day := int64(86400)
	token, err := l.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.writeConfig(file, token.Status.Token); err != nil {
		t.Fatal(err)
	}
}

// installOperator applies the chart, all but what this machine cannot run, and starts the
// program with its rights.
func (l *lab) installOperator(t *testing.T) *chart.Rendered {
	t.Helper()
	r, err := chart.Render(operatorFolder, operatorName, system, serverVersion, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	l.apply(t, string(r.CRDs))
	// A definition that is seconds old has no conditions, which kubectl takes for an error.
	wait(t, "the resources are there", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.kubeBin, "kubectl"), "wait", "--for=condition=Established", "crd/musterclusters.musterhpc.github.io",
			"crd/nodesets.musterhpc.github.io", "crd/slurmclusters.kai.alibabacloud.com")
		return err == nil, fmt.Sprint(out, err)
	})
	l.apply(t, string(r.All("rbac.yaml", "network.yaml")))
	config := filepath.Join(l.dir, "operator.kubeconfig")
	l.account(t, system, operatorName, config)
	p, err := l.begin(filepath.Join(l.bin, "muster-operator"), "--kubeconfig", config, "--namespace", system, "--image", "this-machine",
		"--listen", l.operatorListens())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return r
}

// operatorListens is where the operator answers probes and scrapes.
func (l *lab) operatorListens() string { return fmt.Sprintf("127.0.0.1:%d", l.port-4) }

// volumes are what an administrator of storage would offer.
func (l *lab) offerVolumes(t *testing.T, n int) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: own-%d}\nspec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /none}}\n", i)
	}
	l.apply(t, b.String())
}

// TestClusters: a MusterCluster becomes a cluster that runs jobs on nodes that are pods, and
// to which users of its login host come; its configuration changes and is refused; it goes
// without killing a job, and each right of the operator was made use of.
func TestClusters(t *testing.T) {
	l := need(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	chartParts := l.installOperator(t)
	l.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: own}\n")
	l.offerVolumes(t, 3)
	site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "site", Namespace: ownSpace}, Data: map[string]string{"slurm.conf": ownConf}}
	if _, err := l.kube.CoreV1().ConfigMaps(ownSpace).Create(t.Context(), site, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.apply(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: host-keys, namespace: own}\nstringData: {ssh_host_ed25519_key: none}\n")
	r := newPodRuntime(t, l, ownSpace, "hpc-controller-0.hpc-controllers.own.svc hpc-slurmrestd")
	l.apply(t, ownCluster)
	wait(t, "the controllers' account is there", func() (bool, string) {
		_, err := l.kube.CoreV1().ServiceAccounts(ownSpace).Get(t.Context(), "hpc-controller", metav1.GetOptions{})
		return err == nil, fmt.Sprint(err)
	})
	l.account(t, ownSpace, "hpc-controller", filepath.Join(r.dir, "keeper.kubeconfig"))
	r.says("hpc-controller-0", "hpc", "sacctmgr", "-n", "-P", "show", "cluster", "format=cluster")
	l.columns(t, "mustercluster", "hpc", "1/1 1/1 Running True")

	// A job needs a node, which comes as a pod.
	if out, err := r.muster("hpc-controller-0", "sbatch", "-J", "keeps", "--wrap", "sleep 3600"); err != nil {
		t.Fatal(out, err)
	}
	isScraped(t, l.operatorListens(), "muster_operator_leader", 1)
	isScraped(t, l.operatorListens(), `muster_operator_objects{kind="MusterCluster"}`, 1)
	r.says("hpc-controller-0", "R demo-worker-cpu-0", "squeue", "-h", "-n", "keeps", "-o", "%t %R")
	// The login host has joined with the token that was made for it.
	r.says("hpc-login-0", "R demo-worker-cpu-0", "squeue", "-h", "-n", "keeps", "-o", "%t %R")
	r.restByToken(t)

	// What no controller could read changes nothing, and is said with its line.
	l.setConf(t, ownConf+"PartitionNam=x\n")
	l.columns(t, "mustercluster", "hpc", "1/1 1/1 Invalid False")
	if out := l.kubectl(t, "-n", ownSpace, "get", "mustercluster", "hpc", "-o", `jsonpath={.status.conditions[?(@.type=="Accepted")].message}`); !strings.Contains(out, "PartitionNam") {
		t.Error(out)
	}
	// Another configuration has the controller start again. The job goes on.
	l.setConf(t, ownConf+"PartitionName=more Nodes=ALL State=UP\n")
	r.says("hpc-controller-0", "main\nmore", "sinfo", "-h", "-a", "-o", "%R")
	r.says("hpc-controller-0", "R demo-worker-cpu-0", "squeue", "-h", "-n", "keeps", "-o", "%t %R")

	// What was said of a spec is said again of the next one.
	l.kubectl(t, "-n", ownSpace, "patch", "mustercluster", "hpc", "--type=merge", "-p", `{"spec":{"imagePullPolicy":"IfNotPresent"}}`)
	r.says("hpc-controller-0", "R demo-worker-cpu-0", "squeue", "-h", "-n", "keeps", "-o", "%t %R")

	l.ackCluster(t)
	l.threeControllers(t)

	// The cluster is deleted: its nodes drain, and nothing goes while the job runs.
	l.kubectl(t, "-n", ownSpace, "delete", "mustercluster", "hpc", "--wait=false", "--cascade=foreground")
	r.says("hpc-controller-0", "draining", "sinfo", "-h", "-p", "main", "-n", "demo-worker-cpu-0", "-o", "%T")
	l.columns(t, "mustercluster", "hpc", "1/1 1/1 Leaving True")
	if out, err := r.muster("hpc-controller-0", "scancel", "-n", "keeps"); err != nil {
		t.Fatal(out, err)
	}
	wait(t, "everything is gone but the volumes", func() (bool, string) {
		r.serve()
		out := l.kubectl(t, "-n", ownSpace, "get", "musterclusters,nodesets,statefulsets,pods,services,networkpolicies,rolebindings", "-o", "name")
		return out == "", out
	})
	if out := l.kubectl(t, "-n", ownSpace, "get", "pvc", "-o", "name"); !strings.Contains(out, "state-hpc-controller-0") {
		t.Error("the controller's volume is gone:", out)
	}
	l.rightsAreNeeded(t, chartParts)
}

// threeControllers: a group may lose one pod at a time, and neither its size nor its name
// changes. This machine runs none of them.
func (l *lab) threeControllers(t *testing.T) {
	t.Helper()
	l.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: group}\n")
	text := `apiVersion: musterhpc.github.io/v1alpha1
kind: MusterCluster
metadata: {name: three, namespace: group}
spec:
  image: this-machine
  controllers: {replicas: 3}
  config: {files: {slurm.conf: "NodeName=n1 CPUs=1 RealMemory=100\nPartitionName=main Nodes=ALL Default=YES\n"}}
`
	l.apply(t, text)
	wait(t, "there is a budget of disruptions", func() (bool, string) {
		out, _, err := l.run(filepath.Join(l.kubeBin, "kubectl"), "-n", "group", "get", "pdb", "three-controller", "-o", "jsonpath={.spec.maxUnavailable}")
		return err == nil && out == "1", fmt.Sprint(out, err)
	})
	for _, c := range []struct{ old, bad, want string }{
		{"replicas: 3", "replicas: 1", "the number of controllers cannot be changed"},
		{"  image:", "  clusterName: other\n  image:", "clusterName cannot be changed"},
	} {
		_, _, err := l.feed([]byte(strings.Replace(text, c.old, c.bad, 1)), filepath.Join(l.kubeBin, "kubectl"), "apply", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.bad, err, c.want)
		}
	}
	l.kubectl(t, "-n", "group", "delete", "mustercluster", "three")
}

func (l *lab) setConf(t *testing.T, text string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"data": map[string]string{"slurm.conf": text}})
	if err != nil {
		t.Fatal(err)
	}
	l.kubectl(t, "-n", ownSpace, "patch", "configmap", "site", "--type=merge", "-p", string(patch))
}

// columns waits until kubectl get shows these words beside the name.
func (l *lab) columns(t *testing.T, kind, name, want string) {
	t.Helper()
	wait(t, kind+" "+name+" shows "+want, func() (bool, string) {
		out := l.kubectl(t, "-n", ownSpace, "get", kind, name, "--no-headers")
		return strings.HasPrefix(strings.Join(strings.Fields(out), " "), name+" "+want), out
	})
}

// restByToken calls REST with what is in the Secret that ACK's users read, and the public
// authority of the cluster.
func (r *podRuntime) restByToken(t *testing.T) {
	t.Helper()
	var answer string
	wait(t, "REST answers by the token", func() (bool, string) {
		r.serve()
		secret, err := r.kube.CoreV1().Secrets(ownSpace).Get(t.Context(), "ack-slurm-jwt-token", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		ca, err := r.kube.CoreV1().ConfigMaps(ownSpace).Get(t.Context(), "hpc-ca", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		file := filepath.Join(r.dir, "ca.crt")
		if err := os.WriteFile(file, []byte(ca.Data["ca.crt"]), 0o644); err != nil {
			return false, err.Error()
		}
		out, err := exec.Command("ip", "netns", "exec", r.netns, "curl", "-sS", "--cacert", file, "--resolve", "hpc-slurmrestd:6820:127.0.0.1",
			"-H", "X-SLURM-USER-NAME: root", "-H", "X-SLURM-USER-TOKEN: "+string(secret.Data["hpc"]), "https://hpc-slurmrestd:6820/slurm/v0.0.43/jobs").CombinedOutput()
		answer = string(out)
		return err == nil && strings.Contains(answer, "keeps"), answer
	})
}

// ackCluster: a SlurmCluster becomes a MusterCluster, and what is ignored is said.
func (l *lab) ackCluster(t *testing.T) {
	t.Helper()
	l.apply(t, `apiVersion: kai.alibabacloud.com/v1
kind: SlurmCluster
metadata: {name: demo, namespace: own}
spec:
  slurmConfigs: {createConfigsByConfigMap: true, configMapName: site, filesInConfigMap: [slurm.conf]}
  mungeConfigs: {secretName: munge}
  workerNodesConfig: {workerGroups: [{groupName: cpu, replicas: 2}]}
`)
	l.columns(t, "slurmcluster", "demo", "Translated")
	l.columns(t, "mustercluster", "demo", "0/1")
	wait(t, "munge is ignored with an event", func() (bool, string) {
		out := l.kubectl(t, "-n", ownSpace, "get", "events", "--field-selector", "involvedObject.kind=SlurmCluster", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(out, "spec.mungeConfigs is ignored: Muster's agents have certificates of their own"), out
	})
	if out := l.kubectl(t, "-n", ownSpace, "get", "svc", "demo-slurmrestd", "-o", `jsonpath={.spec.ports[?(@.port==8080)].targetPort}`); out != "6820" {
		t.Error(out)
	}
	if out := l.kubectl(t, "-n", ownSpace, "get", "nodeset", "demo-worker-cpu", "-o", "jsonpath={.spec.nodes}"); out != "demo-worker-cpu-[0-1]" {
		t.Error(out)
	}
	// No controller of it runs here, beside the other one, so that its NodeSet has no finalizer yet.
	l.kubectl(t, "-n", ownSpace, "delete", "slurmcluster", "demo")
	wait(t, "the translated cluster is gone", func() (bool, string) {
		out := l.kubectl(t, "-n", ownSpace, "get", "musterclusters,statefulsets", "-o", "name")
		return !strings.Contains(out, "demo"), out
	})
}

// rightsAreNeeded: the API server's audit log shows that the operator has made use of every
// right that its chart gives it, and was refused nothing.
func (l *lab) rightsAreNeeded(t *testing.T, r *chart.Rendered) {
	t.Helper()
	used, refused := l.audited(t, "system:serviceaccount:"+system+":"+operatorName)
	for _, x := range refused {
		t.Errorf("the operator was refused %s", x)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(r.All("rbac.yaml"))), 4096)
	for {
		var role rbacv1.ClusterRole
		if err := decoder.Decode(&role); err != nil {
			break
		}
		if !strings.HasSuffix(role.Kind, "Role") || role.Name != operatorName {
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					// Whoever may create a RoleBinding and gives this role has bound it.
					right := strings.Replace(verb+" "+resource, "bind clusterroles", "create rolebindings", 1)
					if !slices.Contains(used, right) {
						t.Errorf("the operator may %s and never did", right)
					}
				}
			}
		}
	}
}

// audited is what an account did and what it was refused, as verb and resource. An
// application of what was not there is a creation too.
func (l *lab) audited(t *testing.T, user string) (used, refused []string) {
	t.Helper()
	file, err := os.Open(filepath.Join(l.dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef struct{ Resource, Subresource, Name string }
			Response  struct{ Code int } `json:"responseStatus"`
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.User.Username != user {
			continue
		}
		what := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		if e.Response.Code == 403 {
			refused = append(refused, e.Verb+" "+what+" "+e.ObjectRef.Name)
			continue
		}
		used = append(used, e.Verb+" "+what)
		if e.Verb == "patch" && e.Response.Code == 201 {
			used = append(used, "create "+what)
		}
	}
	return used, refused
}
