// Package web serves an exporter's pages, with TLS, passwords or a token where
// a site asks for them. TLS, client certificates and passwords (bcrypt) are
// configured in the web configuration file that Prometheus' own exporters
// read; a bearer token stands in a file of its own, since that format has no
// word for one.
package web

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"

	toolkit "github.com/prometheus/exporter-toolkit/web"

	"github.com/musterhpc/muster/collector/token"
)

// Options name the files; empty ones ask for nothing.
type Options struct {
	ConfigFile string // web configuration: TLS, client certificates, users
	TokenFile  string // of mode 0600 or less; its first line is the bearer token
}

// Check reads the files and says what is wrong with them.
func (o Options) Check() error {
	if o.ConfigFile != "" {
		if err := toolkit.Validate(o.ConfigFile); err != nil {
			return fmt.Errorf("web configuration %s: %w", o.ConfigFile, err)
		}
	}
	return token.Check(o.TokenFile)
}

// Serve serves on a listener until the server is shut down. The files are read
// again when they change: certificates for every connection, the token for
// every request, so that both can be rotated.
func (o Options) Serve(listener net.Listener, server *http.Server, logger *slog.Logger) error {
	server.Handler = token.Guard(server.Handler, o.TokenFile, logger)
	if o.ConfigFile == "" {
		return server.Serve(listener)
	}
	return toolkit.Serve(
		listener, server, &toolkit.FlagConfig{WebConfigFile: &o.ConfigFile}, logger,
	)
}
