package daemon

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// agentStream is an agent's side of Connect.
type agentStream struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *apiv1.AgentMessage
	out chan *apiv1.ControllerMessage
}

func (s *agentStream) Context() context.Context { return s.ctx }
func (s *agentStream) Send(m *apiv1.ControllerMessage) error {
	select {
	case s.out <- m:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}
func (s *agentStream) Recv() (*apiv1.AgentMessage, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

// connect opens a node's stream, as gRPC would: its context ends when the
// handler has returned.
func (w *world) connect(node string) (s *agentStream, ended chan error) {
	return w.connectFrom(node, "")
}

// connectFrom is connect of an agent that tells its place.
func (w *world) connectFrom(node, place string) (s *agentStream, ended chan error) {
	return w.registerAs(&apiv1.Registration{Node: node, Place: place})
}

// registerAs opens a stream with a registration, to which the inventory is added.
func (w *world) registerAs(reg *apiv1.Registration) (s *agentStream, ended chan error) {
	node := reg.GetNode()
	w.c.deps.Identify = func(context.Context) Caller { return Caller{Node: node} }
	ctx, cancel := context.WithCancel(w.t.Context())
	s = &agentStream{ctx: ctx, in: make(chan *apiv1.AgentMessage), out: make(chan *apiv1.ControllerMessage)}
	ended = make(chan error, 1)
	go func() {
		defer cancel()
		ended <- (&AgentService{C: w.c}).Connect(s)
	}()
	inv := w.inventory(node)
	reg.Inventory = wire.Inventory(&inv)
	s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Registration{Registration: reg}}
	return s, ended
}

func (s *agentStream) orders(t *testing.T) []*apiv1.Order {
	for {
		select {
		case m := <-s.out:
			if o := m.GetOrders(); o != nil {
				return o.GetOrders()
			}
		case <-s.ctx.Done():
			t.Fatal("the stream ended before an order came")
		}
	}
}

func done(number uint64, k *apiv1.RunKey) *apiv1.AgentMessage {
	return &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Reports{Reports: &apiv1.Reports{Reports: []*apiv1.Report{{Number: number, Run: k,
		Kind: &apiv1.Report_NodeDone{NodeDone: &apiv1.NodeDone{Batch: &apiv1.RunEnded{}}}}}}}}
}

// An attempt's launch reaches its agent; its report is acknowledged once it is
// in the ledger; the same report sent again after a new connection is stale,
// acknowledged and changes nothing.
func TestReportsAreAcknowledgedOnceTheyAreDurable(t *testing.T) {
	w := start(t)
	s, ended := w.connect("n1")
	if m := <-s.out; m.GetWelcome() == nil || len(m.GetWelcome().GetDesired()) != 0 {
		t.Fatalf("first %v", m)
	}
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	id := w.submit(&apiv1.JobSpec{Name: "a"})
	run := s.orders(t)[0].GetRun()
	ack := func(s *agentStream, number uint64) {
		t.Helper()
		s.in <- done(number, run)
		for m := range s.out {
			if a := m.GetAck(); a != nil {
				if a.GetUpTo() != number {
					t.Fatalf("acknowledged %d", a.GetUpTo())
				}
				return
			}
		}
	}
	ack(s, 1)
	if j := w.c.View().State.JobByID(spec.JobID(id)); j.State != spec.Completed {
		t.Fatalf("acknowledged before it was published: %v", j.State)
	}
	close(s.in)
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	before := w.c.View().State
	s, _ = w.connect("n1")
	<-s.out
	if n := w.c.View().State; n.Node("n1").Registered != before.Node("n1").Registered {
		t.Error("an agent that only connected again was registered again")
	}
	ack(s, 1)
	if got := w.c.figures.stale.Load(); got != 1 {
		t.Errorf("%d reports were stale", got)
	}
	if e := w.c.View().State.JobByID(spec.JobID(id)).Ended; e != before.JobByID(spec.JobID(id)).Ended {
		t.Error("the job ended twice")
	}
}

