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

// stillClock lets nothing happen for the sake of time alone. By it no pass takes
// long, however busy the machine is: the rest after one would never end.
type stillClock struct{ reads atomic.Int64 }

func (c *stillClock) Monotonic() spec.Span { return spec.Span(c.Now()) }

func (c *stillClock) Now() spec.Instant {
	return spec.Instant(spec.Day) + spec.Instant(c.reads.Add(1))*spec.Instant(spec.Microsecond)
}

func (*stillClock) After(spec.Span) (<-chan struct{}, func()) { return nil, func() {} }

// TestAPassFollowsStarts: where somebody waits who outranks those that a pass
// starts, another one follows at once, since a pass looks only at who ran before.
func TestAPassFollowsStarts(t *testing.T) {
	conf := testConfig()
	conf.Sched.PreemptType, conf.Sched.PreemptMode = "preempt/partition_prio", "REQUEUE"
	first := conf.Partitions[0]
	first.Name, first.Default, first.PriorityTier = "first", false, 10
	conf.Partitions = append(conf.Partitions, first)
	w := startDeps(t, conf, func(d *Deps) { d.Clock = &stillClock{} })
	last := w.submit(&apiv1.JobSpec{Name: "j", TimeLimit: int64(spec.Day), MinNodes: 2, Partitions: []string{"first"}}) // one is not there
	for range 20 {                                                                                                      // more than fit
		last = w.submit(&apiv1.JobSpec{Name: "j", TimeLimit: int64(spec.Day), Tasks: 8, CpusPerTask: 1})
	}
	w.until("a pass has seen them all", func() bool {
		return w.c.View().State.JobByID(spec.JobID(last)).Reason.Code == spec.ReasonReqNodeNotAvail
	})
	w.register("n1")
	follows := func() bool {
		v := w.c.View()
		started := spec.FarFuture
		v.State.Active.Range(func(uid uint64, _ struct{}) bool {
			started = v.State.Job(spec.JobUID(uid)).Started
			return true
		})
		return v.State.Waiting.Len() > 0 && v.Pass.LastAt > started
	}
	for range 1000 {
		if follows() {
			return
		}
		fires, _ := realClock{}.After(20 * spec.Millisecond)
		<-fires
	}
	t.Error("no pass began after the one that started jobs")
}
