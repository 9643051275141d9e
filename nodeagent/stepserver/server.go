// Package stepserver passes the input and output of steps on between clients (srun, sattach) and
// the processes that mind the steps, on this node or by way of the agent of another. It checks
// who asks: a credential of the controller's, shown by its user.
package stepserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	transport "github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/nodeagent/runtime"
)

// ALPN is the protocol between agents that pass input and output on.
const ALPN = "muster-steps/1"

// Socket is the agent's socket for srun, in its state folder.
const Socket = "steps.sock"

// OpenWait bounds how long a client may take to say what it wants.
const OpenWait = 10 * time.Second

// acceptWait is how long nobody is taken in after that has failed.
const acceptWait = 200 * time.Millisecond

// Server passes the input and output of steps on, between clients and the
// processes that mind the steps. It checks who asks: a credential of the
// controller's, shown by its user.
type Server struct {
	callers callers       // for whom there are connections
	peers   peers         // connections of other machines
	node    string        // empty on a login host, which only passes on
	agent   *daemon.Agent // nil there
	screens Displays      // nil: jobs have no displays here
	source  *pki.Source   // nil: other nodes cannot be reached
	port    string        // at which other agents listen that do not say so
	log     *slog.Logger
	unix    *listen.UnixListener // for the clients of this node's steps
	near    *listen.UnixListener // for those on this host whose steps are elsewhere; nil: another agent has it
	tcp     net.Listener         // nil: other agents cannot reach this one
	address string               // of tcp, as others reach it
}

// SetAgent tells whose steps these are.
func (s *Server) SetAgent(agent *daemon.Agent) {
	if s != nil {
		s.agent = agent
	}
}

// Serve takes connections until the context ends.
func (s *Server) Serve(ctx context.Context, wg *sync.WaitGroup) {
	if s == nil {
		return
	}
	accept := func(listener net.Listener, user func(net.Conn) (uint32, bool, error)) {
		wg.Go(func() {
			<-ctx.Done()
			_ = listener.Close()
		})
		wg.Go(func() {
			for {
				sock, err := listener.Accept()
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err != nil { // mostly for want of open files: others close theirs
					s.log.Warn("a client of steps cannot be taken now", "error", err)
					select {
					case <-ctx.Done():
						return
					case <-time.After(acceptWait):
					}
					continue
				}
				go func() {
					defer func() { _ = sock.Close() }()
					stop := context.AfterFunc(ctx, func() { _ = sock.Close() })
					defer stop()
					s.ServeConn(ctx, sock, user)
				}()
			}
		})
	}
	for _, listener := range []*listen.UnixListener{s.unix, s.near} {
		if listener != nil {
			accept(listener, localUser)
		}
	}
	if s.tcp != nil {
		accept(s.tcp, s.relayedUser)
	}
}

// localUser is who has connected on this machine.
func localUser(sock net.Conn) (uid uint32, direct bool, err error) {
	c, ok := sock.(*net.UnixConn)
	if !ok {
		return 0, false, errors.New("not a unix socket")
	}
	id, err := identity.FromPeer(context.Background(), c, nil)
	return id.UID, true, err
}

// relayedUser lets agents of this cluster in; they say for whom they ask.
func (s *Server) relayedUser(sock net.Conn) (uid uint32, direct bool, err error) {
	c, ok := sock.(*tls.Conn)
	if !ok {
		return 0, false, errors.New("not a TLS connection")
	}
	_ = c.SetDeadline(time.Now().Add(OpenWait))
	if err := c.Handshake(); err != nil {
		return 0, false, err
	}
	certs := c.ConnectionState().PeerCertificates
	if len(certs) == 0 {
		return 0, false, errors.New("no certificate")
	}
	id, err := identity.FromCertificate(certs[0], s.source.Self().Cluster)
	if err == nil && id.Kind != identity.Agent && id.Kind != identity.Login &&
		id.Kind != identity.Controller {
		err = fmt.Errorf("%s may not ask for others", id)
	}
	return 0, false, err
}

// maxOfUser is how many connections a user has to steps by way of this agent: a
// step has one for each of its nodes.
const maxOfUser = 4096

// callers counts the connections of each user.
type callers struct {
	mu sync.Mutex
	of map[uint32]int
}

