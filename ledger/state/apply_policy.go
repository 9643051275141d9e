package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// ownPolicy returns the policy for a change in place. It is copied once after
// each Freeze or Fork, so that an import of many users is not quadratic.
func (s *State) ownPolicy() *Policy {
	if s.policyOwn != s.own {
		policy := *s.Policy
		policy.QOS, policy.Accounts = slices.Clone(policy.QOS), slices.Clone(policy.Accounts)
		policy.Users, policy.Assocs = slices.Clone(policy.Users), slices.Clone(policy.Assocs)
		policy.WCKeys, policy.Resources = slices.Clone(
			policy.WCKeys,
		), slices.Clone(
			policy.Resources,
		)
		policy.Clusters = slices.Clone(policy.Clusters)
		policy.rebuildIndex()
		s.Policy, s.policyOwn = &policy, s.own
	}
	return s.Policy
}

func qosKey(qos *spec.QOS) string             { return qos.Name }
func accountKey(account *spec.Account) string { return account.Name }
func userKey(user *spec.User) string          { return user.Name }

// resourceKey is how jobs name a licence that is served elsewhere.
func resourceKey(resource *spec.Resource) string { return resource.Name + "@" + resource.Server }

func (s *State) applyQOSPut(e *event.QOSPut) error {
	policy := s.ownPolicy()
	old := policy.FindQOS(e.QOS.Name)
	same := old != nil && old.ID == e.QOS.ID
	if e.QOS.ID == 0 {
		return contradictionError("QOS %s has no id", e.QOS.Name)
	}
	for i := range policy.QOS {
		if policy.QOS[i].ID == e.QOS.ID && policy.QOS[i].Name != e.QOS.Name {
			return contradictionError(
				"QOS %s takes id %d, which QOS %s has",
				e.QOS.Name,
				e.QOS.ID,
				policy.QOS[i].Name,
			)
		}
	}
	policy.QOS = putSorted(policy.QOS, e.QOS, qosKey)
	policy.NextQOS = max(policy.NextQOS, e.QOS.ID)
	if !same {
		s.recountAll()
	}
	return nil
}

func (s *State) applyQOSRemoved(e *event.QOSRemoved) {
	policy := s.ownPolicy()
	if qos := policy.FindQOS(e.Name); qos != nil {
		s.Spent.Delete(s.own, UsageKey(UsageQOS, qos.ID, 0))
	}
	policy.QOS = slices.DeleteFunc(policy.QOS, func(q spec.QOS) bool { return q.Name == e.Name })
	s.recountAll()
}

func (s *State) applyAccountPut(e *event.AccountPut) {
	policy := s.ownPolicy()
	policy.Accounts = putSorted(policy.Accounts, e.Account, accountKey)
}

func (s *State) applyAccountRemoved(e *event.AccountRemoved) {
	policy := s.ownPolicy()
	policy.Accounts = slices.DeleteFunc(
		policy.Accounts,
		func(a spec.Account) bool { return a.Name == e.Name },
	)
	s.dropAssocs(func(association *spec.Association) bool { return association.Account == e.Name })
	s.recountAll()
}

func (s *State) applyUserPut(e *event.UserPut) {
	policy := s.ownPolicy()
	policy.Users = putSorted(policy.Users, e.User, userKey)
}

func (s *State) applyUserRemoved(e *event.UserRemoved) {
	policy := s.ownPolicy()
	policy.Users = slices.DeleteFunc(
		policy.Users,
		func(u spec.User) bool { return u.Name == e.Name },
	)
	policy.WCKeys = slices.DeleteFunc(
		policy.WCKeys,
		func(k spec.WCKey) bool { return k.User == e.Name },
	)
	s.dropAssocs(func(association *spec.Association) bool { return association.User == e.Name })
	s.recountAll()
}

func (s *State) applyAssocPut(e *event.AssociationPut) error {
	association := &e.Association
	policy := s.ownPolicy()
	if err := policy.checkAssoc(association); err != nil {
		return err
	}
	// Counters follow the tree. An id that was never used cannot have any.
	recount := association.User == "" || association.ID <= policy.NextAssoc
	i := policy.assocAt(association.ID)
	if old := policy.Assoc(association.ID); old != nil {
		if old.Parent != association.Parent {
			s.moveSpent(association.ID, old.Parent, association.Parent)
		}
		recount = old.Parent != association.Parent || pairOf(old) != pairOf(association)
		delete(policy.byPair, pairOf(old))
		policy.Assocs[i] = *association
	} else {
		policy.Assocs = slices.Insert(policy.Assocs, i, *association)
	}
	policy.byPair[pairOf(association)] = association.ID
	policy.NextAssoc = max(policy.NextAssoc, association.ID)
	if recount {
		s.recountAll()
	}
	return nil
}

// checkAssoc refuses an association that would make the tree ambiguous.
func (p *Policy) checkAssoc(association *spec.Association) error {
	if association.ID == 0 {
		return contradictionError(
			"the association of user %q with account %s has no id",
			association.User,
			association.Account,
		)
	}
	if id, ok := p.byPair[pairOf(association)]; ok && id != association.ID {
		return contradictionError(
			"associations %d and %d are both user %q in account %s, partition %q",
			id,
			association.ID,
			association.User,
			association.Account,
			association.Partition,
		)
	}
	// Looking at parents also finds the circle that closes when an id that
	// was removed comes back below one of its old children.
	chain := p.Chain(association.Parent)
	if association.ID == association.Parent || len(chain) >= maxChain-1 ||
		slices.ContainsFunc(chain, func(a *spec.Association) bool {
			return a.Parent == association.ID
		}) {
		return contradictionError(
			"association %d below %d would be below itself, or deeper than %d",
			association.ID,
			association.Parent,
			maxChain,
		)
	}
	return nil
}

