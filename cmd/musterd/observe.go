package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/collector/slurm"
	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/listen"
)

// runObserver runs the exporter beside an existing Slurm: it reads no slurm.conf,
// keeps no ledger and changes nothing. With accounting it keeps the Slurm's
// history, too.
func runObserver(
	ctx context.Context,
	cfg *conffile.Config,
	config string,
	withAccounting bool,
	log *slog.Logger,
) error {
	opts := web.Options{ConfigFile: cfg.TLS.WebConfig, TokenFile: cfg.TLS.WebTokenFile}
	if err := opts.Check(); err != nil {
		return err
	}
	l, err := listen.TCP(ctx, string(cfg.Listen.Metrics))
	if err != nil {
		return err
	}
	from := slurm.Options{
		Interval: time.Duration(cfg.Observe.Interval),
		Timeout:  time.Duration(cfg.Observe.Timeout),
		Bin:      cfg.Observe.Bin,
		Log:      log,
	}
	from.REST, err = restOf(&cfg.Observe)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	source := slurm.New(from)
	mux := http.NewServeMux()
	collector.MountObserver(
		mux,
		collector.Observed{Latest: source.Latest, Now: clock.NewSystem().Now, Version: version},
	)
	mux.HandleFunc(
		"GET /livez",
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) },
	)
	mux.HandleFunc(
		"GET /readyz",
		func(w http.ResponseWriter, _ *http.Request) { readyToShow(w, source.Latest()) },
	)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &group{ctx: ctx, wg: sync.WaitGroup{}, errs: make(chan error, 4)}
	defer g.wg.Wait()
	defer cancel()
	if withAccounting {
		acct, err := observeAccounting(ctx, g, cfg, config, log)
		if err != nil {
			return errors.Join(err, l.Close())
		}
		defer acct.close()
	}
	g.spawnPart("reader of Slurm", source.Run)
	serveHTTP(g, l, mux, opts, log)
	log.Info(
		"observing a Slurm",
		"metrics",
		l.Addr().String(),
		"interval",
		time.Duration(cfg.Observe.Interval),
	)
	select {
	case err := <-g.errs:
		return err
	case <-ctx.Done():
		return nil
	}
}

// restOf is the slurmrestd that is asked instead of running commands; nil for
// none.
func restOf(observe *conffile.Observe) (*slurm.REST, error) {
	switch {
	case observe.REST == "" && observe.RESTUser+observe.RESTTokenFile != "":
		return nil, errors.New(
			"observe.rest_user and observe.rest_token_file are of no use without observe.rest, the address of the slurmrestd",
		)
	case observe.REST == "":
		return nil, nil
	case observe.Cluster == "":
		return nil, errors.New(
			"observe.rest needs observe.cluster: slurmrestd does not say what the cluster is called",
		)
	case observe.RESTTokenFile != "" && observe.RESTUser == "":
		return nil, errors.New(
			"observe.rest_token_file needs observe.rest_user: a token is a user's",
		)
	}
	return &slurm.REST{
		URL:       observe.REST,
		User:      observe.RESTUser,
		TokenFile: observe.RESTTokenFile,
		Cluster:   observe.Cluster,
	}, nil
}

// readyToShow is ok once jobs and nodes were read.
func readyToShow(w http.ResponseWriter, snap *slurm.Snapshot) {
	if snap == nil || snap.Sections[0].At.IsZero() || snap.Sections[1].At.IsZero() {
		http.Error(w, "Slurm was not read yet: the log says why", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
