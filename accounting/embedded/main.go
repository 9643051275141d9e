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
func Main(ctx context.Context, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	if options.Log == nil {
		options.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if options.UntilEOF {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		// Ends with the process at the latest: standard input cannot be read with a deadline.
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // its end is what counts
			cancel()
		}()
	}
	logins, err := options.readPasswords()
	if err != nil && options.TCPOptional {
		options.withoutTCP(err)
		options.TCP, err = "", nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(options.Data, 0o700); err != nil {
		return fmt.Errorf("make the data path: %w", err)
	}
	lock, err := lockData(options.Data)
	if err != nil {
		return err
	}
	defer lock.Close()
	pool, err := openPool(options)
	if err != nil {
		return err
	}
	err = serve(ctx, options, pool, logins)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), options.Grace)
	defer cancel()
	return errors.Join(err, pool.Close(closing))
}

// withoutTCP says that nobody can log in.
func (o Options) withoutTCP(err error) {
	o.Log.Error(
		"nobody can log in to the ClickHouse engine; accounting itself goes on",
		"address",
		o.TCP,
		"error",
		err,
		"cure",
		"make the password file (umask 077; openssl rand -hex 24 > FILE) or free the address, and restart the accounting",
	)
}

// Command is what a program does for its Subcommand: it reads args, runs Main and returns the
// exit status, with the reason on errors when it is not 0.
func Command(ctx context.Context, args []string, errs io.Writer) int {
	options, err := ParseArgs(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errs, err)
		return 2
	}
	switch err = Main(ctx, options); {
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
func openPool(options Options) (*front.Pool, error) {
	// The engine reads config.xml from its working folder and from $HOME, and takes its time
	// zone from TZ.
	if err := os.Chdir(options.Data); err != nil {
		return nil, fmt.Errorf("enter the data path: %w", err)
	}
	for name, value := range map[string]string{"HOME": options.Data, "TZ": "UTC"} {
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set %s: %w", name, err)
		}
	}
	started := time.Now()
	lib, err := chdb.Open(options.Library)
	if err != nil {
		return nil, err
	}
	backups := filepath.Join(options.Data, "backups")
	if err := os.MkdirAll(backups, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for backups: %w", err)
	}
	args := []string{"--backups.allowed_path=" + backups}
	if options.Config != "" {
		args = append(args, "--config-file="+options.Config)
	}
	if options.Memory > 0 {
		args = append(args, "--max_server_memory_usage="+strconv.Itoa(options.Memory<<20))
	}
	pool, err := front.NewPool(
		lib,
		filepath.Join(options.Data, "clickhouse"),
		args,
		front.PoolOptions{
			Writers: options.Writers, Readers: options.Readers, Settings: safeSettings(options.Settings), Reading: options.Reading, Log: options.Log,
		},
	)
	if err != nil {
		return nil, fmt.Errorf(
			"%w: %s (is it writable, and were its files written by a ClickHouse no newer than %s?)",
			err,
			options.Data,
			lib.Version(),
		)
	}
	options.Log.Info(
		"the ClickHouse engine is open",
		"version",
		lib.Version(),
		"data",
		options.Data,
		"took",
		time.Since(started).String(),
	)
	return pool, nil
}

// serve answers requests until ctx is over, then lets the running ones finish.
func serve(ctx context.Context, options Options, pool *front.Pool, logins []front.Login) error {
	// Requests live on a context of their own, which outlives ctx by the grace.
	requests, killRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer killRequests()
	listeners := map[net.Listener]bool{}
	unix, err := listenUnix(ctx, options.Socket)
	if err != nil {
		return err
	}
	listeners[unix] = true
	if options.TCP != "" {
		tcp, err := listenTCP(ctx, options)
		switch {
		case err == nil:
			listeners[tcp] = false
			options.Log.Info(
				"listening for logins",
				"address",
				tcp.Addr().String(),
				"tls",
				options.TLSCert != "",
			)
		case options.TCPOptional:
			options.withoutTCP(err)
		default:
			return errors.Join(err, unix.Close())
		}
	}
	failed := make(chan error, len(listeners))
	var servers []*http.Server
	for listener, trusted := range listeners {
		server := &http.Server{
			Handler:           front.NewHandler(pool, logins, trusted),
			ReadHeaderTimeout: 30 * time.Second,
			IdleTimeout:       5 * time.Minute,
			BaseContext:       func(net.Listener) context.Context { return requests },
			ErrorLog:          slog.NewLogLogger(options.Log.Handler(), slog.LevelWarn),
		}
		servers = append(servers, server)
		go func() { failed <- server.Serve(listener) }()
	}
	options.Log.Info("listening", "socket", options.Socket)
	select {
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
		err = nil
	}
	grace, cancel := context.WithTimeout(requests, options.Grace)
	defer cancel()
	for _, server := range servers {
		if server.Shutdown(grace) != nil {
			options.Log.Warn(
				"stopping statements that did not end in time",
				"grace",
				options.Grace.String(),
			)
			killRequests()
			_ = server.Close() // the connections of the killed
		}
	}
	return err
}
