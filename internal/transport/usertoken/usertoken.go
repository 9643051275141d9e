// Package usertoken makes and checks the tokens with which programs on other
// machines act as a user over REST: JSON Web Tokens (RFC 7519) that the
// controller signs with a key of its own (HMAC SHA-256, as Slurm's auth/jwt).
//
// A token names its user by number: the uid and gid that the user had when it
// was made. Who holds it is that user until it expires or is revoked, which is
// the ledger's to say; replacing the key file ends all of them at once.
package usertoken

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// The times of a token.
const (
	DefaultLife = 30 * time.Minute // as scontrol token gives
	MaxLife     = 365 * 24 * time.Hour
)

const (
	keySize  = 32
	audience = "muster-rest"
	// scopedAudience and a scope are the audience of a token that is confined to it. It is
	// another one, so that a program that knows of no scopes refuses the token.
	scopedAudience = "muster-rest/"
)

// Scopes are those that a token may have.
func Scopes() []string { return []string{identity.ScopePods} }

// audienceOf is for whom a token of a scope is.
func audienceOf(scope string) string {
	if scope == "" {
		return audience
	}
	return scopedAudience + scope
}

// audiences are all that are accepted.
func audiences() []string {
	out := []string{audience}
	for _, scope := range Scopes() {
		out = append(out, audienceOf(scope))
	}
	return out
}

// ErrToken is wrapped by every refusal of a token.
var ErrToken = errors.New("the token is not valid")

// Claims is what a token says. Sun is the user's name where Slurm's clients
// look for it. The ids are pointers because a token without them, such as one
// that another program signed with our key, must not be one of uid 0.
type Claims struct {
	jwt.RegisteredClaims
	Sun string  `json:"sun"`
	UID *uint32 `json:"uid"`
	GID *uint32 `json:"gid"`
	Via string  `json:"via,omitempty"` // serial number of the certificate that vouched for who asked for it
}

// Keys signs and checks tokens. It is safe for several goroutines.
type Keys struct {
	cluster string
	key     []byte
	parser  *jwt.Parser
	issuers []*Issuer // whose tokens are accepted besides; those with a name come first
	now     func() time.Time
}

// Trust accepts the tokens of another issuer too. Call it before Verify.
func (k *Keys) Trust(issuer *Issuer) {
	k.issuers = append(k.issuers, issuer)
	slices.SortStableFunc(k.issuers, func(a, b *Issuer) int { return strings.Compare(b.Name, a.Name) })
}

// trusted is the issuer that judges a foreign token: the one that the token names, or else the
// one that goes by its keys alone.
func (k *Keys) trusted(text string) *Issuer {
	if len(k.issuers) == 0 || !isForeign(text) {
		return nil
	}
	name := issuerOf(text)
	for _, issuer := range k.issuers {
		if issuer.Name == "" || issuer.Name == name {
			return issuer
		}
	}
	return k.issuers[0] // which says that the issuer is another one
}

// Open reads the key from a file that only its owner can read, and makes it
// the first time.
func Open(path, cluster string, now func() time.Time) (*Keys, error) {
	key, err := durable.ReadPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, keySize)
		_, err = rand.Read(key)
		if err == nil {
			err = durable.WriteFile(path, key, 0o600)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the key of user tokens: %w", err)
	}
	if len(key) < keySize {
		return nil, fmt.Errorf(
			"the key of user tokens: %s holds %d bytes, %d at least are needed: remove it to have a new one made",
			path,
			len(key),
			keySize,
		)
	}
	return &Keys{cluster: cluster, key: key, now: now, parser: jwt.NewParser(
		jwt.WithValidMethods(
			[]string{jwt.SigningMethodHS256.Alg()},
		),
		jwt.WithAudience(audiences()...),
		jwt.WithIssuer(cluster),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithTimeFunc(now),
		jwt.WithStrictDecoding(),
	)}, nil
}

// Name names the key without telling it: tokens that another key signed hold no more.
func (k *Keys) Name() string {
	sum := sha256.Sum256(append([]byte("muster user-token key\x00"), k.key...))
	return hex.EncodeToString(sum[:4])
}

// idSize is the length of a token's id in bytes.
const idSize = 8

// NewID makes the id of a token.
func NewID() (string, error) {
	id := make([]byte, idSize)
	if _, err := rand.Read(id); err != nil {
		return "", fmt.Errorf("the id of a token: %w", err)
	}
	return hex.EncodeToString(id), nil
}

