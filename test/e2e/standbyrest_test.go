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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// restAt asks REST of one controller of a group, over TLS or its socket.
func (c *trio) restAt(name, token, method, path, body string) (int, map[string]any, string) {
	c.t.Helper()
	base := "http://muster"
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(c.home(name), "run", "rest.sock"))
	}}
	if token != "" {
		pem, err := os.ReadFile(filepath.Join(c.dir, "state", "tls", "ca.crt"))
		if err != nil {
			c.t.Fatal(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
		base = fmt.Sprintf("https://127.0.0.%d:%d", slices.Index(trioNames, name)+1, c.port+3)
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(c.t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("X-SLURM-USER-TOKEN", token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	rep, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer rep.Body.Close()
	text, err := io.ReadAll(rep.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	var out map[string]any
	_ = json.Unmarshal(text, &out) // not every answer is JSON
	return rep.StatusCode, out, string(text)
}

// askThroughout asks REST of a controller again and again, over TLS and its socket, until settle is
// called. Whoever is answered gets the answer of a controller that leads. Until the controller
// stands by, a connection may be refused, which clients and load balancers repeat.
func (c *trio) askThroughout(name, token, path string) (settle func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var asking sync.WaitGroup
	var good, refused atomic.Int64
	for _, ask := range []struct{ token, method, path, body string }{
		{token, "GET", path, ""},
		{"", "GET", path, ""},
		{"", "POST", "/v1/Cluster/ListJobs", "{}"},
		{token, "GET", path, ""},
	} {
		asking.Go(func() {
			for ctx.Err() == nil {
				switch code, _, body := c.restAt(name, ask.token, ask.method, ask.path, ask.body); code {
				case http.StatusOK:
					good.Add(1)
				case 0:
					refused.Add(1)
					time.Sleep(time.Millisecond)
				default:
					if _, after, found := strings.Cut(body, `"errors":`); found {
						body = after
					}
					c.t.Errorf("%s %s at %s during a hand-over: %d %.300s", ask.method, ask.path, name, code, body)
				}
			}
		})
	}
	return func() {
		c.t.Helper()
		before := good.Load()
		for good.Load() < before+100 && !c.t.Failed() {
			time.Sleep(10 * time.Millisecond)
		}
		cancel()
		asking.Wait()
		c.t.Logf("during the hand-over %d requests were answered and %d connections refused", good.Load(), refused.Load())
	}
}

// TestRESTOfAStandby: REST of a standby reads and writes as that of the leader does, as
// the user whom token or socket name, and tells a load balancer what it is. Commands
// take the user from SLURM_JWT, at the leader's socket and at a standby's.
func TestRESTOfAStandby(t *testing.T) {
	c := startTrio(t)
	leads := c.whole()
	at := slices.Index(trioNames, leads)
	standby, other := trioNames[(at+1)%3], trioNames[(at+2)%3]
	text, _ := c.must(leads, "scontrol", "token", "username=nobody", "lifespan=3600")
	token := strings.TrimPrefix(text, "SLURM_JWT=")

	// Health, before a user is known.
	for name, role := range map[string]string{leads: "leader", standby: "standby", other: "standby"} {
		code, out, body := c.restAt(name, "", "GET", "/health", "")
		if code != http.StatusOK || out["role"] != role || out["leader"] != leads || out["controller"] != name {
			t.Errorf("/health of %s, a %s: %d %s", name, role, code, body)
		}
		want := http.StatusServiceUnavailable
		if role == "leader" {
			want = http.StatusOK
		}
		if code, _, body := c.restAt(name, "", "GET", "/health/leader", ""); code != want {
			t.Errorf("/health/leader of %s, a %s: %d %s", name, role, code, body)
		}
	}

	// A job is submitted by token (and held: users do not reach the nodes' folders here) at one standby, and read and cancelled at the other.
	code, out, body := c.restAt(standby, token, "POST", "/slurm/v0.0.44/job/submit",
		`{"job":{"script":"#!/bin/sh\nsleep 600\n","name":"viastandby","hold":true,"current_working_directory":"/tmp","environment":["PATH=/bin"],"standard_output":"/dev/null"}}`)
	id, _ := out["job_id"].(float64)
	if code != http.StatusOK || id == 0 {
		t.Fatalf("submit at a standby: %d %s", code, body)
	}
	c.until("nobody viastandby PD", leads, "squeue", "-h", "-j", fmt.Sprint(id), "-o", "%u %j %t")
	path := fmt.Sprintf("/slurm/v0.0.44/job/%.0f", id)
	if code, _, body := c.restAt(other, token, "GET", path, ""); code != http.StatusOK || !strings.Contains(body, `"user_name":"nobody"`) {
		t.Errorf("read at a standby: %d %.300s", code, body)
	}
	if code, _, body := c.restAt(other, "", "POST", "/v1/Cluster/ListJobs", "{}"); code != http.StatusOK || !strings.Contains(body, "viastandby") {
		t.Errorf("read at a standby's socket: %d %.300s", code, body)
	}
	// What the user may not do, he may not do by way of a standby.
	if code, _, body := c.restAt(other, token, "POST", "/slurm/v0.0.44/node/node1", `{"state":["DRAIN"],"reason":"x"}`); code == http.StatusOK {
		t.Errorf("a user drains a node by way of a standby: %s", body)
	}
	if code, _, body := c.restAt(other, token, "POST", "/v1/Cluster/CreateUserToken", "{}"); code != http.StatusForbidden || !strings.Contains(body, "a token makes no tokens") {
		t.Errorf("a token at a standby makes a token: %d %s", code, body)
	}
	if code, _, body := c.restAt(other, token+"x", "GET", path, ""); code != http.StatusUnauthorized {
		t.Errorf("a forged token at a standby: %d %s", code, body)
	}
	if code, _, body := c.restAt(other, "", "POST", "/slurm/v0.0.44/node/node1", `{"state":["DRAIN"],"reason":"by root"}`); code != http.StatusOK {
		t.Errorf("root at a standby's socket: %d %s", code, body)
	}

	// Commands with the token of another user are that user's.
	for _, name := range []string{leads, standby} {
		asUser := func(args ...string) string {
			cmd := exec.Command(bin("muster"), args...)
			cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(c.home(name), "run", "muster.sock"), "SLURM_JWT="+token)
			cmd.Dir = "/tmp"
			out, _ := cmd.CombinedOutput() // the text says what came of it
			return string(out)
		}
		if out := asUser("scontrol", "update", "nodename=node2", "state=drain", "reason=x"); !strings.Contains(out, "only administrators may do this") {
			t.Errorf("at %s, root with the token of nobody drains a node: %s", name, out)
		}
		if out := asUser("scontrol", "token"); !strings.Contains(out, "a token makes no tokens") {
			t.Errorf("at %s, a token makes a token: %s", name, out)
		}
		job := strings.TrimSpace(asUser("sbatch", "--parsable", "-H", "-o", "/dev/null", "--wrap", "true"))
		c.until("nobody", leads, "squeue", "-h", "-j", job, "-o", "%u")
	}
	sbatch := exec.Command(bin("muster-sbatch"), "--parsable", "-o", "/dev/null", "--wrap", "true")
	sbatch.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(c.home(leads), "run", "muster.sock"), "SLURM_JWT=none")
	if out, err := sbatch.CombinedOutput(); err == nil || !strings.Contains(string(out), "token") {
		t.Errorf("the small sbatch does not show its token: %s", out)
	}

	// A cancel at a standby, while the lead moves.
	settle := c.askThroughout(leads, token, path)
	_, _ = c.must(leads, "controllers", "handover", other)
	settle()
	if code, _, body := c.restAt(standby, token, "DELETE", path, ""); code != http.StatusOK {
		t.Errorf("cancel at a standby: %d %s", code, body)
	}
	c.until("", standby, "squeue", "-h", "-n", "viastandby")
	if code, out, body := c.restAt(other, "", "GET", "/health/leader", ""); code != http.StatusOK || out["role"] != "leader" {
		t.Errorf("/health/leader of the new leader: %d %s", code, body)
	}

	// Without a leader, the health of the one that is left is bad.
	c.kill9(other)
	c.kill9(leads)
	for range 1200 {
		if code, _, _ = c.restAt(standby, "", "GET", "/health", ""); code == http.StatusServiceUnavailable {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if code != http.StatusServiceUnavailable {
		t.Errorf("/health without a leader: %d", code)
	}
	if code, _, body := c.restAt(standby, token, "GET", path, ""); code == http.StatusOK || !strings.Contains(body, "1 of 3 votes are there") {
		t.Errorf("REST without a leader: %d %s", code, body)
	}
}
