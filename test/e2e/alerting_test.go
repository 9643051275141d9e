package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/alerts"
	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/dashboards/preview"
	"github.com/musterhpc/muster/internal/durable"
)

// short are thresholds with which a fault is an alert within seconds.
const short = `
evaluate: 1s
group_wait: 1s
group_interval: 2s
repeat: 1h
keep_firing: 1s
business_hours: {days: "sunday:saturday", from: "00:00", to: "24:00", zone: UTC}
user_notices: slack
thresholds:
  MusterControllerDown: {for: 2s}
  MusterAgentDown: {for: 2s}
  MusterAccountingDown: {for: 1s}
  MusterGPUOffTheBus: {for: 1s}
  MusterGPUXID: {for: 1s}
  MusterGPUThrottled: {for: 1s, above: 0.005}
  MusterJobGPUIdle: {for: 1s, window: 5s}
  MusterNodeDrainedLong: {for: 1s, above: 2s}
  MusterNodesDown: {for: 1s}
  MusterOldestPending: {for: 1s, above: 3s}
  MusterFailureRate: {for: 1s, window: 1m, least: 3}
  MusterRefusalsMany: {for: 1s, above: 0.005}
  MusterRequeuesMany: {for: 1s, above: 0, window: 1m}
  MusterLicencesExhausted: {for: 1s}
  MusterAgentsLost: {severity: off}
`

// watched is a lab with Prometheus, Alertmanager and receivers beside it.
type watched struct {
	*cluster
	*receivers
	prometheus, alertmanager string
	victoria                 string // empty where VictoriaMetrics is not installed
}

// tools finds the programs of others that a test runs, or skips loudly.
func tools(t *testing.T, names ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("NOT TESTED with the real %s: %v (deploy/deps/install.sh installs it)", name, err)
		}
		out[name] = path
	}
	return out
}

