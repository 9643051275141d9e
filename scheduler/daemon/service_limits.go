package daemon

import (
	"context"
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/spec"
)

// LimitUsage is scontrol show assoc_mgr: the limits in force and what is used
// of each, by the counters that the scheduler decides with.
func (s *policyCalls) LimitUsage(
	ctx context.Context,
	req *apiv1.LimitUsageRequest,
) (*apiv1.LimitUsageReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	return s.limitUsage(view.State, now, caller), nil
}

// limitUsage is LimitUsage of one moment for one caller.
func (s *policyCalls) limitUsage(
	cluster *state.State,
	now spec.Instant,
	caller Caller,
) *apiv1.LimitUsageReply {
	sees := s.seesUse(cluster, caller)
	out := &apiv1.LimitUsageReply{
		Policy: limitsInForce(cluster), Shares: shareTree(cluster, now, sees),
	}
	out.Policy.Now, out.Shares.User = int64(now), caller.User
	out.Policy.Associations = slices.DeleteFunc(
		out.Policy.Associations,
		func(a *apiv1.Association) bool { return !sees(cluster.Policy.Assoc(a.GetId())) },
	)
	visit := func(key uint64) {
		if s.seesCounter(cluster, caller, key) {
			out.Usage = append(out.Usage, counter(cluster, key, now))
		}
	}
	cluster.Usage.Range(func(key uint64, _ *state.Usage) bool {
		visit(key)
		return true
	})
	cluster.Spent.Range(func(key uint64, _ *state.Spent) bool {
		if !cluster.Usage.Has(key) {
			visit(key)
		}
		return true
	})
	return out
}

// limitsInForce is the policy with the amounts of percentages and the limits
// that associations inherit.
func limitsInForce(cluster *state.State) *apiv1.PolicyReply {
	policyReply := wire.Policy(cluster.Policy)
	policyReply.Cluster = cluster.ClusterName
	var sizes limits.Sizes
	for i := range cluster.Policy.QOS {
		policyReply.Qos[i] = wire.QOS(sizes.Amounts(cluster, &cluster.Policy.QOS[i]))
	}
	for i := range cluster.Policy.Assocs {
		policyReply.Associations[i] = wire.Association(
			limits.Effective(cluster.Policy, cluster.Policy.Assocs[i].ID),
		)
	}
	return policyReply
}

// seesCounter tells whether a caller may see a counter: where use is private,
// those of users are for them alone.
func (s *policyCalls) seesCounter(cluster *state.State, caller Caller, key uint64) bool {
	if !s.private(privateUsage, caller) {
		return true
	}
	switch kind, _, subject := state.ParseUsageKey(key); kind {
	case state.UsageQOSUser:
		return subject == caller.UID
	case state.UsageAssoc:
		association := cluster.Policy.Assoc(subject)
		return association != nil && s.seesUse(cluster, caller)(association)
	}
	return true
}

// counter is what one subject holds and has used.
func counter(cluster *state.State, key uint64, now spec.Instant) *apiv1.LimitUsage {
	kind, qos, subject := state.ParseUsageKey(key)
	limitUsage := &apiv1.LimitUsage{
		Kind:        apiv1.LimitUsage_Kind(kind),
		Qos:         qos,
		Subject:     subject,
		TresRunMins: runMinutes(cluster, key, now),
		TresMins:    spentMinutes(cluster, key),
	}
	if usage, ok := cluster.Usage.Get(key); ok {
		limitUsage.Running = usage.Running
		limitUsage.Accruing = usage.Accruing
		limitUsage.Submitted = usage.Submitted
		for _, count := range usage.TRES.All() {
			limitUsage.Tres = append(
				limitUsage.Tres,
				&apiv1.NamedCount{Name: count.Name, N: limits.Held(usage, count.Name)},
			)
		}
	}
	if usage, ok := cluster.Spent.Get(key); ok {
		limitUsage.Wall, limitUsage.Raw = float64(
			limits.SpentSeconds(usage),
		), float64(
			usage.Raw.Hi,
		)+float64(
			usage.Raw.Lo,
		)/(1<<64)
	}
	return limitUsage
}
