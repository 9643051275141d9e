package top

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// pastOf answers as a controller does whose past is known from an instant on. Its lists say
// of which moment they are, and nothing else.
type pastOf struct {
	tool.Conn
	from  int64
	asked int // how often the queue was asked for
}

func instantOf(moment *apiv1.Moment) int64 {
	if moment == nil {
		return testNow
	}
	return moment.GetAt()
}

func (p *pastOf) Call(_ context.Context, method string, req, resp proto.Message) error {
	switch method {
	case tool.MethodPing:
		proto.Merge(resp, &apiv1.PingReply{Cluster: "aurora", Seq: 7})
	case tool.MethodListNodes:
		moment := req.(*apiv1.ListNodesRequest).GetMoment()
		proto.Merge(resp, &apiv1.ListNodesReply{Now: instantOf(moment)})
	}
	return nil
}

func (p *pastOf) Stream(_ context.Context, _ string, req proto.Message) (tool.Receiver, error) {
	p.asked++
	at := instantOf(req.(*apiv1.ListJobsRequest).GetMoment())
	if at < p.from {
		return nil, errors.New("that is not known any more")
	}
	return &oneAnswer{&apiv1.ListJobsReply{Now: at, Seq: 7}}, nil
}

type oneAnswer struct{ reply proto.Message }

func (a *oneAnswer) Recv(resp proto.Message) error {
	if a.reply == nil {
		return io.EOF
	}
	proto.Merge(resp, a.reply)
	a.reply = nil
	return nil
}

func (a *oneAnswer) Close() {}

// testSession is a screen that has read the present.
func testSession(t *testing.T, conn *pastOf) *session {
	t.Helper()
	env := &tool.Env{Loc: time.UTC, Now: func() time.Time { return time.Unix(0, testNow) }}
	call := &tool.Call{Env: env, Ctx: t.Context(), Conn: conn, Command: Top()}
	s := &session{call: call, model: newModel(env, "alice"), every: time.Second}
	s.carryOut(s.startReading(true))
	return s
}

// carryOut does what bubbletea does: it runs a command and hands the message on.
func (s *session) carryOut(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.BatchMsg:
		for _, one := range msg {
			s.carryOut(one)
		}
	default:
		_, next := s.Update(msg)
		s.carryOut(next)
	}
}

func typed(text string) tea.KeyMsg { return tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(text)} }

// shows says of which moment the lists are.
func (s *session) shows(t *testing.T, want int64) {
	t.Helper()
	m := s.model
	if m.jobs.GetNow() != want || m.nodes.GetNow() != want || (m.moment != nil) != (want != testNow) {
		t.Fatalf("the queue is of %v, the nodes of %v, the moment is %v, want %v",
			m.jobs.GetNow(), m.nodes.GetNow(), m.moment, want)
	}
}

const minute = 60 * tool.Second

// TestTimeTravel: keys go to a moment and back, those that arrive together add up, and a
// moment that is not known leaves the screen where it was.
func TestTimeTravel(t *testing.T) {
	conn := &pastOf{from: testNow - 100*minute}
	s := testSession(t, conn)
	s.shows(t, testNow)
	press := func(msg tea.KeyMsg) {
		_, cmd := s.Update(msg)
		s.carryOut(cmd)
	}
	press(typed("[[["))
	s.shows(t, testNow-3*minute)
	press(typed("{"))
	s.shows(t, testNow-63*minute)
	press(typed("{"))
	s.shows(t, testNow-63*minute)
	if s.model.message == "" {
		t.Error("nothing says that the moment is not known")
	}
	press(typed("]"))
	s.shows(t, testNow-62*minute)
	before := conn.asked
	_, cmd := s.Update(tick{})
	if cmd == nil || conn.asked != before {
		t.Error("the past was read again")
	}
	press(typed("n"))
	s.shows(t, testNow)
	press(typed("t07:30"))
	press(tea.KeyMsg{Type: tea.KeyEnter})
	s.shows(t, testNow-30*minute)
	press(typed("}"))
	s.shows(t, testNow)
}

// TestKeysWhileReading: what keys ask for while a moment is being read is read next, and on
// the way back the lists of the present are read although nothing has happened.
func TestKeysWhileReading(t *testing.T) {
	s := testSession(t, &pastOf{})
	_, first := s.Update(typed("["))
	_, second := s.Update(typed("["))
	if second != nil {
		t.Fatal("two moments are being read at once")
	}
	s.carryOut(first)
	s.shows(t, testNow-2*minute)
	_, first = s.Update(typed("{"))
	s.Update(typed("n"))
	s.carryOut(first)
	s.shows(t, testNow)
}

// TestPaste: pasted text fills a line that is being typed and is no keys elsewhere.
func TestPaste(t *testing.T) {
	s := testSession(t, &pastOf{})
	paste := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("cypq"), Paste: true}
	if _, cmd := s.Update(paste); cmd != nil || s.model.paused {
		t.Error("pasted text was taken for keys")
	}
	s.Update(typed("/"))
	s.Update(paste)
	if s.model.filter != "cypq" {
		t.Errorf("the filter is %q", s.model.filter)
	}
}
