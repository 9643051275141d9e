package usertoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/musterhpc/muster/internal/transport/identity"
)

// Issuer accepts tokens that somebody else signed, such as a site's identity
// provider: its public keys are a JSON Web Key Set (RFC 7517), as of Slurm's jwks=.
// Such a token names a user, and who that is on this host decides what he may do.
type Issuer struct {
	// Name is what iss of its tokens says. Empty accepts every name: the keys tell the
	// tokens apart.
	Name string
	// File holds the keys. It is read again when it changes, so that keys are
	// replaced without a restart.
	File string
	// Remote gives the keys instead of File.
	Remote KeySource
	// UserClaim is the claim that holds the user's name; empty means sun.
	UserClaim string
	// UserName makes the name of a user of this host out of a token's claims, instead of
	// UserClaim.
	UserName func(claims map[string]any) (string, error)
	// Audience must be in the token's aud; empty accepts every audience.
	Audience string
	// User finds a user's numbers on this host.
	User func(name string) (uid, gid uint32, ok bool)

	mu   sync.Mutex
	keys map[string]crypto.PublicKey
	read time.Time // when the file was written that keys are from
}

// KeySource knows the public keys of an issuer.
type KeySource interface {
	// Key gives the key of a kid; the error says why there is none.
	Key(kid string) (crypto.PublicKey, error)
}

// foreignMethods are the algorithms of such tokens; none of them has a secret that
// could be taken for a public key.
func foreignMethods() []string {
	return []string{"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"}
}

// Load reads the keys, and fails where there are none that can be used.
func (s *Issuer) Load() error {
	_, err := s.current()
	return err
}

// current are the keys as the file has them. A file that cannot be read any more
// leaves the keys that were read before.
func (s *Issuer) current() (map[string]crypto.PublicKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := os.Stat(s.File)
	if err == nil && info.ModTime().Equal(s.read) && s.keys != nil {
		return s.keys, nil
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(s.File)
	}
	var keys map[string]crypto.PublicKey
	if err == nil {
		keys, err = ParseKeys(data)
	}
	switch {
	case err == nil:
		s.keys = keys
		s.read = info.ModTime()
	case s.keys == nil:
		return nil, fmt.Errorf("the keys of tokens.jwks, %s: %w", s.File, err)
	}
	return s.keys, nil
}

// verifyForeign gives the identity for which a foreign token stands.
func (s *Issuer) verifyForeign(
	text string,
	cluster string,
	now func() time.Time,
) (identity.Identity, error) {
	claims, err := ForeignClaims(text, s, now)
	if err != nil {
		return identity.Nameless(), err
	}
	name, err := s.userName(claims)
	if err != nil {
		return identity.Nameless(), fmt.Errorf("%w: %w", ErrToken, err)
	}
	uid, gid, ok := s.User(name)
	switch {
	case !ok:
		return identity.Nameless(), fmt.Errorf(
			"%w: there is no user %s on the controller's host",
			ErrToken,
			name,
		)
	case uid == 0 || uid == identity.NoID:
		return identity.Nameless(), fmt.Errorf(
			"%w: a token of another issuer cannot name %s",
			ErrToken,
			name,
		)
	}
	return identity.Identity{
		Paper:   foreignPaper(claims, name),
		Kind:    identity.AttestedUser,
		UID:     uid,
		GID:     gid,
		User:    name,
		Node:    "REST",
		Cluster: cluster,
	}, nil
}

// ForeignClaims verifies a token of an issuer and gives what it says.
func ForeignClaims(text string, issuer *Issuer, now func() time.Time) (jwt.MapClaims, error) {
	options := []jwt.ParserOption{
		jwt.WithValidMethods(foreignMethods()),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithTimeFunc(now),
		jwt.WithStrictDecoding(),
	}
	if issuer.Audience != "" {
		options = append(options, jwt.WithAudience(issuer.Audience))
	}
	if issuer.Name != "" {
		options = append(options, jwt.WithIssuer(issuer.Name))
	}
	claims := jwt.MapClaims{}
	if _, err := jwt.NewParser(options...).ParseWithClaims(text, claims, issuer.keyOf); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrToken, err)
	}
	return claims, nil
}

// userName is the user whom a token's claims name.
func (s *Issuer) userName(claims jwt.MapClaims) (string, error) {
	if s.UserName != nil {
		return s.UserName(claims)
	}
	claim := s.UserClaim
	if claim == "" {
		claim = "sun"
	}
	name, _ := claims[claim].(string)
	if name == "" {
		return "", fmt.Errorf("its claim %s names no user", claim)
	}
	return name, nil
}

// foreignPaper is what a foreign token says of itself. Its id is left out: it could be
// that of one of our own tokens.
func foreignPaper(claims jwt.MapClaims, user string) identity.Paper {
	paper := identity.Paper{User: user}
	if issued, err := claims.GetIssuedAt(); err == nil && issued != nil {
		paper.Issued = issued.Time
	}
	if end, err := claims.GetExpirationTime(); err == nil && end != nil {
		paper.Expires = end.Time
	}
	return paper
}

