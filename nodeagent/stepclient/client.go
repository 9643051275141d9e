// Package stepclient is the client's side of nodeagent/plan/stepio: it holds a
// connection to each node of a step, makes a broken one anew, and gives what
// happens there to the program that shows it.
package stepclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/pmi"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/spec"
)

// Node is a node of the step, with the ranks of its tasks, and the right to
// attach to its part there. A step in several components of a heterogeneous job
// is another run in each, and may be on a node more than once.
type Node struct {
	Name       string
	Address    string // of its agent, for an agent that relays to it
	Ranks      []uint32
	Run        plan.RunKey
	Credential []byte
}

// Config says where a client's step is, and what happens with its news. The
// functions are called one at a time; while one waits, so does the step's
// output. They may be nil.
type Config struct {
	Nodes []Node // in the step's order
	// Watch makes a client beside the step's own: it sees what happens from now
	// on, and the step does not wait for it.
	Watch bool
	// Dial makes a connection to a node's agent or to one that relays to it.
	Dial func(ctx context.Context, node string) (net.Conn, error)

	Started func(node string, ranks []uint32, pids []int32)
	// Output takes what a task has written, and does not keep it; no data is the
	// end of the stream. An error ends the client.
	Output func(rank uint32, stream uint8, data []byte) error
	Exit   func(node string, x plan.TaskExit)
	// Aborted tells that the program has given up: the whole step is to end.
	Aborted func(node string)
	Notice  func(node, text string)
	// Ended tells that no process of the step is left on a node. err is
	// ErrOver where the node knows nothing of the step (any more).
	Ended func(node string, end plan.FrameEnd, err error)
	// Trouble tells of a connection that broke and is made anew.
	Trouble func(node string, err error)
}

// Errors of a client.
var (
	// ErrDenied: the node does not take the credential.
	ErrDenied = errors.New("the node refuses the step's credential")
	// ErrOver: the step is not on the node, or not any more.
	ErrOver = errors.New("the step is over on this node")
)

// Client is connected to all nodes of a step while Run runs.
type Client struct {
	cfg   Config
	nodes []*node

	mu     sync.Mutex // of the functions, and of the fences
	fences map[fenceKey]map[uint32][]byte
	sent   map[int32]uint64 // input so far, by rank; guarded by input
	input  sync.Mutex
}

// New makes a client; Run connects it.
func New(config Config) *Client {
	client := &Client{
		cfg: config, fences: map[fenceKey]map[uint32][]byte{}, sent: map[int32]uint64{},
	}
	for i := range config.Nodes {
		client.nodes = append(client.nodes, newNode(client, uint32(i), &config.Nodes[i]))
	}
	return client
}

