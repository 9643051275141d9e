package loginhost_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/nodeagent/loginhost"
	"github.com/musterhpc/muster/nodeagent/machine"
	"github.com/musterhpc/muster/nodeagent/settings"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestNoGate: where the controller, or the agent of a login host, serves the commands of this
// host, a compute node's agent does not.
func TestNoGate(t *testing.T) {
	config := conffile.Defaults()
	config.StateDir = t.TempDir()
	s := &settings.Settings{Config: config}
	weak := machine.NewWeaknesses(quiet())
	if g := loginhost.OpenGate(s, []string{"192.0.2.1:6817"}, nil, weak, quiet()); g != nil {
		t.Error("a gate without a certificate")
	}
	source := &pki.Source{}
	if g := loginhost.OpenGate(s, []string{"/run/muster/muster.sock"}, source, weak, quiet()); g != nil {
		t.Error("a gate beside the controller's socket")
	}
	if err := os.MkdirAll(filepath.Join(settings.LoginDir(config.StateDir), "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	if g := loginhost.OpenGate(s, []string{"192.0.2.1:6817"}, source, weak, quiet()); g != nil {
		t.Error("a gate beside the agent of a login host")
	}
	if weak.String() != "" {
		t.Errorf("that is no weakness: %s", weak)
	}
}

// TestServeOnTheControllersHost: a host that reaches the controller by its socket is no login host.
func TestServeOnTheControllersHost(t *testing.T) {
	s := &settings.Login{Cfg: conffile.Defaults(), Addresses: []string{"/run/muster/muster.sock"}}
	s.Party.TLS = filepath.Join(t.TempDir(), "login", "tls")
	if err := loginhost.Serve(t.Context(), s, quiet()); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("it serves: %v", err)
	}
}
