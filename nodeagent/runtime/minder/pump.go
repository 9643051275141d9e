//go:build linux

package minder

import (
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// piece is the largest output in one frame: as much as a pipe holds.
const piece = 64 << 10

// pumpOutput turns what a task writes into frames, while there is room for them.
func (m *minder) pumpOutput(t *task, file *os.File, stream uint8) {
	defer m.pumps.Done()
	defer func() { m.out.addFrame(plan.Frame{Output: &plan.Output{Rank: t.Rank, Stream: stream}}) }()
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	if file != t.term {
		defer func() { _ = file.Close() }()
	}
	for {
		m.out.awaitRoom()
		var data []byte
		var rerr error
		// Waits without a buffer: most of a thousand tasks are silent.
		err := raw.Read(func(fd uintptr) bool {
			buf, ok := m.pieces.Get().(*[piece]byte)
			if !ok {
				buf = new([piece]byte)
			}
			defer m.pieces.Put(buf)
			n, err := unix.Read(int(fd), buf[:])
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				return false
			}
			rerr = err
			if n > 0 {
				data = slices.Clone(buf[:n])
			}
			return true
		})
		if err != nil || rerr != nil || len(data) == 0 {
			return // the end; of a terminal it comes as an error
		}
		m.out.addFrame(plan.Frame{Output: &plan.Output{Rank: t.Rank, Stream: stream, Data: data}})
	}
}

// ahead is how much input waits for a task that does not read, in bytes.
const ahead = 256 << 10

// endOfInput is what a terminal takes for the end: Control-D.
const endOfInput = 4

// input is what a task is still to read.
type input struct {
	to       *os.File
	terminal bool

	mu      sync.Mutex
	changed *sync.Cond
	queue   [][]byte
	size    int
	closing bool // the end of the input follows the queue
	gone    bool // nobody reads any more
}

func newInput(to *os.File) *input {
	in := &input{to: to}
	in.changed = sync.NewCond(&in.mu)
	go in.run()
	return in
}

// putPiece queues a piece when there is room; for a task that has gone it is lost,
// as with every pipe.
func (in *input) putPiece(data []byte) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.size >= ahead && !in.gone {
		in.changed.Wait()
	}
	if !in.gone && !in.closing {
		in.queue, in.size = append(in.queue, data), in.size+len(data)
	}
	in.changed.Broadcast()
}

// endInput closes the input behind what is queued.
func (in *input) endInput() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closing = true
	in.changed.Broadcast()
}

// dropInput ends it at once: the task has ended.
func (in *input) dropInput() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.gone {
		return
	}
	in.gone, in.queue = true, nil
	if !in.terminal {
		_ = in.to.Close() // also ends a write that waits
	}
	in.changed.Broadcast()
}

func (in *input) run() {
	for {
		in.mu.Lock()
		for len(in.queue) == 0 && !in.closing && !in.gone {
			in.changed.Wait()
		}
		if in.gone {
			in.mu.Unlock()
			return
		}
		if len(in.queue) == 0 { // closing
			in.mu.Unlock()
			if in.terminal {
				_, _ = in.to.Write([]byte{endOfInput})
				return
			}
			in.dropInput()
			return
		}
		data := in.queue[0]
		in.mu.Unlock()
		_, err := in.to.Write(data)
		if err != nil {
			in.dropInput()
			return
		}
		in.mu.Lock()
		if len(in.queue) > 0 {
			in.queue, in.size = in.queue[1:], in.size-len(data)
		}
		in.changed.Broadcast()
		in.mu.Unlock()
	}
}

// taken remembers how much of each input has been taken, by whom it is for.
type taken struct {
	mu sync.Mutex
	at map[int32]uint64
}

var errGap = &protocol.Error{
	Code: protocol.CodeBadRequest,
	Text: "input is missing before this piece",
}

// passInput passes a piece of input on to those that read it, once.
func (m *minder) passInput(stepInput *protocol.StepInput) error {
	m.taken.mu.Lock() // one piece after another
	defer m.taken.mu.Unlock()
	at := m.taken.at[stepInput.Rank]
	switch {
	case stepInput.Offset > at:
		return errGap
	case len(stepInput.Data) > 0 && stepInput.Offset+uint64(len(stepInput.Data)) <= at:
		return nil // taken before
	}
	data := stepInput.Data
	if len(data) > 0 {
		data = data[at-stepInput.Offset:]
	}
	for _, in := range m.inputsOf(stepInput.Rank) {
		if len(stepInput.Data) == 0 {
			in.endInput()
		} else {
			in.putPiece(data)
		}
	}
	m.taken.at[stepInput.Rank] = at + uint64(len(data))
	return nil
}

// passTyped passes on what comes from somebody who only watches: its offsets are its
// own, and the end of the input is not its to tell.
func (m *minder) passTyped(stepInput *protocol.StepInput) error {
	if len(stepInput.Data) == 0 {
		return nil
	}
	for _, in := range m.inputsOf(stepInput.Rank) {
		in.putPiece(stepInput.Data)
	}
	return nil
}

// inputsOf are those of a rank, or of all tasks.
func (m *minder) inputsOf(rank int32) []*input {
	m.mu.Lock()
	defer m.mu.Unlock()
	var inputs []*input
	for _, t := range m.tasks {
		if t.input != nil && (rank == spec.InputAll || rank == int32(t.Rank)) {
			inputs = append(inputs, t.input)
		}
	}
	return inputs
}

// resizeTerminal tells a terminal its size.
func resizeTerminal(term *os.File, window *plan.Window) error {
	if window.Rows == 0 && window.Columns == 0 {
		return nil
	}
	raw, err := term.SyscallConn()
	if err != nil {
		return err
	}
	err2 := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(
			int(fd),
			unix.TIOCSWINSZ,
			&unix.Winsize{Row: uint16(window.Rows), Col: uint16(window.Columns)},
		)
	})
	return errors.Join(err, err2)
}
