package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Pages are what a program says of itself.
type Pages struct {
	// Ready are the words of /readyz, or its error as 503.
	Ready func() (string, error)
	// Metrics is /metrics; nil: there are none.
	Metrics http.Handler
}

// Serve answers on an address: /healthz always, and the pages. It ends with the context; what
// is returned waits for that. An empty address serves nothing.
func Serve(ctx context.Context, address string, pages Pages, log *slog.Logger) (wait func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		text, err := pages.Ready()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, text)
	})
	if pages.Metrics != nil {
		mux.Handle("GET /metrics", pages.Metrics)
	}
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       time.Minute,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("probes and scrapes are not answered any more", "address", address, "error", err)
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	return func() {
		stop()
		_ = server.Close() // a second time it does nothing
		<-done
	}, nil
}
