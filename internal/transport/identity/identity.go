// Package identity says who is at the other end of a channel.
//
// An Identity is made in exactly three ways: from the kernel's peer credentials of a unix
// socket (FromPeer), from the client certificate of a verified TLS connection
// (FromCertificate), or from an attestation that a login host or node made over its own
// certificate (Identity.Attest). Nothing a message says about its sender is ever read. The
// server puts the Identity into the context of each request; handlers read it with From.
package identity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Kind is the kind of party at the other end.
type Kind uint8

// The kinds. Anonymous is a TLS client without a certificate, or no channel at all.
const (
	Anonymous    Kind = iota
	LocalUser         // a process on this machine; UID and GID are the kernel's word
	AttestedUser      // a user of another machine, vouched for by the login host or node in Node
	Agent             // the daemon of the compute node in Node
	Login             // the daemon of the login host in Node
	Controller        // a controller of this cluster
	Admin             // a holder of an administrator's certificate, named in User
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	names := [...]string{
		"anonymous",
		"local-user",
		"attested-user",
		"agent",
		"login",
		"controller",
		"admin",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// NoID is the UID and GID of an identity that has none. It is the kernel's own "no such id", so
// it can own nothing.
const NoID uint32 = 1<<32 - 1

// Nobody is the uid and gid that stands for root of another machine.
const Nobody uint32 = 65534

// Identity is who is at the other end of a channel. The zero value must not be used: take
// Nameless instead, whose ids are NoID.
type Identity struct {
	Kind     Kind
	UID, GID uint32    // LocalUser and AttestedUser; NoID otherwise
	Groups   []uint32  // supplementary groups of a LocalUser, from the kernel; empty otherwise
	PID      int32     // process that connected, LocalUser only; it may have passed the socket on
	User     string    // name of UID ("" = the uid has no name here), or the administrator's name
	Node     string    // host whose certificate this is, or that attested the user
	By       Kind      // of an AttestedUser: what attested him, Login or Agent; Anonymous otherwise
	Squashed bool      // of an AttestedUser: he is root there, and Nobody here, who may look and change nothing
	Token    bool      // known by a user's token alone, which makes no further tokens
	Paper    Paper     // what that token says of itself
	Binding  string    // of a TLS client without a certificate: what this connection has and no other
	Cluster  string    // cluster named in the certificate
	Serial   string    // certificate's serial number, lower-case hex; "" without a certificate
	NotAfter time.Time // certificate's end; zero without a certificate
}

// Paper is what a token of a user says of itself.
type Paper struct {
	User    string    // whose it is
	ID      string    // "" where the token has no id
	Issued  time.Time // in whole seconds; zero where the token does not say it
	Expires time.Time
	// Scope names the part of the API to which the token is confined, whatever its user
	// may do; "" = it is the user's in all.
	Scope string
}

// ScopePods is the scope of what keeps Kubernetes and the ledger in step.
const ScopePods = "pods"

// Nameless is the identity of a party that has shown nothing.
func Nameless() Identity { return Identity{Kind: Anonymous, UID: NoID, GID: NoID} }

// IsRoot reports a process of root on this machine, which may do what the service itself may.
// Attested users and machines never are.
func (id Identity) IsRoot() bool { return id.Kind == LocalUser && id.UID == 0 }

// IsUser reports that UID and GID mean something.
func (id Identity) IsUser() bool { return id.Kind == LocalUser || id.Kind == AttestedUser }

// Key names the party for counting and limits: two connections with the same key belong to the
// same party.
func (id Identity) Key() string {
	switch id.Kind {
	case LocalUser:
		return fmt.Sprintf("uid:%d", id.UID)
	case AttestedUser:
		return fmt.Sprintf("uid:%d@%s", id.UID, id.Node)
	case Admin:
		return "admin:" + id.User
	case Agent, Login, Controller:
		return id.Kind.String() + ":" + id.Node
	default:
		return "anonymous"
	}
}

// String names the party for logs and for the audit trail.
func (id Identity) String() string {
	name := id.User
	if name == "" {
		name = fmt.Sprint(id.UID)
	}
	switch id.Kind {
	case LocalUser:
		return fmt.Sprintf("user %s (uid %d)", name, id.UID)
	case AttestedUser:
		return fmt.Sprintf("user %s (uid %d, attested by %s)", name, id.UID, id.Node)
	case Admin:
		return "administrator " + id.User
	case Agent, Login, Controller:
		return id.Kind.String() + " " + id.Node
	default:
		return "anonymous"
	}
}

type contextKey struct{}

// With returns a context that carries id. Only the servers of internal/transport and tests call it.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// From returns the identity of the channel that the request came on, and Nameless() where there
// is none, so that a forgotten check fails closed.
func From(ctx context.Context) Identity {
	if id, ok := ctx.Value(contextKey{}).(Identity); ok {
		return id
	}
	return Nameless()
}

type addressKey struct{}

// WithAddress returns a context that carries the network address from which a call came. A
// socket of this host has none.
func WithAddress(ctx context.Context, from net.Addr) context.Context {
	if tcp, ok := from.(*net.TCPAddr); ok {
		return context.WithValue(ctx, addressKey{}, tcp)
	}
	return ctx
}

// AddressOf is the network address from which a call came; nil on this host.
func AddressOf(ctx context.Context) *net.TCPAddr {
	at, _ := ctx.Value(addressKey{}).(*net.TCPAddr)
	return at
}

// Attestation is what a login host or a node says about the local user whose request it relays.
type Attestation struct{ UID, GID uint32 }

// ErrMayNotAttest is wrapped when a channel may not vouch for the user it names.
var ErrMayNotAttest = errors.New("may not attest this user")

// JobThere tells as whom a user of a compute node counts: ok only if a job of his is on the
// node, and then with the group of that job rather than with any that the node might think of.
type JobThere func(node string, a Attestation) (gid uint32, ok bool)

// AttestLocal returns the identity of a user of a controller's own host whose call that
// controller passes on, because another one leads: he is what he would be on the leader's host.
// The caller has made sure that the controller belongs to the group: another holder of such a
// certificate, as accounting on a host of its own is, vouches for nobody.
func (id Identity) AttestLocal(attestation Attestation) (Identity, error) {
	if id.Kind != Controller || attestation.UID == NoID || attestation.GID == NoID {
		return Nameless(), fmt.Errorf("%s: uid %d: %w", id, attestation.UID, ErrMayNotAttest)
	}
	return Identity{
		Kind:     LocalUser,
		UID:      attestation.UID,
		GID:      attestation.GID,
		Node:     id.Node,
		Cluster:  id.Cluster,
		Serial:   id.Serial,
		NotAfter: id.NotAfter,
	}, nil
}

// Attest returns the identity of the user for whom the channel id vouches. A login host may
// vouch for any user, a node only for users with a job there; others for nobody. Root of
// another machine is Nobody here, who may look and change nothing. Group membership is not
// attested: the controller looks it up itself. User is left empty for the caller to fill in.
func (id Identity) Attest(attestation Attestation, there JobThere) (Identity, error) {
	if id.Kind != Login && id.Kind != Agent {
		return Nameless(), fmt.Errorf(
			"%s: only login hosts and nodes attest users: %w",
			id,
			ErrMayNotAttest,
		)
	}
	if attestation.UID == NoID || attestation.GID == NoID {
		return Nameless(), fmt.Errorf("%s attests an impossible id: %w", id, ErrMayNotAttest)
	}
	identity := Identity{
		Kind:     AttestedUser,
		UID:      attestation.UID,
		GID:      attestation.GID,
		Node:     id.Node,
		By:       id.Kind,
		Cluster:  id.Cluster,
		Serial:   id.Serial,
		NotAfter: id.NotAfter,
	}
	if attestation.UID == 0 {
		identity.UID = Nobody
		identity.GID = Nobody
		identity.Squashed = true
		return identity, nil
	}
	if id.Kind == Agent {
		ok := false
		if there != nil {
			identity.GID, ok = there(id.Node, attestation)
		}
		if !ok {
			return Nameless(), fmt.Errorf(
				"%s: uid %d has no job on that node, and a compute node speaks only for users who have: %w",
				id,
				attestation.UID,
				ErrMayNotAttest,
			)
		}
	}
	if identity.GID == 0 {
		identity.GID = Nobody
	}
	return identity, nil
}
