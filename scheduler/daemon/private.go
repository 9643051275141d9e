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
func (s *authority) private(what string, who Caller) bool {
	conf := s.C.View().State.Config
	return conf != nil && slices.Contains(conf.Private, what) && !s.isOperator(who)
}

// visibleTo tells which jobs a caller may see at all.
func (s *authority) visibleTo(who Caller) func(j *state.Job) bool {
	see := s.seesOwned(who)
	return func(j *state.Job) bool { return see(j.Spec.UID, j.Spec.Account) }
}

// seesOwned is sees for a job of which only the owner and the account are known.
func (s *authority) seesOwned(who Caller) func(owner uint32, account string) bool {
	if !s.private(privateJobs, who) {
		return func(uint32, string) bool { return true }
	}
	return func(owner uint32, account string) bool { return s.mayOwned(who, owner, account) }
}

// seesUse tells whose use a caller may see: where it is private, that of
// accounts, which are those of many, and of himself.
func (s *authority) seesUse(st *state.State, who Caller) func(a *spec.Association) bool {
	if !s.private(privateUsage, who) {
		return func(*spec.Association) bool { return true }
	}
	own := st.Policy.FindUser(who.User)
	return func(a *spec.Association) bool {
		return a.User == "" || (own != nil && a.User == own.Name) || s.isCoordinator(who, a.Account)
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
