package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/alerts"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/console"
)

// TestJudgedRulesExist: the console names alerts that there are.
func TestJudgedRulesExist(t *testing.T) {
	known := map[string]bool{}
	for _, rule := range alerts.All() {
		known[rule.Name] = true
	}
	for _, name := range console.JudgedRules() {
		if !known[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// openAlertmanager starts a real Alertmanager, which ends with the test.
func openAlertmanager(t *testing.T) (address string) {
	t.Helper()
	program, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		if os.Getenv("MUSTER_REQUIRE_ALERTING") != "" {
			t.Fatal("prometheus-alertmanager is not installed")
		}
		t.Skip("prometheus-alertmanager is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_ = l.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "am.yml")
	if err := os.WriteFile(config, []byte("route: {receiver: none}\nreceivers: [{name: none}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+config, "--storage.path="+dir, "--web.listen-address="+at, "--cluster.listen-address=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for {
		answer, err := http.Get("http://" + at + "/-/ready")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return "http://" + at
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// post gives Alertmanager an alert.
func postAlert(t *testing.T, address, labels, summary string) {
	t.Helper()
	body := fmt.Sprintf(`[{"labels":{%s},"annotations":{"summary":%q,"runbook_url":"https://runbooks/x.md"}}]`, labels, summary)
	answer, err := http.Post(address+"/api/v2/alerts", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status)
	}
}

// TestConsoleShowsAlerts: Now has what a real Alertmanager holds as firing, to those
// who may see it, and says so when it does not answer or none is configured.
func TestConsoleShowsAlerts(t *testing.T) {
	address := openAlertmanager(t)
	c := newConsoleServerOf(t, conffile.Web{AlertmanagerURL: address})
	cluster := c.s.cluster.ClusterName
	postAlert(t, address, `"alertname":"MusterNodesDown","severity":"warning","cluster":"`+cluster+`","node":"n1"`, "n1 is <b>down</b>")
	postAlert(t, address, `"alertname":"MusterJobGPUWarned","severity":"info","audience":"users","user":"1000","cluster":"`+cluster+`"`, "job 7 holds GPUs")
	postAlert(t, address, `"alertname":"MusterNodesDown","severity":"warning","cluster":"another"`, "of another cluster")
	client := &http.Client{}
	for len(c.s.firing.Latest().List) < 2 {
		c.s.firing.Ask(t.Context(), client) // Alertmanager takes a moment
	}
	shows := func(uid uint32, live bool) string {
		t.Helper()
		b := c.browser(uid)
		if live {
			return b.getLive("/")
		}
		_, page := b.get("/")
		return page
	}
	for _, live := range []bool{false, true} {
		if page := shows(0, live); !strings.Contains(page, "n1 is &lt;b&gt;down&lt;/b&gt;") || !strings.Contains(page, "job 7 holds") || strings.Contains(page, "another cluster") || !strings.Contains(page, `href="https://runbooks/x.md"`) {
			t.Errorf("an administrator sees:\n%s", page)
		}
		// The page that open pages share must not hold somebody's own alerts.
		if page := shows(1000, live); !strings.Contains(page, "job 7 holds") || strings.Contains(page, "n1 is") {
			t.Errorf("the owner sees:\n%s", page)
		}
		if page := shows(1001, live); strings.Contains(page, "job 7 holds") || strings.Contains(page, "n1 is") || !strings.Contains(page, "No alert is about you") {
			t.Errorf("another user sees:\n%s", page)
		}
	}
	c.s.firing.URL = "http://127.0.0.1:1"
	c.s.firing.Ask(t.Context(), client)
	if page := shows(0, false); !strings.Contains(page, "Alertmanager does not answer") || !strings.Contains(page, "n1 is") {
		t.Errorf("without an answer:\n%s", page)
	}
	none := newConsoleServer(t)
	if _, page := none.browser(0).get("/"); !strings.Contains(page, "No Alertmanager is configured") {
		t.Errorf("without an Alertmanager:\n%s", page)
	}
}
