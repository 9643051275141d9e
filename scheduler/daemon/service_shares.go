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
	who, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	st, now := s.C.View().State, s.C.deps.Clock.Now()
	out := shareTree(st, now, s.seesUse(st, who))
	out.User = who.User
	return out, nil
}

// shareTree is the tree of shares with those associations that may be seen.
func shareTree(
	st *state.State,
	now spec.Instant,
	sees func(*spec.Association) bool,
) *apiv1.SharesReply {
	tree := fairshare.Of(st)
	out := &apiv1.SharesReply{Cluster: st.ClusterName, Now: int64(now), FairTree: tree.Fair}
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
		row.TresRunMins, row.TresMins = runMinutes(st, key, now), spentMinutes(st, key)
		out.Shares = append(out.Shares, row)
	}
	return out
}

// runMinutes is what running jobs of a subject may still use.
func runMinutes(st *state.State, key uint64, now spec.Instant) []*apiv1.NamedCount {
	usage, ok := st.Usage.Get(key)
	if !ok {
		return nil
	}
	var out []*apiv1.NamedCount
	for _, c := range usage.TRES.All() {
		out = append(
			out,
			&apiv1.NamedCount{Name: c.Name, N: limits.RunMinutes(st, key, c.Name, now)},
		)
	}
	return out
}

// spentMinutes is what jobs of a subject have used.
func spentMinutes(st *state.State, key uint64) []*apiv1.NamedCount {
	u, ok := st.Spent.Get(key)
	if !ok {
		return nil
	}
	var out []*apiv1.NamedCount
	for _, c := range u.TRES {
		out = append(out, &apiv1.NamedCount{Name: c.Name, N: limits.SpentMinutes(u, c.Name)})
	}
	return out
}

// Priorities is sprio: what the priorities of pending jobs are made of.
func (s *policyCalls) Priorities(
	ctx context.Context,
	req *apiv1.PrioritiesRequest,
) (*apiv1.PrioritiesReply, error) {
	who, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	st := view.State
	priority := &st.Config.Priority
	out := &apiv1.PrioritiesReply{
		Cluster: st.ClusterName,
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
	for _, w := range priority.TRES {
		out.Weights.Tres = append(
			out.Weights.Tres,
			&apiv1.NamedFactor{Name: w.TRES, Weighted: float64(w.Micro) / 1e6},
		)
	}
	sees, ranks := s.visibleTo(who), order.NewContext(st, now)
	st.Waiting.Range(func(uid uint64, _ struct{}) bool {
		job := st.Job(spec.JobUID(uid))
		if !sees(job) || job.Hold != spec.NotHeld || job.Eligible == 0 {
			return true // what does not compete has no priority yet
		}
		for _, name := range job.Spec.Partitions {
			if part := st.Parts.Find(name); part != nil {
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
	for i, w := range priority.TRES {
		if n := ranks.TRES(job, part, i); n > 0 {
			out.Tres = append(
				out.Tres,
				&apiv1.NamedFactor{
					Name:     w.TRES,
					Weighted: weighted(n),
					Norm:     weighted(n) * 1e6 / float64(w.Micro),
				},
			)
		}
	}
	return out
}
