package top

import (
	"context"
	"errors"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// eventful answers as pastOf does, with a stream of events, and counts what it is asked.
type eventful struct {
	pastOf
	says  chan error // each is a reply, or what breaks the stream
	pings int
	away  bool // the stream cannot be opened
}

func (e *eventful) Call(ctx context.Context, method string, req, resp proto.Message) error {
	if method == tool.MethodPing {
		e.pings++
	}
	return e.pastOf.Call(ctx, method, req, resp)
}

func (e *eventful) Stream(ctx context.Context, method string, req proto.Message) (tool.Receiver, error) {
	if method != tool.MethodEvents {
		return e.pastOf.Stream(ctx, method, req)
	}
	if !req.(*apiv1.EventsRequest).GetFollow() || e.away {
		return nil, errors.New("away")
	}
	return said(e.says), nil
}

func (e *eventful) Close() error { return nil }

type said chan error

func (s said) Recv(proto.Message) error { return <-s }
func (said) Close()                     {}

// TestFollow: while the stream is silent nothing is asked, what it says is shown at once but
// not more often than the interval, and without it pings tell whether anything has happened.
func TestFollow(t *testing.T) {
	conn := &eventful{pastOf: pastOf{from: testNow}, says: make(chan error, 1)}
	env := &tool.Env{
		Loc:  time.UTC,
		Now:  func() time.Time { return time.Unix(0, testNow) },
		Dial: func(context.Context) (tool.Conn, error) { return conn, nil },
	}
	call := &tool.Call{Env: env, Ctx: t.Context(), Conn: conn, Command: Top()}
	s := &session{call: call, model: newModel(env, "alice"), every: time.Second}
	s.carryOut(s.startReading(true))
	// listen takes what the stream says next.
	listen := func(cmd tea.Cmd) tea.Cmd {
		t.Helper()
		_, next := s.Update(cmd())
		return next
	}
	expect := func(when string, asked, pings int) {
		t.Helper()
		if conn.asked != asked || conn.pings != pings {
			t.Fatalf("%s: asked for the queue %d times and pinged %d times, want %d and %d", when, conn.asked, conn.pings, asked, pings)
		}
	}
	expect("at the beginning", 1, 1)

	next := listen(s.followEvents()) // opened
	if s.events == nil || next == nil {
		t.Fatal("the stream is not followed")
	}
	s.behind = false
	s.carryOut(s.refreshLists())
	expect("while nothing happens", 1, 1)

	conn.says <- nil
	next = listen(next) // within the interval
	expect("an event within the interval", 1, 1)
	s.carryOut(s.refreshLists())
	expect("at the end of the interval", 2, 2)
	s.carryOut(s.refreshLists())
	expect("after that", 2, 2)

	conn.says <- nil
	s.shown = time.Now().Add(-time.Minute)
	both, ok := listen(next)().(tea.BatchMsg)
	if !ok || len(both) != 2 {
		t.Fatal("an event after the interval does not read and go on")
	}
	s.carryOut(both[0])
	expect("an event after the interval", 3, 3)

	s.model.paused = true
	s.shown = time.Now().Add(-time.Minute)
	conn.says <- nil
	next = listen(both[1])
	expect("an event while the screen is paused", 3, 3)
	s.model.paused = false

	conn.says <- errors.New("the controller is away")
	conn.away = true
	if listen(next) != nil || s.events != nil {
		t.Fatal("a stream that broke is followed")
	}
	s.tried = time.Time{}
	s.carryOut(s.refreshLists())
	expect("without the stream", 3, 4)
	s.carryOut(s.refreshLists())
	expect("without the stream, again", 3, 5)
	if s.events != nil || s.opening {
		t.Error("a stream that cannot be opened is followed")
	}
	conn.away = false
	s.tried = time.Time{}
	listen(s.followEvents())
	if s.events == nil {
		t.Error("the stream is not opened again")
	}
}
