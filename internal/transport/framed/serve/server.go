package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
)

// ErrStopped is what Serve returns after Shutdown or Close.
var ErrStopped = errors.New("serve: server stopped")

// ErrFull is wrapped when a connection is refused for want of room.
var ErrFull = errors.New("serve: too many connections")

// Server serves connections until it is shut down.
type Server struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines of connections, handshakes and calls
	spare  sync.Pool      // of *[]byte: buffers of requests, from recycleMin to Limits.SmallFrame bytes

	mu        sync.Mutex
	stopping  bool
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	pending   int // handshakes under way
}

// Serve accepts connections from listener until the server stops (ErrStopped) or the listener
// fails. It closes listener.
func (s *Server) Serve(listener net.Listener) error {
	defer listener.Close()
	if s.cfg.Authenticate == nil {
		return errors.New("serve: a listener needs Config.Authenticate")
	}
	if !s.addListener(listener) {
		return ErrStopped
	}
	defer s.removeListener(listener)
	for {
		raw, err := listen.Accept(listener, s.cfg.Log)
		if err != nil {
			if s.stopped() {
				return ErrStopped
			}
			return fmt.Errorf("serve: accept: %w", err)
		}
		if !s.begin() {
			raw.Close()
			continue
		}
		go func() {
			defer s.end()
			s.handshake(raw)
		}()
	}
}

func (s *Server) addListener(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		s.listeners[listener] = struct{}{}
	}
	return !s.stopping
}

func (s *Server) removeListener(listener net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, listener)
}

func (s *Server) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// begin counts a handshake; false when there is no room or the server stops.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || len(s.conns)+s.pending >= s.cfg.Limits.Conns {
		return false
	}
	s.pending++
	s.wg.Add(1)
	return true
}

func (s *Server) end() {
	s.mu.Lock()
	s.pending--
	s.mu.Unlock()
	s.wg.Done()
}

func (s *Server) handshake(raw net.Conn) {
	ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Limits.Handshake)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { raw.Close() }) // whatever the handshake is waiting for
	nc, id, err := s.cfg.Authenticate(ctx, raw)
	if err == nil {
		reader := bufio.NewReaderSize(nc, framed.ReadBuffer)
		err = readPreface(reader)
		if err == nil && stop() {
			err = s.ServeConn(nc, reader, id)
		}
	}
	stop()
	if err != nil {
		raw.Close()
		s.cfg.Log.Debug("connection refused", "from", raw.RemoteAddr(), "error", err)
	}
}

func readPreface(reader *bufio.Reader) error {
	var b [len(framed.Preface)]byte
	if _, err := io.ReadFull(reader, b[:]); err != nil {
		return fmt.Errorf("preface: %w", err)
	}
	if string(b[:]) != framed.Preface {
		return fmt.Errorf("%w: it begins with %q", framed.ErrProtocol, b[:])
	}
	return nil
}

// ServeConn takes over an authenticated connection whose preface has been read; reader holds what
// was read beyond it (nil = nothing). It returns at once; with an error the connection is still
// the caller's.
func (s *Server) ServeConn(nc net.Conn, reader *bufio.Reader, id identity.Identity) error {
	c := newConn(s, nc, reader, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return ErrStopped
	case len(s.conns) >= s.cfg.Limits.Conns:
		return fmt.Errorf("%w: %d", ErrFull, len(s.conns))
	case !s.cfg.Table.Connect(c.party):
		return fmt.Errorf("%w of %s", ErrFull, id)
	}
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		c.run()
		s.forget(c)
	}()
	return nil
}

func (s *Server) forget(c *conn) {
	s.cfg.Table.Disconnect(c.party)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Disconnect closes every connection whose channel identity matches, for instance after a
// revocation, and returns how many.
func (s *Server) Disconnect(match func(identity.Identity) bool) int {
	n := 0
	for _, c := range s.snapshot() {
		if match(c.peer) {
			c.out.Close(errors.New("disconnected by the server"))
			n++
		}
	}
	return n
}

func (s *Server) snapshot() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// stop closes the listeners and takes no further connections.
func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for l := range s.listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.cfg.Log.Warn("closing a listener", slog.Any("error", err))
		}
	}
}

// Shutdown takes no further connections and calls, tells every client so, and waits until the
// calls under way have ended and their answers are sent. When ctx is over first it closes
// everything and returns ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop()
	var drains sync.WaitGroup
	for _, c := range s.snapshot() {
		drains.Go(func() { c.drainCalls(ctx) })
	}
	ended := make(chan struct{})
	go func() {
		drains.Wait()
		s.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		s.cancel()
		return nil
	case <-ctx.Done():
		s.Close()
		<-ended
		return ctx.Err()
	}
}

// Close ends every connection and call at once and waits for the handlers to return.
func (s *Server) Close() {
	s.stop()
	s.cancel()
	for _, c := range s.snapshot() {
		c.out.Close(ErrStopped)
	}
	s.wg.Wait()
}

// recycleMin is the size below which a buffer is not worth keeping.
const recycleMin = 1 << 10

// requestBuffer returns room for a request.
func (s *Server) requestBuffer(n int) []byte {
	if n >= recycleMin && n <= s.cfg.Limits.SmallFrame {
		if b, ok := s.spare.Get().(*[]byte); ok && cap(*b) >= n {
			return (*b)[:n]
		}
	}
	return make([]byte, n)
}

// Recycle gives the request's buffer back once it has been decoded; Payload is gone.
func (k *Call) Recycle() {
	server := k.conn.server
	if n := cap(k.raw); n >= recycleMin && n <= server.cfg.Limits.SmallFrame {
		raw := k.raw
		server.spare.Put(&raw)
	}
	k.Payload, k.raw = nil, nil
}

// Conns returns the number of open connections.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
