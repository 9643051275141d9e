package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/spec"
	"google.golang.org/protobuf/proto"
)

// sealing is an Access whose credentials say what was signed, with a seal that only it makes.
type sealing struct{ noAccess }

func (sealing) Sign(c credentials.Claims) ([]byte, error) {
	data, err := json.Marshal(c)
	return append([]byte("sealed "), data...), err
}

func (sealing) VerifyOld(raw []byte) (c credentials.Claims, err error) {
	data, sealed := strings.CutPrefix(string(raw), "sealed ")
	if !sealed {
		return c, errors.New("unknown key")
	}
	return c, json.Unmarshal([]byte(data), &c)
}

// lostWorld is a controller that has lost the history of another one, in which a job of alice
// was started on n1 and n2, and the parts of that job as their agents have them.
type lostWorld struct {
	*world
	run   *apiv1.RunKey
	parts map[string]*apiv1.HeldRun
	kept  *apiv1.KeptOrder // of the node of its script
	s     map[string]*agentStream
}

func startLost(t *testing.T) *lostWorld {
	seal := func(d *Deps) { d.Access = sealing{} }
	before := startDeps(t, testConfig(), seal)
	streams := map[string]*agentStream{}
	for _, node := range []string{"n1", "n2"} {
		streams[node], _ = before.registerAs(&apiv1.Registration{Node: node, Epochs: true, Adopts: true})
		<-streams[node].out
	}
	before.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	for range 3 { // numbers that the other history has not reached
		before.submit(&apiv1.JobSpec{Name: "earlier", Hold: true})
	}
	id := before.submit(&apiv1.JobSpec{Name: "lost", MinNodes: 2, TimeLimit: int64(spec.Hour), Comment: "of alice"})
	l := &lostWorld{world: startDeps(t, testConfig(), seal), parts: map[string]*apiv1.HeldRun{}, s: map[string]*agentStream{}}
	for node, s := range streams {
		o := s.orders(t)[0]
		launch := o.GetLaunch()
		l.run = o.GetRun()
		l.parts[node] = &apiv1.HeldRun{Run: o.GetRun(), JobId: id, UserId: 1000, User: "alice", Started: launch.GetJob().GetStart(),
			Seq: launch.GetSeq(), Launch: launch.GetLaunch()}
		if launch.GetBatch() != (len(launch.GetRecord()) > 0) {
			t.Fatalf("%s: batch %v with a record of %d bytes", node, launch.GetBatch(), len(launch.GetRecord()))
		}
		if launch.GetBatch() {
			l.kept = &apiv1.KeptOrder{Run: o.GetRun(), NextStep: 4, Order: &apiv1.Launch{Job: launch.GetJob(),
				Record: launch.GetRecord(), Credential: launch.GetCredential(), Launch: launch.GetLaunch()}}
		}
	}
	return l
}

// connect registers a node with its part of the lost job.
func (l *lostWorld) connect(t *testing.T, node string) {
	s, _ := l.registerAs(&apiv1.Registration{Node: node, Epochs: true, Adopts: true, Held: []*apiv1.HeldRun{l.parts[node]}, Running: []*apiv1.RunKey{l.run}})
	if m := <-s.out; len(m.GetWelcome().GetUnknown()) != 1 {
		t.Fatalf("%s: %v", node, m)
	}
	l.s[node] = s
}

// adopt says what the node of the script kept, and asks for the adoption.
func (l *lostWorld) adopt(kept *apiv1.KeptOrder) (*apiv1.AdoptOrphansReply, error) {
	if kept != nil {
		l.c.orphans.noteKept("n1", []*apiv1.KeptOrder{kept})
	}
	l.as(Caller{User: "root", Admin: true})
	return l.svc.AdoptOrphans(l.t.Context(), &apiv1.AdoptOrphansRequest{Runs: []string{orphanName(l.run)}})
}

