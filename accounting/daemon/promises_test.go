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

// TestPromises reports promises that were reckoned by hand: two that were kept, of
// which one early, one broken by 130 s, one of a job that still waits, one void,
// and one that is not due yet. Windows that meet add up to the whole.
func TestPromises(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(1_790_812_800))
	h.Nodes(4, 8, 16000, 0)
	h.Accounts([]string{"bio"}, map[string][]string{"bio": {"ada"}})
	submit := func(partition, qos string) spec.JobUID {
		return h.Submit(tallytest.Ask{User: "ada", Account: "bio", Partition: partition, QOS: qos, CPUs: 1, Mem: 100})
	}
	promise := func(uid spec.JobUID, seconds int64) {
		why := spec.Reason{Code: spec.ReasonResources}
		h.Put(&event.ReasonsChanged{Jobs: []event.JobReason{
			{UID: uid, Reason: why, Promise: h.Now.Add(spec.Seconds(seconds))},
		}})
	}
	first := h.Now
	early, within, late := submit("batch", "normal"), submit("batch", "normal"), submit("batch", "high")
	waits, void, far := submit("gpu", "normal"), submit("gpu", "normal"), submit("gpu", "normal")
	for _, uid := range []spec.JobUID{early, within, late, waits, void} {
		promise(uid, 100)
	}
	promise(far, 10_000)
	h.Put(&event.JobHeld{UID: void, By: spec.HeldByUser})
	h.Wait(70 * spec.Second)
	h.Start(early, "n1")
	h.Wait(75 * spec.Second) // 145 s: within the grace
	h.Start(within, "n1")
	h.Wait(85 * spec.Second) // 230 s: 130 s after the promise
	h.Start(late, "n2")
	h.Wait(70 * spec.Second) // 300 s: the job that waits is 200 s late
	now := h.Now

	ledger := newLedger(t)
	ledger.add(t, h.Log, 10)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(now)
	r.start()
	r.stored(uint64(len(h.Log)))
	ask := func(from, to spec.Instant) []*apiv1.ReportRow {
		t.Helper()
		rep, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "promises", Start: int64(from), End: int64(to)})
		if err != nil {
			t.Fatal(err)
		}
		return rep.GetRows()
	}
	var got strings.Builder
	for _, row := range ask(first, now) {
		c := row.GetCells()
		fmt.Fprintf(&got, "%s %s: %d of %d, %.2f, late %g %g %g\n", c[0].GetText(), c[1].GetText(), c[3].GetInt(), c[2].GetInt(),
			c[4].GetFloat(), c[5].GetFloat(), c[6].GetFloat(), c[7].GetFloat())
	}
	want := "batch high: 0 of 1, 0.00, late 130 130 130\n" +
		"batch normal: 2 of 2, 1.00, late 45 45 45\n" +
		"gpu normal: 0 of 1, 0.00, late 200 200 200\n"
	if got.String() != want {
		t.Errorf("the report:\n%swant:\n%s", got.String(), want)
	}
	for cut := first.Add(spec.Second); cut < now; cut = cut.Add(7 * spec.Second) {
		promises, kept := int64(0), int64(0)
		for _, row := range append(ask(first, cut), ask(cut, now)...) {
			promises += row.GetCells()[2].GetInt()
			kept += row.GetCells()[3].GetInt()
		}
		if promises != 4 || kept != 2 {
			t.Errorf("cut %d s after the beginning: %d kept of %d, not 2 of 4", cut.Sub(first)/spec.Second, kept, promises)
		}
	}
}
