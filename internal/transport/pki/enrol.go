package pki

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// Errors of enrolment. Each is wrapped with what the administrator should do.
var (
	ErrTokenMalformed = errors.New("not an enrolment token")
	ErrTokenUnknown   = errors.New("enrolment token is not known")
	ErrTokenExpired   = errors.New("enrolment token has expired")
	ErrTokenUsed      = errors.New("enrolment token was used already")
	ErrWrongNode      = errors.New("enrolment token is for another host")
	ErrNotRenewable   = errors.New(
		"only a node or login host with a valid certificate can renew it, and only its own",
	)
	ErrRevoked = errors.New("certificate is revoked")
)

// Hash is a SHA-256.
type Hash = [sha256.Size]byte

// Token is what the controller remembers about an enrolment token: never the secret, only its hash.
type Token struct {
	Hash    Hash          // of the secret
	Role    identity.Kind // Agent or Login
	Node    string        // the only host that may use it
	Expires time.Time
	UsedBy  Hash // of the public key it was spent on; zero = unspent
}

// Spent reports that a certificate has been issued for the token.
func (t Token) Spent() bool { return t.UsedBy != Hash{} }

// TokenStore remembers tokens. The controller implements it on its ledger.
type TokenStore interface {
	// Token returns the token with this hash; ErrTokenUnknown if there is none.
	Token(ctx context.Context, secret Hash) (Token, error)
	// Spend records, durably before it returns nil, that the token was spent on a public key.
	// Of several calls for one token exactly one public key wins; the calls with another key
	// get ErrTokenUsed, a repeated call with the winner's gets nil.
	Spend(ctx context.Context, secret, publicKey Hash) error
}

const tokenPrefix = "muster1"

// NewToken makes a token for one host. The text is for the host (256 random bits and the
// authority's pin, about 100 characters without spaces), the record for the store.
func NewToken(
	ca *CA,
	role identity.Kind,
	node string,
	expires time.Time,
) (text string, record Token, err error) {
	if role != identity.Agent && role != identity.Login {
		return "", Token{}, fmt.Errorf("tokens enrol nodes and login hosts, not role %s", role)
	}
	if _, err := (identity.Name{Cluster: ca.cluster, Role: role, Name: node}).URI(); err != nil {
		return "", Token{}, err
	}
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", Token{}, fmt.Errorf("make a token: %w", err)
	}
	pin := ca.Pin()
	text = strings.Join(
		[]string{
			tokenPrefix,
			base64.RawURLEncoding.EncodeToString(secret[:]),
			base64.RawURLEncoding.EncodeToString(pin[:]),
		},
		".",
	)
	return text, Token{
		Hash:    sha256.Sum256(secret[:]),
		Role:    role,
		Node:    node,
		Expires: expires,
	}, nil
}

