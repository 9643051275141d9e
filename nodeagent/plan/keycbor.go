package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// A key is encoded as the CBOR list [job, attempt, step], which is the form of
// releases before epochs, or [job, attempt, step, epoch]. It is written here and
// not by a library's tags because those know lists of one length only.
const (
	keyParts      = 3
	keyPartsEpoch = 4
)

// CBOR's major types, in the upper three bits of an item's first byte.
const (
	majorUint     = 0 << 5
	majorNegative = 1 << 5
	majorArray    = 4 << 5
	majorMask     = 7 << 5
)

// The lower five bits are the number itself, or say how many bytes hold it.
const (
	lowMask = 1<<5 - 1
	low1    = 24
	low2    = 25
	low4    = 26
	low8    = 27
)

var errKey = errors.New("not a run key")

// MarshalCBOR writes the key; one without an epoch as older releases do, which
// may run beside this one during an upgrade.
func (k RunKey) MarshalCBOR() ([]byte, error) {
	parts := uint64(keyParts)
	if k.Epoch != 0 {
		parts = keyPartsEpoch
	}
	out := appendItem(make([]byte, 0, 28), majorArray, parts)
	out = appendItem(out, majorUint, k.Job)
	out = appendItem(out, majorUint, uint64(k.Attempt))
	if k.Step < 0 {
		out = appendItem(out, majorNegative, uint64(-1-int64(k.Step)))
	} else {
		out = appendItem(out, majorUint, uint64(k.Step))
	}
	if k.Epoch != 0 {
		out = appendItem(out, majorUint, k.Epoch)
	}
	return out, nil
}

func appendItem(out []byte, major byte, n uint64) []byte {
	switch {
	case n < low1:
		return append(out, major|byte(n))
	case n <= math.MaxUint8:
		return append(out, major|low1, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(out, major|low2), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(out, major|low4), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(out, major|low8), n)
}

// UnmarshalCBOR reads either form.
func (k *RunKey) UnmarshalCBOR(data []byte) error {
	reader := keyReader{rest: data}
	parts := reader.item(majorArray, keyPartsEpoch)
	key := RunKey{
		Job:     reader.item(majorUint, math.MaxUint64),
		Attempt: uint32(reader.item(majorUint, math.MaxUint32)),
		Step:    reader.step(),
	}
	if parts == keyPartsEpoch {
		key.Epoch = reader.item(majorUint, math.MaxUint64)
	}
	if reader.bad || len(reader.rest) > 0 || parts < keyParts {
		return fmt.Errorf("%w: %x", errKey, data)
	}
	*k = key
	return nil
}

// keyReader takes items from the front of some bytes; bad is set by the first
// one that is not what was expected.
type keyReader struct {
	rest []byte
	bad  bool
}

func (r *keyReader) item(major byte, most uint64) uint64 {
	if len(r.rest) == 0 || r.rest[0]&majorMask != major {
		r.bad = true
		return 0
	}
	low := r.rest[0] & lowMask
	r.rest = r.rest[1:]
	n := uint64(low)
	if low >= low1 {
		size := 1 << (low - low1)
		if low > low8 || len(r.rest) < size {
			r.bad = true
			return 0
		}
		n = 0
		for _, b := range r.rest[:size] {
			n = n<<8 | uint64(b)
		}
		r.rest = r.rest[size:]
	}
	r.bad = r.bad || n > most
	return n
}

func (r *keyReader) step() int32 {
	if len(r.rest) > 0 && r.rest[0]&majorMask == majorNegative {
		return int32(-1 - int64(r.item(majorNegative, math.MaxInt32)))
	}
	return int32(r.item(majorUint, math.MaxInt32))
}
