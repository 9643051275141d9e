package stepclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/nodeagent/plan/x11"
)

// ErrReplaced: a node does not want this command to forward its display any more.
var ErrReplaced = errors.New("the node has ended the forwarding of the display")

// displayPatience is how long a node is tried that cannot be reached or has no display yet.
const displayPatience = time.Minute

// setupWait bounds how long an X client takes for its first message, which the node has
// read already.
const setupWait = 10 * time.Second

// Display forwards the displays of a job's nodes to that of its user.
type Display struct {
	Nodes []Node
	// Dial makes a connection to a node's agent or to one that relays to it.
	Dial func(ctx context.Context, node string) (net.Conn, error)
	// Open connects to the user's display.
	Open func(ctx context.Context) (net.Conn, error)
	// Cookie is that of the user's display.
	Cookie x11.Cookie
	// Trouble tells of a client that cannot be served, and of a node that has ended the
	// forwarding.
	Trouble func(node string, err error)
}

// Run returns when the forwarding is over on all nodes, or when the context ends.
func (d *Display) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := range d.Nodes {
		wg.Go(func() { d.followNode(ctx, &wg, &d.Nodes[i]) })
	}
	wg.Wait()
}

// followNode keeps the forwarding of a node up until that ends it.
func (d *Display) followNode(ctx context.Context, wg *sync.WaitGroup, node *Node) {
	wait := firstWait
	lastGood := time.Now()
	for ctx.Err() == nil {
		opened, err := d.watchNode(ctx, wg, node)
		if ctx.Err() != nil {
			return
		}
		if opened {
			wait = firstWait
			lastGood = time.Now()
		}
		final := errors.Is(err, ErrReplaced) || errors.Is(err, ErrDenied)
		if final || time.Since(lastGood) > displayPatience {
			d.Trouble(node.Name, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, longestWait)
	}
}

// watchNode serves the clients of a node until the connection ends; opened tells that the
// node has taken it.
func (d *Display) watchNode(ctx context.Context, wg *sync.WaitGroup, node *Node) (opened bool, err error) {
	conn, reader, err := d.open(ctx, node, stepio.Message{Display: stepio.WatchDisplay})
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	messages := stepio.NewReader(reader)
	for {
		message, err := messages.Next()
		switch {
		case err != nil:
			return true, err
		case message.Kind == stepio.Refused:
			return true, fmt.Errorf("%w: %s", ErrReplaced, message.Text)
		case message.Kind == stepio.Called:
			wg.Go(func() {
				if err := d.serveClient(ctx, node, message.Channel); err != nil && ctx.Err() == nil {
					d.Trouble(node.Name, err)
				}
			})
		default:
			return true, fmt.Errorf("%w: kind %d", stepio.ErrMessage, message.Kind)
		}
	}
}

// open opens a connection to a node for one use of its display.
func (d *Display) open(ctx context.Context, node *Node, use stepio.Message) (net.Conn, *bufio.Reader, error) {
	dialing, cancel := context.WithTimeout(ctx, setupWait)
	defer cancel()
	conn, err := d.Dial(dialing, node.Name)
	if err != nil {
		return nil, nil, err
	}
	use.Kind = stepio.Open
	use.Node = node.Name
	use.Run = node.Run
	use.Credential = node.Credential
	use.Address = node.Address
	_ = conn.SetDeadline(time.Now().Add(2 * setupWait))
	reader := bufio.NewReaderSize(conn, 32<<10)
	_, err = conn.Write(stepio.Append([]byte(stepio.Preface), &use))
	var answer stepio.Message
	if err == nil {
		answer, err = stepio.NewReader(reader).Next()
	}
	if err == nil && answer.Kind != stepio.Opened {
		err = displayRefusal(&answer)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, reader, nil
}

// displayRefusal is why a node did not open a connection.
func displayRefusal(answer *stepio.Message) error {
	switch {
	case answer.Kind != stepio.Refused:
		return fmt.Errorf("%w: kind %d", stepio.ErrMessage, answer.Kind)
	case answer.Code == stepio.Denied:
		return fmt.Errorf("%w: %s", ErrDenied, answer.Text)
	case answer.Code == stepio.Over:
		return fmt.Errorf("%w: %s", ErrReplaced, answer.Text)
	}
	return errors.New(answer.Text)
}

// serveClient carries the bytes of an X client on a node to the display and back. The
// client showed the node's cookie; the display is shown its own.
func (d *Display) serveClient(ctx context.Context, node *Node, id uint64) error {
	far, reader, err := d.open(ctx, node, stepio.Message{Display: stepio.DisplayClient, Channel: id})
	if err != nil {
		return err
	}
	defer func() { _ = far.Close() }()
	_ = far.SetReadDeadline(time.Now().Add(setupWait))
	setup, err := x11.ReadSetup(reader)
	if err != nil {
		return err
	}
	_ = far.SetReadDeadline(time.Time{})
	near, err := d.Open(ctx)
	if err != nil {
		_, _ = far.Write(setup.Refuse("the display of the job's user cannot be reached"))
		return err
	}
	defer func() { _ = near.Close() }()
	stop := context.AfterFunc(ctx, func() {
		_ = far.Close()
		_ = near.Close()
	})
	defer stop()
	if _, err := near.Write(setup.WithCookie(d.Cookie)); err != nil {
		return fmt.Errorf("the display: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(near, reader)
		_ = near.Close()
	}()
	_, _ = io.Copy(far, near)
	_ = far.Close()
	<-done
	return nil
}
