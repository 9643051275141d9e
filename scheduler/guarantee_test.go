package scheduler_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// floors is a cluster of GPUs of which accounts are guaranteed some.
type floors struct {
	*world
	floor map[string]int64 // by account
	quiet [2]int64         // when, and with which head, a pass said that nobody more would make room
}

func newFloors(rt *rapid.T) *floors {
	f := &floors{world: &world{session: newSession(rt), rt: rt, kind: worldKind{preempt: true}, boots: map[string]int{}}, floor: map[string]int64{}}
	c := &spec.Config{ClusterName: "test", GresTypes: []string{"gpu"}, Limits: spec.JobLimits{JobRequeue: f.chance("requeue", 2), MaxBatchRequeue: 1000}}
	c.Sched = spec.SchedConfig{Backfill: true, BFMaxJobTest: 1000}
	c.Priority = spec.PriorityConfig{Basic: f.chance("basic", 2), Age: 1000}
	var names []string
	gpus := int64(0)
	for i := range f.n("nodes", 1, 3) {
		n := spec.NodeSpec{Name: fmt.Sprintf("n%d", i), CPUs: 16, Mem: 16000, GRES: []spec.GRESSpec{{Name: "gpu", N: int64(f.n("gpus", 1, 4))}}}
		gpus += n.GRES[0].N
		c.Nodes, names = append(c.Nodes, n), append(names, n.Name)
	}
	c.Partitions = []spec.PartitionSpec{{Name: "p", NodeNames: names, Default: true, DefaultTime: spec.Hour, MaxTime: spec.Day, State: spec.PartitionUp}}
	f.must(scheduler.Configure{Config: c})
	f.user = "root"
	for _, name := range names {
		f.must(scheduler.RegisterNode{Node: name, Inventory: f.inventory(name, map[string]string{"boot": "0"})})
	}
	for _, who := range [][2]string{{"gold", "alice"}, {"silver", "bob"}, {"guests", "carol"}} {
		account, user := who[0], who[1]
		line := "sacctmgr add account " + account
		if n := int64(f.n("floor of "+account, 0, int(gpus))); account != "guests" && n > 0 {
			gpus -= n // no more than there are
			f.floor[account] = n
			line += fmt.Sprintf(" GuaranteedTRES=gres/gpu=%d Fairshare=%d", n, f.n("shares", 1, 9))
		}
		if f.chance("weighted", 2) {
			line += fmt.Sprintf(" OverQuotaWeight=%d", f.n("weight", 0, 3))
		}
		for _, l := range []string{line, "sacctmgr add user " + user + " account=" + account} {
			if err := sacctmgr(f.session, words(l)); err != nil {
				rt.Fatal(err)
			}
		}
	}
	f.check()
	return f
}

// used is what jobs hold that are not told to end.
func (f *floors) used(st *state.State) map[string]int64 {
	out := map[string]int64{}
	st.Active.Range(func(uid uint64, _ struct{}) bool {
		if j := st.Job(spec.JobUID(uid)); j.Ending == nil {
			out[j.Spec.Account] += j.Alloc.TRES.Get("gres/gpu")
		}
		return true
	})
	return out
}

// pass runs the scheduler and sees that nobody is pushed below its floor, and
// that nobody is pushed by one beyond its own.
func (f *floors) pass() {
	f.rt.Helper()
	before := f.head.Freeze()
	used, claims := f.used(before), map[spec.JobUID]int64{}
	out, err := scheduler.Pass(before, f.now, scheduler.PassOptions{Plan: f.plan})
	if err != nil {
		f.rt.Fatal(err)
	}
	f.judgeStarts(before, out)
	if f.quiet == [2]int64{int64(f.now), int64(before.Seq)} && len(out.Preempts) > 0 {
		f.rt.Fatalf("%d make room in a pass that needed not follow", len(out.Preempts))
	}
	for i := range out.Preempts {
		p := &out.Preempts[i]
		victim, j := before.Job(p.Victim.UID), before.Job(p.For)
		from := victim.Spec.Account
		if used[from] <= f.floor[from] || from == j.Spec.Account {
			f.rt.Fatalf("job %d of %s, which holds %d of its %d, makes room for one of %s", victim.ID, from, used[from], f.floor[from], j.Spec.Account)
		}
		used[from] -= victim.Alloc.TRES.Get("gres/gpu")
		claims[j.UID] = j.Req.Get("gres/gpu")
	}
	for uid, n := range claims {
		used[before.Job(uid).Spec.Account] += n
	}
	for uid := range claims {
		if a := before.Job(uid).Spec.Account; used[a] > f.floor[a] {
			f.rt.Fatalf("%s comes to %d with what others make room for, and is guaranteed %d", a, used[a], f.floor[a])
		}
	}
	f.user = "root"
	res := f.must(scheduler.Starts{Proposal: &out.Proposal})
	f.check()
	if res.Stale != 0 || res.Preempted != len(out.Preempts) {
		f.rt.Fatalf("%d of %d victims of a pass on an unchanged head, %d stale", res.Preempted, len(out.Preempts), res.Stale)
	}
	if f.plan = out.Plan; !out.Again {
		f.quiet = [2]int64{int64(f.now), int64(f.head.Seq)}
	}
}

