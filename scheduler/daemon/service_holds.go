package daemon

import (
	"cmp"
	"context"
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
)

// HoldNode gives another scheduler a part of a node, if it is free. The answer is
// given once the hold is durable.
func (s *ClusterService) HoldNode(ctx context.Context, req *apiv1.HoldNodeRequest) (*apiv1.HoldNodeReply, error) {
	actor, err := s.operatorCaller(ctx)
	if err != nil {
		return nil, err
	}
	cmd := scheduler.TakeForeignHold{Node: req.GetNode(), Hold: wire.ToForeignHold(req.GetHold()), GPUs: req.GetGpus(), GPUType: req.GetGpuType(), Running: req.GetRunning()}
	done := s.C.writer.do(ctx, &request{cmd: cmd, actor: actor})
	if done.err != nil {
		return nil, done.err
	}
	out := &apiv1.HoldNodeReply{Drained: done.res.Message}
	if n := s.C.View().State.Node(req.GetNode()); n != nil {
		if at, ok := n.HoldAt(cmd.Hold.ID); ok {
			out.Hold = wire.ForeignHold(&n.Holds[at])
		}
	}
	return out, nil
}

// ReleaseHold gives such a part back.
func (s *ClusterService) ReleaseHold(ctx context.Context, req *apiv1.ReleaseHoldRequest) (*apiv1.ReleaseHoldReply, error) {
	actor, err := s.operatorCaller(ctx)
	if err != nil {
		return nil, err
	}
	cmd := scheduler.ReleaseForeignHold{Node: req.GetNode(), ID: req.GetId(), Why: req.GetWhy()}
	return &apiv1.ReleaseHoldReply{}, s.C.writer.do(ctx, &request{cmd: cmd, actor: actor}).err
}

// ListHolds tells what other schedulers hold, and what is free for them.
func (s *ClusterService) ListHolds(ctx context.Context, req *apiv1.ListHoldsRequest) (*apiv1.ListHoldsReply, error) {
	if _, err := s.operatorCaller(ctx); err != nil {
		return nil, err
	}
	st := s.C.View().State
	out := &apiv1.ListHoldsReply{Seq: st.Seq}
	// Reservations open and close nodes by the clock, without an event.
	if req.GetUnlessSeq() == st.Seq && len(st.Reservations) == 0 {
		out.Unchanged = true
		return out, nil
	}
	now := s.C.deps.Clock.Now()
	for _, n := range copilot.Nodes(st, func(n *state.Node) bool { return scheduler.OpenToHolds(st, now, n) == nil }) {
		out.Nodes = append(out.Nodes, heldNode(st.Node(n.Name), &n))
	}
	return out, nil
}

func heldNode(n *state.Node, free *copilot.Node) *apiv1.HeldNode {
	out := &apiv1.HeldNode{Name: free.Name, Open: free.Open, Cpus: n.CPUs, Mem: n.Mem, FreeCpus: free.FreeCPU, SpareMilli: free.SpareCPU, FreeMem: free.FreeMem,
		JobCpus: int64(n.UsedCPU.AndNot(n.HeldCPU).Count()), JobMem: n.UsedMem - n.HeldMem()}
	for typ, count := range free.FreeGPU {
		out.FreeGpus = append(out.FreeGpus, &apiv1.GpuCount{Type: typ, Count: count})
	}
	slices.SortFunc(out.FreeGpus, func(a, b *apiv1.GpuCount) int { return cmp.Compare(a.GetType(), b.GetType()) })
	for i := range n.Holds {
		out.Holds = append(out.Holds, wire.ForeignHold(&n.Holds[i]))
	}
	return out
}
