package clickhouse

import (
	"context"
	"testing"

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
	a := query.Acct{Jobs: []query.JobRef{{ID: 3, Task: -1}, {ID: 4, Task: 2}}, Users: []string{"alice"}, Accounts: []string{"ml"}, Partitions: []string{"batch"}, QOS: []string{"normal"},
		Names: []string{"train"}, Assocs: []uint32{1, 2}, Nodes: []string{"n1"}, States: []uint32{1, 2, 3, 4, 5, 100}, End: sc.Now}
	run := func(name string, q query.Query) (n int) {
		if err := s.Query(context.Background(), q, func(func(...any) error) error { n++; return nil }); err != nil {
			t.Errorf("%s: %v\n%s", name, err, q.SQL)
		}
		t.Log(name, n)
		return n
	}
	over, live := a.Runs(sc, all)
	run("runs that are over", over)
	run("runs that are not", live)
	run("steps", a.Steps(sc, keys, query.StepParts{Amounts: true, Usage: true, Nodes: true, Tasks: true}))
	run("submission", query.Submission(sc, 3))
	run("live steps", a.LiveSteps(sc, keys))
	over, live = (&query.Acct{End: sc.Now, Users: []string{"7", "alice"}}).Runs(sc, all)
	plain := run("all that are over", over)
	over.Plain = false
	if n := run("all that are over, planned the long way", over); n != plain || n == 0 {
		t.Errorf("%d runs, and %d if they are planned the short way", n, plain)
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
	}
	run("tree", (&query.Report{}).Tree(sc))
	for _, src := range []kpi.Source{kpi.Runs, kpi.Nodes, kpi.GPUs} {
		q, _ := query.KPIs(sc, src, spec.Day, &kpi.Rates{})
		run(string(src), q)
	}
}
