package scheduler_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Random clusters under random commands: the invariants of the state hold
// after each, refusals leave nothing behind, every pass proposes the same
// twice, what it proposes is committed whole on an unchanged head, stays
// within limits and in service, and every reason is true. When the faults
// are over, every job that can run runs.
func TestRandomWorlds(t *testing.T) {
	for _, k := range []struct {
		name string
		kind worldKind
	}{
		{"plain", worldKind{}},
		{"fifo", worldKind{fifo: true}},
		{"limits", worldKind{limits: true}},
		{"partitions", worldKind{partitions: true, limits: true}},
		{"odd", worldKind{odd: true}},
		{"choosy", worldKind{odd: true, choosy: true}},
		{"reservations", worldKind{odd: true, reserve: true}},
		{"preempt", worldKind{odd: true, partitions: true, limits: true, preempt: true}},
		{"all", worldKind{odd: true, partitions: true, limits: true}},
		{"apart", worldKind{odd: true, apart: true, blocks: true}},
		{"share", worldKind{odd: true, share: true, partitions: true}},
		{"parts", worldKind{odd: true, parts: true}},
		{"parts all", worldKind{odd: true, parts: true, partitions: true, limits: true, preempt: true, reserve: true}},
		{"shallow", worldKind{odd: true, depth: 2}},
	} {
		t.Run(k.name, func(t *testing.T) {
			aheads := 0
			rapid.Check(t, func(rt *rapid.T) {
				w := newWorld(rt, k.kind)
				for range rapid.IntRange(1, 60).Draw(rt, "steps") {
					w.step()
				}
				w.pass()
				w.drainQueue()
				aheads += w.aheads
			})
			if aheads == 0 {
				t.Error("no pass handed its state over: the test does not reach that")
			}
		})
	}
}

// drainQueue heals the world and lets everything run: whatever is left then
// must never be able to run.
func (w *world) drainQueue() {
	w.heal()
	idle := 0
	for rounds := 0; idle < 3; rounds++ {
		if rounds > 2000 {
			w.rt.Fatalf("the queue does not empty: %d waiting", w.head.Waiting.Len())
		}
		before := w.head.Seq
		w.pass()
		started := w.head.Seq
		for _, j := range w.jobs(func(j *state.Job) bool { return j.HoldsNodes() }) {
			w.finish(j, 0)
		}
		w.now = w.now.Add(5 * spec.Minute)
		w.must(scheduler.Tick{})
		for _, j := range w.jobs(func(j *state.Job) bool { return j.Hold != spec.NotHeld && j.State == spec.Pending && !j.Het.Follows() }) {
			w.must(scheduler.Release{Target: scheduler.Target{UID: j.UID, Task: spec.NoTask}})
		}
		w.check()
		if idle++; started != before || len(w.jobs(func(j *state.Job) bool { return j.Begin > w.now && j.State == spec.Pending })) > 0 {
			idle = 0
		}
	}
	// The numbers of a reason are those of when it came up: have them anew.
	pending := func(j *state.Job) bool { return j.State == spec.Pending }
	for _, j := range w.jobs(pending) {
		if j.Het.Follows() {
			continue
		}
		t := scheduler.Target{UID: j.UID, Task: spec.NoTask}
		w.must(scheduler.Hold{Target: t, By: spec.HeldByAdmin})
		w.must(scheduler.Release{Target: t})
	}
	w.passAll()
	for _, j := range w.jobs(pending) {
		switch j.Reason.Code {
		case spec.ReasonPartitionConfig, spec.ReasonPartitionNodeLimit, spec.ReasonPartitionTimeLimit, spec.ReasonBadConstraints,
			spec.ReasonDependencyNever, spec.ReasonDependency, "ReservationDeleted":
		default:
			if j.Het != nil && (j.Reason.Limit != 0 || j.Reason.Code == spec.ReasonLicenses) {
				continue // what each of the components may have, all of them together may not
			}
			if !w.kind.limits || j.Reason.Limit == 0 || j.Reason.Asked <= j.Reason.Limit {
				w.rt.Fatalf("job %s still waits: %s %s\n%+v", w.title(j), j.Reason, reasonNumbers(w.session, j.Reason), j.Spec)
			}
		}
	}
}

// A pass runs on a snapshot while the head moves on: whatever happened
// meanwhile, committing its proposals breaks no rule, starts nothing on nodes
// that went out of service, and drops what is no longer true.
func TestStaleProposals(t *testing.T) {
	dropped := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, worldKind{odd: true, partitions: true, limits: rapid.Bool().Draw(rt, "limits")})
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			w.step()
		}
		for range rapid.IntRange(1, 4).Draw(rt, "passes") {
			js := w.request()
			w.submit(js)
			out, err := scheduler.Pass(w.head.Freeze(), w.now, scheduler.PassOptions{Plan: w.plan, Queue: &w.queue})
			if err != nil {
				rt.Fatal(err)
			}
			for range rapid.IntRange(1, 6).Draw(rt, "meanwhile") {
				w.user = "root"
				w.step()
			}
			before := w.head.Freeze()
			w.user = "root"
			res := w.must(scheduler.Starts{Proposal: &out.Proposal})
			w.check()
			dropped += res.Stale
			for _, e := range started(w.last) {
				for _, a := range e.Alloc.Nodes {
					if n := before.NodeByID(a.ID); !n.Usable() {
						rt.Fatalf("job %d started on node %s, which is not in service", e.UID, a.Name)
					}
				}
				if j := w.head.Job(e.UID); before.Job(e.UID) != nil && before.Job(e.UID).Hold != spec.NotHeld {
					rt.Fatalf("job %d started although it is held", j.ID)
				}
			}
			if w.kind.limits {
				w.judgeLimits()
			}
			w.judgeCaps()
		}
	})
	if dropped == 0 {
		t.Error("no proposal was ever dropped: the test does not reach what it is for")
	}
}
