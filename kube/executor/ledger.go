package executor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/spec"
)

// Muster is a controller as this program calls it.
type Muster interface {
	Hold(ctx context.Context, req *apiv1.HoldNodeRequest) (*apiv1.HoldNodeReply, error)
	Release(ctx context.Context, req *apiv1.ReleaseHoldRequest) (*apiv1.ReleaseHoldReply, error)
	Watch(ctx context.Context, tell func(*apiv1.WatchHoldsReply)) error
	SubmitPods(ctx context.Context, req *apiv1.SubmitPodsRequest) (*apiv1.SubmitPodsReply, error)
	AdmitPods(ctx context.Context, req *apiv1.AdmitPodsRequest) (*apiv1.AdmitPodsReply, error)
	PodsOver(ctx context.Context, req *apiv1.PodsOverRequest) (*apiv1.PodsOverReply, error)
}

// A watch that ended is begun again after a pause that grows.
const (
	minWatchPause = 100 * time.Millisecond
	maxWatchPause = 5 * time.Second
)

// ledger is what the watch has said about the nodes. Between two watches it knows
// nothing: what it knew may have changed.
type ledger struct {
	mu      sync.Mutex
	nodes   map[string]*apiv1.HeldNode // nil: the watch has not begun
	order   []string                   // names of nodes; nil: has to be sorted
	jobs    map[uint64]copilot.PodJob  // by uid; nil likewise
	seq     uint64
	away    error         // why there is no watch
	changed chan struct{} // closed at the next change
}

func newLedger() *ledger {
	return &ledger{away: errors.New("Muster was not asked yet"), changed: make(chan struct{})}
}

// follow watches until the context ends. moved is called after each change.
func (l *ledger) follow(ctx context.Context, m Muster, moved func()) {
	pause := minWatchPause
	for ctx.Err() == nil {
		err := m.Watch(ctx, func(news *apiv1.WatchHoldsReply) {
			pause = minWatchPause
			l.take(news)
			moved()
		})
		l.lose(err)
		moved()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, maxWatchPause)
	}
}

func (l *ledger) take(news *apiv1.WatchHoldsReply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.nodes == nil {
		l.nodes = map[string]*apiv1.HeldNode{}
		l.jobs = map[uint64]copilot.PodJob{}
	}
	for _, job := range news.GetJobs() {
		l.jobs[job.GetUid()] = wire.ToPodJob(job)
	}
	for _, uid := range news.GetGoneJobs() {
		delete(l.jobs, uid)
	}
	for _, n := range news.GetNodes() {
		if _, known := l.nodes[n.GetName()]; !known {
			l.order = nil
		}
		l.nodes[n.GetName()] = n
	}
	for _, name := range news.GetGone() {
		delete(l.nodes, name)
		l.order = nil
	}
	l.seq = news.GetSeq()
	l.away = nil
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *ledger) lose(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nodes = nil
	l.order = nil
	l.jobs = nil
	l.seq = 0
	l.away = why
	close(l.changed)
	l.changed = make(chan struct{})
}

// look lists the nodes by name and the jobs of pods by uid, or tells why they are not
// known.
func (l *ledger) look() ([]*apiv1.HeldNode, []copilot.PodJob, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away != nil {
		return nil, nil, l.away
	}
	jobs := slices.Collect(maps.Values(l.jobs))
	slices.SortFunc(
		jobs,
		func(a, b copilot.PodJob) int { return cmp.Compare(a.Run.UID, b.Run.UID) },
	)
	if l.order == nil {
		l.order = slices.Sorted(maps.Keys(l.nodes))
	}
	out := make([]*apiv1.HeldNode, 0, len(l.order))
	for _, name := range l.order {
		out = append(out, l.nodes[name])
	}
	return out, jobs, nil
}

// reach waits until the watch has come to a position, so that the next look shows
// what has been ordered, or until the watch is lost.
func (l *ledger) reach(ctx context.Context, seq uint64) {
	for {
		l.mu.Lock()
		done := l.away != nil || l.seq >= seq
		changed := l.changed
		l.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// nodeOf is a node of the ledger as the copilot sees it.
func nodeOf(n *apiv1.HeldNode) copilot.Node {
	out := copilot.Node{
		Name:     n.GetName(),
		Open:     n.GetOpen(),
		FreeCPU:  n.GetFreeCpus(),
		SpareCPU: n.GetSpareMilli(),
		FreeMem:  n.GetFreeMem(),
	}
	if len(n.GetFreeGpus()) > 0 {
		out.FreeGPU = map[string]int64{}
	}
	for _, g := range n.GetFreeGpus() {
		out.FreeGPU[g.GetType()] = g.GetCount()
	}
	for _, h := range n.GetHolds() {
		out.Holds = append(out.Holds, wire.ToForeignHold(h))
	}
	return out
}

// requestOf asks for what a plan takes. A pod that is there already has the devices that
// its claims name.
func (r *round) requestOf(t *copilot.Take) *apiv1.HoldNodeRequest {
	hold := spec.ForeignHold{
		ID:       t.Pod.UID,
		Space:    t.Pod.Namespace,
		Owner:    t.Pod.Name,
		MilliCPU: t.Pod.Ask.MilliCPU,
		Mem:      t.Pod.Ask.Mem,
		Priority: t.Pod.Priority,
	}
	if want := r.wants[t.Pod.UID]; t.Running && want != nil && int64(len(want.Has)) == t.Pod.Ask.GPUs {
		for _, uuid := range want.Has {
			hold.GPUs = append(hold.GPUs, spec.GPURef{UUID: uuid})
		}
	}
	return &apiv1.HoldNodeRequest{
		Node:    t.Node,
		Hold:    wire.ForeignHold(&hold),
		Gpus:    t.Pod.Ask.GPUs,
		GpuType: t.Pod.Ask.GPUType,
		Running: t.Running,
	}
}
