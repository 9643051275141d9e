// Package credential makes and checks the proof that the controller wants a job to run: a node
// starts processes for a user only against a credential that the controller signed, and the
// tools that dial a node (srun, sattach) show one.
//
// A credential is the CBOR array [version, key id, claims, signature]: claims is the
// deterministic CBOR encoding (RFC 8949, section 4.2.1) of Claims as a byte string, signature
// the Ed25519 signature of the key over "muster job credential\x00" || version || key id ||
// claims. Reading is strict: unknown fields, other encodings of the same value and trailing
// bytes are refused, so that one credential has one byte string. A new claim needs a new
// version.
package credential

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Version is the version of the encoding written by this release. Claims without an epoch,
// which are about attempts that an older release started, are written as version 1.
const (
	Version      = 2
	versionPlain = 1
)

// MaxSize bounds an encoded credential, MaxLife how long one may live, MaxGroups the groups in
// it (the kernel's own limit).
const (
	MaxSize   = 512 << 10
	MaxLife   = 31 * spec.Day
	MaxGroups = 65536

	domain = "muster job credential\x00"
)

// Errors of checking. Each is wrapped with what was found.
var (
	ErrMalformed    = errors.New("credential is malformed")
	ErrUnknownKey   = errors.New("credential is signed with a key that is not live")
	ErrBadSignature = errors.New("credential's signature is wrong")
	ErrNotYet       = errors.New("credential is not valid yet")
	ErrExpired      = errors.New("credential has expired")
	ErrOtherCluster = errors.New("credential is of another cluster")
	ErrOtherNode    = errors.New("credential is not for this node")
)

// Claims is what the controller says. Nodes is a host list expression; Launch is the SHA-256 of
// the launch message, so that the command, environment and limits are covered without being in
// the credential.
type Claims struct {
	Cluster [16]byte     `cbor:"1,keyasint"` // the ledger's UUID
	Job     spec.JobUID  `cbor:"2,keyasint"`
	Attempt uint32       `cbor:"3,keyasint"`
	Step    spec.StepID  `cbor:"4,keyasint"`
	UID     uint32       `cbor:"5,keyasint"`
	GID     uint32       `cbor:"6,keyasint"`
	Groups  []uint32     `cbor:"7,keyasint"`
	Nodes   string       `cbor:"8,keyasint"`
	Issued  spec.Instant `cbor:"9,keyasint"`
	Expires spec.Instant `cbor:"10,keyasint"`
	Launch  [32]byte     `cbor:"11,keyasint"`
	// Epoch is that of the attempt's runs, Run the hash of script, environment, user and
	// allocation (version 2).
	Epoch uint64 `cbor:"12,keyasint,omitempty"`
	Run   []byte `cbor:"13,keyasint,omitempty"`
}

// encodingVersion is the version of the encoding that can hold the claims.
func (c Claims) encodingVersion() uint8 {
	if c.Epoch == 0 && len(c.Run) == 0 {
		return versionPlain
	}
	return Version
}

// envelope is the outer array.
type envelope struct {
	_         struct{} `cbor:",toarray"`
	Version   uint8
	Key       KeyID
	Claims    []byte
	Signature []byte
}

// codec holds the two CBOR modes; they are immutable and safe for several goroutines.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

func newCodec() (codec, error) {
	encoder, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		return codec{}, fmt.Errorf("credential codec: %w", err)
	}
	decoder, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxNestedLevels: 4, MaxArrayElements: MaxGroups, MaxMapPairs: 16,
	}.DecMode()
	if err != nil {
		return codec{}, fmt.Errorf("credential codec: %w", err)
	}
	return codec{enc: encoder, dec: decoder}, nil
}

func (c codec) encodeClaims(claims Claims) ([]byte, error) {
	if err := claims.check(); err != nil {
		return nil, err
	}
	if claims.Groups == nil {
		claims.Groups = []uint32{} // one encoding of "none"
	}
	return c.enc.Marshal(claims)
}

// check refuses claims that no controller makes; the same for writing and reading.
func (c Claims) check() error {
	switch {
	case c.Job == 0 || c.Attempt == 0:
		return fmt.Errorf("%w: no job or attempt", ErrMalformed)
	case c.UID == 1<<32-1 || c.GID == 1<<32-1 || slices.Contains(c.Groups, 1<<32-1):
		return fmt.Errorf("%w: impossible uid or gid", ErrMalformed)
	case len(c.Groups) > MaxGroups:
		return fmt.Errorf("%w: %d groups", ErrMalformed, len(c.Groups))
	case c.Nodes == "":
		return fmt.Errorf("%w: no nodes", ErrMalformed)
	case c.Issued <= 0 || c.Expires <= c.Issued || c.Expires.Sub(c.Issued) > MaxLife:
		return fmt.Errorf("%w: lives from %d to %d", ErrMalformed, c.Issued, c.Expires)
	}
	return nil
}

func (c codec) decodeClaims(raw []byte) (envelope, Claims, error) {
	var e envelope
	var claims Claims
	if len(raw) > MaxSize {
		return e, claims, fmt.Errorf("%w: %d bytes", ErrMalformed, len(raw))
	}
	if err := c.dec.Unmarshal(raw, &e); err != nil {
		return e, claims, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if e.Version < versionPlain || e.Version > Version {
		return e, claims, fmt.Errorf(
			"%w: version %d, this release reads %d to %d",
			ErrMalformed,
			e.Version,
			versionPlain,
			Version,
		)
	}
	if len(e.Signature) != ed25519.SignatureSize {
		return e, claims, fmt.Errorf("%w: signature of %d bytes", ErrMalformed, len(e.Signature))
	}
	if err := c.dec.Unmarshal(e.Claims, &claims); err != nil {
		return e, claims, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if e.Version != claims.encodingVersion() {
		return e, claims, fmt.Errorf(
			"%w: version %d with claims of version %d",
			ErrMalformed,
			e.Version,
			claims.encodingVersion(),
		)
	}
	return e, claims, c.canonical(raw, e, claims)
}

// canonical checks that raw is the one encoding of what was read from it.
func (c codec) canonical(raw []byte, e envelope, claims Claims) error {
	inner, err := c.encodeClaims(claims)
	if err != nil {
		return err
	}
	outer, err := c.enc.Marshal(e)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !bytes.Equal(inner, e.Claims) || !bytes.Equal(outer, raw) {
		return fmt.Errorf("%w: not the canonical encoding", ErrMalformed)
	}
	return nil
}

func signedBytes(version uint8, key KeyID, claims []byte) []byte {
	buffer := make([]byte, 0, len(domain)+1+len(key)+len(claims))
	buffer = append(buffer, domain...)
	buffer = append(buffer, version)
	buffer = append(buffer, key[:]...)
	return append(buffer, claims...)
}

// CheckNode checks what only the receiver knows: that the credential is of its cluster and that
// it is one of the nodes.
func (c Claims) CheckNode(cluster [16]byte, node string) error {
	if c.Cluster != cluster {
		return fmt.Errorf("%w: %x, this is %x", ErrOtherCluster, c.Cluster, cluster)
	}
	in, err := hostlist.Contains(c.Nodes, node)
	if err != nil {
		return fmt.Errorf("%w: nodes: %w", ErrMalformed, err)
	}
	if !in {
		return fmt.Errorf("%w: job %d runs on %s, this is %s", ErrOtherNode, c.Job, c.Nodes, node)
	}
	return nil
}
