package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/spec"
)

func scopeOf(s *Store, w *Writer, now spec.Instant) query.Scope {
	return query.Scope{Database: s.db, Ledger: tallytest.LedgerID, Seq: w.pos.Seq, Gen: w.pos.Gen, Now: now}
}

// all asks for every part of a run.
func all(query.RunPart) bool { return true }

var keys = []query.RunKey{{UID: 3}, {UID: 4, Restarts: 1}}

func TestQueriesRun(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "q")
	ta := tally.New()
	w, _ := newWriter(t, s, ta)
	log := shortJobs(t, 10)
	if err := w.Write(context.Background(), fold(t, ta, log)); err != nil {
		t.Fatal(err)
	}
	sc := scopeOf(s, w, log[len(log)-1].At)
	a := query.Acct{
		Jobs:       []query.JobRef{{ID: 3, Task: -1}, {ID: 4, Task: 2}},
		Users:      []string{"alice"},
		Accounts:   []string{"ml"},
		Partitions: []string{"batch"},
		QOS:        []string{"normal"},
		Names:      []string{"train"},
		Assocs:     []uint32{1, 2},
		Nodes:      []string{"n1"},
		States:     []uint32{1, 2, 3, 4, 5, 100},
		End:        sc.Now,
	}
	run := func(name string, q query.Query) (n int) {
		if err := s.Query(context.Background(), q, func(func(...any) error) error { n++; return nil }); err != nil {
			t.Errorf("%s: %v\n%s", name, err, q.SQL)
		}
		t.Log(name, n)
		return n
	}
	over, live := a.Runs(sc, all, false)
	run("runs that are over", over)
	run("runs that are not", live)
	run("steps", a.Steps(sc, keys, query.StepParts{Amounts: true, Usage: true, Nodes: true, Tasks: true}))
	run("steps by number", a.StepsByNumber(sc, []uint32{3, 4}, query.StepParts{Amounts: true, Usage: true, Nodes: true, Tasks: true}))
	run("submission", query.Submission(sc, 3))
	run("live steps", a.LiveSteps(sc, keys))
	over, live = (&query.Acct{End: sc.Now, Users: []string{"7", "alice"}}).Runs(sc, all, false)
	if n := run("all that are over", over); n == 0 {
		t.Error("no run of a user by number and name")
	}
	run("all that are not", live)
	for _, tres := range []string{"cpu", "mem", "node", "gres/gpu", "gres/gpu:h100"} {
		r := query.Report{Start: log[0].At, End: sc.Now, TRES: tres}
		q, err := r.Used(sc, query.KeyAccount, query.KeyUser)
		if err != nil {
			t.Fatal(err)
		}
		run("used "+tres, q)
		if q, err = r.Sizes(sc, []int64{2, 8}, query.KeyAccount, query.KeyWCKey); err != nil {
			t.Fatal(err)
		}
		run("sizes "+tres, q)
		if q, err = r.Utilization(sc); err != nil {
			t.Fatal(err)
		}
		run("utilization "+tres, q)
		if q, err = r.Most(sc); err != nil {
			t.Fatal(err)
		}
		run("most "+tres, q)
	}
	run("tree", (&query.Report{}).Tree(sc))
	for _, src := range []kpi.Source{kpi.Runs, kpi.Nodes, kpi.GPUs} {
		q, _ := query.KPIs(sc, src, spec.Day, &kpi.Rates{})
		run(string(src), q)
	}
}

// TestMonthsLeftOut: what is asked about a window does not look at runs that
// were over in months before it; one that began then and ran into it is there.
func TestMonthsLeftOut(t *testing.T) {
	s := openStore(t, startEngine(t).Socket(), "months")
	ta := tally.New()
	w, _ := newWriter(t, s, ta)
	h := tallytest.New(t, spec.Instant(time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC).UnixNano()))
	h.Nodes(1, 64, 512_000, 8)
	run := func() spec.JobUID {
		uid := h.Submit(tallytest.Ask{
			Name:    "train",
			User:    "alice",
			UID:     1001,
			Account: "ml",
			QOS:     "normal",
			CPUs:    1,
			Mem:     4000,
		})
		h.Start(uid, "n1")
		h.Wait(spec.Hour)
		return uid
	}
	h.Finish(run(), spec.Usage{})
	long := run()
	h.Wait(60 * spec.Day)
	h.Finish(run(), spec.Usage{})
	h.Finish(long, spec.Usage{})
	if err := w.Write(t.Context(), fold(t, ta, h.Log)); err != nil {
		t.Fatal(err)
	}
	sc := scopeOf(s, w, h.Now.Add(spec.Hour))
	r := query.Report{Start: sc.Now - spec.Instant(spec.Day), End: sc.Now}
	charge := r.Charge(sc, &kpi.Rates{})
	asked := map[string]query.Query{"charge": charge, "demand": query.Demand(sc, spec.Day, 1)}
	asked["kpis"], _ = query.KPIs(sc, kpi.Runs, spec.Day, &kpi.Rates{})
	for name, of := range map[string]func() (query.Query, error){
		"used":           func() (query.Query, error) { return r.Used(sc, query.KeyAccount) },
		"sizes":          func() (query.Query, error) { return r.Sizes(sc, []int64{2}, query.KeyAccount) },
		"utilization":    func() (query.Query, error) { return r.Utilization(sc) },
		"in reservation": func() (query.Query, error) { return r.InReservation(sc, "r") },
	} {
		q, err := of()
		if err != nil {
			t.Fatal(err)
		}
		asked[name] = q
	}
	for name, q := range asked {
		looks, most := 0, uint64(0)
		q.SQL = "EXPLAIN indexes = 1 " + q.SQL
		mine := false
		err := s.Query(t.Context(), q, func(scan func(...any) error) error {
			var line string
			if err := scan(&line); err != nil {
				return err
			}
			if at := strings.Index(line, "ReadFromMergeTree ("); at >= 0 {
				mine = strings.HasSuffix(line, ".jobs)")
			}
			var parts, of uint64
			if _, text, ok := strings.Cut(line, "Parts: "); ok && mine {
				if n, _ := fmt.Sscanf(text, "%d/%d", &parts, &of); n == 2 { // the first is by the months
					looks, most, mine = looks+1, max(most, parts), false
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, q.SQL)
		}
		if looks == 0 || most != 1 {
			t.Errorf("%s: looks at %d of 2 months (%d times)", name, most, looks)
		}
	}
	runs := uint64(0)
	if err := s.Query(t.Context(), charge, func(scan func(...any) error) error {
		var account, user, cost string
		used := make([]string, len(query.Charged()))
		to := []any{&account, &user, &runs}
		for i := range used {
			to = append(to, &used[i])
		}
		return scan(append(to, &cost)...)
	}); err != nil || runs != 2 {
		t.Errorf("%d runs are charged, not that of the day and that of January: %v", runs, err)
	}
}
