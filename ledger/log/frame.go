package log

import (
	"encoding/binary"
	"fmt"

	"github.com/musterhpc/muster/internal/durable"
)

// Every batch travels in a frame, the same bytes on every member and on disk:
//
//	0  'M' 'B'  magic
//	2  version  1
//	3  kind
//	4  CRC32C over bytes 0-3 and 8-end
//	8  run      random number of the writer's run, new after every Resume
//	16 seq      place in the run; the Open frame gives the start
//	24 length of the payload
//	28 reserved, zero
//	32 payload
const (
	frameVersion = 1
	frameHeader  = 32

	// MaxBatchBytes is the largest batch that Append accepts. raft-wal refuses entries of 64 MiB.
	MaxBatchBytes = 32 << 20
)

type frameKind uint8

const (
	kindBatch   frameKind = 1 // a batch; takes a position
	kindOpen    frameKind = 2 // a new run begins
	kindBarrier frameKind = 3 // takes a place in the run, no position
)

type frame struct {
	kind    frameKind
	run     uint64
	seq     uint64
	payload []byte
}

// sealFrame fills in the header of data, whose payload is in place.
func sealFrame(data []byte, f frame) {
	data[0] = 'M'
	data[1] = 'B'
	data[2] = frameVersion
	data[3] = byte(f.kind)
	binary.LittleEndian.PutUint64(data[8:], f.run)
	binary.LittleEndian.PutUint64(data[16:], f.seq)
	binary.LittleEndian.PutUint32(data[24:], uint32(len(data)-frameHeader))
	binary.LittleEndian.PutUint32(data[4:], frameSum(data))
}

func frameSum(data []byte) uint32 {
	return durable.ExtendChecksum(durable.Checksum(data[:4]), data[8:])
}

// decodeFrame returns ErrCorrupt for bytes that are no frame and ErrNewerVersion for one that a
// newer release wrote. The payload aliases data.
func decodeFrame(data []byte) (frame, error) {
	if len(data) < frameHeader || data[0] != 'M' || data[1] != 'B' {
		return frame{}, fmt.Errorf("%w: %d bytes that are no batch frame", ErrCorrupt, len(data))
	}
	if data[2] > frameVersion {
		return frame{}, newerError("a batch", int(data[2]), frameVersion)
	}
	if got, want := frameSum(data), binary.LittleEndian.Uint32(data[4:]); got != want {
		return frame{}, fmt.Errorf(
			"%w: checksum of a batch is %08x, its header says %08x",
			ErrCorrupt,
			got,
			want,
		)
	}
	f := frame{
		kind:    frameKind(data[3]),
		run:     binary.LittleEndian.Uint64(data[8:]),
		seq:     binary.LittleEndian.Uint64(data[16:]),
		payload: data[frameHeader:],
	}
	if n := binary.LittleEndian.Uint32(data[24:]); int(n) != len(f.payload) {
		return frame{}, fmt.Errorf(
			"%w: batch of %d bytes says it has %d",
			ErrCorrupt,
			len(f.payload),
			n,
		)
	}
	if f.kind < kindBatch || f.kind > kindBarrier {
		return frame{}, newerError(fmt.Sprintf("a frame of kind %d", f.kind), frameVersion+1, frameVersion)
	}
	return f, nil
}

// peekSeq reads run and seq without checking the sum; ok is false for bytes that are no frame.
func peekSeq(data []byte) (run, seq uint64, ok bool) {
	if len(data) < frameHeader || data[0] != 'M' || data[1] != 'B' {
		return 0, 0, false
	}
	return binary.LittleEndian.Uint64(data[8:]), binary.LittleEndian.Uint64(data[16:]), true
}

func appendUint64(buffer []byte, value uint64) []byte {
	return binary.LittleEndian.AppendUint64(buffer, value)
}

func readUint64(data []byte) (uint64, error) {
	if len(data) != 8 {
		return 0, fmt.Errorf("%w: number of %d bytes", ErrCorrupt, len(data))
	}
	return binary.LittleEndian.Uint64(data), nil
}
