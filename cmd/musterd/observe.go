package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/observed"
	"github.com/musterhpc/muster/accounting/role"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/controller/observer"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/spec"
)

// runObserver runs the exporter beside an existing Slurm. With accounting it keeps the Slurm's
// history, too.
func runObserver(
	ctx context.Context,
	cfg *conffile.Config,
	config string,
	withAccounting bool,
	logger *slog.Logger,
) error {
	options := observer.Options{Config: cfg, Version: version, Log: logger}
	if withAccounting {
		options.Accounting = func(group *parts.Group) (func(), error) {
			acct, err := observeAccounting(group, cfg, config, logger)
			if err != nil {
				return nil, err
			}
			return acct.Close, nil
		}
	}
	return observer.Run(ctx, options)
}

// observeAccounting serves the accounting of an observed Slurm: its jobs in the
// store, sacct, sreport, reports, SQL and the KPIs, as for a cluster of one's
// own.
func observeAccounting(
	group *parts.Group,
	cfg *conffile.Config,
	config string,
	logger *slog.Logger,
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
	history := &observed.History{
		Config: cfg.Observe,
		Log:    logger,
		Hide:   observed.ReadPrivateData(group.Context(), cfg.Observe.Bin),
		Identify: func(ctx context.Context) acctd.Caller {
			caller := identify(ctx)
			return acctd.Caller{User: caller.User, Admin: caller.Admin ||
				(caller.UID == 0 && caller.User != "")}
		},
	}
	s := &server{
		cfg:     cfg,
		config:  config,
		cluster: &spec.Config{ClusterName: cfg.Observe.Cluster},
		log:     logger,
		roles:   []string{"accounting"},
		calls:   &collector.Calls{},
	}
	options := s.accountingOptions(history)
	options.Feed = func(ctx context.Context, stored func(tally.Position), failed func(error)) {
		history.FeedHistory(ctx, s.acct.Store, stored, failed)
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
		Cluster: history.Config.Cluster,
		Version: version,
		Of:      s.acct,
		Head:    history.Head,
		Ready:   s.acct.CheckStores,
	}
	if err := s.accountingDoors(pages).ServeAll(group, endpoint); err != nil {
		return nil, err
	}
	group.Spawn("accounting", s.acct.Run)
	logger.Info(
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
