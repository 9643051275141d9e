package stepio

import (
	"encoding/binary"
	"math"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// writer appends fields.
type writer struct{ b []byte }

func (w *writer) writeNumber(n uint64) { w.b = binary.AppendUvarint(w.b, n) }
func (w *writer) writeSigned(n int64)  { w.b = binary.AppendVarint(w.b, n) }
func (w *writer) text(text string) {
	w.writeNumber(uint64(len(text)))
	w.b = append(w.b, text...)
}
func (w *writer) writeBytes(s []byte) { w.writeNumber(uint64(len(s))); w.b = append(w.b, s...) }

// The frames, by what is in them.
const (
	hasStarted = iota + 1
	hasOutput
	hasExit
	hasEnd
	hasNotice
	hasFence
	hasModex
	hasAbort
)

func (w *writer) writeFrame(frame *plan.Frame) {
	w.writeNumber(frame.Number)
	switch {
	case frame.Started != nil:
		w.writeNumber(hasStarted)
		// What it says of itself is the word of a process of the user's.
		n := min(len(frame.Started.Ranks), len(frame.Started.PIDs))
		w.writeNumber(uint64(n))
		for i := range n {
			w.writeNumber(uint64(frame.Started.Ranks[i]))
			w.writeSigned(int64(frame.Started.PIDs[i]))
		}
	case frame.Output != nil:
		w.writeNumber(hasOutput)
		w.writeNumber(uint64(frame.Output.Rank))
		w.writeNumber(uint64(frame.Output.Stream))
		w.writeBytes(frame.Output.Data)
	case frame.Exit != nil:
		exit := frame.Exit
		core := uint64(0)
		if exit.Core {
			core = 1
		}
		w.writeNumber(hasExit)
		w.writeNumber(uint64(exit.Rank))
		w.writeSigned(int64(exit.Code))
		w.writeSigned(int64(exit.Signal))
		w.writeNumber(core)
		w.text(exit.Error)
		for _, n := range []int64{
			int64(exit.Start),
			int64(exit.End),
			int64(exit.Usage.UserCPU),
			int64(exit.Usage.SystemCPU),
			exit.Usage.PeakRSS,
		} {
			w.writeSigned(n)
		}
	case frame.End != nil:
		w.writeNumber(hasEnd)
		w.writeSigned(int64(frame.End.Code))
		w.writeSigned(int64(frame.End.Signal))
		w.text(frame.End.Error)
	case frame.Fence != nil:
		w.writeNumber(hasFence)
		w.writeFence(frame.Fence)
	case frame.Modex != nil:
		w.writeNumber(hasModex)
		w.writeModex(frame.Modex)
	case frame.Abort:
		w.writeNumber(hasAbort)
	default:
		w.writeNumber(hasNotice)
		w.text(frame.Notice)
	}
}

func (w *writer) writeFence(fence *plan.Fence) {
	w.writeNumber(fence.Number)
	w.writeNumber(uint64(fence.Node))
	w.writeBytes(fence.Data)
	if !fence.Joined { // as releases before PMIx know it
		return
	}
	w.text(fence.Group)
	w.writeNumber(uint64(len(fence.Nodes)))
	for _, n := range fence.Nodes {
		w.writeNumber(uint64(n))
	}
}

func (w *writer) writeModex(modex *plan.Modex) {
	w.writeNumber(uint64(modex.Kind))
	w.writeNumber(modex.Number)
	w.writeNumber(uint64(modex.From))
	w.writeNumber(uint64(modex.To))
	w.writeNumber(uint64(modex.Rank))
	w.writeSigned(int64(modex.Status))
	w.writeBytes(modex.Data)
}

// reader takes fields apart; bad tells that one was not there.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) readNumber() uint64 {
	n, w := binary.Uvarint(r.b)
	if w <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[w:]
	return n
}

