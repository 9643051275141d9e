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
	name := regexp.MustCompile(`^muster_kpi_([a-z0-9_]+_(ratio|seconds|second|joules|grams)|cost|fairshare_drift_slope)$`)
	for _, k := range kpi.All() {
		if k.Name == "" || k.Title == "" || k.Unit == "" || k.Formula == "" || k.Source == "" || k.Num == "" || k.From == "" || k.Scale == 0 || len(k.Edges) == 0 {
			t.Errorf("%s: the definition has gaps: %+v", k.Name, k)
		}
		if seen[k.Name] || seen[k.Metric+k.Class] {
			t.Errorf("%s: name or metric is used twice", k.Name)
		}
		seen[k.Name], seen[k.Metric+k.Class] = true, true
		if !name.MatchString(k.Metric) {
			t.Errorf("%s: metric %s", k.Name, k.Metric)
		}
		if k.Unit == kpi.Ratio && k.Source != kpi.Associations && (k.Den == "") == (k.Over == kpi.NoCapacity) {
			t.Errorf("%s: a ratio has one denominator", k.Name)
		}
		if got, ok := kpi.Find(k.Name); !ok || got.Metric != k.Metric {
			t.Errorf("%s is not found", k.Name)
		}
	}
	for _, want := range []string{"cpu_efficiency", "memory_waste", "memory_waste_share", "wait_p50", "wait_p95", "wait_p99", "gpu_occupancy",
		"wait_eligible_p50", "wait_eligible_p95", "wait_eligible_p99", "bounded_slowdown", "expansion_factor", "gpu_efficiency", "gpu_idle", "gpu_allocation",
		"failure_rate", "failure_rate_timeout", "lost_gpu_hours_memory", "fairshare_drift", "fairshare_drift_slope", "utilisation", "throughput",
		"energy", "carbon", "cost", "goodput", "gpu_bought", "gpu_ladder_held_idle", "gpu_ladder_failed_node"} {
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
