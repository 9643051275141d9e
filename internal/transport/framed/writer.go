package framed

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Bounds of a Writer.
const (
	writeChunk = 256 << 10 // one deadline for each so many bytes
	keepBuffer = 1 << 20   // larger buffers are given back to the collector
)

// Writer sends the frames of one connection for any number of goroutines. Whoever finds it idle
// writes (or starts a goroutine that does, where Background is set), and takes along what the
// others add meanwhile: a burst of small frames is one system call, and a single frame waits
// for nobody.
//
// A peer that does not read is tolerated for limit between two pieces of progress; then the
// connection is closed and every Write fails. Until then at most max bytes wait; further
// writers wait for room.
type Writer struct {
	conn  net.Conn
	limit time.Duration
	max   int

	// Background makes Write return without waiting for the network, so that its caller's
	// context bounds it. Set it before use.
	Background bool

	mu      sync.Mutex
	pending []byte
	spare   []byte        // the other buffer, while nobody writes from it
	writing bool          // a goroutine is in flush
	room    chan struct{} // closed when pending was taken or flush ended; nil = nobody waits
	err     error         // first failure
}

// NewWriter makes a Writer for conn; first is sent before the first frame.
func NewWriter(conn net.Conn, first string, max int, limit time.Duration) *Writer {
	return &Writer{conn: conn, limit: limit, max: max, pending: []byte(first)}
}

// Write sends a frame, or leaves it with the goroutine that is writing. nil says that it is on
// its way, not that it arrived. A frame that is too large (ErrTooLarge) is not sent and harms
// nothing.
func (w *Writer) Write(ctx context.Context, frame *Frame) error {
	return w.writeFrame(ctx, frame, nil)
}

// writeFrame is Write; prepare, unless nil, runs when the frame's turn has come and may complete it
// or call it off. The order of these calls is the order on the wire. It holds the writer's
// lock.
func (w *Writer) writeFrame(ctx context.Context, frame *Frame, prepare func() error) error {
	w.mu.Lock()
	for len(w.pending) > w.max && w.err == nil {
		if err := w.wait(ctx); err != nil {
			w.mu.Unlock()
			return err
		}
	}
	if w.err != nil {
		w.mu.Unlock()
		return w.err
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			w.mu.Unlock()
			return err
		}
	}
	var err error
	w.pending, err = Append(w.pending, frame)
	if err != nil {
		w.mu.Unlock()
		return err
	}
	if w.writing {
		w.mu.Unlock()
		return nil
	}
	w.writing = true
	if w.Background {
		w.mu.Unlock()
		go func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.flush()
		}()
		return nil
	}
	w.flush()
	err = w.err
	w.mu.Unlock()
	return err
}

// Flush waits until everything that was written has been handed to the kernel, or the writer
// failed, or ctx is over.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writing {
		if err := w.wait(ctx); err != nil {
			return err
		}
	}
	return w.err
}

// wait lets go of the lock until there is room, the writer failed or ctx is over.
func (w *Writer) wait(ctx context.Context) error {
	if w.room == nil {
		w.room = make(chan struct{})
	}
	room := w.room
	w.mu.Unlock()
	defer w.mu.Lock()
	select {
	case <-room:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush writes until nothing is pending. The caller has set writing; the lock is held on entry
// and exit, and not while writing.
func (w *Writer) flush() {
	for len(w.pending) > 0 && w.err == nil {
		out := w.pending
		w.pending, w.spare = w.spare[:0], nil
		w.wake()
		w.mu.Unlock()
		err := w.send(out)
		w.mu.Lock()
		if cap(out) <= keepBuffer {
			w.spare = out[:0]
		}
		if err != nil {
			w.fail(err)
		}
	}
	w.writing = false
	w.wake()
}

func (w *Writer) send(data []byte) error {
	for len(data) > 0 {
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.limit)); err != nil {
			return err
		}
		n, err := w.conn.Write(data[:min(len(data), writeChunk)])
		if err != nil {
			return fmt.Errorf("framed: write: %w", err)
		}
		data = data[n:]
	}
	return nil
}

// wake lets those who wait for room look again. The lock is held.
func (w *Writer) wake() {
	if w.room != nil {
		close(w.room)
		w.room = nil
	}
}

// fail records the first failure and closes the connection. The lock is held.
func (w *Writer) fail(err error) {
	if w.err == nil {
		w.err = err
		w.pending = nil
		w.conn.Close() // its reader ends too; the first error is the one that tells
	}
	w.wake()
}

// Close makes further writes fail with err, closes the connection and waits for the goroutine
// that writes, if any.
func (w *Writer) Close(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail(err)
	for w.writing {
		if err := w.wait(context.Background()); err != nil {
			return // cannot be: this context does not end
		}
	}
}
