package alerts_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/musterhpc/muster/alerts"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/telemetry"
)

// example reads the settings that the committed files are made from.
func example(t testing.TB) *alerts.Settings {
	t.Helper()
	data, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := alerts.Parse("example.yaml", data, "/etc/muster")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// written puts the generated files into a folder.
func written(t testing.TB, s *alerts.Settings) string {
	t.Helper()
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tool runs a real tool, or skips loudly where it is not installed.
func tool(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("NOT TESTED with the real %s: %v (deploy/deps/install.sh installs it)", name, err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// TestRulesFireAndStayQuiet runs every rule's two cases in promtool.
func TestRulesFireAndStayQuiet(t *testing.T) {
	dir := written(t, alerts.Defaults())
	out := tool(t, dir, "promtool", "check", "rules", alerts.RulesFile)
	if !strings.Contains(out, "SUCCESS") {
		t.Error(out)
	}
	dir, tests := apart(t)
	out = tool(t, dir, "promtool", append([]string{"test", "rules"}, tests...)...)
	if n := strings.Count(out, "SUCCESS"); n != len(alerts.All()) {
		t.Errorf("%d of %d alerts passed:\n%s", n, len(alerts.All()), out)
	}
}

// apart writes each alert with its cases into files of their own.
func apart(t *testing.T) (dir string, tests []string) {
	t.Helper()
	files, err := alerts.Defaults().Apart()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, "_test.yaml") {
			tests = append(tests, f.Name)
		}
	}
	return dir, tests
}

// TestACaseThatCannotFail turns the cases of each rule around: promtool must
// see that those that fire do not stay quiet, or the test above proves nothing.
func TestACaseThatCannotFail(t *testing.T) {
	dir, tests := apart(t)
	turned := regexp.MustCompile(`(?m)^ +exp_samples:\n +- labels: '\{\}'\n +value: 1\n`)
	for _, name := range tests {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), turned.ReplaceAll(data, nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skipf("NOT TESTED with the real promtool: %v", err)
	}
	cmd := exec.Command(promtool, append([]string{"test", "rules"}, tests...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if n := strings.Count(string(out), "expr:"); err == nil || n != len(alerts.All()) {
		t.Errorf("%d of %d firing cases were seen to fire (%v)", n, len(alerts.All()), err)
	}
}

// TestOtherToolsTakeTheFiles: vmalert takes the rules, amtool the
// configuration with its templates, and its routes lead where they should.
func TestOtherToolsTakeTheFiles(t *testing.T) {
	dir := written(t, example(t))
	t.Run("vmalert", func(t *testing.T) { tool(t, dir, "vmalert", "-dryRun", "-rule="+alerts.RulesFile) })
	t.Run("amtool", func(t *testing.T) {
		if out := tool(t, dir, "amtool", "check-config", alerts.AlertmanagerFile); !strings.Contains(out, "SUCCESS") {
			t.Error(out)
		}
		for labels, want := range map[string]string{
			"severity=critical audience=operators alertname=MusterControllerDown":       "pagerduty,email,webhook,slack",
			"severity=warning audience=operators alertname=MusterAgentDown":             "email,webhook,slack",
			"severity=info audience=operators alertname=MusterFailureRate":              "webhook,slack",
			"severity=info audience=users alertname=MusterJobGPUIdle user=ada":          "users",
			"severity=info muster_test=pagerduty audience=operators alertname=Whatever": "pagerduty",
		} {
			args := append([]string{"config", "routes", "test", "--config.file=" + alerts.AlertmanagerFile}, strings.Fields(labels)...)
			out := strings.TrimSpace(tool(t, dir, "amtool", args...))
			if out = out[strings.LastIndexByte(out, '\n')+1:]; out != want {
				t.Errorf("%s goes to %s, expected %s", labels, out, want)
			}
		}
	})
	t.Run("amtool without receivers", func(t *testing.T) {
		tool(t, written(t, alerts.Defaults()), "amtool", "check-config", alerts.AlertmanagerFile)
	})
}

// TestClosedWorld: every series and label of every rule is in the catalogue,
// and every label that a text uses is one that the alert has.
func TestClosedWorld(t *testing.T) {
	cat, err := catalogue.New(collector.Metrics(), telemetry.Metrics(), catalogue.Kubernetes())
	if err != nil {
		t.Fatal(err)
	}
	own := []string{"up", "scrape_duration_seconds"}
	check := func(name, text string) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v in %s", name, err, text)
			return
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			recorded := func(r alerts.Recording) bool { return r.Record == v.Name }
			if !ok || slices.ContainsFunc(alerts.Recordings(), recorded) || slices.Contains(own, v.Name) {
				return nil
			}
			m, ok := cat.Resolve(v.Name)
			if !ok {
				t.Errorf("%s: %s is in no catalogue", name, v.Name)
			}
			for _, l := range v.LabelMatchers {
				ofTarget := l.Name == "job" || l.Name == "cluster" && l.Value == "" // the series of agents get it from a scrape
				if l.Name != labels.MetricName && !ofTarget && !slices.Contains(m.Labels, l.Name) {
					t.Errorf("%s: %s has no label %s", name, v.Name, l.Name)
				}
			}
			return nil
		})
	}
	for _, g := range generatedRules(t, alerts.Defaults()) {
		check(g.Alert+g.Record, g.Expr)
	}
}

// generatedRules reads the rules back from the generated file.
func generatedRules(t *testing.T, s *alerts.Settings) []generatedRule {
	t.Helper()
	files, err := s.Files()
	if err != nil {
		t.Fatal(err)
	}
	var out []generatedRule
	for _, g := range readRules(t, files[0].Data) {
		out = append(out, g.Rules...)
	}
	return out
}

// TestUnitTestsHoldForOtherThresholds: the generated tests pass with a site's own
// thresholds, because the cases of the alerts that it changed are left out.
func TestUnitTestsHoldForOtherThresholds(t *testing.T) {
	text := "thresholds: {MusterNodesDown: {for: 9m}, MusterWaitLong: {above: 9h}, MusterGPUHot: {severity: info}}\n"
	s, err := alerts.Parse("a.yaml", []byte(text), "/etc")
	if err != nil {
		t.Fatal(err)
	}
	dir := written(t, s)
	tests, err := os.ReadFile(filepath.Join(dir, alerts.TestsFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"MusterNodesDown": false, "MusterWaitLong": false, "MusterGPUHot": true, "MusterAgentDown": true} {
		if got := strings.Contains(string(tests), "name: "+name+" fires"); got != want {
			t.Errorf("the tests have the cases of %s: %v, want %v", name, got, want)
		}
	}
}

// TestInhibitionsStayInTheirCluster: a fault in one cluster never hides one in
// another.
func TestInhibitionsStayInTheirCluster(t *testing.T) {
	files, err := alerts.Defaults().Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name != alerts.AlertmanagerFile {
			continue
		}
		rules := strings.Count(string(f.Data), "source_matchers:")
		bounded := strings.Count(string(f.Data), "equal: [cluster")
		if rules == 0 || bounded != rules {
			t.Errorf("%d of %d inhibitions are bounded to a cluster", bounded, rules)
		}
	}
}

// TestLimitsHaveTheUnitOfTheirValues: where a text shows its value as a time or
// a share, the limit beside it is one too.
func TestLimitsHaveTheUnitOfTheirValues(t *testing.T) {
	for _, g := range generatedRules(t, alerts.Defaults()) {
		text := g.Annotations["description"]
		_, limit, ok := strings.Cut(text, "(limit ")
		if !ok {
			continue
		}
		limit, _, _ = strings.Cut(limit, ")")
		for filter, unit := range map[string]string{"humanizePercentage }}": "%", "humanizeDuration }}": "smhd"} {
			if strings.Contains(text, filter) && !strings.Contains(unit, limit[len(limit)-1:]) {
				t.Errorf("%s shows its value with %s and the limit as %q", g.Alert, filter, limit)
			}
		}
	}
}

// TestEveryAlertIsComplete: what a person who is woken up needs.
func TestEveryAlertIsComplete(t *testing.T) {
	boards := map[string]dashboards.Board{}
	for _, b := range dashboards.All() {
		boards[b.UID] = b
	}
	names := map[string]bool{}
	for _, r := range alerts.All() {
		if names[r.Name] {
			t.Errorf("%s stands twice", r.Name)
		}
		names[r.Name] = true
		if !strings.HasPrefix(r.Name, "Muster") || r.Summary == "" || len(r.Detail) < 40 || len(r.Fires.Series) == 0 || len(r.Quiet.Series) == 0 {
			t.Errorf("%s is incomplete", r.Name)
		}
		if !strings.Contains(r.Detail, "$labels") && !strings.Contains(r.Detail, "$value") && r.Name != "MusterControllerDown" && r.Name != "MusterLeaderless" {
			t.Errorf("%s: the description has no value in it: %s", r.Name, r.Detail)
		}
		for _, p := range r.Params {
			if !strings.Contains(r.Expr, "$"+p.Name) {
				t.Errorf("%s: the threshold %s changes nothing", r.Name, p.Name)
			}
		}
		b, ok := boards[r.Board]
		for name := range r.Vars {
			if !slices.ContainsFunc(b.Vars, func(v dashboards.Var) bool { return v.Name == name }) {
				t.Errorf("%s: the dashboard %s has no variable %s", r.Name, r.Board, name)
			}
		}
		if !ok {
			t.Errorf("%s leads to the dashboard %s, which is not there", r.Name, r.Board)
		}
		text, err := os.ReadFile(filepath.Join("runbooks", r.Name+".md"))
		if err != nil {
			t.Errorf("%s has no runbook: %v", r.Name, err)
			continue
		}
		for _, want := range []string{"# " + r.Name + "\n", "## What it means", "## What to type", "## When it ends"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("runbooks/%s.md lacks %q", r.Name, want)
			}
		}
		if !regexp.MustCompile(`(?m)^    [a-z]`).Match(text) {
			t.Errorf("runbooks/%s.md says nothing to type", r.Name)
		}
	}
	entries, err := os.ReadDir("runbooks")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := strings.TrimSuffix(e.Name(), ".md"); !names[name] && e.Name() != "README.md" {
			t.Errorf("runbooks/%s belongs to no alert", e.Name())
		}
	}
}

