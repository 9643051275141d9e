package embedded

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
	"github.com/musterhpc/muster/accounting/embedded/front"
)

// Main is the engine process. It returns nil once it has stopped because ctx is over, SIGTERM
// or SIGINT came, or, with UntilEOF, standard input ended. An error wraps ErrInUse when another
// process has the data path, ErrNoLibrary when there is no engine library.
//
// It changes the process's working folder and environment, so it belongs in a process of its own.
func Main(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if o.UntilEOF {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		// Ends with the process at the latest: standard input cannot be read with a deadline.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // its end is what counts
			cancel()
		}()
	}
	logins, err := o.readPasswords()
	if err != nil && o.TCPOptional {
		o.withoutTCP(err)
		o.TCP, err = "", nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.Data, 0o700); err != nil {
		return fmt.Errorf("make the data path: %w", err)
	}
	lock, err := lockData(o.Data)
	if err != nil {
		return err
	}
	defer lock.Close()
	pool, err := openPool(o)
	if err != nil {
		return err
	}
	err = serve(ctx, o, pool, logins)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.Grace)
	defer cancel()
	return errors.Join(err, pool.Close(closing))
}

// withoutTCP says that nobody can log in.
func (o Options) withoutTCP(err error) {
	o.Log.Error("nobody can log in to the ClickHouse engine; accounting itself goes on", "address", o.TCP, "error", err,
		"cure", "make the password file (umask 077; openssl rand -hex 24 > FILE) or free the address, and restart the accounting")
}

// Command is what a program does for its Subcommand: it reads args, runs Main and returns the
// exit status, with the reason on errors when it is not 0.
func Command(ctx context.Context, args []string, errs io.Writer) int {
	o, err := ParseArgs(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errs, err)
		return 2
	}
	switch err = Main(ctx, o); {
	case err == nil:
		return 0
	case errors.Is(err, ErrInUse):
		fmt.Fprintln(errs, err)
		return ExitInUse
	}
	fmt.Fprintln(errs, err)
	return 1
}

// openPool starts the engine.
func openPool(o Options) (*front.Pool, error) {
	// The engine reads config.xml from its working folder and from $HOME, and takes its time
	// zone from TZ.
	if err := os.Chdir(o.Data); err != nil {
		return nil, fmt.Errorf("enter the data path: %w", err)
	}
	for name, value := range map[string]string{"HOME": o.Data, "TZ": "UTC"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	started := time.Now()
	lib, err := chdb.Open(o.Library)
	if err != nil {
		return nil, err
	}
	backups := filepath.Join(o.Data, "backups")
	if err := os.MkdirAll(backups, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for backups: %w", err)
	}
	args := []string{"--backups.allowed_path=" + backups}
	if o.Config != "" {
		args = append(args, "--config-file="+o.Config)
	}
	if o.Memory > 0 {
		args = append(args, "--max_server_memory_usage="+strconv.Itoa(o.Memory<<20))
	}
	pool, err := front.NewPool(lib, filepath.Join(o.Data, "clickhouse"), args, front.PoolOptions{
		Writers: o.Writers, Readers: o.Readers, Settings: safeSettings(o.Settings), Reading: o.Reading, Log: o.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %s (is it writable, and were its files written by a ClickHouse no newer than %s?)", err, o.Data, lib.Version())
	}
	o.Log.Info("the ClickHouse engine is open", "version", lib.Version(), "data", o.Data, "took", time.Since(started).String())
	return pool, nil
}

// serve answers requests until ctx is over, then lets the running ones finish.
func serve(ctx context.Context, o Options, pool *front.Pool, logins []front.Login) error {
	// Requests live on a context of their own, which outlives ctx by the grace.
	requests, killRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer killRequests()
	listeners := map[net.Listener]bool{}
	unix, err := listenUnix(ctx, o.Socket)
	if err != nil {
		return err
	}
	listeners[unix] = true
	if o.TCP != "" {
		tcp, err := listenTCP(ctx, o)
		switch {
		case err == nil:
			listeners[tcp] = false
			o.Log.Info("listening for logins", "address", tcp.Addr().String(), "tls", o.TLSCert != "")
		case o.TCPOptional:
			o.withoutTCP(err)
		default:
			return errors.Join(err, unix.Close())
		}
	}
	failed := make(chan error, len(listeners))
	var servers []*http.Server
	for l, trusted := range listeners {
		server := &http.Server{
			Handler:           front.NewHandler(pool, logins, trusted),
			ReadHeaderTimeout: 30 * time.Second,
			IdleTimeout:       5 * time.Minute,
			BaseContext:       func(net.Listener) context.Context { return requests },
			ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
		}
		servers = append(servers, server)
		go func() { failed <- server.Serve(l) }()
	}
	o.Log.Info("listening", "socket", o.Socket)
	select {
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		err = nil
	}
	grace, cancel := context.WithTimeout(requests, o.Grace)
	defer cancel()
	for _, server := range servers {
		if server.Shutdown(grace) != nil {
			o.Log.Warn("stopping statements that did not end in time", "grace", o.Grace.String())
			killRequests()
			_ = server.Close() // the connections of the killed
		}
	}
	return err
}
