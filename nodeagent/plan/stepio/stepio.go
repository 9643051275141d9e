// Package stepio is what a step's client (srun, sattach) and an agent say to
// each other over a stream of bytes: messages with a length in front. The
// client opens one connection for each node of the step and shows the
// controller's credential; then the node sends what happens as numbered frames,
// and the client sends input, signals and sizes of its terminal.
//
// A connection may break at any time, and another takes its place: the client
// says up to which number it has frames, and sends input from where the node
// last said that it had taken it. So nothing is lost or doubled, unless the
// step's own process is killed.
package stepio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// Preface is what a client sends first.
const Preface = "MUSTERS1"

// MaxMessage is the largest message in bytes, and MaxOpen the largest that comes
// first; MaxInput is the most input in one, MaxPieces how many of those a client
// sends before it has heard that the first is taken, MaxWindow their bytes.
const (
	MaxMessage = 64 << 20
	MaxOpen    = 64 << 10
	MaxInput   = 64 << 10
	MaxPieces  = 1024
	MaxWindow  = 256 << 10
)

// ErrMessage is what a peer sends that is not a message.
var ErrMessage = errors.New("malformed message about a step")

// Kind is what a message is.
type Kind uint8

// The kinds of messages.
const (
	Open    Kind = iota + 1 // client, first: which step, by what right
	Opened                  // node: frames follow
	Refused                 // node, last: Code and Text
	Frame                   // node
	Ack                     // client: frames up to UpTo need not be kept
	Input                   // client: Rank, Offset, Data; no data is the end
	Taken                   // node: input of Rank up to Offset is taken
	Signal                  // client: to all tasks on the node
	Resize                  // client: the terminal's size
	Merged                  // client: what the tasks of all nodes have put before a fence
	Modex                   // client: what another node asks or answers
	Called                  // node: an X client waits for the one that forwards the display
)

// Code says why a connection is refused.
type Code uint8

// The reasons for a refusal.
const (
	Denied      Code = iota + 1 // the credential is not one for this
	Over                        // the step is not on this node, or not any more
	Unreachable                 // the node cannot be reached now: try again
	Bad                         // the client speaks another language
)

// DisplayUse is what a connection has to do with the X display of a job.
type DisplayUse uint8

// The uses of a display.
const (
	NoDisplay     DisplayUse = iota // the connection is about input and output
	WatchDisplay                    // it forwards the display: the node says which clients wait
	DisplayClient                   // the client Channel; what follows Opened is its own bytes
)

// attachKinds are what stands at the end of an Open beyond the step's own client, which
// has nothing there.
const (
	opensWatch = iota + 1
	opensDisplay
	opensClient
)

// Message is one message; its kind says which fields mean something.
type Message struct {
	Kind Kind
	// Open.
	Node       string
	Run        plan.RunKey
	Credential []byte
	UpTo       uint64 // Open, Ack: frames up to here have arrived
	Address    string // where the agent of Node is reached, if the one that is asked is another
	UID        uint32 // whose the client is, as the agent that relays it has seen
	Watch      bool   // it only watches, beside the step's own client
	Display    DisplayUse
	Channel    uint64 // Open of a DisplayClient, Called

	Code   Code
	Text   string
	Frame  plan.Frame
	Rank   int32
	Offset uint64
	Data   []byte
	Signal int32
	Window plan.Window
	Fence  plan.Fence
	Modex  plan.Modex
}

