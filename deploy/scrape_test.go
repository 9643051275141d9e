package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// old takes out what only a Prometheus of this year knows, when the one that
// is installed does not: Debian's is older than native histograms.
func old(t *testing.T, promtool, text string) string {
	t.Helper()
	out, err := exec.Command(promtool, "--version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`version (2|3\.[0-7])\.`).Match(out) {
		text = regexp.MustCompile(`(?m)^ *(scrape_native_histograms|always_scrape_classic_histograms): .*\n`).ReplaceAllString(text, "")
	}
	return text
}

func TestScrapeConfigurations(t *testing.T) {
	promtool := tool(t, "promtool")
	for _, file := range scrapeFiles() {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(t.TempDir(), "prometheus.yml")
		if err := os.WriteFile(copied, []byte(old(t, promtool, string(data))), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(promtool, "check", "config", copied).CombinedOutput(); err != nil {
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
