// Package protocol is what the agent and the shepherd say to each other over
// their unix socket: frames of a four byte little-endian length and one CBOR
// message. Requests carry a number and may overlap; the answer carries the
// same number. Frames numbered zero are pushed news.
//
// Both sides come from different releases during an upgrade, so fields only
// ever grow and Version says what is understood.
package protocol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/fxamacker/cbor/v2"
	"github.com/musterhpc/muster/nodeagent/plan"
)

// Version of the protocol. A shepherd answers every version up to its own.
const Version uint32 = 1

// MaxFrame is the largest message in bytes.
const MaxFrame = 64 << 20

// JournalName is the file in a release's folder in which a shepherd writes down its runs.
const JournalName = "journal"

// ErrFrame means that the peer sent something that is not a message.
var ErrFrame = errors.New("malformed message on the shepherd's socket")

// Op is what a message is about.
type Op uint8

// The operations; Events is only pushed.
const (
	OpHello Op = iota + 1
	OpLaunch
	OpSignal
	OpTerminate
	OpList
	OpUsage
	OpSubscribe
	OpAck
	OpDrain
	OpEvents
	OpResume
	OpGrant
	OpSpaces
	OpVacate
	OpAdopt
)

// The operations of the process that minds a step's tasks, on a socket of its
// own. Frames are only pushed.
const (
	OpStepAttach Op = iota + 64
	OpStepFrames
	OpStepAck
	OpStepInput
	OpStepSignal
	OpStepResize
	OpStepMerged
	OpStepNotice
	OpStepModex
)

// StepAttach asks for the frames after a number.
type StepAttach struct {
	After uint64 `cbor:"1,keyasint,omitempty"`
	// Plain asks for them as nodeagent/plan/stepio writes them, so that who
	// passes them on need not read them. A process that is older than this sends
	// StepFrames.
	Plain bool `cbor:"2,keyasint,omitempty"`
	Watch bool `cbor:"3,keyasint,omitempty"` // beside the step's own client: it acknowledges nothing
}

// StepFrames are frames, in their order.
type StepFrames struct {
	Frames []plan.Frame `cbor:"1,keyasint"`
}

// StepAck takes back the frames up to a number.
type StepAck struct {
	UpTo uint64 `cbor:"1,keyasint"`
}

// StepInput is a piece of the input, of one rank or of all. The answer means
// that it is taken, by its offset once. No data is the end.
type StepInput struct {
	Rank   int32  `cbor:"1,keyasint"`
	Offset uint64 `cbor:"2,keyasint"`
	Data   []byte `cbor:"3,keyasint,omitempty"`
}

// StepSignal is a signal to all tasks.
type StepSignal struct {
	Signal int32 `cbor:"1,keyasint"`
}

// StepNotice is a line for the user.
type StepNotice struct {
	Text string `cbor:"1,keyasint"`
}

// Message is one frame's content.
type Message struct {
	ID   uint64          `cbor:"1,keyasint,omitempty"`
	Op   Op              `cbor:"2,keyasint"`
	Body cbor.RawMessage `cbor:"3,keyasint,omitempty"`
	Err  *Error          `cbor:"4,keyasint,omitempty"`

	Plain []byte `cbor:"-"` // of a plain frame; it is the reader's, until the next one is read
}

// plain marks, in the length of a frame, one that holds an operation and bytes
// that nobody on the way reads.
const plain = 1 << 31

// BeginPlain begins a plain frame in data, to which its bytes are then appended;
// EndPlain completes it.
func BeginPlain(data []byte, op Op) []byte { return append(data[:0], 0, 0, 0, 0, byte(op)) }

// EndPlain writes the length of a plain frame.
func EndPlain(data []byte) ([]byte, error) {
	n := len(data) - 4
	if n > MaxFrame {
		return nil, fmt.Errorf("message of %d bytes is larger than %d", n, MaxFrame)
	}
	binary.LittleEndian.PutUint32(data, uint32(n)|plain)
	return data, nil
}

// Code is the kind of an Error.
type Code uint8

// The kinds of errors.
const (
	CodeInternal Code = iota + 1
	CodeBadRequest
	CodeNotFound
)

// Error is a refusal that crosses the socket.
type Error struct {
	Code Code   `cbor:"1,keyasint"`
	Text string `cbor:"2,keyasint,omitempty"`
}

// Error gives the text.
func (e *Error) Error() string { return "shepherd: " + e.Text }

// Is compares by code, so that errors.Is(err, ErrNotFound) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Text == "" && t.Code == e.Code
}

// ErrNotFound matches the answer that names no run.
var ErrNotFound error = &Error{Code: CodeNotFound}

