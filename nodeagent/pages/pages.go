// Package pages serves the metrics and the health of a node's agent.
package pages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/settings"
)

// Pages are those of one agent.
type Pages struct {
	listener net.Listener // nil = metrics are off
	address  string       // as others reach it; "" = metrics are off
	readers  web.Options  // what is asked of those who read the metrics
	log      *slog.Logger
}

// Open opens the address of the metrics, unless it is off.
func Open(ctx context.Context, s *settings.Settings, logger *slog.Logger) (*Pages, error) {
	pages := &Pages{
		readers: web.Options{
			ConfigFile: s.Config.TLS.AgentWebConfig,
			TokenFile:  s.Config.TLS.WebTokenFile,
		},
		log: logger,
	}
	address := conffile.Addr(cmp.Or(s.Options.Metrics, string(s.Config.Listen.AgentMetrics)))
	if address.Off() || address == "off" {
		return pages, nil
	}
	if !strings.Contains(string(address), ":") {
		address = ":" + address
	}
	var err error
	pages.listener, err = listen.TCP(ctx, string(address))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w (choose another address with --metrics)", err)
	}
	hostPart, port, err := net.SplitHostPort(pages.listener.Addr().String())
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(hostPart); ip == nil || ip.IsUnspecified() {
		hostPart = cmp.Or(s.Node.Addr, s.Host.Hostname)
	}
	pages.address = net.JoinHostPort(hostPart, port)
	return pages, nil
}

// Address is where the metrics are, as others reach it; empty = they are off.
func (p *Pages) Address() string { return p.address }

// Serve serves metrics and health until the context ends.
func (p *Pages) Serve(
	ctx context.Context,
	wg *sync.WaitGroup,
	metrics http.Handler,
	readHealth func() daemon.Health,
) error {
	if p.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		health := readHealth()
		writeHealth(w, health.Shepherd, health)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		health := readHealth()
		writeHealth(w, health.Shepherd && health.Connected, health)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if err := p.readers.Check(); err != nil {
		return err
	}
	wg.Go(func() {
		if err := p.readers.Serve(
			p.listener, server, p.log,
		); !errors.Is(err, http.ErrServerClosed) {
			p.log.Error("metrics are not served any more", "error", err)
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(stop)
	})
	p.log.Info("metrics", "address", p.listener.Addr().String())
	return nil
}

// writeHealth says how the agent does.
func writeHealth(writer http.ResponseWriter, ok bool, health daemon.Health) {
	if !ok {
		writer.WriteHeader(http.StatusServiceUnavailable)
	}
	says := func(yes bool, good, bad string) string {
		if yes {
			return good
		}
		return bad
	}
	fmt.Fprintf(
		writer,
		"shepherd: %s\ncontroller: %s\nreports waiting: %d\n",
		says(health.Shepherd, "answers", "does not answer"),
		says(health.Connected, "connected", "not connected, jobs go on"),
		health.Pending,
	)
}
