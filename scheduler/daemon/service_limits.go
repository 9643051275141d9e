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
	who, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	return s.limitUsage(view.State, now, who), nil
}

// limitUsage is LimitUsage of one moment for one caller.
func (s *policyCalls) limitUsage(
	st *state.State,
	now spec.Instant,
	who Caller,
) *apiv1.LimitUsageReply {
	sees := s.seesUse(st, who)
	out := &apiv1.LimitUsageReply{Policy: limitsInForce(st), Shares: shareTree(st, now, sees)}
	out.Policy.Now, out.Shares.User = int64(now), who.User
	out.Policy.Associations = slices.DeleteFunc(
		out.Policy.Associations,
		func(a *apiv1.Association) bool { return !sees(st.Policy.Assoc(a.GetId())) },
	)
	visit := func(key uint64) {
		if s.seesCounter(st, who, key) {
			out.Usage = append(out.Usage, counter(st, key, now))
		}
	}
	st.Usage.Range(func(key uint64, _ *state.Usage) bool {
		visit(key)
		return true
	})
	st.Spent.Range(func(key uint64, _ *state.Spent) bool {
		if !st.Usage.Has(key) {
			visit(key)
		}
		return true
	})
	return out
}

// limitsInForce is the policy with the amounts of percentages and the limits
// that associations inherit.
func limitsInForce(st *state.State) *apiv1.PolicyReply {
	out := wire.Policy(st.Policy)
	out.Cluster = st.ClusterName
	var sizes limits.Sizes
	for i := range st.Policy.QOS {
		out.Qos[i] = wire.QOS(sizes.Amounts(st, &st.Policy.QOS[i]))
	}
	for i := range st.Policy.Assocs {
		out.Associations[i] = wire.Association(limits.Effective(st.Policy, st.Policy.Assocs[i].ID))
	}
	return out
}

// seesCounter tells whether a caller may see a counter: where use is private,
// those of users are for them alone.
func (s *policyCalls) seesCounter(st *state.State, who Caller, key uint64) bool {
	if !s.private(privateUsage, who) {
		return true
	}
	switch kind, _, subject := state.ParseUsageKey(key); kind {
	case state.UsageQOSUser:
		return subject == who.UID
	case state.UsageAssoc:
		a := st.Policy.Assoc(subject)
		return a != nil && s.seesUse(st, who)(a)
	}
	return true
}

// counter is what one subject holds and has used.
func counter(st *state.State, key uint64, now spec.Instant) *apiv1.LimitUsage {
	kind, qos, subject := state.ParseUsageKey(key)
	out := &apiv1.LimitUsage{
		Kind:        apiv1.LimitUsage_Kind(kind),
		Qos:         qos,
		Subject:     subject,
		TresRunMins: runMinutes(st, key, now),
		TresMins:    spentMinutes(st, key),
	}
	if usage, ok := st.Usage.Get(key); ok {
		out.Running = usage.Running
		out.Accruing = usage.Accruing
		out.Submitted = usage.Submitted
		for _, c := range usage.TRES.All() {
			out.Tres = append(
				out.Tres,
				&apiv1.NamedCount{Name: c.Name, N: limits.Held(usage, c.Name)},
			)
		}
	}
	if u, ok := st.Spent.Get(key); ok {
		out.Wall, out.Raw = float64(
			limits.SpentSeconds(u),
		), float64(
			u.Raw.Hi,
		)+float64(
			u.Raw.Lo,
		)/(1<<64)
	}
	return out
}
