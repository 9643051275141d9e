package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/assembly"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/settings"
	"github.com/musterhpc/muster/spec"
)

func TestJobRuns(t *testing.T) {
	l := newLab(t)
	l.up()
	reg := l.regs[0]
	inv := reg.GetInventory()
	if reg.GetNode() != "n1" || inv.GetCpus() != 64 || inv.GetMem() < 4000 || len(inv.GetGpus()) != 4 || inv.GetGpus()[1].GetType() != "h100" ||
		inv.GetBootId() == "" || !strings.Contains(inv.GetDegraded(), "config_overrides") || !strings.Contains(inv.GetMetricsAddr(), "127.0.0.1:") {
		t.Errorf("registered %v", inv)
	}
	l.order(l.job(key(1), "#!/bin/sh\necho $SLURM_JOB_ID $SLURMD_NODENAME $SLURM_CPUS_ON_NODE $WHO $0 $1\necho oops >&2\nexit 3\n",
		func(_ *apiv1.Launch, js *spec.JobSpec) {
			js.IO.Stdout, js.IO.Stderr, js.Args, js.Name = "%x-%3j.out", "%x.err", []string{"first"}, "hello"
		}))
	done := l.ended(key(1))
	if exitOf(done) != "3:0" || done.GetBatch().GetUnknown() || done.GetBatch().GetStarted() > done.GetBatch().GetEnded() {
		t.Errorf("%v", done)
	}
	if u := done.GetUsage(); u.GetUserCpu()+u.GetSystemCpu() <= 0 || u.GetPeakRss() <= 0 || !u.GetHasRss() {
		t.Errorf("usage: %v", u)
	}
	out := l.read("hello-001.out")
	if want := regexp.MustCompile(`^1 n1 1 me \S+/job00001/slurm_script first\n$`); !want.MatchString(out) {
		t.Errorf("output: %q", out)
	}
	if l.read("hello.err") != "oops\n" {
		t.Errorf("errors: %q", l.read("hello.err"))
	}
	// A file that cannot be opened, an interpreter that is not there.
	l.order(l.job(key(2), "#!/bin/sh\n", func(_ *apiv1.Launch, js *spec.JobSpec) { js.IO.Stdout = "no/such/folder" }),
		l.job(key(3), "#!/no/such/shell\n", func(_ *apiv1.Launch, js *spec.JobSpec) { js.IO.Stdout = "3.out" }))
	if got := exitOf(l.ended(key(2))); got != "0:53" {
		t.Errorf("bad output file: %s", got)
	}
	if got := exitOf(l.ended(key(3))); got != "2:0" || !strings.Contains(l.read("3.out"), "bad interpreter") {
		t.Errorf("bad interpreter: %s %q", got, l.read("3.out"))
	}
	l.await("heartbeats", func() bool { return l.beats > 0 })
}

func TestForgedOrderDoesNotRun(t *testing.T) {
	l := newLab(t)
	l.up()
	o := l.job(key(1), "#!/bin/sh\ntouch "+l.work+"/ran\n")
	o.GetLaunch().Script = []byte("#!/bin/sh\ntouch " + l.work + "/forged\n")
	l.order(o)
	if got := exitOf(l.ended(key(1))); got != "1:0" {
		t.Errorf("ended %s", got)
	}
	if f := l.failed[key(1)]; !strings.Contains(f.GetText(), "another script") || f.GetDrainNode() {
		t.Errorf("%v", f)
	}
	entries, err := os.ReadDir(l.work)
	if err != nil || len(entries) != 0 {
		t.Errorf("%v %v", entries, err)
	}
}

func TestRunsAsTheUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	l := newLab(t)
	l.up()
	l.order(l.job(key(1), "#!/bin/sh\nid -u; id -g; id -G; echo $HOME\n", func(o *apiv1.Launch, js *spec.JobSpec) {
		o.Job.UserId, o.Job.GroupId, o.Groups = 65534, 65534, []uint32{65534, 7}
		o.Environment, js.IO.Stdout = nil, "who"
	}))
	if got := exitOf(l.ended(key(1))); got != "0:0" {
		t.Fatalf("ended %s", got)
	}
	lines := strings.Fields(l.read("who"))
	if len(lines) != 5 || lines[0] != "65534" || lines[1] != "65534" || lines[2] != "65534" || lines[3] != "7" || lines[4] != "/nonexistent" {
		t.Errorf("%q", lines)
	}
}

