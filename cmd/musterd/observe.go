package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/observed"
	"github.com/musterhpc/muster/accounting/role"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/collector/slurm"
	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/spec"
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
	g := parts.New(ctx)
	if withAccounting {
		acct, err := observeAccounting(g, cfg, config, log)
		if err != nil {
			g.Stop()
			return errors.Join(err, l.Close())
		}
		defer acct.Close() // after the parts that use its store have ended
	}
	defer g.Stop()
	g.Spawn("reader of Slurm", source.Run)
	doors.Metrics{Pages: mux, Readers: opts, Log: log}.ServeOn(g, l)
	log.Info(
		"observing a Slurm",
		"metrics",
		l.Addr().String(),
		"interval",
		time.Duration(cfg.Observe.Interval),
	)
	select {
	case err := <-g.Failed():
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

// observeAccounting serves the accounting of an observed Slurm: its jobs in the
// store, sacct, sreport, reports, SQL and the KPIs, as for a cluster of one's
// own.
func observeAccounting(
	g *parts.Group,
	cfg *conffile.Config,
	config string,
	log *slog.Logger,
) (*role.Accounting, error) {
	if cfg.Observe.Cluster == "" {
		return nil, errors.New(
			"an observer with accounting needs observe.cluster in muster.yaml: the name under which Slurm's accounting knows the cluster (sacctmgr show cluster)",
		)
	}
	for _, dir := range [...]string{cfg.StateDir, cfg.RunDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	certificates, err := pki.LoadSource(pki.Dir(cfg.TLS.Dir))
	if err != nil {
		return nil, fmt.Errorf(
			"this host's certificate in %s (muster init makes one): %w",
			cfg.TLS.Dir,
			err,
		)
	}
	identify := host.NewCallerFunc(uint32(os.Getuid()))
	o := &observed.History{
		Config: cfg.Observe,
		Log:    log,
		Hide:   observed.ReadPrivateData(g.Context(), cfg.Observe.Bin),
		Identify: func(ctx context.Context) acctd.Caller {
			c := identify(ctx)
			return acctd.Caller{User: c.User, Admin: c.Admin || (c.UID == 0 && c.User != "")}
		},
	}
	s := &server{
		cfg:     cfg,
		config:  config,
		cluster: &spec.Config{ClusterName: cfg.Observe.Cluster},
		log:     log,
		roles:   []string{"accounting"},
		calls:   &collector.Calls{},
	}
	options := s.accountingOptions(o)
	options.Feed = func(ctx context.Context, stored func(tally.Position), failed func(error)) {
		o.FeedHistory(ctx, s.acct.Store, stored, failed)
	}
	s.acct, err = role.Open(options)
	if err != nil {
		return nil, err
	}
	endpoint, err := s.newEndpoint(certificates)
	if err != nil {
		return nil, err
	}
	service.RegisterAccountingServer(endpoint, s.acct.Service)
	pages := exporting.AccountingApart{
		Cluster: o.Config.Cluster,
		Version: version,
		Of:      s.acct,
		Head:    o.Head,
		Ready:   s.acct.CheckStores,
	}
	if err := s.accountingDoors(pages).ServeAll(g, endpoint); err != nil {
		return nil, err
	}
	g.Spawn("accounting", s.acct.Run)
	log.Info(
		"accounting reads the Slurm",
		"cluster",
		cfg.Observe.Cluster,
		"every",
		time.Duration(cfg.Observe.AccountingEvery),
		"socket",
		cfg.AccountingSocket,
	)
	return s.acct, nil
}
