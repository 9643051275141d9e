package stepclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
)

// ackEvery is how much is taken before the node may forget it, in bytes; each
// frame counts for frameCost besides what it carries. It is far below what a node
// keeps before tasks that write wait.
const (
	ackEvery  = 128 << 10
	frameCost = 256
)

// farewell bounds the end of a connection: the node closes it once it has heard
// that everything has arrived.
const farewell = 2 * time.Second

// node is the connection to one node.
type node struct {
	*Node
	of    *Client
	index uint32

	mu      sync.Mutex
	changed *sync.Cond
	queue   []stepio.Message // to be sent
	unheard []stepio.Message // input that the node has not taken, sent or not
	size    int              // of it, in bytes
	fences  []plan.Fence     // of each group the last one that all nodes have passed
	modex   []plan.Modex     // questions without an answer, and answers without a receipt
	have    uint64           // frames up to here have been handled
	broken  bool             // the writer of this connection is to end
	over    bool
}

func newNode(of *Client, index uint32, n *Node) *node {
	out := &node{Node: n, of: of, index: index}
	out.changed = sync.NewCond(&out.mu)
	return out
}

// queueMessage queues a message for the node; while there is no connection it waits.
func (n *node) queueMessage(message stepio.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.over {
		n.queue = append(n.queue, message)
		n.changed.Broadcast()
	}
}

// sendMerged tells the node's tasks what all have put; it is said again over a new
// connection.
func (n *node) sendMerged(fence plan.Fence) {
	n.mu.Lock()
	n.fences = slices.DeleteFunc(n.fences, func(f plan.Fence) bool { return f.Group == fence.Group })
	n.fences = append(n.fences, fence)
	n.mu.Unlock()
	n.queueMessage(stepio.Message{Kind: stepio.Merged, Fence: fence})
}

// sendModex tells the node's tasks what another node asks or answers; it is said
// again over a new connection, until it is forgotten.
func (n *node) sendModex(modex *plan.Modex) {
	n.mu.Lock()
	n.modex = append(n.modex, *modex)
	n.mu.Unlock()
	n.queueMessage(stepio.Message{Kind: stepio.Modex, Modex: *modex})
}

// forget drops a question of another node that has its answer, or an answer that
// has arrived.
func (n *node) forget(kind plan.ModexKind, from uint32, number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.modex = slices.DeleteFunc(n.modex, func(modex plan.Modex) bool {
		return modex.Kind == kind && modex.Number == number &&
			(kind == plan.ModexAnswer || modex.From == from)
	})
}

// feedInput queues a piece of input when there is room.
func (n *node) feedInput(ctx context.Context, message stepio.Message) error {
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed.Broadcast()
	})
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for (n.size+len(message.Data) > stepio.MaxWindow || len(n.unheard) >= stepio.MaxPieces) && !n.over {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n.changed.Wait()
	}
	if n.over {
		return nil
	}
	n.unheard, n.size = append(n.unheard, message), n.size+len(message.Data)
	n.queue = append(n.queue, message)
	n.changed.Broadcast()
	return nil
}

// taken forgets input that the node has.
func (n *node) taken(message *stepio.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := n.unheard[:0]
	for _, u := range n.unheard {
		if u.Rank == message.Rank &&
			(len(u.Data) > 0 && u.Offset+uint64(len(u.Data)) <= message.Offset) {
			n.size -= len(u.Data)
		} else {
			kept = append(kept, u)
		}
	}
	n.unheard = kept
	n.changed.Broadcast()
}

// run keeps the node connected until the step is over there.
func (n *node) run(ctx context.Context) error {
	defer n.finish()
	wait := firstWait
	for {
		before := n.have
		over, err := n.connection(ctx)
		switch {
		case over || ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrDenied) || errors.Is(err, errShown):
			return err
		case errors.Is(err, ErrOver):
			n.of.mu.Lock()
			n.of.noteNodeEnd(n, plan.FrameEnd{}, err)
			n.of.mu.Unlock()
			return nil
		}
		if n.have > before {
			wait = firstWait
		}
		if n.of.cfg.Trouble != nil {
			n.of.mu.Lock()
			n.of.cfg.Trouble(n.Name, err)
			n.of.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, longestWait)
	}
}

// errShown ends the client: what happens cannot be shown.
var errShown = errors.New("the step's output cannot be written")

// finish frees whoever waits for the node.
func (n *node) finish() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	n.queue = nil
	n.unheard = nil
	n.modex = nil
	n.changed.Broadcast()
}

