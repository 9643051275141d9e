package tally_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/spec"
)

// act lets something happen to random jobs.
func act(r *rand.Rand, h *tallytest.History, steps int) {
	ask := tallytest.Ask{Name: "a", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 1, Mem: 10}
	for range steps {
		h.Wait(spec.Span(1+r.IntN(60)) * spec.Second)
		uid := spec.JobUID(1 + r.IntN(int(h.State.NextUID)))
		j := h.State.Job(uid)
		switch {
		case j == nil:
			h.Submit(ask)
		case j.State == spec.Pending:
			h.Start(uid, "n1")
		case j.State == spec.Running && r.IntN(4) == 0:
			h.Done(uid, spec.Usage{UserCPU: spec.Second}, spec.ExitStatus{})
			h.Requeue(uid, spec.Preempted)
		case j.State == spec.Running:
			h.Finish(uid, spec.Usage{UserCPU: spec.Second})
		}
	}
}

// countAll folds the rest of a history and gives the rows of runs that it makes.
func countAll(t *testing.T, counted *tally.Tally, h *tallytest.History) []tally.JobRow {
	t.Helper()
	for i := int(counted.Seq()); i < len(h.Log); i++ {
		if err := counted.Apply(&h.Log[i]); err != nil {
			t.Fatal(err)
		}
	}
	return counted.Take().Jobs
}

// TestARunIsCountedOnce: histories part and both go on. A run that began before that
// is one run, with one row, in whichever of them it ends, also where the counting goes
// on from a snapshot behind the place where they parted. No two rows have one key.
func TestARunIsCountedOnce(t *testing.T) {
	type start struct {
		uid     uint64
		attempt uint32
		at      tally.Micros
	}
	type key struct {
		uid      uint64
		restarts uint32
	}
	both := 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 13))
		lost := tallytest.New(t, spec.AtUnix(1_700_000_000))
		lost.Nodes(1, 64, 512_000, 0)
		lost.Accounts([]string{"ml"}, map[string][]string{"alice": {"ml"}})
		act(r, lost, 10+r.IntN(20))
		kept := lost.Copy()
		counted := tally.New()
		rows := countAll(t, counted, kept)
		atFork, err := counted.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		_, running := counted.Goes()

		act(r, lost, 20)
		gone := countAll(t, counted, lost)
		rows = append(rows, gone...)
		last := map[spec.JobUID]uint32{}
		var ended []tally.EndedRun
		for _, row := range gone {
			uid := spec.JobUID(row.UID)
			last[uid] = max(last[uid], row.Restarts)
			if row.Start != 0 {
				run := tally.Attempt{UID: uid, Attempt: row.Attempt}
				ended = append(ended, tally.EndedRun{Attempt: run, Start: row.Start})
			}
		}

		if counted, err = tally.Restore(atFork); err != nil {
			t.Fatal(err)
		}
		counted.CountOnce(ended)
		counted.Renumber(last)
		kept.Wait(spec.Hour)
		act(r, kept, 10)
		rows = append(rows, countAll(t, counted, kept)...)
		behind, err := counted.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if counted, err = tally.Restore(behind); err != nil {
			t.Fatal(err)
		}
		counted.Renumber(last)
		act(r, kept, 10)
		rows = append(rows, countAll(t, counted, kept)...)

		runs, keys := map[start]int{}, map[key]int{}
		for _, row := range rows {
			keys[key{row.UID, row.Restarts}]++
			if row.Start != 0 {
				runs[start{row.UID, row.Attempt, row.Start}]++
			}
		}
		for k, n := range keys {
			if n != 1 {
				t.Errorf("seed %d: %d rows are of run %d of job uid %d", seed, n, k.restarts, k.uid)
			}
		}
		for run, n := range runs {
			if n != 1 {
				t.Errorf("seed %d: attempt %d of job uid %d is counted %d times", seed, run.attempt, run.uid, n)
			}
		}
		for _, run := range ended {
			j := kept.State.Job(run.UID)
			if slices.Contains(running, run.Attempt) && (j.Attempt > run.Attempt.Attempt || j.State.Terminal()) {
				both++
			}
		}
	}
	if both == 0 {
		t.Error("no run ended in both histories")
	}
}
