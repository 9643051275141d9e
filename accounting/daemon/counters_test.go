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

// What only some nodes can count, and how the use of a step lay on its tasks, comes
// back as it was told; the script has what its steps have not, and a counter that a
// node did not have is not 0.
func TestCountersAndTasks(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 8, 16_000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	uid := h.Submit(tallytest.Ask{Name: "counted", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 2, Mem: 100})
	h.Start(uid, "n1")
	h.Put(&event.StepStarted{UID: uid, Attempt: 1, Step: 0, Name: "s", Nodes: []string{"n1"}, Tasks: 3, Spec: &spec.StepSpec{}})
	h.Now = spec.AtUnix(t0 + 60)
	tasks := spec.TaskSpreads(nil).
		Observe(spec.TaskCPU, 0, 4_000_000).
		Observe(spec.TaskCPU, 1, 1_000_000).
		Observe(spec.TaskCPU, 2, 7_000_000).
		Observe(spec.TaskRSS, 1, 900).
		On("n1")
	ofStep := spec.CounterValues{
		{Counter: spec.CounterNetIn, N: 300},
		{Counter: spec.CounterMinFaults, N: 9},
	}
	h.Put(&event.StepEnded{
		UID:     uid,
		Attempt: 1,
		Step:    0,
		State:   spec.Completed,
		Result:  event.StepResult{Started: spec.AtUnix(t0), Ended: h.Now},
		Usage:   spec.Usage{UserCPU: 12 * spec.Second, Counters: ofStep, Tasks: tasks},
	})
	ofRun := spec.CounterValues{
		{Counter: spec.CounterNetIn, N: 500},
		{Counter: spec.CounterLustreRead, N: 1 << 40},
		{Counter: spec.CounterMinFaults, N: 10},
		{Counter: spec.CounterIOStall, N: 0},
	}
	h.Finish(uid, spec.Usage{UserCPU: 13 * spec.Second, Counters: ofRun})

	ledger := newLedger(t)
	ledger.add(t, h.Log, 7)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now.Add(spec.Minute))
	r.start()
	r.stored(uint64(len(h.Log)))
	var got []string
	for _, row := range r.acct(&apiv1.AcctQuery{AllUsers: true, Start: 1, Fields: []string{"usage"}}) {
		var parts []string
		for _, c := range row.GetUsage().GetCounters() {
			name := spec.Counters()[c.GetCounter()-1].Name
			parts = append(parts, fmt.Sprintf("%s=%d", name, c.GetN()))
		}
		for _, s := range row.GetUsage().GetTasks() {
			all := fmt.Sprintf("%v:%d of %d", spec.TaskKind(s.GetKind()), s.GetSum(), s.GetTasks())
			least := fmt.Sprintf("%d@%s=%d", s.GetMinRank(), s.GetMinNode(), s.GetMin())
			most := fmt.Sprintf("%d@%s=%d", s.GetMaxRank(), s.GetMaxNode(), s.GetMax())
			parts = append(parts, all+", "+least+" to "+most)
		}
		got = append(got, row.GetStep()+"["+strings.Join(parts, " ")+"]")
	}
	const want = "[net_in=500 lustre_read=1099511627776 min_faults=10 io_stall_us=0] " +
		"batch[net_in=200 lustre_read=1099511627776 min_faults=1 io_stall_us=0] " +
		"0[net_in=300 min_faults=9 cpu_us:12000000 of 3, 1@n1=1000000 to 2@n1=7000000 rss:900 of 3, 1@n1=900 to 1@n1=900]"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