// Run returns when the step is over on all nodes, with nil; or when the context
// ends, a credential is refused or Output fails.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() {
			if err := n.run(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Input passes data on to a rank, or spec.InputAll; it waits for the nodes once
// enough is on its way. What is for a node that is over is lost, as in a pipe.
func (c *Client) Input(ctx context.Context, rank int32, data []byte) error {
	c.input.Lock()
	defer c.input.Unlock()
	for len(data) > 0 {
		piece := slices.Clone(data[:min(len(data), stepio.MaxInput)])
		if err := c.pass(ctx, rank, piece); err != nil {
			return err
		}
		data = data[len(piece):]
	}
	return nil
}

// CloseInput ends the input of a rank, or of spec.InputAll.
func (c *Client) CloseInput(ctx context.Context, rank int32) error {
	c.input.Lock()
	defer c.input.Unlock()
	return c.pass(ctx, rank, nil)
}

func (c *Client) pass(ctx context.Context, rank int32, piece []byte) error {
	message := stepio.Message{Kind: stepio.Input, Rank: rank, Offset: c.sent[rank], Data: piece}
	for i, n := range c.nodes {
		if rank != spec.InputAll && !slices.Contains(c.cfg.Nodes[i].Ranks, uint32(rank)) {
			continue
		}
		if err := n.feedInput(ctx, message); err != nil {
			return err
		}
	}
	c.sent[rank] += uint64(len(piece))
	return nil
}

// Signal sends a signal to the tasks of all nodes.
func (c *Client) Signal(sig int32) {
	for _, n := range c.nodes {
		n.queueMessage(stepio.Message{Kind: stepio.Signal, Signal: sig})
	}
}

// Resize tells the step's terminal its size.
func (c *Client) Resize(window plan.Window) {
	for _, n := range c.nodes {
		n.queueMessage(stepio.Message{Kind: stepio.Resize, Window: window})
	}
}

// handleFrame gives a frame to whom it is for; over tells that it was the last.
func (c *Client) handleFrame(n *node, frame *plan.Frame) (over bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config := &c.cfg
	switch {
	case frame.Output != nil:
		if config.Output != nil {
			err = config.Output(frame.Output.Rank, frame.Output.Stream, frame.Output.Data)
		}
	case frame.Started != nil:
		if config.Started != nil {
			config.Started(n.Name, frame.Started.Ranks, frame.Started.PIDs)
		}
	case frame.Exit != nil:
		if config.Exit != nil {
			config.Exit(n.Name, *frame.Exit)
		}
	case frame.Fence != nil:
		if config.Watch {
			return false, nil
		}
		return false, c.fence(frame.Fence)
	case frame.Modex != nil:
		if !config.Watch {
			c.exchange(n, frame.Modex)
		}
	case frame.Abort:
		if config.Aborted != nil {
			config.Aborted(n.Name)
		}
	case frame.End != nil:
		c.noteNodeEnd(n, *frame.End, nil)
		return true, nil
	case config.Notice != nil:
		config.Notice(n.Name, frame.Notice)
	}
	return false, err
}

// noteNodeEnd tells the end of a node's part. mu is held.
func (c *Client) noteNodeEnd(n *node, end plan.FrameEnd, err error) {
	if c.cfg.Ended != nil {
		c.cfg.Ended(n.Name, end, err)
	}
}

// fenceKey names a fence: the tasks that take part number theirs.
type fenceKey struct {
	group  string
	number uint64
}

// fence collects what the tasks of the nodes have put; once all have, all are
// told. mu is held.
func (c *Client) fence(fence *plan.Fence) error {
	key := fenceKey{fence.Group, fence.Number}
	if c.fences[key] == nil {
		c.fences[key] = map[uint32][]byte{}
	}
	parts := c.fences[key]
	parts[fence.Node] = slices.Clone(fence.Data)
	nodes := c.nodesOf(fence)
	for _, n := range nodes {
		if _, here := parts[n.index]; !here {
			return nil
		}
	}
	list := make([][]byte, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, parts[n.index])
	}
	all, err := merge(fence, list)
	if err != nil {
		return fmt.Errorf("PMI: %w", err)
	}
	if len(all) > mostFence {
		return fmt.Errorf(
			"PMI: the tasks have put %d bytes before a fence, and %d are possible",
			len(all),
			mostFence,
		)
	}
	delete(c.fences, key)
	for _, n := range nodes {
		n.sendMerged(plan.Fence{
			Number: fence.Number,
			Data:   all,
			Joined: fence.Joined,
			Group:  fence.Group,
		})
	}
	return nil
}

// merge makes one of what the nodes have put before a fence.
func merge(fence *plan.Fence, parts [][]byte) ([]byte, error) {
	if fence.Joined {
		return slices.Concat(parts...), nil
	}
	return pmi.Merge(parts)
}

// nodesOf gives the nodes that take part in a fence.
func (c *Client) nodesOf(fence *plan.Fence) []*node {
	if !fence.Joined || fence.Group == "" {
		return c.nodes
	}
	var nodes []*node
	for _, at := range fence.Nodes {
		if int(at) < len(c.nodes) {
			nodes = append(nodes, c.nodes[at])
		}
	}
	return nodes
}

// exchange passes a question or an answer of PMIx on to the node that it is for,
// where it is kept until that node has answered or has it. mu is held.
func (c *Client) exchange(from *node, modex *plan.Modex) {
	modex.From = from.index // its own word does not count
	switch modex.Kind {
	case plan.ModexAsk, plan.ModexAnswer:
		if int(modex.To) >= len(c.nodes) {
			return
		}
		if modex.Kind == plan.ModexAnswer {
			from.forget(plan.ModexAsk, modex.To, modex.Number)
		}
		kept := *modex
		kept.Data = slices.Clone(modex.Data)
		c.nodes[modex.To].sendModex(&kept)
	case plan.ModexReceipt:
		from.forget(plan.ModexAnswer, 0, modex.Number)
	}
}

// mostFence is the most that all tasks can put before a fence: it is one message.
const mostFence = stepio.MaxMessage - 1<<10

// The waits between connections, doubled from the first to the longest.
const (
	firstWait   = 20 * time.Millisecond
	longestWait = 2 * time.Second
)
