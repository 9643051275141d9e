package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

// TestSeriesCreated reports how many series a real VictoriaMetrics has made
// after SERIES_JOBS jobs (10,000) on one node with 8 GPUs, for each label mode:
// make series.
func TestSeriesCreated(t *testing.T) {
	if os.Getenv("MUSTER_SERIES") == "" {
		t.Skip("make series runs it")
	}
	program, err := exec.LookPath("victoria-metrics")
	if err != nil {
		t.Fatalf("%v: Debian has it as victoria-metrics", err)
	}
	jobs := 10_000
	if n, err := strconv.Atoi(os.Getenv("SERIES_JOBS")); err == nil {
		jobs = n
	}
	before := 0
	for _, mode := range []telemetry.JobLabels{telemetry.JobLabelsAll, telemetry.JobLabelsCore, telemetry.JobLabelsNone} {
		vm := startVictoria(t, program)
		least, most := feed(t, vm, mode, jobs)
		created := vm.created(t)
		t.Logf("job_labels %s: a scrape has %d to %d series; %d after %d jobs: %.1f a job", [...]string{"all", "core", "none"}[mode], least, most, created, jobs, float64(created-least)/float64(jobs))
		if before != 0 && created >= before {
			t.Errorf("fewer labels make %d series, more made %d", created, before)
		}
		before = created
	}
}

// feed runs jobs of a minute, eight at a time, and has each scrape imported.
func feed(t *testing.T, vm *victoria, mode telemetry.JobLabels, jobs int) (least, most int) {
	t.Helper()
	w := newWorld(t, telemetry.Options{JobLabels: mode}, simulated.Declared{Type: "h100", Count: 8})
	now := start
	for first := 0; first < jobs; first += 8 {
		var on []telemetry.JobOnNode
		var use []telemetry.JobUsage
		for i := range min(8, jobs-first) {
			id := first + i + 1
			on = append(on, telemetry.JobOnNode{UID: spec.JobUID(id), Attempt: 1, ID: spec.JobID(id), User: fmt.Sprintf("u%d", id%200), Account: "ml", Partition: "gpu", From: now, CPUs: 8,
				Memory: 1 << 30, GPUs: []telemetry.GPUShare{{UUID: w.devices[i].UUID}}})
			use = append(use, telemetry.JobUsage{UID: spec.JobUID(id), Attempt: 1})
		}
		w.tel.SetJobs(on)
		w.tel.SetUsage(use)
		for range 2 {
			now = now.Add(30 * spec.Second)
			w.collect(t, now)
			text := w.text(t)
			n := 0
			for line := range bytes.Lines(text.Bytes()) {
				if line[0] != '#' {
					n++
				}
			}
			most = max(most, n)
			if least == 0 || n < least {
				least = n
			}
			vm.put(t, now, text)
		}
	}
	return least, most
}

// victoria is a VictoriaMetrics of a test's own.
type victoria struct {
	url  string
	stop func()
}

func startVictoria(t *testing.T, program string) *victoria {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-storageDataPath="+t.TempDir(), "-httpListenAddr="+addr, "-retentionPeriod=100y")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	vm := &victoria{"http://" + addr, sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})}
	t.Cleanup(vm.stop)
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) { //muster:sleep a program of others is awaited
		resp, err := http.Get(vm.url + "/health")
		if err == nil {
			_ = resp.Body.Close()
			return vm
		}
		if time.Since(began) > 30*time.Second {
			t.Fatal(err)
		}
	}
}

