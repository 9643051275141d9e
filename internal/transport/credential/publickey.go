package credential

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// publicSize is the length of an encoded PublicKey.
const publicSize = ed25519.PublicKeySize + 16

// Bytes is the key as the controller sends it to nodes: the key, then From and Until in
// nanoseconds, big endian.
func (k PublicKey) Bytes() []byte {
	out := append(make([]byte, 0, publicSize), k.Key...)
	out = binary.BigEndian.AppendUint64(out, uint64(k.From))
	return binary.BigEndian.AppendUint64(out, uint64(k.Until))
}

// ParsePublicKey is the inverse of Bytes. Errors wrap ErrMalformed.
func ParsePublicKey(data []byte) (PublicKey, error) {
	if len(data) != publicSize {
		return PublicKey{}, fmt.Errorf(
			"%w: a public key of %d bytes, want %d",
			ErrMalformed,
			len(data),
			publicSize,
		)
	}
	times := data[ed25519.PublicKeySize:]
	key := PublicKey{Key: append(ed25519.PublicKey(nil), data[:ed25519.PublicKeySize]...),
		From: spec.Instant(
			binary.BigEndian.Uint64(times),
		), Until: spec.Instant(binary.BigEndian.Uint64(times[8:]))}
	if key.Until <= key.From {
		return PublicKey{}, fmt.Errorf(
			"%w: a public key that verifies from %d until %d",
			ErrMalformed,
			key.From,
			key.Until,
		)
	}
	return key, nil
}
