package daemon

import (
	"context"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// The levels that accounting gives users, as the ledger spells them.
const (
	levelOperator      = "Operator"
	levelAdministrator = "Administrator"
)

// isOperator tells whether a caller may do what Slurm's operators may: manage
// accounts, limits and reservations, act on the jobs of others, and see what
// PrivateData hides. It says nothing about the cluster itself; see
// administrator.
func (s *authority) isOperator(caller Caller) bool {
	return s.isAdministrator(caller) || s.hasLevel(caller, levelOperator)
}

// isAdministrator tells whether a caller may change the cluster itself: its
// nodes, partitions, configuration, machines, the tokens and the levels of
// other users. These are root, the cluster's own user, holders of an
// administrator's certificate, and users whom accounting calls Administrator.
func (s *authority) isAdministrator(caller Caller) bool {
	if caller.Limited {
		return false
	}
	if caller.Admin || (caller.UID == 0 && caller.User != "") {
		return true
	}
	return s.hasLevel(caller, levelAdministrator)
}

// operatorCaller is caller for what operators may do; others are refused.
func (s *authority) operatorCaller(ctx context.Context) (event.Actor, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return actor, err
	}
	if !s.isOperator(caller) {
		return actor, spec.Refuse(spec.CodeAccessDenied, "only operators may do this")
	}
	return actor, nil
}

// connectorCaller is caller for what keeps another scheduler and the ledger in step, which
// a token for that alone may do too.
func (s *authority) connectorCaller(ctx context.Context) (event.Actor, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return actor, err
	}
	if !caller.Connector && !s.isOperator(caller) {
		return actor, spec.Refuse(
			spec.CodeAccessDenied,
			"only operators may do this, and muster-kube with a token of scope=pods",
		)
	}
	return actor, nil
}

// hasLevel looks a caller up in accounting. A caller for whom a compute node
// vouches has no level, whoever he is: a broken node must not rule the cluster.
func (s *authority) hasLevel(caller Caller, level string) bool {
	if caller.Limited {
		return false
	}
	user := s.C.View().State.Policy.FindUser(caller.User)
	return user != nil && user.AdminLevel == level
}

// administratorCaller is caller for what changes the cluster itself; others are
// refused.
func (s *authority) administratorCaller(ctx context.Context) (event.Actor, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return actor, err
	}
	if !s.isAdministrator(caller) {
		return actor, spec.Refuse(spec.CodeAccessDenied, "only administrators may do this")
	}
	return actor, nil
}

// refuseLevels refuses events that give a user a level or take one away.
// Whoever may do that could raise himself, so it is for administrators, and it
// is judged by the events, which are the same whichever command made them:
// modify, delete, load from a file, or the removal of a last account.
func (s *authority) refuseLevels(caller Caller, cluster *state.State, events []event.Event) error {
	if s.isAdministrator(caller) {
		return nil
	}
	for _, e := range events {
		var name, level string
		switch e := e.(type) {
		case *event.UserPut:
			name, level = e.User.Name, e.User.AdminLevel
		case *event.UserRemoved:
			name = e.Name
		default:
			continue
		}
		before := ""
		if user := cluster.Policy.FindUser(name); user != nil {
			before = user.AdminLevel
		}
		if before != level {
			return spec.Refuse(spec.CodeAccessDenied,
				"only administrators change the admin level of a user, here of "+name)
		}
	}
	return nil
}
