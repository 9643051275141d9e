package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/relay"
	framedserve "github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/mtls"
)

// gate is the socket at which the commands on this host find the controller,
// which is on another: it passes their calls on and says who makes them, by the
// kernel's word. What that word is worth the controller decides.
type gate struct {
	socket    *listen.UnixListener
	relay     *relay.Relay
	server    *framedserve.Server
	log       *slog.Logger
	addresses []string
	source    *mtls.Source

	mu sync.Mutex
	at int // the address that answered last
}

// openGate listens. A socket that is served already is an error that wraps
// listen.ErrBusy.
func openGate(path string, addresses []string, source *mtls.Source, log *slog.Logger) (*gate, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	g := &gate{addresses: addresses, source: source, log: log}
	g.relay = relay.New(g.dial)
	var err error
	g.server, err = framedserve.New(framedserve.Config{Handler: g.relay.Handle, Authenticate: (&channel.Server{}).Authenticate, Log: log})
	if err != nil {
		return nil, err
	}
	if g.socket, err = listen.Unix(path, 0o666); err != nil {
		return nil, err
	}
	return g, nil
}

// serve takes the host's commands until the context ends.
func (g *gate) serve(ctx context.Context, wg *sync.WaitGroup) {
	if g == nil {
		return
	}
	g.log.Info("commands on this host are passed on", "socket", g.socket.Addr().String(), "controllers", strings.Join(g.addresses, " "))
	wg.Go(func() {
		if err := g.server.Serve(g.socket); !errors.Is(err, framedserve.ErrStopped) {
			g.log.Error("commands on this host are not served any more", "error", err)
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.server.Shutdown(stop)
		_ = g.relay.Close()
	})
}

// How long a controller may be silent before this host looks for another, or
// tells the user: longer than a moment's trouble, shorter than his patience.
const (
	dialEach    = 4 * time.Second
	silentAfter = 10 * time.Second
)

// dial connects to the controller that answered last, or to the next.
func (g *gate) dial(ctx context.Context) (net.Conn, error) {
	if self := g.source.Self(); !time.Now().Before(self.NotAfter) {
		_, command := party{name: self.Node, role: self.Kind}.called()
		return nil, fmt.Errorf("the certificate of this host expired at %s: enrol it again (`%s` on the controller's host makes the token)",
			self.NotAfter.Format(time.RFC3339), command)
	}
	g.mu.Lock()
	first := g.at
	g.mu.Unlock()
	var errs []error
	for i := range g.addresses {
		at := (first + i) % len(g.addresses)
		conn, err := g.dialOne(ctx, g.addresses[at])
		if err == nil {
			g.mu.Lock()
			g.at = at
			g.mu.Unlock()
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) > 1 { // one line
		texts := make([]string, len(errs))
		for i, err := range errs {
			texts[i] = err.Error()
		}
		return nil, errors.New(strings.Join(texts, "; "))
	}
	return nil, errs[0]
}

func (g *gate) dialOne(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialEach)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	plain, err := patient().DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	secure, err := g.source.Secure(host, identity.Controller, framed.ALPN)(ctx, plain)
	if err != nil {
		return nil, fmt.Errorf("controller %s: %w", address, err)
	}
	return secure, nil
}

// patient dials other hosts, and gives a connection up over which nothing has
// come for silentAfter.
func patient() *net.Dialer {
	return &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silentAfter / 2, Interval: silentAfter / 8, Count: 4}, Control: giveUpAfter(silentAfter)}
}

// giveUpAfter has the kernel end a connection whose peer does not acknowledge
// what was sent for so long: a partition must not keep a command waiting.
func giveUpAfter(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var serr error
		err := c.Control(func(fd uintptr) {
			serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
		})
		return errors.Join(err, serr)
	}
}

// gateHere opens the gate of a compute node, unless the controller itself, or
// the agent of a login host, serves this host's commands.
func (a *assembled) gateHere(addresses []string, source *mtls.Source) *gate {
	far := remotes(addresses)
	if source == nil || len(far) < len(addresses) || slices.ContainsFunc(far, onThisHost) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(loginDir(a.s.cfg.StateDir), "tls")); err == nil {
		a.log.Info("this is a login host too: its agent (muster-agent --login) serves the commands here")
		return nil
	}
	g, err := openGate(a.s.cfg.Socket, addresses, source, a.log)
	switch {
	case errors.Is(err, listen.ErrBusy):
		a.log.Info("the commands on this host are served by somebody else", "socket", a.s.cfg.Socket, "who", err)
		return nil
	case err != nil:
		a.weak(fmt.Errorf("commands on this host do not reach the controller: %w", err))
		return nil
	}
	return g
}

// onThisHost tells an address of this very machine, by what the resolver and
// the interfaces say.
func onThisHost(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if name, err := os.Hostname(); err == nil && strings.EqualFold(host, name) {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(found, func(ip net.IPAddr) bool {
		return ip.IP.IsLoopback() || slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip.IP)
		})
	})
}

// nearest is the address under which the host of the first controller that is
// reached over a network can reach this one; empty where none is.
func nearest(addresses []string) string {
	for _, a := range remotes(addresses) {
		c, err := net.DialTimeout("udp", a, 2*time.Second) // asks the routing table, and sends nothing
		if err != nil {
			continue
		}
		local := c.LocalAddr()
		_ = c.Close()
		if u, ok := local.(*net.UDPAddr); ok && !u.IP.IsUnspecified() && !u.IP.IsLoopback() {
			return u.IP.String()
		}
	}
	return ""
}