// enterCaller counts one more, unless the user has too many; root may have any number.
func (c *callers) enterCaller(uid uint32) (leave func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if uid != 0 && c.of[uid] >= maxOfUser {
		return nil, false
	}
	if c.of == nil {
		c.of = map[uint32]int{}
	}
	c.of[uid]++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of[uid]--
		if c.of[uid] == 0 {
			delete(c.of, uid)
		}
	}, true
}

// peers are the connections of other machines' agents.
type peers struct {
	mu   sync.Mutex
	open map[*tls.Conn]bool
}

// enterConn notes a connection until leave.
func (p *peers) enterConn(c *tls.Conn) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[*tls.Conn]bool{}
	}
	p.open[c] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
	}
}

// DropRevoked takes the certificates that hold no more: who has one gets no
// connection, and those that are open end.
func (s *Server) DropRevoked(serials []string) {
	if s == nil || s.source == nil {
		return
	}
	var list pki.Revocations
	for _, serial := range serials {
		var err error
		list, err = list.With(serial, time.Now())
		if err != nil {
			s.log.Warn("the controller revokes what is no certificate", "error", err)
		}
	}
	s.source.SetRevoked(list)
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	for c := range s.peers.open {
		if s.isRevoked(c) {
			_ = c.NetConn().Close()
		}
	}
}

// isRevoked tells whether the other side's certificate is revoked.
func (s *Server) isRevoked(c *tls.Conn) bool {
	id, err := identity.FromCertificate(
		c.ConnectionState().PeerCertificates[0],
		s.source.Self().Cluster,
	)
	return err != nil || s.source.Revoked(id.Serial)
}

// admitUser counts a user's connection, or sends it away where he has too many.
func (s *Server) admitUser(sock net.Conn, uid uint32) (leave func(), ok bool) {
	leave, ok = s.callers.enterCaller(uid)
	if !ok {
		refuse(
			sock,
			&refused{
				stepio.Unreachable,
				fmt.Errorf(
					"you have %d connections to steps by way of this node, and no more are possible",
					maxOfUser,
				),
			},
		)
	}
	return leave, ok
}

// refused is why a client is sent away.
type refused struct {
	code stepio.Code
	err  error
}

// Error implements error.
func (r *refused) Error() string { return r.err.Error() }

// ServeConn is one client.
func (s *Server) ServeConn(
	ctx context.Context,
	sock net.Conn,
	user func(net.Conn) (uint32, bool, error),
) {
	uid, direct, err := user(sock)
	if err != nil {
		s.log.Warn("a client of steps is sent away", "error", err)
		return
	}
	if direct {
		leave, ok := s.admitUser(sock, uid)
		if !ok {
			return
		}
		defer leave()
	} else if c, ok := sock.(*tls.Conn); ok {
		defer s.peers.enterConn(c)()
		if s.isRevoked(c) {
			return // it was revoked since the handshake
		}
	}
	_ = sock.SetDeadline(time.Now().Add(OpenWait))
	buffered := bufio.NewReaderSize(sock, 32<<10)
	preface := make([]byte, len(stepio.Preface))
	if _, err := io.ReadFull(buffered, preface); err != nil || string(preface) != stepio.Preface {
		return
	}
	reader := stepio.NewReader(buffered)
	open, err := reader.First()
	if err != nil || open.Kind != stepio.Open {
		refuse(sock, &refused{stepio.Bad, errors.New("the request names no step")})
		return
	}
	_ = sock.SetDeadline(time.Time{})
	if direct {
		open.UID = uid
	} // else another agent has asked who he is
	if direct && (open.Node != s.node || s.agent == nil) {
		err = s.relayClient(ctx, sock, buffered, &open)
	} else {
		err = s.attachClient(ctx, sock, clientStream{reader, buffered}, &open, direct, direct && uid == 0)
	}
	var no *refused
	if errors.As(err, &no) {
		refuse(sock, no)
	}
}

func refuse(sock net.Conn, why *refused) {
	_ = sock.SetWriteDeadline(time.Now().Add(OpenWait))
	_, _ = sock.Write(
		stepio.Append(
			nil,
			&stepio.Message{Kind: stepio.Refused, Code: why.code, Text: why.Error()},
		),
	)
}

