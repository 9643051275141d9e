package scheduler_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// A job that needs all nodes for itself starts however many small ones are
// submitted behind it, and however early they could start: each job that comes
// before it is first in the queue once, and what is first waits for no more than
// those that run then.
func TestLargeJobsAreNotStarved(t *testing.T) {
	overtook := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, worldKind{fifo: true, depth: rapid.SampledFrom([]uint32{0, 1, 2, 1000}).Draw(rt, "depth")})
		const longest = spec.Hour // of a time limit
		for range w.n("ahead", 0, 5) {
			w.submit(w.request())
		}
		large := w.request()
		large.Size = spec.Size{MinNodes: uint32(len(w.names())), CPUsPerTask: 1, MemPerNode: 100}
		large.Size.MaxNodes = large.Size.MinNodes
		large.Place.Sharing = spec.Exclusive
		large.Time.Limit = longest
		w.submit(large)
		ahead := len(w.jobs(func(j *state.Job) bool { return j.State == spec.Pending }))
		job := w.jobs(func(j *state.Job) bool { return j.UID == w.head.NextUID-1 })[0]
		bound := w.now.Add(spec.Span(ahead+1) * longest)
		var kept *scheduler.Promises
		for {
			for range w.n("small ones", 0, 4) {
				js := w.request()
				js.Size.MinNodes, js.Size.MaxNodes, js.Place.Sharing = 1, 1, spec.ShareDefault
				w.submit(js)
			}
			if kept != nil && w.head.Config.Sched.Backfill && w.chance("incremental", 2) {
				w.passQuick(kept)
			}
			kept = w.passAll().Promises
			if j := w.head.Job(job.UID); j == nil || j.State != spec.Pending {
				return
			}
			if w.now > bound {
				rt.Fatalf("job %d waits beyond %s (%s), with %d jobs before it\n%s", job.ID, when(bound), w.head.Job(job.UID).Reason, ahead, dump(&scheduler.Outcome{}, w.head))
			}
			next, running := spec.FarFuture, w.jobs(func(j *state.Job) bool { return j.HoldsNodes() })
			for _, j := range running {
				next = min(next, j.Deadline())
				if j.UID > job.UID {
					overtook++
				}
			}
			if next == spec.FarFuture {
				rt.Fatalf("job %d waits (%s) though nothing runs\n%s", job.ID, w.head.Job(job.UID).Reason, dump(&scheduler.Outcome{}, w.head))
			}
			w.now = next
			for _, j := range running {
				if j.Deadline() <= w.now || w.chance("early", 4) {
					w.finish(j, 0)
				}
			}
		}
	})
	if overtook == 0 {
		t.Error("no small job ever ran before the large one: the test does not reach what it is for")
	}
}
