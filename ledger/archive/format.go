package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/musterhpc/muster/internal/durable"
)

// A segment file, live or sealed, begins with
//
//	0  "MUSTARCL" live, "MUSTARCS" sealed
//	8  version
//	12 salt: start value of the records' checksums
//	16 first position
//	24 CRC32C over bytes 0-23
//	28 zero
//
// A record is
//
//	0  CRC32C over bytes 4-end, started from the salt
//	4  length of the batch
//	8  position
//	16 first sequence number of its events
//	24 last sequence number; first-1 for a batch without events
//	32 when it was archived, Unix nanoseconds
//	40 batch
const (
	formatVersion = 1
	fileHeader    = 32
	recordHeader  = 40
	magicLive     = "MUSTARCL"
	magicSealed   = "MUSTARCS"
	maxBatch      = 64 << 20
)

// Record is one batch of the history.
type Record struct {
	Pos      uint64
	FirstSeq uint64
	LastSeq  uint64 // FirstSeq-1 when the batch holds no events
	At       int64  // when it was archived, Unix nanoseconds
	Batch    []byte // valid until the next call of the iterator
}

func putFileHeader(magic string, salt uint32, first uint64) []byte {
	data := make([]byte, fileHeader)
	copy(data, magic)
	binary.LittleEndian.PutUint32(data[8:], formatVersion)
	binary.LittleEndian.PutUint32(data[12:], salt)
	binary.LittleEndian.PutUint64(data[16:], first)
	binary.LittleEndian.PutUint32(data[24:], durable.Checksum(data[:24]))
	return data
}

