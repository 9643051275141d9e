package daemon

import (
	"strings"
	"sync/atomic"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// aheadClock is the real one, some time ahead.
type aheadClock struct {
	realClock
	ahead atomic.Int64
}

func (c *aheadClock) Now() spec.Instant { return c.realClock.Now().Add(spec.Span(c.ahead.Load())) }

// TestSecondAgentOfANode: of two agents that speak for one node the first
// stays, the other is told why not, and the node says that there is another;
// the first may restart, and who is alone, or comes after one that has been
// silent for long, has the node.
func TestSecondAgentOfANode(t *testing.T) {
	clock := &aheadClock{}
	w := startAt(t, 1, clock)
	degraded := func() string {
		t.Helper()
		return w.node("n1").GetDegraded()
	}
	welcome := func(place string) (*agentStream, chan error) {
		t.Helper()
		s, ended := w.connectFrom("n1", place)
		select {
		case m := <-s.out:
			if m.GetWelcome() == nil {
				t.Fatalf("%s got %v", place, m)
			}
		case err := <-ended:
			t.Fatalf("%s was refused: %v", place, err)
		}
		return s, ended
	}
	refused := func(place, of string) {
		t.Helper()
		s, ended := w.connectFrom("n1", place)
		var err error
		select {
		case m := <-s.out:
			t.Fatalf("%s beside %s got %v", place, of, m)
		case err = <-ended:
		}
		if spec.CodeOf(err) != spec.CodeAccessDenied || !strings.Contains(err.Error(), "node n1 has an agent, "+of+": this one, "+place+", is a second") {
			t.Errorf("%s beside %s: %v", place, of, err)
		}
		if got, want := degraded(), "a second agent, "+place+", wants to be this node and is refused: the node's is "+of; !strings.HasSuffix(got, want) {
			t.Errorf("the node says %q, want %q", got, want)
		}
	}
	first, ended := welcome("host:/a")
	if got := degraded(); strings.Contains(got, "second agent") {
		t.Errorf("one agent: %q", got)
	}
	refused("host:/b", "host:/a")
	clock.ahead.Add(int64(rivalShown + spec.Second))
	if got := degraded(); strings.Contains(got, "second agent") {
		t.Errorf("nobody has asked for long: %q", got)
	}
	again, endedAgain := welcome("host:/a") // it restarts before its connection is seen to end
	if m := <-first.out; m.GetGoodbye() == nil {
		t.Errorf("the older connection got %v", m)
	}
	<-ended
	refused("host:/b", "host:/a")
	close(again.in)
	<-endedAgain
	refused("host:/b", "host:/a") // it is about to come back
	again, endedAgain = welcome("host:/a")
	close(again.in)
	<-endedAgain
	clock.ahead.Add(int64(seatKept + spec.Second))
	silent, _ := welcome("host:/b") // it stays away
	refused("host:/a", "host:/b")
	clock.ahead.Add(int64(2*w.c.hub.heartbeatInterval() + spec.Second))
	welcome("host:/a")
	if m := <-silent.out; m.GetGoodbye() == nil {
		t.Errorf("the silent agent got %v", m)
	}
	unknown, _ := w.connectFrom("n1", "") // of an older release: replaces, as ever
	if m := <-unknown.out; m.GetWelcome() == nil {
		t.Errorf("an agent that tells no place got %v", m)
	}
}

// node asks for one node, as an administrator.
func (w *world) node(name string) *apiv1.NodeInfo {
	w.t.Helper()
	w.as(Caller{User: "root", Admin: true})
	rep, err := w.svc.ListNodes(w.t.Context(), &apiv1.ListNodesRequest{Nodes: []string{name}})
	if err != nil || len(rep.GetNodes()) != 1 {
		w.t.Fatalf("%v, %v", rep, err)
	}
	return rep.GetNodes()[0]
}
