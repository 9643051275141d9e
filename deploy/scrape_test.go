package deploy

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// tool finds a program that a fresh machine has after deploy/deps/install.sh.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %s is not installed: the scrape configurations were not checked by it (deploy/deps/install.sh installs promtool)", name)
	}
	return path
}

func scrapeFiles() []string { return []string{"prometheus/prometheus.yml", "vmagent/scrape.yml"} }

func TestScrapeConfigurations(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, file := range scrapeFiles() {
		if out, err := exec.Command(promtool, "check", "config", "--syntax-only", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

// TestScrapeJobs: dashboards and guides expect the jobs slurm and dcgm, and
// vmagent refuses a remote_write in its scrape file.
func TestScrapeJobs(t *testing.T) {
	for _, file := range scrapeFiles() {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\n  - job_name: slurm\n", "\n  - job_name: dcgm\n", "/sd\n"} {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s lacks %q", file, want)
			}
		}
		if strings.Contains(string(data), "\nremote_write:") {
			t.Errorf("%s has remote_write", file)
		}
	}
}

// TestVmagent lets the program itself read its configuration.
func TestVmagent(t *testing.T) {
	vmagent := tool(t, "vmagent")
	if out, err := exec.Command(vmagent, "-dryRun", "-promscrape.config=vmagent/scrape.yml", "-remoteWrite.url=http://127.0.0.1:1/api/v1/write").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
