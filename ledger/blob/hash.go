package blob

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// Sentinels for errors.Is.
var (
	ErrNotFound     = errors.New("no such blob")
	ErrCorrupt      = errors.New("the ledger's blob store is damaged")
	ErrNewerVersion = errors.New("the ledger's blobs were written by a newer release")
	ErrClosed       = errors.New("the ledger's blob store is closed")
)

// CorruptError names the damaged place. errors.Is(err, ErrCorrupt) holds.
type CorruptError struct {
	File   string
	Offset int64
	What   string
	Cure   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at offset %d: %s; %s", ErrCorrupt, e.File, e.Offset, e.What, e.Cure)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Hash is the SHA-256 of a blob.
type Hash [sha256.Size]byte

// Sum returns the hash of data.
func Sum(data []byte) Hash { return sha256.Sum256(data) }

// String is the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads what String printed.
func ParseHash(s string) (Hash, error) {
	var h Hash
	if len(s) != 2*len(h) {
		return h, fmt.Errorf("blob hash %q: want %d hexadecimal digits", s, 2*len(h))
	}
	if _, err := hex.Decode(h[:], []byte(s)); err != nil {
		return h, fmt.Errorf("blob hash %q: %w", s, err)
	}
	return h, nil
}

const packVersion = 1

// Pack returns a batch that carries blobs in front of its events:
//
//	'M' 'P' version, count, length of each blob (uvarints), blobs, events
//
// It has no checksum of its own, since the log's frame has one.
func Pack(events []byte, blobs [][]byte) []byte {
	size := 3 + binary.MaxVarintLen64*(1+len(blobs)) + len(events)
	for _, b := range blobs {
		size += len(b)
	}
	out := append(make([]byte, 0, size), 'M', 'P', packVersion)
	out = binary.AppendUvarint(out, uint64(len(blobs)))
	for _, b := range blobs {
		out = binary.AppendUvarint(out, uint64(len(b)))
	}
	for _, b := range blobs {
		out = append(out, b...)
	}
	return append(out, events...)
}

// Unpack takes a packed batch apart. The results alias it.
func Unpack(batch []byte) (events []byte, blobs [][]byte, err error) {
	if len(batch) < 4 || batch[0] != 'M' || batch[1] != 'P' {
		return nil, nil, errors.New("unpack a batch: it does not begin as one")
	}
	if batch[2] > packVersion {
		return nil, nil, fmt.Errorf("unpack a batch: %w: format %d, this release reads up to %d; install the newer release", ErrNewerVersion, batch[2], packVersion)
	}
	rest := batch[3:]
	next := func() (uint64, bool) {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > uint64(len(batch)) {
			return 0, false
		}
		rest = rest[n:]
		return v, true
	}
	count, ok := next()
	if !ok || count > uint64(len(rest)) {
		return nil, nil, errors.New("unpack a batch: impossible number of blobs")
	}
	sizes := make([]uint64, count)
	for i := range sizes {
		if sizes[i], ok = next(); !ok {
			return nil, nil, fmt.Errorf("unpack a batch: impossible length of blob %d", i)
		}
	}
	for i, n := range sizes {
		if n > uint64(len(rest)) {
			return nil, nil, fmt.Errorf("unpack a batch: blob %d has %d bytes, %d are left", i, n, len(rest))
		}
		blobs = append(blobs, rest[:n:n])
		rest = rest[n:]
	}
	return rest, blobs, nil
}