// TestSeverityFollowsDuty: each alert says who must do what and how soon, and wakes
// somebody up only where that is within the hour.
func TestSeverityFollowsDuty(t *testing.T) {
	duties := alerts.Duties()
	for _, r := range alerts.All() {
		d, ok := duties[r.Name]
		if !ok || d.Who == "" || d.Do == "" {
			t.Errorf("%s asks nothing of anybody: %+v", r.Name, d)
			continue
		}
		delete(duties, r.Name)
		want, err := d.Severity()
		if err != nil || r.Severity != want {
			t.Errorf("%s is %s, and must be answered within %s: want %s (%v)", r.Name, r.Severity, d.Within, want, err)
		}
		if forUsers := r.Audience == alerts.Users; forUsers && d.Who != alerts.Owner {
			t.Errorf("%s goes to users and asks something of %s", r.Name, d.Who)
		}
	}
	for name := range duties {
		t.Errorf("the duty of %s belongs to no alert", name)
	}
}

// TestSettings reads wrong files: every complaint at once, with file and line.
func TestSettings(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"unknown key":       {"slak: {}\n", "a.yaml:1: unknown key slak"},
		"two problems":      {"evaluate: soon\ndashboards_url: grafana\n", `a.yaml:1: evaluate: "soon": want a number with s, m, h, d or w, such as 5m` + "\n" + `a.yaml:2: dashboards_url: "grafana" is not an http or https address`},
		"time zone":         {"business_hours: {days: monday, from: '08:00', to: '18:00', zone: Mars/X}\n", `a.yaml:1: business_hours.zone: "Mars/X" is no time zone such as Europe/Berlin`},
		"mail address":      {"email: {to: nobody at all, from: a@b, smtp: 'h:25'}\n", `a.yaml:1: email.to: "nobody at all" is no address such as ops@example.org`},
		"unknown alert":     {"thresholds:\n  AgentDown: {for: 1m}\n", "a.yaml:2: AgentDown: there is no such alert; did you mean MusterAgentDown?"},
		"unknown threshold": {"thresholds:\n  MusterAgentDown:\n    for: 1m\n    above: 3\n", "a.yaml:4: MusterAgentDown: has no threshold above; it has for, severity"},
		"wrong kind":        {"thresholds:\n  MusterScratchFull: {below: 5}\n", "a.yaml:2: MusterScratchFull: below: 5: want a share, from 0 to 1"},
		"no number":         {"thresholds:\n  MusterScratchFull: {below: NaN}\n", `a.yaml:2: MusterScratchFull: below: "NaN": want a number`},
		"wrong time":        {"thresholds:\n  MusterScratchFull:\n    for: 5\n", `a.yaml:3: MusterScratchFull: for: "5": want a number with s, m, h, d or w, such as 5m`},
		"missing secret":    {"slack:\n  channel: '#a'\n", "a.yaml:1: slack.webhook_url_file: is missing: a secret stands in a file of its own"},
		"nobody to tell":    {"user_notices: slack\n", `a.yaml:1: user_notices: "slack" is not a receiver that is set up (none is)`},
		"hours":             {"business_hours: {from: '18:00', to: '08:00'}\n", "a.yaml:1: business_hours: from 18:00 is not before to 08:00"},
		"days":              {"business_hours: {days: 'monday:sunday'}\n", `a.yaml:1: business_hours.days: "monday:sunday": sunday comes before monday in Alertmanager's week, which begins on Sunday; want a range such as sunday:saturday`},
		"keeps firing":      {"keep_firing: never\n", `a.yaml:1: keep_firing: "never": want a number with s, m, h, d or w, such as 5m, or off`},
		"not YAML":          {"a: [\n", "a.yaml:1: did not find expected node content"},
	} {
		_, err := alerts.Parse("a.yaml", []byte(tc.text), "/etc")
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s:\ngot  %v\nwant %s", name, err, tc.want)
		}
		var ps alerts.Problems
		if !errors.As(err, &ps) {
			t.Errorf("%s: %T", name, err)
		}
	}
	s, err := alerts.Parse("a.yaml", []byte("slack: {webhook_url_file: s/hook, channel: '#a'}\nthresholds: {MusterAgentDown: {for: 9m, severity: off}, MusterHot: {}}\n"), "/etc/m")
	if err == nil {
		t.Errorf("MusterHot was taken: %+v", s)
	}
	s, err = alerts.Parse("a.yaml", []byte("slack: {webhook_url_file: s/hook, channel: '#a'}\nthresholds: {MusterAgentDown: {severity: off}, MusterGPUHot: {above: 70, for: 0s, severity: critical}}\n"), "/etc/m")
	if err != nil {
		t.Fatal(err)
	}
	if p := s.Secrets()["slack.webhook_url_file"]; p != "/etc/m/s/hook" {
		t.Errorf("the secret is looked for at %s", p)
	}
	hot := 0
	for _, r := range generatedRules(t, s) {
		if r.Alert == "MusterAgentDown" {
			t.Error("an alert that is off was generated")
		}
		if r.Alert == "MusterGPUHot" && strings.Contains(r.Expr, "> 70)") && r.For == "" && r.Labels["severity"] == "critical" && strings.Contains(r.Annotations["description"], "limit 70") {
			hot++
		}
	}
	if hot != 1 {
		t.Error("the thresholds of MusterGPUHot did not reach the rule")
	}
	if _, err := alerts.Parse("init", alerts.Annotated(), "/"); err != nil {
		t.Errorf("what `muster alerts init` writes is refused: %v", err)
	}
}

