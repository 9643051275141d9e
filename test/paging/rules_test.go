package paging

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/musterhpc/muster/alerts"
)

// shipped are the rules and inhibitions as a site gets them.
type shipped struct {
	dir     string
	rules   []rule
	wanted  map[string]bool // metrics that alerts read which notify somebody
	groupBy []string
	inhibit []inhibition
}

// inhibition is a rule of Alertmanager: an alert that matches target is not sent
// while one that matches source fires with equal labels.
type inhibition struct {
	source, target matchers
	equal          []string
}

// matchers are conditions on an alert's labels; Alertmanager's are Prometheus'.
type matchers []*labels.Matcher

func (ms matchers) match(set model.LabelSet) bool {
	for _, m := range ms {
		if !m.Matches(string(set[model.LabelName(m.Name)])) {
			return false
		}
	}
	return true
}

func (ms matchers) matchLabels(set labels.Labels) bool {
	for _, m := range ms {
		if !m.Matches(set.Get(m.Name)) {
			return false
		}
	}
	return true
}

func readShipped(t testing.TB) *shipped {
	t.Helper()
	s := &shipped{dir: t.TempDir(), wanted: map[string]bool{}}
	files, err := alerts.Defaults().Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(s.dir, f.Name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
		switch f.Name {
		case alerts.RulesFile:
			s.readRules(t, f.Data)
		case alerts.AlertmanagerFile:
			s.readInhibitions(t, f.Data)
		}
	}
	return s
}

func (s *shipped) readRules(t testing.TB, data []byte) {
	var file struct {
		Groups []struct {
			Rules []rule
		}
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		s.rules = append(s.rules, g.Rules...)
	}
	// A recorded series is read by rules below it.
	for i := len(s.rules) - 1; i >= 0; i-- {
		r := &s.rules[i]
		if !r.notifies() && !s.wanted[r.Record] {
			continue
		}
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok {
				s.wanted[v.Name] = true
			}
			return nil
		})
	}
	if len(s.wanted) == 0 {
		t.Fatal("no rule reads anything")
	}
}

func (s *shipped) readInhibitions(t testing.TB, data []byte) {
	var file struct {
		Route struct {
			GroupBy []string `yaml:"group_by"`
		}
		Inhibit []struct {
			Source []string `yaml:"source_matchers"`
			Target []string `yaml:"target_matchers"`
			Equal  []string
		} `yaml:"inhibit_rules"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	s.groupBy = file.Route.GroupBy
	read := func(list []string) matchers {
		ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector("{" + strings.Join(list, ",") + "}")
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	for _, r := range file.Inhibit {
		s.inhibit = append(s.inhibit, inhibition{read(r.Source), read(r.Target), r.Equal})
	}
	if len(s.inhibit) == 0 || len(s.groupBy) == 0 {
		t.Fatal("alertmanager.yml has no inhibitions or no grouping")
	}
}

// inhibited tells whether another alert that fires keeps one from being sent.
func (s *shipped) inhibited(one model.LabelSet, all []model.LabelSet) bool {
	for _, rule := range s.inhibit {
		if !rule.target.match(one) {
			continue
		}
		for _, other := range all {
			differs := func(label string) bool { return one[model.LabelName(label)] != other[model.LabelName(label)] }
			if rule.source.match(other) && !slices.ContainsFunc(rule.equal, differs) {
				return true
			}
		}
	}
	return false
}

// question selects the firing alerts whose severity notifies somebody within the day.
const question = `ALERTS{alertstate="firing",severity=~"critical|warning"}`

var (
	// promtool prints each question whose answer is not empty, with the answer.
	answer = regexp.MustCompile(`(?s)expr: "ALERTS.*?time: ([0-9hms]+),.*?got:"?(.*?)(?:\n\n|\n\s+expr:|$)`)
	one    = regexp.MustCompile(`\{([^{}]*)\} 1E\+00`)
	pair   = regexp.MustCompile(`(\w+)=\\?"((?:[^"\\]|\\\\.)*?)\\?"`)
)

// firing has promtool evaluate the rules over the series: the alerts that fire, by
// minute.
func (s *shipped) firing(t testing.TB, r *recorder) map[int][]model.LabelSet {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skipf("NOT TESTED without promtool: %v (deploy/deps/install.sh installs it)", err)
	}
	var test bytes.Buffer
	if err := r.write(&test, alerts.RulesFile, question); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "replay.yaml"), test.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(promtool, "test", "rules", "replay.yaml")
	cmd.Dir = s.dir
	// promtool fails where an answer is not empty: the answers are what is wanted.
	out, _ := cmd.CombinedOutput()
	fired := map[int][]model.LabelSet{}
	for _, m := range answer.FindAllStringSubmatch(string(out), -1) {
		at, err := model.ParseDuration(m[1])
		if err != nil {
			t.Fatalf("promtool wrote %q: %v", m[0], err)
		}
		minute := int(at / model.Duration(60e9))
		for _, alert := range one.FindAllStringSubmatch(m[2], -1) {
			set := model.LabelSet{}
			for _, p := range pair.FindAllStringSubmatch(alert[1], -1) {
				set[model.LabelName(p[1])] = model.LabelValue(p[2])
			}
			fired[minute] = append(fired[minute], set)
		}
	}
	if !bytes.Contains(out, []byte("SUCCESS")) && len(fired) == 0 {
		t.Fatalf("promtool: %s", out[:min(len(out), 2000)])
	}
	return fired
}

// notice is something that people are told: a group of alerts from its first
// minute to its last.
type notice struct {
	alert, severity, group string
	from, to               int
}

func (n notice) String() string {
	return fmt.Sprintf("%s %s{%s} from minute %d to %d", n.severity, n.alert, n.group, n.from, n.to)
}

// notices are what Alertmanager sends: alerts that are not inhibited, together
// where they are of one group, again after they were over.
func (s *shipped) notices(fired map[int][]model.LabelSet, minutes int) []notice {
	var out []notice
	open := map[string]int{} // by group, its place in out
	for minute := range minutes {
		now := map[string]bool{}
		for _, alert := range fired[minute] {
			if s.inhibited(alert, fired[minute]) {
				continue
			}
			var key []string
			for _, label := range s.groupBy {
				key = append(key, label+"="+strconv.Quote(string(alert[model.LabelName(label)])))
			}
			group := strings.Join(key, ",")
			now[group] = true
			at, ok := open[group]
			if !ok {
				at = len(out)
				open[group] = at
				out = append(out, notice{alert: string(alert["alertname"]), severity: string(alert["severity"]), group: group, from: minute})
			}
			out[at].to = minute
		}
		for group := range open {
			if !now[group] {
				delete(open, group)
			}
		}
	}
	return out
}