// TestFloors: in random histories nobody who holds no more than what is
// guaranteed is preempted, nobody preempts beyond its own floor, and once those
// who were told to end are gone, every account has its floor, or all that it asks
// for.
func TestFloors(t *testing.T) {
	preempted := 0
	rapid.Check(t, func(rt *rapid.T) {
		f := newFloors(rt)
		users := []string{"alice", "bob", "carol"}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch f.n("step", 0, 5) {
			case 0, 1, 2:
				js := &spec.JobSpec{Name: "j", User: pick(f.world, "user", users...), GID: 100, Size: spec.Size{PerNode: []spec.Count{{Name: "gpu", N: 1}}, CPUsPerTask: 1}}
				js.UID = uidOf(js.User)
				js.Time.Limit = spec.Span(f.n("minutes", 1, 12)) * 10 * spec.Minute
				if f.chance("array", 4) {
					js.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 0, Last: int64(f.n("tasks", 0, 4)), Step: 1}}, 0)
				}
				f.submit(js)
			case 3:
				f.pass()
			case 4:
				if j := f.some("ends", func(j *state.Job) bool { return j.HoldsNodes() }); j != nil {
					f.finish(j, 0)
				}
			case 5:
				f.now = f.now.Add(spec.Minute)
				f.must(scheduler.Tick{})
			}
		}
		settle := func() bool {
			running := f.head.Active.Len()
			f.pass()
			started := f.head.Active.Len() > running // for the others the next pass may make room
			ending := f.jobs(func(j *state.Job) bool { return j.HoldsNodes() && (j.Ending != nil || j.State.Terminal()) })
			preempted += len(ending)
			for _, j := range ending {
				f.finishRest(j)
			}
			return len(ending) > 0 || started
		}
		settle()
		f.now = f.now.Add(3 * spec.Minute) // a requeued job waits a while
		f.must(scheduler.Tick{})
		for range 100 { // until all who make room are gone
			if !settle() {
				break
			}
		}
		used := f.used(f.head)
		for _, j := range f.jobs(func(j *state.Job) bool { return j.State == spec.Pending && j.Hold == spec.NotHeld && j.Begin <= f.now }) {
			if a := j.Spec.Account; used[a] < f.floor[a] {
				rt.Fatalf("job %d of %s waits (%s), which holds %d of the %d it is guaranteed", j.ID, a, j.Reason, used[a], f.floor[a])
			}
		}
	})
	if preempted == 0 {
		t.Error("nobody ever made room: the test does not reach what it is for")
	}
}

// TestShares: where everybody always wants more than there is, what goes beyond
// floors is shared by weight within one job's size: nobody got its last job
// while another one, who waited, held less for each unit of its weight.
func TestShares(t *testing.T) {
	shared := 0
	rapid.Check(t, func(rt *rapid.T) {
		f := newFloors(rt)
		size := int64(f.n("size", 1, 2))
		weights := map[string]int64{}
		for account := range map[string]bool{"gold": true, "silver": true, "guests": true} {
			a := f.head.Policy.FindAssoc(account, "", "")
			if weights[account] = max(a.Share(), 1); a.OverQuota != nil {
				weights[account] = *a.OverQuota
			}
		}
		if len(f.floor) == 0 {
			return // then priority decides
		}
		for _, user := range []string{"carol", "bob", "alice"} {
			for range f.n("arrays", 1, 2) {
				js := &spec.JobSpec{Name: "j", User: user, UID: uidOf(user), GID: 100, Size: spec.Size{PerNode: []spec.Count{{Name: "gpu", N: size}}, CPUsPerTask: 1}}
				js.Time.Limit = spec.Hour
				js.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 0, Last: 500, Step: 1}}, 0)
				f.submit(js)
			}
		}
		for range rapid.IntRange(1, 20).Draw(rt, "rounds") {
			f.settleFloors()
			used := f.used(f.head)
			beyond := func(a string) int64 { return max(used[a]-f.floor[a], 0) }
			for a, x := range weights {
				for b, y := range weights {
					// Of the job that takes an account beyond its floor only a part is beyond.
					if last := beyond(a) - size; last >= 0 && x > 0 && y > 0 && last*y > beyond(b)*x {
						rt.Fatalf("%s holds %d beyond its floor by weight %d, %s %d by weight %d", a, beyond(a), x, b, beyond(b), y)
					}
					if x == 0 && y > 0 && used[b] > 0 && beyond(a) >= size && beyond(b) == 0 {
						rt.Fatalf("%s holds %d without any weight, and %s nothing beyond its floor", a, beyond(a), b)
					}
				}
			}
			shared += int(beyond("gold") + beyond("silver") + beyond("guests"))
			for range f.n("ends", 1, 3) {
				if j := f.some("who ends", func(j *state.Job) bool { return j.HoldsNodes() }); j != nil {
					f.finish(j, 0)
				}
			}
			f.now = f.now.Add(spec.Minute)
			f.must(scheduler.Tick{})
		}
	})
	if shared == 0 {
		t.Error("nothing was ever held beyond a floor")
	}
}

// settleFloors runs passes until nobody starts, or makes room, any more.
func (f *floors) settleFloors() {
	for range 100 {
		before := f.head.Seq
		f.pass()
		for _, j := range f.jobs(func(j *state.Job) bool { return j.HoldsNodes() && (j.Ending != nil || j.State.Terminal()) }) {
			f.finishRest(j)
		}
		if f.head.Seq == before {
			return
		}
	}
}
