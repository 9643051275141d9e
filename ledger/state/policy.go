package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Policy holds who may use how much. That of a frozen state never changes;
// every list is sorted by its key.
type Policy struct {
	QOS       []spec.QOS         `cbor:"1,keyasint,omitempty"` // by name
	Accounts  []spec.Account     `cbor:"2,keyasint,omitempty"` // by name
	Users     []spec.User        `cbor:"3,keyasint,omitempty"` // by name
	Assocs    []spec.Association `cbor:"4,keyasint,omitempty"` // by id
	NextQOS   uint32             `cbor:"5,keyasint,omitempty"` // highest id ever used
	NextAssoc uint32             `cbor:"6,keyasint,omitempty"`
	WCKeys    []spec.WCKey       `cbor:"7,keyasint,omitempty"` // by id
	Resources []spec.Resource    `cbor:"8,keyasint,omitempty"` // by name and server
	NextWCKey uint32             `cbor:"9,keyasint,omitempty"`
	// Clusters are other ones, by name.
	Clusters []spec.KnownCluster `cbor:"10,keyasint,omitempty" since:"2"`

	byPair map[assocPair]uint32 // derived from Assocs
}

type assocPair struct{ account, user, partition string }

// rebuildIndex rebuilds what is derived from the lists.
func (p *Policy) rebuildIndex() {
	p.byPair = make(map[assocPair]uint32, len(p.Assocs))
	for i := range p.Assocs {
		p.byPair[pairOf(&p.Assocs[i])] = p.Assocs[i].ID
	}
}

func pairOf(association *spec.Association) assocPair {
	return assocPair{association.Account, association.User, association.Partition}
}

// AccountAssoc is the id of an account's own association; 0 if it has none.
func (p *Policy) AccountAssoc(
	account string,
) uint32 {
	return p.byPair[assocPair{account: account}]
}

// FindQOS returns a QOS by name, or nil.
func (p *Policy) FindQOS(name string) *spec.QOS {
	return findNamed(p.QOS, name, func(q *spec.QOS) string { return q.Name })
}

// FindAccount returns an account by name, or nil.
func (p *Policy) FindAccount(name string) *spec.Account {
	return findNamed(p.Accounts, name, func(a *spec.Account) string { return a.Name })
}

// FindUser returns a user by name, or nil.
func (p *Policy) FindUser(name string) *spec.User {
	return findNamed(p.Users, name, func(u *spec.User) string { return u.Name })
}

// FindCluster returns another cluster by name, or nil.
func (p *Policy) FindCluster(name string) *spec.KnownCluster {
	return findNamed(p.Clusters, name, clusterKey)
}

// FindResource returns a resource by name and server, or nil.
func (p *Policy) FindResource(name, server string) *spec.Resource {
	return findNamed(p.Resources, name+"@"+server, resourceKey)
}

// FindWCKey returns a user's key by name, or nil.
func (p *Policy) FindWCKey(name, user string) *spec.WCKey {
	for i := range p.WCKeys {
		if key := &p.WCKeys[i]; key.Name == name && key.User == user {
			return key
		}
	}
	return nil
}

// Assoc returns an association by id, or nil.
func (p *Policy) Assoc(id uint32) *spec.Association {
	if i := p.assocAt(id); i < len(p.Assocs) && p.Assocs[i].ID == id {
		return &p.Assocs[i]
	}
	return nil
}

