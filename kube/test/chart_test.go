package test

import (
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
	if n := strings.Count(out, "(server dry run)"); n != 21 {
		t.Errorf("%d parts:\n%s", n, out)
	}
}