// Launch asks for runs; the answer is a LaunchReply in the same order.
type Launch struct {
	Runs []plan.RunSpec `cbor:"1,keyasint"`
}

// LaunchReply answers a Launch.
type LaunchReply struct {
	Results []plan.LaunchResult `cbor:"1,keyasint"`
}

// Signal asks for one signal.
type Signal struct {
	Key    plan.RunKey `cbor:"1,keyasint"`
	Signal int32       `cbor:"2,keyasint"`
	Scope  plan.Scope  `cbor:"3,keyasint"`
	// Notice is a line for the run's error output; Signal may be 0 then.
	Notice string `cbor:"4,keyasint,omitempty"`
}

// Keys names runs: those to acknowledge, or to read the usage of (none means all).
type Keys struct {
	Keys []plan.RunKey `cbor:"1,keyasint"`
}

// Spaces asks which attempts have private folders; the answer is Keys.
type Spaces struct {
	Base string `cbor:"1,keyasint,omitempty"` // where they are made now
}

// Vacate asks for the private folders of an attempt to be removed.
type Vacate struct {
	Key plan.RunKey `cbor:"1,keyasint"`
}

// Adopt asks for a process, with what it starts from then on, to become one of a run.
type Adopt struct {
	Key plan.RunKey `cbor:"1,keyasint"`
	PID int32       `cbor:"2,keyasint"`
}

// ListReply is every run the shepherd has.
type ListReply struct {
	Runs []plan.Observed `cbor:"1,keyasint"`
}

// UsageReply is the use so far of running runs.
type UsageReply struct {
	Usage []plan.Usage `cbor:"1,keyasint"`
}

// DrainReply names every run that the drained shepherd has or remembers.
type DrainReply struct {
	Known []plan.RunKey `cbor:"1,keyasint"`
	Busy  int32         `cbor:"2,keyasint"` // runs and exits that keep it alive
}

// Events are news, oldest first.
type Events struct {
	Events []plan.Event `cbor:"1,keyasint"`
}

// Encode gives the frame of a message. body may be nil.
func Encode(message Message, body any) ([]byte, error) {
	if body != nil {
		data, err := cbor.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode message: %w", err)
		}
		message.Body = data
	}
	var frame bytes.Buffer
	frame.Grow(4 + len(message.Body) + envelope)
	frame.Write(make([]byte, 4))
	if err := cbor.MarshalToBuffer(&message, &frame); err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	n := frame.Len() - 4
	if n > MaxFrame {
		return nil, fmt.Errorf("message of %d bytes is larger than %d", n, MaxFrame)
	}
	binary.LittleEndian.PutUint32(frame.Bytes(), uint32(n))
	return frame.Bytes(), nil
}

// envelope is about what a message is longer than its body.
const envelope = 64

// Reader reads frames.
type Reader struct {
	r     *bufio.Reader
	dec   cbor.DecMode
	plain []byte // of the last plain frame
}

// Decoding is how CBOR is read in this room. Environments, and what is said of
// scripts, are what their users have made them: they need not be UTF-8.
func Decoding() (cbor.DecMode, error) {
	return cbor.DecOptions{
		MaxArrayElements: 1 << 22,
		MaxMapPairs:      1 << 12,
		UTF8:             cbor.UTF8DecodeInvalid,
	}.DecMode()
}

// NewReader reads frames from r.
func NewReader(r io.Reader) (*Reader, error) {
	decoder, err := Decoding()
	if err != nil {
		return nil, err
	}
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), dec: decoder}, nil
}

// Next reads one message; io.EOF at a clean end.
func (r *Reader) Next() (Message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return Message{}, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	isPlain := n&plain != 0
	n &^= plain
	if n == 0 || n > MaxFrame {
		return Message{}, fmt.Errorf("%w: length %d", ErrFrame, n)
	}
	if isPlain {
		return r.nextPlain(int(n))
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r.r, data); err != nil {
		return Message{}, fmt.Errorf("%w: cut off", ErrFrame)
	}
	var message Message
	if err := r.dec.Unmarshal(data, &message); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return message, nil
}

func (r *Reader) nextPlain(n int) (Message, error) {
	if cap(r.plain) < n {
		r.plain = make([]byte, n)
	}
	data := r.plain[:n]
	if _, err := io.ReadFull(r.r, data); err != nil {
		return Message{}, fmt.Errorf("%w: cut off", ErrFrame)
	}
	return Message{Op: Op(data[0]), Plain: data[1:]}, nil
}

// Decode reads a message's body.
func (r *Reader) Decode(message Message, into any) error {
	if err := r.dec.Unmarshal(message.Body, into); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}
