package telemetry_test

import (
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/nodeagent/telemetry"
	"github.com/musterhpc/muster/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const start = spec.Instant(1_700_000_000) * spec.Instant(spec.Second)

// world is a node with simulated GPUs and its telemetry.
type world struct {
	gpus    *simulated.Provider
	devices []device.Device
	tel     *telemetry.Telemetry
	sample  device.Sample
}

func newWorld(t testing.TB, o telemetry.Options, lines ...simulated.Declared) *world {
	t.Helper()
	p, err := simulated.New(simulated.Config{Node: "gpu01", Start: start, Lines: lines})
	if err != nil {
		t.Fatal(err)
	}
	o.Cluster, o.Node, o.Version, o.Provider = "lab", "gpu01", "0.1.0", "simulated"
	w := &world{gpus: p}
	if w.tel, err = telemetry.New(o); err != nil {
		t.Fatal(err)
	}
	if w.devices, err = p.Inventory(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.tel.SetDevices(w.devices)
	return w
}

func (w *world) collect(t testing.TB, at spec.Instant) {
	t.Helper()
	if err := w.gpus.Sample(t.Context(), at, &w.sample); err != nil {
		t.Fatal(err)
	}
	w.tel.SetSample(&w.sample)
}

func job(id spec.JobID, from spec.Instant, gpus ...string) telemetry.JobOnNode {
	j := telemetry.JobOnNode{UID: spec.JobUID(id) + 1_000_000, Attempt: 1, ID: id, User: "ada", Account: "physics", Partition: "gpu", From: from, CPUs: 4, Memory: 8 << 30}
	for _, g := range gpus {
		j.GPUs = append(j.GPUs, telemetry.GPUShare{UUID: g})
	}
	return j
}

// full fills every part of the picture.
func full(t testing.TB, o telemetry.Options) *world {
	w := newWorld(t, o, simulated.Declared{Type: "h100", Count: 2}, simulated.Declared{Type: "a100", Count: 1, MIG: []string{"3g.40gb", "2g.20gb"}})
	at := start.Add(30 * spec.Second)
	loads := []simulated.Assignment{
		{Job: 1, From: start, UUIDs: []string{w.devices[0].UUID}, Load: simulated.Load{Util: 90, Memory: 50}},
		{Job: 2, From: start, UUIDs: []string{w.devices[2].MIG[1].UUID}, Load: simulated.Load{Util: 40, Memory: 20}},
	}
	if err := w.gpus.SetJobs(start, loads); err != nil {
		t.Fatal(err)
	}
	one := job(12345, start, w.devices[0].UUID)
	two := job(12346, start, w.devices[2].MIG[1].UUID)
	two.User = "o\"brien\\\nx" // no user has such a name; the format must bear it
	shared := job(12347, start)
	shared.GPUs = []telemetry.GPUShare{{UUID: w.devices[1].UUID, Share: 250}}
	w.tel.SetJobs([]telemetry.JobOnNode{two, shared, one})
	// A pod that came after the reading has no gauge yet.
	w.tel.SetPods([]telemetry.PodOnNode{{UUID: w.devices[2].MIG[0].UUID, Namespace: "web", Pod: "front", Container: "main", From: at + 1}})
	w.collect(t, at)
	w.tel.SetUsage([]telemetry.JobUsage{
		{UID: one.UID, Attempt: 1, UserNS: 95_500_000_000, SystemNS: 1_000_000, MemoryBytes: 1 << 30, PeakBytes: 2 << 30, ReadBytes: 4096, WriteBytes: 8192, OOMKills: 0, Processes: 3, Counters: spec.CounterValues{
			{Counter: spec.CounterNetIn, N: 5000}, {Counter: spec.CounterNetOut, N: 7000}, {Counter: spec.CounterNetIn6, N: 1000}, {Counter: spec.CounterNetOut6, N: 0},
			{Counter: spec.CounterNetLoopback, N: 42}, {Counter: spec.CounterFabricIn, N: 1 << 40}, {Counter: spec.CounterFabricOut, N: 1 << 41},
			{Counter: spec.CounterLustreRead, N: 11}, {Counter: spec.CounterLustreWrite, N: 12}, {Counter: spec.CounterThrottled, N: 1_500_000}, {Counter: spec.CounterCPUStall, N: 250_000}}},
		{UID: 999, Attempt: 1, UserNS: 1}, // ended: not shown
	})
	book := attrib.NewBook(spec.Minute)
	for _, k := range []attrib.Key{{Job: one.UID, Attempt: 1, GPU: w.devices[0].UUID}, {Job: 999, Attempt: 1, GPU: w.devices[0].UUID}} {
		if err := book.Start(k, start, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := book.Start(attrib.Key{Job: one.UID, Attempt: 1, GPU: w.devices[1].UUID}, start, 500); err != nil {
		t.Fatal(err)
	}
	util, memory, energy, later := int64(900_000), int64(40_000), int64(1_000), int64(16_500)
	book.Observe(w.devices[0].UUID, attrib.Observation{At: start, EnergyMJ: &energy})
	book.Observe(w.devices[0].UUID, attrib.Observation{At: at, Processes: 1, Util: &util, MemoryMiB: &memory, EnergyMJ: &later})
	book.Observe(w.devices[1].UUID, attrib.Observation{At: start, EnergyMJ: &energy})
	book.Observe(w.devices[1].UUID, attrib.Observation{At: at, Processes: 1, Util: &util, EnergyMJ: &later})
	w.tel.SetGPUAccounts(book.Accounts())
	w.tel.SetNode(telemetry.NodeStats{CPUs: 64, UserNS: 1_500_000_000, SystemNS: 2_000_000_000, IdleNS: 3_000_000_000, MemoryBytes: 512 << 30,
		MemoryAvailable: 500 << 30, LoadCenti: [3]int64{133, 48, 22}, BootTime: start, TmpDiskBytes: 1 << 40, TmpDiskAvailable: 1 << 39})
	w.tel.SetCounters(spec.CounterValues{{Counter: spec.CounterFabricIn, N: 1 << 42}, {Counter: spec.CounterFabricOut, N: 1 << 43},
		{Counter: spec.CounterNFSRead, N: 70}, {Counter: spec.CounterNFSWrite, N: 80}})
	w.tel.SetEnergy(&telemetry.Energy{Source: "rapl", NodeMJ: 12_345_678, NobodyMJ: 2_345_000, MilliWatts: 410_250, IdleMilliWatts: 120_000,
		Jobs: []telemetry.JobEnergy{{UID: one.UID, Attempt: 1, MJ: 9_876_543}, {UID: 999, Attempt: 1, MJ: 1}}})
	w.tel.ReportSent()
	w.tel.SetShepherdUp(true)
	w.tel.SetControllerConnected(true)
	w.tel.SetReportsPending(2)
	w.tel.Collected(telemetry.SourceGPU, 3*spec.Millisecond, nil)
	w.tel.GPUEvent(device.EventXID)
	return w
}

// volatile tells families whose values depend on the machine or the build.
func volatile(name string) bool {
	return strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || name == "muster_agent_build_info"
}

func TestGolden(t *testing.T) {
	var b strings.Builder
	if _, err := full(t, telemetry.Options{}).tel.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	var kept []string
	for _, line := range strings.Split(b.String(), "\n") {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if i := strings.IndexAny(name, "{ "); i > 0 && volatile(name[:i]) {
			continue
		}
		kept = append(kept, line)
	}
	got := strings.Join(kept, "\n")
	path := filepath.Join("testdata", "metrics.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the metrics changed; if that is meant, run with -update and review the difference\n%s", firstDifference(got, string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// What is served is what the catalogue says, in every label mode.
func TestCatalogue(t *testing.T) {
	if _, err := catalogue.New(telemetry.Metrics()); err != nil {
		t.Fatal(err)
	}
	counters, err := telemetry.ParseCounters("c.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, Use.\nDCGM_FI_DRIVER_VERSION, label, Driver\nDCGM_FI_DEV_XID_ERRORS, counter, Errors.")
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]telemetry.Options{
		"all": {}, "core": {JobLabels: telemetry.JobLabelsCore}, "none": {JobLabels: telemetry.JobLabelsNone}, "custom": {Counters: counters},
		"alias": {JobAlias: "hpc_job"}, "no alias": {JobAlias: "slurm_job_id"},
	} {
		t.Run(name, func(t *testing.T) {
			w := full(t, o)
			_, seen := scrape(t, w.tel)
			c, err := catalogue.New(w.tel.Served())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Conform(telemetry.Endpoint, seen, true); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestJobAlias: the job's number stands under a second name wherever it stands
// under the first, and is empty where no job is.
func TestJobAlias(t *testing.T) {
	points, _ := scrape(t, full(t, telemetry.Options{JobAlias: "hpc_job"}).tel)
	jobs := 0
	for _, p := range points {
		id, has := p.labels["slurm_job_id"]
		if alias, also := p.labels["hpc_job"]; has != also || id != alias {
			t.Errorf("%s: slurm_job_id %q, hpc_job %q", p.name, id, alias)
		}
		if id != "" {
			jobs++
		}
	}
	if jobs == 0 {
		t.Error("no series of a job")
	}
}

func TestTheQueryOfTheField(t *testing.T) {
	w := full(t, telemetry.Options{})
	points, _ := scrape(t, w.tel)
	p := the(t, points, "DCGM_FI_DEV_GPU_UTIL", "slurm_job_id", "12345")
	want := "gpu UUID pci_bus_id device modelName hostname GPU_I_PROFILE GPU_I_ID slurm_job_id user account partition"
	if got := strings.Join(p.order, " "); got != want {
		t.Errorf("labels %s\nwant   %s", got, want)
	}
	if p.value < 80 || p.labels["UUID"] != w.devices[0].UUID || p.labels["hostname"] != "gpu01" || p.labels["device"] != "nvidia0" || p.labels["user"] != "ada" {
		t.Errorf("%+v", p)
	}
	// A counter joins by UUID and GPU_I_ID: exactly one partner.
	energy := the(t, points, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "UUID", p.labels["UUID"])
	if _, has := energy.labels["slurm_job_id"]; has {
		t.Error("a counter carries a job label")
	}
	the(t, points, "muster_gpu_job_info", "UUID", energy.labels["UUID"], "GPU_I_ID", energy.labels["GPU_I_ID"])
	slice := the(t, points, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "slurm_job_id", "12346")
	if slice.labels["GPU_I_ID"] != "2" || slice.labels["GPU_I_PROFILE"] != "2g.20gb" || slice.labels["user"] != "o\"brien\\\nx" || slice.labels["UUID"] != w.devices[2].UUID {
		t.Errorf("%+v", slice)
	}
	// The shared device stays unlabelled and has one series; the part is apart.
	if p := the(t, points, "DCGM_FI_DEV_GPU_UTIL", "gpu", "1"); p.labels["slurm_job_id"] != "" {
		t.Errorf("a shared device is labelled with job %s", p.labels["slurm_job_id"])
	}
	if s := the(t, points, "muster_gpu_job_share_ratio", "gpu", "1"); s.value != 0.25 || s.labels["slurm_job_id"] != "12347" {
		t.Errorf("%+v", s)
	}
	if n := len(all(points, "muster_gpu_job_info", "gpu", "1")); n != 0 {
		t.Errorf("a shared device has %d info series: joins would fail", n)
	}
}

func TestCoreLabels(t *testing.T) {
	w := full(t, telemetry.Options{JobLabels: telemetry.JobLabelsCore})
	points, _ := scrape(t, w.tel)
	the(t, points, "DCGM_FI_DEV_POWER_USAGE", "slurm_job_id", "12345")
	if _, has := the(t, points, "DCGM_FI_DEV_GPU_TEMP", "gpu", "0").labels["slurm_job_id"]; has {
		t.Error("temperature is not in the core set")
	}
}

func TestLostDevice(t *testing.T) {
	w := full(t, telemetry.Options{})
	at := start.Add(40 * spec.Second)
	if err := w.gpus.Inject(at, w.devices[0].UUID, simulated.Fault{Kind: simulated.FaultLost}); err != nil {
		t.Fatal(err)
	}
	w.collect(t, at.Add(spec.Second))
	points, _ := scrape(t, w.tel)
	if p := the(t, points, "muster_gpu_up", "gpu", "0"); p.value != 0 {
		t.Error("a lost device is up")
	}
	if n := len(all(points, "DCGM_FI_DEV_GPU_UTIL", "gpu", "0")); n != 0 {
		t.Error("a lost device still has readings")
	}
}

func TestJobsBeyondTheBoundAreCounted(t *testing.T) {
	w := newWorld(t, telemetry.Options{MaxJobs: 3}, simulated.Declared{Count: 1})
	var jobs []telemetry.JobOnNode
	for i := spec.JobID(1); i <= 10; i++ {
		jobs = append(jobs, job(i, start))
	}
	again := job(2, start.Add(spec.Second)) // a later attempt of job 2
	again.Attempt, again.CPUs = 2, 99
	w.tel.SetJobs(append(jobs, again))
	points, _ := scrape(t, w.tel)
	if n := len(all(points, "muster_job_cpus")); n != 3 {
		t.Errorf("%d jobs have series", n)
	}
	if p := the(t, points, "muster_job_cpus", "slurm_job_id", "2"); p.value != 99 {
		t.Errorf("job 2 shows its first attempt: %v", p)
	}
	if a, b := the(t, points, "muster_agent_jobs").value, the(t, points, "muster_agent_jobs_without_series").value; a != 10 || b != 7 {
		t.Errorf("%v jobs, %v without series", a, b)
	}
}

// A label is never wrong, and no GPU ever has two series of a field: at any
// moment, a reading carries a job exactly when that job runs now and already
// ran when the reading was taken.
func TestLabelsAreTrue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, telemetry.Options{}, simulated.Declared{Type: "h100", Count: 3}, simulated.Declared{Type: "h100", Count: 1, MIG: []string{"3g.40gb", "3g.40gb"}})
		units := []string{w.devices[0].UUID, w.devices[1].UUID, w.devices[2].UUID, w.devices[3].MIG[0].UUID, w.devices[3].MIG[1].UUID}
		running := map[string]telemetry.JobOnNode{} // by unit
		now, sampled := start, spec.Instant(0)
		next := spec.JobID(1)
		for step := rapid.IntRange(3, 18).Draw(rt, "steps"); step > 0; step-- {
			now = now.Add(spec.Span(rapid.Int64Range(1, int64(5*spec.Second)).Draw(rt, "tick")))
			u := rapid.SampledFrom(units).Draw(rt, "unit")
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0: // start, after an end where the unit was busy
				running[u] = job(next, now, u)
				next++
				w.setJobs(running)
			case 1:
				delete(running, u)
				w.setJobs(running)
			case 2:
				w.collect(t, now)
				sampled = now
			}
			points, _ := scrape(t, w.tel) // fails when a series stands twice
			for i, u := range units {
				field, gpu, instance := "DCGM_FI_DEV_FB_USED", fmt.Sprint(min(i, 3)), ""
				if i >= 3 {
					instance = fmt.Sprint(i - 2)
				}
				found := all(points, field, "gpu", gpu, "GPU_I_ID", instance)
				if sampled == 0 {
					if len(found) != 0 {
						rt.Fatalf("%s has a reading before the first collection", u)
					}
					continue
				}
				want := ""
				if j, ok := running[u]; ok && j.From <= sampled {
					want = fmt.Sprint(j.ID)
				}
				if len(found) != 1 || found[0].labels["slurm_job_id"] != want {
					rt.Fatalf("unit %d at %d: %d series, job %q, want job %q", i, now, len(found), found[0].labels["slurm_job_id"], want)
				}
			}
			if got := len(all(points, "muster_gpu_job_info")); got != len(running) {
				rt.Fatalf("%d jobs hold a GPU, %d info series", len(running), got)
			}
		}
	})
}

func (w *world) setJobs(running map[string]telemetry.JobOnNode) {
	var jobs []telemetry.JobOnNode
	for _, j := range running {
		jobs = append(jobs, j)
	}
	w.tel.SetJobs(jobs)
}

// The number of series does not grow with the number of jobs that have run.
func TestSeriesDoNotAccumulate(t *testing.T) {
	w := newWorld(t, telemetry.Options{}, simulated.Declared{Type: "h100", Count: 8})
	count := func() int {
		points, _ := scrape(t, w.tel)
		return len(points)
	}
	first := 0
	for i := 1; i <= 500; i++ {
		at := start.Add(spec.Seconds(int64(i)))
		j := job(spec.JobID(i), at, w.devices[i%8].UUID)
		w.tel.SetJobs([]telemetry.JobOnNode{j})
		w.tel.SetUsage([]telemetry.JobUsage{{UID: j.UID, Attempt: 1}})
		w.collect(t, at)
		if i == 1 {
			first = count()
		} else if n := count(); n != first {
			t.Fatalf("after %d jobs there are %d series, at first there were %d", i, n, first)
		}
	}
}

func TestHandler(t *testing.T) {
	w := full(t, telemetry.Options{})
	srv := httptest.NewServer(w.tel.Handler())
	defer srv.Close()
	get := func(method, accept string) (*http.Response, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", accept)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, body
	}
	plain, body := get(http.MethodGet, "identity")
	if plain.Header.Get("Content-Type") != "text/plain; version=0.0.4; charset=utf-8" || plain.Header.Get("Content-Encoding") != "" {
		t.Errorf("headers %v", plain.Header)
	}
	if _, _, err := parse(string(body)); err != nil {
		t.Error(err)
	}
	packed, small := get(http.MethodGet, "br, gzip;q=0.5")
	if packed.Header.Get("Content-Encoding") != "gzip" || len(small) >= len(body)/3 {
		t.Errorf("%v, %d bytes of %d", packed.Header, len(small), len(body))
	}
	z, err := gzip.NewReader(strings.NewReader(string(small)))
	if err != nil {
		t.Fatal(err)
	}
	again, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	points, _, err := parse(string(again))
	if err != nil {
		t.Fatal(err)
	}
	if n := the(t, points, "muster_agent_scrapes_total").value; n != 1 {
		t.Errorf("the second scrape sees %v scrapes before it", n)
	}
	if refused, _ := get(http.MethodGet, "gzip;q=0"); refused.Header.Get("Content-Encoding") != "" {
		t.Error("gzip was sent to a client that refuses it")
	}
	if resp, _ := get(http.MethodPost, ""); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST answers %d", resp.StatusCode)
	}
}

// Scrapes and updates at once: every scrape is whole.
// TestPrivate: the pages that everybody can read name no job and no user, and
// count the jobs; what is written elsewhere has them.
func TestPrivate(t *testing.T) {
	w := full(t, telemetry.Options{Private: true})
	var whole strings.Builder
	if _, err := w.tel.WriteTo(&whole); err != nil {
		t.Fatal(err)
	}
	rec := httptest.NewRecorder()
	w.tel.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	named := regexp.MustCompile(`(slurm_job_id|user|account)="[^"]+"`)
	if !named.MatchString(whole.String()) {
		t.Fatal("the whole page names no job, so this test says nothing")
	}
	if found := named.FindString(rec.Body.String()); found != "" {
		t.Errorf("the page holds %s", found)
	}
	count := regexp.MustCompile(`(?m)^muster_agent_jobs\{.*$`)
	if a, b := count.FindString(whole.String()), count.FindString(rec.Body.String()); a == "" || a != b {
		t.Errorf("jobs are counted as %q and as %q", a, b)
	}
}

// TestNoProcess: what is the process' own can be left out, and only that.
func TestNoProcess(t *testing.T) {
	for _, without := range []bool{false, true} {
		w := full(t, telemetry.Options{NoProcess: without})
		var page strings.Builder
		if _, err := w.tel.WriteTo(&page); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{
			"process_open_fds":          !without,
			"process_cpu_seconds_total": !without,
			"go_goroutines":             !without,
			"muster_agent_shepherd_up":  true,
		} {
			if got := strings.Contains(page.String(), "\n"+name); got != want {
				t.Errorf("NoProcess %v: has %s: %v", without, name, got)
			}
		}
	}
}

func TestConcurrentScrapes(t *testing.T) {
	w := full(t, telemetry.Options{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 30 {
				var b strings.Builder
				if _, err := w.tel.WriteTo(&b); err != nil {
					t.Error(err)
				}
				if _, _, err := parse(b.String()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 100 {
		at := start.Add(spec.Minute).Add(spec.Seconds(int64(i)))
		w.collect(t, at)
		w.tel.SetJobs([]telemetry.JobOnNode{job(spec.JobID(i), at, w.devices[i%3].UUID)})
		w.tel.ReportSent()
	}
	wg.Wait()
}

func TestOptions(t *testing.T) {
	if _, err := telemetry.New(telemetry.Options{}); !errors.Is(err, telemetry.ErrOption) {
		t.Errorf("no node name: %v", err)
	}
	for text, want := range map[string]telemetry.JobLabels{"": telemetry.JobLabelsAll, "all": telemetry.JobLabelsAll, "core": telemetry.JobLabelsCore, "none": telemetry.JobLabelsNone} {
		if got, err := telemetry.ParseJobLabels(text); err != nil || got != want {
			t.Errorf("%q: %v %v", text, got, err)
		}
	}
	if _, err := telemetry.ParseJobLabels("some"); !errors.Is(err, telemetry.ErrOption) || !strings.Contains(err.Error(), "want all, core or none") {
		t.Errorf("%v", err)
	}
}

func TestParseCounters(t *testing.T) {
	good := `# Format,,
# a comment,,

DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock.
DCGM_FI_DEV_DEC_UTIL ,     gauge, Decoder use.
DCGM_FI_DRIVER_VERSION, label, Driver Version
`
	c, err := telemetry.ParseCounters("counters.csv", good)
	if err != nil || len(c.Fields) != 2 || !c.DriverVersion || c.Fields[1].Name != "DCGM_FI_DEV_DEC_UTIL" || c.Fields[0].Help != "SM clock." {
		t.Fatalf("%+v %v", c, err)
	}
	bad := `DCGM_FI_DEV_SM_CLOCK, gauge, SM clock.
DCGM_FI_DEV_WARP_DRIVE, gauge, Speed.
DCGM_FI_DEV_SM_CLOCK, gauge, SM clock.
DCGM_FI_DEV_MEM_CLOCK, histogram, Memory clock.
DCGM_FI_DEV_GPU_TEMP, gauge
DCGM_FI_DEV_FB_USED, gauge,
`
	_, err = telemetry.ParseCounters("counters.csv", bad)
	want := []string{
		`bad counters file: counters.csv:2:1: "DCGM_FI_DEV_WARP_DRIVE" is no field that Muster reads`,
		`bad counters file: counters.csv:3:1: DCGM_FI_DEV_SM_CLOCK stands twice`,
		`bad counters file: counters.csv:4:24: type "histogram": want gauge or counter`,
		`bad counters file: counters.csv:5:1: want field, type, help; there are 2 columns`,
		`bad counters file: counters.csv:6:28: the help text is missing`,
	}
	if err == nil || !errors.Is(err, telemetry.ErrCounters) || !slices.Equal(strings.Split(err.Error(), "\n"), want) {
		t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
	}
}

func FuzzParseCounters(f *testing.F) {
	f.Add("DCGM_FI_DEV_SM_CLOCK, gauge, \"SM\" clock.\n")
	f.Add("\"DCGM_FI_DEV_SM_CLOCK\nx,,")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := telemetry.ParseCounters("f", text)
		if err != nil {
			if !errors.Is(err, telemetry.ErrCounters) {
				t.Fatal(err)
			}
			return
		}
		tel, err := telemetry.New(telemetry.Options{Node: "n", Counters: c})
		if err != nil {
			t.Fatal(err)
		}
		s := device.Sample{At: 1, Readings: []device.Reading{{UUID: "u"}}}
		for _, fi := range device.Fields() {
			s.Readings[0].Values = append(s.Readings[0].Values, device.Value{Field: fi.Field, N: 1})
		}
		tel.SetDevices([]device.Device{{UUID: "u"}})
		tel.SetSample(&s)
		scrape(t, tel)
	})
}

// BenchmarkScrape is a node with 8 GPUs and 64 jobs, 8 of which hold a GPU.
func BenchmarkScrape(b *testing.B) {
	w := newWorld(b, telemetry.Options{}, simulated.Declared{Type: "h100", Count: 8})
	var jobs []telemetry.JobOnNode
	var usage []telemetry.JobUsage
	book := attrib.NewBook(spec.Minute)
	for i := range 64 {
		j := job(spec.JobID(i+1), start)
		if i < 8 {
			j.GPUs = []telemetry.GPUShare{{UUID: w.devices[i].UUID}}
			if err := book.Start(attrib.Key{Job: j.UID, Attempt: 1, GPU: w.devices[i].UUID}, start, 0); err != nil {
				b.Fatal(err)
			}
		}
		jobs = append(jobs, j)
		usage = append(usage, telemetry.JobUsage{UID: j.UID, Attempt: 1, UserNS: 1_234_567_890, MemoryBytes: 1 << 30, PeakBytes: 2 << 30})
	}
	w.tel.SetJobs(jobs)
	w.tel.SetUsage(usage)
	w.tel.SetGPUAccounts(book.Accounts())
	w.collect(b, start.Add(spec.Second))
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n, err := w.tel.WriteTo(io.Discard)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(n)
		}
	})
	b.Run("gzip", func(b *testing.B) {
		h := w.tel.Handler()
		req := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		req.Header.Set("Accept-Encoding", "gzip")
		b.ReportAllocs()
		for b.Loop() {
			h.ServeHTTP(httptest.NewRecorder(), req)
		}
	})
	b.Run("collect", func(b *testing.B) {
		at := start.Add(spec.Minute)
		b.ReportAllocs()
		for b.Loop() {
			at = at.Add(spec.Second)
			w.collect(b, at)
		}
	})
}

// TestSharesAreAttributed: two jobs that share a device have the device's time
// and energy by their shares, under names that say so, and the device's own
// series name nobody.
func TestSharesAreAttributed(t *testing.T) {
	tel, err := telemetry.New(telemetry.Options{Cluster: "c", Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	start := spec.AtUnix(1_800_000_000)
	tel.SetDevices([]device.Device{{UUID: "GPU-0", Model: "X"}})
	tel.SetJobs([]telemetry.JobOnNode{{UID: 1, Attempt: 1, ID: 11, User: "a", From: start, GPUs: []telemetry.GPUShare{{UUID: "GPU-0", Share: 250}}},
		{UID: 2, Attempt: 1, ID: 12, User: "b", From: start, GPUs: []telemetry.GPUShare{{UUID: "GPU-0", Share: 500}}}})
	book := attrib.NewBook(spec.Hour)
	for job, part := range map[spec.JobUID]int64{1: 250, 2: 500} {
		if err := book.Start(attrib.Key{Job: job, Attempt: 1, GPU: "GPU-0"}, start, part); err != nil {
			t.Fatal(err)
		}
	}
	none, some, util := int64(0), int64(8_000_000), int64(900_000)
	book.Observe("GPU-0", attrib.Observation{At: start, EnergyMJ: &none})
	book.Observe("GPU-0", attrib.Observation{At: start.Add(100 * spec.Second), Processes: 1, Util: &util, EnergyMJ: &some})
	tel.SetGPUAccounts(book.Accounts())
	tel.SetSample(&device.Sample{At: start.Add(100 * spec.Second), Readings: []device.Reading{{UUID: "GPU-0", Values: []device.Value{{Field: device.GPUUtil, N: 90}}}}})
	var b strings.Builder
	if _, err := tel.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		`slurm_job_id="11",user="a",account="",partition="",gpu="0",gpu_uuid="GPU-0",state="busy"} 25` + "\n",
		`slurm_job_id="12",user="b",account="",partition="",gpu="0",gpu_uuid="GPU-0",state="busy"} 50` + "\n",
		`muster_job_gpu_attributed_energy_joules_total{cluster="c",node="n1",slurm_job_id="11",user="a",account="",partition="",gpu="0",gpu_uuid="GPU-0"} 2000` + "\n",
		`slurm_job_id="12",user="b",account="",partition="",gpu="0",gpu_uuid="GPU-0"} 4000` + "\n",
		`GPU_I_ID="",slurm_job_id="",user="",account="",partition=""} 90` + "\n",
		`slurm_job_id="11",user="a",account="",partition=""} 0.25` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, no := range []string{"muster_job_gpu_seconds_total{", "muster_job_gpu_energy_joules_total{", "muster_job_gpu_memory_peak_bytes{", "muster_gpu_job_info{"} {
		if strings.Contains(text, no) {
			t.Errorf("%s is there for a shared device", no)
		}
	}
}
