package daemon

import (
	"iter"
	"sync"
)

// agentReply is an answer of an agent that names the question.
type agentReply interface{ GetAsk() uint64 }

// asks are the questions of one kind to agents whose answers are still to come.
type asks[R agentReply] struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*question[R]
}

// question waits for some nodes.
type question[R agentReply] struct {
	waiting map[string]bool
	out     chan<- answered[R] // with room for all of them
}

// answered is one node's answer.
type answered[R agentReply] struct {
	node  string
	reply R
}

// beginQuestion opens a question to some nodes. Their answers come by the channel, until end.
func (a *asks[R]) beginQuestion(
	nodes iter.Seq[string], count int,
) (query uint64, back <-chan answered[R]) {
	out := make(chan answered[R], count)
	q := &question[R]{waiting: make(map[string]bool, count), out: out}
	for node := range nodes {
		q.waiting[node] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = map[uint64]*question[R]{}
	}
	a.last++
	a.open[a.last] = q
	return a.last, out
}

// endQuestion closes a question.
func (a *asks[R]) endQuestion(query uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.open, query)
}

// take hands an answer on; one that comes too late, twice, or from a node that was not
// asked is nobody's.
func (a *asks[R]) take(node string, reply R) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if q := a.open[reply.GetAsk()]; q != nil && q.waiting[node] {
		delete(q.waiting, node)
		q.out <- answered[R]{node, reply}
	}
}
