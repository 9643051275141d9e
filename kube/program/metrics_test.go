package program

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/musterhpc/muster/internal/catalogue"
)

// TestMetrics: each series of the catalogue can be used by its name and labels, and is then served
// as the catalogue says, which the documentation is made of.
func TestMetrics(t *testing.T) {
	known, err := catalogue.New(catalogue.Kubernetes())
	if err != nil {
		t.Fatal(err)
	}
	for endpoint, constant := range map[string]map[string]string{
		catalogue.KubeEndpoint:     {"cluster": "c"},
		catalogue.OperatorEndpoint: nil,
		catalogue.NodeSetsEndpoint: {"cluster": "c"},
	} {
		m := NewMetrics(endpoint, constant)
		for _, entry := range known.Served(endpoint) {
			values := slices.Repeat([]string{"v"}, len(entry.Labels)-len(constant))
			switch entry.Type {
			case catalogue.Counter:
				m.Counter(entry.Name, values...).Inc()
			case catalogue.Gauge, catalogue.Info:
				m.Gauge(entry.Name, values...).Set(1)
			case catalogue.Histogram:
				m.Histogram(entry.Name, values...).Observe(1)
			}
		}
		page := httptest.NewRecorder()
		m.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(page.Body)
		if err != nil {
			t.Fatal(err)
		}
		if families["process_cpu_seconds_total"] == nil || families["go_goroutines"] == nil {
			t.Errorf("%s says nothing about the process", endpoint)
		}
		var seen []catalogue.Seen
		for name, family := range families {
			if !strings.HasPrefix(name, "muster_") {
				continue // of the client library, as elsewhere not in the catalogue
			}
			s := catalogue.Seen{Name: name, Type: strings.ToLower(family.GetType().String()), Help: family.GetHelp()}
			for _, label := range family.GetMetric()[0].GetLabel() {
				s.Labels = append(s.Labels, label.GetName())
			}
			seen = append(seen, s)
		}
		if err := known.Conform(endpoint, seen, true); err != nil {
			t.Error(err)
		}
	}
}
