package machine

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/nss"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/settings"
)

// TestRefusedLogins: who is not known, and who has no job as far as can be found out, does not get
// in; root does, whatever is there.
func TestRefusedLogins(t *testing.T) {
	folder := t.TempDir()
	folders := []string{folder}
	if _, err := AdoptLogin(t.Context(), folders, "root", os.Getpid()); err != nil {
		t.Errorf("root: %v", err)
	}
	if _, err := AdoptLogin(t.Context(), folders, "0", os.Getpid()); !errors.Is(err, nss.ErrUnknown) {
		t.Errorf("a number in place of a name: %v", err)
	}
	_, err := AdoptLogin(t.Context(), folders, "nobody", os.Getpid())
	if err == nil || !strings.Contains(err.Error(), "--state-dir") {
		t.Errorf("no shepherd: %v", err)
	}
	socket := runtime.Socket(settings.ShepherdDir(folder), "1")
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	sock, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	sock.SetUnlinkOnClose(false)
	sock.Close() // as one that was killed leaves it
	_, err = AdoptLogin(t.Context(), folders, "nobody", os.Getpid())
	if !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a shepherd that is gone: %v", err)
	}
}

// TestCallerIsPAM: without the variables of pam_exec, and outside of the account phase, the login is
// refused.
func TestCallerIsPAM(t *testing.T) {
	for _, c := range []struct{ user, kind, want string }{
		{"", "account", "PAM_USER is not set"},
		{"root", "", `PAM_TYPE is ""`},
		{"root", "session", `PAM_TYPE is "session"`},
	} {
		t.Setenv("PAM_USER", c.user)
		t.Setenv("PAM_TYPE", c.kind)
		if _, err := AdoptCaller(t.Context(), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in phase %q: %v", c.user, c.kind, err)
		}
	}
}