// connection is one connection, from its beginning to its end.
func (n *node) connection(ctx context.Context) (over bool, err error) {
	sock, err := n.of.cfg.Dial(ctx, n.Name)
	if err != nil {
		return false, err
	}
	stop := context.AfterFunc(ctx, func() { _ = sock.Close() })
	defer stop()
	n.mu.Lock()
	n.broken = false
	again := append([]stepio.Message(nil), n.unheard...)
	for _, message := range n.queue { // what is said once only, and was not yet
		if message.Kind == stepio.Signal || message.Kind == stepio.Resize {
			again = append(again, message)
		}
	}
	n.queue = again
	for _, fence := range n.fences {
		n.queue = append(n.queue, stepio.Message{Kind: stepio.Merged, Fence: fence})
	}
	for _, modex := range n.modex {
		n.queue = append(n.queue, stepio.Message{Kind: stepio.Modex, Modex: modex})
	}
	n.mu.Unlock()
	open := stepio.Append(
		[]byte(stepio.Preface),
		&stepio.Message{
			Kind:       stepio.Open,
			Node:       n.Name,
			Address:    n.Address,
			Run:        n.Run,
			Credential: n.Credential,
			Watch:      n.of.cfg.Watch,
			UpTo:       n.have,
		},
	)
	_, err = sock.Write(open)
	if err != nil {
		_ = sock.Close()
		return false, err
	}
	var wg sync.WaitGroup
	begun := false
	over, err = n.read(sock, func() {
		if !begun {
			begun = true
			wg.Go(func() { n.write(sock) })
		}
	})
	n.mu.Lock()
	n.broken = true
	n.changed.Broadcast()
	n.mu.Unlock()
	if over &&
		!n.of.cfg.Watch { // what is still to be said leaves, and who is at the other end is not kept waiting
		_ = sock.SetDeadline(time.Now().Add(farewell))
		wg.Go(func() { _, _ = io.Copy(io.Discard, sock) })
	} else {
		_ = sock.Close()
	}
	wg.Wait()
	_ = sock.Close()
	return over, err
}

// read handles what the node says; opened is called once it takes us.
func (n *node) read(sock net.Conn, opened func()) (over bool, err error) {
	buffered := bufio.NewReaderSize(sock, 32<<10)
	reader := stepio.NewReader(buffered).Reuse()
	due := 0
	for {
		message, err := reader.Next()
		if err != nil {
			return false, err
		}
		switch message.Kind {
		case stepio.Opened:
			opened()
		case stepio.Refused:
			return false, refusal(&message)
		case stepio.Taken:
			n.taken(&message)
		case stepio.Frame:
			if message.Frame.Number <= n.have {
				continue // heard before
			}
			over, err = n.of.handleFrame(n, &message.Frame)
			if err != nil {
				return false, fmt.Errorf("%w: %w", errShown, err)
			}
			n.have = message.Frame.Number
			switch due += frameCost; {
			case message.Frame.Output != nil:
				due += len(message.Frame.Output.Data)
			case message.Frame.Fence != nil:
				due += len(message.Frame.Fence.Data)
			case message.Frame.Modex != nil:
				due += len(message.Frame.Modex.Data)
			}
			if (over || due >= ackEvery) && !n.of.cfg.Watch {
				due = 0
				n.queueMessage(stepio.Message{Kind: stepio.Ack, UpTo: n.have})
			}
			if over {
				return true, nil
			}
		}
	}
}

// refusal is the error of a refused connection.
func refusal(message *stepio.Message) error {
	switch message.Code {
	case stepio.Denied, stepio.Bad:
		return fmt.Errorf("%w: %s", ErrDenied, message.Text)
	case stepio.Over:
		return fmt.Errorf("%w: %s", ErrOver, message.Text)
	case stepio.Unreachable:
	}
	return errors.New(message.Text)
}

// write sends what is queued until the connection ends; what was queued before
// the end of the step still leaves.
func (n *node) write(sock io.Writer) {
	for {
		n.mu.Lock()
		for len(n.queue) == 0 && !n.broken {
			n.changed.Wait()
		}
		list := n.queue
		n.queue = nil
		ends := n.broken && len(list) == 0
		n.mu.Unlock()
		if ends {
			return
		}
		var buffer []byte
		for i := range list {
			buffer = stepio.Append(buffer, &list[i])
		}
		if _, err := sock.Write(buffer); err != nil {
			return // the reader sees it too
		}
	}
}
