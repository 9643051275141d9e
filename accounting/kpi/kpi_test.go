package kpi_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/kpi"
)

// TestDefinitions: every definition is whole, and no name is used twice.
func TestDefinitions(t *testing.T) {
	seen := map[string]bool{}
	name := regexp.MustCompile(`^muster_kpi_[a-z0-9_]+_(ratio|seconds|second)$`)
	for _, k := range kpi.All() {
		if k.Name == "" || k.Title == "" || k.Unit == "" || k.Formula == "" || k.Source == "" || k.Num == "" || k.From == "" || k.Scale == 0 || len(k.Edges) == 0 {
			t.Errorf("%s: the definition has gaps: %+v", k.Name, k)
		}
		if seen[k.Name] || seen[k.Metric] {
			t.Errorf("%s: name or metric is used twice", k.Name)
		}
		seen[k.Name], seen[k.Metric] = true, true
		if !name.MatchString(k.Metric) {
			t.Errorf("%s: metric %s", k.Name, k.Metric)
		}
		if k.Unit == kpi.Ratio && (k.Den == "") == (k.Over == kpi.NoCapacity) {
			t.Errorf("%s: a ratio has one denominator", k.Name)
		}
		if got, ok := kpi.Find(k.Name); !ok || got.Metric != k.Metric {
			t.Errorf("%s is not found", k.Name)
		}
	}
	for _, want := range []string{"cpu_efficiency", "memory_waste", "memory_waste_share", "wait_p50", "wait_p95", "wait_p99", "gpu_occupancy",
		"gpu_allocation", "failure_rate", "utilisation", "throughput"} {
		if !seen[want] {
			t.Errorf("%s is not defined", want)
		}
	}
	if _, ok := kpi.Find("nonsense"); ok {
		t.Error("nonsense is found")
	}
}

// TestMarkdown: docs/kpis.md is what the definitions say.
func TestMarkdown(t *testing.T) {
	want := kpi.Markdown()
	for _, k := range kpi.All() {
		if !strings.Contains(want, "\n## "+k.Name+"\n") {
			t.Errorf("%s has no section", k.Name)
		}
	}
	got, err := os.ReadFile("../../docs/kpis.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/kpis.md is not what the definitions say: run `make generate` and commit the result")
	}
}
