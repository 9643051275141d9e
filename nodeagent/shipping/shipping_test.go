package shipping_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/nodeagent/shipping"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// world is a node with metrics.
func world(t *testing.T) (*settings.Settings, *telemetry.Telemetry, *machine.Weaknesses) {
	t.Helper()
	metrics, err := telemetry.New(telemetry.Options{Cluster: "peer", Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	s := &settings.Settings{
		Config:  conffile.Defaults(),
		Cluster: &slurmconf.Cluster{File: &slurmconf.File{Config: spec.Config{ClusterName: "peer"}}},
		Node:    &spec.NodeSpec{Name: "n1"},
	}
	return s, metrics, machine.NewWeaknesses(quiet())
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestOpen: headers without an address are refused; a folder that cannot be written is a
// weakness, and is tried again.
func TestOpen(t *testing.T) {
	s, metrics, weak := world(t)
	s.Config.Telemetry.PushHeadersFile = "headers"
	if _, err := shipping.Open(s, metrics, weak, quiet()); err == nil || !strings.Contains(err.Error(), "telemetry.push_url") {
		t.Errorf("headers without an address: %v", err)
	}
	s.Config.Telemetry.PushHeadersFile = ""
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Config.Telemetry.JobMappingDir = filepath.Join(file, "below")
	out, err := shipping.Open(s, metrics, weak, quiet())
	if err != nil || !strings.Contains(weak.String(), "telemetry.job_mapping_dir") {
		t.Errorf("a folder that cannot be made: %v, weaknesses %q", err, weak)
	}
	if out == nil || out.Jobs() == nil {
		t.Error("the files are not tried again later")
	}
}

// TestStart: metrics are pushed to the receiver with the names of this node.
func TestStart(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case got <- r.URL.Path:
		default:
		}
	}))
	defer server.Close()
	s, metrics, weak := world(t)
	s.Config.Telemetry.PushURL = server.URL
	s.Config.Telemetry.PushFormat = "otlp"
	s.Config.Telemetry.PushInterval = spec.Second / 2
	out, err := shipping.Open(s, metrics, weak, quiet())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	if err := out.Start(ctx, &wg); err != nil {
		t.Fatal(err)
	}
	if path := <-got; path != "/v1/metrics" {
		t.Errorf("pushed to %s", path)
	}
	cancel()
	wg.Wait()
	s.Config.Telemetry.PushCA = filepath.Join(t.TempDir(), "missing")
	if err := out.Start(t.Context(), &wg); err == nil || !strings.Contains(err.Error(), "not pushed") {
		t.Errorf("an authority that cannot be read: %v", err)
	}
}
