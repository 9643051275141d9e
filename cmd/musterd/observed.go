package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/cli/acct/importing"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/mtls"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
)

// observed is the history of the Slurm beside which an observer runs: what
// takes a ledger's place in its accounting.
type observed struct {
	cfg  conffile.Observe
	log  *slog.Logger
	hide []string
	who  func(context.Context) acctd.Caller

	mu  sync.Mutex
	pos tally.Position
}

// errNoLedger tells that there are no events behind the rows.
var errNoLedger = errors.New("this history came from a Slurm: there is no ledger behind it")

// Open implements the source of accounting.
func (o *observed) Open(context.Context, uint64) (acctd.Cursor, error) { return nil, errNoLedger }

// Head implements the source of accounting: what was read last.
func (o *observed) Head() (uint64, spec.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pos.Seq, o.pos.At
}

// Epochs implements the source of accounting.
func (o *observed) Epochs(
	context.Context,
) ([]state.Epoch, uint64, error) {
	return nil, 0, errNoLedger
}

func (o *observed) lost(context.Context, event.Position) error { return nil }

// enforce is nothing: the jobs are another's.
func (o *observed) enforce(*kpi.Rates) func(context.Context, []kpi.Spent) { return nil }

func (o *observed) identity() ([16]byte, string) {
	return tally.ImportedLedger(o.cfg.Cluster), o.cfg.Cluster
}

func (o *observed) content(context.Context, spec.Hash) ([]byte, error) { return nil, errNoLedger }

func (o *observed) confirm(acctd.Progress) {}

// private is the Slurm's PrivateData for a caller.
func (o *observed) private(ctx context.Context) []string {
	if o.who(ctx).Admin {
		return nil
	}
	return o.hide
}

// privateData asks the Slurm what it hides. One that does not say hides jobs.
func privateData(ctx context.Context, bin string) []string {
	path := "scontrol"
	if bin != "" {
		path = filepath.Join(bin, path)
	}
	out, err := exec.CommandContext(ctx, path, "show", "config").Output()
	if err != nil {
		return []string{"jobs", "usage"}
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(line, "="); ok &&
			strings.TrimSpace(name) == "PrivateData" {
			list := strings.Split(strings.TrimSpace(value), ",")
			return slices.DeleteFunc(
				list,
				func(w string) bool { return w == "none" || w == "(null)" || w == "" },
			)
		}
	}
	return nil
}

// feedHistory reads the Slurm's accounting again and again: first the past, then what
// is new. What it could not store it reads again.
func (o *observed) feedHistory(
	ctx context.Context,
	store *clickhouse.Store,
	stored func(tally.Position),
	failed func(error),
) {
	var writer *clickhouse.Writer
	for {
		var err error
		writer, err = o.pullNew(ctx, store, writer, stored)
		if ctx.Err() != nil {
			return
		}
		failed(err)
		if err != nil {
			o.log.Warn("the Slurm's accounting was not read; it is tried again", "error", err)
			writer = nil
		}
		select {
		case <-time.After(time.Duration(o.cfg.AccountingEvery)):
		case <-ctx.Done():
			return
		}
	}
}

