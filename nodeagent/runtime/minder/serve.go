//go:build linux

package minder

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"golang.org/x/sys/unix"
)

// conn is one connection of an agent.
type conn struct {
	m    *minder
	sock *net.UnixConn
	r    *protocol.Reader
	mu   sync.Mutex // one message after another

	frames *reader
}

// acceptConns serves connections for as long as the process lives.
func (m *minder) acceptConns() {
	for {
		sock, err := m.ln.AcceptUnix()
		if err != nil {
			return
		}
		r, err := protocol.NewReader(sock)
		if err != nil || protocol.SamePeer(sock) != nil {
			_ = sock.Close()
			continue
		}
		c := &conn{m: m, sock: sock, r: r}
		go c.serveConn()
	}
}

func (c *conn) serveConn() {
	defer func() {
		_ = c.sock.Close()
		if c.frames != nil {
			c.m.out.detachReader(c.frames)
		}
	}()
	for {
		message, err := c.r.Next()
		if err != nil || c.handleMessage(message) != nil {
			return
		}
	}
}

// handleMessage answers one message; an error ends the connection.
func (c *conn) handleMessage(message protocol.Message) error {
	switch message.Op {
	case protocol.OpStepAttach:
		var attach protocol.StepAttach
		if err := c.r.Decode(message, &attach); err != nil {
			return err
		}
		if c.frames != nil {
			return c.replyTo(
				message,
				nil,
				&protocol.Error{
					Code: protocol.CodeBadRequest,
					Text: "this connection is attached already",
				},
			)
		}
		c.frames = c.m.out.attachReader(attach.After, attach.Watch)
		if err := c.replyTo(message, nil, nil); err != nil {
			return err
		}
		go c.pushFrames(c.frames, attach.Plain)
		return nil
	case protocol.OpStepAck:
		return c.noteAcknowledged(message)
	case protocol.OpStepInput:
		var stepInput protocol.StepInput
		if err := c.r.Decode(message, &stepInput); err != nil {
			return err
		}
		take := c.m.passInput
		if c.frames != nil && c.frames.watch {
			take = c.m.passTyped
		}
		go func() { _ = c.replyTo(message, nil, take(&stepInput)) }() // may wait for the tasks
		return nil
	case protocol.OpStepSignal:
		var signal protocol.StepSignal
		if err := c.r.Decode(message, &signal); err != nil {
			return err
		}
		if signal.Signal < 1 || signal.Signal > 64 {
			return c.replyTo(
				message,
				nil,
				&protocol.Error{
					Code: protocol.CodeBadRequest,
					Text: fmt.Sprintf("invalid signal %d", signal.Signal),
				},
			)
		}
		c.m.signalTasks(unix.Signal(signal.Signal))
		return c.replyTo(message, nil, nil)
	case protocol.OpStepNotice:
		var notice protocol.StepNotice
		if err := c.r.Decode(message, &notice); err != nil {
			return err
		}
		c.m.out.addFrame(plan.Frame{Notice: notice.Text})
		return c.replyTo(message, nil, nil)
	case protocol.OpStepResize:
		var window plan.Window
		if err := c.r.Decode(message, &window); err != nil {
			return err
		}
		return c.replyTo(message, nil, c.m.resizeStep(&window))
	case protocol.OpStepMerged:
		var fence plan.Fence
		if err := c.r.Decode(message, &fence); err != nil {
			return err
		}
		if fence.Joined {
			return c.replyTo(message, nil, c.m.pmix.merged(&fence))
		}
		return c.replyTo(message, nil, c.m.fences.completeFence(&fence))
	case protocol.OpStepModex:
		var modex plan.Modex
		if err := c.r.Decode(message, &modex); err != nil {
			return err
		}
		return c.replyTo(message, nil, c.m.pmix.modex(&modex))
	}
	return c.replyTo(
		message,
		nil,
		&protocol.Error{
			Code: protocol.CodeBadRequest,
			Text: fmt.Sprintf("operation %d is not known here", message.Op),
		},
	)
}

// noteAcknowledged takes the number up to which a client has the frames; the
// connection of one that has all ends, so that those who watch do not keep it.
func (c *conn) noteAcknowledged(message protocol.Message) error {
	var ack protocol.StepAck
	if err := c.r.Decode(message, &ack); err != nil {
		return err
	}
	err := c.replyTo(message, nil, nil)
	if c.frames != nil && c.frames.watch {
		return err
	}
	c.m.out.ackFrames(ack.UpTo) // last: the step may be over with it
	if over, _ := c.m.out.isDelivered(); over {
		return os.ErrClosed
	}
	return err
}

// resizeStep changes the size of the step's terminal, if it has one here.
func (m *minder) resizeStep(window *plan.Window) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tasks {
		if t.term != nil {
			return resizeTerminal(t.term, window)
		}
	}
	return nil
}

// pushFrames sends frames until the connection or the reading ends.
func (c *conn) pushFrames(r *reader, plain bool) {
	var buf []byte
	for {
		list := c.m.out.nextFrames(r)
		if len(list) == 0 {
			return
		}
		var err error
		if plain {
			buf = protocol.BeginPlain(buf, protocol.OpStepFrames)
			for i := range list {
				buf = stepio.Append(buf, &stepio.Message{Kind: stepio.Frame, Frame: list[i]})
			}
			buf, err = protocol.EndPlain(buf)
			if err == nil {
				err = c.writeMessage(buf)
			}
		} else { // an agent of an older release
			err = c.sendMessage(protocol.Message{Op: protocol.OpStepFrames}, protocol.StepFrames{Frames: list})
		}
		if err != nil {
			_ = c.sock.Close()
			return
		}
		c.m.out.noteSent(r, list[len(list)-1].Number)
	}
}

func (c *conn) replyTo(message protocol.Message, body any, err error) error {
	out := protocol.Message{ID: message.ID, Op: message.Op}
	if err != nil {
		body = nil
		if !errors.As(err, &out.Err) {
			out.Err = &protocol.Error{Code: protocol.CodeInternal, Text: err.Error()}
		}
	}
	return c.sendMessage(out, body)
}

// sendMessage writes one message at once: what waits, waits in the frames.
func (c *conn) sendMessage(message protocol.Message, body any) error {
	frame, err := protocol.Encode(message, body)
	if err != nil {
		return err
	}
	return c.writeMessage(frame)
}

func (c *conn) writeMessage(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.sock.Write(frame); err != nil {
		return fmt.Errorf("%w: %w", os.ErrClosed, err)
	}
	return nil
}
