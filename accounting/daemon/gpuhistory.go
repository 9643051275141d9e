package daemon

import (
	"context"
	"errors"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// errNotReady tells that the store cannot take samples yet.
var errNotReady = errors.New("the accounting store is not ready yet")

// Points of a history of GPUs.
const (
	historyPoints = 60
	historyMost   = 2000
)

// GpuHistory tells what the GPUs of a job's last run did over time.
func (s Service) GpuHistory(
	ctx context.Context,
	request *apiv1.GpuHistoryQuery,
) (*apiv1.GpuHistoryReply, error) {
	past, err := s.Reasons(
		ctx, &apiv1.ReasonsQuery{Job: request.GetJob(), MinSeq: request.GetMinSeq()},
	)
	if err != nil {
		return nil, err
	}
	reply := &apiv1.GpuHistoryReply{
		Run:     past.GetRun(),
		Behind:  past.GetBehind(),
		Cluster: past.GetCluster(),
		Now:     past.GetNow(),
	}
	if reply.Run == nil || reply.Run.GetStart() == 0 {
		return reply, nil
	}
	scope, _, err := s.D.openScope(ctx, past.GetSeq())
	if err == nil {
		err = s.gpuPoints(ctx, scope, request.GetPoints(), reply)
	}
	if err == nil && reply.Run.GetEnd() != 0 {
		err = s.gpuTotals(ctx, scope, reply)
	}
	return reply, s.D.storeAway(err)
}

// gpuPoints fills in the samples.
func (s Service) gpuPoints(
	ctx context.Context,
	scope query.Scope,
	points uint32,
	reply *apiv1.GpuHistoryReply,
) error {
	run := reply.Run
	from, to := spec.Instant(run.GetStart()), spec.Instant(reply.GetNow())
	if run.GetEnd() != 0 {
		to = spec.Instant(run.GetEnd())
	}
	from, step, err := s.sampledSince(
		ctx,
		query.SampleSpan(scope, run.GetUid(), run.GetAttempt(), from, to),
		points,
	)
	if err != nil || step == 0 {
		return err
	}
	reply.From, reply.Step = int64(from), step*int64(spec.Second)
	var gpu *apiv1.GpuHistory
	return s.D.cfg.Store.Query(
		ctx,
		query.GPUHistory(scope, run.GetUid(), run.GetAttempt(), from, to, step),
		func(scan func(...any) error) error {
			next, point := &apiv1.GpuHistory{}, &apiv1.GpuPoint{}
			var rows uint64
			if err := scan(&next.Node, &next.Index, &next.Uuid, &next.Profile, &point.At, &rows, &point.Util, &point.Sm, &point.Tensor, &point.MemoryMib, &point.Power, &point.Temp, &point.Occupied); err != nil {
				return err
			}
			if gpu == nil || gpu.GetNode() != next.GetNode() || gpu.GetUuid() != next.GetUuid() {
				gpu = next
				reply.Gpus = append(reply.Gpus, gpu)
			}
			gpu.Samples += rows
			gpu.Points = append(gpu.Points, point)
			return nil
		},
	)
}

// sampledSince is since when there are samples, and the seconds that a point of so
// many stands for; 0 = there are none.
func (s Service) sampledSince(
	ctx context.Context,
	span query.Query,
	points uint32,
) (from spec.Instant, step int64, err error) {
	var n uint64
	var first, last, every int64
	err = s.D.cfg.Store.Query(
		ctx,
		span,
		func(scan func(...any) error) error { return scan(&n, &first, &last, &every) },
	)
	if err != nil || n == 0 {
		return 0, 0, err
	}
	if points == 0 {
		points = historyPoints
	}
	points = min(points, historyMost)
	return spec.AtUnix(first), max(every, 1, (last-first+int64(points))/int64(points)), nil
}

// gpuTotals fills in what the ledger says of the devices; one that was never
// sampled is added.
func (s Service) gpuTotals(
	ctx context.Context,
	scope query.Scope,
	out *apiv1.GpuHistoryReply,
) error {
	rep := &apiv1.JobReportReply{Run: out.Run, Now: out.GetNow()}
	if err := s.runNodes(ctx, scope, query.RunKey{UID: out.Run.GetUid(), Restarts: out.Run.GetRestarts()}, rep); err != nil {
		return err
	}
	have := map[string]*apiv1.GpuHistory{}
	for _, history := range out.GetGpus() {
		have[history.GetNode()+" "+history.GetUuid()] = history
	}
	for _, node := range rep.GetNodes() {
		for _, t := range node.GetGpus() {
			gpu := have[node.GetNode()+" "+t.GetUuid()]
			if gpu == nil {
				gpu = &apiv1.GpuHistory{
					Node:  node.GetNode(),
					Index: t.GetIndex(),
					Uuid:  t.GetUuid(),
				}
				out.Gpus = append(out.Gpus, gpu)
			}
			gpu.Total = t
		}
	}
	return nil
}
