package scheduler_test

import (
	"os"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/spec"
)

// judgePreempts: only jobs of a lower tier that ran for long enough are told
// to make room, each once, and only for jobs that wait.
func (w *world) judgePreempts(before *state.State, out *scheduler.Outcome) {
	w.rt.Helper()
	seen := map[spec.JobUID]bool{}
	for i := range out.Preempts {
		p := &out.Preempts[i]
		victim, j := before.Job(p.Victim.UID), before.Job(p.For)
		switch {
		case !w.kind.preempt:
			w.rt.Fatalf("job %d is preempted where there is no preemption", p.Victim.UID)
		case seen[p.Victim.UID]:
			w.rt.Fatalf("job %d is preempted twice", p.Victim.UID)
		case j == nil || j.State != spec.Pending || j.Hold != spec.NotHeld:
			w.rt.Fatalf("job %d makes room for job %d, which does not wait", p.Victim.UID, p.For)
		case victim.State != spec.Running || victim.Ending != nil:
			w.rt.Fatalf("job %d is preempted, but does not run or is ending", victim.ID)
		case p.Victim.Mode == preempt.Suspend && before.Config.Sched.Turns(before.Parts.Find(p.Partition).Spec) > 1 && victim.Alloc.Partition == p.Partition:
			if w.now.Sub(victim.RunsSince()) < 30*spec.Second {
				w.rt.Fatalf("the turn of job %d is over after %d", victim.ID, w.now.Sub(victim.RunsSince()))
			}
		case p.Victim.Mode == preempt.Suspend && victim.Het != nil:
			w.rt.Fatalf("component %d is suspended without the others", victim.ID)
		case before.Parts.Find(victim.Alloc.Partition).Spec.PriorityTier >= before.Parts.Find(p.Partition).Spec.PriorityTier:
			w.rt.Fatalf("job %d of partition %s is preempted for one in %s", victim.ID, victim.Alloc.Partition, p.Partition)
		case w.now.Sub(victim.Started) < before.Config.Sched.PreemptExempt:
			w.rt.Fatalf("job %d is preempted after %d", victim.ID, w.now.Sub(victim.Started))
		}
		seen[p.Victim.UID] = true
		for _, c := range before.Components(victim) {
			seen[c.UID] = true
		}
	}
}

// Nobody is preempted in vain: once the victims are gone, the next pass starts
// those for whom they had to go. Nor is anybody preempted for nothing: while any
// one of the victims holds its place, the job does not start.
//
// What this looks for is rare, some of a hundred worlds, and how many worlds one
// check draws is for flags to say: so it goes on until it has seen enough.
func TestPreemption(t *testing.T) {
	const enough, most = 10, 5000 // all those without any has no chance worth naming
	worlds, reached := 0, 0
	for !t.Failed() && worlds < most && (worlds < 800 || reached < enough) {
		before := worlds
		rapid.Check(t, func(rt *rapid.T) {
			worlds++
			if preemption(rt) > 0 {
				reached++
			}
		})
		if os.Getenv("MUSTER_LONG") == "" && reached >= enough || worlds == before {
			break
		}
	}
	if reached < enough && !t.Failed() {
		t.Errorf("somebody was preempted in %d of %d worlds: the test does not reach what it is for", reached, worlds)
	}
}

// preemption looks at one world and counts those who were preempted.
func preemption(rt *rapid.T) int {
	w := newWorld(rt, worldKind{odd: true, partitions: true, preempt: true, backfill: true, limits: rapid.Bool().Draw(rt, "limits")})
	for range rapid.IntRange(1, 30).Draw(rt, "steps") {
		if w.chance("heterogeneous", 6) {
			w.submitHet()
		} else {
			w.step()
		}
	}
	w.heal()
	w.now = w.now.Add(2 * spec.Minute)
	w.must(scheduler.Tick{})
	for ending := true; ending; { // what ends soon may serve others first
		ending = false
		for _, j := range w.jobs(func(j *state.Job) bool { return j.HoldsNodes() && (j.Ending != nil || j.State.Terminal()) }) {
			w.finishRest(j)
			ending = true
		}
		w.passAll()
	}
	if w.chance("for several components", 3) {
		w.submitHet("q")
	} else {
		js := w.request()
		js.Partitions = []string{"q"}
		w.submit(js)
	}
	frozen := w.head.Freeze()
	out := w.pass()
	if out.Exit == "start limit" {
		return 0
	}
	if !w.head.Config.Sched.PreemptStrict {
		w.judgeNeeded(out)
	}
	for _, j := range w.jobs(func(j *state.Job) bool { return j.HoldsNodes() && (j.Ending != nil || j.State.Terminal()) }) {
		w.finishRest(j) // those, and who was told to end before
	}
	f2 := w.head.Freeze()
	out2 := w.passAll()
	for i := range out.Preempts {
		j := w.head.Job(out.Preempts[i].For)
		if j != nil && j.State == spec.Pending && !j.IsArrayRecord() {
			rt.Fatalf("job %d was preempted for job %d, which still waits: %s\n%+v\n%s\n%s", out.Preempts[i].Victim.UID, j.ID, j.Reason, j.Spec, dump(out, frozen), dump(out2, f2))
		}
	}
	return len(out.Preempts)
}

// judgeNeeded ends all victims of one job but one, for each of them, and sees
// that the job does not start yet.
func (w *world) judgeNeeded(out *scheduler.Outcome) {
	w.rt.Helper()
	for i := range out.Preempts {
		if out.Preempts[i].For != out.Preempts[0].For || out.Preempts[i].Victim.Mode == preempt.Suspend {
			return // what one victim leaves over may serve another job
		}
	}
	whole := w.head.Freeze()
	defer func() { w.head = whole.Fork() }()
	for i := range out.Preempts {
		w.head = whole.Fork()
		for k := range out.Preempts {
			if v := w.head.Job(out.Preempts[k].Victim.UID); k != i && v.HoldsNodes() {
				w.finish(v, 0)
			}
		}
		again, err := scheduler.Pass(w.head.Freeze(), w.now, scheduler.PassOptions{})
		if err != nil {
			w.rt.Fatal(err)
		}
		for k := range again.Starts {
			if again.Starts[k].UID == out.Preempts[i].For {
				w.rt.Fatalf("job %d starts although job %d, which had to make room for it, is still there\n%s\n%s", again.Starts[k].UID, out.Preempts[i].Victim.UID, dump(out, whole), dump(again, w.head))
			}
		}
	}
}

// finishRest gives back the nodes that a job still holds.
func (w *world) finishRest(j *state.Job) {
	for i := range j.Alloc.Nodes {
		if !j.Done.Has(i) {
			w.must(scheduler.Report{Node: j.Alloc.Nodes[i].Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt}, Done: &scheduler.NodeDone{}})
		}
	}
}
