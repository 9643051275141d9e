package alerts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhpc/muster/alerts"
)

// TestClustersOfOneStore evaluates every alert where three clusters share a Prometheus:
// two are ill in the same way, with nodes, jobs and users of the same names, and one is
// well. The alert fires for each of the two, names its cluster, and says nothing of the
// third; nor does a cluster that is well keep it quiet.
func TestClustersOfOneStore(t *testing.T) {
	dir, _ := apart(t)
	args := []string{"test", "rules"}
	for _, rule := range alerts.All() {
		var b strings.Builder
		fmt.Fprintf(&b, "rule_files: [%s.yaml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n", rule.Name)
		for cluster, series := range map[string][]string{"lab": rule.Fires.Series, "lab2": rule.Quiet.Series, "lab3": rule.Fires.Series} {
			for _, one := range series {
				name, values := inCluster(t, one, cluster)
				fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", name, values)
			}
		}
		// The case that stays quiet may need its own time for that.
		of := fmt.Sprintf(`ALERTS{alertname="%s",alertstate="firing",cluster`, rule.Name)
		fmt.Fprintf(&b, "    promql_expr_test:\n      - expr: group by (cluster) (%s!=\"lab2\"})\n        eval_time: %dm\n", of, rule.Fires.After)
		b.WriteString("        exp_samples:\n          - {labels: '{cluster=\"lab\"}', value: 1}\n          - {labels: '{cluster=\"lab3\"}', value: 1}\n")
		fmt.Fprintf(&b, "      - expr: group by (cluster) (%s=\"lab2\"})\n        eval_time: %dm\n        exp_samples: []\n", of, rule.Quiet.After)
		name := rule.Name + "_clusters.yaml"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	if out := tool(t, dir, "promtool", args...); strings.Count(out, "SUCCESS") != len(alerts.All()) {
		t.Errorf("%d of %d alerts passed", strings.Count(out, "SUCCESS"), len(alerts.All()))
	}
}

// TestPushedClusters: of clusters that push their metrics there is no up. One that goes on
// is well, and one that stops is down, by its name.
func TestPushedClusters(t *testing.T) {
	dir, _ := apart(t)
	const text = `rule_files: [MusterControllerDown.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'muster_ledger_events_total{cluster="lab"}', values: '5+1x20'}
      - {series: 'muster_ledger_events_total{cluster="lab2"}', values: '5+1x60'}
    promql_expr_test:
      - expr: group by (cluster) (ALERTS{alertstate="firing"})
        eval_time: 18m
        exp_samples: []
      - expr: group by (cluster) (ALERTS{alertstate="firing"})
        eval_time: 40m
        exp_samples: [{labels: '{cluster="lab"}', value: 1}]
`
	if err := os.WriteFile(filepath.Join(dir, "pushed.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	tool(t, dir, "promtool", "test", "rules", "pushed.yaml")
}

var ofCluster = regexp.MustCompile(`cluster="[^"]*"`)

// inCluster is a series of a case as another cluster has it.
func inCluster(t *testing.T, series, cluster string) (name, values string) {
	t.Helper()
	name, values, ok := strings.Cut(series, " ")
	if end := strings.LastIndex(series, "}"); end >= 0 {
		name = series[:end+1]
		values = strings.TrimSpace(series[end+1:])
	}
	if !ok {
		t.Fatalf("%q has no values", series)
	}
	label := fmt.Sprintf("cluster=%q", cluster)
	name = strings.ReplaceAll(name, `"GPU-`, `"GPU-`+cluster+`-`) // no two devices have one UUID
	switch {
	case ofCluster.MatchString(name):
		return ofCluster.ReplaceAllString(name, label), values
	case strings.HasSuffix(name, "}"):
		return strings.TrimSuffix(name, "}") + "," + label + "}", values
	}
	return name + "{" + label + "}", values
}
