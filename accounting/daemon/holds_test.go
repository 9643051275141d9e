package daemon_test

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestHoldsByNamespace: the GPU-hours of pods are those between the events of their
// holds, also where a hold of the same id is taken again, or is still there.
func TestHoldsByNamespace(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 8, 16_000, 8)
	take := func(node, id, space string, gpus ...int) {
		hold := spec.ForeignHold{ID: id, Space: space, Owner: "p-" + id, MilliCPU: 1500, Mem: 100}
		n := h.State.Node(node)
		for _, i := range gpus {
			hold.GPUs = append(hold.GPUs, spec.GPURef{UUID: n.GPUs[i].UUID, Index: n.GPUs[i].Index, Type: n.GPUs[i].Type})
		}
		var cpus spec.Bitset
		for c := range 2 {
			cpus = cpus.Set(n.HeldCPU.Last() + 1 + c)
		}
		h.Put(&event.ForeignHoldTaken{Node: node, Hold: hold, CPUs: cpus})
	}
	take("n1", "a", "web", 0, 1)
	take("n2", "a", "web", 3) // the id counts with its node
	take("n1", "b", "ml", 2)
	h.Wait(2 * spec.Hour)
	h.Put(&event.ForeignHoldReleased{Node: "n1", ID: "a", Why: "over"})
	h.Wait(spec.Hour)
	h.Put(&event.ForeignHoldReleased{Node: "n2", ID: "a", CPUs: h.State.Node("n2").HeldCPU, Why: "over"})
	take("n1", "a", "web", 0)
	h.Wait(spec.Hour)

	ledger := newLedger(t)
	ledger.add(t, h.Log, 5)
	s := &sqlRig{rig: newRig(t, startEngine(t).Socket(), ledger)}
	s.who.Admin = true
	s.cfg.Identify = func(context.Context) daemon.Caller { return s.who }
	s.clock.set(h.Now)
	s.start()
	s.stored(uint64(len(h.Log)))
	now := "fromUnixTimestamp64Micro(" + strconv.FormatInt(tally.Cut(h.Now), 10) + ", 'UTC')"
	got, err := s.ask("root", "SELECT namespace, countIf(ended IS NULL) AS open, sum(gpus * dateDiff('second', started, ifNull(ended, "+now+"))) AS gpu_seconds, sum(milli_cpu) AS milli FROM holds GROUP BY namespace ORDER BY namespace")
	if err != nil {
		t.Fatal(err)
	}
	want := "namespace,open,gpu_seconds,milli\nml,1,14400,1500\nweb,1,28800,4500\n" // 2*2 + 1*3 + 1*1 GPU-hours of web
	if strings.ReplaceAll(got, `"`, "") != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := s.ask("alice", "SELECT count() FROM holds"); err == nil {
		t.Error("a user reads the pods of all")
	}
}

