package daemon

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// HoldNode gives another scheduler a part of a node, if it is free. The answer is
// given once the hold is durable.
func (s *holdCalls) HoldNode(
	ctx context.Context,
	req *apiv1.HoldNodeRequest,
) (*apiv1.HoldNodeReply, error) {
	actor, err := s.connectorCaller(ctx)
	if err != nil {
		return nil, err
	}
	cmd := scheduler.TakeForeignHold{
		Node:    req.GetNode(),
		Hold:    wire.ToForeignHold(req.GetHold()),
		GPUs:    req.GetGpus(),
		GPUType: req.GetGpuType(),
		Running: req.GetRunning(),
	}
	done := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor})
	if done.err != nil {
		return nil, done.err
	}
	cluster := s.C.View().State
	out := &apiv1.HoldNodeReply{Drained: done.res.Message, Seq: done.seq}
	if node := cluster.Node(req.GetNode()); node != nil {
		if at, ok := node.HoldAt(cmd.Hold.ID); ok {
			out.Hold = wire.ForeignHold(&node.Holds[at])
		}
	}
	return out, nil
}

// ReleaseHold gives such a part back.
func (s *holdCalls) ReleaseHold(
	ctx context.Context,
	req *apiv1.ReleaseHoldRequest,
) (*apiv1.ReleaseHoldReply, error) {
	actor, err := s.connectorCaller(ctx)
	if err != nil {
		return nil, err
	}
	cmd := scheduler.ReleaseForeignHold{Node: req.GetNode(), ID: req.GetId(), Why: req.GetWhy()}
	done := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor})
	if done.err != nil {
		return nil, done.err
	}
	return &apiv1.ReleaseHoldReply{Seq: done.seq}, nil
}

// ListHolds tells what other schedulers hold, and what is free for them.
func (s *holdCalls) ListHolds(
	ctx context.Context,
	req *apiv1.ListHoldsRequest,
) (*apiv1.ListHoldsReply, error) {
	if _, err := s.connectorCaller(ctx); err != nil {
		return nil, err
	}
	cluster := s.C.View().State
	out := &apiv1.ListHoldsReply{Seq: cluster.Seq}
	// Reservations open and close nodes by the clock, without an event.
	if req.GetUnlessSeq() == cluster.Seq && len(cluster.Reservations) == 0 {
		out.Unchanged = true
		return out, nil
	}
	now := s.C.deps.Clock.Now()
	for _, node := range copilot.Nodes(cluster, func(n *state.Node) bool {
		return scheduler.OpenToHolds(cluster, now, n) == nil
	}) {
		out.Nodes = append(out.Nodes, heldNode(cluster, cluster.Node(node.Name), &node))
	}
	return out, nil
}

// The longest pauses of a watch of holds.
const (
	// holdBeat is how long a watch is silent at most, so that a client that hears
	// nothing for several of them knows that nobody is there.
	holdBeat = 10 * spec.Second
	// holdProgress is how soon a watch tells that the ledger has gone on although no
	// node changed. Who has taken a hold waits for that before he looks again.
	holdProgress = 50 * spec.Millisecond
	// holdClock is how often reservations are looked at, which begin and end
	// without an event.
	holdClock = spec.Second
)

