//go:build linux

package shepherd

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime/protocol"
	"golang.org/x/sys/unix"
)

// conn is one connected agent.
type conn struct {
	s    *Shepherd
	sock *net.UnixConn
	r    *protocol.Reader
	w    *protocol.Writer
}

// acceptConns serves connections until the listener closes.
func (s *Shepherd) acceptConns() {
	for {
		sock, err := s.ln.AcceptUnix()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				s.log.Error("accept", "err", err)
			}
			return
		}
		if err := protocol.SamePeer(sock); err != nil {
			s.log.Warn("connection refused", "err", err)
			_ = sock.Close()
			continue
		}
		reader, err := protocol.NewReader(sock)
		if err != nil {
			s.log.Error("accept", "err", err)
			_ = sock.Close()
			continue
		}
		c := &conn{s: s, sock: sock, r: reader, w: protocol.NewWriter(sock)}
		s.mu.Lock()
		s.conns[c] = true
		s.mu.Unlock()
		s.wg.Go(c.serveConn)
	}
}

func (c *conn) serveConn() {
	defer func() {
		c.s.mu.Lock()
		delete(c.s.conns, c)
		delete(c.s.subs, c)
		c.s.mu.Unlock()
		_ = c.sock.Close()
		c.w.Close()
	}()
	for {
		message, err := c.r.Next()
		if err != nil {
			if errors.Is(err, protocol.ErrFrame) {
				c.s.log.Warn("connection dropped", "err", err)
			}
			return
		}
		if !c.handleMessage(message) {
			return
		}
	}
}

// handleMessage answers one message; false ends the connection. What may block runs
// beside the reader, so that one hanging file never delays another request.
func (c *conn) handleMessage(message protocol.Message) bool {
	shepherd := c.s
	switch message.Op {
	case protocol.OpHello:
		c.replyTo(message, shepherd.greet(), nil)
	case protocol.OpLaunch:
		var launch protocol.Launch
		if !c.decodeBody(message, &launch) {
			return false
		}
		if c.hungUp() {
			return false
		}
		results, finish := shepherd.launchRuns(launch.Runs)
		shepherd.wg.Go(func() {
			finish()
			c.replyTo(message, protocol.LaunchReply{Results: results}, nil)
		})
	case protocol.OpSignal:
		var signal protocol.Signal
		if !c.decodeBody(message, &signal) {
			return false
		}
		shepherd.wg.Go(func() { c.replyTo(message, nil, shepherd.sendSignal(signal)) })
	case protocol.OpTerminate:
		var terminate plan.Terminate
		if !c.decodeBody(message, &terminate) {
			return false
		}
		shepherd.wg.Go(func() { c.replyTo(message, nil, shepherd.terminateRuns(terminate)) })
	case protocol.OpList:
		c.replyTo(message, protocol.ListReply{Runs: shepherd.listRuns()}, nil)
	case protocol.OpUsage:
		var keys protocol.Keys
		if !c.decodeBody(message, &keys) {
			return false
		}
		shepherd.wg.Go(
			func() {
				c.replyTo(message, protocol.UsageReply{Usage: shepherd.readUsage(keys.Keys)}, nil)
			},
		)
	case protocol.OpAck:
		var keys protocol.Keys
		if !c.decodeBody(message, &keys) {
			return false
		}
		shepherd.forgetAcked(keys.Keys)
		c.replyTo(message, nil, nil)
	case protocol.OpSubscribe:
		c.subscribe(message)
	case protocol.OpDrain:
		c.replyTo(message, shepherd.drainLaunches(), nil)
	case protocol.OpGrant:
		var grant plan.Grant
		if !c.decodeBody(message, &grant) {
			return false
		}
		c.replyTo(message, nil, shepherd.acceptGrant(grant))
	case protocol.OpSpaces:
		var spaces protocol.Spaces
		if !c.decodeBody(message, &spaces) {
			return false
		}
		shepherd.wg.Go(func() {
			keys, err := shepherd.listSpaces(spaces.Base)
			c.replyTo(message, protocol.Keys{Keys: keys}, err)
		})
	case protocol.OpVacate:
		var vacate protocol.Vacate
		if !c.decodeBody(message, &vacate) {
			return false
		}
		shepherd.wg.Go(func() { c.replyTo(message, nil, shepherd.vacate(vacate.Key)) })
	case protocol.OpAdopt:
		var adopt protocol.Adopt
		if !c.decodeBody(message, &adopt) {
			return false
		}
		shepherd.wg.Go(func() { c.replyTo(message, nil, shepherd.adoptProcess(adopt)) })
	case protocol.OpResume:
		shepherd.wg.Go(func() { c.replyTo(message, nil, shepherd.resumeLaunches()) })
	default:
		c.replyTo(message, nil, &protocol.Error{Code: protocol.CodeBadRequest,
			Text: fmt.Sprintf(
				"operation %d is not known to release %s",
				message.Op,
				shepherd.cfg.Release,
			)})
	}
	return true
}

