package log

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/internal/durable"
)

// sumLen is what the log adds to each entry's Extensions: a CRC32C that starts from this log's
// salt. raft-wal checks an entry only as part of the last group, and never when it reads one
// back.
const sumLen = 4

func entrySum(l *raft.Log, ext []byte, salt uint32) uint32 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[:], l.Index)
	binary.LittleEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	sum := durable.ExtendChecksum(salt, head[:])
	sum = durable.ExtendChecksum(sum, l.Data)
	return durable.ExtendChecksum(sum, ext)
}

// sealEntry returns a copy of l that carries its checksum.
func sealEntry(l *raft.Log, salt uint32) *raft.Log {
	out := *l
	ext := make([]byte, len(l.Extensions), len(l.Extensions)+sumLen)
	copy(ext, l.Extensions)
	out.Extensions = binary.LittleEndian.AppendUint32(ext, entrySum(l, l.Extensions, salt))
	return &out
}

// openEntry checks and removes the checksum that sealEntry added.
func openEntry(l *raft.Log, salt uint32) error {
	n := len(l.Extensions) - sumLen
	if n < 0 {
		return fmt.Errorf("%w: entry %d has no checksum", ErrCorrupt, l.Index)
	}
	ext := l.Extensions[:n]
	if got, want := entrySum(l, ext, salt), binary.LittleEndian.Uint32(l.Extensions[n:]); got != want {
		return fmt.Errorf(
			"%w: checksum of entry %d is %08x, should be %08x",
			ErrCorrupt,
			l.Index,
			got,
			want,
		)
	}
	l.Extensions = ext
	if n == 0 {
		l.Extensions = nil
	}
	return nil
}

// decodeEntry reads an entry as raft-wal's BinaryCodec writes it, checks it, and leaves Data
// pointing into b. It never panics.
func decodeEntry(b []byte, l *raft.Log, salt uint32) error {
	decoder := entryDecoder{b: b}
	l.Index = decoder.readUvarint()
	l.Term = decoder.readUvarint()
	l.Type = raft.LogType(decoder.readUvarint())
	l.Data, l.Extensions = decoder.readBytes(), decoder.readBytes()
	if decoder.bad {
		return fmt.Errorf("%w: an entry of %d bytes cannot be decoded", ErrCorrupt, len(b))
	}
	if err := l.AppendedAt.UnmarshalBinary(decoder.b); err != nil {
		return fmt.Errorf("%w: time of an entry: %w", ErrCorrupt, err)
	}
	return openEntry(l, salt)
}

type entryDecoder struct {
	b   []byte
	bad bool
}

func (d *entryDecoder) readUvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *entryDecoder) readBytes() []byte {
	n := d.readUvarint()
	if n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	if n == 0 {
		return nil
	}
	return out
}
