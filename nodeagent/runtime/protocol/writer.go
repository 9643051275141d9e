package protocol

import (
	"io"
	"sync"
)

// Writer sends frames from any goroutine. Frames that come while a write is
// under way go out together in the next one.
type Writer struct {
	w  io.Writer
	mu sync.Mutex
	// wake has room for one token: there is something to write.
	wake   chan struct{}
	queue  [][]byte
	closed bool
	err    error
	done   chan struct{}
}

// NewWriter starts the goroutine that writes; Close ends it.
func NewWriter(w io.Writer) *Writer {
	writer := &Writer{w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go writer.run()
	return writer
}

// Send queues a frame; it tells whether the connection still stands.
func (x *Writer) Send(frame []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return x.err
	}
	if x.closed {
		return io.ErrClosedPipe
	}
	x.queue = append(x.queue, frame)
	x.poke()
	return nil
}

func (x *Writer) poke() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// Close writes what is queued and ends the goroutine.
func (x *Writer) Close() {
	x.mu.Lock()
	x.closed = true
	x.poke()
	x.mu.Unlock()
	<-x.done
}

func (x *Writer) run() {
	defer close(x.done)
	var buf []byte
	for range x.wake {
		x.mu.Lock()
		frames, closed := x.queue, x.closed
		x.queue = nil
		x.mu.Unlock()
		buf = buf[:0]
		for _, f := range frames {
			buf = append(buf, f...)
		}
		if len(buf) > 0 {
			if _, err := x.w.Write(buf); err != nil {
				x.mu.Lock()
				x.err = err
				x.mu.Unlock()
				return
			}
		}
		if closed {
			return
		}
		if cap(buf) > 1<<20 {
			buf = nil
		}
	}
}