// keyOf finds the key that a token names. A key is used with the algorithms of its
// own kind only: the library compares the two.
func (s *Issuer) keyOf(token *jwt.Token) (any, error) {
	if critical, given := token.Header["crit"]; given {
		return nil, fmt.Errorf("it has critical extensions that are not supported: %v", critical)
	}
	kid, _ := token.Header["kid"].(string)
	if kid == "" {
		return nil, errors.New("it does not name its key (kid)")
	}
	key, err := s.find(kid)
	if err != nil {
		return nil, err
	}
	if ec, ok := key.(*ecdsa.PublicKey); ok && token.Method.Alg() != curveMethod(ec.Curve) {
		return nil, fmt.Errorf("its key %q is for %s", kid, curveMethod(ec.Curve))
	}
	return key, nil
}

// find gives the key of a kid.
func (s *Issuer) find(kid string) (crypto.PublicKey, error) {
	if s.Remote != nil {
		return s.Remote.Key(kid)
	}
	keys, err := s.current()
	if err != nil {
		return nil, err
	}
	if keys[kid] == nil {
		return nil, fmt.Errorf("its key %q is not among those of the issuer", kid)
	}
	return keys[kid], nil
}

// curveMethod is the one algorithm of a curve (RFC 7518, section 3.4).
func curveMethod(c elliptic.Curve) string {
	switch c {
	case elliptic.P256():
		return "ES256"
	case elliptic.P384():
		return "ES384"
	}
	return "ES512"
}

// jwk is one key of a set.
type jwk struct {
	Type  string `json:"kty"`
	ID    string `json:"kid"`
	Use   string `json:"use"`
	N     string `json:"n"`
	E     string `json:"e"`
	Curve string `json:"crv"`
	X     string `json:"x"`
	Y     string `json:"y"`
}

// minRSABits is the smallest RSA key that is accepted (RFC 7518, section 3.3).
const minRSABits = 2048

// maxKeys bounds a set.
const maxKeys = 100

// ParseKeys reads a JSON Web Key Set: its RSA and EC keys for signatures, by their
// kid. Keys of other kinds are left out.
func ParseKeys(data []byte) (map[string]crypto.PublicKey, error) {
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("it is not a JSON Web Key Set: %w", err)
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys, more than %d", len(set.Keys), maxKeys)
	}
	out := map[string]crypto.PublicKey{}
	for i, k := range set.Keys {
		if (k.Use != "" && k.Use != "sig") || (k.Type != "RSA" && k.Type != "EC") {
			continue
		}
		if k.ID == "" {
			return nil, fmt.Errorf("key %d has no kid", i+1)
		}
		if out[k.ID] != nil {
			return nil, fmt.Errorf("two keys have the kid %q", k.ID)
		}
		key, err := k.public()
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", k.ID, err)
		}
		out[k.ID] = key
	}
	if len(out) == 0 {
		return nil, errors.New("it has no RSA or EC key for signatures")
	}
	return out, nil
}

func (k jwk) public() (crypto.PublicKey, error) {
	if k.Type == "RSA" {
		return k.rsa()
	}
	curves := map[string]elliptic.Curve{
		"P-256": elliptic.P256(),
		"P-384": elliptic.P384(),
		"P-521": elliptic.P521(),
	}
	curve := curves[k.Curve]
	if curve == nil {
		return nil, fmt.Errorf("curve %q is not P-256, P-384 or P-521", k.Curve)
	}
	x, err := number(k.X)
	if err != nil {
		return nil, err
	}
	y, err := number(k.Y)
	if err != nil {
		return nil, err
	}
	key := &ecdsa.PublicKey{Curve: curve, X: x, Y: y}
	if _, err := key.ECDH(); err != nil {
		return nil, fmt.Errorf("its point is not on the curve: %w", err)
	}
	return key, nil
}

func (k jwk) rsa() (crypto.PublicKey, error) {
	n, err := number(k.N)
	if err != nil {
		return nil, err
	}
	e, err := number(k.E)
	if err != nil {
		return nil, err
	}
	switch {
	case n.BitLen() < minRSABits:
		return nil, fmt.Errorf(
			"an RSA key of %d bits is too short: %d at least",
			n.BitLen(),
			minRSABits,
		)
	case n.BitLen() > 8*minRSABits:
		return nil, fmt.Errorf("an RSA key of %d bits is too long", n.BitLen())
	case e.BitLen() > 31 || e.Int64() < 3 || e.Bit(0) == 0:
		return nil, errors.New("the exponent of the RSA key is not valid")
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

// number reads a large number as keys write it.
func number(text string) (*big.Int, error) {
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil || len(data) == 0 {
		return nil, fmt.Errorf("%.20q is not a number in base64url", text)
	}
	return new(big.Int).SetBytes(data), nil
}

// issuerOf is whom a token names as its issuer, before anything of it was verified.
func issuerOf(text string) string {
	var claims jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(text, &claims); err != nil {
		return ""
	}
	return claims.Issuer
}

// isForeign tells that a token was not signed with this cluster's own secret.
func isForeign(text string) bool {
	head, _, _ := strings.Cut(text, ".")
	data, err := base64.RawURLEncoding.DecodeString(head)
	if err != nil {
		return false
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	return json.Unmarshal(data, &header) == nil && header.Algorithm != "" &&
		header.Algorithm != jwt.SigningMethodHS256.Alg()
}