func TestTimeLimit(t *testing.T) {
	l := newLab(t)
	l.up()
	l.order(l.job(key(7), "#!/bin/sh\ntrap 'echo got term; exit 5' TERM\ntouch ready\nwhile :; do sleep 0.05; done\n",
		func(_ *apiv1.Launch, js *spec.JobSpec) { js.IO.Stdout = "out" }))
	l.awaitFile("ready")
	l.order(&apiv1.Order{Run: &apiv1.RunKey{JobUid: 7, Attempt: 1, Step: plan.StepBatch},
		Kind: &apiv1.Order_Terminate{Terminate: &apiv1.Terminate{Grace: int64(30 * spec.Second), Note: "DUE TO TIME LIMIT"}}})
	if got := exitOf(l.ended(key(7))); got != "5:0" {
		t.Errorf("ended %s", got)
	}
	want := regexp.MustCompile(`(?m)^slurmstepd-n1: error: \*\*\* JOB 7 ON n1 CANCELLED AT \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d DUE TO TIME LIMIT \*\*\*$`)
	if out := l.read("out"); !want.MatchString(out) || !strings.Contains(out, "got term\n") {
		t.Errorf("output: %q", out)
	}
}

// TestAgentRestart: the job does not notice, and its end is told once.
func TestAgentRestart(t *testing.T) {
	l := newLab(t)
	l.up()
	open := l.gate("gate")
	l.order(l.job(key(1), "#!/bin/sh\necho $$ > pid\nread x < gate\nexit 4\n"))
	l.awaitFile("pid")
	// Short ones around it: the restart falls into their life.
	var keys []plan.RunKey
	for i := range uint64(20) {
		keys = append(keys, key(100+i))
		l.order(l.job(key(100+i), "#!/bin/sh\necho x >> ran-$SLURM_JOB_ID\n"))
	}
	l.stopAgent()
	if !strings.Contains(l.log.String(), "the jobs go on") {
		t.Error("the agent ends without a word")
	}
	l.startAgent()
	l.awaitStream(2)
	if reg := l.regs[1]; !slices.ContainsFunc(reg.GetRunning(), func(k *apiv1.RunKey) bool { return k.GetJobUid() == 1 }) {
		t.Errorf("the running job is not registered: %v", reg.GetRunning())
	}
	// The controller orders again whatever it has not heard the end of.
	for _, k := range append([]plan.RunKey{key(1)}, keys...) {
		l.mu.Lock()
		_, over := l.done[k]
		l.mu.Unlock()
		if !over {
			o := l.job(k, "#!/bin/sh\necho x >> ran-$SLURM_JOB_ID\n")
			if k == key(1) {
				o = l.job(k, "#!/bin/sh\necho $$ > pid\nread x < gate\nexit 4\n")
			}
			l.order(o)
		}
	}
	for _, k := range keys {
		if got := exitOf(l.ended(k)); got != "0:0" {
			t.Errorf("%s ended %s", k, got)
		}
		if ran := l.read(fmt.Sprintf("ran-%d", k.Job)); ran != "x\n" {
			t.Errorf("%s ran %d times", k, strings.Count(ran, "x"))
		}
	}
	open()
	if got := exitOf(l.ended(key(1))); got != "4:0" {
		t.Errorf("ended %s", got)
	}
	l.settled()
}

// settled ends controller and agent in peace and checks that each end was
// told once, but for repeats of reports that were not acknowledged.
func (l *lab) settled() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, list := range l.done {
		for _, d := range list[1:] {
			if exitOf(d) != exitOf(list[0]) || d.GetBatch().GetEnded() != list[0].GetBatch().GetEnded() {
				l.t.Errorf("%s ended as %v and as %v", k, list[0], d)
			}
		}
	}
}