func watch(t *testing.T, edits ...setting) *watched {
	t.Helper()
	need(t)
	tool := tools(t, "prometheus", "prometheus-alertmanager")
	w := &watched{cluster: &cluster{t: t, dir: shortDir(t), port: freePorts(t)}, receivers: newReceivers(t)}
	w.must("init", "--dir", w.dir, "--cluster", "lab", "--nodes", "3", "--gpus", "4", "--gpu-type", "h100", "--port", strconv.Itoa(w.port),
		"--conf", "Licenses=ansys:2", "--conf", "KillWait=2", "--conf", "MinJobAge=600")
	w.edit("slurm.conf", "NodeName=node[1-3]", "NodeName=node[1-2]")
	w.edit("slurm.conf", "\nPartitionName", "\nNodeName=node3 NodeHostname="+hostname(t)+" CPUs=8 RealMemory=16000 Gres=gpu:h100:2,gpu:a100_3g.20gb:4 State=UNKNOWN\nPartitionName")
	w.edit("muster.yaml", "interval: 10s", "interval: 1s")
	w.edit("muster.yaml", "cost:\n", w.cost())
	for _, s := range edits {
		w.edit("muster.yaml", s.line, s.becomes)
	}
	w.must("up", "--dir", w.dir)
	t.Cleanup(func() { w.run("down", "--dir", w.dir, "--jobs") })
	w.must("sacctmgr", "-i", "add", "account", "ml")
	w.must("sacctmgr", "-i", "add", "user", "root", "account=ml", "defaultaccount=ml")

	w.must("sacctmgr", "-i", "modify", "qos", "normal", "set", "GrpTRES=gres/gpu=100")
	w.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", w.job("--wrap", "true"), "-o", "State")

	w.write("hook", w.server.URL+hookPath)
	w.write("key", routingKey)
	w.prometheus, w.alertmanager = w.at(14), w.at(15)
	w.write("alerts.yaml", "slack: {webhook_url_file: hook, channel: '#cluster', users_channel: '#cluster-users'}\npagerduty: {routing_key_file: key, url: "+
		w.server.URL+"/v2/enqueue}\nalertmanager_url: "+w.alertmanager+"\n"+short)
	if out := w.must("alerts", "check", "--config", w.file("alerts.yaml")); !strings.Contains(out, "receivers: slack, pagerduty") {
		t.Error(out)
	}
	w.must("alerts", "generate", "--config", w.file("alerts.yaml"), "--out", w.file("alerting"))
	scrape := fmt.Sprintf(`
scrape_configs:
  - {job_name: slurm, honor_labels: true, static_configs: [{targets: ["127.0.0.1:%d"], labels: {cluster: lab}}]}
  - {job_name: dcgm, honor_labels: true, static_configs: [{targets: ["127.0.0.1:%d", "127.0.0.1:%d", "127.0.0.1:%d"], labels: {cluster: lab}}]}
`, w.port+4, w.port+10, w.port+11, w.port+12)
	w.write("prometheus.yml", fmt.Sprintf(`global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerting/%s]
alerting: {alertmanagers: [{static_configs: [{targets: ["127.0.0.1:%d"]}]}]}%s`, alerts.RulesFile, w.port+15, scrape))
	w.write("scrape.yml", "global: {scrape_interval: 1s}"+scrape)
	if path, err := exec.LookPath("victoria-metrics"); err == nil {
		w.victoria = w.at(16)
		w.daemon(path, "-storageDataPath="+w.file("vm"), "-httpListenAddr="+w.victoria[7:], "-promscrape.config="+w.file("scrape.yml"), "-search.latencyOffset=1s")
	}
	w.daemon(tool["prometheus"], "--config.file="+w.file("prometheus.yml"), "--storage.tsdb.path="+w.file("tsdb"), "--web.listen-address="+w.prometheus[7:], "--rules.alert.resend-delay=1s")
	w.daemon(tool["prometheus-alertmanager"], "--config.file="+w.file("alerting/"+alerts.AlertmanagerFile), "--storage.path="+w.file("am"), "--web.listen-address="+w.alertmanager[7:], "--cluster.listen-address=")
	for _, url := range []string{w.prometheus, w.alertmanager} {
		w.eventually(url+" is ready", func() bool {
			resp, err := http.Get(url + "/-/ready")
			if err != nil {
				return false
			}
			resp.Body.Close()
			return resp.StatusCode == http.StatusOK
		})
	}
	// Prometheus takes some seconds to find its targets; what happens before is not seen.
	source := preview.Source{Prometheus: w.prometheus}.Open()
	w.eventually("every target is scraped", func() bool {
		d, err := source.Query(context.Background(), dashboards.Scope{To: time.Now()}, dashboards.Panel{Kind: dashboards.Stat}, dashboards.Query{Expr: "count(up == 1) == 4"})
		return err == nil && !d.Empty()
	})
	return w
}

// setting is a line of the lab's muster.yaml and what it becomes.
type setting struct{ line, becomes string }

func hostname(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func (w *watched) at(n int) string         { return fmt.Sprintf("http://127.0.0.1:%d", w.port+n) }
func (w *watched) file(name string) string { return filepath.Join(w.dir, name) }
func (w *watched) job(args ...string) string {
	return w.must(append([]string{"sbatch", "--parsable"}, args...)...)
}
func (w *watched) scontrol(args ...string) {
	w.must(append([]string{"scontrol", "update"}, args...)...)
}
func (w *watched) sim(load string) []string {
	return []string{"--gres=gpu:1", "--comment", "sim:" + load, "--wrap", "sleep 600"}
}

// cost is the part of muster.yaml about money and carbon.
func (w *watched) cost() string {
	from, to := time.Now().AddDate(0, 0, -10).Format(time.DateOnly), time.Now().AddDate(0, 0, 10).Format(time.DateOnly)
	return fmt.Sprintf("cost:\n  currency: EUR\n  prices: [\"%s cpu=0.01 gres/gpu=1.5\"]\n  carbon: [\"%s 380\"]\n  budgets: [\"ml %s %s 100 warn=80\"]\n", from, from, from, to)
}

// write replaces a file in one step: a daemon that reads it sees the old text or the new.
func (w *watched) write(name, text string) {
	w.cluster.t.Helper()
	if err := durable.WriteFile(w.file(name), []byte(text), 0o600); err != nil {
		w.cluster.t.Fatal(err)
	}
}

func (w *watched) edit(name, from, to string) {
	w.cluster.t.Helper()
	data, err := os.ReadFile(w.file(name))
	if err != nil || !strings.Contains(string(data), from) {
		w.cluster.t.Fatalf("%s has no %q (%v)", name, from, err)
	}
	w.write(name, strings.ReplaceAll(string(data), from, to))
}

// daemon starts a program and stops it at the end of the test.
func (w *watched) daemon(path string, args ...string) {
	t := w.cluster.t
	t.Helper()
	log, err := os.Create(w.file(filepath.Base(path) + ".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, w.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Log(err)
		}
		_ = cmd.Wait()
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", path, data[max(0, len(data)-2000):])
		}
		log.Close()
	})
}

