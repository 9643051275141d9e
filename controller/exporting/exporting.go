// Package exporting gives out the figures of a process of musterd: its pages of metrics and health,
// and the pushes to where nobody can scrape them.
//
// A scrape takes no lock of the controller. What would need one is sampled beside the scrapes
// (sample.go).
package exporting

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/internal/audit/trail"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/push"
	"github.com/musterhpc/muster/internal/traces/sending"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/view"
)

// Controller is what the exporter reads of the controller's daemon.
type Controller interface {
	View() *view.View
	Agents() int
	ConnectedNodes() map[string]bool
	Live() map[string]wire.NodeLive
}

// Accounting is what the exporter reads of the accounting in the same process.
type Accounting interface {
	Lag() collector.AccountingLag
	KPIs() []kpi.Value
	Budgets() []kpi.Spent
	Findings() *findings.Found
}

// Options are the parts of a controller whose figures are given out.
type Options struct {
	Config     *conffile.Config
	Cluster    string
	Version    string
	Private    collector.Privacy // what the metrics leave out
	Controller Controller
	Durable    *log.Durable
	Calls      *collector.Calls
	Limits     *limit.Table
	Trail      *trail.Trail    // nil = no audit trail is kept
	Traces     *sending.Sender // nil = no traces are sent
	Accounting Accounting      // nil = it runs in another process, and …
	Apart      *Apart          // … this says how far it has come
	Log        *slog.Logger
}

// Exporter gives out the figures of a controller that leads.
type Exporter struct {
	of     Options
	sample *sampler
	pusher atomic.Pointer[push.Pusher] // nil unless muster.yaml says where to
}

// New makes an exporter, with a first sample of the figures.
func New(of Options) *Exporter {
	return &Exporter{of: of, sample: newSampler(of)}
}

// Pages are /metrics and the health of the controller. The group runs what keeps them up to date,
// and the pushes if there are any.
func (e *Exporter) Pages(group *parts.Group) http.Handler {
	mux := http.NewServeMux()
	group.Spawn("figures for metrics", e.sample.run)
	gather := collector.Mount(mux, e.makeSource())
	if e.of.Config.Telemetry.PushesFromController() {
		e.startPush(group, gather)
	}
	mountHealth(mux, "ok", e.checkReady)
	return mux
}

// makeSource is what the exposition reads.
func (e *Exporter) makeSource() collector.Source {
	src := collector.Source{
		View:       e.of.Controller.View,
		Agents:     func() int { return e.sample.latestFigures().agents },
		Now:        clock.NewSystem().Now,
		Version:    e.of.Version,
		Live:       func() map[string]collector.Live { return e.sample.latestFigures().live },
		Raft:       func() collector.Raft { return e.sample.latestFigures().raft },
		Calls:      e.of.Calls,
		Refused:    e.countRefused,
		Private:    e.of.Private,
		Audit:      func() []collector.AuditTarget { return AuditTargets(e.of.Trail) },
		Traces:     e.readTraces,
		Pushed:     e.readPushed,
		Accounting: func() collector.AccountingLag { return e.sample.latestFigures().lag },
		Objectives: e.sample.objectives,
	}
	if accounting := e.of.Accounting; accounting != nil {
		src.Accounting = accounting.Lag
		src.KPIs = accounting.KPIs
		src.Budgets = accounting.Budgets
		src.Findings = accounting.Findings
	}
	return src
}

// checkReady says why the controller takes no submissions; nil = it does.
func (e *Exporter) checkReady() error {
	if low, err := (store.Log{Durable: e.of.Durable}).Low(); err != nil || low {
		return errDiskFull
	}
	return nil
}

// countRefused tells how often each limit of the API was exceeded.
func (e *Exporter) countRefused() map[string]uint64 {
	out := map[string]uint64{}
	for reason, n := range e.of.Limits.Refused() {
		out[reason.String()] = n
	}
	return out
}

// readTraces is how the traces of jobs get to the collector.
func (e *Exporter) readTraces() (collector.SentTraces, bool) {
	if e.of.Traces == nil {
		return collector.SentTraces{}, false
	}
	st := e.of.Traces.Status()
	return collector.SentTraces{
		Seq:      st.Seq,
		Seconds:  st.Seconds,
		Traces:   st.Traces,
		Spans:    st.Spans,
		Refused:  st.Refused,
		Failures: st.Failures,
	}, true
}

// AuditTargets are the targets of an audit trail as metrics show them.
func AuditTargets(of *trail.Trail) []collector.AuditTarget {
	var targets []collector.AuditTarget
	for _, st := range of.Statuses() {
		targets = append(targets, collector.AuditTarget{
			Name:     st.Target,
			Seq:      st.Seq,
			Seconds:  st.Seconds,
			Records:  st.Records,
			Failures: st.Failures,
			LeftOut:  st.LeftOut,
		})
	}
	return targets
}

// PrivacyOf tells what the metrics leave out: PrivateData keeps what users do from each
// other, and everybody may read the metrics. Where a site asks for a credential there, it
// decides by that who may. The use of accounts is left out where sreport is for operators only
// (usage), and where accounts are private themselves.
func PrivacyOf(readers web.Options, private []string) collector.Privacy {
	if readers.ConfigFile != "" || readers.TokenFile != "" {
		return collector.Privacy{}
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(private, func(word string) bool { return slices.Contains(words, word) })
	}
	return collector.Privacy{Users: has("jobs", "usage", "users"), Accounts: has("usage", "accounts")}
}

// mountHealth serves whether the process lives and whether it is ready. What is well answers
// with the text.
func mountHealth(mux *http.ServeMux, text string, check func() error) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, text)
	})
	ready := func(writer http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(writer, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(writer, text)
	}
	mux.HandleFunc("GET /healthz", ready)
	mux.HandleFunc("GET /readyz", ready)
}
