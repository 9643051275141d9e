package daemon

import (
	"context"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// The words of PrivateData that the controller knows. What is private shows
// only to its owner, to the coordinators of a job's account and to operators.
const (
	privateJobs         = "jobs"
	privateNodes        = "nodes"
	privatePartitions   = "partitions"
	privateReservations = "reservations"
	privateUsage        = "usage"
)

// private tells whether something is hidden from a caller.
func (s *authority) private(what string, caller Caller) bool {
	conf := s.C.View().State.Config
	return conf != nil && slices.Contains(conf.Private, what) && !s.isOperator(caller)
}

// visibleTo tells which jobs a caller may see at all.
func (s *authority) visibleTo(caller Caller) func(j *state.Job) bool {
	see := s.seesOwned(caller)
	return func(j *state.Job) bool { return see(j.Spec.UID, j.Spec.Account) }
}

// seesOwned is sees for a job of which only the owner and the account are known.
func (s *authority) seesOwned(caller Caller) func(owner uint32, account string) bool {
	if !s.private(privateJobs, caller) {
		return func(uint32, string) bool { return true }
	}
	return func(owner uint32, account string) bool { return s.mayOwned(caller, owner, account) }
}

// seesUse tells whose use a caller may see: where it is private, that of
// accounts, which are those of many, and of himself.
func (s *authority) seesUse(cluster *state.State, caller Caller) func(a *spec.Association) bool {
	if !s.private(privateUsage, caller) {
		return func(*spec.Association) bool { return true }
	}
	own := cluster.Policy.FindUser(caller.User)
	return func(association *spec.Association) bool {
		return association.User == "" || (own != nil && association.User == own.Name) ||
			s.isCoordinator(caller, association.Account)
	}
}

// Private tells what PrivateData keeps from a caller, for services beside this
// one: the words that hold for him.
func (c *Controller) Private(ctx context.Context) []string {
	caller := &authority{&head{C: c}}
	who := c.deps.Identify(ctx)
	conf := c.View().State.Config
	if conf == nil || len(conf.Private) == 0 || caller.isOperator(who) {
		return nil
	}
	return conf.Private
}

// hiddenJob is the answer about a job that a caller may not see: as if it were
// not there.
func hiddenJob() error { return spec.Refuse(spec.CodeInvalidJobID, "") }
