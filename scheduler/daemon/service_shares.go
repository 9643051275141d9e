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
func (s *ClusterService) Shares(ctx context.Context, _ *apiv1.SharesRequest) (*apiv1.SharesReply, error) {
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
func shareTree(st *state.State, now spec.Instant, sees func(*spec.Association) bool) *apiv1.SharesReply {
	tree := fairshare.Of(st)
	out := &apiv1.SharesReply{Cluster: st.ClusterName, Now: int64(now), FairTree: tree.Fair}
	fraction := func(n uint64) float64 { return float64(n) / float64(fixed.One) }
	for i := range tree.Shares {
		sh := &tree.Shares[i]
		a := sh.Assoc
		if !sees(a) {
			continue
		}
		row := &apiv1.Share{Assoc: a.ID, Parent: a.Parent, Depth: uint32(sh.Depth), Account: a.Account, User: a.User, Partition: a.Partition,
			RawShares: sh.Shares, SharesParent: a.SharesParent, RawUsage: int64(min(sh.Raw.Hi, 1<<62)), NormUsage: fraction(sh.Used),
			EffectiveUsage: fraction(sh.Effect), Factor: fraction(sh.Factor), GrpTresMins: wire.Limits(a.GroupMinutes()), LevelShares: sh.Siblings}
		if sh.Siblings > 0 && sh.Up >= 0 {
			row.NormShares = float64(sh.Shares) / float64(sh.Siblings)
		}
		if !tree.Fair && sh.Up >= 0 {
			row.NormShares = fraction(sh.Norm)
		}
		level, infinite := tree.LevelFS(sh)
		row.LevelFs, row.LevelInfinite = float64(level)/1e9, infinite
		key := state.UsageKey(state.UsageAssoc, 0, a.ID)
		row.TresRunMins, row.TresMins = runMinutes(st, key, now), spentMinutes(st, key)
		out.Shares = append(out.Shares, row)
	}
	return out
}

// runMinutes is what running jobs of a subject may still use.
func runMinutes(st *state.State, key uint64, now spec.Instant) []*apiv1.NamedCount {
	u, ok := st.Usage.Get(key)
	if !ok {
		return nil
	}
	var out []*apiv1.NamedCount
	for _, c := range u.TRES.All() {
		out = append(out, &apiv1.NamedCount{Name: c.Name, N: limits.RunMinutes(st, key, c.Name, now)})
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
func (s *ClusterService) Priorities(ctx context.Context, req *apiv1.PrioritiesRequest) (*apiv1.PrioritiesReply, error) {
	who, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	v, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	st := v.State
	p := &st.Config.Priority
	out := &apiv1.PrioritiesReply{Cluster: st.ClusterName, Now: int64(now), Weights: &apiv1.PriorityWeights{Age: p.Age, Assoc: p.Assoc, FairShare: p.FairShare,
		JobSize: p.JobSize, Partition: p.Partition, Qos: p.QOS, Basic: p.Basic}}
	for _, w := range p.TRES {
		out.Weights.Tres = append(out.Weights.Tres, &apiv1.NamedFactor{Name: w.TRES, Weighted: float64(w.Micro) / 1e6})
	}
	sees, ranks := s.visibleTo(who), order.NewContext(st, now)
	st.Waiting.Range(func(uid uint64, _ struct{}) bool {
		j := st.Job(spec.JobUID(uid))
		if !sees(j) || j.Hold != spec.NotHeld || j.Eligible == 0 {
			return true // what does not compete has no priority yet
		}
		for _, name := range j.Spec.Partitions {
			if part := st.Parts.Find(name); part != nil {
				out.Jobs = append(out.Jobs, jobPriority(p, ranks, j, part.Spec))
			}
		}
		return true
	})
	return out, nil
}

func jobPriority(p *spec.PriorityConfig, ranks *order.Context, j *state.Job, part *spec.PartitionSpec) *apiv1.JobPriority {
	f := ranks.Of(j, part)
	weighted := func(n int64) float64 { return float64(n) / order.Scale }
	norm := func(n int64, weight uint32) float64 {
		if weight == 0 {
			return 0
		}
		return weighted(n) / float64(weight)
	}
	out := &apiv1.JobPriority{JobId: uint32(j.ID), Partition: part.Name, User: j.Spec.User, Account: j.Spec.Account, Qos: j.QOS(), Priority: f.Total, Direct: f.Direct,
		Site: f.Site, Nice: f.Nice, Age: weighted(f.Age), Assoc: weighted(f.Assoc), FairShare: weighted(f.FairShare), JobSize: weighted(f.JobSize),
		PartitionPart: weighted(f.Partition), QosPart: weighted(f.QOS), AgeNorm: norm(f.Age, p.Age), AssocNorm: norm(f.Assoc, p.Assoc), FairShareNorm: norm(f.FairShare, p.FairShare),
		JobSizeNorm: norm(f.JobSize, p.JobSize), PartitionNorm: norm(f.Partition, p.Partition), QosNorm: norm(f.QOS, p.QOS)}
	if f.Direct || p.Basic {
		return out
	}
	for i, w := range p.TRES {
		if n := ranks.TRES(j, part, i); n > 0 {
			out.Tres = append(out.Tres, &apiv1.NamedFactor{Name: w.TRES, Weighted: weighted(n), Norm: weighted(n) * 1e6 / float64(w.Micro)})
		}
	}
	return out
}
