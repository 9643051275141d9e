package daemon

import (
	"sync/atomic"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// slowClock moves on whenever it is read, so that every pass seems to take
// long.
type slowClock struct {
	realClock
	reads atomic.Int64
}

func (c *slowClock) Now() spec.Instant {
	return c.realClock.Now().Add(spec.Span(c.reads.Add(1)) * 2 * quickFrom)
}

// TestIncrementalPasses: while the controller rests after a pass that took
// long, what becomes free is given out by incremental passes; nobody is left
// behind, and the invariants hold after each.
func TestIncrementalPasses(t *testing.T) {
	w := startAt(t, 1, &slowClock{})
	w.register("n1", "n2")
	const jobs = 60
	for range jobs {
		w.submit(&apiv1.JobSpec{Name: "j", TimeLimit: int64(spec.Day), Tasks: 8, CpusPerTask: 1})
	}
	ended := 0
	for ended < jobs {
		w.until("a job runs", func() bool { return w.c.View().State.Active.Len() > 0 })
		st := w.c.View().State
		st.Active.Range(func(uid uint64, _ struct{}) bool {
			j := st.Job(spec.JobUID(uid))
			if !j.HoldsNodes() {
				return true
			}
			a := &j.Alloc.Nodes[0]
			w.must(scheduler.Report{Node: a.Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt}, Done: &scheduler.NodeDone{Batch: &event.StepResult{}}})
			ended++
			return true
		})
	}
	if p := w.c.View().Pass; p.QuickPasses == 0 || p.Passes == 0 {
		t.Errorf("%d incremental passes and %d full ones", p.QuickPasses, p.Passes)
	}
}
