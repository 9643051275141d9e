package replay

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// site is a small cluster whose ledger becomes a history.
type site struct {
	t   *testing.T
	st  *state.State
	now spec.Instant
	h   *History
}

func (s *site) do(actor event.Actor, cmd scheduler.Command) scheduler.Result {
	s.t.Helper()
	t := trial.On(s.st.Fork(), s.now, actor, "")
	res, err := scheduler.Decide(t, cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.st = t.State
	for i := range t.Events {
		if err := s.h.Add(&t.Events[i]); err != nil {
			s.t.Fatal(err)
		}
	}
	return res
}

func (s *site) submit(js spec.JobSpec) scheduler.Result {
	js.Name, js.User, js.UID = "j", "u", 7
	return s.do(event.Actor{Kind: event.ActorUser, UID: 7, Name: "u"}, scheduler.Submit{Spec: &js})
}

// at lets jobs end at an instant and passes.
func (s *site) at(second int64, ends ...spec.JobUID) {
	s.t.Helper()
	s.now = epoch.Add(spec.Span(second) * spec.Second)
	for _, uid := range ends {
		s.do(event.Actor{Kind: event.ActorNode, Name: "n"}, scheduler.Report{Node: "n", Run: scheduler.Run{UID: uid, Attempt: 1}, Done: &scheduler.NodeDone{Batch: &event.StepResult{}}})
	}
	out, err := scheduler.Pass(s.st.Freeze(), s.now, scheduler.PassOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.do(event.Actor{Kind: event.ActorSystem}, scheduler.Starts{Proposal: &out.Proposal})
}

func cluster(cpus int64) *spec.Config {
	c := &spec.Config{ClusterName: "t", Nodes: []spec.NodeSpec{{Name: "n", CPUs: cpus, Mem: 4000}}}
	c.Sched.Backfill = true
	c.Partitions = []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n"}, Default: true, DefaultTime: spec.Hour, MaxTime: spec.Hour, State: spec.PartitionUp}}
	return c
}

// A job that depends on another waits for it in the replay, not for when it
// ended in fact; a hold that somebody released counts as it was.
func TestDependenciesOfTheHistory(t *testing.T) {
	s := &site{t: t, st: state.New(), now: epoch, h: NewHistory(epoch, epoch.Add(spec.Day), nil)}
	system := event.Actor{Kind: event.ActorSystem}
	s.do(system, scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: "t", Version: event.Version}}})
	s.do(system, scheduler.Configure{Config: cluster(4)})
	s.do(event.Actor{Kind: event.ActorNode, Name: "n"}, scheduler.RegisterNode{Node: "n", Inventory: cluster(4).Nodes[0].FullInventory("replay")})
	size := spec.Size{Tasks: 4}
	first := s.submit(spec.JobSpec{Size: size})
	parent := s.submit(spec.JobSpec{Size: size})
	dep := &spec.Dependency{Terms: []spec.DependencyTerm{{Kind: spec.AfterOK, Job: parent.ID, Task: spec.NoTask}}}
	child := s.submit(spec.JobSpec{Size: size, Queue: spec.QueueAsk{Dependency: dep}})
	held := s.submit(spec.JobSpec{Size: spec.Size{Tasks: 1}, Queue: spec.QueueAsk{Hold: spec.HeldByUser}})
	s.at(0)
	s.at(200, first.UID)
	s.at(300, parent.UID)
	s.at(350, child.UID)
	s.now = epoch.Add(1000 * spec.Second)
	s.do(event.Actor{Kind: event.ActorUser, UID: 7, Name: "u"}, scheduler.Release{Target: scheduler.Target{UID: held.UID, Task: spec.NoTask}})
	s.at(1000)
	s.at(1010, held.UID)

	w, left, err := s.h.Workload()
	if err != nil || left != 0 {
		t.Fatal(left, err)
	}
	for _, x := range []struct {
		cpus int64
		want [4][3]int64 // submission, start and end of each job
	}{
		{4, [4][3]int64{{0, 0, 200}, {0, 200, 300}, {300, 300, 350}, {1000, 1000, 1010}}},
		{8, [4][3]int64{{0, 0, 200}, {0, 0, 100}, {100, 100, 150}, {1000, 1000, 1010}}}, // with a larger node
	} {
		with, err := w.With(cluster(x.cpus), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := Run(t.Context(), with, Rule{Name: "muster"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.want {
			j := &res.Jobs[i]
			if got := [3]int64{wholeSeconds(j.Submit.Sub(epoch)), wholeSeconds(j.Start.Sub(epoch)), wholeSeconds(j.End.Sub(epoch))}; got != x.want[i] {
				t.Errorf("with %d CPUs job %d: %d, want %d (%v)", x.cpus, i+1, got, x.want[i], j.Refused)
			}
		}
	}
}
