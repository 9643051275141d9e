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
	q *apiv1.JobReportQuery,
) (*apiv1.JobReportReply, error) {
	past, err := s.Reasons(
		ctx,
		&apiv1.ReasonsQuery{Job: q.GetJob(), Cluster: q.GetCluster(), MinSeq: q.GetMinSeq()},
	)
	if err != nil {
		return nil, err
	}
	out := &apiv1.JobReportReply{
		Run:     past.GetRun(),
		Periods: past.GetPeriods(),
		Behind:  past.GetBehind(),
		Cluster: past.GetCluster(),
		Now:     past.GetNow(),
	}
	if out.Run == nil {
		return out, nil
	}
	scope, _, err := s.D.scopeOf(ctx, q.GetCluster(), past.GetSeq())
	if err != nil {
		return nil, s.D.storeAway(err)
	}
	run := query.RunKey{UID: out.Run.GetUid(), Restarts: out.Run.GetRestarts()}
	if err := s.runNodes(ctx, scope, run, out); err != nil {
		return nil, s.D.storeAway(err)
	}
	if err := s.runCost(ctx, scope, run, out); err != nil {
		return nil, s.D.storeAway(err)
	}
	if err := s.runUsage(ctx, scope, out); err != nil {
		return nil, s.D.storeAway(err)
	}
	work := query.WorkOf(out.Run.GetName(), out.Run.GetSubmitLine())
	out.Advice, err = s.adviseUser(ctx, scope, out.Run.GetUser(), work)
	return out, s.D.storeAway(err)
}

// runNodes fills in the nodes and devices of a run.
func (s Service) runNodes(
	ctx context.Context,
	scope query.Scope,
	run query.RunKey,
	out *apiv1.JobReportReply,
) error {
	nodes := map[string]*apiv1.JobReportNode{}
	err := s.D.cfg.Store.Query(
		ctx,
		query.RunNodes(scope, run),
		func(scan func(...any) error) error {
			n := &apiv1.JobReportNode{}
			var energy *int64
			err := scan(
				&n.Node,
				&n.Cpus,
				&n.MemMib,
				&n.Held,
				&n.Lost,
				&n.Measured,
				&n.CpuTime,
				&n.PeakRss,
				&energy,
			)
			n.Held, n.CpuTime = n.Held*micro, n.CpuTime*micro
			nodes[n.GetNode()] = n
			out.Nodes = append(out.Nodes, n)
			return err
		},
	)
	if err != nil {
		return err
	}
	if len(out.GetNodes()) == 0 {
		return s.D.cfg.Store.Query(
			ctx,
			query.RunHeld(scope, run),
			func(scan func(...any) error) error {
				n := &apiv1.JobReportNode{Held: max(0, out.GetNow()-out.Run.GetStart())}
				var gpus int64
				err := scan(&n.Node, &n.Cpus, &n.MemMib, &gpus)
				for range gpus {
					n.Gpus = append(n.Gpus, &apiv1.JobReportGpu{Held: n.GetHeld()})
				}
				out.Nodes = append(out.Nodes, n)
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
func (s Service) runUsage(ctx context.Context, scope query.Scope, out *apiv1.JobReportReply) error {
	run := out.Run
	if run.GetStart() == 0 {
		return nil
	}
	from, to := spec.Instant(run.GetStart()), spec.Instant(out.GetNow())
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
	out.UsageFrom, out.UsageStep = int64(from), step*int64(spec.Second)
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
				if len(out.GetUsage()) < usageNodes {
					out.Usage = append(out.Usage, now)
				} else {
					out.UsageMore++
				}
			}
			if out.GetUsageMore() > 0 {
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
	out *apiv1.JobReportReply,
) error {
	rates := &s.D.cfg.Rates
	out.Currency = rates.Currency
	err := s.D.cfg.Store.Query(
		ctx,
		query.RunEnergy(scope, run, rates),
		func(scan func(...any) error) error {
			return scan(&out.EnergyJoules, &out.CarbonGrams)
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
			out.Cost = &cost
			return nil
		},
	)
}
