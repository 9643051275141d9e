// Package callers finds out who calls a controller over HTTP or by a token, and ends calls with the
// token by which they were opened.
package callers

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhpc/muster/controller/forward"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/internal/transport/usertoken"
	"github.com/musterhpc/muster/ledger/state"
)

// Callers is what a controller knows of those who may call it. It is made for each call, because a
// controller that begins or ends to lead knows more or less than before.
type Callers struct {
	Cluster string
	Tokens  *usertoken.Keys // nil: this process has no key of tokens, and refuses them
	// NoteUse remembers that a token was used; nil = nobody asks.
	NoteUse func(token string, at time.Time)
	State   func() *state.State // the newest that this process knows, or nil; nil = there is none
	Role    func(identity.Identity) authz.Role
}

// peerKey holds who connected to the socket.
type peerKey struct{}

// WithPeer notes who connected to a socket of this host.
func WithPeer(ctx context.Context, id identity.Identity) context.Context {
	return context.WithValue(ctx, peerKey{}, id)
}

// Peer is who connected, where WithPeer has noted it.
func Peer(ctx context.Context) (identity.Identity, bool) {
	id, ok := ctx.Value(peerKey{}).(identity.Identity)
	return id, ok
}

// WebIdentity finds out who asks over HTTP: on this host's socket the kernel
// says it; over TLS a certificate or a token does.
func (c Callers) WebIdentity(
	request *http.Request,
	admission *channel.Admission,
) (identity.Identity, error) {
	id, err := c.webCaller(request, admission)
	if err != nil {
		return id, err
	}
	return c.actAs(request, id)
}

// actAs is the user whom X-SLURM-USER-NAME names. Whoever has the rights of root
// may act as another user; everybody else can only say who he is.
func (c Callers) actAs(request *http.Request, id identity.Identity) (identity.Identity, error) {
	name := request.Header.Get("X-SLURM-USER-NAME")
	switch {
	case id.Paper.Scope != "" && name != "":
		// A standby tells the leader of a named user by his name alone.
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"X-SLURM-USER-NAME: a token for %s alone acts as nobody: leave the header out",
			id.Paper.Scope,
		)
	case name == "" || name == authz.UserName(id):
		return id, nil
	case c.Role(id) != authz.Root:
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"X-SLURM-USER-NAME: %s is not who the token or the socket says: %s",
			name,
			authz.UserName(id),
		)
	}
	uid, gid, ok := host.FindUser(name)
	if !ok || uid == 0 {
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"X-SLURM-USER-NAME: there is no user %s on this host whom one can become by way of REST",
			name,
		)
	}
	return identity.Identity{
		Kind:    identity.AttestedUser,
		UID:     uid,
		GID:     gid,
		User:    name,
		Node:    "REST",
		Cluster: c.Cluster,
		Serial:  id.Serial,
		Token:   id.Token,
		Paper:   id.Paper,
	}, nil
}

// webCaller is whoever shows a token, a certificate or a local socket.
func (c Callers) webCaller(
	request *http.Request,
	admission *channel.Admission,
) (identity.Identity, error) {
	token, given := forward.BearerToken(request)
	if given {
		return c.VerifyToken(token, admission)
	}
	if id, ok := Peer(request.Context()); ok {
		return id, nil
	}
	if request.TLS != nil && len(request.TLS.VerifiedChains) > 0 {
		id, err := identity.FromCertificate(request.TLS.PeerCertificates[0], c.Cluster)
		if err != nil {
			return id, rpcstatus.New(rpcstatus.Unauthenticated, "%v", err)
		}
		return admission.Admit(request.Context(), id, func(string) (string, bool) {
			return "", false
		})
	}
	return identity.Nameless(), rpcstatus.New(
		rpcstatus.Unauthenticated,
		"say who you are: Authorization: Bearer TOKEN (or X-SLURM-USER-TOKEN), with a token from scontrol token, or an administrator's certificate",
	)
}

// VerifyToken gives the user for whom a token stands.
func (c Callers) VerifyToken(
	token string,
	admission *channel.Admission,
) (identity.Identity, error) {
	if c.Tokens == nil {
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"tokens are not accepted here: only a controller knows their key",
		)
	}
	id, err := c.Tokens.Verify(token)
	if err != nil {
		return id, rpcstatus.New(rpcstatus.Unauthenticated, "%v", err)
	}
	if c.isTokenEnded(id.Paper) {
		return identity.Nameless(), errTokenEnded()
	}
	if id.Serial != "" && admission.Revoked(id.Serial) {
		return identity.Nameless(), rpcstatus.New(
			rpcstatus.Unauthenticated,
			"the token was made by way of a machine that has been sent away since: make a new one",
		)
	}
	id.Token = true
	if id.Paper.ID != "" && c.NoteUse != nil {
		c.NoteUse(id.Paper.ID, time.Now())
	}
	return id, nil
}
