package daemon_test

import (
	"fmt"
	"testing"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestNotes: what is noted of a job shows in its rows, whether it runs or is over, and what
// the end of a run decides is not changed by what was noted before it. A service that is
// started again finds the notes in the store.
func TestNotes(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 8, 16_000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	ask := tallytest.Ask{Name: "noted", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 2, Mem: 100}
	over, running, quiet := h.Submit(ask), h.Submit(ask), h.Submit(ask)
	text := func(s string) *string { return &s }
	for _, uid := range []spec.JobUID{over, running, quiet} {
		h.Start(uid, "n1")
	}
	h.Put(&event.JobNoted{UID: over, Comment: text("early"), System: text("early"), Derived: &spec.ExitStatus{Code: 1}})
	h.Now = spec.AtUnix(t0 + 600)
	h.Finish(over, spec.Usage{})
	h.Finish(quiet, spec.Usage{})
	h.Now = spec.AtUnix(t0 + 700)
	h.Put(&event.JobNoted{UID: over, Comment: text("first"), Admin: text("seen")})
	h.Put(&event.JobNoted{UID: over, Comment: text("second"), Extra: text("more"), Derived: &spec.ExitStatus{Code: 49}})
	h.Put(&event.JobNoted{UID: running, Comment: text("goes on"), Derived: &spec.ExitStatus{Code: 49}})

	ledger := newLedger(t)
	ledger.add(t, h.Log, 7)
	socket := startEngine(t).Socket()
	const want = "1 second seen early more 49; 2 goes on    0; 3     0; "
	for _, name := range []string{"counted", "found in the store"} {
		r := newRig(t, socket, ledger)
		r.clock.set(h.Now.Add(spec.Minute))
		r.start()
		r.stored(uint64(len(h.Log)))
		got := ""
		for _, row := range r.acct(&apiv1.AcctQuery{AllUsers: true, AllocationsOnly: true, Start: 1}) {
			got += fmt.Sprintf("%d %s %s %s %s %d; ", row.GetJobId(), row.GetComment(), row.GetAdminComment(),
				row.GetSystemComment(), row.GetExtra(), row.GetDerivedCode())
		}
		if got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
		r.stop()
	}
}