// TestControllerAway: what happens meanwhile is told when it is back, all of
// it, in order, each once.
func TestControllerAway(t *testing.T) {
	l := newLab(t)
	l.up()
	l.mu.Lock()
	l.silent = true // the last thing it does: it does not acknowledge any more
	l.mu.Unlock()
	l.order(l.job(key(1), "#!/bin/sh\nexit 1\n"))
	l.ended(key(1))
	open := l.gate("gate")
	l.order(l.job(key(2), "#!/bin/sh\ntouch ready\nread x < gate\ntouch over\nexit 2\n"))
	l.awaitFile("ready")
	l.ep.Close()
	open()
	l.awaitFile("over")
	l.mu.Lock()
	l.silent, l.numbers = false, nil
	l.mu.Unlock()
	l.serveUnix()
	l.awaitStream(2)
	if got := exitOf(l.ended(key(2))); got != "2:0" {
		t.Errorf("ended %s", got)
	}
	l.await("both reports", func() bool { return len(l.numbers) == 2 })
	l.mu.Lock()
	if !slices.Equal(l.numbers, []uint64{1, 2}) || len(l.done[key(1)]) != 2 || len(l.done[key(2)]) != 1 {
		t.Errorf("reports %v, ends %v", l.numbers, l.done)
	}
	l.numbers = nil
	l.mu.Unlock()

	// Acknowledged is acknowledged: neither a new connection nor a new agent
	// tells it again.
	l.awaitForgotten()
	l.stopAgent()
	l.startAgent()
	l.awaitStream(3)
	l.order(l.job(key(3), "#!/bin/sh\nexit 0\n"))
	l.ended(key(3))
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Equal(l.numbers, []uint64{1}) {
		t.Errorf("reports of the new agent: %v", l.numbers)
	}
}

// awaitForgotten waits until nothing waits in agent and shepherd.
func (l *lab) awaitForgotten() {
	for !strings.Contains(l.get("/healthz"), "reports waiting: 0") {
		time.Sleep(5 * time.Millisecond)
	}
	l.awaitStates(0)
}

