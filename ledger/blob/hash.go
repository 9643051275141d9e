package blob

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/musterhpc/muster/internal/durable"
)

// Sentinels for errors.Is.
var (
	ErrNotFound     = errors.New("no such blob")
	ErrCorrupt      = errors.New("the ledger's blob store is damaged")
	ErrNewerVersion = errors.New("the ledger's blobs were written by a newer release")
	ErrClosed       = errors.New("the ledger's blob store is closed")
)

// corruptError names the damaged place. errors.Is(err, ErrCorrupt) holds.
func corruptError(file string, offset int64, cure, format string, args ...any) error {
	return &durable.CorruptError{
		Store:  ErrCorrupt,
		File:   file,
		Offset: offset,
		What:   fmt.Sprintf(format, args...),
		Cure:   cure,
	}
}

// Hash is the SHA-256 of a blob.
type Hash [sha256.Size]byte

// Sum returns the hash of data.
func Sum(data []byte) Hash { return sha256.Sum256(data) }

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads what String printed.
func ParseHash(text string) (Hash, error) {
	var hash Hash
	if len(text) != 2*len(hash) {
		return hash, fmt.Errorf("blob hash %q: want %d hexadecimal digits", text, 2*len(hash))
	}
	if _, err := hex.Decode(hash[:], []byte(text)); err != nil {
		return hash, fmt.Errorf("blob hash %q: %w", text, err)
	}
	return hash, nil
}
