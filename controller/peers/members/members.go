// Package members is how the controllers of a cluster reach each other: over the port of the API, by mutual TLS between
// certificates of the role controller, under protocols of their own.
//
// A Door accepts on that port and hands each connection to whoever listens for its protocol at that moment. A standby has nobody
// listen for the API's protocols, so that TLS itself sends agents and tools on to the next controller.
package members

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// The protocols between controllers, as TLS negotiates them.
const (
	ALPNLog = "muster-log/1" // the ledger's log
	ALPNAsk = "muster-ask/1" // one question, one answer in JSON
)

const (
	handshakePatience = 10 * time.Second
	answerPatience    = 5 * time.Second
	maxQuestion       = 256
	maxAnswer         = 1 << 20
)

// Config is what a Door needs.
type Config struct {
	Listener     net.Listener // of the API's port
	Certificates *pki.Source
	Cluster      string
	Limits       *limit.Table // counts handshakes by address
	// Answer gives the answer to a question of another controller, to be sent as JSON.
	Answer func(question string) (any, error)
	Log    *slog.Logger
}

// Door accepts connections and sorts them by protocol.
type Door struct {
	cfg  Config
	done chan struct{}
	wg   sync.WaitGroup

	mu   sync.Mutex
	subs map[string]*sub // by protocol
}

// Open makes a door. It accepts from Serve on.
func Open(config Config) *Door {
	return &Door{cfg: config, done: make(chan struct{}), subs: map[string]*sub{}}
}

// Serve accepts until Close.
func (d *Door) Serve() error {
	for {
		raw, err := listen.Accept(d.cfg.Listener, d.cfg.Log)
		if err != nil {
			select {
			case <-d.done:
				return nil
			default:
				return fmt.Errorf("accept on %s: %w", d.cfg.Listener.Addr(), err)
			}
		}
		d.wg.Go(func() { d.admitConn(raw) })
	}
}

// Close stops accepting. Connections that were handed out are their listeners' own.
func (d *Door) Close() error {
	close(d.done)
	err := d.cfg.Listener.Close()
	d.wg.Wait()
	return err
}

// listProtocols are those that somebody listens for now.
func (d *Door) listProtocols() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []string{ALPNAsk}
	for protocol := range d.subs {
		out = append(out, protocol)
	}
	slices.Sort(out)
	return out
}

// admitConn makes the handshake and hands the connection out.
func (d *Door) admitConn(raw net.Conn) {
	address := d.cfg.Limits.HandshakeOf(raw.RemoteAddr())
	if !d.cfg.Limits.Connect(address) {
		raw.Close()
		return
	}
	defer d.cfg.Limits.Disconnect(address)
	ctx, cancel := context.WithTimeout(context.Background(), handshakePatience)
	defer cancel()
	server := &channel.Server{
		TLS:     d.cfg.Certificates.Server(false, d.listProtocols()...),
		Cluster: d.cfg.Cluster,
	}
	conn, err := server.Handshake(ctx, raw)
	if err != nil {
		d.cfg.Log.Debug("a connection was refused", "error", err)
		return
	}
	protocol := conn.ALPN()
	between := protocol == ALPNAsk || protocol == ALPNLog
	if between && conn.Peer.Kind != identity.Controller {
		d.cfg.Log.Warn(
			"only controllers may speak to a controller in this way",
			"who",
			conn.Peer,
			"protocol",
			protocol,
		)
		conn.Close()
		return
	}
	if protocol == ALPNAsk {
		d.answerConn(conn)
		return
	}
	d.mu.Lock()
	to := d.subs[protocol]
	d.mu.Unlock()
	if to == nil || !to.giveConn(conn) {
		conn.Close()
	}
}

func (d *Door) answerConn(conn *channel.Conn) {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerPatience)); err != nil {
		return
	}
	var question string
	if err := json.NewDecoder(io.LimitReader(conn, maxQuestion)).Decode(&question); err != nil {
		return
	}
	said, err := d.cfg.Answer(question)
	reply := envelope{}
	if err == nil {
		reply.Answer, err = json.Marshal(said)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	if err := json.NewEncoder(conn).Encode(reply); err != nil {
		d.cfg.Log.Debug("an answer to a controller was not sent", "error", err)
	}
}

// envelope is an answer on its way.
type envelope struct {
	Answer json.RawMessage `json:"answer,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// AnswerError is what a controller says that answers and cannot say what it was asked.
type AnswerError struct{ Address, Text string }

// Error names the controller.
func (e *AnswerError) Error() string { return "controller " + e.Address + ": " + e.Text }

// Ask asks the controller at an address and decodes its answer.
func Ask(ctx context.Context, source *pki.Source, address, question string, answer any) error {
	conn, err := dial(ctx, source, address, ALPNAsk)
	if err != nil {
		return err
	}
	defer conn.Close()
	if at, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(at); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(conn).Encode(question); err != nil {
		return fmt.Errorf("ask controller %s: %w", address, err)
	}
	var reply envelope
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&reply); err != nil {
		return fmt.Errorf("answer of controller %s: %w", address, err)
	}
	if reply.Error != "" {
		return &AnswerError{Address: address, Text: reply.Error}
	}
	return json.Unmarshal(reply.Answer, answer)
}

// dial opens a connection to another controller.
func dial(ctx context.Context, source *pki.Source, address, protocol string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn, err := source.Secure(host, identity.Controller, protocol)(ctx, plain)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	return conn, nil
}

// Listen hands out the connections of protocols from now on, until it is closed. Each protocol has one listener at a time.
func (d *Door) Listen(protocols ...string) net.Listener {
	s := &sub{door: d, protocols: protocols, conns: make(chan net.Conn), done: make(chan struct{})}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range protocols {
		d.subs[p] = s
	}
	return s
}

// sub is a listener for some protocols of a door.
type sub struct {
	door      *Door
	protocols []string
	conns     chan net.Conn
	done      chan struct{}
	once      sync.Once
}

// giveConn hands a connection over; false when the listener is closed.
func (s *sub) giveConn(conn net.Conn) bool {
	select {
	case s.conns <- conn:
		return true
	case <-s.done:
		return false
	case <-s.door.done:
		return false
	}
}

// Accept implements net.Listener.
func (s *sub) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *sub) Close() error {
	s.once.Do(func() {
		s.door.mu.Lock()
		for _, p := range s.protocols {
			if s.door.subs[p] == s {
				delete(s.door.subs, p)
			}
		}
		s.door.mu.Unlock()
		close(s.done)
	})
	return nil
}

// Addr implements net.Listener.
func (s *sub) Addr() net.Addr { return s.door.cfg.Listener.Addr() }

// Layer is what the ledger's log needs to reach the other members.
type Layer struct {
	net.Listener
	source *pki.Source
	self   string
}

// Layer gives the connections of the log. self is the address under which the others know this controller.
func (d *Door) Layer(self string) *Layer {
	return &Layer{Listener: d.Listen(ALPNLog), source: d.cfg.Certificates, self: self}
}

// Addr is the address under which the others know this controller.
func (l *Layer) Addr() net.Addr { return address(l.self) }

// Dial opens a connection to another member.
func (l *Layer) Dial(address string, timeout time.Duration) (net.Conn, error) {
	ctx := context.Background()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	return dial(ctx, l.source, address, ALPNLog)
}

// address is a host and a port that need not be resolved.
type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }
