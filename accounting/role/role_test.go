package role

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/spec"
)

// TestOpenWithoutStore: accounting opens while its store is not there, says what of the
// configuration has no effect, and is not ready.
func TestOpenWithoutStore(t *testing.T) {
	dir := t.TempDir()
	cfg := conffile.Defaults()
	cfg.StateDir = dir
	cfg.Fill()
	cfg.ClickHouse.Embedded.Socket = filepath.Join(dir, "engine.sock")
	cfg.ClickHouse.Cluster = "shards"
	cfg.Cost.Budgets = []string{"physics 2026-01-01 2027-01-01 120000 enforce"}
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	a, err := Open(Options{
		Config:  cfg,
		Cluster: &spec.Config{ClusterName: "peer"},
		Source:  &feed.Remote{Name: "peer", Log: log},
		Log:     log,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, want := range []string{"without cost.prices", "no job waits for money", "clickhouse.cluster has no effect"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &logged)
		}
	}
	if err := a.CheckStores(); err == nil || a.Lag().Up {
		t.Errorf("it is ready: %v, lag %+v", err, a.Lag())
	}
	if ledgers, err := AskStore(t.Context(), cfg, "peer"); ledgers != nil || err != nil {
		t.Errorf("the embedded engine is asked before it runs: %v, %v", ledgers, err)
	}
}

// TestEngineOptions: readers over TCP get the limits of muster.yaml, and only where they are let in.
func TestEngineOptions(t *testing.T) {
	c := conffile.Defaults().ClickHouse.Embedded
	c.MaxMemory = 512 * conffile.MiB
	c.Listen = ""
	o := engineOptions(&c, nil)
	if o.Memory != 512 || o.TCP != "" || o.Logins != nil {
		t.Errorf("without readers: %+v", o)
	}
	c.Listen = "127.0.0.1:9000"
	c.ListenUser = "grafana"
	c.ListenMaxTime = 30 * spec.Second
	c.MaxQueryMemory = 64
	o = engineOptions(&c, nil)
	reader := len(o.Logins) == 1 && o.Logins[0].Name == "grafana" && o.Logins[0].ReadOnly
	if !reader || !o.TCPOptional || o.Reading["max_execution_time"] != "30" || o.Reading["max_memory_usage"] != "64" {
		t.Errorf("with readers: %+v", o)
	}
}
