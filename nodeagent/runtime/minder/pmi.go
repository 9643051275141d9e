//go:build linux

package minder

import (
	"fmt"
	"os"
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/pmi"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"golang.org/x/sys/unix"
)

// fences is the step's PMI on this node: the server of its tasks, and on the
// first node the place where what all nodes have put is collected.
type fences struct {
	cfg *plan.PMI

	mu       sync.Mutex
	changed  *sync.Cond
	server   *pmi.Server
	tasks    map[int]*os.File
	carriers map[*conn]bool
	pending  *protocol.StepFence          // this node's part, until the others' are known
	parts    map[uint64]map[uint32][]byte // of the fences that are being collected, by node
	merged   map[uint64][]byte            // of the last ones
}

func newFences(cfg *plan.PMI) *fences {
	f := &fences{cfg: cfg, tasks: map[int]*os.File{}, carriers: map[*conn]bool{}, parts: map[uint64]map[uint32][]byte{}, merged: map[uint64][]byte{}}
	f.changed = sync.NewCond(&f.mu)
	if cfg != nil {
		f.server = pmi.New(*cfg)
	}
	return f
}

// remembered is how many fences can be asked for again: a node that has not
// heard of one cannot have reached the next.
const remembered = 2

// serveTask makes a task's connection and gives the task's end of it.
func (m *minder) serveTask(t *task) (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	ours, f := polled(pair[0]), m.fences
	f.mu.Lock()
	f.tasks[t.index] = ours
	f.mu.Unlock()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := ours.Read(buf)
			if err != nil {
				break
			}
			if err := m.spoke(t, buf[:n]); err != nil {
				m.tell(t, fmt.Sprintf("task %d: PMI: %v", t.Rank, err))
				break
			}
		}
		f.mu.Lock()
		delete(f.tasks, t.index)
		f.mu.Unlock()
		_ = ours.Close()
	}()
	return pair[1], nil
}

// spoke takes what a task has sent.
func (m *minder) spoke(t *task, data []byte) error {
	f := m.fences
	f.mu.Lock()
	defer f.mu.Unlock()
	res, err := f.server.Read(t.index, data)
	if err != nil {
		return err
	}
	f.answer(res)
	if res.Abort {
		m.tell(nil, fmt.Sprintf("task %d: PMI: the program aborts the step with exit code %d: %s", t.Rank, res.ExitCode, res.Message))
		m.signal(unix.SIGKILL)
	}
	if !res.Reached {
		return nil
	}
	if f.cfg.Node == 0 {
		return f.collect(protocol.StepFence{Number: res.Number, Node: 0, Data: res.Fence})
	}
	f.pending = &protocol.StepFence{Number: res.Number, Node: f.cfg.Node, Data: res.Fence}
	for c := range f.carriers {
		f.carry(c)
	}
	return nil
}

// answer writes to the tasks. mu is held.
func (f *fences) answer(res pmi.Result) {
	for _, a := range res.Answers {
		if w := f.tasks[a.Task]; w != nil {
			_, _ = w.Write(a.Data) // a task that has gone needs no answer
		}
	}
}

// carry sends this node's part to a carrier. mu is held.
func (f *fences) carry(c *conn) {
	p := f.pending
	go func() { _ = c.send(protocol.Message{Op: protocol.OpStepFence}, p) }()
}

// left forgets a carrier.
func (f *fences) left(c *conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.carriers, c)
}

// collect takes one node's part of a fence, on the first node. mu is held.
func (f *fences) collect(p protocol.StepFence) error {
	if p.Node >= f.cfg.Nodes {
		return &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("the step has no node %d", p.Node)}
	}
	if f.merged[p.Number] != nil {
		return nil
	}
	if f.parts[p.Number] == nil {
		f.parts[p.Number] = map[uint32][]byte{}
	}
	f.parts[p.Number][p.Node] = p.Data
	if len(f.parts[p.Number]) < int(f.cfg.Nodes) {
		return nil
	}
	var list [][]byte
	for n := range f.cfg.Nodes {
		list = append(list, f.parts[p.Number][n])
	}
	all, err := pmi.Merge(list)
	if err != nil {
		return &protocol.Error{Code: protocol.CodeBadRequest, Text: err.Error()}
	}
	if all == nil {
		all = []byte{}
	}
	f.merged[p.Number] = all
	delete(f.parts, p.Number)
	delete(f.merged, p.Number-remembered)
	f.changed.Broadcast()
	return f.complete(p.Number, all)
}

// complete lets the tasks of this node go on. mu is held.
func (f *fences) complete(number uint64, all []byte) error {
	res, err := f.server.Merged(number, all)
	if err == nil {
		f.pending = nil
		f.answer(res)
	}
	return err
}

// exchange takes another node's part and waits for all of them. One that the
// step's end overtakes is never answered.
func (f *fences) exchange(p protocol.StepFence) (protocol.StepFence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server == nil || f.cfg.Node != 0 {
		return p, &protocol.Error{Code: protocol.CodeBadRequest, Text: "nothing is collected here"}
	}
	if err := f.collect(p); err != nil {
		return p, err
	}
	for f.merged[p.Number] == nil {
		f.changed.Wait()
	}
	return protocol.StepFence{Number: p.Number, Data: f.merged[p.Number]}, nil
}

// fence answers the messages that are about PMI.
func (c *conn) fence(m protocol.Message) error {
	f := c.m.fences
	var q protocol.StepFence
	switch m.Op {
	case protocol.OpStepPeers:
		if err := c.reply(m, nil, nil); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.carriers[c] = true
		if f.pending != nil {
			f.carry(c)
		}
		return nil
	case protocol.OpStepMerged:
		if err := c.r.Decode(m, &q); err != nil {
			return err
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		var err error
		if f.server != nil {
			err = f.complete(q.Number, q.Data)
		}
		return c.reply(m, nil, err)
	case protocol.OpStepExchange:
		if err := c.r.Decode(m, &q); err != nil {
			return err
		}
		go func() {
			all, err := f.exchange(q)
			_ = c.reply(m, all, err)
		}()
		return nil
	}
	return c.reply(m, nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("operation %d is not known here", m.Op)})
}
