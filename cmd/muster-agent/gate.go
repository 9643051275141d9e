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
	"time"

	transport "github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/mtls"
)

// gate is the socket at which the commands on this host find the controllers,
// which are on others.
type gate struct {
	*transport.Gate
	socket    *listen.UnixListener
	log       *slog.Logger
	addresses []string
}

// openGate listens. A socket that is served already is an error that wraps
// listen.ErrBusy.
func openGate(
	path string,
	addresses []string,
	source *mtls.Source,
	log *slog.Logger,
) (*gate, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	self := source.Self()
	_, command := party{name: self.Node, role: self.Kind}.describeHost()
	passing, err := transport.New(
		transport.Config{Addresses: addresses, Source: source, Enrol: command, Log: log},
	)
	if err != nil {
		return nil, err
	}
	socket, err := listen.Unix(path, 0o666)
	if err != nil {
		return nil, err
	}
	return &gate{Gate: passing, socket: socket, log: log, addresses: addresses}, nil
}

// serveCommands takes the host's commands until the context ends.
func (g *gate) serveCommands(ctx context.Context, wg *sync.WaitGroup) {
	if g == nil {
		return
	}
	g.log.Info(
		"commands on this host are passed on",
		"socket",
		g.socket.Addr().String(),
		"controllers",
		strings.Join(g.addresses, " "),
	)
	wg.Go(func() {
		if err := g.Serve(ctx, g.socket); err != nil {
			g.log.Error("commands on this host are not served any more", "error", err)
		}
	})
}

// gateHere opens the gate of a compute node, unless the controller itself, or
// the agent of a login host, serves this host's commands.
func (a *assembled) gateHere(addresses []string, source *mtls.Source) *gate {
	far := remoteAddresses(addresses)
	if source == nil || len(far) < len(addresses) || slices.ContainsFunc(far, onThisHost) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(loginDir(a.s.cfg.StateDir), "tls")); err == nil {
		a.log.Info(
			"this is a login host too: its agent (muster-agent --login) serves the commands here",
		)
		return nil
	}
	g, err := openGate(a.s.cfg.Socket, addresses, source, a.log)
	switch {
	case errors.Is(err, listen.ErrBusy):
		a.log.Info(
			"the commands on this host are served by somebody else",
			"socket",
			a.s.cfg.Socket,
			"who",
			err,
		)
		return nil
	case err != nil:
		a.noteWeakness(fmt.Errorf("commands on this host do not reach the controller: %w", err))
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

// nearestAddress is the address under which the host of the first controller that is
// reached over a network can reach this one; empty where none is.
func nearestAddress(addresses []string) string {
	for _, a := range remoteAddresses(addresses) {
		c, err := net.DialTimeout(
			"udp",
			a,
			2*time.Second,
		) // asks the routing table, and sends nothing
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
