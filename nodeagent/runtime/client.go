package runtime

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
)

// ErrClosed means that the connection to the shepherd has ended. Jobs go on;
// what was asked may or may not have been done, and may be asked again.
var ErrClosed = errors.New("the connection to the shepherd has ended")

// ErrNotFound matches the answer of a shepherd that has no such run.
var ErrNotFound = protocol.ErrNotFound

// Client is one connection to a shepherd. Its methods may be called from any
// goroutine; requests overlap.
type Client struct {
	sock  net.Conn
	r     *protocol.Reader
	w     *protocol.Writer
	hello plan.Hello
	done  chan struct{}
	// news has room for one token: queue is not empty.
	news chan struct{}

	mu      sync.Mutex
	err     error
	next    uint64
	waiting map[uint64]chan protocol.Message
	queue   []plan.Event
}

// Dial connects to a shepherd's socket and greets it.
func Dial(ctx context.Context, socket string) (*Client, error) {
	var d net.Dialer
	sock, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("connect to the shepherd: %w", err)
	}
	r, err := protocol.NewReader(sock)
	if err != nil {
		_ = sock.Close()
		return nil, err
	}
	c := &Client{sock: sock, r: r, w: protocol.NewWriter(sock), done: make(chan struct{}), news: make(chan struct{}, 1),
		waiting: map[uint64]chan protocol.Message{}}
	go c.read()
	if err := c.call(ctx, protocol.OpHello, nil, &c.hello); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection; the shepherd and its runs go on.
func (c *Client) Close() {
	_ = c.sock.Close()
	<-c.done
	c.w.Close()
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Hello is what the shepherd said of itself when the connection began.
func (c *Client) Hello() plan.Hello { return c.hello }

// Greet asks the shepherd for its present Hello.
func (c *Client) Greet(ctx context.Context) (plan.Hello, error) {
	var h plan.Hello
	err := c.call(ctx, protocol.OpHello, nil, &h)
	return h, err
}

// Launch asks for runs, each of which starts once, ever. The answers, in the
// same order, come when the accepted runs are recorded on disk; each of those
// gives exactly one exit, also if it cannot be started.
func (c *Client) Launch(ctx context.Context, runs []plan.RunSpec) ([]plan.LaunchResult, error) {
	var a protocol.LaunchReply
	if err := c.call(ctx, protocol.OpLaunch, protocol.Launch{Runs: runs}, &a); err != nil {
		return nil, err
	}
	if len(a.Results) != len(runs) {
		return nil, fmt.Errorf("%w: %d answers to %d launches", protocol.ErrFrame, len(a.Results), len(runs))
	}
	return a.Results, nil
}

// Signal sends one signal to the processes that the scope names.
func (c *Client) Signal(ctx context.Context, k plan.RunKey, sig int32, scope plan.Scope) error {
	return c.call(ctx, protocol.OpSignal, protocol.Signal{Key: k, Signal: sig, Scope: scope}, nil)
}

// Terminate sends SIGCONT and SIGTERM now and SIGKILL after the grace.
func (c *Client) Terminate(ctx context.Context, t plan.Terminate) error {
	return c.call(ctx, protocol.OpTerminate, t, nil)
}

// Kill kills every process of the scope at once.
func (c *Client) Kill(ctx context.Context, k plan.RunKey, scope plan.Scope) error {
	return c.Terminate(ctx, plan.Terminate{Key: k, Scope: scope})
}

// List gives every run that the shepherd has, in the order of keys.
func (c *Client) List(ctx context.Context) ([]plan.Observed, error) {
	var a protocol.ListReply
	err := c.call(ctx, protocol.OpList, nil, &a)
	return a.Runs, err
}

// Usage gives the use so far of the named runs that have started; without
// keys, of all.
func (c *Client) Usage(ctx context.Context, keys ...plan.RunKey) ([]plan.Usage, error) {
	var a protocol.UsageReply
	err := c.call(ctx, protocol.OpUsage, protocol.Keys{Keys: keys}, &a)
	return a.Usage, err
}

// Ack tells the shepherd to forget runs whose exits are recorded elsewhere.
func (c *Client) Ack(ctx context.Context, keys []plan.RunKey) error {
	return c.call(ctx, protocol.OpAck, protocol.Keys{Keys: keys}, nil)
}

// Drain tells the shepherd to start nothing more and to end when its last run
// is acknowledged. It gives the keys of all runs it knows.
func (c *Client) Drain(ctx context.Context) ([]plan.RunKey, error) {
	var a protocol.DrainReply
	err := c.call(ctx, protocol.OpDrain, nil, &a)
	return a.Known, err
}

// Resume takes a drain back.
func (c *Client) Resume(ctx context.Context) error {
	return c.call(ctx, protocol.OpResume, nil, nil)
}

// Subscribe begins the news: first every exit that is not acknowledged yet,
// then starts and exits as they happen, in batches, oldest first. fn is called
// from one goroutine, which ends with the connection. Call it once.
func (c *Client) Subscribe(ctx context.Context, fn func([]plan.Event)) error {
	go func() {
		for {
			select {
			case <-c.news:
			case <-c.done:
			}
			c.mu.Lock()
			batch := c.queue
			c.queue = nil
			c.mu.Unlock()
			if len(batch) > 0 {
				fn(batch)
				continue
			}
			select {
			case <-c.done:
				return
			default:
			}
		}
	}()
	return c.call(ctx, protocol.OpSubscribe, nil, nil)
}

// call sends one request and waits for its answer.
func (c *Client) call(ctx context.Context, op protocol.Op, body, into any) error {
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

func (c *Client) answer(m protocol.Message, into any) error {
	if m.Err != nil {
		return m.Err
	}
	if into == nil {
		return nil
	}
	return c.r.Decode(m, into)
}

// read hands out answers and news until the connection ends.
func (c *Client) read() {
	defer close(c.done)
	for {
		m, err := c.r.Next()
		if err == nil && m.ID == 0 {
			var e protocol.Events
			if err = c.r.Decode(m, &e); err == nil {
				c.mu.Lock()
				c.queue = append(c.queue, e.Events...)
				c.mu.Unlock()
				select {
				case c.news <- struct{}{}:
				default:
				}
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
