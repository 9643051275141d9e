package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// metrics reads a page of metrics.
func (c *cluster) metrics(port int) string {
	c.t.Helper()
	rep, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		return err.Error()
	}
	defer rep.Body.Close()
	data, err := io.ReadAll(rep.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(data)
}

// metric waits until a page has a line.
func (c *cluster) metric(port int, line string) {
	c.t.Helper()
	var page string
	for range 1800 { // the first KPIs take long on a busy machine
		if page = c.metrics(port); strings.Contains(page, line) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("the metrics lack %q: they have\n%s", line, grep(page, "muster_accounting"))
}

// fails waits until a command fails with a text: the sockets of a process that
// was killed close some time after it.
func (c *cluster) fails(text string, args ...string) {
	c.t.Helper()
	var errs string
	var code int
	for range 100 {
		if _, errs, code = c.run(args...); code == 1 && strings.Contains(errs, text) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.t.Errorf("muster %s: exit %d, %q; expected 1 and %q", strings.Join(args, " "), code, errs, text)
}

func grep(page, word string) string {
	var out []string
	for line := range strings.Lines(page) {
		if strings.Contains(line, word) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// TestAccountingApart runs controller and accounting in a process each and
// kills them in turn: every job is in the store, once.
func TestAccountingApart(t *testing.T) {
	c := startWith(t, []string{"--apart"}, "MinJobAge=5")
	const metricsPort, kpiPort = 4, 5
	total := 0
	submit := func(n int) {
		for range n {
			c.must("sbatch", "--parsable", "--wrap", "true")
			total++
		}
	}
	all := func() []string {
		return strings.Fields(c.must("sacct", "-n", "-X", "-P", "-o", "JobID", "-S", "2020-01-01", "-s", "CD", "-E", "now+1hour"))
	}
	submit(3)
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", "3", "-o", "State")
	c.metric(c.port+metricsPort, "muster_accounting_up{cluster=\"muster\"} 1")

	// Accounting dies: jobs run, the controller tells the lag, the tools say who
	// is away.
	c.kill9("accounting")
	submit(3)
	c.fails("process of its own", "sacct")
	c.until("", "squeue", "-h")
	c.metric(c.port+metricsPort, "muster_accounting_up{cluster=\"muster\"} 0")
	if page := c.metrics(c.port + metricsPort); strings.Contains(page, "muster_accounting_lag_events{cluster=\"muster\"} 0\n") {
		t.Errorf("no lag is shown:\n%s", grep(page, "muster_accounting"))
	}
	c.must("up", "--dir", c.dir)
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", "6", "-o", "State")

	// The controller dies: accounting answers about the past, and goes on when
	// it is back.
	c.kill9("musterd")
	if got := len(all()); got != total {
		t.Errorf("%d jobs are shown without a controller, want %d", got, total)
	}
	c.must("up", "--dir", c.dir)
	submit(2)
	c.kill9("musterd")
	c.kill9("accounting")
	c.must("up", "--dir", c.dir)
	submit(2)
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", fmt.Sprint(total), "-o", "State")
	ids := all()
	seen := map[string]int{}
	for _, id := range ids {
		seen[id]++
	}
	for id := 1; id <= total; id++ {
		if seen[fmt.Sprint(id)] != 1 {
			t.Errorf("job %d is in the store %d times", id, seen[fmt.Sprint(id)])
		}
	}
	if len(ids) != total {
		t.Errorf("the store has jobs %v, want 1 to %d", ids, total)
	}
	c.metric(c.port+metricsPort, "muster_accounting_lag_events{cluster=\"muster\"} 0")
	c.metric(c.port+kpiPort, "muster_kpi_")

	// As on another host: the ledger comes over TLS, with this host's certificate.
	yaml := filepath.Join(c.dir, "muster.yaml")
	conf, err := os.ReadFile(yaml)
	if err != nil {
		t.Fatal(err)
	}
	conf = regexp.MustCompile(`(?m)^accounting:\n`).ReplaceAll(conf, fmt.Appendf(nil, "accounting:\n  controller: localhost:%d\n", c.port))
	if err := os.WriteFile(yaml, conf, 0o600); err != nil {
		t.Fatal(err)
	}
	c.kill9("accounting")
	c.must("up", "--dir", c.dir)
	submit(1)
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", fmt.Sprint(total), "-o", "State")
}
