package framed

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// ReadBuffer is the size of a connection's read buffer.
const ReadBuffer = 16 << 10

// Reader reads the frames of one connection. It is used by one goroutine.
type Reader struct {
	conn net.Conn
	buf  *bufio.Reader
	// Idle bounds the wait for a frame to begin; 0 = none. It is used with StayIdle.
	Idle time.Duration
	// StayIdle is asked when Idle is over; true = go on waiting.
	StayIdle func() bool
	// Frame bounds the time from a frame's first byte to its last; 0 = none.
	Frame time.Duration
	// Admit is asked before room for a frame of n bytes is made; nil = always. When it refuses,
	// the frame is read away and Next returns a *Refused.
	Admit func(n int) bool
	// Buffer returns room for a frame of n bytes; nil = make.
	Buffer func(n int) []byte
}

// Refused is what Next returns for a frame that Admit refused. The connection stays usable.
type Refused struct {
	Kind Kind
	ID   uint64
	Size int
}

// Error implements error.
func (r *Refused) Error() string {
	return fmt.Sprintf("framed: no room for a frame of %d bytes now", r.Size)
}

// NewReader makes a Reader. What is buffered already, for instance while looking at the
// preface, is given as from; nil = nothing.
func NewReader(conn net.Conn, from *bufio.Reader) *Reader {
	if from == nil {
		from = bufio.NewReaderSize(conn, ReadBuffer)
	}
	return &Reader{conn: conn, buf: from}
}

// Next reads one frame into f and returns its size in bytes. The payload is f's own, in f.Raw.
// At the end of the connection between frames it returns io.EOF.
func (r *Reader) Next(frame *Frame) (int, error) {
	n, err := r.length()
	if err != nil {
		return 0, err
	}
	if r.Frame > 0 && r.buf.Buffered() < n {
		if err := r.conn.SetReadDeadline(time.Now().Add(r.Frame)); err != nil {
			return 0, err
		}
	}
	if r.Admit != nil && !r.Admit(n) {
		return n, r.refuse(n)
	}
	var body []byte
	if r.Buffer != nil {
		body = r.Buffer(n)
	} else {
		body = make([]byte, n)
	}
	if _, err := io.ReadFull(r.buf, body); err != nil {
		return n, unexpected(err)
	}
	err = Parse(body, frame)
	frame.Raw = body
	return n, err
}

// length waits for a frame to begin and reads its length.
func (r *Reader) length() (int, error) {
	for {
		if err := r.deadline(); err != nil {
			return 0, err
		}
		head, err := r.buf.Peek(lengthSize)
		if err == nil {
			n := binary.BigEndian.Uint32(head)
			if n == 0 || n > MaxFrame {
				return 0, fmt.Errorf("%w: frame of %d bytes announced", ErrProtocol, n)
			}
			_, err = r.buf.Discard(lengthSize)
			return int(n), err
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && r.StayIdle != nil && r.StayIdle() {
			continue // what has arrived of the length stays in the buffer
		}
		if errors.Is(err, io.EOF) && r.buf.Buffered() > 0 {
			return 0, io.ErrUnexpectedEOF
		}
		return 0, err
	}
}

func (r *Reader) deadline() error {
	if r.buf.Buffered() >= lengthSize || r.Idle == 0 && r.Frame == 0 {
		return nil
	}
	var t time.Time
	if r.Idle > 0 {
		t = time.Now().Add(r.Idle)
	}
	return r.conn.SetReadDeadline(t)
}

// refuse reads a frame away, remembering whose it was.
func (r *Reader) refuse(n int) error {
	head, err := r.buf.Peek(min(n, 1+binary.MaxVarintLen64))
	if err != nil {
		return unexpected(err)
	}
	id, size := binary.Uvarint(head[1:])
	if size <= 0 {
		return fmt.Errorf("%w: malformed frame", ErrProtocol)
	}
	refused := &Refused{Kind: Kind(head[0]), ID: id, Size: n}
	if _, err := r.buf.Discard(n); err != nil {
		return unexpected(err)
	}
	return refused
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