// A second connection of a node ends the first, and begins with what runs.
func TestNewerConnectionReplacesTheOlder(t *testing.T) {
	w := start(t)
	first, ended := w.connect("n1")
	<-first.out
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	w.submit(&apiv1.JobSpec{Name: "a"})
	run := first.orders(t)[0].GetRun()
	second, _ := w.connect("n1")
	if m := <-first.out; m.GetGoodbye() == nil {
		t.Errorf("the older connection got %v", m)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if d := (<-second.out).GetWelcome().GetDesired(); len(d) != 1 || !proto.Equal(d[0], run) {
		t.Errorf("desired %v", d)
	}
	if o := second.orders(t); len(o) != 1 || o[0].GetLaunch() == nil || !proto.Equal(o[0].GetRun(), run) {
		t.Errorf("orders %v", o)
	}
}

func TestStrangersMayNotSpeakForANode(t *testing.T) {
	w := start(t)
	for name, who := range map[string]Caller{"nobody": {}, "another node": {Node: "n2"}, "a user": {UID: 1000, User: "alice"}} {
		for _, node := range []string{"n1", ""} {
			w.c.deps.Identify = func(context.Context) Caller { return who }
			s := &agentStream{ctx: t.Context(), in: make(chan *apiv1.AgentMessage, 1), out: make(chan *apiv1.ControllerMessage)}
			s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Registration{Registration: &apiv1.Registration{Node: node}}}
			if err := (&AgentService{C: w.c}).Connect(s); spec.CodeOf(err) != spec.CodeAccessDenied {
				t.Errorf("%s as %q: %v", name, node, err)
			}
		}
	}
	w.c.deps.Identify = func(context.Context) Caller { return Caller{Node: "n9"} }
	s := &agentStream{ctx: t.Context(), in: make(chan *apiv1.AgentMessage, 1), out: make(chan *apiv1.ControllerMessage)}
	s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Registration{Registration: &apiv1.Registration{Node: "n9"}}}
	if err := (&AgentService{C: w.c}).Connect(s); spec.CodeOf(err) != spec.CodeInvalidNodeName {
		t.Errorf("a node that is not configured: %v", err)
	}
}

// An agent that describes its node itself adds it, once; what it describes must
// be that node.
func TestAnAgentAddsItsNode(t *testing.T) {
	w := start(t)
	cfg := *w.c.View().State.Config
	cfg.MaxNodes = 100
	if rep := w.c.writer.commitCommand(t.Context(), &request{cmd: scheduler.Configure{Config: &cfg}}); rep.err != nil {
		t.Fatal(rep.err)
	}
	w.c.deps.Identify = func(context.Context) Caller { return Caller{Node: "d1"} }
	connect := func(text string) error {
		ctx, cancel := context.WithCancel(t.Context())
		s := &agentStream{ctx: ctx, in: make(chan *apiv1.AgentMessage, 1), out: make(chan *apiv1.ControllerMessage, 9)}
		s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Registration{Registration: &apiv1.Registration{Node: "d1", Dynamic: text,
			Inventory: &apiv1.Inventory{BootId: "b", Cpus: 4, Mem: 2000}}}}
		done := make(chan error, 1)
		go func() { done <- (&AgentService{C: w.c}).Connect(s) }()
		defer cancel()
		select {
		case err := <-done:
			return err
		case m := <-s.out:
			if m.GetWelcome() == nil {
				t.Errorf("%v", m)
			}
			return nil
		}
	}
	for _, text := range []string{"NodeName=d2 CPUs=4", "NodeName=d[1-2] CPUs=4", "NodeName=d1 CPUs=many", "PartitionName=d1", ""} {
		if err := connect(text); err == nil || w.c.View().State.Node("d1") != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"NodeName=d1 CPUs=4 RealMemory=2000 Feature=spot", "NodeName=d1 CPUs=2 RealMemory=1000"} {
		if err := connect(text); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.c.View().State.Node("d1"); n == nil || !n.Spec.Dynamic || n.Spec.CPUs != 4 || !slices.Equal(n.Spec.Features, []string{"spot"}) || n.Inv == nil {
		t.Errorf("%+v", n)
	}
}

