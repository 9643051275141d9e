package health

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestJudge: each rule holds at its limit and fails beyond it; one that has failed
// holds again only beyond its margin.
func TestJudge(t *testing.T) {
	for _, rule := range Rules() {
		beyond := rule.Limit + 1
		back := rule.Limit - rule.Margin
		if rule.Below {
			beyond = rule.Limit - 1
			back = rule.Limit + rule.Margin
		}
		judge := func(value int64, before []Finding) []Finding {
			return Judge(Rules(), []Reading{{rule.Name, "it", value}}, before)
		}
		if found := judge(rule.Limit, nil); len(found) != 0 {
			t.Errorf("%s fails at its limit: %v", rule.Name, found)
		}
		found := judge(beyond, nil)
		if len(found) != 1 || found[0].Rule.Name != rule.Name || found[0].Value != beyond {
			t.Errorf("%s beyond its limit: %v", rule.Name, found)
			continue
		}
		if still := judge(rule.Limit, found); (len(still) == 1) != (rule.Margin > 0) {
			t.Errorf("%s back at its limit: %v", rule.Name, still)
		}
		if well := judge(back, found); len(well) != 0 {
			t.Errorf("%s beyond its margin: %v", rule.Name, well)
		}
		if gone := Judge(Rules(), nil, found); len(gone) != 0 {
			t.Errorf("%s of what is gone: %v", rule.Name, gone)
		}
		if text := found[0].String(); !strings.HasPrefix(text, rule.Name+": it ") {
			t.Errorf("%q", text)
		}
	}
}

// TestReason: only rules that drain are reasons, and what goes on failing is said
// with the value with which it began.
func TestReason(t *testing.T) {
	readings := []Reading{
		{"disk_space", "/tmp", 1},
		{"disk_space", "/scratch", 50},
		{"clock_error", "the clock", 16000},
		{"ib_port", "mlx5_0/1", 61},
	}
	found := Judge(Rules(), readings, nil)
	const want = "disk_space: /tmp has free space 1% (below 2%), holds again 1 % above the limit; " +
		"ib_port: mlx5_0/1 has been down for 61s (above 60s), holds again at the next measurement"
	if got := Reason(found, nil); got != want {
		t.Errorf("%q, not %q", got, want)
	}
	before := found
	readings[0].Value = 0
	readings[3].Value = 121
	found = Judge(Rules(), readings, before)
	if got := Reason(found, before); got != want {
		t.Errorf("later: %q, not %q", got, want)
	}
	before = Keep(found, before)
	readings[3].Value = 0
	found = Judge(Rules(), readings, before)
	if got := Reason(found, before); got != "disk_space: /tmp has free space 1% (below 2%), holds again 1 % above the limit" {
		t.Errorf("when one is over: %q", got)
	}
	worst, ok := Worst(Rules()[slices.Index(Names(), "disk_space")], readings)
	if !ok || worst.Subject != "/tmp" {
		t.Errorf("the worst is %+v", worst)
	}
}

func TestConfigure(t *testing.T) {
	rules, err := Configure([]string{"disk_space warn 5%", "clock_error drain 500ms", "stuck_tasks off", "memory_corrected warn 7"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]Rule{}
	for _, rule := range rules {
		got[rule.Name] = rule
	}
	if r := got["disk_space"]; r.Action != Warn || r.Limit != 5 {
		t.Errorf("%+v", r)
	}
	if r := got["clock_error"]; r.Action != Drain || r.Limit != 500 {
		t.Errorf("%+v", r)
	}
	if r := got["memory_corrected"]; r.Limit != 7 {
		t.Errorf("%+v", r)
	}
	if found := Judge(rules, []Reading{{"stuck_tasks", "7", 9999}}, nil); len(found) != 0 {
		t.Errorf("a rule that is off: %v", found)
	}
	bad := []string{
		"disk_space", "disk_space warn 5% more", "disk_spaec warn", "disk_space perhaps", "disk_space warn 5",
		"disk_space warn 100%", "disk_space warn -1%", "clock_error warn 5s", "ib_port warn x", "ib_port off",
	}
	for _, text := range bad[:9] {
		if _, err := Configure([]string{text}); !errors.Is(err, ErrRule) {
			t.Errorf("%q: %v", text, err)
		}
	}
	_, err = Configure(append(bad, "ib_port off"))
	if got := strings.Count(err.Error(), ErrRule.Error()+" \""); got != 11 {
		t.Errorf("%d problems are named, not 11: %v", got, err)
	}
}

func TestRulesAreInOrder(t *testing.T) {
	if names := Names(); !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("%v", names)
	}
}
