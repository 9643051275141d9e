package stepserver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/controllers"
	"github.com/musterhpc/muster/spec"
)

// Options say where steps are reached.
type Options struct {
	Node        *spec.NodeSpec
	Hostname    string
	Socket      string        // for the clients of this node's steps
	Near        string        // socket for those on this host whose steps are elsewhere
	Listen      conffile.Addr // for other agents
	Controllers []string      // where the cluster's are
	Source      *pki.Source   // nil: other nodes cannot be reached
	Displays    Displays      // nil: jobs have no displays here
	Log         *slog.Logger
	// NoteWeakness takes what cannot be followed and takes nothing from the jobs.
	NoteWeakness func(error)
}

// Open opens the listeners; controllers are where the cluster's are, which
// tells under which address this host is known. Without the one of this machine no steps are
// started here, and the node says so.
func Open(ctx context.Context, options Options) *Server {
	server := &Server{
		node:    options.Node.Name,
		source:  options.Source,
		screens: options.Displays,
		log:     options.Log,
	}
	var err error
	server.unix, err = listen.Unix(options.Socket, 0o666)
	if err != nil {
		options.NoteWeakness(fmt.Errorf("srun cannot start steps on this node: %w", err))
		return nil
	}
	err = os.MkdirAll(filepath.Dir(options.Near), 0o755)
	if err == nil {
		server.near, err = listen.Unix(options.Near, 0o666)
	}
	if err != nil { // mostly another agent of this host: srun needs one of them
		options.Log.Info(
			"srun of jobs that are elsewhere does not go through this agent", "why", err,
		)
	}
	if options.Source == nil || options.Listen.Off() {
		return server
	}
	_, server.port, _ = net.SplitHostPort(string(options.Listen))
	plain, err := listen.TCP(ctx, string(options.Listen))
	switch {
	case errors.Is(err, listen.ErrBusy):
		// Mostly the agent of another node of a lab, where srun is on the same
		// machine: nothing that the node should say of itself.
		options.Log.Warn("srun on other machines cannot reach the steps of this node", "error", err)
		return server
	case err != nil:
		options.NoteWeakness(
			fmt.Errorf("srun on other machines cannot reach the steps of this node: %w", err),
		)
		return server
	}
	server.tcp = tls.NewListener(plain, options.Source.Server(true, ALPN))
	server.address = options.reachedAt(plain)
	return server
}

// reachedAt is the address of a listener for other hosts: NodeAddr, where
// slurm.conf gives one besides the name, else the one from which this host
// reaches the controller, which needs no resolver.
func (o *Options) reachedAt(listener net.Listener) string {
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = cmp.Or(o.Node.Addr, o.Hostname)
		isOwnName := host == o.Node.Name || host == cmp.Or(o.Node.Hostname, o.Hostname)
		if own := controllers.NearestAddress(o.Controllers); own != "" && isOwnName {
			host = own
		}
	}
	return net.JoinHostPort(host, port)
}

// NewRelay makes a server without steps of its own, which passes clients on to the agents
// of other nodes. Others that do not say so listen at port.
func NewRelay(node, port string, source *pki.Source, logger *slog.Logger) *Server {
	return &Server{node: node, source: source, port: port, log: logger}
}

// ListenNear opens the socket for the clients on this host.
func (s *Server) ListenNear(path string) (err error) {
	s.near, err = listen.Unix(path, 0o666)
	return err
}
