// Package gate is the way of the commands on a host to the controllers on others: it finds the
// one that leads, passes calls on to it, and keeps them through an election.
package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	apiv1 "github.com/musterhpc/muster/api/v1"
	_ "github.com/musterhpc/muster/api/v1/service" // what its methods promise
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Config is what a Gate needs.
type Config struct {
	Addresses []string    // of the controllers, in the order in which they are tried
	Source    *pki.Source // this host's certificates
	// Enrol is the command that gets this host a new certificate, for the error when it has
	// expired.
	Enrol string
	// Explain says why no controller leads. It is for hosts that take part in the election: they also
	// call Lead and LeadLost. nil elsewhere.
	Explain func(ctx context.Context) string
	Log     *slog.Logger
}

// Gate passes the calls of local users on and says who makes them, by the kernel's word. What
// that word is worth the controller decides.
type Gate struct {
	cfg    Config
	relay  *serve.Relay
	server *serve.Server

	mu   sync.Mutex
	at   int  // the address that answered last, or of the controller that leads
	told bool // that one leads, by the word of the group
}

// New makes a gate.
func New(config Config) (*Gate, error) {
	gate := &Gate{cfg: config}
	options := serve.RelayOptions{Dial: gate.dial, Told: config.Explain != nil}
	if len(config.Addresses) > 1 {
		options.Patience, options.Again = electionPatience, Again
	}
	if len(config.Addresses) > 1 && config.Explain == nil {
		options.Silent = gate.leaveSilent
	}
	gate.relay = serve.NewRelay(options)
	var err error
	gate.server, err = serve.New(
		serve.Config{
			Handler:      gate.passOn,
			Authenticate: (&channel.Server{}).Authenticate,
			Log:          config.Log,
		},
	)
	if err != nil {
		return nil, err
	}
	return gate, nil
}

// passOn passes a call on, and explains why where no controller takes it.
func (g *Gate) passOn(ctx context.Context, call *serve.Call) error {
	return g.explain(ctx, g.relay.Handle(ctx, call))
}

// Forward passes a call on that did not come to the gate's own listener.
func (g *Gate) Forward(
	ctx context.Context, request serve.RelayCall, send func([]byte) error,
) error {
	return g.explain(ctx, g.relay.Forward(ctx, request, send))
}

// explain replaces the error of a call that no controller took.
func (g *Gate) explain(ctx context.Context, err error) error {
	var st *rpcstatus.Error
	if g.cfg.Explain == nil || !errors.As(err, &st) || st.Wire != rpcstatus.Unavailable ||
		st.Refusal() != nil {
		return err
	}
	if outcome, _ := st.Detail(framed.DetailOutcome); outcome != framed.OutcomeNotSent {
		return err
	}
	explained := *st
	explained.Message = g.cfg.Explain(ctx)
	return &explained
}

// Serve takes calls from a listener until the context ends.
func (g *Gate) Serve(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, func() {
		stop, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.server.Shutdown(stop)
		_ = g.relay.Close()
	})()
	err := g.server.Serve(listener)
	if errors.Is(err, serve.ErrStopped) {
		return nil
	}
	return err
}

// Lead tells which controller leads, where this host knows. Calls that wait for an answer of
// another are cut off: it may be stopped rather than dead, and would never answer.
func (g *Gate) Lead(address string) {
	at := slices.Index(g.cfg.Addresses, address)
	if at < 0 {
		return
	}
	g.mu.Lock()
	changed := g.at != at
	g.at = at
	g.told = true
	g.mu.Unlock()
	if changed {
		g.relay.Reset()
	}
}

// LeadLost tells that no controller leads. Calls that wait for an answer of the one that led are
// cut off and wait for the next.
func (g *Gate) LeadLost() {
	g.mu.Lock()
	g.told = false
	g.mu.Unlock()
	g.relay.Reset()
}

// leaveSilent has the next controller tried before the one that answers nothing.
func (g *Gate) leaveSilent() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.at = (g.at + 1) % len(g.cfg.Addresses)
}

