package tally_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// outcome is what the rows of runs say of their promises.
type outcome struct {
	kept, broken uint64
	late         int64 // microseconds
}

// judge adds a run that is over, or one that has started, to an outcome.
func (o *outcome) judge(promised, start, end int64) {
	const grace = 60_000_000
	switch {
	case promised == 0:
	case start != 0 && start-promised <= grace:
		o.kept++
		o.late += max(start-promised, 0)
	case start != 0:
		o.broken++
		o.late += start - promised
	case end-promised > grace:
		o.broken++
	}
}

// TestPromisesOfRuns plays a life of promises by hand: one kept early, one kept
// within the grace, one broken by a start, one by an end, and those that a hold, a
// change and a requeue void.
func TestPromisesOfRuns(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(1_790_812_800))
	h.Nodes(2, 8, 16000, 0)
	h.Accounts([]string{"bio"}, map[string][]string{"bio": {"ada"}})
	submit := func() spec.JobUID {
		return h.Submit(tallytest.Ask{User: "ada", Account: "bio", CPUs: 1, Mem: 100, QOS: "normal"})
	}
	promise := func(uid spec.JobUID, in spec.Span) {
		why := spec.Reason{Code: spec.ReasonResources}
		h.Put(&event.ReasonsChanged{Jobs: []event.JobReason{
			{UID: uid, Reason: why, Promise: h.Now.Add(in)},
		}})
	}
	early, within, late, never, held := submit(), submit(), submit(), submit(), submit()
	for _, uid := range []spec.JobUID{early, within, late, never, held} {
		promise(uid, spec.Minute)
	}
	promise(late, spec.Hour) // only the first counts
	h.Put(&event.JobHeld{UID: held, By: spec.HeldByUser})
	h.Start(early, "n1")
	h.Wait(2 * spec.Minute)
	h.Start(within, "n1") // to the instant at which the grace ends
	h.Wait(1)
	if due := h.State.Job(never).Promised; h.Now <= spec.PromiseDue(due) {
		t.Fatal("the grace is not over")
	}
	h.Start(late, "n1")
	h.Put(&event.JobEnded{UID: never, State: spec.Cancelled})
	h.Put(&event.JobEnded{UID: held, State: spec.Cancelled})

	part := h.State.Totals.Parts[0].Promises
	want := state.PromiseTotals{Kept: 2, Broken: 2, Late: 2*spec.Minute + 1}
	if part != want {
		t.Errorf("partition %s: %+v, not %+v", h.State.Totals.Parts[0].Name, part, want)
	}
	qos := h.State.Totals.Waits[0]
	if qos.Name != "normal" || qos.Promises != want {
		t.Errorf("QOS %s: %+v, not %+v", qos.Name, qos.Promises, want)
	}
	_, rows := whole(t, h.Log)
	got := map[spec.JobUID]int64{}
	for _, row := range rows.Live {
		got[spec.JobUID(row.UID)] = row.Promised
	}
	for _, row := range rows.Jobs {
		got[spec.JobUID(row.UID)] = row.Promised
	}
	first := tally.Cut(h.State.Job(early).Promised)
	for uid, promised := range map[spec.JobUID]int64{early: first, within: first, late: first, never: first, held: 0} {
		if got[uid] != promised {
			t.Errorf("the row of job uid %d says that it was promised %d, not %d", uid, got[uid], promised)
		}
	}
}

// TestPromisesAgree: over random histories, the totals of the fold are what the
// rows of accounting add up to, and a row's promise is the one that the fold
// holds.
func TestPromisesAgree(t *testing.T) {
	judged := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		log := tallytest.Random(t, 200).Log
		s := state.New()
		ta := tally.New()
		got := map[string]*outcome{}
		of := func(partition string) *outcome {
			if got[partition] == nil {
				got[partition] = &outcome{}
			}
			return got[partition]
		}
		for i := range log {
			if err := s.Apply(&log[i]); err != nil {
				t.Fatal(err)
			}
			if err := ta.Apply(&log[i]); err != nil {
				t.Fatal(err)
			}
			if i+1 < len(log) && rapid.IntRange(0, 9).Draw(t, "cut") > 0 {
				continue
			}
			batch := ta.Take()
			for _, row := range batch.Jobs {
				first, _, _ := strings.Cut(row.Partition, ",")
				of(first).judge(row.Promised, row.Start, row.End)
			}
			for _, row := range batch.Live {
				job := s.Job(spec.JobUID(row.UID))
				if row.Final || job == nil || job.Restarts != row.Restarts {
					continue
				}
				if want := tally.Cut(job.Promised); row.Promised != want {
					t.Fatalf("job uid %d was promised %d, its row says %d", row.UID, want, row.Promised)
				}
			}
		}
		// Runs that have started and are not over are in no row yet.
		s.Jobs.Range(func(_ uint64, job *state.Job) bool {
			if job.Alloc != nil && (job.HoldsNodes() || !job.State.Terminal()) {
				of(job.Partition()).judge(tally.Cut(job.Promised), tally.Cut(job.Started), 0)
			}
			return true
		})
		for _, part := range s.Totals.Parts {
			sum := of(part.Name)
			p := part.Promises
			if sum.kept != p.Kept || sum.broken != p.Broken {
				t.Fatalf("partition %s: the rows say %+v, the fold %+v", part.Name, *sum, p)
			}
			// Each span of a row may be a microsecond off.
			off := int64(p.Late/spec.Microsecond) - sum.late
			if n := int64(sum.kept + sum.broken); off < -n || off > n {
				t.Fatalf("partition %s: late by %d us in the rows, by %d in the fold", part.Name, sum.late, p.Late)
			}
			judged += p.Kept + p.Broken
		}
	})
	if judged == 0 {
		t.Error("no promise was judged: the histories test nothing")
	}
}
