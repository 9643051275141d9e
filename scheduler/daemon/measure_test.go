package daemon

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

func (w *world) as(who Caller) { w.c.deps.Identify = func(context.Context) Caller { return who } }

// until reads what the controller says until f takes it.
func (s *agentStream) until(t *testing.T, f func(m *apiv1.ControllerMessage) bool) {
	for {
		select {
		case m := <-s.out:
			if f(m) {
				return
			}
		case <-s.ctx.Done():
			t.Fatal("the stream ended")
		}
	}
}

// The nodes of a running job are asked; what they say of other runs, twice, or
// about a question that nobody asked is left out, and a node that says nothing
// is named.
func TestStepUsageAsksTheNodes(t *testing.T) {
	w := start(t)
	s, _ := w.connect("n1")
	<-s.out
	alice := Caller{UID: 1000, GID: 1000, User: "alice"}
	w.as(alice)
	id := w.submit(&apiv1.JobSpec{Name: "a"})
	run := s.orders(t)[0].GetRun()
	type answer struct {
		rep *apiv1.StepUsageReply
		err error
	}
	ask := func(ctx context.Context, jobs ...string) chan answer {
		out := make(chan answer, 1)
		go func() {
			rep, err := w.svc.StepUsage(ctx, &apiv1.StepUsageRequest{Jobs: jobs})
			out <- answer{rep, err}
		}()
		return out
	}
	job := strconv.Itoa(int(id))
	got := ask(t.Context(), job, "4711", "x")
	s.until(t, func(m *apiv1.ControllerMessage) bool {
		q := m.GetMeasure()
		if q == nil {
			return false
		}
		if len(q.GetAttempts()) != 1 || q.GetAttempts()[0].GetJobUid() != run.GetJobUid() {
			t.Errorf("asked about %v", q.GetAttempts())
		}
		step := &apiv1.RunKey{JobUid: run.GetJobUid(), Attempt: run.GetAttempt(), Step: 3}
		other := &apiv1.RunKey{JobUid: run.GetJobUid() + 1, Attempt: run.GetAttempt()}
		old := &apiv1.RunKey{JobUid: run.GetJobUid(), Attempt: run.GetAttempt() + 1}
		say := func(ask uint64, runs ...*apiv1.Measurement) {
			s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Measured{Measured: &apiv1.Measured{Ask: ask, Runs: runs}}}
		}
		say(q.GetAsk()+1, &apiv1.Measurement{Run: run, Rss: 1})
		say(q.GetAsk(), &apiv1.Measurement{Run: step, Node: "n9", Rss: 5, Pids: make([]int32, 2*maxMeasuredPIDs)}, &apiv1.Measurement{Run: other}, &apiv1.Measurement{Run: old},
			&apiv1.Measurement{Run: run, Rss: 7}, &apiv1.Measurement{Run: run, Rss: 8})
		say(q.GetAsk(), &apiv1.Measurement{Run: run, Rss: 9})
		return true
	})
	a := <-got
	if a.err != nil || len(a.rep.GetJobs()) != 3 {
		t.Fatalf("%v %v", a.rep, a.err)
	}
	j := a.rep.GetJobs()[0]
	if j.GetJobId() != id || j.GetNodes() != "n1" || len(j.GetSilent()) != 0 || len(j.GetSteps()) != 2 || j.GetSteps()[0].GetStep() != int32(spec.StepBatch) || j.GetSteps()[0].GetTasks() != 1 ||
		len(j.GetSteps()[0].GetNodes()) != 1 || j.GetSteps()[0].GetNodes()[0].GetRss() != 7 || j.GetSteps()[1].GetNodes()[0].GetNode() != "n1" || len(j.GetSteps()[1].GetNodes()[0].GetPids()) != maxMeasuredPIDs {
		t.Errorf("%v", j)
	}
	for _, j := range a.rep.GetJobs()[1:] {
		if j.GetError().GetCode() != int32(spec.CodeInvalidJobID) {
			t.Errorf("%v", j)
		}
	}
	// Somebody else may not ask; an operator may.
	w.as(Caller{UID: 1001, GID: 1001, User: "bob"})
	if a := <-ask(t.Context(), job); a.err != nil || a.rep.GetJobs()[0].GetError().GetCode() != int32(spec.CodeAccessDenied) {
		t.Errorf("bob sees %v %v", a.rep, a.err)
	}
	w.as(Caller{})
	if a := <-ask(t.Context(), job); spec.CodeOf(a.err) != spec.CodeAccessDenied {
		t.Errorf("nobody sees %v %v", a.rep, a.err)
	}
	w.as(Caller{UID: 0, User: "root"})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if a := <-ask(ctx, job); a.err != nil || !slices.Equal(a.rep.GetJobs()[0].GetSilent(), []string{"n1"}) || len(a.rep.GetJobs()[0].GetSteps()) != 0 {
		t.Errorf("a silent node: %v %v", a.rep, a.err)
	}
	if n := len(w.c.hub.asks.open); n != 0 {
		t.Errorf("%d questions are left open", n)
	}
}

// A job that waits is known and has no steps; too many jobs are refused.
func TestStepUsageOfJobsThatDoNotRun(t *testing.T) {
	w := start(t)
	id := w.submit(&apiv1.JobSpec{Name: "waits"})
	rep, err := w.svc.StepUsage(t.Context(), &apiv1.StepUsageRequest{Jobs: []string{strconv.Itoa(int(id))}})
	if err != nil || len(rep.GetJobs()) != 1 || rep.GetJobs()[0].GetError() != nil || len(rep.GetJobs()[0].GetSteps())+len(rep.GetJobs()[0].GetSilent()) != 0 {
		t.Errorf("%v %v", rep, err)
	}
	many := slices.Repeat([]string{strconv.Itoa(int(id))}, maxMeasureJobs+1)
	if _, err := w.svc.StepUsage(t.Context(), &apiv1.StepUsageRequest{Jobs: many}); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("%d jobs: %v", len(many), err)
	}
}
