package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	*link
	hello plan.Hello
	limit time.Duration // of each call
	// news has room for one token: queue is not empty.
	news chan struct{}

	pushed sync.Mutex
	queue  []plan.Event
}

// Dial connects to a shepherd's socket and greets it. Each call on the
// connection is bounded by DefaultCallTimeout.
func Dial(ctx context.Context, socket string) (*Client, error) {
	return dialWithin(ctx, socket, DefaultCallTimeout)
}

func dialWithin(ctx context.Context, socket string, limit time.Duration) (*Client, error) {
	client := &Client{news: make(chan struct{}, 1), limit: limit}
	var err error
	client.link, err = connectShepherd(ctx, socket, client.take)
	if err != nil {
		return nil, fmt.Errorf("connect to the shepherd: %w", err)
	}
	if err := client.askOnce(ctx, protocol.OpHello, nil, &client.hello); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// askOnce makes one call within the limit of this connection.
func (c *Client) askOnce(ctx context.Context, op protocol.Op, body, into any) error {
	return c.callWithin(ctx, c.limit, op, body, into)
}

// Hello is what the shepherd said of itself when the connection began.
func (c *Client) Hello() plan.Hello { return c.hello }

// Greet asks the shepherd for its present Hello.
func (c *Client) Greet(ctx context.Context) (plan.Hello, error) {
	var hello plan.Hello
	err := c.askOnce(ctx, protocol.OpHello, nil, &hello)
	return hello, err
}

// Launch asks for runs, each of which starts once, ever. The answers, in the
// same order, come when the accepted runs are recorded on disk; each of those
// gives exactly one exit, also if it cannot be started.
func (c *Client) Launch(ctx context.Context, runs []plan.RunSpec) ([]plan.LaunchResult, error) {
	var reply protocol.LaunchReply
	if err := c.askOnce(ctx, protocol.OpLaunch, protocol.Launch{Runs: runs}, &reply); err != nil {
		return nil, err
	}
	if len(reply.Results) != len(runs) {
		return nil, fmt.Errorf(
			"%w: %d answers to %d launches",
			protocol.ErrFrame,
			len(reply.Results),
			len(runs),
		)
	}
	return reply.Results, nil
}

// Tell writes a line into the error output of a run, as its user.
func (c *Client) Tell(ctx context.Context, key plan.RunKey, line string) error {
	return c.askOnce(ctx, protocol.OpSignal, protocol.Signal{Key: key, Notice: line}, nil)
}

// Signal sends one signal to the processes that the scope names.
func (c *Client) Signal(ctx context.Context, key plan.RunKey, sig int32, scope plan.Scope) error {
	return c.askOnce(
		ctx,
		protocol.OpSignal,
		protocol.Signal{Key: key, Signal: sig, Scope: scope},
		nil,
	)
}

// Terminate sends SIGCONT and SIGTERM now and SIGKILL after the grace.
func (c *Client) Terminate(ctx context.Context, terminate plan.Terminate) error {
	return c.askOnce(ctx, protocol.OpTerminate, terminate, nil)
}

// Kill kills every process of the scope at once.
func (c *Client) Kill(ctx context.Context, key plan.RunKey, scope plan.Scope) error {
	return c.Terminate(ctx, plan.Terminate{Key: key, Scope: scope})
}

// List gives every run that the shepherd has, in the order of keys.
func (c *Client) List(ctx context.Context) ([]plan.Observed, error) {
	var reply protocol.ListReply
	err := c.askOnce(ctx, protocol.OpList, nil, &reply)
	return reply.Runs, err
}

// Usage gives the use so far of the named runs that have started; without
// keys, of all.
func (c *Client) Usage(ctx context.Context, keys ...plan.RunKey) ([]plan.Usage, error) {
	var reply protocol.UsageReply
	err := c.askOnce(ctx, protocol.OpUsage, protocol.Keys{Keys: keys}, &reply)
	return reply.Usage, err
}

// Ack tells the shepherd to forget runs whose exits are recorded elsewhere.
func (c *Client) Ack(ctx context.Context, keys []plan.RunKey) error {
	return c.askOnce(ctx, protocol.OpAck, protocol.Keys{Keys: keys}, nil)
}

// Grant tells the shepherd that the controller has answered a heartbeat: leases go
// on from when it was sent.
func (c *Client) Grant(ctx context.Context, grant plan.Grant) error {
	return c.askOnce(ctx, protocol.OpGrant, grant, nil)
}

// Spaces gives the attempts that have private folders, or something left of
// them. base is the folder in which they are made now, empty for none.
func (c *Client) Spaces(ctx context.Context, base string) ([]plan.RunKey, error) {
	var keys protocol.Keys
	err := c.askOnce(ctx, protocol.OpSpaces, protocol.Spaces{Base: base}, &keys)
	return keys.Keys, err
}

// Vacate removes the private folders of an attempt that is over, and returns when
// they are gone: there is no other limit, because they can hold very many files.
func (c *Client) Vacate(ctx context.Context, key plan.RunKey) error {
	return c.callShepherd(ctx, protocol.OpVacate, protocol.Vacate{Key: key}, nil)
}

// Adopt makes a process, with what it starts from then on, one of a run that lives.
func (c *Client) Adopt(ctx context.Context, key plan.RunKey, pid int) error {
	return c.askOnce(ctx, protocol.OpAdopt, protocol.Adopt{Key: key, PID: int32(pid)}, nil)
}

// Drain tells the shepherd to start nothing more and to end when its last run
// is acknowledged. It gives the keys of all runs it knows.
func (c *Client) Drain(ctx context.Context) ([]plan.RunKey, error) {
	var reply protocol.DrainReply
	err := c.askOnce(ctx, protocol.OpDrain, nil, &reply)
	return reply.Known, err
}

// Resume takes a drain back.
func (c *Client) Resume(ctx context.Context) error {
	return c.askOnce(ctx, protocol.OpResume, nil, nil)
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
			c.pushed.Lock()
			batch := c.queue
			c.queue = nil
			c.pushed.Unlock()
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
	return c.askOnce(ctx, protocol.OpSubscribe, nil, nil)
}

// take notes what the shepherd says unasked.
func (c *Client) take(reader *protocol.Reader, message protocol.Message) error {
	var events protocol.Events
	if err := reader.Decode(message, &events); err != nil {
		return err
	}
	c.pushed.Lock()
	c.queue = append(c.queue, events.Events...)
	c.pushed.Unlock()
	select {
	case c.news <- struct{}{}:
	default:
	}
	return nil
}