// relayClient passes a client on to the agent of another node.
func (s *Server) relayClient(
	ctx context.Context,
	sock net.Conn,
	from io.Reader,
	open *stepio.Message,
) error {
	if s.source == nil {
		return &refused{
			stepio.Unreachable,
			fmt.Errorf("node %s is on another machine, and this one has no certificate", open.Node),
		}
	}
	address := open.Address
	if address == "" {
		address = open.Node
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), s.port)
	}
	d := tls.Dialer{
		NetDialer: transport.Patient(),
		Config:    s.source.Client(open.Node, identity.Agent, ALPN),
	}
	dialing, cancel := context.WithTimeout(ctx, OpenWait)
	defer cancel()
	to, err := d.DialContext(dialing, "tcp", address)
	if err != nil {
		return &refused{stepio.Unreachable, fmt.Errorf("node %s: %w", open.Node, err)}
	}
	defer func() { _ = to.Close() }()
	if _, err := to.Write(stepio.Append([]byte(stepio.Preface), open)); err != nil {
		return &refused{stepio.Unreachable, fmt.Errorf("node %s: %w", open.Node, err)}
	}
	go func() {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}()
	_, _ = io.Copy(sock, to)
	return nil
}

// clientStream is what a client sends: messages, and beneath them bytes.
type clientStream struct {
	*stepio.Reader
	raw io.Reader
}

// attachClient connects a client to a step on this node: its user's, or this
// machine's root. A client of another machine counts as its user's once its
// credential has shown whose it is.
func (s *Server) attachClient(
	ctx context.Context,
	sock net.Conn,
	reader clientStream,
	open *stepio.Message,
	counted, root bool,
) error {
	if open.Node != s.node {
		return &refused{stepio.Over, fmt.Errorf("this is node %s, not %s", s.node, open.Node)}
	}
	run, owner, err := s.agent.Attachable(ctx, open.Run, open.Credential)
	open.Run = run
	if errors.Is(err, daemon.ErrDown) {
		return &refused{stepio.Unreachable, err}
	}
	if err == nil {
		err = mayAttach(open, owner, root)
	}
	if err != nil {
		s.log.Warn(
			"a client of a step is refused",
			slog.Group("", open.Run.Fields(0, "")...),
			"client_uid",
			open.UID,
			"error",
			err,
		)
		return &refused{stepio.Denied, err}
	}
	if !counted {
		leave, ok := s.admitUser(sock, owner)
		if !ok {
			return nil
		}
		defer leave()
	}
	if open.Display != stepio.NoDisplay {
		return s.serveDisplay(ctx, sock, reader, open)
	}
	socket, err := s.agent.StepSocket(ctx, open.Run)
	if err != nil {
		return &refused{stepio.Over, err}
	}
	conn := &stepConn{sock: sock, log: s.log}
	conn.step, err = runtime.DialStep(ctx, socket, conn.passFrames)
	if err != nil {
		return &refused{stepio.Unreachable, err}
	}
	defer conn.step.Close()
	stop := context.AfterFunc(ctx, func() { _ = sock.Close() })
	defer stop()
	go func() { // the step's process has gone: so does the client, which asks again
		<-conn.step.Done()
		_ = sock.Close()
	}()
	if err := conn.sendMessage(&stepio.Message{Kind: stepio.Opened}); err != nil {
		return err
	}
	if err := conn.step.Attach(ctx, open.UpTo, open.Watch); err != nil {
		return err
	}
	conn.inputs = make(chan *stepio.Message, stepio.MaxPieces)
	var wg sync.WaitGroup
	wg.Go(func() { conn.feedInput(ctx) })
	err = conn.readClient(ctx, reader.Reader)
	close(conn.inputs)
	conn.step.Close()
	wg.Wait()
	return err
}

// mayAttach lets a step's user in, and root of this machine.
func mayAttach(open *stepio.Message, owner uint32, root bool) error {
	if open.UID != owner && !root {
		return fmt.Errorf("the step is of user %d", owner)
	}
	return nil
}

// stepConn is a client that is attached to a step.
type stepConn struct {
	sock   net.Conn
	step   *runtime.Step
	log    *slog.Logger
	inputs chan *stepio.Message
	waits  atomic.Int64 // bytes in inputs
	mu     sync.Mutex   // one message after another
	buf    []byte       // of the last one; guarded by mu
}

