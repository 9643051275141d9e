package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhpc/muster/alerts"
)

// TestServersStartFromTheseFiles follows deploy/prometheus/README.md: the folder
// that it describes is all that the real Prometheus and Alertmanager need, with
// nothing taken out of the files.
func TestServersStartFromTheseFiles(t *testing.T) {
	prometheus, alertmanager := tool(t, "prometheus"), tool(t, "prometheus-alertmanager")
	dir := t.TempDir()
	config, err := os.ReadFile("prometheus/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("prometheus.yml", config)
	settings, err := alerts.Parse("alerts.yaml", alerts.Annotated(), dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := settings.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		write(f.Name, f.Data)
	}

	at := freeAddress(t)
	serve(t, prometheus, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at)
	var rules struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Type string }
			}
		}
	}
	loaded := func() int {
		alerting := 0
		for _, g := range rules.Data.Groups {
			for _, r := range g.Rules {
				if r.Type == "alerting" {
					alerting++
				}
			}
		}
		return alerting
	}
	await(t, "http://"+at+"/api/v1/rules", &rules, func() bool { return loaded() == len(alerts.All()) })
	var managers struct {
		Data struct {
			ActiveAlertmanagers []struct{ URL string }
		}
	}
	await(t, "http://"+at+"/api/v1/alertmanagers", &managers, func() bool { return len(managers.Data.ActiveAlertmanagers) == 1 })

	at = freeAddress(t)
	serve(t, alertmanager, "--config.file="+filepath.Join(dir, "alertmanager.yml"), "--storage.path="+filepath.Join(dir, "am"),
		"--web.listen-address="+at, "--cluster.listen-address=")
	var status struct {
		Config struct{ Original string }
	}
	await(t, "http://"+at+"/api/v2/status", &status, func() bool { return status.Config.Original != "" })
}

// freeAddress gives a loopback address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// serve runs a server until the test ends.
func serve(t *testing.T, path string, args ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, args...)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", filepath.Base(path), text)
		}
		log.Close()
	})
}

// await asks a server, which may still be starting, until it answers what is
// expected. How long that takes is the machine's business: the deadline of the
// whole test ends it.
func await(t *testing.T, url string, into any, expected func() bool) {
	t.Helper()
	for {
		err := get(t.Context(), url, into)
		if err == nil && expected() {
			return
		}
		if deadline, ok := t.Deadline(); ok && time.Until(deadline) < 10*time.Second {
			t.Fatalf("%s: %+v (%v)", url, into, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func get(ctx context.Context, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answered %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
