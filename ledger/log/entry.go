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

func entrySum(entry *raft.Log, ext []byte, salt uint32) uint32 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[:], entry.Index)
	binary.LittleEndian.PutUint64(head[8:], entry.Term)
	head[16] = byte(entry.Type)
	sum := durable.ExtendChecksum(salt, head[:])
	sum = durable.ExtendChecksum(sum, entry.Data)
	return durable.ExtendChecksum(sum, ext)
}

// sealEntry returns a copy of entry that carries its checksum.
func sealEntry(entry *raft.Log, salt uint32) *raft.Log {
	out := *entry
	ext := make([]byte, len(entry.Extensions), len(entry.Extensions)+sumLen)
	copy(ext, entry.Extensions)
	out.Extensions = binary.LittleEndian.AppendUint32(ext, entrySum(entry, entry.Extensions, salt))
	return &out
}

// openEntry checks and removes the checksum that sealEntry added.
func openEntry(entry *raft.Log, salt uint32) error {
	n := len(entry.Extensions) - sumLen
	if n < 0 {
		return fmt.Errorf("%w: entry %d has no checksum", ErrCorrupt, entry.Index)
	}
	ext := entry.Extensions[:n]
	if got, want := entrySum(entry, ext, salt),
		binary.LittleEndian.Uint32(entry.Extensions[n:]); got != want {
		return fmt.Errorf(
			"%w: checksum of entry %d is %08x, should be %08x",
			ErrCorrupt,
			entry.Index,
			got,
			want,
		)
	}
	entry.Extensions = ext
	if n == 0 {
		entry.Extensions = nil
	}
	return nil
}

// decodeEntry reads an entry as raft-wal's BinaryCodec writes it, checks it, and leaves Data
// pointing into data. It never panics.
func decodeEntry(data []byte, entry *raft.Log, salt uint32) error {
	decoder := entryDecoder{b: data}
	entry.Index = decoder.readUvarint()
	entry.Term = decoder.readUvarint()
	entry.Type = raft.LogType(decoder.readUvarint())
	entry.Data, entry.Extensions = decoder.readBytes(), decoder.readBytes()
	if decoder.bad {
		return fmt.Errorf("%w: an entry of %d bytes cannot be decoded", ErrCorrupt, len(data))
	}
	if err := entry.AppendedAt.UnmarshalBinary(decoder.b); err != nil {
		return fmt.Errorf("%w: time of an entry: %w", ErrCorrupt, err)
	}
	return openEntry(entry, salt)
}

type entryDecoder struct {
	b   []byte
	bad bool
}

func (d *entryDecoder) readUvarint() uint64 {
	value, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return value
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
