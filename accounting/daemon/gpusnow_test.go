package daemon_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestGPUsNow: the view of every device tells work from idle holding, and what is
// free from what is drained, of a node that is gone, or not read any more.
func TestGPUsNow(t *testing.T) {
	now := time.Now().Unix()
	h := tallytest.New(t, spec.AtUnix(now-3600))
	h.Nodes(3, 64, 512_000, 8)
	h.Put(&event.AccountPut{Account: spec.Account{Name: "root"}})
	uid := h.Submit(tallytest.Ask{Name: "x", User: "alice", UID: 1001, Account: "root", QOS: "normal", CPUs: 4, Mem: 4000, GPUs: 2})
	h.Start(uid, "n1")
	h.Put(&event.NodeStateSet{Node: "n2", State: event.NodeDrain, Reason: "fan"})
	ledger := newLedger(t)
	ledger.add(t, h.Log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.start()
	r.stored(uint64(len(h.Log)))
	series := func(node string, index uint32, job uint64, back int64, util int64) *apiv1.GpuSeries {
		g := &apiv1.GpuSeries{Uuid: fmt.Sprintf("GPU-%s-%d", node, index), Index: index, Uid: job, Attempt: uint32(min(job, 1)), JobId: uint32(job), Account: "root", Partition: "gpu"}
		if job != 0 {
			g.User = "alice"
		}
		for at := now - back - 60; at <= now-back; at += 10 {
			g.At, g.Util, g.Processes = append(g.At, at), append(g.Util, util), append(g.Processes, min(1, int64(job)))
		}
		return g
	}
	for node, list := range map[string][]*apiv1.GpuSeries{
		"n1": {series("n1", 0, uint64(uid), 10, 90), series("n1", 1, uint64(uid), 10, 0), series("n1", 2, 0, 10, 0), series("n1", 3, 0, 1800, 0), series("n1", 4, uint64(uid), 1800, 50)},
		"n2": {series("n2", 0, 0, 10, 0)},
	} {
		if _, err := r.Service().PutGpuSamples(t.Context(), &apiv1.PutGpuSamplesRequest{Node: node, Seconds: 10, Series: list}); err != nil {
			t.Fatal(err)
		}
	}
	got := ""
	err := r.store.Query(t.Context(), query.Query{SQL: "SELECT toString(node), gpu_index, toString(state), toString(user), toUInt32(job_id) FROM muster.gpus_now(cluster = 'peer') ORDER BY node, gpu_index"}, func(scan func(...any) error) error {
		var node, state, user string
		var index, job uint32
		err := scan(&node, &index, &state, &user, &job)
		got += fmt.Sprintln(node, index, state, user, job != 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := "n1 0 busy alice true\nn1 1 idle alice true\nn1 2 free  false\nn1 3 lost  false\nn1 4 lost  false\nn2 0 drained  false\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	steps := ""
	err = r.store.Query(t.Context(), query.Query{SQL: fmt.Sprintf("SELECT step, state, isNull(end) FROM muster.steps_of_job(cluster = 'peer', job = %d)", uid)}, func(scan func(...any) error) error {
		var step, state string
		var goesOn uint8
		err := scan(&step, &state, &goesOn)
		steps += fmt.Sprintln(step, state, goesOn)
		return err
	})
	if err != nil || steps != "batch RUNNING 1\n" {
		t.Errorf("the steps of a job that runs: %q, %v", steps, err)
	}
}
