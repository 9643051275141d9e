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

// A reservation of both nodes (16 CPUs, 32000 MiB) from 01:00 to 03:00 that
// is cut to n1 at 02:00 and deleted at 02:30; a job of 4 CPUs runs in it from
// 01:30 to 02:15, and on beyond its end another one outside. A second one,
// daily, had its first hour and has moved on.
func TestReservationUtilization(t *testing.T) {
	min := func(n int) spec.Instant { return spec.AtUnix(t0 + int64(n)*60) }
	h := tallytest.New(t, min(0))
	h.Nodes(2, 8, 16_000, 2)
	two := spec.TRES{CPU: 16, Mem: 32_000, Node: 2}
	one := spec.TRES{CPU: 8, Mem: 16_000, Node: 1}
	put := func(name string, start, end int, tres spec.TRES, nodes ...string) {
		h.Put(&event.ReservationPut{Reservation: spec.Reservation{Name: name, Start: min(start), End: min(end), Nodes: nodes, Users: []string{"alice"}, TRES: tres}})
	}
	put("train", 60, 180, two, "n1", "n2")
	put("daily", 30, 90, one, "n2")
	job := func(reservation string, cpus int64) spec.JobUID {
		uid := h.Submit(tallytest.Ask{Name: "x", User: "alice", UID: 1001, Account: "ml", CPUs: cpus, Mem: 1000})
		j := h.State.Job(uid)
		node, ok := tallytest.Fit(h.State.Node("n1"), j.Req)
		if !ok {
			t.Fatal("it does not fit")
		}
		h.Put(&event.JobStarted{UID: uid, Attempt: 1, Limit: spec.Hour, Alloc: &spec.Allocation{Partition: "batch", Nodes: []spec.NodeAlloc{node}, TRES: j.Req, Reservation: reservation}})
		return uid
	}
	h.Now = min(90)
	inside := job("train", 4)
	outside := job("", 2)
	put("daily", 30+1440, 90+1440, one, "n2")
	h.Now = min(120)
	put("train", 60, 180, one, "n1")
	h.Now = min(135)
	h.Finish(inside, spec.Usage{})
	h.Finish(outside, spec.Usage{})
	h.Now = min(150)
	h.Put(&event.ReservationRemoved{Name: "train"})
	h.Now = min(240)
	h.Submit(tallytest.Ask{Name: "later", User: "alice", UID: 1001, Account: "ml", CPUs: 1})

	engine := startEngine(t)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 10)
	r := newRig(t, engine.Socket(), ledger)
	r.clock.set(min(241))
	r.start()
	r.stored(uint64(len(h.Log)))
	show := func(from, to int, tres ...string) string {
		rep, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "reservation utilization", Start: int64(min(from)), End: int64(min(to)), Tres: tres, Zone: "UTC"})
		if err != nil {
			return err.Error()
		}
		var b strings.Builder
		for _, row := range rep.GetRows() {
			c := row.GetCells()
			fmt.Fprintf(&b, "%s %s-%s %s %d %d\n", c[1].GetText(), c[2].GetText()[11:16], c[3].GetText()[11:16], c[4].GetText(), c[5].GetInt()/60, c[6].GetInt()/60)
		}
		return b.String()
	}
	for _, c := range []struct {
		from, to int
		tres     []string
		want     string
	}{
		// 60 min x 16 CPUs, then 30 min x 8; the job had 45 min x 4 of it.
		{0, 240, nil, "train 01:00-02:30 cpu 180 1020\ndaily 00:30-01:30 cpu 0 480\n"},
		{100, 125, []string{"cpu", "mem", "node"}, "train 01:00-02:30 cpu 100 260\ntrain 01:00-02:30 mem 25000 695000\ntrain 01:00-02:30 node 25 20\n"},
		{160, 240, nil, ""},
	} {
		if got := show(c.from, c.to, c.tres...); got != c.want {
			t.Errorf("%d-%d %v:\n%swanted\n%s", c.from, c.to, c.tres, got, c.want)
		}
	}
}
