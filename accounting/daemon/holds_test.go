package daemon_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
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
