package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestREST asks over HTTPS with a token, and over the socket with none.
func TestREST(t *testing.T) {
	c := start(t)
	pem, err := os.ReadFile(filepath.Join(c.dir, "state", "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		t.Fatal("ca.crt holds no certificate")
	}
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	local := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(c.dir, "run", "rest.sock"))
	}}}
	ask := func(client *http.Client, base, token, path, body string) (int, map[string]any) {
		t.Helper()
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("X-SLURM-USER-TOKEN", token)
		}
		rep, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer rep.Body.Close()
		text, err := io.ReadAll(rep.Body)
		if err != nil {
			t.Fatal(err)
		}
		var out map[string]any
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatalf("%s: %q: %v", path, text, err)
		}
		return rep.StatusCode, out
	}
	base := fmt.Sprintf("https://localhost:%d", c.port+3)
	if code, out := ask(secure, base, "", "/v1/Cluster/Ping", ""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d %v", code, out)
	}
	if code, out := ask(secure, base, "x.y.z", "/v1/Cluster/Ping", ""); code != http.StatusUnauthorized {
		t.Errorf("with a false token: %d %v", code, out)
	}
	code, out := ask(local, "http://muster", "", "/v1/Cluster/Submit", `{"spec":{"name":"web"},"script":{"data":"IyEvYmluL3NoCnRydWUK"}}`)
	if code != http.StatusOK || out["job_id"] != 1.0 {
		t.Fatalf("submit over the socket: %d %v", code, out)
	}
	line := c.must("scontrol", "token", "lifespan=600")
	token, ok := strings.CutPrefix(line, "SLURM_JWT=")
	if !ok {
		t.Fatalf("scontrol token says %q", line)
	}
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", "1", "-o", "State")
	if code, out = ask(secure, base, token, "/v1/Cluster/ListJobs?filter.jobs=1&filter.all_states=true", ""); code != http.StatusOK || len(out["jobs"].([]any)) != 1 {
		t.Errorf("jobs over TLS: %d %v", code, out)
	}
	user := token
	if os.Getuid() == 0 {
		user = strings.TrimPrefix(c.must("scontrol", "token", "username=nobody"), "SLURM_JWT=")
	}
	if code, out = ask(secure, base, user, "/v1/Cluster/CreateUserToken", "{}"); code != http.StatusForbidden {
		t.Errorf("a token made a token: %d %v", code, out)
	}
	// Revoked one by one, and all of a user: also after the controller was killed.
	id := func(user string) string {
		t.Helper()
		var doc struct{ Tokens []struct{ Token string } }
		text := c.must("tokens", "--user", user, "--json")
		if err := json.Unmarshal([]byte(text), &doc); err != nil || len(doc.Tokens) == 0 {
			t.Fatalf("tokens of %s: %q, %v", user, text, err)
		}
		return doc.Tokens[0].Token
	}
	name := c.must("sacct", "-n", "-X", "-P", "-j", "1", "-o", "User")
	other := strings.TrimPrefix(c.must("scontrol", "token"), "SLURM_JWT=")
	c.must("tokens", "revoke", id(name), "--reason", "lost")
	if code, out = ask(secure, base, token, "/v1/Cluster/Ping", ""); code != http.StatusUnauthorized || !strings.Contains(fmt.Sprint(out), "revoked") {
		t.Errorf("with a revoked token: %d %v", code, out)
	}
	if code, out = ask(secure, base, other, "/v1/Cluster/Ping", ""); code != http.StatusOK {
		t.Errorf("with a token that was not revoked: %d %v", code, out)
	}
	c.must("tokens", "revoke", "--user", name)
	c.kill9("musterd")
	c.must("up", "--dir", c.dir)
	for what, text := range map[string]string{"the revoked token": token, "a token of the user": other} {
		if code, out = ask(secure, base, text, "/v1/Cluster/Ping", ""); code != http.StatusUnauthorized {
			t.Errorf("%s after a restart: %d %v", what, code, out)
		}
	}
	if os.Getuid() != 0 {
		return
	}
	if code, out = ask(secure, base, user, "/v1/Cluster/Shutdown", "{}"); code != http.StatusForbidden {
		t.Errorf("nobody may shut the controller down: %d %v", code, out)
	}
}
