package top

import (
	"errors"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// follower is told by the stream of events that something has happened. What has happened is
// not looked at: the lists are read again, by the rules of who may see what.
type follower struct {
	events  *eventStream // nil: not open
	opening bool
	tried   time.Time // when it was last opened
	behind  bool      // something has happened since the lists were asked for
}

// eventStream is an open stream of events, on a connection of its own because it outlives calls.
type eventStream struct {
	conn tool.Conn
	from tool.Receiver
}

// moved is what the stream said.
type moved struct {
	events *eventStream
	err    error
}

// followEvents waits for what the stream says next, and opens it first where there is none. One
// that cannot be opened is tried again after some time.
func (s *session) followEvents() tea.Cmd {
	events := s.events
	if events == nil {
		if s.opening || time.Since(s.tried) < oldest {
			return nil
		}
		s.opening = true
		s.tried = time.Now()
		return func() tea.Msg {
			opened, err := openEvents(s.call)
			return moved{events: opened, err: err}
		}
	}
	return func() tea.Msg {
		err := events.from.Recv(&apiv1.EventsReply{})
		return moved{events: events, err: err}
	}
}

// openEvents opens the stream for the events that come.
func openEvents(call *tool.Call) (*eventStream, error) {
	conn, err := call.Dial(call.Ctx)
	if err != nil {
		return nil, err
	}
	from, err := conn.Stream(call.Ctx, tool.MethodEvents, &apiv1.EventsRequest{Follow: true})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &eventStream{conn: conn, from: from}, nil
}

// close ends the stream, and a Recv that waits for it.
func (e *eventStream) close() {
	if e == nil {
		return
	}
	e.from.Close()
	_ = e.conn.Close() // nothing is written to it
}

// hear takes what the stream said. A stream that broke is opened again by the next refresh
// that finds the controller.
func (s *session) hear(m moved) tea.Cmd {
	s.opening = false
	if m.err != nil {
		m.events.close()
		s.events = nil
		return nil
	}
	s.events = m.events
	s.behind = true // what happened before the stream was open has not been told
	if s.model.paused || s.model.wanted != nil || time.Since(s.shown) < s.every {
		return s.followEvents()
	}
	return tea.Batch(s.refreshLists(), s.followEvents())
}

// refreshLists reads the lists if something has happened, or if they are so old that the times in
// them are wrong. Without a stream it asks whether anything has.
func (s *session) refreshLists() tea.Cmd {
	if s.events == nil {
		return tea.Batch(s.startReading(false), s.followEvents())
	}
	if !s.behind && time.Since(s.shown) < oldest {
		return nil
	}
	read := s.startReading(true)
	if read != nil {
		s.behind = false
	}
	return read
}
