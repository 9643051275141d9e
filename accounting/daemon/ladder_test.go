package daemon_test

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestLadderOfASmallerNode: a node whose GPUs are taken from the configuration under a run has fewer
// than are held. What the run holds beyond them is not counted, as a loop over pieces of time says.
func TestLadderOfASmallerNode(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(1_790_000_000))
	h.Nodes(1, 8, 16_000, 4)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	uid := h.Submit(tallytest.Ask{User: "alice", UID: 1001, Account: "ml", CPUs: 4, GPUs: 4})
	if !h.Start(uid, "n1") {
		t.Fatal("the job does not start")
	}
	h.Wait(spec.Hour)
	smaller := *h.State.Config
	smaller.Nodes = slices.Clone(smaller.Nodes)
	smaller.Nodes[0].GRES = []spec.GRESSpec{{Name: "gpu", Type: "h100", N: 2}}
	h.Put(&event.ConfigAdopted{Config: &smaller})
	h.Register("n1")
	h.Wait(spec.Hour)
	h.Finish(uid, spec.Usage{})
	h.Wait(spec.Hour)

	ledger := newLedger(t)
	ledger.add(t, h.Log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now)
	loops := readPlain(t, h.Log)
	loops.now = tally.Cut(h.Now)
	r.cfg.Rates, loops.rates = plainRates(tally.Cut(h.Log[0].At), loops.now)
	r.start()
	r.stored(uint64(len(h.Log)))
	checkLadder(t, r, tally.Cut(h.Log[0].At), loops.now)
	checkKPIs(t, r, loops, tally.Cut(h.Log[0].At), loops.now)
}
