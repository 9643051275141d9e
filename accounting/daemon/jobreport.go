package daemon

import (
	"context"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// JobReport tells how well a job's last run used what it held, why it waited,
// and what to change.
func (s Service) JobReport(
	ctx context.Context,
	request *apiv1.JobReportQuery,
) (*apiv1.JobReportReply, error) {
	past, err := s.Reasons(
		ctx,
		&apiv1.ReasonsQuery{
			Job: request.GetJob(), Cluster: request.GetCluster(), MinSeq: request.GetMinSeq(),
		},
	)
	if err != nil {
		return nil, err
	}
	reply := &apiv1.JobReportReply{
		Run:     past.GetRun(),
		Periods: past.GetPeriods(),
		Behind:  past.GetBehind(),
		Cluster: past.GetCluster(),
		Now:     past.GetNow(),
	}
	if reply.Run == nil {
		return reply, nil
	}
	scope, _, err := s.D.scopeOf(ctx, request.GetCluster(), past.GetSeq())
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	run := query.RunKey{UID: reply.Run.GetUid(), Restarts: reply.Run.GetRestarts()}
	if err := s.runNodes(ctx, scope, run, reply); err != nil {
		return nil, s.D.storeAway(err)
	}
	if err := s.runCost(ctx, scope, run, reply); err != nil {
		return nil, s.D.storeAway(err)
	}
	if err := s.runUsage(ctx, scope, reply); err != nil {
		return nil, s.D.storeAway(err)
	}
	work := query.WorkOf(reply.Run.GetName(), reply.Run.GetSubmitLine())
	reply.Advice, err = s.adviseUser(ctx, scope, reply.Run.GetUser(), work)
	return reply, s.D.storeAway(err)
}

// runNodes fills in the nodes and devices of a run.
func (s Service) runNodes(
	ctx context.Context,
	scope query.Scope,
	run query.RunKey,
	reply *apiv1.JobReportReply,
) error {
	nodes := map[string]*apiv1.JobReportNode{}
	err := s.D.cfg.Store.Query(
		ctx,
		query.RunNodes(scope, run),
		func(scan func(...any) error) error {
			node := &apiv1.JobReportNode{}
			var energy *int64
			err := scan(
				&node.Node,
				&node.Cpus,
				&node.MemMib,
				&node.Held,
				&node.Lost,
				&node.Measured,
				&node.CpuTime,
				&node.PeakRss,
				&energy,
			)
			node.Held, node.CpuTime = node.Held*micro, node.CpuTime*micro
			nodes[node.GetNode()] = node
			reply.Nodes = append(reply.Nodes, node)
			return err
		},
	)
	if err != nil {
		return err
	}
	if len(reply.GetNodes()) == 0 {
		return s.D.cfg.Store.Query(
			ctx,
			query.RunHeld(scope, run),
			func(scan func(...any) error) error {
				node := &apiv1.JobReportNode{Held: max(0, reply.GetNow()-reply.Run.GetStart())}
				var gpus int64
				err := scan(&node.Node, &node.Cpus, &node.MemMib, &gpus)
				for range gpus {
					node.Gpus = append(node.Gpus, &apiv1.JobReportGpu{Held: node.GetHeld()})
				}
				reply.Nodes = append(reply.Nodes, node)
				return err
			},
		)
	}
	return s.D.cfg.Store.Query(ctx, query.RunGPUs(scope, run), func(scan func(...any) error) error {
		gpu := &apiv1.JobReportGpu{}
		var node string
		err := scan(
			&node,
			&gpu.Uuid,
			&gpu.Index,
			&gpu.Type,
			&gpu.Measured,
			&gpu.Held,
			&gpu.Util,
			&gpu.Sm,
			&gpu.NoProcess,
			&gpu.Idle,
			&gpu.PeakMem,
			&gpu.EnergyMj,
			&gpu.Method,
			&gpu.Share,
		)
		gpu.Held *= micro
		gpu.Util *= micro
		gpu.NoProcess *= micro
		gpu.Idle *= micro
		if gpu.Sm != nil {
			*gpu.Sm *= micro
		}
		if n := nodes[node]; n != nil {
			n.Gpus = append(n.Gpus, gpu)
		}
		return err
	})
}

// usageNodes is how many nodes are shown over time.
const usageNodes = 16

// runUsage fills in what a run used over time, where it was sampled.
func (s Service) runUsage(
	ctx context.Context, scope query.Scope, reply *apiv1.JobReportReply,
) error {
	run := reply.Run
	if run.GetStart() == 0 {
		return nil
	}
	from, to := spec.Instant(run.GetStart()), spec.Instant(reply.GetNow())
	if run.GetEnd() != 0 {
		to = spec.Instant(run.GetEnd())
	}
	from, step, err := s.sampledSince(
		ctx,
		query.UsageSpan(scope, run.GetUid(), run.GetAttempt(), from, to),
		historyPoints,
	)
	if err != nil || step == 0 {
		return err
	}
	reply.UsageFrom, reply.UsageStep = int64(from), step*int64(spec.Second)
	var now *apiv1.UsageHistory
	return s.D.cfg.Store.Query(
		ctx,
		query.UsageHistory(scope, run.GetUid(), run.GetAttempt(), from, to, step),
		func(scan func(...any) error) error {
			var node string
			var n uint64
			point := &apiv1.UsagePoint{}
			if err := scan(&node, &point.At, &n, &point.Cpus, &point.Rss); err != nil {
				return err
			}
			if now == nil || now.GetNode() != node {
				now = &apiv1.UsageHistory{Node: node}
				if len(reply.GetUsage()) < usageNodes {
					reply.Usage = append(reply.Usage, now)
				} else {
					reply.UsageMore++
				}
			}
			if reply.GetUsageMore() > 0 {
				return nil // a job of thousands of nodes has more points than fit in an answer
			}
			now.Samples += n
			now.Points = append(now.Points, point)
			return nil
		},
	)
}

// runCost fills in what a run cost.
func (s Service) runCost(
	ctx context.Context,
	scope query.Scope,
	run query.RunKey,
	reply *apiv1.JobReportReply,
) error {
	rates := &s.D.cfg.Rates
	reply.Currency = rates.Currency
	err := s.D.cfg.Store.Query(
		ctx,
		query.RunEnergy(scope, run, rates),
		func(scan func(...any) error) error {
			return scan(&reply.EnergyJoules, &reply.CarbonGrams)
		},
	)
	if err != nil || len(rates.Prices) == 0 {
		return err
	}
	return s.D.cfg.Store.Query(
		ctx,
		query.RunCost(scope, run, rates),
		func(scan func(...any) error) error {
			var text string
			if err := scan(&text); err != nil {
				return err
			}
			n, err := parseAmount(text)
			if err != nil {
				return err
			}
			cost := toCurrency(n)
			reply.Cost = &cost
			return nil
		},
	)
}
