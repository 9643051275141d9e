package daemon

import (
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// queue passes things from any goroutine to one. Nobody ever waits to put:
// the owner of the Core must not.
type queue[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{} // room for one token: there are items
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) putItems(items ...T) {
	if len(items) == 0 {
		return
	}
	q.mu.Lock()
	q.items = append(q.items, items...)
	q.mu.Unlock()
	putToken(q.wake)
}

func (q *queue[T]) take() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = nil
	return items
}

func putToken(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// launches are the runs that the shepherd is to be asked for, in order.
type launches struct {
	mu    sync.Mutex
	items []launchItem
	wake  chan struct{}
}

type launchItem struct {
	spec  plan.RunSpec
	tried bool // the shepherd may know it already
}

// The bounds of one call: a long one would delay the first of its runs.
const (
	launchRuns  = 256
	launchBytes = 8 << 20
)

func (l *launches) putRuns(specs []plan.RunSpec) {
	if len(specs) == 0 {
		return
	}
	l.mu.Lock()
	for i := range specs {
		l.items = append(l.items, launchItem{spec: specs[i]})
	}
	l.mu.Unlock()
	putToken(l.wake)
}

// withdrawRun takes a run back that the shepherd was never asked for.
func (l *launches) withdrawRun(key plan.RunKey) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.items {
		if l.items[i].spec.Key == key && !l.items[i].tried {
			l.items = append(l.items[:i], l.items[i+1:]...)
			return true
		}
	}
	return false
}

// nextRuns gives the runs of the next call.
func (l *launches) nextRuns() []plan.RunSpec {
	l.mu.Lock()
	defer l.mu.Unlock()
	var runs []plan.RunSpec
	bytes := 0
	for i := range l.items {
		spec := &l.items[i].spec
		for _, e := range spec.Env {
			bytes += len(e)
		}
		bytes += len(spec.Script)
		if len(runs) > 0 && (len(runs) == launchRuns || bytes > launchBytes) {
			break
		}
		runs = append(runs, *spec)
	}
	l.items = l.items[len(runs):]
	if len(l.items) > 0 {
		putToken(l.wake)
	}
	return runs
}

// putBack puts runs back in front: nobody knows whether the shepherd has them.
func (l *launches) putBack(specs []plan.RunSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	items := make([]launchItem, 0, len(specs)+len(l.items))
	for i := range specs {
		items = append(items, launchItem{spec: specs[i], tried: true})
	}
	l.items = append(items, l.items...)
	putToken(l.wake)
}