// pullNew stores what is new and tells how far that is.
func (o *observed) pullNew(
	ctx context.Context,
	store *clickhouse.Store,
	writer *clickhouse.Writer,
	stored func(tally.Position),
) (*clickhouse.Writer, error) {
	ledger, cluster := o.identity()
	tell := func() {
		o.mu.Lock()
		o.pos = writer.Position()
		o.mu.Unlock()
		stored(writer.Position())
	}
	if writer == nil {
		if err := store.Migrate(ctx); err != nil {
			return nil, err
		}
		var err error
		writer, err = store.NewImportWriter(ctx, ledger, cluster)
		if err != nil {
			return nil, err
		}
		tell()
	} else if err := writer.Hold(ctx); err != nil {
		return nil, err
	}
	source := importer.Slurm{Bin: o.cfg.Bin, Cluster: cluster}
	now := time.Now()
	since := source.Since(writer.Position().At)
	if writer.Position().Seq == 0 {
		since = now.Add(-time.Duration(o.cfg.History))
	}
	rejected := 0
	config := importer.Config{
		Ledger: ledger,
		Store:  importer.In(store),
		Writer: writer,
		Rejected: func(reject importer.Reject) {
			rejected++
			if rejected <= importing.ShownRejects {
				o.log.Warn(
					"a line of sacct was not taken",
					"line",
					reject.Line,
					"reason",
					reject.Reason,
					"text",
					reject.Text,
				)
			}
		},
	}
	var sum importer.Result
	err := source.Pull(ctx, config, since, now, func(r *importer.Result) { sum.Sum(r); tell() })
	if err != nil {
		return writer, err
	}
	if err := importer.RollUp(ctx, writer); err != nil {
		return writer, err
	}
	if _, err := source.Nodes(ctx, config, store, since, now); err != nil {
		return writer, fmt.Errorf("the nodes: %w", err)
	}
	tell()
	if sum.New > 0 {
		o.log.Info(
			"read the Slurm's accounting",
			"ended",
			sum.New,
			"open",
			sum.Open,
			"known",
			sum.Known,
			"rejected",
			sum.Rejected,
		)
	}
	if sum.Lines > 0 && !sum.Reconciled() {
		return writer, errors.New(
			"what the store has is not what it had and what was added: another program writes to it",
		)
	}
	return writer, nil
}

// observeAccounting serves the accounting of an observed Slurm: its jobs in the
// store, sacct, sreport, reports, SQL and the KPIs, as for a cluster of one's
// own.
func observeAccounting(
	ctx context.Context,
	g *group,
	cfg *conffile.Config,
	config string,
	log *slog.Logger,
) (*accounting, error) {
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
	certificates, err := mtls.Load(pki.Dir(cfg.TLS.Dir))
	if err != nil {
		return nil, fmt.Errorf(
			"this host's certificate in %s (muster init makes one): %w",
			cfg.TLS.Dir,
			err,
		)
	}
	identify := newCallerFunc(uint32(os.Getuid()))
	o := &observed{
		cfg:  cfg.Observe,
		log:  log,
		hide: privateData(ctx, cfg.Observe.Bin),
		who: func(ctx context.Context) acctd.Caller {
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
	s.acct, err = s.openAccountingWith(
		o,
		func(ctx context.Context, stored func(tally.Position), failed func(error)) {
			o.feedHistory(ctx, s.acct.store, stored, failed)
		},
	)
	if err != nil {
		return nil, err
	}
	endpoint, err := s.newEndpoint(certificates)
	if err != nil {
		return nil, err
	}
	service.RegisterAccountingServer(endpoint, s.acct.service)
	if err := (doors{socket: cfg.AccountingSocket, apiKey: "listen.accounting_api", api: cfg.Listen.AccountingAPI, metricsKey: "listen.accounting_metrics",
		metrics: cfg.Listen.AccountingMetrics, web: s.webOptions(), log: log}).serveAll(g, endpoint, s.observedPages(o)); err != nil {
		return nil, err
	}
	g.spawnPart("accounting", s.acct.run)
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

// observedPages are the KPIs of an observed Slurm, and whether they are kept.
func (s *server) observedPages(o *observed) *http.ServeMux {
	return s.kpiPages(
		collector.Source{
			Now:     clock.NewSystem().Now,
			Version: version,
			KPIs:    s.acct.currentKPIs,
			View: func() *view.View {
				head, at := o.Head()
				if head == 0 {
					return nil
				}
				st := state.New()
				st.Seq = head
				st.At = at
				st.ClusterName = o.cfg.Cluster
				return &view.View{State: st}
			},
		},
	)
}