func (c *stepConn) sendMessage(message *stepio.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buf = stepio.Append(c.buf[:0], message)
	_, err := c.sock.Write(c.buf)
	return err
}

// passFrames passes frames on as they are; while the client does not take them, the
// step waits.
func (c *stepConn) passFrames(plain []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.sock.Write(plain); err != nil {
		_ = c.sock.Close()
	}
}

// feedInput passes input on, one piece after another: a task that does not read must
// not keep the client's other messages waiting. Pieces that wait behind each
// other go as one.
func (c *stepConn) feedInput(ctx context.Context) {
	message, more := <-c.inputs
	for more {
		var next *stepio.Message
		data, waits := message.Data, true
		for waits && more && len(message.Data) > 0 {
			select {
			case next, more = <-c.inputs:
				if more && next.Rank == message.Rank && len(next.Data) > 0 &&
					next.Offset == message.Offset+uint64(len(data)) {
					data, next = append(data, next.Data...), nil
				} else {
					waits = false
				}
			default:
				waits = false
			}
		}
		c.waits.Add(-int64(len(data)))
		if err := c.step.Input(ctx, message.Rank, message.Offset, data); err != nil {
			if !errors.Is(err, runtime.ErrClosed) {
				c.log.Warn("input of a step is not taken", "error", err)
			}
			_ = c.sock.Close() // the rest is dropped, and sent again over the next connection
		} else {
			_ = c.sendMessage(&stepio.Message{Kind: stepio.Taken, Rank: message.Rank, Offset: message.Offset + uint64(len(data))})
		}
		message = next
		if message == nil && more {
			message, more = <-c.inputs
		}
	}
}

// readClient takes what the client says until it goes.
func (c *stepConn) readClient(ctx context.Context, reader *stepio.Reader) error {
	for {
		message, err := reader.Next()
		if err != nil {
			return err
		}
		switch message.Kind {
		case stepio.Ack:
			err = c.step.Ack(ctx, message.UpTo)
		case stepio.Input:
			err = c.queueInput(&message)
		case stepio.Signal:
			err = c.step.Signal(ctx, message.Signal)
		case stepio.Resize:
			err = c.step.Resize(ctx, message.Window)
		case stepio.Merged:
			err = c.step.Merged(ctx, message.Fence)
		case stepio.Modex:
			err = c.step.Modex(ctx, message.Modex)
		default:
			return &refused{
				stepio.Bad,
				fmt.Errorf("message of kind %s is not a client's", strconv.Itoa(int(message.Kind))),
			}
		}
		if errors.Is(err, runtime.ErrClosed) {
			return err // it ends with its last acknowledgement
		}
		if err != nil {
			c.log.Warn("a step does not do what its client asks", "error", err)
			var no *refused
			if errors.As(err, &no) {
				return err
			}
		}
	}
}

// queueInput has a piece of input wait for the tasks. A client that sends more than
// there may be without waiting for the answers is none of ours.
func (c *stepConn) queueInput(message *stepio.Message) error {
	if len(message.Data) <= stepio.MaxInput &&
		c.waits.Add(int64(len(message.Data))) <= stepio.MaxWindow {
		select {
		case c.inputs <- message:
			return nil
		default:
		}
	}
	return &refused{stepio.Bad, errors.New("it sends input without waiting for the answers")}
}

// Close removes the socket.
func (s *Server) Close() {
	if s == nil {
		return
	}
	for _, listener := range []*listen.UnixListener{s.unix, s.near} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

// ReachableAddress is where agents of other hosts reach this one; empty where they cannot.
func (s *Server) ReachableAddress() string {
	if s == nil {
		return ""
	}
	return s.address
}

// SocketPath is where srun reaches the agent; empty where it cannot.
func (s *Server) SocketPath() string {
	if s == nil {
		return ""
	}
	path, err := filepath.Abs(s.unix.Addr().String())
	if err != nil {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// NearSocket is the socket by which srun on this host reaches steps on others.
func NearSocket(config *conffile.Config) string {
	return filepath.Join(filepath.Dir(config.Socket), Socket)
}
