package daemon_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestMonths: a month that is archived and purged is gone and counted all the
// same: verify agrees, and reports over whole days say what they said. What was
// not archived as it is now stays, a file that has changed is noticed, and what
// is read back is what there was. Retention does the same by itself.
func TestMonths(t *testing.T) {
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	log := spanning(t, spec.Instant(april.AddDate(0, 0, -2).UnixNano()), 4*spec.Day)
	ledger := newLedger(t)
	ledger.add(t, log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.cfg.Archive = t.TempDir()
	r.clock.set(spec.Instant(april.AddDate(0, 0, 5).UnixNano()))
	r.start()
	r.stored(log[len(log)-1].Seq)
	m, err := query.ParseMonth("2026-03")
	if err != nil {
		t.Fatal(err)
	}
	verb := func(verb string) error {
		return r.Service().Maintain(&apiv1.MaintainRequest{Verb: verb, Name: "2026-03"}, &careStream{ctx: t.Context()})
	}
	good := func(when string) {
		t.Helper()
		if bad := r.care("verify", ""); bad != nil {
			t.Errorf("%s: %v", when, bad)
		}
	}
	count := func(table, where string) (n uint64) {
		t.Helper()
		err := r.store.Query(t.Context(), query.Query{SQL: "SELECT count() FROM muster." + table + " WHERE " + where}, func(scan func(...any) error) error { return scan(&n) })
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const old = "end < '2026-04-01 00:00:00'"
	state := func() (out string) {
		for _, a := range query.AgedTables() {
			err := r.store.Query(t.Context(), query.Query{SQL: fmt.Sprintf("SELECT concat(toString(count()), ' ', toString(sum(cityHash64(tuple(*))))) FROM muster.%s", a.Name)}, func(scan func(...any) error) error {
				var text string
				err := scan(&text)
				out += a.Name + " " + text + "\n"
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	reports := func() (out string) {
		for _, name := range []string{"cluster UserUtilizationByAccount", "job SizesByAccount", "cluster Utilization"} {
			reply := r.reportOf(t, &apiv1.ReportQuery{Report: name, Start: april.AddDate(0, 0, -2).UnixNano(), End: april.AddDate(0, 0, 1).UnixNano()})
			out += fmt.Sprint(reply.GetRows())
		}
		return out
	}
	// The days are added up soon after the last batch.
	for began := time.Now(); ; {
		if err := verb("purge"); err == nil || !strings.Contains(err.Error(), "not added up yet") {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("nothing is added up")
		}
		time.Sleep(20 * time.Millisecond) //muster:sleep until the writer has added up the days
	}
	good("at first")
	first, before := state(), reports()
	if err := verb("purge"); err == nil || !strings.Contains(err.Error(), "no whole archive") {
		t.Errorf("a month that is not archived is purged: %v", err)
	}
	for _, v := range []string{"archive", "purge"} {
		if err := verb(v); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		good("after " + v)
	}
	if n := count("jobs", old); n != 0 {
		t.Errorf("%d runs are left", n)
	}
	if after := reports(); after != before {
		t.Errorf("reports said\n%s\nand say\n%s", before, after)
	}
	files, err := filepath.Glob(filepath.Join(r.cfg.Archive, "*", "2026-03", "jobs-*.parquet"))
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	broken := append([]byte{}, whole...)
	broken[len(broken)/2] ^= 1
	if err := os.WriteFile(files[0], broken, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verb("unarchive"); err == nil || !strings.Contains(err.Error(), "has changed since it was archived") {
		t.Errorf("a file that has changed is read: %v", err)
	}
	if err := os.WriteFile(files[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again: nothing twice
		if err := verb("unarchive"); err != nil {
			t.Fatal(err)
		}
	}
	good("after unarchive")
	if got := state(); got != first {
		t.Errorf("what was read back is\n%swas\n%s", got, first)
	}
	t.Run("broken off", func(t *testing.T) {
		if err := verb("discard"); err != nil {
			t.Fatal(err)
		}
		if err := r.store.Exec(t.Context(), "ALTER TABLE muster.purges DELETE WHERE phase = 'done' SETTINGS mutations_sync = 1"); err != nil {
			t.Fatal(err)
		}
		if bad := fmt.Sprint(r.care("verify", "")); !strings.Contains(bad, "broken off") {
			t.Errorf("a purge that was broken off: %v", bad)
		}
		if err := verb("discard"); err != nil {
			t.Fatal(err)
		}
		good("after the next purge")
		if err := verb("unarchive"); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("retention", func(t *testing.T) {
		r.stop()
		r.cfg.Archive = t.TempDir()
		r.cfg.Retention, r.cfg.RetainEvery = map[string]spec.Span{"steps": 2 * spec.Day, "jobs": spec.Infinite, "job_nodes": 90 * spec.Day}, 20*spec.Millisecond
		r.start()
		for began := time.Now(); count("steps", old) != 0; {
			if time.Since(began) > time.Minute {
				t.Fatal("steps that are too old stay")
			}
			time.Sleep(20 * time.Millisecond) //muster:sleep until retention has looked
		}
		// The rows go first, the note that they went follows.
		for began := time.Now(); strings.Contains(fmt.Sprint(r.care("verify", "")), "broken off"); {
			if time.Since(began) > time.Minute {
				t.Fatal("the purge of retention does not end")
			}
			time.Sleep(20 * time.Millisecond) //muster:sleep until the purge is noted
		}
		if count("jobs", old) == 0 || count("job_nodes", "to < '2026-04-01 00:00:00'") == 0 || count("steps", "NOT "+old) == 0 {
			t.Error("what is to be kept is gone")
		}
		r.stop()
		r.cfg.Retention = nil
		r.start()
		r.stored(log[len(log)-1].Seq)
		// The steps are gone before it is noted that they are: what was stopped in
		// between is ended by the next look.
		r.until("the purge is noted", func() bool { return r.care("verify", "") == nil })
		good("after retention")
		if _, err := r.store.Unarchive(t.Context(), query.Scope{Database: "muster", Ledger: [16]byte{}, Cluster: "peer"}, m, r.cfg.Archive); err == nil {
			t.Error("an archive of another ledger is read")
		}
		if err := verb("unarchive"); err != nil {
			t.Fatal(err)
		}
		if got := state(); got != first {
			t.Errorf("what was read back is\n%swas\n%s", got, first)
		}
	})
}