func (v *victoria) post(t *testing.T, path string, body io.Reader) {
	t.Helper()
	resp, err := http.Post(v.url+path, "text/plain", body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode >= 300 {
		t.Fatal(resp.Status)
	}
}

var createdSeries = regexp.MustCompile(`(?m)^vm_new_timeseries_created_total (\d+)`)

// created is how many series it has made.
func (v *victoria) created(t *testing.T) int {
	t.Helper()
	v.post(t, "/internal/force_flush", nil)
	resp, err := http.Get(v.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	m := createdSeries.FindSubmatch(text)
	if m == nil {
		t.Fatalf("it does not say how many series it has made:\n%s", text)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTheJoinOfACounter asks a real VictoriaMetrics the query that the package's
// documentation gives: the energy a second of the GPU that a job holds, by job,
// and of no other.
func TestTheJoinOfACounter(t *testing.T) {
	program, err := exec.LookPath("victoria-metrics")
	if err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)//\t(rate\(DCGM_.*?muster_gpu_job_info)`).FindSubmatch(doc)
	if m == nil {
		t.Fatal("the documentation has no query")
	}
	ask := regexp.MustCompile(`\n//\s*`).ReplaceAllString(string(m[1]), " ")
	vm := startVictoria(t, program)
	w := newWorld(t, telemetry.Options{}, simulated.Declared{Type: "h100", Count: 2})
	uuid, end := w.devices[1].UUID, start.Add(10*spec.Minute)
	w.tel.SetJobs([]telemetry.JobOnNode{job(7, start, uuid)})
	if err := w.gpus.SetJobs(start, []simulated.Assignment{{Job: 7, Attempt: 1, From: start, Load: simulated.Load{Util: 50, Memory: 10}, UUIDs: []string{uuid}}}); err != nil {
		t.Fatal(err)
	}
	for at := start; at <= end; at = at.Add(15 * spec.Second) {
		w.collect(t, at)
		vm.put(t, at, w.text(t))
	}
	vm.post(t, "/internal/force_flush", nil)
	got := vm.ask(t, ask, end)
	if len(got) != 1 {
		t.Fatalf("%s gives %d series, want that of the job: %v", ask, len(got), got)
	}
	for name, want := range map[string]string{"slurm_job_id": "7", "user": "ada", "account": "physics", "partition": "gpu", "UUID": uuid, "hostname": "gpu01"} {
		if got[0].Metric[name] != want {
			t.Errorf("%s is %q, want %q", name, got[0].Metric[name], want)
		}
	}
	// Half of 700 W and what an idle one draws, in mJ a second.
	if v := got[0].Value[1]; len(fmt.Sprint(v)) < 6 || fmt.Sprint(v)[0] != '3' {
		t.Errorf("it draws %v mJ a second", v)
	}
}

// TestPushIntoVictoria: what is pushed is there to be asked by job, and a push
// while nobody listens is counted.
func TestPushIntoVictoria(t *testing.T) {
	program, err := exec.LookPath("victoria-metrics")
	if err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}
	vm := startVictoria(t, program)
	w := full(t, telemetry.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	failed, done := make(chan error, 16), make(chan struct{})
	go func() {
		defer close(done)
		w.tel.PushUntil(ctx, telemetry.Push{URL: vm.url + "/api/v1/import/prometheus", Interval: 200 * spec.Millisecond, Changed: func(err error) { failed <- err }})
	}()
	defer func() { cancel(); <-done }()
	export := vm.url + "/api/v1/export?match[]=" + url.QueryEscape(`DCGM_FI_DEV_GPU_UTIL{slurm_job_id="12345"}`)
	var got struct {
		Metric map[string]string
		Values []float64
	}
	for began := time.Now(); len(got.Values) < 2; time.Sleep(100 * time.Millisecond) { //muster:sleep a program of others is awaited
		if time.Since(began) > 30*time.Second {
			t.Fatalf("pushed so far: %+v", got)
		}
		vm.post(t, "/internal/force_flush", nil)
		resp, err := http.Get(export)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.NewDecoder(resp.Body).Decode(&got); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if got.Metric["gpu"] != "0" || got.Metric["UUID"] != w.devices[0].UUID || got.Metric["user"] == "" {
		t.Errorf("%+v", got)
	}
	vm.stop()
	if err := <-failed; err == nil {
		t.Error("a push that nobody took did not fail")
	}
	if !regexp.MustCompile(`(?m)^muster_agent_push_errors_total\{.*\} [1-9]`).Match(w.text(t).Bytes()) {
		t.Error("the failed push is not counted")
	}
}

// text is what a scrape would get.
func (w *world) text(t *testing.T) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	if _, err := w.tel.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return &b
}

// put imports a scrape of an instant.
func (v *victoria) put(t *testing.T, at spec.Instant, text *bytes.Buffer) {
	t.Helper()
	v.post(t, fmt.Sprintf("/api/v1/import/prometheus?timestamp=%d", int64(at)/int64(spec.Millisecond)), text)
}

// answer is one series of an answer.
type answer struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (v *victoria) ask(t *testing.T, query string, at spec.Instant) []answer {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("%s/api/v1/query?time=%d&nocache=1&query=%s", v.url, int64(at)/int64(spec.Second), url.QueryEscape(query)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Data struct {
			Result []answer `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v", query, resp.Status, err)
	}
	return out.Data.Result
}

// TestADeviceThatTheDriverLeavesOut: it is said to be lost although nobody
// reads it, so that the alert stays.
func TestADeviceThatTheDriverLeavesOut(t *testing.T) {
	w := newWorld(t, telemetry.Options{}, simulated.Declared{Type: "h100", Count: 2})
	w.collect(t, start.Add(spec.Minute))
	w.devices[1].Lost = true
	w.tel.SetDevices(w.devices)
	w.sample.Readings = w.sample.Readings[:1]
	w.tel.SetSample(&w.sample)
	text := w.text(t).String()
	up := regexp.MustCompile(`(?m)^muster_gpu_up\{gpu="(\d)".*\} ([01])$`).FindAllStringSubmatch(text, -1)
	if len(up) != 2 || up[0][2] != "1" || up[1][1] != "1" || up[1][2] != "0" {
		t.Errorf("%q", up)
	}
}
