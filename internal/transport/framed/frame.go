// Package framed is the small protocol of the hot commands: the same protobuf messages and
// methods as gRPC's, carried in length-prefixed frames over the local unix socket or over TLS,
// so that a tool which lives for five milliseconds need not link and start an HTTP/2 stack.
//
// A client opens a connection, sends the eight bytes of Preface and then frames; there is no
// answer to wait for. Many calls share a connection: each has an id that the client chooses,
// growing from 1. A frame is
//
//	length  4 bytes, big endian: of what follows, at most MaxFrame
//	kind    1 byte
//	id      uvarint
//	body    by kind
//
//	Request  client   timeout in µs (uvarint, 0 = none), window in bytes (uvarint), method, headers, payload
//	Cancel   client   empty: the client has lost interest
//	Credit   client   cost (uvarint) of the messages that the client has consumed
//	Message  server   flags (1 byte, bit 0 = last), payload
//	End      server   an encoded status error, or nothing for success
//	Drain    server   empty; id is the last request that the server will answer, later ones have not been looked at
//
// Strings are a uvarint length and bytes; headers a uvarint count and key, value strings. A
// call ends with a Message marked last or with End. The server sends Messages of a call only
// while the bytes sent exceed those credited by less than the window, so a client that does not
// read one stream never holds up the other calls of its connection.
//
// This package holds the frames, the writer and the client's side on plain bytes. framed/client
// adds protobuf, framed/serve is the server's side on plain bytes, grpcx.Registry dispatches to
// gRPC service descriptions. Nothing here or in framed/client links gRPC, TLS or the server's side.
package framed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Preface is what a client sends first. It differs from HTTP/2's in every position that
// matters, so one socket serves both.
const Preface = "MUSTERF1"

// ALPN is the protocol's name in TLS.
const ALPN = "muster-framed/1"

// Bounds of the protocol.
const (
	MaxFrame   = 16 << 20 // bytes after the length field
	MaxMethod  = 256
	MaxHeaders = 16
	maxHeader  = 8 << 10
	lengthSize = 4

	// DefaultWindow is how many bytes of messages a client takes in advance for one stream.
	DefaultWindow = 1 << 20
)

// HeaderAttest is the header (and gRPC metadata key) with which a login host or a node names
// the local user for whom it relays a request: "UID:GID", decimal. The server reads it only on
// channels that may attest.
const HeaderAttest = "muster-attest"

// HeaderToken is the header with which a command shows a user's token (SLURM_JWT). The controller
// takes the user from it in place of what the channel says.
const HeaderToken = "muster-token"

// HeaderMunge is the header with which a command on a host without an agent shows a credential
// of MUNGE that was made for its connection.
const HeaderMunge = "muster-munge"

// HeaderProbe marks a ping that asks whether the process at the other end of this connection
// works. A relay without a controller answers it itself, with an error, instead of waiting for
// a controller.
const HeaderProbe = "muster-probe"

// Attest returns the attestation header for a user.
func Attest(uid, gid uint32) Pair {
	return Pair{Key: HeaderAttest, Value: strconv.FormatUint(uint64(uid), 10) + ":" +
		strconv.FormatUint(uint64(gid), 10)}
}

// StatusError is the error of a call as the server sent it. Read it with errors.As.
type StatusError = rpcstatus.Error

// Kind is the kind of a frame.
type Kind byte

// The kinds of frames.
const (
	Request Kind = 1
	Cancel  Kind = 2
	Credit  Kind = 3
	Message Kind = 4
	End     Kind = 5
	Drain   Kind = 6
)

// Pair is one header of a request.
type Pair struct{ Key, Value string }

// Frame is one frame. Which fields count depends on Kind.
type Frame struct {
	Kind    Kind
	ID      uint64
	Method  string        // Request: "/package.Service/Method"
	Timeout time.Duration // Request: time left when it was sent, in whole µs; 0 = none
	Window  uint64        // Request: bytes of messages the client takes in advance
	Header  []Pair        // Request
	Last    bool          // Message: it ends the call with success
	Bytes   uint64        // Credit: sum of Cost
	Err     *StatusError  // End; nil = success
	Payload []byte        // Request, Message; after Parse it points into the bytes that were parsed
	// Encode, unless nil, appends the payload instead of Payload: it saves a copy.
	Encode func(b []byte) ([]byte, error)
	// Raw is, after Reader.Next, the buffer in which Payload lies.
	Raw []byte
}

// Cost is what a message of n bytes counts against the window; more than n, so that empty
// messages are not free.
func Cost(n int) uint64 { return uint64(n) + 16 }

// ErrProtocol is wrapped when the peer's bytes are not frames of this protocol; the connection
// is of no further use.
var ErrProtocol = errors.New("framed: protocol error")

// ErrEncode is wrapped when a payload could not be encoded; nothing was sent and the connection
// stays usable.
var ErrEncode = errors.New("framed: message cannot be encoded")

// ErrTooLarge is wrapped when a frame would exceed MaxFrame; the connection stays usable.
var ErrTooLarge = fmt.Errorf("framed: message exceeds %d MiB", MaxFrame>>20)