// TestNamespaces: what jobs, pods that are jobs and pods beside jobs held is one report, whose
// lines add up to what the ledger's events say.
func TestNamespaces(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 8, 16_000, 8)
	h.Accounts([]string{"ml", "serving"}, map[string][]string{"ml": {"alice"}, "serving": {"bob"}})
	job := h.Submit(tallytest.Ask{Name: "train", User: "alice", Account: "ml", CPUs: 2, Mem: 100, GPUs: 4})
	h.Start(job, "n1")
	h.Wait(spec.Hour)
	pod := h.Submit(tallytest.Ask{Name: "infer-1", Space: "serve", User: "bob", Account: "serving", CPUs: 1, Mem: 100, GPUs: 2})
	h.Start(pod, "n1")
	n2 := h.State.Node("n2")
	gpu := n2.GPUs[0]
	hold := spec.ForeignHold{
		ID:       "u",
		Space:    "serve",
		Owner:    "web-1",
		MilliCPU: 1500,
		Mem:      100,
		GPUs:     []spec.GPURef{{UUID: gpu.UUID, Index: gpu.Index, Type: gpu.Type}},
	}
	h.Put(&event.ForeignHoldTaken{Node: "n2", Hold: hold, CPUs: spec.Bitset{}.Set(0).Set(1)})
	h.Wait(90 * spec.Minute)
	h.Finish(job, spec.Usage{})
	h.Finish(pod, spec.Usage{})
	h.Wait(30 * spec.Minute)

	ledger := newLedger(t)
	ledger.add(t, h.Log, 5)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now)
	r.start()
	r.stored(uint64(len(h.Log)))
	for one, want := range map[string]string{
		"": "|job||ml|1|10.000|5.000\n" + // 4 GPUs and 2 CPUs for 2.5 hours
			"serve|hold|||1|2.000|3.000\n" + // 1 GPU and 1.5 CPUs for 2 hours, and on
			"serve|pod||serving|1|3.000|1.500\n" +
			"total||||3|15.000|9.500\n",
		"serve": "serve|hold|serve/web-1||1|2.000|3.000\nserve|pod|serve/infer-1|serving|1|3.000|1.500\ntotal||||2|5.000|4.500\n",
		"none":  "",
	} {
		rep := r.namespaces(t, one, h.Now)
		var got strings.Builder
		for _, row := range rep.GetRows() {
			for i, cell := range row.GetCells() {
				if i > 0 {
					got.WriteByte('|')
				}
				if i == 4 {
					got.WriteString(strconv.FormatInt(cell.GetInt(), 10))
				}
				got.WriteString(cell.GetText())
			}
			got.WriteByte('\n')
		}
		if got.String() != want {
			t.Errorf("namespace %q:\n%swant\n%s", one, got.String(), want)
		}
	}
}

// TestNamespacesAddUp: what `report namespace X` says in total is what the lines of X in
// `report namespaces` add up to, in figures that no thousandth of an hour divides.
func TestNamespacesAddUp(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(1, 16, 16_000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	var running []spec.JobUID
	for i, space := range []string{"a", "a", "b", "b", "c", "c", "c"} {
		ask := tallytest.Ask{Name: fmt.Sprint("pod-", i), Space: space, User: "alice", Account: "ml", CPUs: 1, Mem: 100}
		job := h.Submit(ask)
		h.Start(job, "n1")
		running = append(running, job)
	}
	h.Wait(spec.Second) // 0.277... thousandths of an hour each
	for _, job := range running {
		h.Finish(job, spec.Usage{})
	}
	h.Wait(spec.Minute)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 5)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now)
	r.start()
	r.stored(uint64(len(h.Log)))
	ask := func(one string) map[string]string { // CPU-hours by the first column, of the last line
		t.Helper()
		rep := r.namespaces(t, one, h.Now)
		out := map[string]string{}
		for _, row := range rep.GetRows() {
			cells := row.GetCells()
			out[cells[0].GetText()] = cells[len(cells)-1].GetText()
		}
		return out
	}
	all := ask("")
	// 7 pods are 1.94 thousandths: c has the larger part, and the other is a's, the first of equals.
	if want := map[string]string{"a": "0.001", "b": "0.000", "c": "0.001", "total": "0.002"}; !maps.Equal(all, want) {
		t.Errorf("namespaces: %v, want %v", all, want)
	}
	for _, space := range []string{"a", "b", "c"} {
		if got := ask(space)["total"]; got != all[space] {
			t.Errorf("namespace %s: total %s, namespaces says %s", space, got, all[space])
		}
	}
}

// namespaces is the report of the namespaces, or of one of them, since the beginning.
func (r *rig) namespaces(t *testing.T, one string, now spec.Instant) *apiv1.ReportReply {
	t.Helper()
	query := &apiv1.ReportQuery{
		Report: "namespaces",
		By:     one,
		Start:  t0 * int64(spec.Second),
		End:    int64(now),
	}
	reply, err := r.Service().Report(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}
