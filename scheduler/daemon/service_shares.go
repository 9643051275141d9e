package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/fairshare"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// Shares is sshare: the tree of shares and use.
func (s *policyCalls) Shares(
	ctx context.Context,
	_ *apiv1.SharesRequest,
) (*apiv1.SharesReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	cluster, now := s.C.View().State, s.C.deps.Clock.Now()
	sharesReply := shareTree(cluster, now, s.seesUse(cluster, caller))
	sharesReply.User = caller.User
	return sharesReply, nil
}

// shareTree is the tree of shares with those associations that may be seen.
func shareTree(
	cluster *state.State,
	now spec.Instant,
	sees func(*spec.Association) bool,
) *apiv1.SharesReply {
	tree := fairshare.Of(cluster)
	sharesReply := &apiv1.SharesReply{
		Cluster: cluster.ClusterName, Now: int64(now), FairTree: tree.Fair,
	}
	fraction := func(n uint64) float64 { return float64(n) / float64(fixed.One) }
	for i := range tree.Shares {
		share := &tree.Shares[i]
		assoc := share.Assoc
		if !sees(assoc) {
			continue
		}
		row := &apiv1.Share{
			Assoc:        assoc.ID,
			Parent:       assoc.Parent,
			Depth:        uint32(share.Depth),
			Account:      assoc.Account,
			User:         assoc.User,
			Partition:    assoc.Partition,
			RawShares:    share.Shares,
			SharesParent: assoc.SharesParent,
			RawUsage:     int64(min(share.Raw.Hi, 1<<62)),
			NormUsage:    fraction(share.Used),
			EffectiveUsage: fraction(
				share.Effect,
			),
			Factor:      fraction(share.Factor),
			GrpTresMins: wire.Limits(assoc.GroupMinutes()),
			LevelShares: share.Siblings,
		}
		if share.Siblings > 0 && share.Up >= 0 {
			row.NormShares = float64(share.Shares) / float64(share.Siblings)
		}
		if !tree.Fair && share.Up >= 0 {
			row.NormShares = fraction(share.Norm)
		}
		level, infinite := tree.LevelFS(share)
		row.LevelFs, row.LevelInfinite = float64(level)/1e9, infinite
		key := state.UsageKey(state.UsageAssoc, 0, assoc.ID)
		row.TresRunMins, row.TresMins = runMinutes(cluster, key, now), spentMinutes(cluster, key)
		sharesReply.Shares = append(sharesReply.Shares, row)
	}
	return sharesReply
}

// runMinutes is what running jobs of a subject may still use.
func runMinutes(cluster *state.State, key uint64, now spec.Instant) []*apiv1.NamedCount {
	usage, ok := cluster.Usage.Get(key)
	if !ok {
		return nil
	}
	var counts []*apiv1.NamedCount
	for _, count := range usage.TRES.All() {
		counts = append(
			counts,
			&apiv1.NamedCount{
				Name: count.Name, N: limits.RunMinutes(cluster, key, count.Name, now),
			},
		)
	}
	return counts
}

// spentMinutes is what jobs of a subject have used.
func spentMinutes(cluster *state.State, key uint64) []*apiv1.NamedCount {
	usage, ok := cluster.Spent.Get(key)
	if !ok {
		return nil
	}
	var counts []*apiv1.NamedCount
	for _, count := range usage.TRES {
		counts = append(
			counts, &apiv1.NamedCount{Name: count.Name, N: limits.SpentMinutes(usage, count.Name)},
		)
	}
	return counts
}

// Priorities is sprio: what the priorities of pending jobs are made of.
func (s *policyCalls) Priorities(
	ctx context.Context,
	req *apiv1.PrioritiesRequest,
) (*apiv1.PrioritiesReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	cluster := view.State
	priority := &cluster.Config.Priority
	out := &apiv1.PrioritiesReply{
		Cluster: cluster.ClusterName,
		Now:     int64(now),
		Weights: &apiv1.PriorityWeights{
			Age:       priority.Age,
			Assoc:     priority.Assoc,
			FairShare: priority.FairShare,
			JobSize:   priority.JobSize,
			Partition: priority.Partition,
			Qos:       priority.QOS,
			Basic:     priority.Basic,
		},
	}
	for _, weight := range priority.TRES {
		out.Weights.Tres = append(
			out.Weights.Tres,
			&apiv1.NamedFactor{Name: weight.TRES, Weighted: float64(weight.Micro) / 1e6},
		)
	}
	sees, ranks := s.visibleTo(caller), order.NewContext(cluster, now)
	cluster.Waiting.Range(func(uid uint64, _ struct{}) bool {
		job := cluster.Job(spec.JobUID(uid))
		if !sees(job) || job.Hold != spec.NotHeld || job.Eligible == 0 {
			return true // what does not compete has no priority yet
		}
		for _, name := range job.Spec.Partitions {
			if part := cluster.Parts.Find(name); part != nil {
				out.Jobs = append(out.Jobs, jobPriority(priority, ranks, job, part.Spec))
			}
		}
		return true
	})
	return out, nil
}

func jobPriority(
	priority *spec.PriorityConfig,
	ranks *order.Context,
	job *state.Job,
	part *spec.PartitionSpec,
) *apiv1.JobPriority {
	factors := ranks.Of(job, part)
	weighted := func(n int64) float64 { return float64(n) / order.Scale }
	norm := func(n int64, weight uint32) float64 {
		if weight == 0 {
			return 0
		}
		return weighted(n) / float64(weight)
	}
	out := &apiv1.JobPriority{
		JobId:     uint32(job.ID),
		Partition: part.Name,
		User:      job.Spec.User,
		Account:   job.Spec.Account,
		Qos:       job.QOS(),
		Priority:  factors.Total,
		Direct:    factors.Direct,
		Site:      factors.Site,
		Nice:      factors.Nice,
		Age:       weighted(factors.Age),
		Assoc:     weighted(factors.Assoc),
		FairShare: weighted(factors.FairShare),
		JobSize:   weighted(factors.JobSize),
		PartitionPart: weighted(
			factors.Partition,
		),
		QosPart:       weighted(factors.QOS),
		AgeNorm:       norm(factors.Age, priority.Age),
		AssocNorm:     norm(factors.Assoc, priority.Assoc),
		FairShareNorm: norm(factors.FairShare, priority.FairShare),
		JobSizeNorm: norm(
			factors.JobSize,
			priority.JobSize,
		),
		PartitionNorm: norm(factors.Partition, priority.Partition),
		QosNorm:       norm(factors.QOS, priority.QOS),
	}
	if factors.Direct || priority.Basic {
		return out
	}
	for i, weight := range priority.TRES {
		if n := ranks.TRES(job, part, i); n > 0 {
			out.Tres = append(
				out.Tres,
				&apiv1.NamedFactor{
					Name:     weight.TRES,
					Weighted: weighted(n),
					Norm:     weighted(n) * 1e6 / float64(weight.Micro),
				},
			)
		}
	}
	return out
}
