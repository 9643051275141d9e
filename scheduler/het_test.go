package scheduler_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// The components of heterogeneous jobs start together or not at all, whatever
// happens to nodes and jobs: after no command does one of them run while
// another waits, unless it is on its way out. When the faults are over, all
// that can run runs.
func TestHetJobs(t *testing.T) {
	started := 0
	for range 10 { // a few hundred worlds may have none that starts
		if rapid.Check(t, func(rt *rapid.T) { started += hetWorld(rt) }); started > 0 {
			return
		}
	}
	t.Error("no heterogeneous job ever started")
}

// hetWorld is one history; it returns how often components were seen to run.
func hetWorld(rt *rapid.T) (started int) {
	preempt := rapid.Bool().Draw(rt, "preempt")
	w := newWorld(rt, worldKind{odd: true, partitions: preempt || rapid.Bool().Draw(rt, "partitions"), limits: rapid.Bool().Draw(rt, "limits"), preempt: preempt, backfill: preempt})
	for range rapid.IntRange(1, 40).Draw(rt, "steps") {
		if w.chance("heterogeneous", 3) {
			w.submitHet()
		} else {
			w.step()
		}
		started += w.judgeHets()
	}
	w.pass()
	w.judgeHets()
	w.drainQueue()
	return started
}

func (w *world) submitHet(partitions ...string) {
	var list []*spec.JobSpec
	user := pick(w, "user", "alice", "bob")
	for range w.n("components", 2, 4) {
		js := w.request()
		js.User, js.UID = user, uidOf(user)
		if partitions != nil {
			js.Partitions = partitions
		}
		list = append(list, js)
	}
	w.queueing(list[0])
	list[0].Queue.Array = nil
	w.user = user
	if res, err := w.decide(scheduler.Submit{Spec: list[0], Rest: list[1:]}); err == nil {
		if n := len(w.head.Components(w.head.Job(res.UID))); n != len(list) {
			w.rt.Fatalf("%d components of %d", n, len(list))
		}
	}
	w.user = "root"
	w.check()
}

// judgeHets looks at all heterogeneous jobs, and counts those that run.
func (w *world) judgeHets() (running int) {
	w.rt.Helper()
	for _, leader := range w.jobs(func(j *state.Job) bool { return j.Het.Leads() }) {
		runs, waits := 0, 0
		for _, c := range w.head.Components(leader) {
			switch {
			case c.State.Active() && c.Ending == nil:
				runs++
			case c.State == spec.Pending:
				waits++
			}
		}
		if runs > 0 && waits > 0 {
			for _, c := range w.head.Components(leader) {
				w.rt.Logf("component %+v", c)
			}
			w.rt.Fatalf("of job %d %d components run and %d wait", leader.ID, runs, waits)
		}
		if leader.State.Terminal() && runs+waits > 0 {
			w.rt.Fatalf("job %d is over, but %d components run and %d wait", leader.ID, runs, waits)
		}
		if runs > 1 {
			running++
		}
	}
	return running
}

// What a queue remembers of a heterogeneous job is forgotten when the job is
// updated.
func TestTheQueueKnowsOfUpdatedHetJobs(t *testing.T) {
	s := newSession(t)
	s.configure("NodeName=n[1-2] CPUs=2 RealMemory=1000\nPartitionName=p Nodes=ALL Default=YES DefaultTime=60\nPartitionName=q Nodes=ALL PriorityTier=2 DefaultTime=60")
	s.run("sbatch -n2 -w n1 : -n2 -w n2")
	s.run("sbatch -n2 -w n1 : -n2 -w n2")
	var queue scheduler.Queue
	next := func() *scheduler.Outcome {
		out, err := scheduler.Pass(s.head.Freeze(), s.now, scheduler.PassOptions{Queue: &queue})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := next(); len(out.Starts) != 0 {
		t.Fatalf("%d start without nodes", len(out.Starts))
	}
	s.run("update 3 partition=q")
	s.run("register n[1-2]")
	out := next()
	if len(out.Starts) != 2 || out.Starts[0].UID != s.head.JobByID(3).UID {
		t.Errorf("%s\nnot the updated job starts: %+v", s.out, out.Starts)
	}
}

// TestHetNames: each component has the name that was given to it, else that of the
// first.
func TestHetNames(t *testing.T) {
	tr := stepCluster(t)
	part := func(name string) *spec.JobSpec {
		return &spec.JobSpec{User: "a", UID: 1, Name: name, Shell: true, Size: spec.Size{MinNodes: 1, Tasks: 1}}
	}
	res, err := scheduler.Decide(tr, scheduler.Submit{Spec: part("first"), Rest: []*spec.JobSpec{part("second"), part("")}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"first", "second", "first"} {
		if got := tr.Job(res.UID + spec.JobUID(i)).Spec.Name; got != want {
			t.Errorf("component %d is %q, want %q", i, got, want)
		}
	}
}