// get asks the agent's HTTP server.
func (l *lab) get(path string) string {
	l.t.Helper()
	resp, err := http.Get("http://" + l.metricsAddr() + path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

func (l *lab) metricsAddr() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.regs[len(l.regs)-1].GetInventory().GetMetricsAddr()
}

// TestGPUJob: devices by UUID, figures that add up, and series with the job.
func TestGPUJob(t *testing.T) {
	l := newLab(t)
	l.up()
	gpus := l.regs[0].GetInventory().GetGpus()
	open := l.gate("gate")
	take := func(o *apiv1.Launch, js *spec.JobSpec) {
		o.Here.Gpus = []*apiv1.GpuRef{{Uuid: gpus[1].GetUuid(), Index: 1}, {Uuid: gpus[3].GetUuid(), Index: 3}}
		js.Comment, js.IO.Stdout = "sim: util=100,shape=steady,warmup=0s", "out"
	}
	l.order(l.job(key(5), "#!/bin/sh\necho $CUDA_VISIBLE_DEVICES $SLURM_JOB_GPUS $SLURM_GPUS_ON_NODE\ntouch ready\nread x < gate\n", take))
	l.awaitFile("ready")
	labelled := regexp.MustCompile(`(?m)^DCGM_FI_DEV_GPU_UTIL\{gpu="1",.*slurm_job_id="5",user="tester",account="ml",partition="gpu"\} [1-9]`)
	for !labelled.MatchString(l.get("/metrics")) {
		time.Sleep(20 * time.Millisecond)
	}
	text := l.get("/metrics")
	if !strings.Contains(text, `DCGM_FI_DEV_GPU_UTIL{gpu="0"`) || !strings.Contains(text, `GPU_I_ID="",cluster="`) || strings.Count(text, `slurm_job_id="5"`) < 4 {
		t.Error("series are missing")
	}
	// Its samples are with the store, which did not take the first ones.
	for l.samples.of(5) < 2 || l.samples.of(0) < 2 {
		time.Sleep(20 * time.Millisecond)
	}
	if !l.samples.nodes["n1"] || len(l.samples.nodes) != 1 {
		t.Errorf("samples of %v", l.samples.nodes)
	}
	open()
	done := l.ended(key(5))
	if got := l.read("out"); got != "1,3 1,3 2\n" {
		t.Errorf("the job saw %q", got)
	}
	elapsed := done.GetBatch().GetEnded() - done.GetBatch().GetStarted()
	usage := done.GetUsage().GetGpus()
	if len(usage) != 2 || usage[0].GetUuid() != gpus[1].GetUuid() {
		t.Fatalf("%v", usage)
	}
	for _, g := range usage {
		if g.GetNoProcess()+g.GetIdle()+g.GetBusy() != elapsed || g.GetBusy() == 0 || !g.GetHas() {
			t.Errorf("%v, of %d ns", g, elapsed)
		}
	}
	for strings.Contains(l.get("/metrics"), `slurm_job_id="5"`) {
		time.Sleep(10 * time.Millisecond)
	}

	// A job without GPUs sees none.
	l.order(l.job(key(6), "#!/bin/sh\necho \"[$CUDA_VISIBLE_DEVICES]\"\n", func(_ *apiv1.Launch, js *spec.JobSpec) { js.IO.Stdout = "none" }))
	l.ended(key(6))
	if got := l.read("none"); got != "[]\n" {
		t.Errorf("a job without GPUs sees %q", got)
	}
}

// TestShepherdDies: the agent brings a new one up, and the job's end is told.
func TestShepherdDies(t *testing.T) {
	l := newLab(t)
	l.up()
	open := l.gate("gate")
	l.order(l.job(key(1), "#!/bin/sh\ntouch ready\nread x < gate\nexit 3\n"))
	l.awaitFile("ready")
	pid := l.shepherdPID()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for l.shepherdPID() == pid {
		time.Sleep(10 * time.Millisecond)
	}
	l.order(l.job(key(2), "#!/bin/sh\nexit 6\n"))
	if got := exitOf(l.ended(key(2))); got != "6:0" {
		t.Errorf("a job under the new shepherd ended %s", got)
	}
	open()
	if d := l.ended(key(1)); !d.GetBatch().GetUnknown() && exitOf(d) != "3:0" {
		t.Errorf("the adopted job ended as %v", d)
	}
}

// refusesToServe sees that an agent with these settings does not begin, and that its error says
// each of want.
func refusesToServe(t *testing.T, opts settings.Options, want ...string) {
	t.Helper()
	err := assembly.Serve(t.Context(), opts, version, io.Discard)
	if err == nil {
		t.Errorf("an agent begins that must say %q", want)
		return
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not say %q", err, text)
		}
	}
}

func TestSecondAgentInOneFolder(t *testing.T) {
	l := newLab(t)
	l.up()
	refusesToServe(t, l.opts, "in use by another muster-agent")
	opts := l.opts
	opts.StateDir, opts.Node, opts.Metrics = filepath.Join(l.dir, "s2"), "n2", l.metricsAddr()
	refusesToServe(t, opts, "metrics", "in use")
}

