package query_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// all asks for every part of a run.
func all(query.RunPart) bool { return true }

var keys = []query.RunKey{{UID: 3}, {UID: 4, Restarts: 1}}

// TestNothingTyped: what a user types is bound, never part of the text; and
// every place in the text has its parameter, once.
func TestNothingTyped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typed := func(name string) []string {
			return rapid.SliceOfN(rapid.StringMatching(`tYpEd[ -~]{0,12}`), 0, 3).Draw(t, name)
		}
		a := query.Acct{Users: typed("users"), Accounts: typed("accounts"), Partitions: typed("partitions"), QOS: typed("qos"), Names: typed("names"),
			Nodes: typed("nodes"), States: rapid.SliceOfN(rapid.Uint32Range(0, 120), 0, 4).Draw(t, "states"),
			Duplicates: rapid.Bool().Draw(t, "D"), Start: spec.Instant(rapid.Int64Range(0, 1e18).Draw(t, "start")), End: 1e18}
		for range rapid.IntRange(0, 3).Draw(t, "jobs") {
			a.Jobs = append(a.Jobs, query.JobRef{ID: rapid.Uint32().Draw(t, "id"), Task: rapid.Int64Range(-1, 9).Draw(t, "task")})
		}
		s := query.Scope{Database: "muster", Seq: 7, Gen: 1, Now: 1e18}
		over, live := a.Runs(s, all, false)
		queries := []query.Query{over, live, a.Steps(s, keys, query.StepParts{Amounts: true, Usage: true, Nodes: true, Tasks: true}), a.LiveSteps(s, keys),
			a.StepsByNumber(s, []uint32{1, 2}, query.StepParts{})}
		r := query.Report{End: 1e18, Accounts: typed("accounts"), Users: typed("users"), Partitions: typed("partitions"), QOS: typed("qos"), WCKeys: typed("wckeys"), Nodes: typed("nodes"), Jobs: []uint64{3},
			TRES: "gres/" + rapid.StringMatching(`tYpEd[ -~]{0,8}`).Draw(t, "tres")}
		for _, make := range []func(query.Scope) (query.Query, error){func(s query.Scope) (query.Query, error) { return r.Used(s, query.KeyAccount, query.KeyWCKey) }, r.Utilization, r.Most,
			func(s query.Scope) (query.Query, error) { return r.Sizes(s, []int64{2, 8}, query.KeyAccount) }} {
			q, err := make(s)
			if err != nil {
				t.Fatal(err)
			}
			queries = append(queries, q)
		}
		for _, q := range queries {
			check(t, q)
		}
	})
	rates, err := kpi.ParseRates("EUR", "1.2", []string{"1990-01-01 cpu=1", "2001-09-08 cpu=1.5 mem=0.1 gres/tYpEd=2"}, []string{"1990-01-01 300"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range kpi.Sources() {
		q, names := query.KPIs(query.Scope{Database: "x", Now: 1e18}, source, spec.Day, &rates)
		if len(names) == 0 {
			t.Errorf("no figures over %s", source)
		}
		check(t, q)
	}
	check(t, query.Demand(query.Scope{Database: "x", Now: 1e18}, spec.Day, 3))
}

type failer interface {
	Fatalf(format string, args ...any)
}

func check(t failer, q query.Query) {
	if strings.Contains(q.SQL, "tYpEd") {
		t.Fatalf("what was typed is in the text:\n%s", q.SQL)
	}
	seen := map[string]bool{}
	for _, p := range q.Params {
		if seen[p.Name] {
			t.Fatalf("parameter %s is bound twice", p.Name)
		}
		seen[p.Name] = true
	}
	rest := q.SQL
	for {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return
		}
		name, tail, _ := strings.Cut(after, ":")
		if !seen[name] {
			t.Fatalf("{%s:…} has no value:\n%s", name, q.SQL)
		}
		rest = tail
	}
}

// TestWindow: the window that sacct means when -S or -E is not given.
func TestWindow(t *testing.T) {
	const midnight, now = 1000, 5000
	job, state := []query.JobRef{{ID: 1, Task: spec.NoTask}}, []uint32{uint32(spec.Failed)}
	for _, c := range []struct {
		name       string
		ask        query.Acct
		start, end spec.Instant
	}{
		{"nothing", query.Acct{}, midnight, now},
		{"-j", query.Acct{Jobs: job}, 1, now},
		{"-s", query.Acct{States: state}, now, now},
		{"-j -s", query.Acct{Jobs: job, States: state}, 1, now},
		{"-j -s from the beginning", query.Acct{Jobs: job, States: state, Start: 1}, 1, now},
		{"-S", query.Acct{Start: 2000}, 2000, now},
		{"-S -s", query.Acct{Start: 2000, States: state}, 2000, 2000},
		{"-S -E -s", query.Acct{Start: 2000, End: 3000, States: state}, 2000, 3000},
		{"-E", query.Acct{End: 3000}, midnight, 3000},
		{"-j -S", query.Acct{Jobs: job, Start: 2000}, 2000, now},
	} {
		c.ask.Window(now, midnight)
		if c.ask.Start != c.start || c.ask.End != c.end {
			t.Errorf("%s: %d to %d, want %d to %d", c.name, c.ask.Start, c.ask.End, c.start, c.end)
		}
	}
}

