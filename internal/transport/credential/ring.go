package credential

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/musterhpc/muster/internal/durable"
	"github.com/musterhpc/muster/spec"
)

// KeyID names a key: the first eight bytes of the SHA-256 of the public key.
type KeyID [8]byte

// String returns the id in hex.
func (k KeyID) String() string { return hex.EncodeToString(k[:]) }

func idOf(public ed25519.PublicKey) KeyID {
	sum := sha256.Sum256(public)
	return KeyID(sum[:8])
}

// ErrRotating is wrapped when a third key would have to live.
var ErrRotating = errors.New("a key rotation is still under way")

// PublicKey is a key as nodes know it. It verifies until Until (FarFuture while it is the newest).
type PublicKey struct {
	Key   ed25519.PublicKey
	From  spec.Instant // it signs from here on; nodes may know it earlier
	Until spec.Instant // it verifies until here
}

// signingKey is a key of a Ring.
type signingKey struct {
	private ed25519.PrivateKey
	from    spec.Instant
	until   spec.Instant
}

// Ring is the controller's set of one or two live keys. It is a value: Rotate returns a new one.
//
// A new key is published before it signs, so that nodes know it in time; the old one verifies
// until the last credential that it signed has expired. There are never more than two.
type Ring struct {
	keys  []signingKey // oldest first
	codec codec
}

// NewRing makes a ring with one new key that signs at once.
func NewRing(now spec.Instant) (Ring, error) {
	c, err := newCodec()
	if err != nil {
		return Ring{}, err
	}
	ring := Ring{codec: c}
	return ring.with(now)
}

func (r Ring) with(from spec.Instant) (Ring, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Ring{}, fmt.Errorf("make a credential key: %w", err)
	}
	keys := append(make([]signingKey, 0, 2), r.keys...)
	return Ring{
		keys:  append(keys, signingKey{private: private, from: from, until: spec.FarFuture}),
		codec: r.codec,
	}, nil
}

// Rotate adds a key that signs from now+lead on, and lets the present one verify for overlap
// after that: lead must cover the time in which every node learns the new key, overlap the
// longest life of a credential. Keys that have ended are dropped. While two keys live it
// returns ErrRotating.
func (r Ring) Rotate(now spec.Instant, lead, overlap spec.Span) (Ring, error) {
	r = r.Prune(now)
	if len(r.keys) > 1 {
		return Ring{}, fmt.Errorf("%w: until %d", ErrRotating, r.keys[0].until)
	}
	next, err := r.with(now.Add(lead))
	if err != nil {
		return Ring{}, err
	}
	if len(next.keys) > 1 {
		next.keys[0].until = now.Add(lead).Add(overlap)
	}
	return next, nil
}

// Prune returns the ring without the keys whose time is over.
func (r Ring) Prune(now spec.Instant) Ring {
	ring := Ring{codec: r.codec}
	for _, key := range r.keys {
		if now < key.until {
			ring.keys = append(ring.keys, key)
		}
	}
	return ring
}

// Public returns the keys for the nodes, oldest first.
func (r Ring) Public() []PublicKey {
	keys := make([]PublicKey, 0, len(r.keys))
	for _, key := range r.keys {
		keys = append(
			keys,
			PublicKey{
				Key: key.private.Public().(ed25519.PublicKey), From: key.from, Until: key.until,
			},
		)
	}
	return keys
}

// Sign returns the encoded credential, signed with the newest key that signs at claims.Issued.
// The credential must not outlive the key.
func (r Ring) Sign(claims Claims) ([]byte, error) {
	var key *signingKey
	for i := range r.keys {
		if r.keys[i].from <= claims.Issued && claims.Issued < r.keys[i].until {
			key = &r.keys[i]
		}
	}
	if key == nil {
		return nil, fmt.Errorf("sign a credential: no key signs at %d", claims.Issued)
	}
	if claims.Expires > key.until {
		return nil, fmt.Errorf(
			"sign a credential: it would outlive its key: the overlap of the rotation is too short for a life of %d ns",
			claims.Expires.Sub(claims.Issued),
		)
	}
	inner, err := r.codec.encodeClaims(claims)
	if err != nil {
		return nil, fmt.Errorf("sign a credential: %w", err)
	}
	id := idOf(key.private.Public().(ed25519.PublicKey))
	version := claims.encodingVersion()
	e := envelope{
		Version:   version,
		Key:       id,
		Claims:    inner,
		Signature: ed25519.Sign(key.private, signedBytes(version, id, inner)),
	}
	raw, err := r.codec.enc.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("sign a credential: %w", err)
	}
	if len(raw) > MaxSize {
		return nil, fmt.Errorf("sign a credential: %d bytes, more than %d", len(raw), MaxSize)
	}
	return raw, nil
}

// Verifier checks credentials with the live public keys. It is immutable and safe for several
// goroutines.
type Verifier struct {
	keys  map[KeyID]PublicKey
	codec codec
}

