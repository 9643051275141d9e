package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
	_ "time/tzdata"

	"github.com/musterhpc/muster/accounting/clickhouse"
	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/embedded"
	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/mailing"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/controller/founding"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// accounting is the accounting role of this process: the store, the engine
// behind it when it is the embedded one, and the service over both.
type accounting struct {
	cfg     conffile.Embedded
	own     bool // the embedded engine
	store   *clickhouse.Store
	daemon  *acctd.Daemon
	service service.AccountingServer
	log     *slog.Logger
	mail    *mailing.Mailer // nil = no reports are mailed by schedule
}

// openAccounting prepares the store. The engine, or the server, need not be
// there: jobs run without it, and the ledger is the buffer.
func (s *server) openAccounting(from feed.Access) (*accounting, error) {
	return s.openAccountingWith(from, nil)
}

// openAccountingWith is openAccounting for a history that something else than a
// ledger feeds.
func (s *server) openAccountingWith(
	from feed.Access,
	feed func(ctx context.Context, stored func(tally.Position), failed func(error)),
) (*accounting, error) {
	codec, err := event.NewCodec()
	if err != nil {
		return nil, err
	}
	rates, err := s.cfg.Rates()
	if err != nil {
		return nil, err
	}
	if len(rates.Budgets) > 0 && len(rates.Prices) == 0 {
		s.log.Warn(
			"cost.budgets stand in muster.yaml without cost.prices: nothing is counted against them",
		)
	}
	if e := s.cluster.Enforce; slices.ContainsFunc(
		rates.Budgets,
		func(b kpi.Budget) bool { return b.Enforce },
	) &&
		!e.Limits {
		s.log.Warn(
			"cost.budgets says enforce, and slurm.conf enforces no limits: no job waits for money",
			"cure",
			"AccountingStorageEnforce=associations,limits",
		)
	}
	objectives, err := s.cfg.Objectives()
	if err != nil {
		return nil, err
	}
	a := &accounting{cfg: s.cfg.ClickHouse.Embedded, own: s.cfg.UsesEmbedded(), log: s.log}
	if a.own && s.cfg.ClickHouse.Cluster != "" {
		s.log.Warn(
			"clickhouse.cluster has no effect without clickhouse.dsn: the embedded engine is one server",
		)
	}
	opts, err := s.storeOptions()
	if err != nil {
		return nil, err
	}
	opts.Rates = &rates
	a.store, err = clickhouse.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("the accounting store: %w", err)
	}
	identify := host.NewCallerFunc(uint32(os.Getuid()))
	a.daemon = acctd.New(acctd.Config{
		Source: from, Feed: feed,
		Store: a.store,
		OpenWriter: func(ctx context.Context, ledger [16]byte, cluster string) (acctd.Writer, tally.Resume, error) {
			return a.store.NewWriter(ctx, ledger, cluster)
		},
		Codec: codec, Clock: host.Clock{Of: clock.NewSystem()}, Log: s.log,
		Identity: from.Identity,
		Content:  from.Content,
		Private:  from.Private, Operators: !s.hasRole("controller"),
		Confirm: from.Confirm, Lost: from.Lost,
		Identify: func(ctx context.Context) acctd.Caller {
			c := identify(ctx)
			return acctd.Caller{
				User:    c.User,
				Admin:   c.Admin || (c.UID == 0 && c.User != ""),
				Limited: c.Limited,
			}
		},
		Objectives: objectives, Rates: rates, Enforce: from.Enforce(&rates),
		MayPut: authz.SpeaksForNode, SampleKeep: s.cfg.Accounting.SamplesKeep,
		Archive: s.cfg.Accounting.Archive, Retention: s.cfg.Accounting.Retention(),
		Interval: s.cfg.Accounting.BatchInterval, BatchRows: int(s.cfg.Accounting.BatchRows),
	})
	a.service = a.daemon.Service()
	a.mail, err = mailing.New(
		s.cfg,
		s.config,
		func() mailing.Role { return mailing.RoleOf(a.daemon.Status()) },
		time.Now,
		s.log,
	)
	if err != nil {
		s.log.Error("no reports are mailed", "error", err) // jobs run without them
	}
	return a, nil
}

// storeOptions say where accounting is stored.
func (s *server) storeOptions() (clickhouse.Options, error) {
	if s.cfg.UsesEmbedded() {
		return clickhouse.Options{Socket: s.cfg.ClickHouse.Embedded.Socket}, nil
	}
	dsn, err := s.cfg.DataSource()
	if err != nil {
		return clickhouse.Options{}, fmt.Errorf("clickhouse.dsn: %w", err)
	}
	return clickhouse.Options{
		DSN:    dsn.Reveal(),
		Layout: clickhouse.Layout{Cluster: s.cfg.ClickHouse.Cluster},
	}, nil
}