// WatchHolds tells what ListHolds does, and then which nodes differ from that.
func (s *holdCalls) WatchHolds(
	req *apiv1.WatchHoldsRequest,
	stream service.Cluster_WatchHoldsServer,
) error {
	ctx := stream.Context()
	watch := holdWatch{sent: map[string]sentNode{}}
	pods := podWatch{sent: map[spec.JobUID]sentJob{}, asked: req.GetPods()}
	told := s.C.deps.Clock.Monotonic()
	for first := true; ; first = false {
		// The level of a caller may be taken away while he watches.
		if _, err := s.connectorCaller(ctx); err != nil {
			return err
		}
		view, changed := s.C.Changed()
		out := watch.listChanges(view.State, s.C.deps.Clock.Now())
		pods.addChanges(view, out)
		silent := s.C.deps.Clock.Monotonic() - told
		behind := watch.seq != view.State.Seq
		news := len(out.Nodes)+len(out.Gone)+len(out.Jobs)+len(out.GoneJobs) > 0
		due := silent >= holdBeat || behind && silent >= holdProgress
		if first || news || due {
			if err := stream.Send(out); err != nil {
				return err
			}
			watch.seq = view.State.Seq
			told = s.C.deps.Clock.Monotonic()
			silent = 0
			behind = false
		}
		pause := holdBeat - silent
		if len(view.State.Reservations) > 0 {
			pause = min(pause, holdClock)
		}
		if behind {
			pause = min(pause, holdProgress-silent)
		}
		fires, stop := s.C.deps.Clock.After(pause)
		select {
		case <-changed:
		case <-fires:
		case <-ctx.Done():
			stop()
			return nil
		case <-s.C.stopping:
			stop()
			return spec.Refuse(spec.CodeStopping, "")
		}
		stop()
	}
}

// holdWatch is what one watch has told.
type holdWatch struct {
	seq  uint64
	sent map[string]sentNode
	was  *state.State // at the last look
}

// sentNode is a node as it was told, and the record from which that was made.
type sentNode struct {
	record *state.Node
	told   *apiv1.HeldNode
}

// listChanges are the nodes that are not as they were told. Records of a published
// state are never changed in place, so that one that is still the same is skipped,
// unless a reservation or the configuration may have changed what it means.
func (w *holdWatch) listChanges(cluster *state.State, now spec.Instant) *apiv1.WatchHoldsReply {
	out := &apiv1.WatchHoldsReply{Seq: cluster.Seq}
	calm := w.was != nil && len(w.was.Reservations) == 0 && len(cluster.Reservations) == 0 &&
		w.was.Config == cluster.Config
	w.was = cluster
	there := 0
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		there++
		old, ok := w.sent[node.Spec.Name]
		if calm && ok && old.record == node {
			return true
		}
		free := copilot.NodeOf(cluster, node, scheduler.OpenToHolds(cluster, now, node) == nil)
		told := heldNode(cluster, node, &free)
		if !ok || !proto.Equal(told, old.told) {
			out.Nodes = append(out.Nodes, told)
		}
		w.sent[node.Spec.Name] = sentNode{node, told}
		return true
	})
	if there < len(w.sent) {
		for name := range w.sent {
			if cluster.Node(name) == nil {
				out.Gone = append(out.Gone, name)
				delete(w.sent, name)
			}
		}
	}
	slices.SortFunc(
		out.Nodes,
		func(a, b *apiv1.HeldNode) int { return cmp.Compare(a.GetName(), b.GetName()) },
	)
	slices.Sort(out.Gone)
	return out
}

func heldNode(cluster *state.State, node *state.Node, free *copilot.Node) *apiv1.HeldNode {
	out := &apiv1.HeldNode{
		Name:       free.Name,
		Open:       free.Open,
		Cpus:       node.CPUs,
		Mem:        node.Mem,
		FreeCpus:   free.FreeCPU,
		SpareMilli: free.SpareCPU,
		FreeMem:    free.FreeMem,
		JobCpus: int64(
			node.UsedCPU.AndNot(node.HeldCPU).Count(),
		),
		JobMem: node.UsedMem - node.HeldMem(),
	}
	for typ, count := range free.FreeGPU {
		out.FreeGpus = append(out.FreeGpus, &apiv1.GpuCount{Type: typ, Count: count})
	}
	slices.SortFunc(
		out.FreeGpus,
		func(a, b *apiv1.GpuCount) int { return cmp.Compare(a.GetType(), b.GetType()) },
	)
	for _, uid := range node.Jobs {
		job := cluster.Job(uid)
		if job.Spec.Runner() == spec.ByKubelets {
			alloc := &job.Alloc.Nodes[job.Alloc.Index(node.ID)]
			out.PodCpus += int64(alloc.CPUs.Count())
			out.PodMem += alloc.Mem
		}
	}
	for i := range node.Holds {
		out.Holds = append(out.Holds, wire.ForeignHold(&node.Holds[i]))
	}
	return out
}
