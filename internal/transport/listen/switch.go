package listen

import (
	"log/slog"
	"net"
	"sync"
)

// Switch sends the connections of one listener this way or that. A controller's socket stays open
// while it stands by and while it leads; who takes what comes there changes.
type Switch struct {
	from    net.Listener
	standby *Track
	done    chan struct{}

	mu  sync.Mutex
	now *Track
}

// Track is a listener for the connections that come while it is the one in use.
type Track struct {
	of    *Switch
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewSwitch makes a switch whose connections go to the standby's track.
func NewSwitch(from net.Listener) *Switch {
	s := &Switch{from: from, done: make(chan struct{})}
	s.standby = s.newTrack()
	s.now = s.standby
	return s
}

func (s *Switch) newTrack() *Track {
	return &Track{of: s, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Standby is the track that is in use while there is no other. Its end ends the connections that
// nobody has taken.
func (s *Switch) Standby() *Track { return s.standby }

// TakeOver sends what comes to a new track, until that is closed.
func (s *Switch) TakeOver() *Track {
	track := s.newTrack()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = track
	return track
}

func (s *Switch) current() *Track {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// Run accepts until the listener is closed.
func (s *Switch) Run(logger *slog.Logger) error {
	for {
		conn, err := Accept(s.from, logger)
		if err != nil {
			select {
			case <-s.done:
				return nil
			default:
				return err
			}
		}
		go s.giveConn(conn)
	}
}

// giveConn hands a connection to the track in use, whichever that is by then.
func (s *Switch) giveConn(conn net.Conn) {
	for {
		track := s.current()
		select {
		case track.conns <- conn:
			return
		case <-track.done:
			if track == s.standby {
				conn.Close()
				return
			}
		case <-s.done:
			conn.Close()
			return
		}
	}
}

// Close closes the listener, and with it every track.
func (s *Switch) Close() error {
	close(s.done)
	return s.from.Close()
}

// Accept implements net.Listener.
func (t *Track) Accept() (net.Conn, error) {
	select {
	case c := <-t.conns:
		return c, nil
	case <-t.done:
		return nil, net.ErrClosed
	case <-t.of.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. What comes from now on goes to the standby's track.
func (t *Track) Close() error {
	t.once.Do(func() {
		t.of.mu.Lock()
		if t.of.now == t {
			t.of.now = t.of.standby
		}
		t.of.mu.Unlock()
		close(t.done)
	})
	return nil
}

// Addr implements net.Listener.
func (t *Track) Addr() net.Addr { return t.of.from.Addr() }
