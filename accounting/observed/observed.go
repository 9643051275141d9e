// Package observed feeds accounting with the history of a Slurm beside which an observer runs:
// it reads the Slurm's accounting again and again and stores what is new.
package observed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// History is the history of the Slurm beside which an observer runs: what
// takes a ledger's place in its accounting.
type History struct {
	Config   conffile.Observe
	Log      *slog.Logger
	Hide     []string
	Identify func(context.Context) acctd.Caller

	mu  sync.Mutex
	pos tally.Position
}

// errNoLedger tells that there are no events behind the rows.
var errNoLedger = errors.New("this history came from a Slurm: there is no ledger behind it")

// Open implements the source of accounting.
func (o *History) Open(context.Context, uint64) (acctd.Cursor, error) { return nil, errNoLedger }

// Head implements the source of accounting: what was read last.
func (o *History) Head() (uint64, spec.Instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pos.Seq, o.pos.At
}

// Epochs implements the source of accounting.
func (o *History) Epochs(
	context.Context,
) ([]state.Epoch, uint64, error) {
	return nil, 0, errNoLedger
}

// Lost implements feed.Access.
func (o *History) Lost(context.Context, event.Position) error { return nil }

// Enforce is nothing: the jobs are another's.
func (o *History) Enforce(*kpi.Rates) func(context.Context, []kpi.Spent) { return nil }

// Identity implements feed.Access.
func (o *History) Identity() ([16]byte, string) {
	return tally.ImportedLedger(o.Config.Cluster), o.Config.Cluster
}

// Content implements feed.Access.
func (o *History) Content(context.Context, spec.Hash) ([]byte, error) { return nil, errNoLedger }

// Confirm implements feed.Access.
func (o *History) Confirm(acctd.Progress) {}

// Private is the Slurm's PrivateData for a caller.
func (o *History) Private(ctx context.Context) []string {
	if o.Identify(ctx).Admin {
		return nil
	}
	return o.Hide
}

// ReadPrivateData asks the Slurm what it hides. One that does not say hides jobs.
func ReadPrivateData(ctx context.Context, bin string) []string {
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
				func(word string) bool { return word == "none" || word == "(null)" || word == "" },
			)
		}
	}
	return nil
}

// FeedHistory reads the Slurm's accounting again and again: first the past, then what
// is new. What it could not store it reads again.
func (o *History) FeedHistory(
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
			o.Log.Warn("the Slurm's accounting was not read; it is tried again", "error", err)
			writer = nil
		}
		select {
		case <-time.After(time.Duration(o.Config.AccountingEvery)):
		case <-ctx.Done():
			return
		}
	}
}

// pullNew stores what is new and tells how far that is.
func (o *History) pullNew(
	ctx context.Context,
	store *clickhouse.Store,
	writer *clickhouse.Writer,
	stored func(tally.Position),
) (*clickhouse.Writer, error) {
	ledger, cluster := o.Identity()
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
	source := importer.Slurm{Bin: o.Config.Bin, Cluster: cluster}
	now := time.Now()
	since := source.Since(writer.Position().At)
	if writer.Position().Seq == 0 {
		since = now.Add(-time.Duration(o.Config.History))
	}
	rejected := 0
	config := importer.Config{
		Ledger: ledger,
		Store:  importer.In(store),
		Writer: writer,
		Rejected: func(reject importer.Reject) {
			rejected++
			if rejected <= importer.ShownRejects {
				o.Log.Warn(
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
		o.Log.Info(
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
