package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// History reads the ledger's events from the first, in order, until visit
// returns false or there are no more.
type History func(ctx context.Context, visit func(*event.Envelope) bool) error

// ChangePolicy is sacctmgr add, modify, delete and load. An operator may make
// any change but that of admin levels, a coordinator some to the users of the
// account.
func (s *policyCalls) ChangePolicy(
	ctx context.Context,
	req *apiv1.PolicyChangeRequest,
) (*apiv1.PolicyChangeReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	state := s.currentView().State
	change := policy.Change{
		Verb:   policy.Verb(req.GetVerb()),
		Entity: req.GetEntity(),
		Names:  req.GetNames(),
		Where:  configPairs(req.GetWhere()),
		Set:    configPairs(req.GetSet()),
	}
	load := req.GetVerb() == apiv1.PolicyChangeRequest_LOAD
	if !s.isOperator(caller) &&
		(load || caller.Limited || !policy.MayChange(state, caller.User, change)) {
		return nil, spec.Refuse(spec.CodeAccessDenied, "")
	}
	var events []event.Event
	var names []string
	if load {
		events, names, err = policy.Load(state, req.GetText(), req.GetClean())
	} else {
		events, names, err = policy.Plan(state, change)
	}
	if err != nil {
		return nil, err
	}
	if err := s.refuseLevels(caller, state, events); err != nil {
		return nil, err
	}
	if len(events) > 0 && !req.GetTry() {
		if rep := s.commitCommand(ctx, &request{cmd: scheduler.Policy{Events: events}, actor: actor}); rep.err != nil {
			return nil, rep.err
		}
	}
	return &apiv1.PolicyChangeReply{Changed: names}, nil
}

// SetBudgets makes accounts keep to their budgets, of which these are all.
func (c *Controller) SetBudgets(ctx context.Context, all []policy.Budget) error {
	events := policy.Budgets(c.View().State, all)
	if len(events) == 0 {
		return nil
	}
	return c.writer.commitCommand(
		ctx,
		&request{
			cmd:   scheduler.Policy{Events: events},
			actor: event.Actor{Kind: event.ActorSystem},
		},
	).err
}

func configPairs(list []*apiv1.ConfigEntry) []spec.KeyValue {
	values := make([]spec.KeyValue, len(list))
	for i, entry := range list {
		values[i] = spec.KeyValue{Key: entry.GetKey(), Value: entry.GetValue()}
	}
	return values
}

// GetPolicy shows accounts, users, associations, QOS, keys and resources.
func (s *policyCalls) GetPolicy(
	ctx context.Context,
	req *apiv1.PolicyRequest,
) (*apiv1.PolicyReply, error) {
	if _, _, err := s.knownCaller(ctx); err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	state := view.State
	policyReply := wire.Policy(state.Policy)
	policyReply.Cluster, policyReply.Now = state.ClusterName, int64(now)
	if req.GetDump() {
		policyReply.Dump = policy.Dump(state)
	}
	return policyReply, nil
}

// Transactions lists the changes of the policy from the ledger's history.
func (s *policyCalls) Transactions(
	ctx context.Context,
	req *apiv1.TransactionsRequest,
) (*apiv1.TransactionsReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	if !s.isOperator(caller) {
		return nil, spec.Refuse(spec.CodeAccessDenied, "")
	}
	if s.C.deps.History == nil {
		return nil, spec.Refuse(
			spec.CodeDisabled,
			"this controller keeps no history that can be read",
		)
	}
	out := &apiv1.TransactionsReply{}
	journal := policy.NewJournal()
	err = s.C.deps.History(ctx, func(envelope *event.Envelope) bool {
		transaction, ok := journal.Note(envelope)
		if ok && int64(transaction.At) >= req.GetSince() &&
			(req.GetUntil() == 0 || int64(transaction.At) < req.GetUntil()) {
			out.Transactions = append(
				out.Transactions,
				&apiv1.Transaction{
					At:     int64(transaction.At),
					Action: transaction.Action,
					Actor:  transaction.Actor,
					Where:  transaction.Where,
					Info:   transaction.Info,
					Seq:    transaction.Seq,
				},
			)
		}
		return ctx.Err() == nil
	})
	if err != nil {
		return nil, err
	}
	return out, ctx.Err()
}