func (s *State) applyAssocRemoved(e *event.AssociationRemoved) {
	policy := s.ownPolicy()
	old := policy.Assoc(e.ID)
	if old == nil {
		return
	}
	// A user's association that nobody is counted in moves no counter.
	counted := old.User == "" || s.Usage.Has(UsageKey(UsageAssoc, 0, e.ID))
	i := policy.assocAt(e.ID)
	s.Spent.Delete(s.own, UsageKey(UsageAssoc, 0, e.ID))
	delete(policy.byPair, pairOf(old))
	policy.Assocs = slices.Delete(policy.Assocs, i, i+1)
	if counted {
		s.recountAll()
	}
}

// dropAssocs removes associations with what they used; those above them keep
// their part of it.
func (s *State) dropAssocs(gone func(association *spec.Association) bool) {
	policy := s.ownPolicy()
	policy.Assocs = slices.DeleteFunc(policy.Assocs, func(assoc spec.Association) bool {
		if !gone(&assoc) {
			return false
		}
		s.Spent.Delete(s.own, UsageKey(UsageAssoc, 0, assoc.ID))
		return true
	})
	policy.rebuildIndex()
}

// moveSpent takes what an association used from those above it to those that
// will be.
func (s *State) moveSpent(id, from, to uint32) {
	usage, ok := s.Spent.Get(UsageKey(UsageAssoc, 0, id))
	if !ok {
		return
	}
	for _, association := range s.Policy.Chain(from) {
		s.shiftSpent(association.ID, usage, false)
	}
	for _, association := range s.Policy.Chain(to) {
		s.shiftSpent(association.ID, usage, true)
	}
}

func (s *State) applyWCKeyPut(e *event.WCKeyPut) error {
	policy := s.ownPolicy()
	if e.Key.ID == 0 {
		return contradictionError("the key %s of user %s has no id", e.Key.Name, e.Key.User)
	}
	i := slices.IndexFunc(policy.WCKeys, func(k spec.WCKey) bool { return k.ID >= e.Key.ID })
	switch {
	case i < 0:
		policy.WCKeys = append(policy.WCKeys, e.Key)
	case policy.WCKeys[i].ID == e.Key.ID:
		policy.WCKeys[i] = e.Key
	default:
		policy.WCKeys = slices.Insert(policy.WCKeys, i, e.Key)
	}
	policy.NextWCKey = max(policy.NextWCKey, e.Key.ID)
	return nil
}

func (s *State) applyWCKeyRemoved(e *event.WCKeyRemoved) {
	policy := s.ownPolicy()
	policy.WCKeys = slices.DeleteFunc(policy.WCKeys, func(k spec.WCKey) bool {
		return k.ID == e.ID
	})
}

func clusterKey(cluster *spec.KnownCluster) string { return cluster.Name }

func (s *State) applyClusterPut(e *event.ClusterPut) {
	policy := s.ownPolicy()
	policy.Clusters = putSorted(
		policy.Clusters,
		spec.KnownCluster{Name: e.Name, Socket: e.Socket, Host: e.Host, Port: e.Port},
		clusterKey,
	)
}

func (s *State) applyClusterRemoved(e *event.ClusterRemoved) {
	policy := s.ownPolicy()
	policy.Clusters = slices.DeleteFunc(
		policy.Clusters,
		func(c spec.KnownCluster) bool { return c.Name == e.Name },
	)
}

func (s *State) applyResourcePut(e *event.ResourcePut) {
	policy := s.ownPolicy()
	policy.Resources = putSorted(policy.Resources, e.Resource, resourceKey)
}

func (s *State) applyResourceRemoved(e *event.ResourceRemoved) {
	policy := s.ownPolicy()
	policy.Resources = slices.DeleteFunc(
		policy.Resources,
		func(r spec.Resource) bool { return r.Name == e.Name && r.Server == e.Server },
	)
}

func (s *State) applyReservationPut(e *event.ReservationPut) error {
	reservation := &e.Reservation
	if reservation.Name == "" || reservation.End <= reservation.Start {
		return contradictionError(
			"reservation %q from %d to %d",
			reservation.Name,
			reservation.Start,
			reservation.End,
		)
	}
	for i, name := range reservation.Nodes {
		if _, ok := s.NodeIDs[name]; !ok || slices.Contains(reservation.Nodes[:i], name) {
			return contradictionError(
				"reservation %s has node %s, which is unknown or there twice",
				reservation.Name,
				name,
			)
		}
	}
	if !reservation.TRES.Valid() {
		return contradictionError(
			"reservation %s holds a malformed vector %s",
			reservation.Name,
			reservation.TRES,
		)
	}
	s.Reservations = putSorted(slices.Clone(s.Reservations), *reservation, reservationKey)
	return nil
}

func (s *State) applyReservationRemoved(e *event.ReservationRemoved) error {
	if s.Reservation(e.Name) == nil {
		return contradictionError("there is no reservation %q", e.Name)
	}
	s.Reservations = slices.DeleteFunc(
		slices.Clone(s.Reservations),
		func(r spec.Reservation) bool { return r.Name == e.Name },
	)
	if len(s.Reservations) == 0 {
		s.Reservations = nil
	}
	return nil
}