// Append encodes a message behind buffer.
func Append(buffer []byte, message *Message) []byte {
	at := len(buffer)
	w := writer{append(buffer, 0, 0, 0, 0, byte(message.Kind))}
	switch message.Kind {
	case Open:
		w.text(message.Node)
		w.writeNumber(message.Run.Job)
		w.writeNumber(uint64(message.Run.Attempt))
		w.writeSigned(int64(message.Run.Step))
		w.writeBytes(message.Credential)
		w.writeNumber(message.UpTo)
		w.text(message.Address)
		w.writeNumber(uint64(message.UID))
		switch { // agents of older releases know no such clients
		case message.Display == WatchDisplay:
			w.writeNumber(opensDisplay)
		case message.Display == DisplayClient:
			w.writeNumber(opensClient)
			w.writeNumber(message.Channel)
		case message.Watch:
			w.writeNumber(opensWatch)
		}
	case Called:
		w.writeNumber(message.Channel)
	case Refused:
		w.writeNumber(uint64(message.Code))
		w.text(message.Text)
	case Frame:
		w.writeFrame(&message.Frame)
	case Ack:
		w.writeNumber(message.UpTo)
	case Input, Taken:
		w.writeSigned(int64(message.Rank))
		w.writeNumber(message.Offset)
		w.writeBytes(message.Data)
	case Signal:
		w.writeSigned(int64(message.Signal))
	case Resize:
		w.writeNumber(uint64(message.Window.Rows))
		w.writeNumber(uint64(message.Window.Columns))
	case Merged:
		w.writeFence(&message.Fence)
	case Modex:
		w.writeModex(&message.Modex)
	case Opened:
	}
	binary.BigEndian.PutUint32(w.b[at:], uint32(len(w.b)-at-4))
	return w.b
}

// Reader reads messages.
type Reader struct {
	r     io.Reader
	reuse bool
	buf   []byte
}

// Reuse lets messages share memory: the data of one is gone with the next.
func (r *Reader) Reuse() *Reader {
	r.reuse = true
	return r
}

// NewReader reads messages from r, which should be buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// keptBuffer is the largest buffer that a reader keeps.
const keptBuffer = 1 << 20

// First reads the message with which a client opens a connection. It is small:
// the client has shown no credential yet.
func (r *Reader) First() (Message, error) { return r.read(MaxOpen) }

// Next reads one message; io.EOF at a clean end. The message is the caller's, but
// for Reuse.
func (r *Reader) Next() (Message, error) { return r.read(MaxMessage) }

func (r *Reader) read(most uint32) (Message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Message{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > most {
		return Message{}, fmt.Errorf("%w: %d bytes", ErrMessage, n)
	}
	buffer := r.buf[:0] // grown as it comes: nobody gets memory for the asking
	for len(buffer) < int(n) {
		at := len(buffer)
		if more := min(int(n)-at, max(cap(buffer)-at, 64<<10)); at+more <= cap(buffer) {
			buffer = buffer[:at+more]
		} else {
			buffer = append(buffer, make([]byte, more)...)
		}
		if _, err := io.ReadFull(r.r, buffer[at:]); err != nil {
			return Message{}, fmt.Errorf("%w: cut off", ErrMessage)
		}
	}
	if r.reuse && cap(buffer) <= keptBuffer {
		r.buf = buffer
	}
	return parse(buffer)
}

func parse(data []byte) (Message, error) {
	message := Message{Kind: Kind(data[0])}
	r := reader{b: data[1:]}
	switch message.Kind {
	case Open:
		message.Node = r.text()
		message.Run = plan.Key(r.readNumber(), uint32(r.readBelow(1<<32)), r.readInt32())
		message.Credential = r.readBytes()
		message.UpTo = r.readNumber()
		message.Address = r.text()
		message.UID = uint32(r.readBelow(1 << 32))
		r.readAttachKind(&message)
	case Called:
		message.Channel = r.readNumber()
	case Opened:
	case Refused:
		message.Code = Code(r.readBelow(1 << 8))
		message.Text = r.text()
	case Frame:
		r.readFrame(&message.Frame)
	case Ack:
		message.UpTo = r.readNumber()
	case Input, Taken:
		message.Rank = r.readInt32()
		message.Offset = r.readNumber()
		message.Data = r.readBytes()
	case Signal:
		message.Signal = r.readInt32()
	case Resize:
		message.Window = plan.Window{
			Rows:    uint32(r.readBelow(1 << 16)),
			Columns: uint32(r.readBelow(1 << 16)),
		}
	case Merged:
		message.Fence = r.readFence()
	case Modex:
		message.Modex = r.readModex()
	default:
		return message, fmt.Errorf("%w: kind %d", ErrMessage, message.Kind)
	}
	if r.bad || len(r.b) > 0 {
		return message, fmt.Errorf("%w: kind %d", ErrMessage, message.Kind)
	}
	return message, nil
}
