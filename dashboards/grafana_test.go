package dashboards_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/musterhpc/muster/dashboards"
)

// TestGrafanaTakesTheFiles reads the generated JSON back as strictly as the
// SDK can: unknown, mistyped and missing fields, and values out of range.
func TestGrafanaTakesTheFiles(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	query := func(raw []byte) (variants.Dataquery, error) {
		var q dashboards.ClickHouse
		d := json.NewDecoder(bytes.NewReader(raw))
		d.DisallowUnknownFields()
		err := d.Decode(&q)
		return q, err
	}
	cog.NewRuntime().RegisterDataqueryVariant(variants.DataqueryConfig{Identifier: "grafana-clickhouse-datasource", DataqueryUnmarshaler: query, StrictDataqueryUnmarshaler: query})
	files, err := dashboards.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		var d dashboard.Dashboard
		if err := d.UnmarshalJSONStrict(f.Data); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		overlap(t, f.Name, d)
	}
}

// overlap finds panels that lie on one another or beyond the edge.
func overlap(t *testing.T, name string, d dashboard.Dashboard) {
	type cell struct{ x, y uint32 }
	taken := map[cell]string{}
	for _, p := range d.Panels {
		if p.Panel == nil {
			continue
		}
		g := p.Panel.GridPos
		if g.X+g.W > 24 {
			t.Errorf("%s: %s reaches beyond the right edge (%d + %d)", name, *p.Panel.Title, g.X, g.W)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[cell{x, y}]; other != "" {
					t.Fatalf("%s: %s lies on %s", name, *p.Panel.Title, other)
				}
				taken[cell{x, y}] = *p.Panel.Title
			}
		}
	}
}

// TestGenerated: what is committed is what the code makes, and nothing else.
func TestGenerated(t *testing.T) {
	files, err := dashboards.Files()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range files {
		want = append(want, f.Name)
		have, err := os.ReadFile(filepath.Join("generated", f.Name))
		if err != nil || !bytes.Equal(have, f.Data) {
			t.Errorf("generated/%s is stale (%v): run make generate", f.Name, err)
		}
	}
	entries, err := os.ReadDir("generated")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") && !slices.Contains(want, e.Name()) {
			t.Errorf("generated/%s belongs to no dashboard: remove it", e.Name())
		}
	}
}
