package runtime

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
)

// link is a connection over which requests are asked and answered, and news
// come unasked.
type link struct {
	sock net.Conn
	r    *protocol.Reader
	w    *protocol.Writer
	done chan struct{}
	news func(*protocol.Reader, protocol.Message) error // of one goroutine; an error ends the connection

	mu      sync.Mutex
	err     error
	next    uint64
	waiting map[uint64]chan protocol.Message
}

func connect(ctx context.Context, socket string, news func(*protocol.Reader, protocol.Message) error) (*link, error) {
	var d net.Dialer
	sock, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	r, err := protocol.NewReader(sock)
	if err != nil {
		_ = sock.Close()
		return nil, err
	}
	c := &link{sock: sock, r: r, w: protocol.NewWriter(sock), done: make(chan struct{}), news: news, waiting: map[uint64]chan protocol.Message{}}
	go c.read()
	return c, nil
}

// Close ends the connection; what is at its other end goes on.
func (c *link) Close() {
	_ = c.sock.Close()
	<-c.done
	c.w.Close()
}

// Done is closed when the connection has ended.
func (c *link) Done() <-chan struct{} { return c.done }

// call sends one request and waits for its answer.
func (c *link) call(ctx context.Context, op protocol.Op, body, into any) error {
	ch := make(chan protocol.Message, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.next++
	id := c.next
	c.waiting[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	frame, err := protocol.Encode(protocol.Message{ID: id, Op: op}, body)
	if err != nil {
		return err
	}
	if err := c.w.Send(frame); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	select {
	case m := <-ch:
		return c.answer(m, into)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		// The answer may have come just before the end.
		select {
		case m := <-ch:
			return c.answer(m, into)
		default:
			return c.err
		}
	}
}

func (c *link) answer(m protocol.Message, into any) error {
	if m.Err != nil {
		return m.Err
	}
	if into == nil {
		return nil
	}
	return c.r.Decode(m, into)
}

// read hands out answers and news until the connection ends.
func (c *link) read() {
	defer close(c.done)
	for {
		m, err := c.r.Next()
		if err == nil && m.ID == 0 {
			if err = c.news(c.r, m); err == nil {
				continue
			}
		}
		if err != nil {
			c.mu.Lock()
			c.err = fmt.Errorf("%w: %w", ErrClosed, err)
			c.mu.Unlock()
			_ = c.sock.Close()
			return
		}
		c.mu.Lock()
		ch := c.waiting[m.ID]
		c.mu.Unlock()
		if ch != nil {
			ch <- m
		}
	}
}
