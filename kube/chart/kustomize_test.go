package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// bases are the charts that have a base for kustomize too, with the values that it has.
// What a site changes it changes by patches of its overlay.
var bases = []struct {
	name   string
	values map[string]any
}{
	{"muster-kube", map[string]any{"muster": map[string]any{"addresses": []any{"https://muster:6820"}}}},
	{"muster-operator", map[string]any{}},
}

// TestKustomizeBase: a base has what its chart makes, so that one cannot have a right, a
// policy or an option that the other lacks. UPDATE_GOLDEN=1 writes it.
func TestKustomizeBase(t *testing.T) {
	for _, base := range bases {
		r, err := Render("../../deploy/helm/"+base.name, base.name, "muster-system", version, base.values)
		if err != nil {
			t.Fatal(err)
		}
		folder := "../../deploy/kustomize/" + base.name
		kustomization := "# Made from deploy/helm/" + base.name + " by the tests of kube/chart. Change the chart.\n" +
			"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - crds.yaml\n  - objects.yaml\n"
		for file, want := range map[string][]byte{
			"kustomization.yaml": []byte(kustomization),
			"crds.yaml":          r.CRDs,
			"objects.yaml":       r.All(),
		} {
			path := filepath.Join(folder, file)
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.MkdirAll(folder, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, want, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			have, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(have, want) {
				t.Errorf("%s differs from what the chart makes (%v): run UPDATE_GOLDEN=1 go test ./chart in kube", path, err)
			}
		}
	}
}
