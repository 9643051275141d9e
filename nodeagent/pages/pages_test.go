package pages_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/nodeagent/daemon"
	"github.com/musterhpc/muster/nodeagent/pages"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
)

// open opens the pages of a node at an address of --metrics.
func open(t *testing.T, address string) (*pages.Pages, error) {
	t.Helper()
	s := &settings.Settings{
		Config: conffile.Defaults(),
		Node:   &spec.NodeSpec{Name: "n1", Addr: "n1.cluster"},
	}
	s.Options.Metrics = address
	return pages.Open(t.Context(), s, slog.New(slog.DiscardHandler))
}

// TestAddress: others reach the metrics by the node's address; a taken port says what to do.
func TestAddress(t *testing.T) {
	off, err := open(t, "off")
	if err != nil || off.Address() != "" {
		t.Errorf("off: %q, %v", off.Address(), err)
	}
	everywhere, err := open(t, "0")
	if err != nil {
		t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(everywhere.Address())
	if err != nil || host != "n1.cluster" {
		t.Errorf("a port alone: %q, %v", everywhere.Address(), err)
	}
	if _, err := open(t, port); err == nil || !strings.Contains(err.Error(), "--metrics") {
		t.Errorf("a taken port: %v", err)
	}
}

// TestHealth: /healthz follows the shepherd, /readyz also the controller.
func TestHealth(t *testing.T) {
	p, err := open(t, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var health daemon.Health
	read := func() daemon.Health {
		mu.Lock()
		defer mu.Unlock()
		return health
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	if err := p.Serve(ctx, &wg, http.NotFoundHandler(), read); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		health       daemon.Health
		lives, ready int
		text         string
	}{
		{daemon.Health{}, 503, 503, "shepherd: does not answer\ncontroller: not connected, jobs go on\nreports waiting: 0\n"},
		{daemon.Health{Shepherd: true, Pending: 2}, 200, 503, "shepherd: answers\ncontroller: not connected, jobs go on\nreports waiting: 2\n"},
		{daemon.Health{Shepherd: true, Connected: true}, 200, 200, "shepherd: answers\ncontroller: connected\nreports waiting: 0\n"},
	} {
		mu.Lock()
		health = c.health
		mu.Unlock()
		for path, want := range map[string]int{"/healthz": c.lives, "/readyz": c.ready} {
			resp, err := http.Get("http://" + p.Address() + path)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want || string(text) != c.text {
				t.Errorf("%s of %+v: %d %q, want %d", path, c.health, resp.StatusCode, text, want)
			}
		}
	}
	cancel()
	wg.Wait()
	if c, err := net.Dial("tcp", p.Address()); err == nil {
		c.Close()
		t.Error("the port is open after the end")
	}
}