// run keeps the embedded engine up, if it is ours, and serves.
func (a *accounting) run(ctx context.Context) error {
	if a.own {
		engine := a.keepEngine(ctx)
		if engine == nil {
			return nil
		}
		defer func() {
			if err := engine.Close(); err != nil {
				a.log.Warn("the ClickHouse engine did not end cleanly", "error", err)
			}
		}()
	}
	if a.mail != nil {
		ctx, cancel := context.WithCancel(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { a.mail.Run(ctx) })
		defer func() { cancel(); wg.Wait() }()
	}
	return a.daemon.Run(ctx)
}

// engineOptions are those of the embedded engine as it is configured.
func engineOptions(c *conffile.Embedded, log *slog.Logger) embedded.Options {
	o := embedded.Options{
		Data:    c.DataDir,
		Library: c.Library,
		Socket:  c.Socket,
		Memory:  int(c.MaxMemory / conffile.MiB),
		Log:     log,
	}
	if c.Listen.Off() {
		return o
	}
	o.TCP, o.TCPOptional = c.ReaderAddress(), true
	o.TLSCert, o.TLSKey = c.ListenCert, c.ListenKey
	o.Logins = []embedded.Login{
		{Name: c.ListenUser, PasswordFile: c.ListenPasswordFile, ReadOnly: true},
	}
	o.Readers = int(c.ListenMaxQueries)
	o.Reading = embedded.DefaultReading()
	o.Reading["max_execution_time"] = strconv.FormatInt(int64(c.ListenMaxTime/spec.Second), 10)
	o.Reading["max_memory_usage"] = strconv.FormatInt(int64(c.MaxQueryMemory), 10)
	return o
}

// keepEngine starts the embedded engine, again and again until it starts or the
// context ends. From then on its supervisor restarts it.
func (a *accounting) keepEngine(ctx context.Context) *embedded.Supervisor {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		start, cancel := context.WithTimeout(ctx, time.Minute)
		supervisor, err := embedded.Start(start, engineOptions(&a.cfg, a.log))
		cancel()
		if err == nil {
			return supervisor
		}
		if ctx.Err() != nil {
			return nil
		}
		a.daemon.Waits(err)
		if errors.Is(err, embedded.ErrNoLibrary) {
			a.log.Error(
				"accounting waits for the ClickHouse engine: jobs run, and nothing is lost",
				"error",
				err,
				"cure",
				"run deploy/engine/fetch.sh, or set clickhouse.embedded.library or clickhouse.dsn in muster.yaml",
			)
		} else {
			a.log.Error("the ClickHouse engine does not start: jobs run, and nothing is lost", "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *accounting) close() {
	if err := a.store.Close(); err != nil {
		a.log.Warn("close the accounting store", "error", err)
	}
}

// Lag is how far the store is behind, for /metrics.
func (a *accounting) Lag() collector.AccountingLag {
	status := a.daemon.Status()
	lag := collector.AccountingLag{
		Up:             status.Up,
		Seq:            status.Seq,
		Seconds:        float64(status.Lag) / float64(spec.Second),
		SamplesStored:  status.SamplesStored,
		SamplesRefused: status.SamplesRefused,
		SamplesLeftOut: status.SamplesLeftOut,
		SamplesWaiting: status.SamplesWaiting,
	}
	if a.mail != nil {
		lag.ReportsMailed, lag.ReportsFailed = a.mail.Sent.Load(), a.mail.Failed.Load()
	}
	return lag
}

// KPIs, Budgets and Findings are what accounting has computed, for /metrics.
func (a *accounting) KPIs() []kpi.Value { return a.daemon.KPIs() }

// Budgets implements exporting.Accounting.
func (a *accounting) Budgets() []kpi.Spent { return a.daemon.Budgets() }

// Findings implements exporting.Accounting.
func (a *accounting) Findings() *findings.Found { return a.daemon.Findings() }

// checkStores says why the store takes no rows; nil = it does.
func (a *accounting) checkStores() error {
	if st := a.daemon.Status(); !st.Up {
		return fmt.Errorf("the store takes no rows: %v", st.Error)
	}
	return nil
}

// founding keeps this controller from founding a cluster where there is one.
func (s *server) founding() *founding.Guard {
	_, port, err := net.SplitHostPort(string(s.cfg.Listen.AgentGRPC))
	if err != nil {
		port = "" // agents listen nowhere
	}
	return &founding.Guard{
		StateDir:  s.cfg.StateDir,
		Cluster:   s.cluster,
		Anew:      s.anew,
		Blobs:     func() int { return s.blobs.Disk.Stats().Blobs },
		AskStore:  s.askStore,
		AgentPort: port,
		Log:       s.log,
	}
}

// askStore asks the store of a DSN. The embedded engine has its data in the state
// folder, or is not there before accounting runs.
func (s *server) askStore(
	ctx context.Context,
	cluster string,
) (_ []clickhouse.KnownLedger, err error) {
	if s.cfg.UsesEmbedded() {
		return nil, nil
	}
	opts, err := s.storeOptions()
	if err != nil {
		return nil, err
	}
	store, err := clickhouse.Open(opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return store.LedgersOf(ctx, cluster)
}
