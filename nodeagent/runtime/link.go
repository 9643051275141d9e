package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

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

func connectShepherd(
	ctx context.Context,
	socket string,
	news func(*protocol.Reader, protocol.Message) error,
) (*link, error) {
	var d net.Dialer
	sock, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	reader, err := protocol.NewReader(sock)
	if err != nil {
		_ = sock.Close()
		return nil, err
	}
	c := &link{
		sock:    sock,
		r:       reader,
		w:       protocol.NewWriter(sock),
		done:    make(chan struct{}),
		news:    news,
		waiting: map[uint64]chan protocol.Message{},
	}
	go c.readAnswers()
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

// DefaultCallTimeout bounds a call to a shepherd or a step's minder where the
// site configures nothing else. It is Slurm's default of MessageTimeout.
const DefaultCallTimeout = 10 * time.Second

// ErrNoAnswer means that the process at the other end of the socket holds the
// connection open and does not answer: it is stopped, or it hangs. Whether it
// carried the request out is unknown.
var ErrNoAnswer = errors.New("no answer within the time limit")

// callWithin is call with a limit on the wait for the answer. A stopped process
// keeps its sockets open, so that without a limit the caller would wait as long
// as the process is stopped.
func (c *link) callWithin(
	ctx context.Context,
	limit time.Duration,
	op protocol.Op,
	body, into any,
) error {
	noAnswer := fmt.Errorf("%w of %s", ErrNoAnswer, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, noAnswer)
	defer cancel()
	err := c.callShepherd(ctx, op, body, into)
	if err != nil && errors.Is(context.Cause(ctx), ErrNoAnswer) &&
		errors.Is(err, context.DeadlineExceeded) {
		return noAnswer
	}
	return err
}

// callShepherd sends one request and waits for its answer.
func (c *link) callShepherd(ctx context.Context, op protocol.Op, body, into any) error {
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
	case message := <-ch:
		return c.answer(message, into)
	case <-ctx.Done():
		return ctx.Err()
	case <-c.done:
		// The answer may have come just before the end.
		select {
		case message := <-ch:
			return c.answer(message, into)
		default:
			return c.err
		}
	}
}

func (c *link) answer(message protocol.Message, into any) error {
	if message.Err != nil {
		return message.Err
	}
	if into == nil {
		return nil
	}
	return c.r.Decode(message, into)
}

// readAnswers hands out answers and news until the connection ends.
func (c *link) readAnswers() {
	defer close(c.done)
	for {
		message, err := c.r.Next()
		if err == nil && message.ID == 0 {
			err = c.news(c.r, message)
			if err == nil {
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
		ch := c.waiting[message.ID]
		c.mu.Unlock()
		if ch != nil {
			ch <- message
		}
	}
}