// ParseToken returns the hash of a token's secret and the pin of the authority it belongs to.
// Space around it is ignored.
func ParseToken(text string) (secret, pin Hash, err error) {
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 3 || parts[0] != tokenPrefix {
		return Hash{}, Hash{}, fmt.Errorf(
			"%w: it should begin with %q",
			ErrTokenMalformed,
			tokenPrefix+
				".",
		)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(parts[1])
	if err != nil || len(raw) != 32 {
		return Hash{}, Hash{}, fmt.Errorf("%w: it is damaged or cut off", ErrTokenMalformed)
	}
	p, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(p) != len(pin) {
		return Hash{}, Hash{}, fmt.Errorf("%w: it is damaged or cut off", ErrTokenMalformed)
	}
	return sha256.Sum256(raw), Hash(p), nil
}

// Issued is a certificate made for a node.
type Issued struct {
	Role     identity.Kind
	Node     string
	CertPEM  []byte // leaf, then authority
	Serial   string // lower-case hex
	NotAfter time.Time
}

// Enrol exchanges a token and a signing request for a certificate. Checks come before anything
// is spent; the token is spent, durably, before the certificate exists. A host that lost the
// answer asks again with the same request and token while the token has not expired; with any
// other key the token is used up.
func Enrol(
	ctx context.Context,
	ca *CA,
	store TokenStore,
	request Request,
	now time.Time,
) (Issued, error) {
	secret, _, err := ParseToken(request.Token)
	if err != nil {
		return Issued{}, err
	}
	csr, err := ParseRequest(request.CSR)
	if err != nil {
		return Issued{}, err
	}
	key, err := keyHash(csr.PublicKey)
	if err != nil {
		return Issued{}, err
	}
	token, err := store.Token(ctx, secret)
	if err != nil {
		return Issued{}, fmt.Errorf("enrol %s: %w", request.Node, err)
	}
	switch {
	case token.Hash != secret:
		return Issued{}, fmt.Errorf("enrol %s: %w", request.Node, ErrTokenUnknown)
	case token.Node != request.Node || csr.Subject.CommonName != request.Node:
		return Issued{}, fmt.Errorf(
			"enrol %q with a request for %q: %w",
			request.Node,
			csr.Subject.CommonName,
			ErrWrongNode,
		)
	case !now.Before(token.Expires):
		return Issued{}, fmt.Errorf(
			"enrol %s: %w (at %s): make a new one",
			request.Node,
			ErrTokenExpired,
			token.Expires.UTC().Format(time.RFC3339),
		)
	case token.Spent() && token.UsedBy != key:
		return Issued{}, fmt.Errorf(
			"enrol %s: %w: make a new one, and find out who used it if you did not",
			request.Node,
			ErrTokenUsed,
		)
	}
	if err := store.Spend(ctx, secret, key); err != nil {
		return Issued{}, fmt.Errorf("enrol %s: %w", request.Node, err)
	}
	return issue(ca, Holder{Role: token.Role, Name: token.Node}, request.CSR, now)
}

// Request is what a host sends to enrol.
type Request struct {
	Token string
	Node  string // the host's own name
	CSR   []byte // PEM
}

// Renew makes the next certificate of a node or login host. channel is the identity of the TLS
// connection on which the request came, whose certificate is still valid; revoked may be nil.
func Renew(
	ca *CA,
	channel identity.Identity,
	csrPEM []byte,
	revoked func(serial string) bool,
	now time.Time,
) (Issued, error) {
	valid := channel.Kind == identity.Agent || channel.Kind == identity.Login
	if !valid || channel.Cluster != ca.cluster || channel.Serial == "" ||
		!now.Before(channel.NotAfter) {
		return Issued{}, fmt.Errorf("renew for %s: %w", channel, ErrNotRenewable)
	}
	if revoked != nil && revoked(channel.Serial) {
		return Issued{}, fmt.Errorf("renew for %s: %w", channel, ErrRevoked)
	}
	csr, err := ParseRequest(csrPEM)
	if err != nil {
		return Issued{}, err
	}
	if csr.Subject.CommonName != channel.Node {
		return Issued{}, fmt.Errorf(
			"renew for %s, request for %q: %w",
			channel,
			csr.Subject.CommonName,
			ErrNotRenewable,
		)
	}
	return issue(ca, Holder{Role: channel.Kind, Name: channel.Node}, csrPEM, now)
}

func issue(ca *CA, holder Holder, csrPEM []byte, now time.Time) (Issued, error) {
	certPEM, cert, err := ca.SignRequest(holder, csrPEM, now)
	if err != nil {
		return Issued{}, err
	}
	return Issued{
		Role:     holder.Role,
		Node:     holder.Name,
		CertPEM:  certPEM,
		Serial:   cert.SerialNumber.Text(16),
		NotAfter: cert.NotAfter,
	}, nil
}

func keyHash(public any) (Hash, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Hash{}, fmt.Errorf("public key: %w", err)
	}
	return sha256.Sum256(der), nil
}