// TestGenerated: what is committed is what the code makes.
func TestGenerated(t *testing.T) {
	files, err := example(t).Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join("generated", f.Name))
		if err != nil || !bytes.Equal(have, f.Data) {
			t.Errorf("generated/%s is stale (%v): run make generate", f.Name, err)
		}
	}
}

// TestCausesOutlastTheirConsequences: what keeps another alert quiet fires longer
// after its end than that, in proportion to what the site has set.
func TestCausesOutlastTheirConsequences(t *testing.T) {
	for setting, want := range map[string]map[string]string{
		"5m": {"MusterAgentDown": "5m", "MusterNodesDown": "7m", "MusterManyNodesOut": "9m", "MusterAgentsLost": "11m", "MusterControllerDown": "13m"},
		"1s": {"MusterAgentDown": "1s", "MusterNodesDown": "2s", "MusterAgentsLost": "3s"},
	} {
		s, err := alerts.Parse("a.yaml", []byte("keep_firing: "+setting+"\n"), "/etc")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range generatedRules(t, s) {
			if keep, ok := want[r.Alert]; ok && r.KeepFiring != keep {
				t.Errorf("keep_firing: %s: %s keeps firing for %s, want %s", setting, r.Alert, r.KeepFiring, keep)
			}
		}
	}
}