// TestNeedless: what every run meets is not asked for.
func TestNeedless(t *testing.T) {
	const midnight, now = 1000, 5000
	job := []query.JobRef{{ID: 1, Task: spec.NoTask}}
	for _, c := range []struct {
		name             string
		ask              query.Acct
		submitted, alive bool
	}{
		{"-j", query.Acct{Jobs: job}, false, false},
		{"-j -S", query.Acct{Jobs: job, Start: 2000}, false, true},
		{"-j -E", query.Acct{Jobs: job, End: 3000}, true, false},
		{"-u", query.Acct{Users: []string{"u"}}, true, true},
		{"-S -E", query.Acct{Start: 2000, End: 3000}, true, true},
		{"-S -E in the future", query.Acct{Start: 2000, End: 6000}, true, true},
		{"-j -E in the future", query.Acct{Jobs: job, End: 6000}, false, false},
	} {
		c.ask.Window(now, midnight)
		over, live := c.ask.Runs(query.Scope{Database: "x", Now: now}, all, false)
		for _, q := range []query.Query{over, live} {
			if strings.Contains(q.SQL, "submit <= ") != c.submitted || strings.Contains(q.SQL, "end >= ") != c.alive {
				t.Errorf("%s:\n%s", c.name, q.SQL)
			}
		}
	}
}

// TestEligible: a listing has the jobs that count already, a job that is named is shown anyway, and
// a job is pending from the moment on when it counts.
func TestEligible(t *testing.T) {
	const midnight, now = 1000, 5000
	job := []query.JobRef{{ID: 1, Task: spec.NoTask}}
	pending, failed := []uint32{uint32(spec.Pending)}, []uint32{uint32(spec.Failed)}
	for _, c := range []struct {
		name string
		ask  query.Acct
		want bool
	}{
		{"nothing", query.Acct{}, true},
		{"-S", query.Acct{Start: 2000}, true},
		{"-j", query.Acct{Jobs: job}, false},
		{"-s PD", query.Acct{States: pending}, true},
		{"-j -s PD", query.Acct{Jobs: job, States: pending}, true},
		{"-s F", query.Acct{States: failed}, false},
	} {
		c.ask.Window(now, midnight)
		over, live := c.ask.Runs(query.Scope{Database: "x", Now: now}, all, false)
		for _, q := range []query.Query{over, live} {
			if strings.Contains(q.SQL, "ifNull(eligible, start) <= ") != c.want {
				t.Errorf("%s:\n%s", c.name, q.SQL)
			}
		}
	}
}

// TestTRES: what a report cannot be about is refused.
func TestTRES(t *testing.T) {
	s := query.Scope{Database: "x"}
	for tres, want := range map[string][2]bool{"": {true, true}, "cpu": {true, true}, "mem": {true, true}, "node": {true, true}, "gres/gpu": {true, true},
		"gres/gpu:h100": {true, true}, "billing": {true, false}, "license/x": {true, false}, "fs/disk": {false, false}, "CPU": {false, false}} {
		r := query.Report{TRES: tres}
		_, used := r.Used(s)
		_, util := r.Utilization(s)
		_, most := r.Most(s)
		for i, err := range []error{used, util, most} {
			if (err == nil) != want[min(i, 1)] || (err != nil && !errors.Is(err, query.ErrTRES)) {
				t.Errorf("%q, report %d: %v", tres, i, err)
			}
		}
	}
}

func FuzzParseJobRef(f *testing.F) {
	for _, s := range []string{"1", "1_2", "1.batch", "12_3.0", "x", "1_", "4294967296", " 7 ", "12+1", "12+1.0", "0+1", "1_2+3", "4294967295+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := query.ParseJobRef(s)
		if err != nil {
			return
		}
		text := fmt.Sprint(ref.ID)
		if ref.Het != 0 {
			text = fmt.Sprintf("%d+%d", ref.Het, ref.ID-ref.Het)
		}
		if ref.Task != spec.NoTask {
			text += fmt.Sprintf("_%d", ref.Task)
		}
		if ref.Step != "" {
			text += "." + ref.Step
		}
		if again, err := query.ParseJobRef(text); err != nil || again != ref {
			t.Fatalf("%q is %+v, written %q, read as %+v %v", s, ref, text, again, err)
		}
	})
}
