package alerts_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/alerts"
)

// site is a settings file with two receivers at addresses of this test.
func site(t *testing.T, at, mode string) *alerts.Settings {
	t.Helper()
	dir := t.TempDir()
	perm := os.FileMode(0o600)
	if mode == "open" {
		perm = 0o644
	}
	for name, text := range map[string]string{"hook": at + "/services/T0/B0/verysecret\n", "key": "0123456789abcdef0123456789abcdef\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), perm); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(dir, name), perm); err != nil {
			t.Fatal(err)
		}
	}
	text := "alertmanager_url: " + at + "\nslack: {webhook_url_file: hook, channel: '#c'}\npagerduty: {routing_key_file: key, url: " + at + "/v2/enqueue}\n"
	s, err := alerts.Parse("a.yaml", []byte(text), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func note(receiver string) alerts.Test {
	return alerts.Test{Receiver: receiver, By: "ada", Now: time.Unix(1_800_000_000, 0), HTTP: http.DefaultClient}
}

func TestSending(t *testing.T) {
	type got struct {
		path string
		body map[string]any
	}
	var seen []got
	answer := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		if list, ok := body.([]any); ok {
			body = list[0]
		}
		seen = append(seen, got{r.URL.Path, body.(map[string]any)})
		w.WriteHeader(answer)
	}))
	defer srv.Close()
	ctx := context.Background()
	s := site(t, srv.URL, "")
	if err := s.Direct(ctx, note("slack")); err != nil || seen[0].path != "/services/T0/B0/verysecret" || !strings.Contains(seen[0].body["text"].(string), "sent by ada") {
		t.Errorf("%v %+v", err, seen)
	}
	if err := s.Direct(ctx, note("pagerduty")); err != nil || len(seen) != 3 || seen[1].body["event_action"] != "trigger" || seen[2].body["event_action"] != "resolve" ||
		seen[1].body["dedup_key"] != seen[2].body["dedup_key"] || seen[1].body["routing_key"] != "0123456789abcdef0123456789abcdef" {
		t.Errorf("%v %+v", err, seen)
	}
	if err := s.ThroughAlertmanager(ctx, note("pagerduty")); err != nil || seen[3].path != "/api/v2/alerts" || seen[3].body["labels"].(map[string]any)["muster_test"] != "pagerduty" {
		t.Errorf("%v %+v", err, seen)
	}
	if err := s.Direct(ctx, note("email")); err == nil || !strings.Contains(err.Error(), `"email" is not set up in the settings (slack, pagerduty)`) {
		t.Errorf("%v", err)
	}
	answer = http.StatusForbidden
	if err := s.Direct(ctx, note("slack")); err == nil || !strings.Contains(err.Error(), "it answered 403 Forbidden") {
		t.Errorf("%v", err)
	}
	srv.Close()
	for _, err := range []error{s.Direct(ctx, note("slack")), s.ThroughAlertmanager(ctx, note("slack"))} {
		if err == nil || strings.Contains(err.Error(), "verysecret") {
			t.Errorf("%v", err)
		}
	}
	if err := s.ThroughAlertmanager(ctx, note("slack")); !strings.Contains(err.Error(), "Alertmanager at http://127.0.0.1") || !strings.Contains(err.Error(), "--direct") {
		t.Errorf("%v", err)
	}
}

func TestSecrets(t *testing.T) {
	if err := site(t, "http://a", "").CheckSecrets(); err != nil {
		t.Error(err)
	}
	err := site(t, "http://a", "open").CheckSecrets()
	if err == nil || strings.Count(err.Error(), "can be read by everybody (mode 0644): chmod 0600 it") != 2 {
		t.Errorf("%v", err)
	}
	if err := example(t).CheckSecrets(); err == nil || !strings.Contains(err.Error(), "slack.webhook_url_file: /etc/muster/secrets/slack-webhook is not there") {
		t.Errorf("%v", err)
	}
}
