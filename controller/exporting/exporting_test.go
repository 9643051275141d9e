package exporting_test

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// readPage asks for a page and returns its status and text.
func readPage(pages http.Handler, path string) (int, string) {
	rec := httptest.NewRecorder()
	pages.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

// seriesValue is the value of the series whose line begins so.
func seriesValue(t *testing.T, page, series string) float64 {
	t.Helper()
	for line := range strings.Lines(page) {
		if text, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Errorf("%s is missing", series)
	return -1
}

func TestPrivacyOf(t *testing.T) {
	users, both := collector.Privacy{Users: true}, collector.Privacy{Users: true, Accounts: true}
	for _, c := range []struct {
		readers web.Options
		private []string
		want    collector.Privacy
	}{
		{web.Options{}, nil, collector.Privacy{}},
		{web.Options{}, []string{"nodes"}, collector.Privacy{}},
		{web.Options{}, []string{"nodes", "usage"}, both},
		{web.Options{}, []string{"jobs"}, users},
		{web.Options{}, []string{"users"}, users},
		{web.Options{}, []string{"accounts"}, collector.Privacy{Accounts: true}},
		{web.Options{TokenFile: "t"}, []string{"jobs"}, collector.Privacy{}},
		{web.Options{ConfigFile: "c"}, []string{"usage"}, collector.Privacy{}},
	} {
		if got := exporting.PrivacyOf(c.readers, c.private); got != c.want {
			t.Errorf("%+v with PrivateData=%v: %+v, want %+v", c.readers, c.private, got, c.want)
		}
	}
}

// fixed is an accounting with these figures.
type fixed struct {
	lag  collector.AccountingLag
	kpis []kpi.Value
}

func (f fixed) Lag() collector.AccountingLag { return f.lag }
func (f fixed) KPIs() []kpi.Value            { return f.kpis }
func (f fixed) Budgets() []kpi.Spent         { return nil }
func (f fixed) Findings() *findings.Found    { return nil }

// TestAccountingApart: health follows the store, and the KPIs come with the cluster's name as soon
// as a position of the history is known.
func TestAccountingApart(t *testing.T) {
	var down error
	head := uint64(0)
	pages := exporting.AccountingApart{
		Cluster: "peer",
		Version: "test",
		Of:      fixed{kpis: []kpi.Value{{KPI: "goodput", By: kpi.ByCluster, Window: "1d", Value: 0.5}}},
		Head:    func() (uint64, spec.Instant) { return head, spec.AtUnix(1_790_000_000) },
		Ready:   func() error { return down },
	}.Pages()
	if code, text := readPage(pages, "/readyz"); code != http.StatusOK || text != "ok\n" {
		t.Errorf("ready: %d %q", code, text)
	}
	down = errors.New("the store takes no rows: no route")
	if code, text := readPage(pages, "/healthz"); code != http.StatusServiceUnavailable || text != down.Error()+"\n" {
		t.Errorf("down: %d %q", code, text)
	}
	if code, _ := readPage(pages, "/livez"); code != http.StatusOK {
		t.Errorf("it does not live without a store: %d", code)
	}
	if _, text := readPage(pages, "/metrics"); strings.Contains(text, `"peer"`) {
		t.Errorf("a cluster that is not known yet is named:\n%s", text)
	}
	head = 12
	if _, text := readPage(pages, "/metrics"); !strings.Contains(text, `cluster="peer"`) || !strings.Contains(text, " 0.5\n") {
		t.Errorf("the goodput of the cluster is missing:\n%s", text)
	}
}

// still is a controller that does nothing.
type still struct{ view *view.View }

func (s still) View() *view.View                { return s.view }
func (s still) Agents() int                     { return 3 }
func (s still) ConnectedNodes() map[string]bool { return nil }
func (s still) Live() map[string]wire.NodeLive  { return nil }

// TestExporter: the pages of a controller with a real ledger, while its accounting runs in another
// process that has confirmed half of the history.
func TestExporter(t *testing.T) {
	folder := storetest.NewFolder(t)
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	err = folder.Run(func(l *log.Durable, m *daemon.Machine, a *store.Archive) {
		folder.Write(l, 3)
		st := m.Applied()
		shown := &view.View{State: st, AccountedSeq: st.Seq / 2}
		g := parts.New(t.Context())
		defer g.Stop()
		e := exporting.New(exporting.Options{
			Config:     &conffile.Config{StateDir: folder.Dir},
			Cluster:    st.ClusterName,
			Version:    "test",
			Controller: still{view: shown},
			Durable:    l,
			Calls:      &collector.Calls{},
			Limits:     limit.New(limit.Config{}, time.Now),
			Apart:      &exporting.Apart{Said: &feed.Confirmed{}, Archive: a, Codec: codec},
			Log:        slog.New(slog.DiscardHandler),
		})
		pages := e.Pages(g)
		if code, text := readPage(pages, "/healthz"); code != http.StatusOK {
			t.Errorf("health: %d %q", code, text)
		}
		_, text := readPage(pages, "/metrics")
		if got := seriesValue(t, text, `muster_accounting_lag_events{cluster="peer"}`); got != float64(st.Seq-st.Seq/2) {
			t.Errorf("%v events are not accounted, want %d", got, st.Seq-st.Seq/2)
		}
		// Of the first of these the archive knows the time. The controller began in 1970 here: that
		// is the age of what is not found.
		if got := seriesValue(t, text, `muster_accounting_lag_seconds{cluster="peer"}`); got > 1e9 {
			t.Errorf("accounting is %v seconds behind", got)
		}
		standby := exporting.Standby{Cluster: "peer", Version: "test", Durable: l}.Pages()
		if code, text := readPage(standby, "/readyz"); code != http.StatusOK || text != "ok: standby\n" {
			t.Errorf("standby: %d %q", code, text)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