// Bearer is who a token lets act, and as what the ledger knows the token.
type Bearer struct {
	ID       string
	User     string
	UID, GID uint32
	// Via is the serial number of the certificate that vouched for who asks, if one
	// did: the token is worth as much as that.
	Via string
	// Scope confines the token to a part of the API; "" = it is not confined.
	Scope string
}

// Issue makes a token for a user.
func (k *Keys) Issue(bearer Bearer, from, until time.Time) (string, error) {
	isKnown := bearer.ID != "" && bearer.User != "" &&
		bearer.UID != identity.NoID && bearer.GID != identity.NoID
	life := until.Sub(from)
	hasScope := bearer.Scope == "" || slices.Contains(Scopes(), bearer.Scope)
	if !isKnown || !hasScope || life <= 0 || life > MaxLife {
		return "", fmt.Errorf(
			"a token for user %q (uid %d, gid %d) from %s until %s cannot be made",
			bearer.User,
			bearer.UID,
			bearer.GID,
			from,
			until,
		)
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			ID:        bearer.ID,
			Issuer:    k.cluster,
			Subject:   bearer.User,
			Audience:  jwt.ClaimStrings{audienceOf(bearer.Scope)},
			IssuedAt:  jwt.NewNumericDate(from),
			ExpiresAt: jwt.NewNumericDate(until),
		},
		Sun: bearer.User, UID: &bearer.UID, GID: &bearer.GID, Via: bearer.Via,
	}).SignedString(k.key)
}

// Verify gives the identity for which a token stands, with the serial number of
// the certificate that vouched for it. root, who got his token on the
// controller's own host, is an administrator.
func (k *Keys) Verify(text string) (identity.Identity, error) {
	if issuer := k.trusted(text); issuer != nil {
		return issuer.verifyForeign(text, k.cluster, k.now)
	}
	var claims Claims
	if _, err := k.parser.ParseWithClaims(text, &claims, k.keyOf); err != nil {
		return identity.Nameless(), fmt.Errorf("%w: %w", ErrToken, err)
	}
	if claims.Sun == "" || claims.Sun != claims.Subject {
		return identity.Nameless(), fmt.Errorf("%w: it names no user", ErrToken)
	}
	if claims.UID == nil || claims.GID == nil || *claims.UID == identity.NoID ||
		*claims.GID == identity.NoID {
		return identity.Nameless(), fmt.Errorf(
			"%w: it has no uid and gid of user %s",
			ErrToken,
			claims.Sun,
		)
	}
	paper := paperOf(&claims.RegisteredClaims, claims.Sun)
	paper.Scope = scopeOf(claims.Audience)
	if *claims.UID == 0 {
		return identity.Identity{
			Paper:   paper,
			Kind:    identity.Admin,
			UID:     identity.NoID,
			GID:     identity.NoID,
			User:    claims.Sun,
			Cluster: k.cluster,
			Serial:  claims.Via,
		}, nil
	}
	return identity.Identity{
		Paper:   paper,
		Kind:    identity.AttestedUser,
		UID:     *claims.UID,
		GID:     *claims.GID,
		User:    claims.Sun,
		Node:    "REST",
		Cluster: k.cluster,
		Serial:  claims.Via,
	}, nil
}

// paperOf is what a token says of itself. It has an end: the parsers require one.
func paperOf(claims *jwt.RegisteredClaims, user string) identity.Paper {
	paper := identity.Paper{User: user, ID: claims.ID, Expires: claims.ExpiresAt.Time}
	if claims.IssuedAt != nil {
		paper.Issued = claims.IssuedAt.Time
	}
	return paper
}

// scopeOf is the scope of a token that is for one of our audiences.
func scopeOf(list jwt.ClaimStrings) string {
	if slices.Contains(list, audience) {
		return ""
	}
	for _, one := range list {
		if scope, ok := strings.CutPrefix(one, scopedAudience); ok {
			return scope
		}
	}
	return "" // the parser has refused it
}

// keyOf gives the key for a token. The parser does not look at crit, the header
// that names extensions without which a token must not be accepted (RFC 7515,
// section 4.1.11). No extension is understood here, so each of them refuses.
func (k *Keys) keyOf(token *jwt.Token) (any, error) {
	if critical, given := token.Header["crit"]; given {
		return nil, fmt.Errorf("it has critical extensions that are not supported: %v", critical)
	}
	return k.key, nil
}
