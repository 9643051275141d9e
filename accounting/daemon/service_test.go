package daemon_test

import (
	"context"
	"fmt"
	"testing"
	"time"
	_ "time/tzdata" // the zones of these tests, wherever they run

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestDays: without a window sreport is about yesterday by the caller's
// calendar, sacct about today, and days of 23 and 25 hours are as long as
// they are.
func TestDays(t *testing.T) {
	h := tallytest.New(t, spec.Instant(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC).UnixNano()))
	h.Nodes(1, 4, 8000, 0)
	var ids []spec.JobUID
	// Jobs that end at these instants, one each.
	ends := []string{"2026-03-28T22:59:00Z", "2026-03-28T23:01:00Z", "2026-03-29T21:59:00Z", "2026-03-29T22:01:00Z", "2026-10-24T21:59:00Z", "2026-10-24T22:01:00Z",
		"2026-10-25T22:59:00Z", "2026-10-25T23:01:00Z"}
	for _, end := range ends {
		at, err := time.Parse(time.RFC3339, end)
		if err != nil {
			t.Fatal(err)
		}
		h.Now = spec.Instant(at.UnixNano()) - spec.Instant(spec.Minute)
		ids = append(ids, h.Submit(tallytest.Ask{Name: "x", User: "alice", Account: "ml", CPUs: 1}))
		h.Start(ids[len(ids)-1], "n1")
		h.Now = spec.Instant(at.UnixNano())
		h.Finish(ids[len(ids)-1], spec.Usage{})
	}
	ledger := newLedger(t)
	ledger.add(t, h.Log, 10)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.start()
	r.stored(uint64(len(h.Log)))
	for _, c := range []struct {
		now        string
		zone       string
		hours      int64 // of yesterday
		used       int64 // CPU-seconds of yesterday
		jobs       int   // that ended today, so far
		start, end string
	}{
		{"2026-03-30T10:00:00Z", "Europe/Berlin", 23, 120, 1, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"2026-03-30T10:00:00Z", "UTC", 24, 120, 0, "2026-03-29T00:00:00Z", "2026-03-30T00:00:00Z"},
		{"2026-10-26T10:00:00Z", "Europe/Berlin", 25, 120, 1, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"2026-03-29T22:30:00Z", "Europe/Berlin", 23, 120, 1, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"2026-03-29T12:00:00Z", "Asia/Kolkata", 24, 60, 1, "2026-03-27T18:30:00Z", "2026-03-28T18:30:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		r.clock.set(spec.Instant(now.UnixNano()))
		reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "cluster utilization", Zone: c.zone})
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(utc(reply.GetStart()), utc(reply.GetEnd()), " reported ", reply.GetRows()[0].GetCells()[7].GetInt())
		want := fmt.Sprint(c.start, c.end, " reported ", 4*3600*c.hours)
		if got != want {
			t.Errorf("%s in %s: %s, want %s", c.now, c.zone, got, want)
		}
		if c.zone != "Asia/Kolkata" && c.zone != "UTC" {
			top, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "user top", Zone: c.zone})
			if err != nil || len(top.GetRows()) != 1 || top.GetRows()[0].GetCells()[5].GetInt() != c.used {
				t.Errorf("%s in %s: %v %v", c.now, c.zone, top.GetRows(), err)
			}
		}
		rows := r.acct(&apiv1.AcctQuery{AllUsers: true, AllocationsOnly: true, Zone: c.zone})
		if len(rows) != c.jobs && c.zone == "Europe/Berlin" {
			t.Errorf("%s in %s: sacct shows %d jobs, want %d", c.now, c.zone, len(rows), c.jobs)
		}
	}
	if _, err := r.Service().Jobs(t.Context(), &apiv1.AcctQuery{Zone: "Atlantis"}); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("a zone that does not exist: %v", err)
	}
}

func utc(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339) }

