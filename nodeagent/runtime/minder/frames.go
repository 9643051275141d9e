//go:build linux

package minder

import (
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// keep is how much output is kept for clients, in bytes; batch is how much one
// message carries; cost is what a frame takes besides its output, which is of
// weight where a task writes single bytes.
const (
	keep  = 1 << 20
	batch = 256 << 10
	cost  = 256
)

// frames is what happened, until it is acknowledged and every reader has it.
type frames struct {
	mu      sync.Mutex
	changed *sync.Cond
	list    []plan.Frame
	first   uint64 // number of list[0], or of the next frame
	held    int    // bytes that the output and the fences in list take
	acked   uint64
	last    uint64 // number of the end; 0 before it
	readers map[*reader]bool
	quiet   bool
	heard   chan struct{} // closed once the end is acknowledged and no reader waits for anything
}

// reader is one connection that is given the frames.
type reader struct {
	at    uint64 // the next frame to send
	gone  bool
	watch bool // it is not waited for once as much is kept as may be
}

func newFrames() *frames {
	f := &frames{first: 1, readers: map[*reader]bool{}, heard: make(chan struct{})}
	f.changed = sync.NewCond(&f.mu)
	return f
}

// addFrame appends a frame. It never waits: room does.
func (f *frames) addFrame(frame plan.Frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	frame.Number = f.first + uint64(len(f.list))
	f.list = append(f.list, frame)
	f.held += frameWeight(&frame)
	if frame.End != nil {
		f.last = frame.Number
	}
	f.changed.Broadcast()
}

// frameWeight is what a frame counts for: of the others there are a few for each task.
func frameWeight(frame *plan.Frame) int {
	switch {
	case frame.Output != nil:
		return cost + len(frame.Output.Data)
	case frame.Fence != nil:
		return cost + len(frame.Fence.Data)
	case frame.Modex != nil:
		return cost + len(frame.Modex.Data)
	}
	return 0
}

// awaitRoom waits until output may be read.
func (f *frames) awaitRoom() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.held >= keep {
		if !f.trimFrames() {
			f.changed.Wait()
		}
	}
}

// ackFrames takes back the frames up to a number.
func (f *frames) ackFrames(upTo uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if end := f.first + uint64(len(f.list)); upTo < end {
		f.acked = max(f.acked, upTo)
		f.dropUnneeded()
	}
}

// dropUnneeded forgets what nobody needs any more. mu is held.
func (f *frames) dropUnneeded() {
	f.trimFrames()
	if f.last != 0 && f.acked >= f.last && len(f.list) == 0 && !f.quiet {
		f.quiet = true
		close(f.heard)
	}
	f.changed.Broadcast()
}

// trimFrames is drop's work on the list; it tells whether it has forgotten something.
// A reader that only watches is left behind when there is no room else.
func (f *frames) trimFrames() bool {
	upTo := f.acked
	for r := range f.readers {
		if !r.watch || f.held < keep {
			upTo = min(upTo, r.at-1)
		}
	}
	n := 0
	for n < len(f.list) && f.list[n].Number <= upTo {
		f.held -= frameWeight(&f.list[n])
		n++
	}
	if n > 0 {
		f.list = append([]plan.Frame(nil), f.list[n:]...)
		f.first += uint64(n)
	}
	return n > 0
}

// attachReader begins a reader behind a frame; what is forgotten is left out. One that
// watches begins with what comes next.
func (f *frames) attachReader(after uint64, watch bool) *reader {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.first + uint64(len(f.list))
	r := &reader{at: min(max(after+1, f.first), next), watch: watch}
	if watch && after == 0 && f.last == 0 {
		r.at = next
	}
	if !watch {
		f.acked = max(f.acked, r.at-1)
	}
	f.readers[r] = true
	f.dropUnneeded()
	return r
}

// detachReader ends a reader.
func (f *frames) detachReader(r *reader) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, r)
	r.gone = true
	f.dropUnneeded()
}

// nextFrames waits for frames to send; none means that the reader is gone.
func (f *frames) nextFrames(r *reader) []plan.Frame {
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if r.gone {
			return nil
		}
		if r.at < f.first {
			return []plan.Frame{{Number: f.first - 1, Notice: leftBehind}}
		}
		if i := int(r.at - f.first); i < len(f.list) {
			size, n := 0, i
			for n < len(f.list) && size < batch {
				size += max(cost, frameWeight(&f.list[n]))
				n++
			}
			out := append([]plan.Frame(nil), f.list[i:n]...)
			return out
		}
		f.changed.Wait()
	}
}

// leftBehind is told a reader that watches and was too slow.
const leftBehind = "some output is missing here: it came faster than it was taken"

// noteSent notes that the frames up to one are on their way.
func (f *frames) noteSent(r *reader, last uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.at = max(r.at, last+1)
	f.dropUnneeded()
}

// isDelivered tells whether the end has arrived, and whether the step's client is
// there.
func (f *frames) isDelivered() (over, attended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.readers {
		attended = attended || !r.watch
	}
	return f.last != 0 && f.acked >= f.last, attended
}
