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

// ServeHealth answers probes on an address: /healthz always, /readyz with the words of
// ready, or with its error as 503. It ends with the context; what is returned waits for
// that. An empty address serves nothing.
func ServeHealth(ctx context.Context, address string, ready func() (string, error), log *slog.Logger) (wait func(), err error) {
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
		text, err := ready()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, text)
	})
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
			log.Error("probes are not answered any more", "address", address, "error", err)
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	return func() {
		stop()
		_ = server.Close() // a second time it does nothing
		<-done
	}, nil
}