// TestAdoption: a run of a lost history becomes the job that it was, with its number, owner,
// allocation and start; its nodes are told so without a script and never start it; its end is
// that of the job.
func TestAdoption(t *testing.T) {
	l := startLost(t)
	l.connect(t, "n1")
	l.connect(t, "n2")
	rep, err := l.adopt(l.kept)
	if err != nil || len(rep.GetRuns()) != 2 || rep.GetRuns()[0].GetJobId() != l.parts["n1"].GetJobId() {
		t.Fatalf("%v, %v", rep, err)
	}
	st := l.c.View().State
	j := st.JobByID(spec.JobID(l.parts["n1"].GetJobId()))
	if j == nil || j.State != spec.Running || !j.Adopted || uint64(j.UID) != l.run.GetJobUid() || j.Epoch != l.run.GetEpoch() {
		t.Fatalf("the job is %+v", j)
	}
	if j.Spec.Name != "lost" || j.Spec.User != "alice" || j.Spec.Comment != "of alice" || len(j.Alloc.Nodes) != 2 ||
		j.Limit != spec.Hour || j.NextStep != 4 || int64(j.Started) != l.parts["n1"].GetStarted() || j.Submitter.UID != 1000 {
		t.Errorf("the job is %+v, asked for %+v", j, j.Spec)
	}
	if err := st.Check(); err != nil {
		t.Error(err)
	}
	for node, s := range l.s {
		o := s.orders(t)[0]
		launch := o.GetLaunch()
		if !launch.GetAdopted() || !proto.Equal(o.GetRun(), l.run) || len(launch.GetScript())+len(launch.GetEnvironment()) > 0 ||
			!slices.Equal(launch.GetLaunch(), l.parts[node].GetLaunch()) {
			t.Errorf("%s is ordered %v", node, o)
		}
		if st := l.c.View().State.Node(node); st.Admin != event.NodeResume {
			t.Errorf("%s is %v", node, st.Admin)
		}
	}
	if _, err := l.adopt(l.kept); err == nil {
		t.Error("a run is adopted twice")
	}
	for number, node := range []string{"n1", "n2"} {
		go func() {
			for range l.s[node].out { // the acknowledgement
			}
		}()
		l.s[node].in <- done(uint64(number+1), l.run)
	}
	l.until("over", func() bool {
		j := l.c.View().State.Job(spec.JobUID(l.run.GetJobUid()))
		return j.State == spec.Completed && !j.HoldsNodes()
	})
}

// TestAdoptionIsRefused: nothing is adopted that is not all there, not what this cluster signed,
// or another job's by now.
func TestAdoptionIsRefused(t *testing.T) {
	record := func(l *lostWorld, change func(*event.JobSubmitted, *event.JobStarted)) {
		events, err := l.deps.Codec.Decode(l.kept.Order.GetRecord())
		if err != nil {
			t.Fatal(err)
		}
		change(events[0].Event.(*event.JobSubmitted), events[1].Event.(*event.JobStarted))
		l.kept.Order.Record, err = l.deps.Codec.Encode(events)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, why string
		change    func(l *lostWorld)
	}{
		{"a node is away", "part on n2 is not known", func(l *lostWorld) { l.connect(t, "n1") }},
		{"nothing kept", "no connected node has kept its order", func(l *lostWorld) { l.kept = nil }},
		{"not signed", "credential.keys", func(l *lostWorld) { l.kept.Order.Credential = []byte("x") }},
		{"another user", "not what was signed", func(l *lostWorld) {
			record(l, func(s *event.JobSubmitted, _ *event.JobStarted) { s.Spec.UID = 0 })
		}},
		{"another script", "not what was signed", func(l *lostWorld) {
			record(l, func(s *event.JobSubmitted, _ *event.JobStarted) { s.Spec.Script[0]++ })
		}},
		{"more memory", "not what was signed", func(l *lostWorld) {
			record(l, func(_ *event.JobSubmitted, s *event.JobStarted) { s.Alloc.Nodes[0].Mem++ })
		}},
		{"another attempt", "of another run", func(l *lostWorld) {
			record(l, func(_ *event.JobSubmitted, s *event.JobStarted) { s.Attempt++ })
		}},
		{"another job", "of another run", func(l *lostWorld) {
			record(l, func(s *event.JobSubmitted, _ *event.JobStarted) { s.UID++ })
		}},
		{"another process", "not what was signed", func(l *lostWorld) { l.parts["n2"].Launch = make([]byte, 32) }},
		{"partition gone", "partition old does not exist", func(l *lostWorld) {
			record(l, func(_ *event.JobSubmitted, s *event.JobStarted) { s.Alloc.Partition = "old" })
		}},
		{"its number was given away", "to another job since", func(l *lostWorld) {
			l.as(Caller{UID: 1000, GID: 1000, User: "alice"})
			for l.c.View().State.NextUID <= spec.JobUID(l.run.GetJobUid()) {
				l.submit(&apiv1.JobSpec{Name: "new", Hold: true})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := startLost(t)
			c.change(l)
			if l.c.hub.connOf("n1") == nil {
				l.connect(t, "n1")
				l.connect(t, "n2")
			}
			jobs := l.c.View().State.Jobs.Len()
			rep, err := l.adopt(l.kept)
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("adopted %v, %v; want a refusal that says %q", rep, err, c.why)
			}
			if st := l.c.View().State; st.Jobs.Len() != jobs || l.c.View().Orphans == 0 {
				t.Errorf("%d jobs, were %d; %d orphans", st.Jobs.Len(), jobs, l.c.View().Orphans)
			}
			l.as(Caller{UID: 1000, GID: 1000, User: "alice"})
			if _, err := l.svc.AdoptOrphans(t.Context(), &apiv1.AdoptOrphansRequest{Runs: []string{orphanName(l.run)}}); err == nil || !strings.Contains(fmt.Sprint(err), "only administrators") {
				t.Errorf("a user adopts: %v", err)
			}
		})
	}
}
