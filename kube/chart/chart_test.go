package chart

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	folder  = "../../deploy/helm/muster-kube"
	version = "v1.36.3"
)

func values() map[string]any {
	return map[string]any{"muster": map[string]any{"addresses": []any{"https://one:6820", "https://two:6820"}}}
}

// TestLint: Helm's own linter has nothing to say but that there is no icon.
func TestLint(t *testing.T) {
	for _, m := range lint.All(folder, values(), "muster-system", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m.Error())
		}
	}
}

// TestRender: every part is there once, and the program gets the values.
func TestRender(t *testing.T) {
	r, err := Render(folder, "muster-kube", "muster-system", version, values())
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(append(slices.Clone(r.CRDs), r.All()...)), 4096)
	for {
		var o metav1.TypeMeta
		if err := decoder.Decode(&o); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		kinds[o.Kind]++
	}
	for kind, n := range map[string]int{"CustomResourceDefinition": 1, "ServiceAccount": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "Role": 1,
		"RoleBinding": 1, "Deployment": 1, "MutatingAdmissionPolicy": 1, "MutatingAdmissionPolicyBinding": 1,
		"ValidatingAdmissionPolicy": 2, "ValidatingAdmissionPolicyBinding": 2} {
		if kinds[kind] != n {
			t.Errorf("%d of kind %s, want %d", kinds[kind], kind, n)
		}
	}
	var d appsv1.Deployment
	if err := yaml.Unmarshal(r.All("deployment.yaml"), &d); err != nil {
		t.Fatal(err)
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	for _, want := range []string{"--muster=https://one:6820", "--muster=https://two:6820", "--namespace=muster-system", "--lease=muster-kube",
		"--muster-ca=/etc/muster-kube/ca/ca.crt"} {
		if !slices.Contains(args, want) {
			t.Errorf("%q lacks %s", args, want)
		}
	}
}

// TestDRA: the node program is there when it is asked for, with its classes and without
// rights to write.
func TestDRA(t *testing.T) {
	v := values()
	v["dra"] = map[string]any{"enabled": true, "deviceClasses": []any{map[string]any{"name": "any"},
		map[string]any{"name": "h100.gpu", "gresType": "h100"}}}
	r, err := Render(folder, "muster-kube", "muster-system", version, v)
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.DaemonSet
	if err := yaml.Unmarshal(r.All("dra.yaml"), &d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if !slices.Contains(c.Args, "--kubelet-dir=/var/lib/kubelet") || len(c.VolumeMounts) != 5 || d.Spec.Template.Spec.ServiceAccountName != "muster-kube-dra" {
		t.Errorf("%+v", d.Spec.Template.Spec)
	}
	access := string(r.All("dra-access.yaml"))
	for _, want := range []string{
		"kind: DeviceClass\nmetadata:\n  name: any\n", `musterhpc.github.io/gres-type: ""`, `musterhpc.github.io/gres-type: "h100"`,
		`device.driver == "gpu.musterhpc.github.io" && device.attributes["gpu.musterhpc.github.io"].gresType == "h100"`,
	} {
		if !strings.Contains(access, want) {
			t.Errorf("no %q in\n%s", want, access)
		}
	}
	v["dra"] = map[string]any{"enabled": true, "deviceClasses": []any{map[string]any{"name": "Any"}}}
	if _, err := Render(folder, "muster-kube", "muster-system", version, v); err == nil || !strings.Contains(err.Error(), "pattern") {
		t.Errorf("a class that Kubernetes refuses: %v", err)
	}
}

// TestPodMonitor: both programs are scraped where the site asks for it, through the same port that
// their policies then open to those who scrape.
func TestPodMonitor(t *testing.T) {
	for path, v := range map[string]map[string]any{folder: values(), operatorFolder: {}} {
		name := filepath.Base(path)
		r, err := Render(path, name, "muster-system", version, v)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(r.All()); strings.Contains(text, "PodMonitor") || strings.Contains(text, "ingress:") {
			t.Errorf("%s has a PodMonitor that nobody asked for:\n%s", name, text)
		}
		v["podMonitor"] = map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}}
		v["networkPolicy"] = map[string]any{"metricsFrom": []any{map[string]any{"namespaceSelector": map[string]any{}}}}
		r, err = Render(path, name, "muster-system", version, v)
		if err != nil {
			t.Fatal(err)
		}
		var d appsv1.Deployment
		if err := yaml.UnmarshalStrict(r.All("deployment.yaml"), &d); err != nil {
			t.Fatal(err)
		}
		port := d.Spec.Template.Spec.Containers[0].Ports[0]
		var monitor struct {
			metav1.ObjectMeta `json:"metadata"`
			Spec              struct {
				Selector            metav1.LabelSelector
				PodMetricsEndpoints []struct {
					Port, Interval string
					HonorLabels    bool
				}
			}
		}
		if err := yaml.Unmarshal(r.All("podmonitor.yaml"), &monitor); err != nil {
			t.Fatal(err)
		}
		at := monitor.Spec.PodMetricsEndpoints[0]
		if at.Port != port.Name || at.Interval != "15s" || !at.HonorLabels || monitor.Labels["release"] != "prometheus" {
			t.Errorf("%s: %+v", name, monitor)
		}
		selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(d.Spec.Template.Labels)) {
			t.Errorf("%s: the PodMonitor does not find the pods: %v %v", name, monitor.Spec.Selector, err)
		}
		var policy networkingv1.NetworkPolicy
		if err := yaml.UnmarshalStrict(r.All("network.yaml"), &policy); err != nil {
			t.Fatal(err)
		}
		if len(policy.Spec.Ingress) != 1 || policy.Spec.Ingress[0].Ports[0].Port.IntVal != port.ContainerPort {
			t.Errorf("%s: %+v", name, policy.Spec)
		}
	}
}

// TestValues: values that cannot work are refused before anything is installed.
func TestValues(t *testing.T) {
	for text, change := range map[string]func(v map[string]any){
		"addresses": func(v map[string]any) { v["muster"] = map[string]any{"addresses": []any{}} },
		"pattern":   func(v map[string]any) { v["muster"] = map[string]any{"addresses": []any{"http://one:6820"}} },
		"replica":   func(v map[string]any) { v["replica"] = 3 },
		"minimum":   func(v map[string]any) { v["replicas"] = 0 },
	} {
		v := values()
		change(v)
		if _, err := Render(folder, "muster-kube", "muster-system", version, v); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v", v, err)
		}
	}
	if _, err := Render(folder, "muster-kube", "muster-system", "v1.34.0", values()); err == nil || !strings.Contains(err.Error(), "kubeVersion") {
		t.Errorf("a server without MutatingAdmissionPolicy v1: %v", err)
	}
}
