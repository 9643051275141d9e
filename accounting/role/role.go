// Package role is accounting as a role of a process: the store, the engine behind it when it is the
// embedded one, the service over both, and the mails that go out by schedule.
package role

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

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
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Accounting is the accounting of a process.
type Accounting struct {
	Service service.AccountingServer
	Store   *clickhouse.Store

	cfg    conffile.Embedded
	own    bool // the embedded engine
	daemon *acctd.Daemon
	log    *slog.Logger
	mail   *mailing.Mailer // nil = no reports are mailed by schedule
}

// Options say what is accounted for, and how.
type Options struct {
	Config  *conffile.Config
	Path    string // of muster.yaml
	Cluster *spec.Config
	Source  feed.Access
	// Feed replaces the source where something else than a ledger feeds the store; nil elsewhere.
	Feed func(ctx context.Context, stored func(tally.Position), failed func(error))
	// Operators tells that the store says who is an operator: no controller in this process does.
	Operators bool
	Log       *slog.Logger
}

// Open prepares the store. The engine, or the server, need not be
// there: jobs run without it, and the ledger is the buffer.
func Open(options Options) (*Accounting, error) {
	codec, err := event.NewCodec()
	if err != nil {
		return nil, err
	}
	rates, err := options.Config.Rates()
	if err != nil {
		return nil, err
	}
	if len(rates.Budgets) > 0 && len(rates.Prices) == 0 {
		options.Log.Warn(
			"cost.budgets stand in muster.yaml without cost.prices: nothing is counted against them",
		)
	}
	if enforcesBudgets(rates.Budgets) && !options.Cluster.Enforce.Limits {
		options.Log.Warn(
			"cost.budgets says enforce, and slurm.conf enforces no limits: no job waits for money",
			"cure",
			"AccountingStorageEnforce=associations,limits",
		)
	}
	objectives, err := options.Config.Objectives()
	if err != nil {
		return nil, err
	}
	accounting := &Accounting{
		cfg: options.Config.ClickHouse.Embedded,
		own: options.Config.UsesEmbedded(),
		log: options.Log,
	}
	if accounting.own && options.Config.ClickHouse.Cluster != "" {
		options.Log.Warn(
			"clickhouse.cluster has no effect without clickhouse.dsn: the embedded engine is one server",
		)
	}
	opts, err := storeOptions(options.Config)
	if err != nil {
		return nil, err
	}
	opts.Rates = &rates
	accounting.Store, err = clickhouse.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("the accounting store: %w", err)
	}
	identify := host.NewCallerFunc(uint32(os.Getuid()))
	from := options.Source
	accounting.daemon = acctd.New(acctd.Config{
		Source: from,
		Feed:   options.Feed,
		Store:  accounting.Store,
		OpenWriter: func(ctx context.Context, ledger [16]byte, cluster string) (acctd.Writer, tally.Resume, error) {
			return accounting.Store.NewWriter(ctx, ledger, cluster)
		},
		Codec:     codec,
		Clock:     host.Clock{Of: clock.NewSystem()},
		Log:       options.Log,
		Identity:  from.Identity,
		Content:   from.Content,
		Private:   from.Private,
		Operators: options.Operators,
		Confirm:   from.Confirm,
		Lost:      from.Lost,
		Identify: func(ctx context.Context) acctd.Caller {
			caller := identify(ctx)
			return acctd.Caller{
				User:    caller.User,
				Admin:   caller.Admin || (caller.UID == 0 && caller.User != ""),
				Limited: caller.Limited,
			}
		},
		Objectives: objectives,
		Rates:      rates,
		Enforce:    from.Enforce(&rates),
		MayPut:     authz.SpeaksForNode,
		SampleKeep: options.Config.Accounting.SamplesKeep,
		Archive:    options.Config.Accounting.Archive,
		Retention:  options.Config.Accounting.Retention(),
		Interval:   options.Config.Accounting.BatchInterval,
		BatchRows:  int(options.Config.Accounting.BatchRows),

		Refresh:      options.Config.Accounting.KPIInterval,
		RefreshShare: options.Config.Accounting.KPIShare,
	})
	accounting.Service = accounting.daemon.Service()
	accounting.mail, err = mailing.New(
		options.Config,
		options.Path,
		func() mailing.Role { return mailing.RoleOf(accounting.daemon.Status()) },
		time.Now,
		options.Log,
	)
	if err != nil {
		options.Log.Error("no reports are mailed", "error", err) // jobs run without them
	}
	return accounting, nil
}

