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

// The components of a heterogeneous job are found by its leader's number, by
// their own, and by the leader's with their place; a batch script stands still
// as long as its run.
func TestHetJobs(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(3, 8, 16_000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	min := func(n int) { h.Now = spec.AtUnix(t0 + int64(n)*60) }
	ask := tallytest.Ask{Name: "het", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 2, Mem: 100, Parts: 3}
	submit := func() (uids []spec.JobUID) {
		for ask.Part = range ask.Parts {
			uids = append(uids, h.Submit(ask))
		}
		return uids
	}
	over := submit() // 1, 2, 3
	alone := h.Submit(tallytest.Ask{Name: "alone", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 1, Mem: 100})
	submit() // 5, 6, 7 stay in the queue
	min(10)
	for i, uid := range over {
		h.Start(uid, fmt.Sprintf("n%d", i+1))
	}
	h.Start(alone, "n1")
	min(20)
	h.Put(&event.JobSuspended{UID: alone, Attempt: 1})
	min(34)
	h.Put(&event.JobResumed{UID: alone, Attempt: 1})
	min(40)
	for _, uid := range append(over, alone) {
		h.Finish(uid, spec.Usage{})
	}
	// A component that is run again stays one.
	h.Requeue(over[1], spec.Pending)

	ledger := newLedger(t)
	ledger.add(t, h.Log, 7)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now.Add(spec.Minute))
	r.start()
	r.stored(uint64(len(h.Log)))
	const none, leaders, all = apiv1.HetWhole_HET_WHOLE_NONE, apiv1.HetWhole_HET_WHOLE_LEADERS, apiv1.HetWhole_HET_WHOLE_ALL
	for _, c := range []struct {
		jobs  string
		whole apiv1.HetWhole
		dup   bool
		want  string
	}{
		{"1", none, false, "1=1+0 1=1+0.batch"},
		{"1", leaders, false, "1=1+0 1=1+0.batch 2=1+1 3=1+2 3=1+2.batch"},
		{"1", leaders, true, "1=1+0 1=1+0.batch 2=1+1 2=1+1.batch 2=1+1 3=1+2 3=1+2.batch"},
		{"1+0", leaders, false, "1=1+0 1=1+0.batch"},
		{"1+2", leaders, false, "3=1+2 3=1+2.batch"},
		{"3", leaders, false, "3=1+2 3=1+2.batch"},
		{"1+2.batch", leaders, false, "3=1+2.batch"},
		{"1.batch", leaders, false, "1=1+0.batch 3=1+2.batch"},
		{"3", all, false, "1=1+0 1=1+0.batch 2=1+1 3=1+2 3=1+2.batch"},
		{"1+1", all, false, "1=1+0 1=1+0.batch 2=1+1 3=1+2 3=1+2.batch"},
		{"3,1", leaders, false, "1=1+0 1=1+0.batch 2=1+1 3=1+2 3=1+2.batch"},
		{"5,4,6", leaders, false, "4=0+0 4=0+0.batch 5=5+0 6=5+1 7=5+2"},
		{"7", all, false, "5=5+0 6=5+1 7=5+2"},
		{"1+3", all, false, ""}, // 4 is no component of it
		{"2+1", leaders, false, ""},
		{"4", all, false, "4=0+0 4=0+0.batch"},
	} {
		var got []string
		for _, row := range r.acct(&apiv1.AcctQuery{AllUsers: true, Jobs: strings.Split(c.jobs, ","), HetWhole: c.whole, Duplicates: c.dup}) {
			text := fmt.Sprintf("%d=%d+%d", row.GetJobId(), row.GetHetJobId(), row.GetHetOffset())
			if row.GetStep() != "" {
				text += "." + row.GetStep()
			}
			got = append(got, text)
			if elapsed := row.GetElapsed() / int64(spec.Minute); row.GetJobId() == 4 && (elapsed != 16 || row.GetSuspended() != 14*int64(spec.Minute)) {
				t.Errorf("%s: elapsed %d minutes, suspended %s", text, elapsed, minutes(row.GetSuspended()))
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %v duplicates %v: %s, want %s", c.jobs, c.whole, c.dup, strings.Join(got, " "), c.want)
		}
	}
	// Whoever finds a component by its node finds the whole job with it.
	for whole, want := range map[apiv1.HetWhole]string{leaders: "1 4", all: "1 2 3 4"} {
		var got []string
		for _, row := range r.acct(&apiv1.AcctQuery{AllUsers: true, Start: 1, Nodes: []string{"n1"}, HetWhole: whole, AllocationsOnly: true}) {
			got = append(got, fmt.Sprint(row.GetJobId()))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("on n1, %v: %s, want %s", whole, strings.Join(got, " "), want)
		}
	}
	if _, err := r.Service().Jobs(t.Context(), &apiv1.AcctQuery{AllUsers: true, Jobs: []string{"1+"}}); err == nil {
		t.Error("1+ was taken for a number")
	}
}
