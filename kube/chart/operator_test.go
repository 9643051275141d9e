package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/musterhpc/muster/kube/clusters"
)

const (
	operatorFolder = "../../deploy/helm/muster-operator"
	clusterFolder  = "../../deploy/helm/muster"
)

// clusterValues use every part of the chart.
func clusterValues() map[string]any {
	return map[string]any{
		"image":       "registry.example.org/muster:1",
		"controllers": map[string]any{"replicas": 1, "pod": map[string]any{"spec": map[string]any{"nodeSelector": map[string]any{"disk": "ssd"}}}},
		"accounting":  map[string]any{"dsnSecret": map[string]any{"name": "clickhouse", "key": "dsn"}},
		"web":         true,
		"login":       map[string]any{"hostKeysSecret": "keys", "serviceType": "LoadBalancer", "replicas": 2},
		"tokenSecret": map[string]any{"name": "ack-slurm-jwt-token", "key": "hpc", "user": "root"},
		"monitor":     map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		"dashboards":  map[string]any{"enabled": true},
	}
}

// TestOperatorLint: Helm's own linter has nothing to say of both charts but that there is no icon.
func TestOperatorLint(t *testing.T) {
	for folder, values := range map[string]map[string]any{operatorFolder: {}, clusterFolder: clusterValues()} {
		for _, m := range lint.All(folder, values, "hpc", true).Messages {
			if m.Severity > support.InfoSev {
				t.Error(folder, m.Error())
			}
		}
	}
}

// TestOperatorChart: the operator runs without rights of its own on the node, and may give
// away one role only.
func TestOperatorChart(t *testing.T) {
	r, err := Render(operatorFolder, "muster-operator", "muster-system", version, map[string]any{"clusterImage": "muster:2"})
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(r.All("deployment.yaml"), &d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if !*d.Spec.Template.Spec.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem ||
		strings.Join(c.Args, " ") != "--namespace=muster-system --lease=muster-operator --image=muster:2 --listen=:8080" {
		t.Errorf("%+v", d.Spec.Template.Spec)
	}
	if n := strings.Count(string(r.CRDs), "kind: CustomResourceDefinition"); n != 3 {
		t.Errorf("%d definitions, want MusterCluster, NodeSet and SlurmCluster", n)
	}
	if !strings.Contains(string(r.All("rbac.yaml")), "name: "+clusters.KeeperRole+"\n") {
		t.Error("the chart has no role", clusters.KeeperRole)
	}
}

// TestSameNodeSets: both charts define NodeSets in the same words, since the first that is
// installed counts.
func TestSameNodeSets(t *testing.T) {
	one, err := os.ReadFile(nodesFolder + "/crds/nodesets.yaml")
	if err != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(operatorFolder + "/crds/nodesets.yaml")
	if err != nil || !bytes.Equal(one, other) {
		t.Errorf("crds/nodesets.yaml of muster-operator is not that of muster-nodes: %v", err)
	}
}

// TestClusterChart: the values become a MusterCluster that the operator reads, and that its
// definition accepts; every dashboard is there.
func TestClusterChart(t *testing.T) {
	check := newValidator(t, operatorFolder+"/crds/musterclusters.yaml")
	for _, values := range []map[string]any{{}, clusterValues()} {
		r, err := Render(clusterFolder, "hpc", "hpc", version, values)
		if err != nil {
			t.Fatal(err)
		}
		text := r.All("cluster.yaml")
		if wrong := check(string(text)); wrong != "" {
			t.Errorf("%v: %s", values, wrong)
		}
		var u unstructured.Unstructured
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			t.Fatal(err)
		}
		c := &clusters.MusterCluster{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, c, true); err != nil {
			t.Fatal(err)
		}
		if _, err := clusters.Configure(c, c.Spec.Config.Files); err != nil {
			t.Error(err)
		}
	}
	r, err := Render(clusterFolder, "hpc", "hpc", version, clusterValues())
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../dashboards/generated/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := map[string]bool{}
	for part := range bytes.SplitSeq(r.All("dashboards.yaml"), []byte("\n---\n")) {
		var m corev1.ConfigMap
		if err := yaml.UnmarshalStrict(part, &m); err != nil {
			t.Fatal(err)
		}
		for name, text := range m.Data {
			found[name] = json.Valid([]byte(text)) && m.Labels["grafana_dashboard"] == "1"
		}
	}
	for _, file := range files {
		if !found[filepath.Base(file)] {
			t.Errorf("the chart has no valid dashboard %s", filepath.Base(file))
		}
	}
	monitors := string(r.All("monitor.yaml"))
	if !strings.Contains(monitors, "kind: ServiceMonitor") || !strings.Contains(monitors, "kind: PodMonitor") || strings.Count(monitors, "release: prometheus") != 2 {
		t.Error(monitors)
	}
}

// TestClusterValues: values that cannot work are refused before anything is installed.
func TestClusterValues(t *testing.T) {
	for want, change := range map[string]map[string]any{
		"replicas":       {"controllers": map[string]any{"replicas": 5}},
		"hostKeysSecret": {"login": map[string]any{"replicas": 1}},
		"nodeSet":        {"nodeSet": []any{}},
		"image":          {"image": ""},
	} {
		if _, err := Render(clusterFolder, "hpc", "hpc", version, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", change, err)
		}
	}
}

// TestClusterRules: the API server's own validators refuse clusters that cannot work, with
// words that help.
func TestClusterRules(t *testing.T) {
	check := newValidator(t, operatorFolder+"/crds/musterclusters.yaml")
	good := "apiVersion: musterhpc.github.io/v1alpha1\nkind: MusterCluster\nmetadata: {name: hpc, namespace: hpc}\nspec:\n" +
		"  image: muster\n  controllers: {replicas: 3}\n  config: {configMap: conf}\n  nodeSets: [{name: a, nodes: 'a[0-3]'}]\n"
	for _, text := range []string{good, strings.Replace(good, "replicas: 3", "replicas: 2, witness: {storage: {size: 4Gi}}", 1)} {
		if wrong := check(text); wrong != "" {
			t.Errorf("a good MusterCluster: %s\n%s", wrong, text)
		}
	}
	for _, c := range []struct{ old, bad, want string }{
		{"replicas: 3", "replicas: 5", "spec.controllers.replicas"},
		{"replicas: 3", "replicas: 2", "two controllers need a witness"},
		{"replicas: 3", "replicas: 3, witness: {}", "one or three have none"},
		{"replicas: 3}", "replicas: 3}\n  web: true", "web needs one controller"},
		{"replicas: 3}", "replicas: 3, storage: {size: big}}", "quantity"},
		{"configMap: conf", "files: {gres.conf: ''}", "files has to have slurm.conf"},
		{"configMap: conf", "configMap: conf, files: {slurm.conf: ''}", "either files or configMap"},
		{"configMap: conf", "files: {slurm.conf: '', muster.yaml: ''}", "muster.yaml is the operator's"},
		{"name: hpc,", "name: " + strings.Repeat("a", 41) + ",", "at most 40 characters"},
		{"a[0-3]", "A0", "spec.nodeSets[0].nodes"},
	} {
		text := strings.Replace(good, c.old, c.bad, 1)
		if wrong := check(text); text == good || !strings.Contains(wrong, c.want) {
			t.Errorf("%s: %q, want %q", c.bad, wrong, c.want)
		}
	}
}