// hungUp tells that the agent is gone. What it asked for last may have been
// asked of another shepherd since, whose agent came after it.
func (c *conn) hungUp() bool {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return true
	}
	up := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}} // POLLHUP is always told
		n, err := unix.Poll(p, 0)
		up = err == nil && n == 0
	})
	return err != nil || !up
}

func (c *conn) decodeBody(message protocol.Message, into any) bool {
	if err := c.r.Decode(message, into); err != nil {
		c.s.log.Warn("connection dropped", "err", err)
		return false
	}
	return true
}

func (c *conn) replyTo(message protocol.Message, body any, err error) {
	out := protocol.Message{ID: message.ID, Op: message.Op}
	if err != nil {
		body = nil
		if !errors.As(err, &out.Err) {
			out.Err = &protocol.Error{Code: protocol.CodeInternal, Text: err.Error()}
		}
	}
	frame, err := protocol.Encode(out, body)
	if err != nil {
		c.s.log.Error("answer", "err", err)
		return
	}
	_ = c.w.Send(frame) // a broken connection ends in the reader
}

func (s *Shepherd) greet() plan.Hello {
	s.mu.Lock()
	defer s.mu.Unlock()
	hello := s.hello
	hello.Draining = s.draining
	for _, r := range s.runs {
		if r.state == plan.Exited {
			hello.Unacked++
		} else {
			hello.Runs++
		}
	}
	if err := s.jr.Err(); err != nil {
		hello.Degraded = append(slices.Clone(hello.Degraded), err.Error())
	}
	return hello
}

// listRuns gives every run, in the order of keys.
func (s *Shepherd) listRuns() []plan.Observed {
	s.mu.Lock()
	out := make([]plan.Observed, 0, len(s.runs))
	for _, r := range s.runs {
		observed := r.asObserved()
		if r.Spaced {
			observed.Namespace = s.spaces.Namespace(r.Key)
		}
		out = append(out, observed)
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b plan.Observed) int { return a.Key.Compare(b.Key) })
	return out
}

// subscribe gives first every exit that waits for its acknowledgement, then
// all news; nothing falls in between.
func (c *conn) subscribe(message protocol.Message) {
	shepherd := c.s
	shepherd.mu.Lock()
	defer shepherd.mu.Unlock()
	var waiting []plan.Event
	for _, r := range shepherd.runs {
		if r.state == plan.Exited {
			waiting = append(waiting, plan.Event{Exited: r.exit})
		}
	}
	slices.SortFunc(waiting, func(a, b plan.Event) int {
		if a.Exited.End != b.Exited.End {
			return int(min(1, max(-1, a.Exited.End-b.Exited.End)))
		}
		return a.Exited.Key.Compare(b.Exited.Key)
	})
	c.replyTo(message, nil, nil)
	if len(waiting) > 0 {
		c.pushEvents(waiting)
	}
	shepherd.subs[c] = true
}

// publishEvent sends news to every subscriber. mu is held, which keeps the order.
func (s *Shepherd) publishEvent(event plan.Event) {
	for c := range s.subs {
		c.pushEvents([]plan.Event{event})
	}
}

func (c *conn) pushEvents(events []plan.Event) {
	frame, err := protocol.Encode(
		protocol.Message{Op: protocol.OpEvents},
		protocol.Events{Events: events},
	)
	if err != nil {
		c.s.log.Error("news", "err", err)
		return
	}
	_ = c.w.Send(frame)
}

// resumeLaunches takes a drain back: the agent of this release is here again.
// The shepherds that came meanwhile are drained first, and asked what they have.
func (s *Shepherd) resumeLaunches() error {
	s.takeOver(s.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isGone {
		return &protocol.Error{
			Code: protocol.CodeInternal,
			Text: "this shepherd had nothing left and is ending",
		}
	}
	if s.draining {
		s.draining = false
		s.log.Info("the drain is taken back: runs are started again")
	}
	return nil
}

// drainLaunches refuses launches from now on and names every key that is known here.
func (s *Shepherd) drainLaunches() protocol.DrainReply {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	drain := protocol.DrainReply{Busy: int32(len(s.runs))}
	for _, g := range s.ended.oldestFirst() {
		drain.Known = append(drain.Known, g.key)
	}
	for key := range s.runs {
		drain.Known = append(drain.Known, key)
	}
	s.checkGone()
	return drain
}