// NewVerifier makes a verifier of the keys that the controller published.
func NewVerifier(keys []PublicKey) (*Verifier, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	verifier := &Verifier{keys: make(map[KeyID]PublicKey, len(keys)), codec: c}
	for _, key := range keys {
		if len(key.Key) != ed25519.PublicKeySize {
			return nil, fmt.Errorf(
				"credential key of %d bytes, want %d",
				len(key.Key),
				ed25519.PublicKeySize,
			)
		}
		verifier.keys[idOf(key.Key)] = key
	}
	return verifier, nil
}

// Verify reads a credential and checks its form, signature and time. skew is by how much this
// machine's clock may differ from the controller's. The claims are returned only with a nil
// error.
func (v *Verifier) Verify(raw []byte, now spec.Instant, skew spec.Span) (Claims, error) {
	claims, key, err := v.verifySignature(raw)
	if err != nil {
		return Claims{}, err
	}
	switch {
	case now >= key.Until.Add(skew):
		return Claims{}, fmt.Errorf("%w: key %s", ErrUnknownKey, idOf(key.Key))
	case now.Add(skew) < claims.Issued:
		return Claims{}, fmt.Errorf(
			"%w: issued at %d, here it is %d: do the clocks agree?",
			ErrNotYet,
			claims.Issued,
			now,
		)
	case now >= claims.Expires.Add(skew):
		return Claims{}, fmt.Errorf("%w: at %d, here it is %d", ErrExpired, claims.Expires, now)
	}
	return claims, nil
}

// VerifyOld reads a credential and checks its form and signature, however long ago it
// expired: it tells what a controller once said.
func (v *Verifier) VerifyOld(raw []byte) (Claims, error) {
	claims, _, err := v.verifySignature(raw)
	return claims, err
}

// verifySignature checks all of a credential that does not depend on the time of the check.
func (v *Verifier) verifySignature(raw []byte) (Claims, PublicKey, error) {
	e, claims, err := v.codec.decodeClaims(raw)
	if err != nil {
		return Claims{}, PublicKey{}, err
	}
	key, ok := v.keys[e.Key]
	if !ok {
		return Claims{}, PublicKey{}, fmt.Errorf("%w: key %s", ErrUnknownKey, e.Key)
	}
	if !ed25519.Verify(key.Key, signedBytes(e.Version, e.Key, e.Claims), e.Signature) {
		return Claims{}, PublicKey{}, fmt.Errorf("%w: key %s", ErrBadSignature, e.Key)
	}
	if claims.Issued < key.From || claims.Expires > key.Until {
		return Claims{}, PublicKey{},
			fmt.Errorf("%w: key %s did not sign then", ErrUnknownKey, e.Key)
	}
	return claims, key, nil
}

// file is the stored form of a Ring.
type file struct {
	Format int       `json:"format"`
	Keys   []fileKey `json:"keys"`
}

type fileKey struct {
	Seed  []byte       `json:"seed"` // base64
	From  spec.Instant `json:"from"`
	Until spec.Instant `json:"until"`
}

// Bytes returns the ring, private keys included, for a secret store.
func (r Ring) Bytes() ([]byte, error) {
	f := file{Format: 1}
	for _, key := range r.keys {
		f.Keys = append(f.Keys, fileKey{Seed: key.private.Seed(), From: key.from, Until: key.until})
	}
	return json.MarshalIndent(f, "", "  ")
}

// ParseRing is the inverse of Bytes.
func ParseRing(data []byte) (Ring, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return Ring{}, fmt.Errorf("credential keys: %w", err)
	}
	if f.Format != 1 || len(f.Keys) == 0 || len(f.Keys) > 2 {
		return Ring{}, fmt.Errorf(
			"credential keys: format %d with %d keys, want format 1 with 1 or 2",
			f.Format,
			len(f.Keys),
		)
	}
	c, err := newCodec()
	if err != nil {
		return Ring{}, err
	}
	ring := Ring{codec: c}
	for i, key := range f.Keys {
		if len(key.Seed) != ed25519.SeedSize || key.Until <= key.From ||
			i > 0 && key.From < f.Keys[i-1].From {
			return Ring{}, fmt.Errorf("credential keys: key %d is damaged", i)
		}
		ring.keys = append(
			ring.keys,
			signingKey{private: ed25519.NewKeyFromSeed(key.Seed), from: key.From, until: key.Until},
		)
	}
	return ring, nil
}

// Save stores the ring in a file that only its owner can read, whole or not at all.
func (r Ring) Save(path string) error {
	data, err := r.Bytes()
	if err != nil {
		return err
	}
	return durable.WriteFile(path, data, 0o600)
}

// LoadRing reads what Save wrote; a file that others can read is refused.
func LoadRing(path string) (Ring, error) {
	data, err := durable.ReadPrivate(path)
	if err != nil {
		return Ring{}, err
	}
	ring, err := ParseRing(data)
	if err != nil {
		return Ring{}, fmt.Errorf("%s: %w", path, err)
	}
	return ring, nil
}
