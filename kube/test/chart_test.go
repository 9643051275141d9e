package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/kube/chart"
)

// TestChart: the API server accepts every part of the chart.
func TestChart(t *testing.T) {
	l := need(t)
	r, err := chart.Render(chartFolder, release, system, serverVersion, chartValues())
	if err != nil {
		t.Fatal(err)
	}
	kubectl := filepath.Join(l.kubeBin, "kubectl")
	out, warnings, err := l.feed(append(r.CRDs, r.All()...), kubectl, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
	if err != nil || warnings != "" {
		t.Fatalf("%v %s", err, warnings)
	}
	if n := strings.Count(out, "(server dry run)"); n != 22 {
		t.Errorf("%d parts:\n%s", n, out)
	}
}

// TestKustomize: kubectl builds the bases, and an overlay that changes an option and the image
// of one.
func TestKustomize(t *testing.T) {
	l := need(t)
	kubectl := filepath.Join(l.kubeBin, "kubectl")
	base, err := filepath.Abs("../../deploy/kustomize")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"muster-kube": "kind: MutatingAdmissionPolicy", "muster-operator": "name: musterclusters."} {
		out, _, err := l.run(kubectl, "kustomize", filepath.Join(base, name))
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	overlay := t.TempDir()
	link, err := filepath.Rel(overlay, filepath.Join(base, "muster-kube"))
	if err != nil {
		t.Fatal(err)
	}
	text := `resources: [` + link + `]
images: [{name: muster-kube, newName: registry.example.org/muster-kube, newTag: "2"}]
patches:
  - target: {kind: Deployment, name: muster-kube}
    patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/args/0", "value": "--muster=https://ctl1:6820"}]'
`
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _, err := l.run(kubectl, "kustomize", overlay)
	for _, want := range []string{"image: registry.example.org/muster-kube:2", "--muster=https://ctl1:6820"} {
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "https://muster:6820") {
			t.Errorf("the overlay lacks %s: %v\n%s", want, err, out)
		}
	}
	if _, warnings, err := l.feed([]byte(out), kubectl, "apply", "--dry-run=server", "--validate=strict", "-f", "-"); err != nil || warnings != "" {
		t.Errorf("%v %s", err, warnings)
	}
}