// How long a controller may be silent before this host looks for another, or
// tells the user: longer than a moment's trouble, shorter than his patience.
const (
	dialEach    = 4 * time.Second
	silentAfter = 10 * time.Second
	// electionPatience is how long a call waits for the controllers to have a leader.
	electionPatience = 20 * time.Second
)

// dial connects to the controller that leads, or where none is known to, to the one that answered
// last or the next.
func (g *Gate) dial(ctx context.Context) (net.Conn, error) {
	if self := g.cfg.Source.Self(); !time.Now().Before(self.NotAfter) {
		return nil, fmt.Errorf(
			"the certificate of this host expired at %s: enrol it again (`%s` on the controller's host makes the token)",
			self.NotAfter.Format(time.RFC3339),
			g.cfg.Enrol,
		)
	}
	g.mu.Lock()
	first := g.at
	tries := len(g.cfg.Addresses)
	if g.told {
		// It may not serve yet. The others do not lead, and one of them may have been stopped, which would
		// keep the call for as long as it is dialled.
		tries = 1
	}
	g.mu.Unlock()
	var failed []error
	for i := range tries {
		at := (first + i) % len(g.cfg.Addresses)
		conn, err := g.dialOne(ctx, g.cfg.Addresses[at])
		if err == nil {
			g.mu.Lock()
			g.at = at
			g.mu.Unlock()
			return conn, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(failed) == 1 {
		return nil, failed[0]
	}
	return nil, noLeader(failed)
}

// noLeader is the error of several controllers none of which leads.
func noLeader(failed []error) error {
	var standing, silent []string
	for _, err := range failed {
		var standby *standbyError
		if errors.As(err, &standby) {
			standing = append(standing, standby.address)
		} else {
			silent = append(silent, err.Error())
		}
	}
	var parts []string
	if len(standing) > 0 {
		parts = append(parts, "reached and not leading: "+strings.Join(standing, ", "))
	}
	if len(silent) > 0 {
		parts = append(parts, "not reached: "+strings.Join(silent, ", "))
	}
	return errors.New("no controller leads; " + strings.Join(parts, "; "))
}

// standbyError is what a controller that does not lead says.
type standbyError struct{ address string }

// Error names the controller.
func (e *standbyError) Error() string { return "controller " + e.address + " is a standby" }

func (g *Gate) dialOne(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialEach)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	plain, err := Patient().DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secure, err := g.cfg.Source.Secure(host, identity.Controller, framed.ALPN)(ctx, plain)
	switch {
	case channel.IsStandby(err):
		return nil, &standbyError{address}
	case err != nil:
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	return secure, nil
}

// Patient dials other hosts, and gives a connection up over which nothing has
// come for silentAfter.
func Patient() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable:   true,
			Idle:     silentAfter / 2,
			Interval: silentAfter / 8,
			Count:    4,
		},
		Control: giveUpAfter(silentAfter),
	}
}

// giveUpAfter has the kernel end a connection whose peer does not acknowledge
// what was sent for so long: a partition must not keep a command waiting.
func giveUpAfter(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) {
			serr = unix.SetsockoptInt(
				int(fd),
				unix.IPPROTO_TCP,
				unix.TCP_USER_TIMEOUT,
				int(d/time.Millisecond),
			)
		})
		return errors.Join(err, serr)
	}
}

// Again gives the request with which a call may be repeated of which nobody knows whether it
// was carried out, and false for one that must not be. A method without side effects may; a
// submission may if its client gave it a number, by which the ledger recognises it.
func Again(method string, payload []byte) ([]byte, bool) {
	const submit = "/muster.v1.Cluster/Submit"
	if method == submit {
		var request apiv1.SubmitRequest
		if err := proto.Unmarshal(payload, &request); err != nil ||
			(request.GetRequest() == 0 && !request.GetTestOnly()) {
			return nil, false
		}
		request.Again = true
		again, err := proto.Marshal(&request)
		return again, err == nil
	}
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	// The methods are looked up outside the registry's own lock, which building the descriptors
	// needs.
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, false
	}
	described, ok := found.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, false
	}
	m := described.Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return nil, false
	}
	options, ok := m.Options().(*descriptorpb.MethodOptions)
	return payload, ok &&
		options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}
