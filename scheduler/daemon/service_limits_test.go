package daemon

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// plainUse is what a plain loop over the jobs finds for one subject.
type plainUse struct {
	running, accruing, submitted int64
	tres, seconds                map[string]int64
	nodes                        map[spec.NodeID]bool
}

// plainly counts the jobs of each subject from their records alone.
func plainly(st *state.State, now spec.Instant) map[string]*plainUse {
	out := map[string]*plainUse{}
	second := func(at spec.Instant) int64 { return at.Sub(st.Created).Seconds() }
	for uid := spec.JobUID(1); uid < st.NextUID; uid++ {
		j := st.Job(uid)
		if j == nil || j.State >= spec.Completed {
			continue
		}
		var subjects []string
		for _, name := range []string{j.Spec.QOS, "part"} { // the partition has the QOS part
			q := st.Policy.FindQOS(name)
			subjects = append(subjects, fmt.Sprint("QOS ", q.ID, 0), fmt.Sprint("QOS_USER ", q.ID, j.Spec.UID), fmt.Sprint("QOS_ACCOUNT ", q.ID, st.Policy.FindAssoc(j.Spec.Account, "", "").ID))
		}
		for a := st.Policy.Assoc(j.Assoc); a != nil; a = st.Policy.Assoc(a.Parent) {
			subjects = append(subjects, fmt.Sprint("ASSOCIATION ", 0, a.ID))
		}
		for _, s := range subjects {
			u := out[s]
			if u == nil {
				u = &plainUse{tres: map[string]int64{}, seconds: map[string]int64{}, nodes: map[spec.NodeID]bool{}}
				out[s] = u
			}
			u.submitted += max(j.Tasks.Len(), 1)
			if j.State == spec.Pending {
				if j.Eligible != 0 && j.Hold == spec.NotHeld && !j.NoAccrue {
					u.accruing += max(j.Tasks.Len(), 1)
				}
				continue
			}
			u.running++
			left := max(second(j.Started)+j.Limit.Seconds()+j.Paused.Seconds()-second(now), 0)
			if j.State == spec.Suspended {
				left = max(second(j.Started)+j.Limit.Seconds()+j.Paused.Seconds()-second(j.SuspendedAt), 0)
			}
			for _, c := range j.Alloc.TRES.All() {
				u.tres[c.Name] += c.N
				u.seconds[c.Name] += c.N * left
			}
			for i := range j.Alloc.Nodes {
				u.nodes[j.Alloc.Nodes[i].ID] = true
			}
		}
	}
	return out
}

// sameUse compares what is told of limits with a plain loop over the jobs.
func sameUse(t *testing.T, st *state.State, now spec.Instant, told []*apiv1.LimitUsage) {
	t.Helper()
	plain := plainly(st, now)
	for _, u := range told {
		key := fmt.Sprint(u.GetKind(), " ", u.GetQos(), u.GetSubject())
		p := plain[key]
		if p == nil {
			p = &plainUse{}
		}
		delete(plain, key)
		if u.GetRunning() != p.running || u.GetAccruing() != p.accruing || u.GetSubmitted() != p.submitted {
			t.Fatalf("%s: %d running, %d accruing, %d submitted are told, there are %d, %d, %d", key, u.GetRunning(), u.GetAccruing(), u.GetSubmitted(), p.running, p.accruing, p.submitted)
		}
		if len(u.GetTres()) != len(p.tres) || len(u.GetTresRunMins()) != len(p.tres) {
			t.Fatalf("%s: %v and %v are told, held is %v", key, u.GetTres(), u.GetTresRunMins(), p.tres)
		}
		for i, c := range u.GetTres() {
			want := p.tres[c.GetName()]
			if c.GetName() == "node" {
				want = int64(len(p.nodes))
			}
			if ahead := u.GetTresRunMins()[i]; c.GetN() != want || ahead.GetName() != c.GetName() || ahead.GetN() != p.seconds[c.GetName()]/60 {
				t.Fatalf("%s: %s is %d, and ahead %d minutes; there are %d and %d seconds", key, c.GetName(), c.GetN(), ahead.GetN(), want, p.seconds[c.GetName()])
			}
		}
	}
	for key := range plain {
		t.Fatalf("nothing is told of %s", key)
	}
}

// limitedWorld has users in a tree of accounts, and QOS with limits.
func limitedWorld(t *testing.T, private ...string) *world {
	conf := testConfig()
	conf.Enforce.Limits, conf.Enforce.Associations, conf.Private = true, true, private
	conf.Partitions[0].QOS = "part"
	w := startDeps(t, conf, func(*Deps) {})
	w.as(Caller{UID: 0, User: "root", Admin: true})
	text := "Cluster - 'test':Fairshare=1:QOS='capped,normal,part'\nParent - 'root'\nAccount - 'ml':MaxJobs=50:MaxWallDurationPerJob=600\nParent - 'ml'\nUser - 'alice':DefaultAccount='ml'\n" +
		"Account - 'vision':GrpTRES=node=2\nParent - 'vision'\nUser - 'bob':DefaultAccount='vision':MaxJobs=40\n"
	for _, change := range []*apiv1.PolicyChangeRequest{
		{Verb: apiv1.PolicyChangeRequest_ADD, Entity: "qos", Names: []string{"part", "capped"}},
		{Verb: apiv1.PolicyChangeRequest_MODIFY, Entity: "qos", Names: []string{"capped"}, Set: []*apiv1.ConfigEntry{{Key: "grpjobs", Value: "3"}, {Key: "maxtresperuser", Value: "gres/gpu=2"}}},
		{Verb: apiv1.PolicyChangeRequest_LOAD, Text: text},
	} {
		if _, err := w.svc.ChangePolicy(t.Context(), change); err != nil {
			t.Fatalf("%v: %v", change, err)
		}
	}
	w.register("n1", "n2")
	return w
}

// Whatever jobs come, run, are suspended, are held and end: what is told of
// each limit is what a plain loop over the jobs counts, and what the scheduler
// says a job waits for.
func TestLimitUsageIsThatOfTheJobs(t *testing.T) {
	w := limitedWorld(t)
	admin := Caller{UID: 0, User: "root", Admin: true}
	people := []Caller{{UID: 1000, GID: 1000, User: "alice"}, {UID: 1001, GID: 1001, User: "bob"}}
	r := rand.New(rand.NewPCG(7, 70))
	reported := map[scheduler.Run]bool{}
	suspended := 0
	check := func() {
		st := w.c.View().State
		for _, later := range []spec.Span{0, 17 * spec.Minute, 70 * spec.Minute} {
			now := st.At.Add(later)
			sameUse(t, st, now, w.svc.limitUsage(st, now, admin).GetUsage())
		}
	}
	for range 80 {
		who := people[r.IntN(2)]
		w.as(who)
		js := &apiv1.JobSpec{Name: "j", Qos: []string{"normal", "capped"}[r.IntN(2)], TimeLimit: int64(spec.Span(1+r.IntN(60)) * spec.Minute), CpusPerTask: uint32(1 + r.IntN(3))}
		if r.IntN(3) == 0 {
			js.PerNode = []*apiv1.Count{{Name: "gpu", N: 1}}
		}
		if r.IntN(4) == 0 {
			js.Array = []*apiv1.TaskRange{{First: 0, Last: 2, Step: 1}}
		}
		id := w.submit(js)
		w.as(admin)
		switch r.IntN(6) {
		case 0:
			w.finish(reported)
		case 1:
			if _, err := w.svc.ControlJobs(t.Context(), &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_HOLD, Jobs: []string{fmt.Sprint(id)}}); err != nil {
				t.Fatal(err)
			}
		case 2:
			w.c.View().State.Active.Range(func(uid uint64, _ struct{}) bool {
				if j := w.c.View().State.Job(spec.JobUID(uid)); j != nil && j.State == spec.Running {
					w.must(scheduler.Suspend{Target: scheduler.Target{UID: j.UID, Task: spec.NoTask}})
					suspended++
				}
				return false
			})
		}
		check()
	}
	waits := func(st *state.State) *state.Job {
		for uid := spec.JobUID(1); uid < st.NextUID; uid++ {
			if j := st.Job(uid); j != nil && j.State == spec.Pending && j.Reason.Code == spec.ReasonQOSGrpJobs {
				return j
			}
		}
		return nil
	}
	w.as(people[0])
	for range 6 { // more than the QOS lets run
		w.submit(&apiv1.JobSpec{Name: "late", Qos: "capped", TimeLimit: int64(spec.Hour)})
	}
	// A reason is as old as the pass that found it, and runs may have ended since: the
	// figure and the reason are compared in a state in which both are of now.
	capped := w.c.View().State.Policy.FindQOS("capped")
	running := func(st *state.State) int64 {
		for _, usage := range w.svc.limitUsage(st, st.At, admin).GetUsage() {
			if usage.GetKind() == apiv1.LimitUsage_QOS && usage.GetQos() == capped.ID {
				return usage.GetRunning()
			}
		}
		return 0
	}
	var st *state.State
	w.until("three running, others waiting for GrpJobs", func() bool {
		st = w.c.View().State
		return waits(st) != nil && running(st) == 3
	})
	check()
	if j := waits(st); j.Reason.Used != 3 || j.Reason.Limit != *capped.GrpJobs {
		t.Errorf("three jobs run, job %d waits for %+v", j.ID, j.Reason)
	}
	if suspended == 0 {
		t.Error("no job was ever suspended")
	}
}

