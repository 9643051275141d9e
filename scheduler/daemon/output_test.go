package daemon

import (
	"context"
	"errors"
	"strconv"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestReadOutput: the job's node is asked for the file as the job's user, whoever of
// those who may asks; others are refused before the node hears of it. Only the node
// that was asked answers, and only once.
func TestReadOutput(t *testing.T) {
	w := start(t)
	s, _ := w.registerAs(&apiv1.Registration{Node: "n1", Outputs: true})
	<-s.out
	alice := Caller{UID: 1000, GID: 1001, User: "alice"}
	w.as(alice)
	id := w.submit(&apiv1.JobSpec{Name: "a b", WorkDir: "/home/alice", Stdout: "out-%x-%j.txt", Stderr: "/err/%u"})
	s.orders(t)
	job := strconv.Itoa(int(id))
	type answer struct {
		rep *apiv1.ReadOutputReply
		err error
	}
	ask := func(req *apiv1.ReadOutputRequest) chan answer {
		out := make(chan answer, 1)
		go func() {
			rep, err := w.svc.ReadOutput(t.Context(), req)
			out <- answer{rep, err}
		}()
		return out
	}
	for _, c := range []struct {
		who  Caller
		err  bool
		path string
	}{
		{alice, false, "/home/alice/out-a b-" + job + ".txt"},
		{alice, true, "/err/alice"},
		{Caller{UID: 0, User: "root", Admin: true}, false, "/home/alice/out-a b-" + job + ".txt"},
	} {
		w.as(c.who)
		got := ask(&apiv1.ReadOutputRequest{Job: job, Err: c.err, From: -1, Most: 1 << 30})
		s.until(t, func(m *apiv1.ControllerMessage) bool {
			q := m.GetReadFile()
			if q == nil {
				return false
			}
			if q.GetPath() != c.path || q.GetUserId() != 1000 || q.GetGroupId() != 1001 || q.GetFrom() != -1 || q.GetMost() != maxOutput {
				t.Errorf("asked for %v", q)
			}
			say := func(ask uint64, data string) {
				s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_FileRead{FileRead: &apiv1.FileRead{Ask: ask, Data: []byte(data), Size: 9}}}
			}
			say(q.GetAsk()+1, "nobody asked")
			w.c.hub.reads.take("n2", &apiv1.FileRead{Ask: q.GetAsk(), Data: []byte("another node")})
			say(q.GetAsk(), "hello")
			say(q.GetAsk(), "twice")
			return true
		})
		if a := <-got; a.err != nil || string(a.rep.GetData()) != "hello" || a.rep.GetPath() != c.path || a.rep.GetNode() != "n1" || a.rep.GetOver() {
			t.Errorf("%s: %v %v", c.who.User, a.rep, a.err)
		}
	}
	refused := func(who Caller, job string, want spec.Code) {
		t.Helper()
		w.as(who)
		rep, err := w.svc.ReadOutput(t.Context(), &apiv1.ReadOutputRequest{Job: job})
		var refusal *spec.Error
		if !errors.As(err, &refusal) || refusal.Kind != want {
			t.Errorf("%s, job %s: %v %v, want %v", who.User, job, rep, err, want)
		}
	}
	refused(Caller{UID: 1002, GID: 1001, User: "bob"}, job, spec.CodeAccessDenied)
	refused(Caller{UID: 1003, User: "operator", Admin: true}, job, spec.CodeAccessDenied)
	refused(Caller{}, job, spec.CodeAccessDenied)
	refused(alice, "4711", spec.CodeInvalidJobID)
	refused(alice, "x", spec.CodeInvalidJobID)
	// What the node refuses is the user's to read.
	w.as(alice)
	got := ask(&apiv1.ReadOutputRequest{Job: job})
	s.until(t, func(m *apiv1.ControllerMessage) bool {
		if q := m.GetReadFile(); q != nil {
			s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_FileRead{FileRead: &apiv1.FileRead{Ask: q.GetAsk(), Problem: "it is not a regular file"}}}
			return true
		}
		return false
	})
	if a := <-got; a.err == nil || !errors.Is(a.err, &spec.Error{Kind: spec.CodeNothingFound}) {
		t.Errorf("%v %v", a.rep, a.err)
	}
	// One user cannot keep all readers of the nodes.
	for range maxUserReads {
		if _, ok := w.c.hub.reads.beginRead("n1", 1000, make(chan *apiv1.FileRead, 1)); !ok {
			t.Fatal("refused too early")
		}
	}
	refused(alice, job, spec.CodeBackoff)
	w.c.hub.reads = reads{}
	// An agent of a release before does not know the question.
	go func() {
		for {
			select {
			case <-s.out: // goodbye
			case <-s.ctx.Done():
				return
			}
		}
	}()
	old, _ := w.registerAs(&apiv1.Registration{Node: "n1"})
	<-old.out
	refused(alice, job, spec.CodeDisabled)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.c.hub.readFile(ctx, "n9", 1000, &apiv1.ReadFile{}); !errors.Is(err, &spec.Error{Kind: spec.CodeUnreachable}) {
		t.Errorf("a node without an agent: %v", err)
	}
}