// TestWhose: a user sees own jobs unless more is asked for; jobs that are
// named are shown whoever's they are; nothing that is typed becomes SQL.
func TestWhose(t *testing.T) {
	h, now := scenario(t)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 50)
	r := newRig(t, startEngine(t).Socket(), ledger)
	caller := daemon.Caller{User: "bob"}
	r.cfg.Identify = func(context.Context) daemon.Caller { return caller }
	var private []string
	r.cfg.Private = func(context.Context) []string { return private }
	r.clock.set(now)
	r.start()
	r.stored(uint64(len(h.Log)))
	count := func(q *apiv1.AcctQuery) int {
		q.AllocationsOnly = true
		return len(r.acct(q))
	}
	for _, c := range []struct {
		q    *apiv1.AcctQuery
		want int
	}{
		{&apiv1.AcctQuery{}, 4},
		{&apiv1.AcctQuery{AllUsers: true}, 6},
		{&apiv1.AcctQuery{Jobs: []string{"1"}}, 1},
		{&apiv1.AcctQuery{Users: []string{"alice"}}, 2},
		{&apiv1.AcctQuery{Users: []string{"alice' OR 1=1 --"}}, 0},
		{&apiv1.AcctQuery{Users: []string{"x\\', 'alice"}}, 0},
		{&apiv1.AcctQuery{AllUsers: true, Accounts: []string{"ml') OR ('' = '"}}, 0},
		{&apiv1.AcctQuery{AllUsers: true, Names: []string{"train", "a\nb\t'"}}, 1},
		{&apiv1.AcctQuery{AllUsers: true, Partitions: []string{"gpu"}, Qos: []string{"normal"}}, 1},
	} {
		if got := count(c.q); got != c.want {
			t.Errorf("%v: %d jobs, want %d", c.q, got, c.want)
		}
	}
	private = []string{"jobs", "usage"}
	for _, c := range []struct {
		q    *apiv1.AcctQuery
		want int
	}{{&apiv1.AcctQuery{}, 4}, {&apiv1.AcctQuery{AllUsers: true}, 4}, {&apiv1.AcctQuery{Jobs: []string{"1"}}, 0}, {&apiv1.AcctQuery{Users: []string{"alice"}}, 0},
		{&apiv1.AcctQuery{Users: []string{"alice", "bob"}}, 4}} {
		if got := count(c.q); got != c.want {
			t.Errorf("with private jobs, %v: %d jobs, want %d", c.q, got, c.want)
		}
	}
	if why, err := r.Service().Reasons(t.Context(), &apiv1.ReasonsQuery{Job: "1"}); err != nil || why.GetRun() != nil {
		t.Errorf("with private jobs, why of another's job: %v, %v", why, err)
	}
	if _, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "user top"}); spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("with private usage, a report: %v", err)
	}
	private = nil
	caller = daemon.Caller{Admin: true}
	if got := count(&apiv1.AcctQuery{}); got != 6 {
		t.Errorf("an administrator sees %d jobs", got)
	}
	for _, bad := range []string{"x", "1_", "1.", "1.x", "-1", "99999999999", "1_2_3", "1; DROP"} {
		if _, err := r.Service().Jobs(t.Context(), &apiv1.AcctQuery{Jobs: []string{bad}}); spec.CodeOf(err) != spec.CodeInvalidJobID {
			t.Errorf("job %q: %v", bad, err)
		}
	}
}

// TestRefresher: the figures are computed by themselves, over all windows and
// dimensions.
func TestRefresher(t *testing.T) {
	h, now := scenario(t)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 50)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.cfg.Refresh = spec.Hour // the first come at once
	r.clock.set(now)
	r.start()
	r.stored(uint64(len(h.Log)))
	find := func() (kpi.Value, bool) {
		for _, v := range r.KPIs() {
			if v.KPI == "cpu_efficiency" && v.By == kpi.ByCluster && v.Window == "1d" {
				return v, !v.Null
			}
		}
		return kpi.Value{}, false
	}
	v, ok := find()
	for ; !ok; v, ok = find() {
		if t.Context().Err() != nil {
			t.Fatal("no figures")
		}
	}
	if v.Key != "peer" || fmt.Sprintf("%.6f", v.Value) != "0.382716" {
		t.Errorf("%+v", v)
	}
	// Who asks gets the same, up to the service's now, whatever his clock says.
	reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "kpi", By: "cluster", Start: 1, End: 2, Window: int64(spec.Day)})
	if err != nil || reply.GetEnd() != int64(now) || reply.GetStart() != int64(now)-int64(spec.Day) || len(reply.GetRows()) != 1 {
		t.Fatalf("asked by the window: %v, %v", reply, err)
	}
	for i, c := range reply.GetColumns() {
		if got := reply.GetRows()[0].GetCells()[i].GetFloat(); c.GetName() == "cpu_efficiency" && got != v.Value {
			t.Errorf("asked by the window: %v, not %v", got, v.Value)
		}
	}
	// The first windows come before the last, which are waited for here.
	for seen := map[string]int{}; len(seen) != len(kpi.Windows())*len(kpi.Dimensions()); {
		if t.Context().Err() != nil {
			t.Fatal(seen)
		}
		clear(seen)
		for _, v := range r.KPIs() {
			seen[v.Window+" "+string(v.By)]++
		}
	}
}