func readFileHeader(path, magic string, f io.ReaderAt, first uint64) (salt uint32, err error) {
	var b [fileHeader]byte
	if n, err := f.ReadAt(b[:], 0); n < fileHeader {
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		return 0, corruptError(path, 0, cureSegment, "the file has only %d bytes", n)
	}
	if string(b[:8]) != magic {
		return 0, corruptError(path, 0, cureSegment, "not a segment")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > formatVersion {
		return 0, newerError(path, v)
	}
	if durable.Checksum(b[:24]) != binary.LittleEndian.Uint32(b[24:]) {
		return 0, corruptError(path, 24, cureSegment, "checksum of the header does not match")
	}
	if got := binary.LittleEndian.Uint64(b[16:]); got != first {
		return 0, corruptError(path, 16, cureSegment, "the file says it begins at %d", got)
	}
	return binary.LittleEndian.Uint32(b[12:]), nil
}

func appendRecord(buffer []byte, salt uint32, record Record) []byte {
	start := len(buffer)
	buffer = append(buffer, 0, 0, 0, 0)
	buffer = binary.LittleEndian.AppendUint32(buffer, uint32(len(record.Batch)))
	buffer = binary.LittleEndian.AppendUint64(buffer, record.Pos)
	buffer = binary.LittleEndian.AppendUint64(buffer, record.FirstSeq)
	buffer = binary.LittleEndian.AppendUint64(buffer, record.LastSeq)
	buffer = binary.LittleEndian.AppendUint64(buffer, uint64(record.At))
	buffer = append(buffer, record.Batch...)
	binary.LittleEndian.PutUint32(buffer[start:], durable.ExtendChecksum(salt, buffer[start+4:]))
	return buffer
}

var errShort = errors.New("record is incomplete")

// readRecord reads the record at the start of data and returns its length. Batch aliases data.
func readRecord(data []byte, salt uint32) (Record, int, error) {
	if len(data) < recordHeader {
		return Record{}, 0, errShort
	}
	n := int64(binary.LittleEndian.Uint32(data[4:])) + recordHeader
	if n > maxBatch+recordHeader {
		return Record{}, 0, fmt.Errorf("impossible length %d", n-recordHeader)
	}
	if n > int64(len(data)) {
		return Record{}, 0, errShort
	}
	if durable.ExtendChecksum(salt, data[4:n]) != binary.LittleEndian.Uint32(data) {
		return Record{}, 0, errors.New("checksum of a record does not match")
	}
	return Record{
		Pos:      binary.LittleEndian.Uint64(data[8:]),
		FirstSeq: binary.LittleEndian.Uint64(data[16:]),
		LastSeq:  binary.LittleEndian.Uint64(data[24:]),
		At:       int64(binary.LittleEndian.Uint64(data[32:])),
		Batch:    data[recordHeader:n:n],
	}, int(n), nil
}

// A sealed segment's index has one entry per block, and a footer follows it:
//
//	footer: offset of the index u64, its length u32, its CRC32C u32, first and last position, first and last
//	sequence, newest time (all u64), CRC32C of the footer's 56 bytes before u32, "ARCE"
const (
	blockBytes  = 1 << 20
	indexEntry  = 56
	footerBytes = 64
	footerMagic = "ARCE"
)

// block describes one zstd frame of a sealed segment.
type block struct {
	off      int64
	packed   uint32 // bytes on disk
	size     uint32 // bytes unpacked
	sum      uint32 // CRC32C of the packed bytes
	count    uint32 // records
	firstPos uint64
	firstSeq uint64
	lastSeq  uint64
	at       int64
}

func appendBlock(buffer []byte, k block) []byte {
	le := binary.LittleEndian
	buffer = le.AppendUint64(buffer, uint64(k.off))
	buffer = le.AppendUint32(le.AppendUint32(buffer, k.packed), k.size)
	buffer = le.AppendUint32(le.AppendUint32(buffer, k.sum), k.count)
	buffer = le.AppendUint64(le.AppendUint64(buffer, k.firstPos), k.firstSeq)
	return le.AppendUint64(le.AppendUint64(buffer, k.lastSeq), uint64(k.at))
}

func readBlock(data []byte) block {
	le := binary.LittleEndian
	return block{
		off:    int64(le.Uint64(data)),
		packed: le.Uint32(data[8:]),
		size:   le.Uint32(data[12:]),
		sum:    le.Uint32(data[16:]),
		count: le.Uint32(
			data[20:],
		),
		firstPos: le.Uint64(data[24:]),
		firstSeq: le.Uint64(data[32:]),
		lastSeq:  le.Uint64(data[40:]),
		at:       int64(le.Uint64(data[48:])),
	}
}

func appendFooter(buffer []byte, indexOff int64, index []byte, s *segment) []byte {
	le := binary.LittleEndian
	start := len(buffer)
	buffer = le.AppendUint64(buffer, uint64(indexOff))
	buffer = le.AppendUint32(le.AppendUint32(buffer, uint32(len(index))), durable.Checksum(index))
	buffer = le.AppendUint64(le.AppendUint64(buffer, s.first), s.last)
	buffer = le.AppendUint64(le.AppendUint64(buffer, s.firstSeq), s.lastSeq)
	buffer = le.AppendUint64(buffer, uint64(s.at))
	buffer = le.AppendUint32(buffer, durable.Checksum(buffer[start:]))
	return append(buffer, footerMagic...)
}

// readSealed reads a sealed segment's index.
func readSealed(path string, first uint64) (*segment, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	salt, err := readFileHeader(path, magicSealed, file, first)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err != nil {
		return nil, err
	}
	size := st.Size()
	le := binary.LittleEndian
	var foot [footerBytes]byte
	at := size - footerBytes
	if at < fileHeader {
		return nil, corruptError(path, 0, cureSegment, "the file is too short")
	}
	if _, err := file.ReadAt(foot[:], at); err != nil {
		return nil, err
	}
	if string(foot[60:]) != footerMagic ||
		durable.Checksum(foot[:56]) != le.Uint32(foot[56:]) {
		return nil, corruptError(path, at, cureSegment, "the footer does not match its checksum")
	}
	off, n := int64(le.Uint64(foot[:])), int64(le.Uint32(foot[8:]))
	if off < fileHeader || off+n != at || n%indexEntry != 0 {
		return nil, corruptError(path, at, cureSegment, "the footer points outside the file")
	}
	index := make([]byte, n)
	if _, err := file.ReadAt(index, off); err != nil {
		return nil, err
	}
	if durable.Checksum(index) != le.Uint32(foot[12:]) {
		return nil, corruptError(path, off, cureSegment, "the index does not match its checksum")
	}
	s := &segment{
		path:   path,
		sealed: true,
		salt:   salt,
		size:   size,
		first:  le.Uint64(foot[16:]),
		last:   le.Uint64(foot[24:]),
		firstSeq: le.Uint64(
			foot[32:],
		),
		lastSeq: le.Uint64(foot[40:]),
		at:      int64(le.Uint64(foot[48:])),
	}
	for ; len(index) > 0; index = index[indexEntry:] {
		s.blocks = append(s.blocks, readBlock(index))
	}
	if s.first != first || s.last < s.first || len(s.blocks) == 0 {
		return nil, corruptError(
			path,
			at,
			cureSegment,
			"the footer says positions %d to %d",
			s.first,
			s.last,
		)
	}
	return s, nil
}
