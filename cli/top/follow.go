package top

import (
	"time"

	tea "github.com/charmbracelet/bubbletea"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
)

// follower is told by the stream of events that something has happened. What has happened is
// not looked at: the lists are read again, by the rules of who may see what.
type follower struct {
	conn      tool.Conn // of its own, because a stream outlives calls
	stream    tool.Receiver
	following bool // the stream is open: while it says nothing, nothing has happened
	behind    bool // something has happened since the lists were asked for

	opening bool
	tried   time.Time // when it was last opened
}

// moved is what the stream said.
type moved struct {
	from follower
	err  error
}

// follow waits for what the stream says next, and opens it first where there is none. One
// that cannot be opened is tried again after some time.
func (s *session) follow() tea.Cmd {
	from := s.follower
	if from.stream == nil {
		if s.opening || time.Since(s.tried) < oldest {
			return nil
		}
		s.opening = true
		s.tried = time.Now()
		return func() tea.Msg {
			err := from.open(s.call)
			return moved{from: from, err: err}
		}
	}
	return func() tea.Msg {
		err := from.stream.Recv(&apiv1.EventsReply{})
		return moved{from: from, err: err}
	}
}

// open opens the stream for the events that come.
func (f *follower) open(call *tool.Call) (err error) {
	f.conn, err = call.Dial(call.Ctx)
	if err != nil {
		return err
	}
	f.stream, err = f.conn.Stream(call.Ctx, tool.MethodEvents, &apiv1.EventsRequest{Follow: true})
	if err != nil {
		f.close()
	}
	return err
}

// close gives up what is open.
func (f *follower) close() {
	if f.stream != nil {
		f.stream.Close()
	}
	if f.conn != nil {
		_ = f.conn.Close() // nothing is written to it
	}
	f.conn, f.stream = nil, nil
}

// hear takes what the stream said. A stream that broke is opened again by the next refresh
// that finds the controller.
func (s *session) hear(m moved) tea.Cmd {
	s.opening = false
	if m.err != nil {
		m.from.close()
		s.conn, s.stream = nil, nil
		s.following = false
		return nil
	}
	s.conn = m.from.conn
	s.stream = m.from.stream
	s.following = true
	s.behind = true // what happened before the stream was open has not been told
	if s.model.paused || s.model.wanted != nil || time.Since(s.shown) < s.every {
		return s.follow()
	}
	return tea.Batch(s.refresh(), s.follow())
}

// refresh reads the lists if something has happened, or if they are so old that the times in
// them are wrong. Without a stream it asks whether anything has.
func (s *session) refresh() tea.Cmd {
	if !s.following {
		return tea.Batch(s.read(false), s.follow())
	}
	if !s.behind && time.Since(s.shown) < oldest {
		return nil
	}
	read := s.read(true)
	if read != nil {
		s.behind = false
	}
	return read
}
