package chart

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/musterhpc/muster/kube/nodesets"
)

const nodesFolder = "../../deploy/helm/muster-nodes"

func nodeValues() map[string]any {
	return map[string]any{
		"controllers": []any{"ctl1.example.org:6817"},
		"podMonitor":  map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		"nodeSets": map[string]any{
			"cpu": map[string]any{"nodes": "c[0-3]"},
			"gpu": map[string]any{
				"nodes": "gpu[0-15]", "nodeSelector": map[string]any{"pool": "gpu"}, "hostNetwork": true, "setHostnameAsFQDN": false,
				"tolerations":  []any{map[string]any{"operator": "Exists"}},
				"volumes":      []any{map[string]any{"name": "home", "nfs": map[string]any{"server": "nfs", "path": "/home"}}},
				"volumeMounts": []any{map[string]any{"name": "home", "mountPath": "/home"}},
				"resources":    map[string]any{"limits": map[string]any{"nvidia.com/gpu": 8}},
				"sidecars":     []any{map[string]any{"name": "sssd", "image": "sssd"}},
			},
		},
	}
}

// TestNodesLint: Helm's own linter has nothing to say but that there is no icon.
func TestNodesLint(t *testing.T) {
	for _, m := range lint.All(nodesFolder, nodeValues(), "hpc", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m.Error())
		}
	}
}

// TestNodes: the values of a set become a template of whole pods.
func TestNodes(t *testing.T) {
	r, err := Render(nodesFolder, "nodes", "hpc", version, nodeValues())
	if err != nil {
		t.Fatal(err)
	}
	sets := map[string]*nodesets.NodeSet{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(r.All("nodesets.yaml")), 4096)
	for {
		var o unstructured.Unstructured
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		s := &nodesets.NodeSet{}
		// A field of the wrong kind or name would be dropped when pods are made.
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, s, true); err != nil {
			t.Fatal(err)
		}
		sets[s.Name] = s
	}
	gpu := sets["gpu"]
	if len(sets) != 2 || gpu == nil || gpu.Spec.Nodes != "gpu[0-15]" || gpu.Spec.Controllers[0] != "ctl1.example.org:6817" {
		t.Fatalf("%+v", sets)
	}
	pod := gpu.Spec.Template.Spec
	agent := pod.Containers[0]
	if agent.Name != nodesets.AgentContainer || !*agent.SecurityContext.Privileged || agent.VolumeMounts[0].MountPath != "/home" ||
		agent.Resources.Limits.Name("nvidia.com/gpu", "").Value() != 8 || len(pod.Containers) != 2 || !pod.HostNetwork ||
		pod.NodeSelector["pool"] != "gpu" || pod.Tolerations[0].Operator != corev1.TolerationOpExists || *pod.AutomountServiceAccountToken {
		t.Errorf("%+v", pod)
	}
	if cpu := sets["cpu"].Spec.Template.Spec; cpu.HostNetwork || len(cpu.Containers) != 1 || len(cpu.Volumes) != 0 {
		t.Errorf("%+v", cpu)
	}
	var policy networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict(r.All("network.yaml"), &policy); err != nil {
		t.Fatal(err)
	}
	if policy.Spec.PodSelector.MatchExpressions[0].Key != nodesets.SetLabel || len(policy.Spec.Ingress) != 1 || policy.Spec.Ingress[0].Ports != nil {
		t.Errorf("%+v", policy.Spec)
	}
	if monitor := string(r.All("podmonitor.yaml")); !strings.Contains(monitor, "honorLabels: true") || !strings.Contains(monitor, "release: prometheus") {
		t.Error(monitor)
	}
}

// TestNodesValues: values that cannot work are refused before anything is installed.
func TestNodesValues(t *testing.T) {
	for text, change := range map[string]func(v map[string]any){
		"controllers": func(v map[string]any) { v["controllers"] = []any{} },
		"pattern":     func(v map[string]any) { v["controllers"] = []any{"https://ctl1:6817"} },
		"nodes":       func(v map[string]any) { v["nodeSets"] = map[string]any{"a": map[string]any{}} },
		"nodeSelectors": func(v map[string]any) {
			v["nodeSets"] = map[string]any{"a": map[string]any{"nodes": "a", "nodeSelectors": map[string]any{}}}
		},
	} {
		v := nodeValues()
		change(v)
		if _, err := Render(nodesFolder, "nodes", "hpc", version, v); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v", v, err)
		}
	}
}