// enforcesBudgets tells whether jobs are to wait for money.
func enforcesBudgets(budgets []kpi.Budget) bool {
	return slices.ContainsFunc(budgets, func(b kpi.Budget) bool { return b.Enforce })
}

// storeOptions say where accounting is stored.
func storeOptions(config *conffile.Config) (clickhouse.Options, error) {
	if config.UsesEmbedded() {
		return clickhouse.Options{Socket: config.ClickHouse.Embedded.Socket}, nil
	}
	dsn, err := config.DataSource()
	if err != nil {
		return clickhouse.Options{}, fmt.Errorf("clickhouse.dsn: %w", err)
	}
	return clickhouse.Options{
		DSN:    dsn.Reveal(),
		Layout: clickhouse.Layout{Cluster: config.ClickHouse.Cluster},
	}, nil
}

// Run keeps the embedded engine up, if it is ours, and serves.
func (a *Accounting) Run(ctx context.Context) error {
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
func engineOptions(c *conffile.Embedded, logger *slog.Logger) embedded.Options {
	options := embedded.Options{
		Data:    c.DataDir,
		Library: c.Library,
		Socket:  c.Socket,
		Memory:  int(c.MaxMemory / conffile.MiB),
		Log:     logger,
	}
	if c.Listen.Off() {
		return options
	}
	options.TCP, options.TCPOptional = c.ReaderAddress(), true
	options.TLSCert, options.TLSKey = c.ListenCert, c.ListenKey
	options.Logins = []embedded.Login{
		{Name: c.ListenUser, PasswordFile: c.ListenPasswordFile, ReadOnly: true},
	}
	options.Readers = int(c.ListenMaxQueries)
	options.Reading = embedded.DefaultReading()
	options.Reading["max_execution_time"] = strconv.FormatInt(
		int64(c.ListenMaxTime/spec.Second), 10,
	)
	options.Reading["max_memory_usage"] = strconv.FormatInt(int64(c.MaxQueryMemory), 10)
	return options
}

// keepEngine starts the embedded engine, again and again until it starts or the
// context ends. From then on its supervisor restarts it.
func (a *Accounting) keepEngine(ctx context.Context) *embedded.Supervisor {
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
				"install the package muster-engine or run deploy/engine/fetch.sh, or set clickhouse.embedded.library or clickhouse.dsn in muster.yaml",
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

// Close closes the store.
func (a *Accounting) Close() {
	if err := a.Store.Close(); err != nil {
		a.log.Warn("close the accounting store", "error", err)
	}
}

// Lag is how far the store is behind, for /metrics.
func (a *Accounting) Lag() collector.AccountingLag {
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

// KPIs gives the newest figures.
func (a *Accounting) KPIs() []kpi.Value { return a.daemon.KPIs() }

// Budgets gives what was spent of budgets.
func (a *Accounting) Budgets() []kpi.Spent { return a.daemon.Budgets() }

// Findings gives those of the last days; nil = they are not known yet.
func (a *Accounting) Findings() *findings.Found { return a.daemon.Findings() }

// CheckStores says why the store takes no rows; nil = it does.
func (a *Accounting) CheckStores() error {
	if st := a.daemon.Status(); !st.Up {
		return fmt.Errorf("the store takes no rows: %v", st.Error)
	}
	return nil
}

// Status is how far the store has come.
func (a *Accounting) Status() acctd.Status { return a.daemon.Status() }

// AskStore asks the store of a DSN for the ledgers of a cluster. The embedded engine has its data
// in the state folder, or is not there before accounting runs.
func AskStore(
	ctx context.Context,
	config *conffile.Config,
	cluster string,
) (_ []clickhouse.KnownLedger, err error) {
	if config.UsesEmbedded() {
		return nil, nil
	}
	opts, err := storeOptions(config)
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
