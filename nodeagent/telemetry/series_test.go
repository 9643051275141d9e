package telemetry_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
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
	tel, err := telemetry.New(telemetry.Options{Cluster: "c", Node: "n1", JobLabels: mode})
	if err != nil {
		t.Fatal(err)
	}
	now := spec.AtUnix(time.Now().Unix()).Add(-spec.Span(jobs/8+1) * spec.Minute)
	gpus, err := simulated.New(simulated.Config{Node: "n1", Start: now, Lines: []simulated.Declared{{Type: "h100", Count: 8}}})
	if err != nil {
		t.Fatal(err)
	}
	defer gpus.Close()
	list, err := gpus.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tel.SetDevices(list)
	var sample device.Sample
	for first := 0; first < jobs; first += 8 {
		var on []telemetry.JobOnNode
		var use []telemetry.JobUsage
		for i := range min(8, jobs-first) {
			id := first + i + 1
			on = append(on, telemetry.JobOnNode{UID: spec.JobUID(id), Attempt: 1, ID: spec.JobID(id), User: fmt.Sprintf("u%d", id%200), Account: "ml", Partition: "gpu", From: now, CPUs: 8,
				Memory: 1 << 30, GPUs: []telemetry.GPUShare{{UUID: list[i].UUID}}})
			use = append(use, telemetry.JobUsage{UID: spec.JobUID(id), Attempt: 1})
		}
		tel.SetJobs(on)
		tel.SetUsage(use)
		for range 2 {
			now = now.Add(30 * spec.Second)
			if err := gpus.Sample(t.Context(), now, &sample); err != nil {
				t.Fatal(err)
			}
			tel.SetSample(&sample)
			var text bytes.Buffer
			if _, err := tel.WriteTo(&text); err != nil {
				t.Fatal(err)
			}
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
			vm.post(t, fmt.Sprintf("/api/v1/import/prometheus?timestamp=%d", int64(now)/int64(spec.Millisecond)), &text)
		}
	}
	return least, most
}

// victoria is a VictoriaMetrics of a test's own.
type victoria struct{ url string }

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
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	vm := &victoria{"http://" + addr}
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