// Limits of one user are those in force, inherited from the accounts above; and
// with PrivateData=usage users see of others' use only that of accounts.
func TestLimitUsageAsLimitsBindAndAsOneMaySee(t *testing.T) {
	w := limitedWorld(t, "usage")
	alice, bob := Caller{UID: 1000, GID: 1000, User: "alice"}, Caller{UID: 1001, GID: 1001, User: "bob"}
	for _, who := range []Caller{alice, bob} {
		w.as(who)
		w.submit(&apiv1.JobSpec{Name: "j", Qos: "capped"})
	}
	type seen struct{ assocs, counters, shares []string }
	look := func(who Caller) seen {
		w.as(who)
		rep, err := w.svc.LimitUsage(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var s seen
		for _, a := range rep.GetPolicy().GetAssociations() {
			if a.GetUser() != "" {
				s.assocs = append(s.assocs, fmt.Sprint(a.GetUser(), " ", a.GetMaxJobs().GetValue(), " ", spec.Span(a.GetMaxWall())/spec.Minute))
			}
		}
		for _, u := range rep.GetUsage() {
			if u.GetKind() == apiv1.LimitUsage_QOS_USER && w.c.View().State.Policy.FindQOS("capped").ID == u.GetQos() {
				s.counters = append(s.counters, fmt.Sprint(u.GetSubject()))
			}
			if a := w.c.View().State.Policy.Assoc(u.GetSubject()); u.GetKind() == apiv1.LimitUsage_ASSOCIATION && a.User != "" {
				s.counters = append(s.counters, a.User)
			}
		}
		shares, err := w.svc.Shares(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range shares.GetShares() {
			if sh.GetUser() != "" {
				s.shares = append(s.shares, sh.GetUser())
			}
		}
		slices.Sort(s.counters)
		slices.Sort(s.shares)
		return s
	}
	for _, c := range []struct {
		who  Caller
		want string
	}{
		{Caller{UID: 0, User: "root", Admin: true}, "{[root 0 0 alice 50 600 bob 40 600] [1000 1001 alice bob] [alice bob root]}"},
		{alice, "{[alice 50 600] [1000 alice] [alice]}"},
		{bob, "{[bob 40 600] [1001 bob] [bob]}"},
		{Caller{UID: 1002, GID: 1002, User: "dan"}, "{[] [] []}"},
	} {
		if got := fmt.Sprint(look(c.who)); got != c.want {
			t.Errorf("%s sees %s, want %s", c.who.User, got, c.want)
		}
	}
	w.as(Caller{UID: 0, User: "root", Admin: true})
	if _, err := w.svc.ChangePolicy(t.Context(), &apiv1.PolicyChangeRequest{Verb: apiv1.PolicyChangeRequest_ADD, Entity: "coordinator", Names: []string{"alice"}, Where: []*apiv1.ConfigEntry{{Key: "account", Value: "vision"}}}); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(look(alice)), "{[alice 50 600 bob 40 600] [1000 alice bob] [alice bob]}"; got != want {
		t.Errorf("a coordinator sees %s, want %s", got, want)
	}
}
