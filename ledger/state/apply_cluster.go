package state

import (
	"maps"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

func (s *State) applyClusterCreated(envelope *event.Envelope, e *event.ClusterCreated) error {
	if s.Seq != 0 {
		return contradictionError("a cluster is created only once")
	}
	if e.Version > event.Version {
		return event.ErrNewer
	}
	s.UUID = e.UUID
	s.ClusterName = e.Name
	s.Version = e.Version
	s.Created = envelope.At
	return nil
}

func (s *State) applyVersionRaised(e *event.ClusterVersionRaised) error {
	if e.Version > event.Version {
		return event.ErrNewer
	}
	s.Version = max(s.Version, e.Version)
	return nil
}

// applyConfig replaces the configuration. Nodes keep their ids by name; a node
// that is gone stays, marked, until its last job is done.
func (s *State) applyConfig(e *event.ConfigAdopted) error {
	if e.Config == nil {
		return contradictionError("no configuration")
	}
	return s.adoptConfig(e.Config)
}

// applyNodeAdded adds a node that no file names. It costs less than a new
// configuration: clouds add a thousand.
func (s *State) applyNodeAdded(e *event.NodeAdded) error {
	for _, name := range e.Partitions {
		if s.Parts.Find(name) == nil {
			return contradictionError(
				"node %s is added to partition %s, which does not exist",
				e.Node.Name,
				name,
			)
		}
	}
	nodeSpec := e.Node
	nodeSpec.Dynamic = true
	old := s.Node(nodeSpec.Name)
	if old != nil && !old.Removed {
		return contradictionError("node %s is added, but exists", nodeSpec.Name)
	}
	id, known := s.NodeIDs[nodeSpec.Name]
	if !known {
		id = spec.NodeID(len(s.NodeIDs))
		s.NodeIDs = maps.Clone(s.NodeIDs)
		if s.NodeIDs == nil {
			s.NodeIDs = map[string]spec.NodeID{}
		}
		s.NodeIDs[nodeSpec.Name] = id
	}
	s.Config = s.Config.WithNode(nodeSpec, e.Partitions)
	if old != nil {
		node := *old
		node.Spec, node.Removed = &nodeSpec, false
		s.putNode(s.measureNode(&node))
	} else {
		s.putNode(newNode(id, &nodeSpec))
	}
	s.updatePartitions(func(partition *Partition) {
		if slices.Contains(e.Partitions, partition.Spec.Name) {
			partition.Nodes = partition.Nodes.Clone().Set(int(id))
		}
	})
	return nil
}

// applyNodeDeleted takes a node away that was added.
func (s *State) applyNodeDeleted(e *event.NodeDeleted) error {
	node := s.Node(e.Node)
	if node == nil || node.Removed || !node.Spec.Dynamic {
		return contradictionError("node %s is deleted, but was not added", e.Node)
	}
	s.Config = s.Config.WithoutNode(e.Node)
	s.removeNode(node)
	s.updatePartitions(func(partition *Partition) {
		if partition.Nodes.Has(int(node.ID)) {
			partition.Nodes = partition.Nodes.Clone().Clear(int(node.ID)).Trim()
		}
	})
	return nil
}

// applyPartitionPut changes a partition that exists.
func (s *State) applyPartitionPut(e *event.PartitionPut) error {
	partition := &e.Partition
	if s.Parts.Find(partition.Name) == nil {
		return contradictionError("partition %s is changed, but does not exist", partition.Name)
	}
	oldQOS := partitionQOS(s.Config)
	s.Config = s.Config.WithPartition(partition, e.Nodes)
	if e.Nodes {
		s.Parts = derivePartitions(s.Config, s.NodeIDs)
	} else {
		s.updatePartitions(func(*Partition) {})
	}
	if !slices.Equal(oldQOS, partitionQOS(s.Config)) {
		s.recountAll()
	}
	return nil
}

// applyNodeChanged changes a node that exists.
func (s *State) applyNodeChanged(envelope *event.Envelope, e *event.NodeChanged) error {
	old := s.Node(e.Node)
	if old == nil || old.Removed {
		return contradictionError("node %s is changed, but does not exist", e.Node)
	}
	node := *old
	if nodeSpec := *old.Spec; nodeSpec.Weight != e.Weight ||
		!slices.Equal(nodeSpec.Features, e.Features) ||
		!slices.Equal(nodeSpec.Available, e.Available) {
		nodeSpec.Weight = e.Weight
		nodeSpec.Features = e.Features
		nodeSpec.Available = e.Available
		if s.configOwn == s.own {
			s.Config.ChangeNode(nodeSpec)
		} else {
			s.Config, s.configOwn = s.Config.WithChangedNode(nodeSpec), s.own
			s.updatePartitions(func(*Partition) {})
		}
		node.Spec = &nodeSpec
	}
	node.Comment, node.Extra = e.Comment, e.Extra
	if node.Reason != e.Reason {
		node.setReason(e.Reason, envelope.Actor, envelope.At)
	}
	if e.Reason == "" {
		node.clearReason()
	}
	s.putNode(&node)
	return nil
}

// applyPartitionAdded adds a partition that no file names.
func (s *State) applyPartitionAdded(e *event.PartitionAdded) error {
	if s.Parts.Find(e.Partition.Name) != nil {
		return contradictionError("partition %s is added, but exists", e.Partition.Name)
	}
	s.withPartitions(s.Config.WithNewPartition(e.Partition))
	return nil
}

// applyPartitionGone takes a partition away that was added.
func (s *State) applyPartitionGone(e *event.PartitionGone) error {
	if part := s.Parts.Find(e.Name); part == nil || !part.Spec.Dynamic {
		return contradictionError("partition %s is taken away, but was not added", e.Name)
	}
	s.withPartitions(s.Config.WithoutPartition(e.Name))
	return nil
}

// withPartitions adopts a configuration that differs in its partitions.
func (s *State) withPartitions(config *spec.Config) {
	oldQOS := partitionQOS(s.Config)
	s.Config = config
	s.Parts = derivePartitions(config, s.NodeIDs)
	if !slices.Equal(oldQOS, partitionQOS(config)) {
		s.recountAll()
	}
}

// updatePartitions lets the partitions follow a configuration with the same ones, each as
// it is changed.
func (s *State) updatePartitions(change func(part *Partition)) {
	parts := &Partitions{List: slices.Clone(s.Parts.List)}
	for i := range parts.List {
		parts.List[i].Spec = &s.Config.Partitions[i]
		change(&parts.List[i])
	}
	s.Parts = parts
}

// adoptConfig makes a configuration the one in force.
func (s *State) adoptConfig(config *spec.Config) error {
	seen := make(map[string]bool, len(config.Nodes))
	for i := range config.Nodes {
		if name := config.Nodes[i].Name; seen[name] {
			return contradictionError("node %s is configured twice", name)
		}
		seen[config.Nodes[i].Name] = true
	}
	oldQOS := partitionQOS(s.Config)
	s.Config, s.configOwn = config, nil
	if first := spec.JobID(config.Limits.FirstJobID); s.NextID == 1 && first > 1 {
		s.NextID = first
	}
	// A name keeps its id for ever, also while no such node is configured.
	ids := make(map[string]spec.NodeID, len(s.NodeIDs)+len(config.Nodes))
	maps.Copy(ids, s.NodeIDs)
	for i := range config.Nodes {
		nodeSpec := &config.Nodes[i]
		id, known := ids[nodeSpec.Name]
		if !known {
			id = spec.NodeID(len(ids))
			ids[nodeSpec.Name] = id
		}
		if old := s.NodeByID(id); old != nil {
			node := *old
			node.Spec, node.Removed = nodeSpec, false
			s.putNode(s.measureNode(&node))
		} else {
			s.putNode(newNode(id, nodeSpec))
		}
	}
	s.NodeIDs = ids
	s.removeNodes(seen)
	s.Parts = derivePartitions(config, ids)
	if !slices.Equal(oldQOS, partitionQOS(config)) {
		s.recountAll()
	}
	return nil
}

// removeNodes drops the nodes that are not configured any more; those that
// jobs hold are marked and go when their last job is done.
func (s *State) removeNodes(configured map[string]bool) {
	var gone []*Node
	s.Nodes.Range(func(_ uint64, node *Node) bool {
		if !configured[node.Spec.Name] {
			gone = append(gone, node)
		}
		return true
	})
	for _, node := range gone {
		s.removeNode(node)
	}
}

// removeNode drops a node that is not configured any more, or marks it until its
// last job is done.
func (s *State) removeNode(node *Node) {
	if node.Unused() && len(node.Unfenced) == 0 {
		s.Nodes.Delete(s.own, uint64(node.ID))
		return
	}
	held := *node
	held.Removed = true
	s.putNode(s.measureNode(&held))
}

func partitionQOS(config *spec.Config) []string {
	var out []string
	for i := range config.Partitions {
		out = append(out, config.Partitions[i].Name+"\x00"+config.Partitions[i].QOS)
	}
	return out
}

func derivePartitions(config *spec.Config, ids map[string]spec.NodeID) *Partitions {
	configured := make(map[string]bool, len(config.Nodes))
	for i := range config.Nodes {
		configured[config.Nodes[i].Name] = true
	}
	partitions := &Partitions{List: make([]Partition, len(config.Partitions))}
	for i := range config.Partitions {
		partition := &config.Partitions[i]
		var nodes spec.Bitset
		for _, name := range partition.NodeNames {
			if id, ok := ids[name]; ok && configured[name] {
				nodes = nodes.Set(int(id))
			}
		}
		partitions.List[i] = Partition{Spec: partition, Nodes: nodes, Subject: "partition/" +
			partition.Name}
	}
	return partitions
}

func (s *State) applyTokenIssued(e *event.TokenIssued) error {
	if e.Hash.IsZero() {
		return contradictionError("the token for node %s is empty", e.Node)
	}
	access := *s.Access
	access.Tokens = putSorted(
		slices.Clone(access.Tokens),
		Token{Hash: e.Hash, Node: e.Node, Expires: e.Expires, Role: e.Role},
		tokenKey,
	)
	s.Access = &access
	return nil
}

// applyTokenSpent binds a token to a key and forgets the tokens that have
// expired.
func (s *State) applyTokenSpent(envelope *event.Envelope, e *event.TokenSpent) error {
	token := findNamed(s.Access.Tokens, e.Hash.String(), tokenKey)
	switch {
	case token == nil || token.Node != e.Node:
		return contradictionError("node %s used a token that is unknown", e.Node)
	case e.Key.IsZero() || !token.Key.IsZero():
		return contradictionError("the token of node %s was used already, or for no key", e.Node)
	}
	access, spent := *s.Access, *token
	spent.Key = e.Key
	access.Tokens = putSorted(slices.Clone(access.Tokens), spent, tokenKey)
	access.Tokens = slices.DeleteFunc(
		access.Tokens,
		func(t Token) bool { return t.Expires < envelope.At },
	)
	s.Access = &access
	return nil
}

func tokenKey(token *Token) string { return token.Hash.String() }

func userTokenKey(token *UserToken) string { return token.ID }

func tokensEndedKey(ended *TokensEnded) string { return ended.User }

// applyUserToken notes a token of a user, and forgets those that have expired.
func (s *State) applyUserToken(envelope *event.Envelope, e *event.UserTokenIssued) error {
	if e.ID == "" || e.User == "" || e.Expires <= envelope.At {
		return contradictionError("token %q of user %q has expired or names nothing", e.ID, e.User)
	}
	if s.Access.UserToken(e.ID) != nil {
		return contradictionError("token %s was issued already", e.ID)
	}
	access := *s.Access
	access.Users = slices.DeleteFunc(
		slices.Clone(access.Users),
		func(t UserToken) bool { return t.Expires <= envelope.At },
	)
	access.Users = putSorted(access.Users, UserToken{
		ID:      e.ID,
		User:    e.User,
		UID:     e.UID,
		Issued:  envelope.At,
		Expires: e.Expires,
		Key:     e.Key,
		By:      envelope.Actor,
		Login:   e.Login,
		Scope:   e.Scope,
	}, userTokenKey)
	s.Access = &access
	return nil
}

// applyUserTokensEnded revokes tokens of a user by id, or all that were issued so far.
// Of the latter no records stay: what the ledger does not know is judged by the time
// at which it was issued.
func (s *State) applyUserTokensEnded(envelope *event.Envelope, e *event.UserTokensEnded) error {
	if e.User == "" {
		return contradictionError("tokens of no user were revoked")
	}
	access := *s.Access
	access.Users = slices.Clone(access.Users)
	if len(e.IDs) == 0 {
		access.Users = slices.DeleteFunc(
			access.Users,
			func(t UserToken) bool { return t.User == e.User },
		)
		access.Ended = putSorted(
			slices.Clone(access.Ended),
			TokensEnded{User: e.User, At: envelope.At},
			tokensEndedKey,
		)
	}
	for _, id := range e.IDs {
		token := findNamed(access.Users, id, userTokenKey)
		if token == nil || token.User != e.User {
			return contradictionError("user %s has no token %s", e.User, id)
		}
		token.Revoked = true
	}
	s.Access = &access
	return nil
}

func (s *State) applyCertificate(e *event.CertificateIssued) error {
	access := *s.Access
	if !e.Token.IsZero() {
		if !slices.ContainsFunc(access.Tokens, func(t Token) bool { return t.Hash == e.Token }) {
			return contradictionError(
				"certificate %s was issued for a token that is unknown or used",
				e.Serial,
			)
		}
		access.Tokens = slices.DeleteFunc(
			slices.Clone(access.Tokens),
			func(t Token) bool { return t.Hash == e.Token },
		)
	}
	if findNamed(access.Certs, e.Serial, certKey) != nil {
		return contradictionError("certificate %s was issued already", e.Serial)
	}
	access.Certs = putSorted(
		slices.Clone(access.Certs),
		Cert{Serial: e.Serial, Role: e.Role, Name: e.Name, Expires: e.Expires},
		certKey,
	)
	s.Access = &access
	return nil
}

func certKey(cert *Cert) string { return cert.Serial }

func (s *State) applyRevoked(e *event.CertificateRevoked) error {
	cert := findNamed(s.Access.Certs, e.Serial, certKey)
	if cert == nil {
		return contradictionError("no certificate %s", e.Serial)
	}
	access, r := *s.Access, *cert
	r.Revoked = true
	access.Certs = putSorted(slices.Clone(access.Certs), r, certKey)
	s.Access = &access
	return nil
}

func (s *State) applyDropped(envelope *event.Envelope, e *event.CertificatesDropped) error {
	access := *s.Access
	access.Certs = slices.Clone(access.Certs)
	for _, serial := range e.Serials {
		cert := findNamed(access.Certs, serial, certKey)
		if cert == nil || cert.Expires > envelope.At {
			return contradictionError("certificate %s is unknown or holds yet", serial)
		}
		access.Certs = slices.DeleteFunc(
			access.Certs,
			func(x Cert) bool { return x.Serial == serial },
		)
	}
	s.Access = &access
	return nil
}
