package tally_test

import (
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestExternRow: a run whose nodes tell of an extern step has a row of it, with what it
// used on all of them; the batch script's row is without that.
func TestExternRow(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(1_800_000_000))
	h.Nodes(2, 8, 1000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	var rows []tally.StepRow
	for _, contained := range []bool{false, true} {
		uid := h.Submit(tallytest.Ask{User: "alice", Account: "ml", CPUs: 4})
		if !h.Start(uid, "n1", "n2") {
			t.Fatal("the job does not start")
		}
		h.Wait(10 * spec.Second)
		h.End(uid, spec.Completed, spec.ExitStatus{})
		job := h.State.Job(uid)
		for i, node := range []string{"n1", "n2"} {
			ev := &event.JobNodeDone{UID: uid, Attempt: job.Attempt, Node: node, Usage: spec.Usage{UserCPU: 9 * spec.Second}}
			if i == 0 {
				ev.Batch = &event.StepResult{Started: job.Started, Ended: h.Now}
			}
			if contained {
				ev.Extern = &spec.Usage{UserCPU: 2 * spec.Second}
			}
			h.Put(ev)
		}
		_, b := whole(t, h.Log)
		rows = rows[:0]
		for i := range b.Steps {
			if b.Steps[i].UID == uint64(uid) {
				rows = append(rows, b.Steps[i])
			}
		}
		want := 1
		if contained {
			want = 2
		}
		if len(rows) != want {
			t.Fatalf("contained %v: %d rows of steps, want %d", contained, len(rows), want)
		}
	}
	extern, batch := &rows[0], &rows[1]
	if extern.Step != int32(spec.StepExtern) || extern.NodeList != "n[1-2]" || extern.Tasks != 2 || extern.Alloc.Nodes != 2 ||
		extern.State != "COMPLETED" || extern.Used.UserCPU != tally.Micros(4*spec.Second/spec.Microsecond) {
		t.Errorf("%+v", extern)
	}
	if batch.Step != int32(spec.StepBatch) || batch.Used.UserCPU != tally.Micros(7*spec.Second/spec.Microsecond) {
		t.Errorf("%+v", batch)
	}
}