// readBelow is a number that must be less than limit.
func (r *reader) readBelow(limit uint64) uint64 {
	n := r.readNumber()
	if n >= limit {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) signed() int64 {
	n, w := binary.Varint(r.b)
	if w <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[w:]
	return n
}

// readInt32 is a signed number of 32 bits.
func (r *reader) readInt32() int32 {
	n := r.signed()
	if n < math.MinInt32 || n > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int32(n)
}

func (r *reader) readBytes() []byte {
	n := r.readNumber()
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	if n == 0 {
		return nil
	}
	return out
}

func (r *reader) text() string { return string(r.readBytes()) }

func (r *reader) readFrame(frame *plan.Frame) {
	frame.Number = r.readNumber()
	switch r.readNumber() {
	case hasStarted:
		n := r.readNumber()
		if n > uint64(len(r.b)) {
			r.bad = true
			return
		}
		taskPIDs := &plan.TaskPIDs{}
		for range n {
			taskPIDs.Ranks, taskPIDs.PIDs = append(
				taskPIDs.Ranks,
				uint32(r.readBelow(1<<32)),
			), append(
				taskPIDs.PIDs,
				r.readInt32(),
			)
		}
		frame.Started = taskPIDs
	case hasOutput:
		frame.Output = &plan.Output{
			Rank:   uint32(r.readBelow(1 << 32)),
			Stream: uint8(r.readBelow(1 << 8)),
			Data:   r.readBytes(),
		}
	case hasExit:
		exit := &plan.TaskExit{
			Rank:   uint32(r.readBelow(1 << 32)),
			Code:   r.readInt32(),
			Signal: r.readInt32(),
			Core:   r.readBelow(2) == 1,
			Error:  r.text(),
		}
		exit.Start, exit.End = spec.Instant(r.signed()), spec.Instant(r.signed())
		exit.Usage.UserCPU = spec.Span(r.signed())
		exit.Usage.SystemCPU = spec.Span(r.signed())
		exit.Usage.PeakRSS = r.signed()
		frame.Exit = exit
	case hasEnd:
		frame.End = &plan.FrameEnd{Code: r.readInt32(), Signal: r.readInt32(), Error: r.text()}
	case hasFence:
		fence := r.readFence()
		frame.Fence = &fence
	case hasModex:
		modex := r.readModex()
		frame.Modex = &modex
	case hasAbort:
		frame.Abort = true
	case hasNotice:
		frame.Notice = r.text()
	default:
		r.bad = true
	}
}

// readAttachKind reads what an Open is beyond that of the step's own client.
func (r *reader) readAttachKind(message *Message) {
	if len(r.b) == 0 {
		return
	}
	switch r.readNumber() {
	case 0:
	case opensWatch:
		message.Watch = true
	case opensDisplay:
		message.Display = WatchDisplay
	case opensClient:
		message.Display = DisplayClient
		message.Channel = r.readNumber()
	default:
		r.bad = true
	}
}

func (r *reader) readFence() plan.Fence {
	fence := plan.Fence{
		Number: r.readNumber(),
		Node:   uint32(r.readBelow(1 << 32)),
		Data:   r.readBytes(),
	}
	if r.bad || len(r.b) == 0 {
		return fence
	}
	fence.Joined, fence.Group = true, r.text()
	n := r.readNumber()
	if n > uint64(len(r.b)) {
		r.bad = true
		return fence
	}
	for range n {
		fence.Nodes = append(fence.Nodes, uint32(r.readBelow(1<<32)))
	}
	return fence
}

func (r *reader) readModex() plan.Modex {
	return plan.Modex{
		Kind:   plan.ModexKind(r.readBelow(1 << 8)),
		Number: r.readNumber(),
		From:   uint32(r.readBelow(1 << 32)),
		To:     uint32(r.readBelow(1 << 32)),
		Rank:   uint32(r.readBelow(1 << 32)),
		Status: r.readInt32(),
		Data:   r.readBytes(),
	}
}
