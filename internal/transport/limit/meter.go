package limit

import (
	"encoding/binary"
	"time"
)

// Sizes of HTTP/2 (RFC 9113) and of gRPC on it.
const (
	prefaceSize     = 24 // what a client sends before its first frame
	frameHeaderSize = 9
	prefixSize      = 5 // of a gRPC message: compressed or not, length

	frameData   = 0x0
	frameReset  = 0x3
	flagEnd     = 0x1 // END_STREAM
	flagPadded  = 0x8
	streamIDBit = 1<<31 - 1
)

// Meter reads along with the bytes that a gRPC client sends and knows how much of
// them belongs to messages that are not complete. A gRPC server holds such bytes
// for as long as the client likes, and reports a message only when it is whole.
//
// It is lenient: what is not HTTP/2 it does not understand, and the gRPC server,
// which sees the same bytes, ends the connection.
type Meter struct {
	skip       int // bytes that say nothing: the preface, and payloads of other frames
	started    bool
	header     [frameHeaderSize]byte
	headerFull int
	data       *frame // the DATA frame whose payload is being read; nil = none
	streams    map[uint32]*stream
	unfinished int64
	now        time.Time // of the bytes that are being read
}

// frame is a DATA frame.
type frame struct {
	of     *stream
	id     uint32
	ends   bool
	padded bool // its first byte, the length of the padding, is still to come
	left   int  // payload that is still to come
	pad    int  // how much of the end of it is padding
}

// stream is one call.
type stream struct {
	prefix  [prefixSize]byte
	have    int   // bytes of the prefix
	left    int64 // bytes that the message still lacks, once the prefix is whole
	counted int64 // bytes of the message so far, prefix included
	began   time.Time
}

// streamCost is about what this meter and the server hold for a stream whose
// message is not complete, beside its bytes.
const streamCost = 256

// Unfinished is the size of what is held for messages that are not complete.
func (m *Meter) Unfinished() int64 { return m.unfinished + streamCost*int64(len(m.streams)) }

// Oldest is when the oldest message began that is not complete; zero = there is
// none.
func (m *Meter) Oldest() time.Time {
	var oldest time.Time
	for _, s := range m.streams {
		if s.counted > 0 && (oldest.IsZero() || s.began.Before(oldest)) {
			oldest = s.began
		}
	}
	return oldest
}

// Observe takes the next bytes of the connection.
func (m *Meter) Observe(data []byte, now time.Time) {
	m.now = now
	if !m.started {
		m.started = true
		m.skip = prefaceSize
		m.streams = make(map[uint32]*stream)
	}
	for len(data) > 0 {
		switch {
		case m.skip > 0:
			n := min(m.skip, len(data))
			m.skip -= n
			data = data[n:]
		case m.data != nil:
			data = m.payload(data)
		default:
			n := copy(m.header[m.headerFull:], data)
			m.headerFull += n
			data = data[n:]
			if m.headerFull == frameHeaderSize {
				m.headerFull = 0
				m.begin()
			}
		}
	}
}

// begin starts with the frame whose header is complete.
func (m *Meter) begin() {
	length := int(m.header[0])<<16 | int(m.header[1])<<8 | int(m.header[2])
	kind, flags := m.header[3], m.header[4]
	id := binary.BigEndian.Uint32(m.header[5:]) & streamIDBit
	if kind != frameData {
		if kind == frameReset {
			m.end(id)
		}
		m.skip = length
		return
	}
	if m.streams[id] == nil {
		m.streams[id] = &stream{}
	}
	m.data = &frame{
		of:     m.streams[id],
		id:     id,
		ends:   flags&flagEnd != 0,
		padded: flags&flagPadded != 0,
		left:   length,
	}
	m.finish()
}

// payload takes bytes of a DATA frame and returns those behind it.
func (m *Meter) payload(data []byte) []byte {
	if m.data.padded {
		m.data.padded = false
		m.data.pad = int(data[0])
		m.data.left--
		m.finish()
		return data[1:]
	}
	n := min(m.data.left, len(data))
	content := min(n, max(m.data.left-m.data.pad, 0))
	m.unfinished += m.data.of.take(data[:content], m.now)
	m.data.left -= n
	m.finish()
	return data[n:]
}

// finish ends a DATA frame whose payload is complete. A stream between two messages
// is forgotten: a client may send frames for as many streams as there are numbers.
func (m *Meter) finish() {
	if m.data.left > 0 {
		return
	}
	if m.data.ends || m.data.of.counted == 0 {
		m.end(m.data.id)
	}
	m.data = nil
}

// end forgets a stream.
func (m *Meter) end(id uint32) {
	if s := m.streams[id]; s != nil {
		m.unfinished -= s.counted
		delete(m.streams, id)
	}
}

// take reads content of messages and returns by how much the unfinished part has
// changed.
func (s *stream) take(data []byte, now time.Time) int64 {
	before := s.counted
	for len(data) > 0 {
		if s.counted == 0 {
			s.began = now
		}
		if s.have < prefixSize {
			n := copy(s.prefix[s.have:], data)
			s.have += n
			s.counted += int64(n)
			data = data[n:]
			if s.have < prefixSize {
				break
			}
			s.left = int64(binary.BigEndian.Uint32(s.prefix[1:]))
		}
		n := min(int64(len(data)), s.left)
		s.left -= n
		s.counted += n
		data = data[n:]
		if s.left == 0 {
			*s = stream{}
		}
	}
	return s.counted - before
}
