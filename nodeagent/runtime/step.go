package runtime

import (
	"context"
	"fmt"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
)

// Step is a connection to the process that minds a step's tasks on this node.
// Whatever is asked over it may be asked again over another one. A client that
// does not take what comes holds up the tasks, once what is kept for it is full.
type Step struct {
	*link
	plain func([]byte)
	buf   []byte // of what an older process has sent
}

// DialStep connects to a step by the socket that its run was seen with. plain
// takes the frames as stepio writes them, from one goroutine, which waits for it;
// they are not kept.
func DialStep(ctx context.Context, socket string, plain func([]byte)) (*Step, error) {
	step := &Step{plain: plain}
	var err error
	step.link, err = connectShepherd(ctx, socket, step.take)
	if err != nil {
		return nil, fmt.Errorf("connect to the step: %w", err)
	}
	return step, nil
}

func (s *Step) take(reader *protocol.Reader, message protocol.Message) error {
	if message.Plain != nil {
		s.plain(message.Plain)
		return nil
	}
	var frames protocol.StepFrames
	if err := reader.Decode(message, &frames); err != nil {
		return err
	}
	s.buf = s.buf[:0]
	for i := range frames.Frames {
		s.buf = stepio.Append(s.buf, &stepio.Message{Kind: stepio.Frame, Frame: frames.Frames[i]})
	}
	s.plain(s.buf)
	return nil
}

// Attach begins the frames behind the one with the given number, which
// acknowledges it and all before it. With watch they are those that come from
// now on, and nothing is acknowledged.
func (s *Step) Attach(ctx context.Context, after uint64, watch bool) error {
	return s.callWithin(
		ctx,
		DefaultCallTimeout,
		protocol.OpStepAttach,
		protocol.StepAttach{After: after, Plain: true, Watch: watch},
		nil,
	)
}

// Ack takes back the frames up to a number.
func (s *Step) Ack(ctx context.Context, upTo uint64) error {
	return s.callWithin(
		ctx,
		DefaultCallTimeout,
		protocol.OpStepAck,
		protocol.StepAck{UpTo: upTo},
		nil,
	)
}

// Input passes a piece of the input on, for one rank or spec.InputAll, and
// returns when it is taken. No data is the end of the input. It has no time
// limit of its own: tasks take their input when they are ready for it.
func (s *Step) Input(ctx context.Context, rank int32, offset uint64, data []byte) error {
	return s.callShepherd(
		ctx,
		protocol.OpStepInput,
		protocol.StepInput{Rank: rank, Offset: offset, Data: data},
		nil,
	)
}

// Signal sends a signal to all tasks here.
func (s *Step) Signal(ctx context.Context, sig int32) error {
	return s.callWithin(
		ctx,
		DefaultCallTimeout,
		protocol.OpStepSignal,
		protocol.StepSignal{Signal: sig},
		nil,
	)
}

// Resize tells the step's terminal its size.
func (s *Step) Resize(ctx context.Context, window plan.Window) error {
	return s.callWithin(ctx, DefaultCallTimeout, protocol.OpStepResize, window, nil)
}

// Merged tells this node's tasks what those of all nodes have put. Like Input
// it waits for tasks, and therefore has no time limit of its own.
func (s *Step) Merged(ctx context.Context, fence plan.Fence) error {
	return s.callShepherd(ctx, protocol.OpStepMerged, fence, nil)
}

// Modex tells this node's tasks what another node asks or answers over PMIx.
func (s *Step) Modex(ctx context.Context, modex plan.Modex) error {
	return s.callShepherd(ctx, protocol.OpStepModex, modex, nil)
}
