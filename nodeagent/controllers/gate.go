package controllers

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	transport "github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// Gate is the socket at which the commands on this host find the controllers,
// which are on others.
type Gate struct {
	*transport.Gate
	socket    *listen.UnixListener
	log       *slog.Logger
	addresses []string
}

// OpenGate listens. enrol is the command that makes a token for this host. A socket that is served already is an error that wraps
// listen.ErrBusy.
func OpenGate(
	path string,
	addresses []string,
	source *pki.Source,
	enrol string,
	logger *slog.Logger,
) (*Gate, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	passing, err := transport.New(
		transport.Config{Addresses: addresses, Source: source, Enrol: enrol, Log: logger},
	)
	if err != nil {
		return nil, err
	}
	socket, err := listen.Unix(path, 0o666)
	if err != nil {
		return nil, err
	}
	return &Gate{Gate: passing, socket: socket, log: logger, addresses: addresses}, nil
}

// ServeCommands takes the host's commands until the context ends.
func (g *Gate) ServeCommands(ctx context.Context, wg *sync.WaitGroup) {
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