// An agent that is still there when its node was deleted and is created anew is
// told to register again: nothing else would.
func TestANodeThatIsCreatedAnewRegisters(t *testing.T) {
	w := start(t)
	cfg := *w.c.View().State.Config
	cfg.MaxNodes = 100
	w.must(scheduler.Configure{Config: &cfg})
	node := *w.c.View().State.Node("n1").Spec
	node.Name, node.Dynamic = "d1", true
	w.must(scheduler.CreateNodes{Nodes: []spec.NodeSpec{node}})
	s, ended := w.connect("d1")
	<-s.out
	w.must(scheduler.DeleteNodes{Nodes: []string{"d1"}})
	w.must(scheduler.CreateNodes{Nodes: []spec.NodeSpec{node}})
	if m := <-s.out; m.GetGoodbye() == nil {
		t.Errorf("it got %v", m)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// No RPC of users answers a node or nobody, and administration is for
// administrators.
func TestServicesAskWhoCalls(t *testing.T) {
	w := start(t)
	calls := map[string]func(ctx context.Context) error{
		"ListJobs":     func(ctx context.Context) error { _, err := w.svc.ListJobs(ctx, nil); return err },
		"WatchJob":     func(ctx context.Context) error { return w.svc.WatchJob(nil, &jobStream{ctx: ctx}) },
		"Why":          func(ctx context.Context) error { _, err := w.svc.Why(ctx, nil); return err },
		"Nodes":        func(ctx context.Context) error { _, err := w.svc.ListNodes(ctx, nil); return err },
		"Parts":        func(ctx context.Context) error { _, err := w.svc.ListPartitions(ctx, nil); return err },
		"Config":       func(ctx context.Context) error { _, err := w.svc.GetConfig(ctx, nil); return err },
		"Policy":       func(ctx context.Context) error { _, err := w.svc.GetPolicy(ctx, nil); return err },
		"Shares":       func(ctx context.Context) error { _, err := w.svc.Shares(ctx, nil); return err },
		"LimitUsage":   func(ctx context.Context) error { _, err := w.svc.LimitUsage(ctx, nil); return err },
		"Priorities":   func(ctx context.Context) error { _, err := w.svc.Priorities(ctx, nil); return err },
		"Transactions": func(ctx context.Context) error { _, err := w.svc.Transactions(ctx, nil); return err },
		"Diag":         func(ctx context.Context) error { _, err := w.svc.Diag(ctx, nil); return err },
		"Submit":       func(ctx context.Context) error { _, err := w.svc.Submit(ctx, nil); return err },
		"Cancel":       func(ctx context.Context) error { _, err := w.svc.Cancel(ctx, nil); return err },
		"Control":      func(ctx context.Context) error { _, err := w.svc.ControlJobs(ctx, nil); return err },
	}
	admin := map[string]func(ctx context.Context) error{
		"Reconfigure":     func(ctx context.Context) error { _, err := w.svc.Reconfigure(ctx, nil); return err },
		"ChangePolicy":    func(ctx context.Context) error { _, err := w.svc.ChangePolicy(ctx, nil); return err },
		"UpdateNode":      func(ctx context.Context) error { _, err := w.svc.UpdateNode(ctx, nil); return err },
		"ChangeNodes":     func(ctx context.Context) error { _, err := w.svc.ChangeNodes(ctx, nil); return err },
		"ChangePartition": func(ctx context.Context) error { _, err := w.svc.ChangePartition(ctx, nil); return err },
		"CreateToken":     func(ctx context.Context) error { _, err := w.svc.CreateToken(ctx, nil); return err },
		"Shutdown":        func(ctx context.Context) error { _, err := w.svc.Shutdown(ctx, nil); return err },
	}
	as := func(c Caller) { w.c.deps.Identify = func(context.Context) Caller { return c } }
	denied := func(list map[string]func(context.Context) error, who string) {
		for name, call := range list {
			if err := call(t.Context()); spec.CodeOf(err) != spec.CodeAccessDenied {
				t.Errorf("%s as %s: %v", name, who, err)
			}
		}
	}
	as(Caller{})
	denied(calls, "nobody")
	denied(admin, "nobody")
	as(Caller{Node: "n1"})
	denied(calls, "a node")
	denied(admin, "a node")
	as(Caller{UID: 1000, User: "alice"})
	denied(admin, "a user")
	denied(map[string]func(context.Context) error{"Token of another": func(ctx context.Context) error {
		_, err := w.svc.CreateUserToken(ctx, &apiv1.CreateUserTokenRequest{User: "root"})
		return err
	}}, "a user")
	as(Caller{User: "ops", Admin: true, NoUID: true})
	denied(map[string]func(context.Context) error{"Submit": calls["Submit"]}, "an administrator's certificate")
	asked := false
	w.c.deps.Shutdown = func() { asked = true }
	if err := admin["Shutdown"](t.Context()); err != nil || !asked {
		t.Errorf("shutdown: %v, %v", asked, err)
	}
}

// An agent that does not read is cut off; what it missed comes with its next
// connection.
func TestAgentThatDoesNotReadIsCutOff(t *testing.T) {
	w := start(t)
	s, ended := w.connect("n1")
	<-s.out
	conn := w.c.hub.connOf("n1")
	for range 2*maxOrders + 2 {
		conn.queueOrder(&apiv1.Order{Kind: &apiv1.Order_Signal{Signal: &apiv1.SignalRun{Signal: 10}}})
	}
	if err := <-ended; err == nil {
		t.Error("the connection ended without a reason")
	}
	if len(conn.orders) > maxOrders {
		t.Errorf("%d orders are kept", len(conn.orders))
	}
}

// Messages of orders stay far below what a message may have.
func TestOrdersAreSentInMessagesThatFit(t *testing.T) {
	order := func(bytes int) *apiv1.Order {
		return &apiv1.Order{Kind: &apiv1.Order_Launch{Launch: &apiv1.Launch{Script: make([]byte, bytes)}}}
	}
	var list []*apiv1.Order
	for range 64 {
		list = append(list, order(12<<10))
	}
	list = append(list, order(4<<20), order(8<<20), order(10))
	for sent := 0; len(list) > 0; sent++ {
		n := firstMessage(list)
		if size := proto.Size(&apiv1.Orders{Orders: list[:n]}); n == 0 || (n > 1 && size > maxOrderBytes+maxOrderBytes/8) {
			t.Fatalf("message %d: %d orders, %d bytes", sent, n, size)
		}
		list = list[n:]
	}
}

// Silence counts only while somebody listens: when the clock is set forward,
// or the controller slept, no node is given up for that.
func TestSteppedClockGivesUpNoNode(t *testing.T) {
	w := start(t)
	w.register("n1")
	h := w.c.hub
	now := w.c.deps.Clock.Now()
	h.noteHeard("n1", 0, 0)
	hour := now.Add(spec.Hour)
	if len(h.silentNodes(hour)) != 1 {
		t.Fatal("an hour of silence is not noticed")
	}
	h.clockStepped(now, hour, spec.Second)
	if s := h.silentNodes(hour); len(s) != 0 {
		t.Errorf("given up after a step of the clock: %v", s)
	}
	if s := h.silentNodes(hour.Add(h.silenceTimeout() + spec.Second)); len(s) != 1 {
		t.Error("silence after the step is not noticed")
	}
	h.clockStepped(hour, now, spec.Second) // and back
	if s := h.silentNodes(now.Add(h.silenceTimeout() + spec.Second)); len(s) != 1 {
		t.Error("silence after a step back is not noticed")
	}
}

// The order that a node gets is no larger for a job of many nodes than for a job of one. Only the
// node that runs the script gets more: the record of the whole job.
func TestLaunchOfAWideJob(t *testing.T) {
	w := start(t)
	s, _ := w.connect("n1")
	<-s.out
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	id := w.submit(&apiv1.JobSpec{Name: "a"})
	first := s.orders(t)[0].GetLaunch()
	if h := first.GetHere(); h.GetName() != "n1" || len(h.GetCpus()) == 0 || first.GetCpusPerNode() == "" || first.GetTasksPerNode() != "1" || len(first.GetJob().GetAllocation()) != 0 {
		t.Fatalf("the order of n1: %v", first)
	}
	st := w.c.View().State
	wide := *st.JobByID(spec.JobID(id))
	size := func(nodes int) int {
		alloc := *wide.Alloc
		alloc.Nodes = nil
		for i := range nodes {
			part := wide.Alloc.Nodes[0]
			part.Name = fmt.Sprintf("node%04d", i)
			alloc.Nodes = append(alloc.Nodes, part)
		}
		j := wide
		j.Alloc = &alloc
		l, err := w.c.hub.launchOrder(st, &j, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Record) > 600+30*nodes {
			t.Errorf("the record of a job of %d nodes has %d bytes", nodes, len(l.Record))
		}
		l.Record = nil
		return proto.Size(l)
	}
	if few, many := size(2), size(4000); many > few+40 {
		t.Errorf("an order is %d bytes for 2 nodes and %d for 4000", few, many)
	}
}
