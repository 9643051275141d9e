package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// What the controller noted of shares is shown day by day: the last note of a
// day, of users' associations, within the window and for who is asked for.
func TestFairshareSeries(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(1, 8, 16_000, 0)
	h.Accounts([]string{"ml", "physics"}, map[string][]string{"ml": {"alice", "bob"}, "physics": {"carol"}})
	ids := map[string]uint32{}
	for _, env := range h.Log {
		if a, ok := env.Event.(*event.AssociationPut); ok {
			ids[a.Association.Account+"/"+a.Association.User] = a.Association.ID
		}
	}
	note := func(hour int, alice, bob int64) {
		h.Now = spec.AtUnix(t0 + int64(hour)*3600)
		h.Put(&event.SharesNoted{Shares: []event.ShareNote{{Assoc: ids["ml/"], Norm: 500_000, Used: alice + bob}, {Assoc: ids["ml/alice"], Norm: 250_000, Used: alice, Factor: 1_000_000 - alice},
			{Assoc: ids["ml/bob"], Norm: 250_000, Used: bob, Factor: 1_000_000 - bob}, {Assoc: ids["physics/carol"], Norm: 500_000, Factor: 1_000_000}}})
	}
	note(1, 900_000, 100_000)
	note(23, 800_000, 200_000)
	note(30, 500_000, 500_000)
	note(49, 300_000, 700_000)
	engine := startEngine(t)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 10)
	r := newRig(t, engine.Socket(), ledger)
	r.clock.set(h.Now.Add(spec.Minute))
	r.start()
	r.stored(uint64(len(h.Log)))
	show := func(q *apiv1.ReportQuery) string {
		q.Report = "fairshare"
		rep, err := r.Service().Report(t.Context(), q)
		if err != nil {
			return err.Error()
		}
		var b strings.Builder
		for _, row := range rep.GetRows() {
			c := row.GetCells()
			fmt.Fprintf(&b, "%s %s/%s %.2f %.2f %+.2f %.2f\n", c[0].GetText(), c[1].GetText(), c[2].GetText(), c[3].GetFloat(), c[4].GetFloat(), c[5].GetFloat(), c[6].GetFloat())
		}
		return b.String()
	}
	begin, end := int64(spec.AtUnix(t0)), int64(h.Now.Add(spec.Minute))
	if got, want := show(&apiv1.ReportQuery{Start: begin, End: end, Users: []string{"alice"}}), "2026-11-21 ml/alice 0.25 0.80 +0.55 0.20\n2026-11-22 ml/alice 0.25 0.50 +0.25 0.50\n2026-11-23 ml/alice 0.25 0.30 +0.05 0.70\n"; got != want {
		t.Errorf("\n%swanted\n%s", got, want)
	}
	if got, want := show(&apiv1.ReportQuery{Start: begin + 24*int64(spec.Hour), End: begin + 48*int64(spec.Hour)}),
		"2026-11-22 ml/alice 0.25 0.50 +0.25 0.50\n2026-11-22 ml/bob 0.25 0.50 +0.25 0.50\n2026-11-22 physics/carol 0.50 0.00 -0.50 1.00\n"; got != want {
		t.Errorf("\n%swanted\n%s", got, want)
	}
	if got := show(&apiv1.ReportQuery{Start: begin, End: end, Accounts: []string{"nosuch"}}); got != "" {
		t.Errorf("of no account: %s", got)
	}
}
