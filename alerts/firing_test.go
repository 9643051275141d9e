package alerts

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestReadFiring: the alerts of our rules and of our cluster, the urgent ones first;
// a link that is none of the web is dropped, and an answer of any other kind is an
// error. test/e2e and cmd/musterd ask a real Alertmanager.
func TestReadFiring(t *testing.T) {
	body := `[
 {"labels":{"alertname":"MusterNodesDown","severity":"warning","cluster":"lab","audience":"operators","node":"n1"},"annotations":{"summary":"n1 is down","runbook_url":"javascript:alert(1)","dashboard":"https://grafana/d/x"},"startsAt":"2026-11-23T10:00:00Z"},
 {"labels":{"alertname":"MusterNodesDown","severity":"warning","cluster":"lab"},"annotations":{"summary":"n2 is down"},"startsAt":"2026-11-23T11:00:00Z"},
 {"labels":{"alertname":"MusterNodesDown","severity":"warning","cluster":"other"},"annotations":{"summary":"not ours"},"startsAt":"2026-11-23T11:00:00Z"},
 {"labels":{"alertname":"SomethingElse","severity":"critical","cluster":"lab"},"annotations":{},"startsAt":"2026-11-23T11:00:00Z"},
 {"labels":{"alertname":"MusterJobGPUWarned","severity":"info","user":"ada","audience":"users"},"annotations":{"summary":"job 7"},"startsAt":"2026-11-23T11:00:00Z"},
 {"labels":{"alertname":"MusterReportsStuck","severity":"made up"},"annotations":{"summary":"odd"},"startsAt":"2026-11-23T11:00:00Z"},
 {"labels":{"alertname":"MusterControllerDown","severity":"critical","cluster":"lab"},"annotations":{"summary":"no controller"},"startsAt":"2026-11-23T09:00:00Z"}]`
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/am/api/v2/alerts" || r.URL.Query().Get("silenced") != "false" || r.URL.Query().Get("inhibited") != "false" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	defer server.Close()
	got, err := ReadFiring(t.Context(), server.Client(), server.URL+"/am/", "lab")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range got {
		lines = append(lines, f.Summary)
	}
	if text := strings.Join(lines, ", "); text != "no controller, n2 is down, n1 is down, job 7, odd" {
		t.Errorf("%s", text)
	}
	down := got[2]
	if down.Runbook != "" || down.Board != "https://grafana/d/x" || !down.Since.Equal(time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)) || down.Audience != Operators {
		t.Errorf("%+v", down)
	}
	if got[3].Audience != Users || got[3].User != "ada" {
		t.Errorf("%+v", got[3])
	}
	body = strings.Repeat(" ", maxFiring+1)
	if _, err := ReadFiring(t.Context(), server.Client(), server.URL+"/am", "lab"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a long answer: %v", err)
	}
	body = "<html>"
	if _, err := ReadFiring(t.Context(), server.Client(), server.URL+"/am", "lab"); err == nil || !strings.Contains(err.Error(), "something else") {
		t.Errorf("a page: %v", err)
	}
	code = http.StatusForbidden
	if _, err := ReadFiring(t.Context(), server.Client(), server.URL+"/am", "lab"); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a refusal: %v", err)
	}
}