func TestCommandLine(t *testing.T) {
	l := newLab(t)
	bad := filepath.Join(l.dir, "bad.conf")
	if err := os.WriteFile(bad, []byte(slurmConf+"NodeNaem=x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	yaml := filepath.Join(l.dir, "labels.yaml")
	if err := os.WriteFile(yaml, []byte("telemetry:\n  job_label_name: job-id\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	common := []string{"--config", l.opts.ConfigFile, "--conf", l.opts.Conf, "--state-dir", l.opts.StateDir, "--shepherd", l.opts.Shepherd, "--metrics", "off"}
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--version"}, 0, "muster dev\n", ""},
		{[]string{"--help"}, 0, "--token-file", ""},
		{[]string{"-C"}, 0, "NodeName=", ""},
		{[]string{"--frobnicate"}, 2, "", "unknown flag: --frobnicate"},
		{[]string{"--describe", "CPUs=1"}, 2, "", "-Z"},
		{[]string{"--adopt", "--node", "n1"}, 2, "", "--adopt takes --namespace, --config and --state-dir only"},
		{[]string{"--namespace"}, 2, "", "--namespace is of --adopt"},
		{[]string{"--adopt", "--config", l.opts.ConfigFile, "--state-dir", l.dir}, 1, "", "PAM_USER is not set"},
		{[]string{"now"}, 2, "", `unknown argument "now"`},
		{[]string{"--config", "/no/such/file"}, 1, "", "no such file"},
		{[]string{"--config", yaml}, 1, "", "job_label_name"},
		{append(common, "--node", "n9"), 1, "", "there is no node n9; there is n[1-2]"},
		{append(common, "--conf", bad, "--node", "n1"), 1, "", "NodeNaem"},
		{append(common, "--node", "n1", "--controller", "localhost"), 1, "", "muster token n1"},
		{append(common, "--node", "n1", "--controller", l.socket, "--shepherd", "/no/shepherd"), 1, "", "/no/shepherd"},
		{append(common, "--node", "n1", "--controller", l.socket, "--state-dir", filepath.Join(l.dir, strings.Repeat("long", 30))), 1, "", "shorter --state-dir"},
	} {
		var out, errs bytes.Buffer
		if code := command(c.args, &out, &errs); code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%q: exit %d\n%s%s", c.args, code, out.String(), errs.String())
		}
	}
}

// TestMetricsAreProtected: the agents' metrics ask for a password where the web
// configuration says so, and one that cannot be read is told at the start.
func TestMetricsAreProtected(t *testing.T) {
	l := newLab(t)
	web := filepath.Join(l.dir, "web.yml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(l.dir, "muster.yaml"), musterYAML+"tls:\n  agent_web_config: "+web+"\n")
	write(web, "basic_auth_users:\n  prom: nonsense\nno_such_key: 1\n")
	refusesToServe(t, l.opts, "web.yml")
	write(web, "basic_auth_users:\n  prom: $2a$04$UPJXLs9Xd/CuykeaYVSMJOXvaKf8akDR4QlSWKtXQBj3WXVgfXADK\n") // secret
	l.up()
	ask := func(password string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.metricsAddr()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("prom", password)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for password, want := range map[string]int{"": 401, "guess": 401, "secret": 200} {
		if got := ask(password); got != want {
			t.Errorf("password %q: %d, want %d", password, got, want)
		}
	}
}

// TestTroublesDoNotStopTheNode: a counters file that cannot be read, a folder that cannot be
// written, GPUs without a driver, a meter that the machine lacks and an authority that cannot be read
// are said by the node, and jobs that need none of it run.
func TestTroublesDoNotStopTheNode(t *testing.T) {
	l := newLab(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("counters.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, use\nDCGM_FI_DEV_NOTHING, gauge, nothing\n")
	write("file", "no folder\n")
	telemetry := "telemetry:\n  counters_file: " + filepath.Join(l.dir, "counters.csv") +
		"\n  job_mapping_dir: " + filepath.Join(l.dir, "file", "jobs") +
		"\n  push_url: https://127.0.0.1:1\n  push_format: otlp\n  push_ca: " + filepath.Join(l.dir, "missing") + "\n"
	write("muster.yaml", strings.Replace(musterYAML, "telemetry:\n", telemetry, 1)+"energy:\n  source: pm_counters\n")
	write("gres.conf", strings.Replace(gresConf, "AutoDetect=off", "AutoDetect=nvml", 1))
	l.up()
	inv := l.regs[0].GetInventory()
	if len(inv.GetGpus()) > 0 {
		t.Skip("NOT TESTED: this machine has NVIDIA GPUs and a driver")
	}
	for _, want := range []string{"counters.csv:2:1:", `"DCGM_FI_DEV_NOTHING"`, "telemetry.job_mapping_dir", "not a directory", "is not installed", "GPUs of type h100 are declared and 0 found",
		"the node's energy is not measured", "the metrics are not pushed"} {
		if !strings.Contains(inv.GetDegraded(), want) {
			t.Errorf("the node does not say %q: %s", want, inv.GetDegraded())
		}
	}
	l.order(l.job(key(1), "#!/bin/sh\nexit 4\n"))
	if got := exitOf(l.ended(key(1))); got != "4:0" {
		t.Errorf("ended %s", got)
	}
}

// TestEnergyOfACPUJob: a meter that the node has, here a program in ipmitool's place,
// gives a job without GPUs its energy, in its report and in the metrics.
func TestEnergyOfACPUJob(t *testing.T) {
	l := newLab(t)
	tool := filepath.Join(l.dir, "ipmitool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho '    Instantaneous power reading:   640 Watts'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	yaml := musterYAML + "energy:\n  source: ipmi\n  ipmitool: " + tool + "\n  interval: 1s\n  idle_watts: 500\n"
	if err := os.WriteFile(filepath.Join(l.dir, "muster.yaml"), []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	l.up()
	open := l.gate("gate")
	l.order(l.job(key(1), "#!/bin/sh\nread x < gate\n"))
	value := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `\{[^}]*\} ([0-9.]+)$`).FindStringSubmatch(l.get("/metrics"))
		if m == nil {
			return ""
		}
		return m[1]
	}
	for value("muster_job_energy_joules_total") == "" {
		time.Sleep(20 * time.Millisecond)
	}
	// Its four simulated GPUs use some of the 640 W.
	watts, err := strconv.ParseFloat(value("muster_node_power_watts"), 64)
	if err != nil || watts <= 0 || watts >= 640 {
		t.Errorf("the node uses %v W without its GPUs, %v", watts, err)
	}
	open()
	if u := l.ended(key(1)).GetUsage(); !u.GetHasEnergy() || u.GetEnergyMj() <= 0 {
		t.Errorf("%v", u)
	}
}

// TestCountersOfAJob: the real shepherd and the kernel's programs: a job's bytes over
// loopback, its faults and switches are in its report, though its group is gone, and
// what a neighbour sends is not. One of 50 ms has them as exactly as others.
func TestCountersOfAJob(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("needs python3")
	}
	l := newLab(t)
	l.up()
	if strings.Contains(l.log.String(), "bytes over the network are not counted") {
		t.Skip("this kernel counts no bytes by control group")
	}
	const send = `#!/bin/sh
exec python3 -c '
import socket
s=socket.create_server(("127.0.0.1",0)); c=socket.create_connection(s.getsockname()); d,_=s.accept()
for _ in range(100):
  c.sendall(b"x"*10000); n=0
  while n<10000: n+=len(d.recv(65536))'
`
	l.order(l.job(key(1), send), l.job(key(2), "#!/bin/sh\n:\n"))
	counters := func(k plan.RunKey) spec.CounterValues {
		return wire.ToCounters(l.ended(k).GetUsage().GetCounters())
	}
	busy, idle := counters(key(1)), counters(key(2))
	loop, ok := busy.Get(spec.CounterNetLoopback)
	if !ok || loop < 1_000_000 || loop > 1_200_000 {
		t.Errorf("%d bytes over loopback, %v: %v", loop, ok, busy)
	}
	if out, ok := busy.Get(spec.CounterNetOut); !ok || out != 0 {
		t.Errorf("%d bytes over the network, %v", out, ok)
	}
	if loop, ok := idle.Get(spec.CounterNetLoopback); !ok || loop != 0 {
		t.Errorf("the neighbour: %d, %v", loop, ok)
	}
	for _, each := range []spec.Counter{spec.CounterMinFaults, spec.CounterVolSwitches} {
		if n, ok := idle.Get(each); !ok || n <= 0 {
			t.Errorf("%s of the short job: %d, %v", spec.Counters()[each-1].Name, n, ok)
		}
	}
}

// TestConfigVariable: MUSTER_CONFIG names the file, but not for logins, whose users choose it.
func TestConfigVariable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "of-the-variable.yaml")
	t.Setenv(conffile.PathVariable, file)
	t.Setenv("PAM_USER", "")
	for _, c := range []struct {
		args []string
		errs string
	}{
		{nil, file},
		{[]string{"--config", "/no/such/file"}, "/no/such/file"},
		{[]string{"--adopt", "--state-dir", t.TempDir()}, "PAM_USER is not set"},
	} {
		var errs bytes.Buffer
		code := command(c.args, io.Discard, &errs)
		if code != exitFailed || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%q: code %d, %s", c.args, code, errs.String())
		}
	}
}