// Append appends the encoded frame, length included, to buffer. On error buffer comes back
// unchanged.
func Append(buffer []byte, frame *Frame) ([]byte, error) {
	start := len(buffer)
	if len(frame.Payload) > MaxFrame || len(frame.Method) > MaxMethod ||
		len(frame.Header) > MaxHeaders {
		return buffer, fmt.Errorf(
			"%w: payload of %d bytes, method of %d, %d headers",
			ErrTooLarge,
			len(frame.Payload),
			len(frame.Method),
			len(frame.Header),
		)
	}
	buffer = append(buffer, 0, 0, 0, 0, byte(frame.Kind))
	buffer = binary.AppendUvarint(buffer, frame.ID)
	switch frame.Kind {
	case Request:
		buffer = binary.AppendUvarint(buffer, uint64(max(0, frame.Timeout.Microseconds())))
		buffer = binary.AppendUvarint(buffer, frame.Window)
		buffer = appendString(buffer, frame.Method)
		buffer = binary.AppendUvarint(buffer, uint64(len(frame.Header)))
		for _, pair := range frame.Header {
			buffer = appendString(appendString(buffer, pair.Key), pair.Value)
		}
		return frame.finish(buffer, start)
	case Message:
		flags := byte(0)
		if frame.Last {
			flags = 1
		}
		return frame.finish(append(buffer, flags), start)
	case End:
		if frame.Err != nil {
			buffer = rpcstatus.Append(buffer, frame.Err)
		}
	case Credit:
		buffer = binary.AppendUvarint(buffer, frame.Bytes)
	case Cancel, Drain:
	default:
		return buffer[:start], fmt.Errorf("framed: kind %d cannot be sent", frame.Kind)
	}
	return seal(buffer, start)
}

// finish appends the payload of a frame that began at start and seals it.
func (f *Frame) finish(buffer []byte, start int) ([]byte, error) {
	if f.Encode == nil {
		return seal(append(buffer, f.Payload...), start)
	}
	out, err := f.Encode(buffer)
	if err != nil {
		return buffer[:start], fmt.Errorf("%w: %w", ErrEncode, err)
	}
	return seal(out, start)
}

// seal writes the length of the frame that began at start.
func seal(data []byte, start int) ([]byte, error) {
	n := len(data) - start - lengthSize
	if n > MaxFrame {
		return data[:start], fmt.Errorf("%w: frame of %d bytes", ErrTooLarge, n)
	}
	binary.BigEndian.PutUint32(data[start:], uint32(n))
	return data, nil
}

func appendString(buffer []byte, text string) []byte {
	return append(binary.AppendUvarint(buffer, uint64(len(text))), text...)
}

// Parse reads the bytes after the length field into f, whose old content is lost. Only the
// canonical form is taken.
func Parse(data []byte, frame *Frame) error {
	*frame = Frame{}
	if len(data) == 0 || len(data) > MaxFrame {
		return fmt.Errorf("%w: frame of %d bytes", ErrProtocol, len(data))
	}
	p := parser{rest: data[1:]}
	frame.Kind = Kind(data[0])
	frame.ID = p.uvarint(math.MaxUint64)
	switch frame.Kind {
	case Request:
		p.request(frame)
	case Message:
		flags := p.take(1)
		if len(flags) == 1 && flags[0] > 1 {
			p.bad = true
		}
		frame.Last = len(flags) == 1 && flags[0] == 1
		frame.Payload, p.rest = p.rest, nil
	case End:
		if len(p.rest) > 0 && !p.bad {
			var err error
			frame.Err, err = rpcstatus.Parse(p.rest)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrProtocol, err)
			}
			p.rest = nil
		}
	case Credit:
		frame.Bytes = p.uvarint(math.MaxInt64)
	case Cancel, Drain:
	default:
		return fmt.Errorf("%w: kind %d", ErrProtocol, frame.Kind)
	}
	if p.bad || len(p.rest) > 0 {
		return fmt.Errorf("%w: malformed frame of kind %d", ErrProtocol, frame.Kind)
	}
	return nil
}

// parser reads the fields of a body; after the first mistake bad stays set and everything reads
// as zero.
type parser struct {
	rest []byte
	bad  bool
}

func (p *parser) request(frame *Frame) {
	frame.Timeout = time.Duration(p.uvarint(math.MaxInt64/1000)) * time.Microsecond
	frame.Window = p.uvarint(math.MaxInt64)
	frame.Method = string(p.take(p.uvarint(MaxMethod)))
	if n := p.uvarint(MaxHeaders); n > 0 {
		frame.Header = make([]Pair, n)
		for i := range frame.Header {
			frame.Header[i].Key = string(p.take(p.uvarint(maxHeader)))
			frame.Header[i].Value = string(p.take(p.uvarint(maxHeader)))
		}
	}
	frame.Payload, p.rest = p.rest, nil
}

func (p *parser) uvarint(limit uint64) uint64 {
	value, n := binary.Uvarint(p.rest)
	if n <= 0 || value > limit ||
		n > 1 && p.rest[n-1] == 0 { // the last: a longer encoding of the same number
		p.bad = true
		return 0
	}
	p.rest = p.rest[n:]
	return value
}

func (p *parser) take(n uint64) []byte {
	if p.bad || uint64(len(p.rest)) < n {
		p.bad = true
		return nil
	}
	out := p.rest[:n]
	p.rest = p.rest[n:]
	return out
}

// HeaderValue returns the value of the first header with this key.
func (f *Frame) HeaderValue(key string) (string, bool) {
	for _, pair := range f.Header {
		if pair.Key == key {
			return pair.Value, true
		}
	}
	return "", false
}
