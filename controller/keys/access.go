// Package keys issues certificates, credentials and tokens with the cluster's own keys, changes
// the key that signs credentials, and follows the changes of the controller that leads.
package keys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/credential"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/usertoken"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Access issues certificates and credentials with the cluster's own keys.
type Access struct {
	ca   *pki.CA
	User *usertoken.Keys
	// ringFile holds the keys that sign credentials.
	ringFile string
	mu       sync.RWMutex // guards ring and keys, which change together
	ring     credential.Ring
	keys     [][]byte // the public halves, as agents get them
	// tokens are the site's bounds for the tokens of users.
	tokens conffile.Tokens
	// Uses is when each token was used last.
	Uses usertoken.Uses
}

// Open reads the authority and the credential keys; the keys are made
// at the first start.
func Open(tlsDir, stateDir, cluster string, now spec.Instant) (*Access, error) {
	ca, err := pki.Dir(tlsDir).CA()
	if err != nil {
		return nil, fmt.Errorf(
			"the cluster's certificate authority in %s: %w (`muster init` makes one)",
			tlsDir,
			err,
		)
	}
	path := filepath.Join(stateDir, "credential.keys")
	ring, err := credential.LoadRing(path)
	if errors.Is(err, fs.ErrNotExist) {
		ring, err = credential.NewRing(now)
		if err == nil {
			err = ring.Save(path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("credential keys: %w", err)
	}
	access := &Access{ca: ca, ringFile: path}
	access.useRing(ring)
	access.User, err = usertoken.Open(filepath.Join(stateDir, "user-token.key"), cluster, time.Now)
	if err != nil {
		return nil, err
	}
	return access, nil
}

// SetTokens takes the site's settings of tokens over.
func (a *Access) SetTokens(config conffile.Tokens) error {
	a.tokens = config
	switch {
	case config.JWKS == "" && (config.UserClaim != "" || config.Audience != ""):
		return errors.New(
			"tokens.user_claim and tokens.audience are of no use without tokens.jwks, the issuer's keys",
		)
	case config.JWKS == "":
		return nil
	}
	issuer := &usertoken.Issuer{
		File:      config.JWKS,
		UserClaim: config.UserClaim,
		Audience:  config.Audience,
		User:      host.FindUser,
	}
	a.User.Trust(issuer)
	return issuer.Load()
}

// encodeKey writes a public key for agents: the key, from, until (big endian
// nanoseconds).
func encodeKey(key credential.PublicKey) []byte {
	out := append([]byte(nil), key.Key...)
	for _, t := range [...]spec.Instant{key.From, key.Until} {
		for s := 56; s >= 0; s -= 8 {
			out = append(out, byte(uint64(t)>>s))
		}
	}
	return out
}

// Sign implements daemon.Access.
func (a *Access) Sign(c credentials.Claims) ([]byte, error) {
	claims := credential.Claims{
		Cluster: c.Cluster,
		Job:     c.Job,
		Attempt: c.Attempt,
		Step:    c.Step,
		UID:     c.UID,
		GID:     c.GID,
		Groups:  c.Groups,
		Nodes:   hostlist.Fold(c.Nodes),
		Issued:  c.Issued,
		Expires: c.Expires,
		Launch:  c.Launch,
		Epoch:   c.Epoch,
	}
	if !c.Run.IsZero() {
		claims.Run = c.Run[:]
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.ring.Sign(claims)
}

// VerifyOld implements daemon.Access.
func (a *Access) VerifyOld(raw []byte) (credentials.Claims, error) {
	a.mu.RLock()
	public := a.ring.Public()
	a.mu.RUnlock()
	verifier, err := credential.NewVerifier(public)
	if err != nil {
		return credentials.Claims{}, err
	}
	c, err := verifier.VerifyOld(raw)
	if err != nil {
		return credentials.Claims{}, err
	}
	claims := credentials.Claims{
		Cluster: c.Cluster,
		Job:     c.Job,
		Attempt: c.Attempt,
		Step:    c.Step,
		UID:     c.UID,
		GID:     c.GID,
		Groups:  c.Groups,
		Issued:  c.Issued,
		Expires: c.Expires,
		Launch:  c.Launch,
		Epoch:   c.Epoch,
	}
	copy(claims.Run[:], c.Run)
	return claims, nil
}

// Keys implements daemon.Access.
func (a *Access) Keys() [][]byte {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.keys
}

// UserToken implements daemon.Access.
func (a *Access) UserToken(
	ctx context.Context,
	request daemon.TokenAsk,
) (daemon.UserToken, error) {
	switch {
	case request.Scope != "" && !slices.Contains(usertoken.Scopes(), request.Scope):
		return daemon.UserToken{}, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"invalid scope %q of a token: expected one of %v",
				request.Scope,
				usertoken.Scopes(),
			),
		)
	case a.tokens.DisableCreation:
		return daemon.UserToken{}, spec.Refuse(
			spec.CodeDisabled,
			"this site makes no tokens (tokens.disable_creation of muster.yaml): use those of its identity provider",
		)
	case a.tokens.MaxLifespan != spec.Infinite &&
		request.Until.Sub(request.From) > a.tokens.MaxLifespan:
		return daemon.UserToken{}, spec.Refuse(
			spec.CodeInvalidTime,
			fmt.Sprintf(
				"a token lives for %d seconds at most here (tokens.max_lifespan of muster.yaml): ask for lifespan=%d",
				a.tokens.MaxLifespan/spec.Second,
				a.tokens.MaxLifespan/spec.Second,
			),
		)
	}
	bearer := usertoken.Bearer{
		User:  request.User,
		UID:   request.UID,
		GID:   request.GID,
		Via:   identity.From(ctx).Serial,
		Scope: request.Scope,
	}
	return a.issueToken(bearer, request.From, request.Until)
}

// LoginToken implements daemon.Access.
func (a *Access) LoginToken(
	user string,
	uid, gid uint32,
	from, until spec.Instant,
) (daemon.UserToken, error) {
	return a.issueToken(usertoken.Bearer{User: user, UID: uid, GID: gid}, from, until)
}

// issueToken makes a token with an id of its own.
func (a *Access) issueToken(
	bearer usertoken.Bearer,
	from, until spec.Instant,
) (daemon.UserToken, error) {
	var err error
	bearer.ID, err = usertoken.NewID()
	if err != nil {
		return daemon.UserToken{}, err
	}
	text, err := a.User.Issue(bearer, time.Unix(0, int64(from)), time.Unix(0, int64(until)))
	return daemon.UserToken{Text: text, ID: bearer.ID, Key: a.User.Name()}, err
}

// UserTokenKey implements daemon.Access.
func (a *Access) UserTokenKey() string { return a.User.Name() }

// UserTokensUsed implements daemon.Access.
func (a *Access) UserTokensUsed(ids []string) map[string]spec.Instant {
	out := map[string]spec.Instant{}
	for id, at := range a.Uses.Last(ids) {
		out[id] = spec.Instant(at.UnixNano())
	}
	return out
}

// NewToken implements daemon.Access.
func (a *Access) NewToken(
	node string,
	login bool,
	expires spec.Instant,
) (string, spec.Hash, error) {
	role := identity.Agent
	if login {
		role = identity.Login
	}
	text, record, err := pki.NewToken(a.ca, role, node, time.Unix(0, int64(expires)))
	return text, record.Hash, err
}

// tokenStore lets pki check and spend a token that the ledger holds.
type tokenStore struct {
	tokens daemon.Tokens
	node   string
}

// Token implements pki.TokenStore.
func (s tokenStore) Token(_ context.Context, secret pki.Hash) (pki.Token, error) {
	token, ok := s.tokens.Find(secret)
	if !ok {
		return pki.Token{}, pki.ErrTokenUnknown
	}
	out := pki.Token{
		Hash:    secret,
		Role:    identity.Agent,
		Node:    token.Node,
		Expires: time.Unix(0, int64(token.Expires)),
		UsedBy:  pki.Hash(token.Key),
	}
	if token.Role == identity.Login.String() {
		out.Role = identity.Login
	}
	return out, nil
}

// Spend implements pki.TokenStore: the use is in the ledger before it returns.
func (s tokenStore) Spend(ctx context.Context, secret, publicKey pki.Hash) error {
	return s.tokens.Spend(ctx, secret, s.node, publicKey)
}

// Enrol implements daemon.Access.
func (a *Access) Enrol(
	ctx context.Context,
	token, node string,
	csr []byte,
	tokens daemon.Tokens,
) (daemon.Certificate, error) {
	issued, err := pki.Enrol(
		ctx,
		a.ca,
		tokenStore{tokens, node},
		pki.Request{Token: token, Node: node, CSR: csr},
		time.Now(),
	)
	if err != nil {
		return daemon.Certificate{}, spec.Refuse(spec.CodeBadCredential, err.Error())
	}
	return certificate(issued, a.ca), nil
}

// Renew implements daemon.Access.
func (a *Access) Renew(ctx context.Context, csr []byte) (daemon.Certificate, error) {
	issued, err := pki.Renew(a.ca, identity.From(ctx), csr, nil, time.Now())
	if err != nil {
		return daemon.Certificate{}, spec.Refuse(spec.CodeBadCredential, err.Error())
	}
	cert := certificate(issued, a.ca)
	cert.By = identity.From(ctx).Serial
	return cert, nil
}

func certificate(i pki.Issued, ca *pki.CA) daemon.Certificate {
	return daemon.Certificate{
		Role:    i.Role.String(),
		Name:    i.Node,
		PEM:     i.CertPEM,
		CA:      ca.CertPEM(),
		Serial:  i.Serial,
		Expires: spec.Instant(i.NotAfter.UnixNano()),
	}
}
