package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
)

// registryPassword is what the locked registry asks for.
const registryPassword = "correct:horse"

// lockedRegistry is a registry on loopback that asks for a name and a password.
func lockedRegistry(t *testing.T) http.Handler {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "log in first", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// runAs runs a muster command as a user other than root.
func (c *cluster) runAs(uid uint32, env []string, args ...string) (out, errs string, code int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin("muster"), args...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"),
		"MUSTER_SOCKET=" + filepath.Join(c.dir, "run", "muster.sock"),
	}, env...)
	cmd.Dir = "/tmp"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var outText, errText bytes.Buffer
	cmd.Stdout, cmd.Stderr = &outText, &errText
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		c.t.Fatalf("muster %v: %v", args, err)
	}
	return outText.String(), errText.String(), cmd.ProcessState.ExitCode()
}

// TestPrivateImages: an ordinary user gets an image of a registry that asks for a
// login with the login of a file of his own, in a script's place and at a terminal;
// a user without one does not, also when the node has the image; nobody is shown
// the password.
func TestPrivateImages(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("containers need an agent that is root")
	}
	served := httptest.NewServer(lockedRegistry(t))
	t.Cleanup(served.Close)
	image, digest := pushImageTo(t, served.URL, &authn.Basic{Username: "ann", Password: registryPassword})
	c := start(t)
	if err := os.Chmod(c.dir, 0o755); err != nil {
		t.Fatal(err)
	}

	const user, other = 65534, 65533
	home := shortDir(t)
	logins := filepath.Join(home, ".docker")
	if err := os.Mkdir(logins, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(logins, "config.json")
	text := fmt.Sprintf(`{"auths": {%q: {"username": "ann", "password": %q}}}`,
		strings.SplitN(image, "/", 2)[0], registryPassword)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{home, logins, file} {
		if err := os.Chown(path, user, user); err != nil {
			t.Fatal(err)
		}
	}
	own := []string{"HOME=" + home}
	in := []string{"--container-image=" + image, "--container-mounts=/usr:/usr:ro"}
	srun := func(more ...string) []string { return append(append([]string{"srun", "-n1"}, in...), more...) }

	out, errs, code := c.runAs(user, own, srun("sh", "-c", ". /etc/os-release; echo $ID $(id -u) $MUSTER_CONTAINER_DIGEST")...)
	if want := "inside 65534 " + digest + "\n"; code != 0 || out != want {
		t.Errorf("the user sees %q (exit %d, %s), not %q", out, code, errs, want)
	}
	out, errs, code = c.runAs(user, own, srun("--pty", "sh", "-c", ". /etc/os-release; test -t 0 && echo $ID $(id -u)")...)
	if want := "inside 65534\r\n"; code != 0 || out != want {
		t.Errorf("at a terminal the user sees %q (exit %d, %s), not %q", out, code, errs, want)
	}
	// Another user has no login, and may not read the first one's.
	for what, env := range map[string][]string{
		"without a login":          {"HOME=/nonexistent"},
		"with a file of another's": own,
	} {
		out, errs, code = c.runAs(other, env, srun("cat", "/etc/os-release")...)
		if code == 0 || out != "" || !strings.Contains(errs, "401") || !strings.Contains(errs, "docker login") {
			t.Errorf("%s: exit %d, %q, %q", what, code, out, errs)
		}
	}
	logs, err := filepath.Glob(filepath.Join(c.dir, "run", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	for _, path := range logs {
		if data, err := os.ReadFile(path); err != nil || bytes.Contains(data, []byte(registryPassword)) {
			t.Errorf("%s shows the password (%v)", path, err)
		}
	}
	if events := c.must("events", "--json"); strings.Contains(events, registryPassword) || !strings.Contains(events, "ImagePinned") {
		t.Error("the ledger has the password, or not the digest")
	}
}