// assocAt is the index of the first association whose id is at least id.
func (p *Policy) assocAt(id uint32) int {
	lo, hi := 0, len(p.Assocs)
	for lo < hi {
		if mid := (lo + hi) / 2; p.Assocs[mid].ID < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// FindAssoc returns the association of a user with an account: the one for
// the partition if there is one, else the general one; nil if there is none.
// An empty user finds the account's own association.
func (p *Policy) FindAssoc(account, user, partition string) *spec.Association {
	if id, ok := p.byPair[assocPair{account, user, partition}]; ok {
		return p.Assoc(id)
	}
	if id, ok := p.byPair[assocPair{account, user, ""}]; ok {
		return p.Assoc(id)
	}
	return nil
}

// maxChain bounds the depth of the tree of associations.
const maxChain = 64

// Chain lists an association and its ancestors, nearest first.
func (p *Policy) Chain(id uint32) []*spec.Association {
	var associations []*spec.Association
	for assoc := p.Assoc(id); assoc != nil &&
		len(associations) < maxChain; assoc = p.Assoc(assoc.Parent) {
		associations = append(associations, assoc)
		if assoc.Parent == 0 {
			break
		}
	}
	return associations
}

func findNamed[T any](list []T, name string, key func(*T) string) *T {
	i, ok := searchSorted(list, name, key)
	if !ok {
		return nil
	}
	return &list[i]
}

// searchSorted is a binary search that never copies an element: they are large.
func searchSorted[T any](list []T, name string, key func(*T) string) (int, bool) {
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; key(&list[mid]) < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(list) && key(&list[lo]) == name
}

// putSorted adds or replaces an element of a sorted list in place.
func putSorted[T any](list []T, v T, key func(*T) string) []T {
	i, ok := searchSorted(list, key(&v), key)
	if ok {
		list[i] = v
		return list
	}
	return slices.Insert(list, i, v)
}

// Reservation returns a reservation by name, or nil.
func (s *State) Reservation(name string) *spec.Reservation {
	return findNamed(s.Reservations, name, reservationKey)
}

func reservationKey(reservation *spec.Reservation) string { return reservation.Name }

// Partitions are the configured partitions with their nodes as a bitmap.
type Partitions struct {
	List []Partition // in configuration order
}

// Partition is one of them.
type Partition struct {
	Spec    *spec.PartitionSpec
	Nodes   spec.Bitset // node ids
	Subject string      // what a reason calls it
}

// Find returns a partition by name, or nil.
func (p *Partitions) Find(name string) *Partition {
	for i := range p.List {
		if p.List[i].Spec.Name == name {
			return &p.List[i]
		}
	}
	return nil
}

// FencingOf is the fencing policy of a partition's jobs.
func (s *State) FencingOf(partition string) spec.FencingPolicy {
	if part := s.Parts.Find(partition); part != nil && part.Spec.Fencing != nil {
		return *part.Spec.Fencing
	}
	if s.Config.Fencing != nil {
		return *s.Config.Fencing
	}
	return spec.FencingPolicy{}
}

// FenceProgram is the site's program that can say that a run which was given up on a node is gone:
// SuspendProgram where the node was powered down, else what the fencing policy of the job's
// partition names. Empty where there is none.
func (s *State) FenceProgram(node *Node, debt *Unfenced) string {
	if node.Power == event.PoweredDown && s.Config.Power != nil && s.Config.Power.Suspend != "" {
		return s.Config.Power.Suspend
	}
	if policy := s.FencingOf(debt.Partition); policy.Kind == spec.FenceProgram {
		return policy.Program
	}
	return ""
}

// Default returns the default partition, or nil.
func (p *Partitions) Default() *Partition {
	for i := range p.List {
		if p.List[i].Spec.Default {
			return &p.List[i]
		}
	}
	return nil
}

// Access holds what may connect: open enrolment tokens, certificates and the tokens of
// users.
type Access struct {
	Tokens []Token `cbor:"1,keyasint,omitempty"` // by hash
	Certs  []Cert  `cbor:"2,keyasint,omitempty"` // by serial
	// Users are the tokens of users that have not expired, by id.
	Users []UserToken `cbor:"3,keyasint,omitempty"`
	// Ended are the users all of whose tokens were revoked once, by name.
	Ended []TokensEnded `cbor:"4,keyasint,omitempty"`
}

// Cert finds a certificate by its serial number; nil if the cluster never issued it.
func (a *Access) Cert(serial string) *Cert { return findNamed(a.Certs, serial, certKey) }

// Token is an enrolment token. It stays, once used, so that a node which lost
// the answer can ask again with the same key.
type Token struct {
	Hash    spec.Hash    `cbor:"1,keyasint"`
	Node    string       `cbor:"2,keyasint"`
	Expires spec.Instant `cbor:"3,keyasint"`
	Key     spec.Hash    `cbor:"4,keyasint"`           // that it was used for; zero = unused
	Role    string       `cbor:"5,keyasint,omitempty"` // login; empty = agent
}

// UserToken is a token with which programs act as a user. A revoked one stays until it
// would have expired.
type UserToken struct {
	ID      string       `cbor:"1,keyasint"`
	User    string       `cbor:"2,keyasint"`
	UID     uint32       `cbor:"3,keyasint"`
	Issued  spec.Instant `cbor:"4,keyasint"`
	Expires spec.Instant `cbor:"5,keyasint"`
	Key     string       `cbor:"6,keyasint"`
	By      event.Actor  `cbor:"7,keyasint"`
	Revoked bool         `cbor:"8,keyasint,omitempty"`
	// Login is the identity provider on whose word it was given; empty = none.
	Login string `cbor:"9,keyasint,omitempty" since:"2"`
	// Scope is the part of the API that it opens; empty = all that its user may do.
	Scope string `cbor:"10,keyasint,omitempty" since:"2"`
}

// TokensEnded tells that no token of a user holds which was issued until At.
type TokensEnded struct {
	User string       `cbor:"1,keyasint"`
	At   spec.Instant `cbor:"2,keyasint"`
}

// UserToken finds the token of a user by its id; nil if the ledger has none, or if all
// tokens of its user were revoked since.
func (a *Access) UserToken(id string) *UserToken { return findNamed(a.Users, id, userTokenKey) }

// IsEnded tells whether a token of a user is revoked. issued is what the token itself
// says, in whole seconds: a token that the ledger knows is judged by its record alone.
func (a *Access) IsEnded(user, id string, issued spec.Instant) bool {
	if token := a.UserToken(id); token != nil && id != "" {
		return token.Revoked
	}
	ended := findNamed(a.Ended, user, tokensEndedKey)
	return ended != nil && issued <= ended.At
}

// Cert is a certificate the cluster issued.
type Cert struct {
	Serial  string       `cbor:"1,keyasint"`
	Role    string       `cbor:"2,keyasint"`
	Name    string       `cbor:"3,keyasint"`
	Expires spec.Instant `cbor:"4,keyasint"`
	Revoked bool         `cbor:"5,keyasint,omitempty"`
}