func (w *watched) eventually(what string, ok func() bool) {
	w.cluster.t.Helper()
	for began := time.Now(); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 3*time.Minute {
			w.cluster.t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// engine finds the process of the embedded engine; 0 while there is none.
func (w *watched) engine() int { return w.process("embedded-clickhouse", "") }

// process finds a process of this cluster by words of its command line; 0
// while there is none.
func (c *cluster) process(name, also string) int {
	c.t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(e)
		if err == nil && strings.Contains(string(data), name) && strings.Contains(string(data), also) && strings.Contains(string(data), c.dir) {
			pid, err := strconv.Atoi(strings.Split(e, "/")[2])
			if err == nil {
				return pid
			}
		}
	}
	return 0
}

// keepDown kills the engine as often as it comes back.
func (w *watched) keepDown(stop <-chan struct{}) {
	for {
		if pid := w.engine(); pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// TestAlertsFireFromRealFaults breaks a running cluster in many ways and waits
// for the notifications at what stands for Slack and PagerDuty, then mends it
// and waits for the news that it is over. With the same cluster it asks every
// panel of every dashboard.
func TestAlertsFireFromRealFaults(t *testing.T) {
	w := watch(t, setting{"kpi_share: 10", "kpi_share: 50"})
	if out, errs, code := w.run("alerts", "test", "--config", w.file("alerts.yaml"), "--receiver", "slack"); code != 0 {
		t.Errorf("muster alerts test: %s%s", out, errs)
	}
	slack := func(alert string) notice { return notice{Receiver: "slack", Alert: alert} }
	page := func(alert string) notice { return notice{Receiver: "pagerduty", Alert: alert} }
	over := func(n notice) notice { n.Resolved = true; return n }

	// Work that goes well, for the dashboards.
	w.must("scontrol", "create", "reservation", "ReservationName=course", "StartTime=now", "Duration=60", "Nodes=node3", "Users=root", "Flags=IGNORE_JOBS")
	w.must("scontrol", "create", "reservation", "ReservationName=later", "StartTime=now+2hours", "Duration=60", "Nodes=node3", "Users=root", "Flags=IGNORE_JOBS")
	mig := w.job("--gres=gpu:a100_3g.20gb:1", "--reservation=course", "--time=30", "--wrap", "sleep 600")
	w.until("R", "squeue", "-h", "-j", mig, "-o", "%t")
	good := w.job("--gres=gpu:1", "--comment", "sim:util=80,warmup=1s", "--wrap", "timeout 4 sh -c 'while :; do :; done'; sleep 3")
	// Faults of devices and of jobs.
	w.job(w.sim("util=50,xid=48@2s")...)
	lost := w.job(w.sim("util=50,lost@2s")...)
	w.job(w.sim("util=90,thermal@1s+60s")...)
	idle := w.job(w.sim("util=0,shape=idle")...)
	licence := w.job("-L", "ansys:2", "--wrap", "sleep 600")
	again := w.job("--wrap", "sleep 600")
	for range 4 {
		w.job("--wrap", "exit 3")
	}
	for range 8 {
		if _, _, code := w.run("sbatch", "--gres=gpu:9", "-N1", "--wrap", "true"); code == 0 {
			t.Error("an impossible job was accepted")
		}
	}
	w.until("R", "squeue", "-h", "-j", again, "-o", "%t")
	w.must("scontrol", "requeue", again)
	w.scontrol("nodename=node3", "state=drain", "reason=fan")
	// It waits for GPUs that others hold. The node of the lost one has three.
	w.job("--gres=gpu:3", "-N2", "--ntasks-per-node=1", "--wrap", "sleep 1")
	w.await(slack("MusterGPUXID"), page("MusterGPUXID"), slack("MusterGPUOffTheBus"), slack("MusterGPUThrottled"), slack("MusterLicencesExhausted"),
		slack("MusterFailureRate"), slack("MusterRefusalsMany"), slack("MusterRequeuesMany"), slack("MusterNodeDrainedLong"), slack("MusterOldestPending"),
		notice{Receiver: "slack", Alert: "MusterJobGPUIdle", Channel: "#cluster-users"}, slack("README"))

	t.Run("dashboards", func(t *testing.T) { everyPanel(t, w, good, idle) })
	t.Run("VictoriaMetrics", func(t *testing.T) { onVictoria(t, w, idle) })

	// Mend what was broken, break more.
	w.must("scancel", lost, idle, licence)
	for _, id := range []string{lost, idle, licence} { // an agent that is gone ends no job
		w.until("CANCELLED by "+strconv.Itoa(os.Getuid()), "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	}
	w.scontrol("nodename=node3", "state=resume")
	w.scontrol("nodename=node2", "state=down", "reason=board")
	// An engine that ends is started again; one that cannot stay up is a fault.
	stop := make(chan struct{})
	var breaking sync.WaitGroup
	breaking.Go(func() { w.keepDown(stop) })
	w.kill9("agent-node1")
	w.await(over(slack("MusterGPUOffTheBus")), over(slack("MusterJobGPUIdle")), over(slack("MusterLicencesExhausted")),
		slack("MusterNodesDown"), slack("MusterAgentDown"), slack("MusterAccountingDown"))
	close(stop)
	breaking.Wait()
	w.scontrol("nodename=node2", "state=resume")
	w.must("up", "--dir", w.dir)
	w.await(over(slack("MusterNodesDown")), over(slack("MusterNodeDrainedLong")), over(slack("MusterAgentDown")), over(slack("MusterAccountingDown")))
	w.kill9("musterd")
	w.await(slack("MusterControllerDown"), page("MusterControllerDown"))
	w.must("up", "--dir", w.dir)
	w.await(over(slack("MusterControllerDown")), over(page("MusterControllerDown")))
	if list := w.alerts(); len(list) < 15 { // one for each kind of fault
		t.Errorf("only %d alerts were notified: %v", len(list), list)
	} else {
		t.Logf("%d alerts were notified: %v", len(list), list)
	}
}

// everyPanel asks every query of every dashboard: one that fails, or that has
// nothing to show without a reason, is an error.
func everyPanel(t *testing.T, w *watched, ended, runs string) {
	w.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", ended, "-o", "State")
	source := preview.Source{Prometheus: w.prometheus, ClickHouse: w.file("run/clickhouse.sock"), Database: "muster"}.Open()
	ctx := context.Background()
	w.eventually("the KPIs of the job that ended", func() bool {
		users, err := source.Values(ctx, "muster_kpi_gpu_occupancy_ratio", "key")
		return err == nil && len(users) > 0
	})
	to := time.Now().Add(2 * time.Second).Truncate(time.Second)
	scope := dashboards.Scope{Vars: map[string][]string{"cluster": {"lab"}, "job": {runs}}, From: to.Add(-5 * time.Minute), To: to, Step: 2 * time.Second}
	past := scope
	past.Vars = map[string][]string{"cluster": {"lab"}, "job": {ended}}
	asked, empty := 0, 0
	for _, b := range dashboards.All() {
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				at := scope
				if p.Queries[0].Lang == dashboards.SQL {
					at = past
				}
				for _, q := range p.Queries {
					asked++
					d, err := source.Query(ctx, at, p, q)
					switch {
					case err != nil:
						t.Errorf("%s / %s: %v", b.UID, p.Title, err)
					case d.Empty() && p.MayBeEmpty == "":
						t.Errorf("%s / %s has no data: %s", b.UID, p.Title, q.Expr)
					case d.Empty():
						empty++
						t.Logf("%s / %s is empty: %s", b.UID, p.Title, p.MayBeEmpty)
					}
				}
			}
		}
	}
	t.Logf("%d queries asked, %d empty with a reason", asked, empty)
	// Findings are among the seven: they may take 5 % of the store's time, and the lab is minutes old.
	if asked < 200 || empty > 7 {
		t.Errorf("of %d queries %d were empty", asked, empty)
	}
	screenshot(t, w)
}

// askVictoria asks every panel's PromQL and MetricsQL of the last minutes, and
// tells what failed or had no data.
func askVictoria(source preview.Source, runs string) (wrong []string, metricsQL int) {
	to := time.Now().Truncate(time.Second)
	scope := dashboards.Scope{Vars: map[string][]string{"cluster": {"lab"}, "job": {runs}}, From: to.Add(-5 * time.Minute), To: to, Step: 2 * time.Second}
	for _, b := range dashboards.All() {
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				for _, q := range p.Queries {
					if q.Lang == dashboards.SQL || strings.Contains(q.Expr, "ALERTS") {
						continue
					}
					d, err := source.Query(context.Background(), scope, p, q)
					if err != nil || d.Empty() && p.MayBeEmpty == "" {
						wrong = append(wrong, fmt.Sprintf("%s / %s: %v, empty: %v: %s", b.UID, p.Title, err, d.Empty(), q.Expr))
					}
					if q.Lang == dashboards.MetricsQL && !d.Empty() {
						metricsQL++
					}
				}
			}
		}
	}
	return wrong, metricsQL
}

// onVictoria asks the same of a VictoriaMetrics that scraped the same cluster,
// and has vmalert evaluate the same rules: none may fail, and what fires in
// Prometheus fires there.
func onVictoria(t *testing.T, w *watched, runs string) {
	if w.victoria == "" {
		t.Skip("NOT TESTED with VictoriaMetrics: it is not installed")
	}
	vmalert := tools(t, "vmalert")["vmalert"]
	source := preview.Source{Prometheus: w.victoria}.Open()
	// The KPIs of GPUs come with accounting's next round after its engine was
	// killed, so an empty answer is asked again for a while.
	var wrong []string
	metricsQL := 0
	for range 60 {
		if wrong, metricsQL = askVictoria(source, runs); len(wrong) == 0 {
			break
		}
		time.Sleep(2 * time.Second)
	}
	for _, text := range wrong {
		t.Error(text)
	}
	if metricsQL == 0 {
		t.Error("no panel in MetricsQL had data")
	}
	sink := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	t.Cleanup(sink.Close)
	at := w.at(17)
	w.daemon(vmalert, "-rule="+w.file("alerting/"+alerts.RulesFile), "-datasource.url="+w.victoria, "-remoteWrite.url="+w.victoria, "-notifier.url="+sink.URL, "-httpListenAddr="+at[7:], "-evaluationInterval=1s")
	get := func(path string) string {
		resp, err := http.Get(at + path)
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return ""
		}
		return string(body)
	}
	w.eventually("vmalert fires", func() bool {
		text := get("/api/v1/alerts")
		for _, name := range []string{"MusterLicencesExhausted", "MusterNodeDrainedLong", "MusterOldestPending", "MusterJobGPUIdle"} {
			if !strings.Contains(text, `"`+name+`"`) {
				return false
			}
		}
		return true
	})
	for _, line := range strings.Split(get("/metrics"), "\n") {
		if strings.HasPrefix(line, "vmalert_execution_errors_total") && !strings.HasSuffix(line, " 0") {
			t.Error(line)
		}
	}
}

// screenshot has the preview page drawn by a real browser and looks whether
// the charts are on it.
func screenshot(t *testing.T, w *watched) {
	page := w.file("preview.html")
	out := w.must("dashboards", "preview", "--prometheus", w.prometheus, "--config", w.file("muster.yaml"), "--since", "5m", "--out", page)
	if !strings.Contains(out, ", 0 failed") {
		t.Error(out)
	}
	browser := tools(t, "chromium")["chromium"]
	shot := filepath.Join(w.dir, "preview.png")
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--user-data-dir="+w.file("chromium"), "--window-size=1500,2400", "--screenshot="+shot, "--dump-dom", "file://"+page)
	dom, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", browser, err)
	}
	drawn := regexp.MustCompile(`data-drawn="([0-9]+)"`).FindSubmatch(dom)
	if drawn == nil {
		t.Fatal("the page's script did not run to its end")
	}
	if n, err := strconv.Atoi(string(drawn[1])); err != nil || n < 80 {
		t.Errorf("the browser drew %s charts", drawn[1])
	}
	if to := os.Getenv("MUSTER_SCREENSHOT"); to != "" {
		data, err := os.ReadFile(shot)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
