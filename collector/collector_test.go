package collector

import (
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/internal/slo"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// lab is a cluster of three nodes with eight GPUs each, one drained and short of
// a GPU, one lost,
// one job running, one waiting for a node that is too small now, one ended.
func lab(t *testing.T) *view.View {
	t.Helper()
	tr := trial.On(state.New(), spec.AtUnix(1_000_000), event.Actor{}, "")
	cfg := &spec.Config{ClusterName: "lab", GresTypes: []string{"gpu"}, Sched: spec.SchedConfig{Backfill: true, Memory: true}}
	cfg.Limits.DefMemPerCPU = 100
	cfg.Licenses = []spec.Count{{Name: "matlab", N: 10}}
	for _, name := range []string{"n1", "n2", "n3"} {
		cfg.Nodes = append(cfg.Nodes, spec.NodeSpec{Name: name, CPUs: 8, Mem: 16000, GRES: []spec.GRESSpec{{Name: "gpu", Type: "h100", N: 8}}})
	}
	cfg.Partitions = []spec.PartitionSpec{{Name: "gpu", NodeNames: []string{"n1", "n2", "n3"}, Default: true, DefaultTime: spec.Hour}}
	do := func(cmd scheduler.Command) scheduler.Result {
		res, err := scheduler.Decide(tr, cmd)
		if err != nil {
			t.Fatalf("%T: %v", cmd, err)
		}
		return res
	}
	do(scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: "lab", Version: 1}}})
	do(scheduler.Configure{Config: cfg})
	six := int64(6)
	do(scheduler.Policy{Events: []event.Event{&event.QOSPut{QOS: spec.QOS{ID: 9, Name: "normal", GrpJobs: &six, GrpTRES: spec.Limits{{Name: "gres/gpu", N: 12}},
		MaxTRESPerUser: spec.Limits{{Name: "gres/gpu", N: 10}}}}}})
	for _, name := range []string{"n1", "n2", "n3"} {
		inv := spec.Inventory{BootID: "b", CPUs: 8, Mem: 16000}
		for i := range uint32(8) {
			inv.GPUs = append(inv.GPUs, spec.GPU{Index: i, UUID: name + string(rune('0'+i)), Type: "h100"})
		}
		if name == "n2" {
			inv.GPUs = inv.GPUs[:7]
		}
		do(scheduler.RegisterNode{Node: name, Inventory: inv})
	}
	do(scheduler.UpdateNodes{Nodes: []string{"n2"}, State: event.NodeDrain, Reason: new("fan")})
	do(scheduler.Policy{Events: []event.Event{&event.NodeLost{Node: "n3", LastSeen: tr.Now}}})
	do(scheduler.Policy{Events: []event.Event{
		&event.AccountPut{Account: spec.Account{Name: "root"}}, &event.AccountPut{Account: spec.Account{Name: "ml", Parent: "root"}},
		&event.AssociationPut{Association: spec.Association{ID: 1, Account: "root"}}, &event.AssociationPut{Association: spec.Association{ID: 2, Account: "ml", Parent: 1, Shares: 3}},
		&event.ReservationPut{Reservation: spec.Reservation{Name: "r", Start: tr.Now - 1, End: tr.Now.Add(spec.Day), Nodes: []string{"n3"}}}}})
	do(scheduler.GPUReport{Node: "n1", Fault: spec.GPUFault{UUID: "n17", Kind: spec.GPUXID, XID: 79, Class: "fatal", At: tr.Now, Count: 2}})
	do(scheduler.Policy{Events: []event.Event{&event.ReservationPut{Reservation: spec.Reservation{Name: "lics", Start: tr.Now - 1, End: tr.Now.Add(spec.Day), Users: []string{"alice"},
		Licenses: []spec.Count{{Name: "matlab", N: 5}}}}}})
	submit := func(gpus int64) {
		do(scheduler.Submit{Spec: &spec.JobSpec{Place: spec.PlaceAsk{Reservation: "lics"}, User: "alice", UID: 1000, Name: "j", QOS: "normal", Licenses: []spec.Count{{Name: "matlab", N: 2}}, Size: spec.Size{PerNode: []spec.Count{{Name: "gpu", N: gpus}}}}})
	}
	submit(2)
	submit(8)
	submit(1)
	out, err := scheduler.Pass(tr.State.Freeze(), tr.Now, scheduler.PassOptions{})
	if err != nil {
		t.Fatal(err)
	}
	do(scheduler.Starts{Proposal: &out.Proposal})
	tr.Now = tr.Now.Add(90 * spec.Second)
	do(scheduler.GPUReport{Node: tr.Job(1).Alloc.Nodes[0].Name, Policy: scheduler.GPUPolicy{WarnIdle: true},
		Fault: spec.GPUFault{UUID: "n10", Kind: spec.GPUIdle, Job: 1, Attempt: 1, Idle: 30 * spec.Minute, At: tr.Now}})
	ended := tr.Job(3)
	do(scheduler.Report{Node: ended.Alloc.Nodes[0].Name, Run: scheduler.Run{UID: 3, Attempt: 1}, Done: &scheduler.NodeDone{Batch: &event.StepResult{}}})
	return &view.View{State: tr.State.Freeze(), Plan: out.Plan, Pass: view.PassStats{Passes: 3, Last: 2 * spec.Millisecond, Max: 5 * spec.Millisecond, Total: 9 * spec.Millisecond}}
}

func source(v *view.View) Source {
	kpis := []kpi.Value{{KPI: "wait_p95", By: kpi.ByCluster, Key: "lab", Window: "1d", Null: true}}
	for i, k := range kpi.All() {
		kpis = append(kpis, kpi.Value{KPI: k.Name, By: kpi.ByCluster, Key: "lab", Window: "1h", Value: float64(i) / 4})
	}
	calls := &Calls{}
	calls.Observe("Cluster/Submit", "alice", 3*time.Millisecond, false)
	calls.Observe("Cluster/Submit", "alice", time.Minute, true)
	list := []slo.Objective{{Kind: slo.Submit, Part: 0.99, Within: 100 * spec.Millisecond}, {Kind: slo.Durability, Part: 0.9999}, {Kind: slo.Scheduling, Part: 0.99, Within: 5 * spec.Second},
		{Kind: slo.Wait, Class: slo.EveryQOS, Part: 0.9, Within: spec.Day}, {Kind: slo.Accounting, Part: 0.99, Within: spec.Minute},
		{Kind: slo.Agents, Part: 0.99}, {Kind: slo.Goodput, Part: 0.9, Above: 0.5}}
	objectives := NewObjectives(list)
	objectives.Tick(time.Minute, Condition{Connected: 2, Expected: 3, Lag: 70, Goodput: 0.4})
	objectives.Tick(30*time.Second, Condition{Connected: 4, Expected: 3, Lag: 2, Goodput: 0.6})
	objectives.Tick(time.Hour, Condition{Lag: -1, Goodput: -1})
	return Source{Objectives: objectives, Calls: calls, Refused: func() map[string]uint64 { return map[string]uint64{"rate": 4} }, Raft: func() Raft {
		return Raft{Leader: true, LeaderKnown: true, Batches: 7, LastIndex: 9, FirstIndex: 2, SnapshotIndex: 4, FreeBytes: 1 << 30}
	},
		Live: func() map[string]Live { return map[string]Live{"n1": {MemFree: 15000}} },
		View: func() *view.View { return v }, Agents: func() int { return 2 }, Now: func() spec.Instant { return v.State.At }, Version: "test",
		Accounting: func() AccountingLag { return AccountingLag{Up: true, Seq: v.State.Seq - 2, Seconds: 1.5} },
		Audit: func() []AuditTarget {
			return []AuditTarget{{Name: "syslog", Seq: v.State.Seq - 3, Seconds: 2.5, Records: 7, Failures: 2, LeftOut: 5}}
		},
		Pushed: func() (Pushed, bool) { return Pushed{Pushes: 9, Failures: 3, Dropped: 1, Waiting: 2}, true },
		Traces: func() (SentTraces, bool) {
			return SentTraces{Seq: v.State.Seq - 4, Seconds: 3.5, Traces: 6, Spans: 40, Refused: 3, Failures: 2}, true
		},
		Budgets: func() []kpi.Spent {
			return []kpi.Spent{{Budget: kpi.Budget{Account: "default", Start: v.State.At.Add(-spec.Day), End: v.State.At.Add(3 * spec.Day)}, Amount: 100, Spent: 25,
				Recent: 30, Window: spec.Day, At: v.State.At}}
		},
		Findings: func() *findings.Found {
			return &findings.Found{SavedGPU: 7_200_000_000, List: []findings.Finding{
				{Kind: findings.Idle, User: "alice", Account: "default", JobName: "train-#", GPU: 3_600_000_000},
				{Kind: findings.SlowGPU, Node: "n1", Device: "GPU-1", Index: 1, GPU: 60_000_000},
				{Kind: findings.TimeLimit, User: "alice", Account: "default"},
			}}
		},
		KPIs: func() []kpi.Value { return kpis }}
}

// handler serves every path of the exporter.
func handler(src Source) http.Handler {
	mux := http.NewServeMux()
	Mount(mux, src)
	return mux
}

func scrapeText(t *testing.T, v *view.View) string {
	t.Helper()
	rec := httptest.NewRecorder()
	handler(source(v)).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(rec.Body)
	if err != nil || rec.Code != 200 {
		t.Fatalf("status %d, %v: %s", rec.Code, err, body)
	}
	var own []string
	for _, line := range strings.Split(string(body), "\n") {
		if !strings.Contains(line, "go_") && !strings.Contains(line, "process_") {
			own = append(own, line)
		}
	}
	return strings.Join(own, "\n")
}

func TestMetricsGolden(t *testing.T) {
	got := scrapeText(t, lab(t))
	const golden = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the exposition changed (run with -update and read the diff):\n%s", got)
	}
}

func TestEveryServedMetricIsInTheCatalogueAndTheReverse(t *testing.T) {
	if _, err := catalogue.New(Metrics()); err != nil {
		t.Fatal(err)
	}
	text := scrapeText(t, lab(t))
	for _, m := range Metrics() {
		if m.Endpoint != endpoint || strings.HasPrefix(m.Name, "muster_source_") {
			continue // TestConformance and TestObserver have them
		}
		if !strings.Contains(text, "# HELP "+m.Name+" "+m.Help+"\n# TYPE "+m.Name+" ") {
			t.Errorf("%s is in the list and not served with its help and type", m.Name)
		}
	}
}

func TestNothingIsServedBeforeTheClusterExists(t *testing.T) {
	text := scrapeText(t, &view.View{State: state.New().Freeze()})
	if strings.Contains(text, "muster_") {
		t.Errorf("an empty ledger serves %s", text)
	}
}

// big is a cluster of 1,000 nodes with 10,000 jobs of 200 accounts, a third of
// them running.
func big(tb testing.TB) *view.View {
	tr := trial.On(state.New(), spec.AtUnix(1_000_000), event.Actor{}, "")
	emit := func(e event.Event) {
		if err := tr.Emit(e); err != nil {
			tb.Fatal(err)
		}
	}
	emit(&event.ClusterCreated{Name: "b", Version: 1})
	cfg := &spec.Config{ClusterName: "b", GresTypes: []string{"gpu"}}
	for i := range 4 {
		cfg.Partitions = append(cfg.Partitions, spec.PartitionSpec{Name: fmt.Sprintf("p%d", i), Default: i == 0})
	}
	for i := range 1000 {
		name := fmt.Sprintf("n%04d", i)
		cfg.Nodes = append(cfg.Nodes, spec.NodeSpec{Name: name, CPUs: 64, Mem: 512_000, GRES: []spec.GRESSpec{{Name: "gpu", Type: "h100", N: 8}}})
		cfg.Partitions[i%4].NodeNames = append(cfg.Partitions[i%4].NodeNames, name)
	}
	emit(&event.ConfigAdopted{Config: cfg})
	for i := range 1000 {
		inv := spec.Inventory{BootID: "b", CPUs: 64, Mem: 512_000}
		for g := range uint32(8) {
			inv.GPUs = append(inv.GPUs, spec.GPU{Index: g, UUID: fmt.Sprintf("GPU-%d-%d", i, g), Type: "h100"})
		}
		emit(&event.NodeRegistered{Node: cfg.Nodes[i].Name, Inventory: inv})
	}
	for i := range 10_000 {
		js := &spec.JobSpec{User: fmt.Sprintf("user%d", i%800), UID: uint32(1000 + i%800), Account: fmt.Sprintf("acct%d", i%200), Partitions: []string{fmt.Sprintf("p%d", i%4)}}
		uid := spec.JobUID(i + 1)
		emit(&event.JobSubmitted{UID: uid, ID: spec.JobID(uid), Spec: js, Req: spec.TRES{CPU: 4, Mem: 1000}})
		if i%3 == 0 && i/4 < 12_000 {
			node := i % 1000
			first := i / 1000 * 4
			var cpus spec.Bitset
			for k := range 4 {
				cpus = cpus.Set(first + k)
			}
			emit(&event.JobStarted{UID: uid, Attempt: 1, Alloc: &spec.Allocation{Partition: fmt.Sprintf("p%d", i%4), TRES: spec.TRES{CPU: 4, Mem: 1000, Node: 1},
				Nodes: []spec.NodeAlloc{{ID: spec.NodeID(node), Name: cfg.Nodes[node].Name, CPUs: cpus, Mem: 1000}}}})
		}
	}
	return &view.View{State: tr.State.Freeze()}
}

// BenchmarkScrape has a new view for every scrape, which is the worst case.
func BenchmarkScrape(b *testing.B) {
	v := big(b)
	mux := http.NewServeMux()
	src := source(v)
	src.View = func() *view.View { c := *v; return &c }
	Mount(mux, src)
	for _, path := range [...]string{"/metrics", "/metrics/vpenso", "/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/jobs-users-accts", "/metrics/scheduler"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				req := httptest.NewRequest(http.MethodGet, path, nil)
				req.Header.Set("Accept-Encoding", "gzip")
				mux.ServeHTTP(nowhere{http.Header{}}, req)
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op")
		})
	}
}

// cpuTime is what the process has used: on a machine that others use too, it
// says more than the clock on the wall.
func cpuTime(tb testing.TB) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// nowhere takes an answer without keeping it: the benchmark is about the
// exporter's memory.
type nowhere struct{ h http.Header }

func (n nowhere) Header() http.Header         { return n.h }
func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (n nowhere) WriteHeader(int)             {}

// TestDiscovery: the agents that said where they are, with what relabelling
// needs.
func TestDiscovery(t *testing.T) {
	p := full()
	p.nodes[0].Addr, p.nodes[0].Parts = "10.0.0.1:9400", []string{"gpu"}
	rec := httptest.NewRecorder()
	writeTargets(rec, &scrape{pic: p})
	const want = `[{"targets":["10.0.0.1:9400"],"labels":{"__meta_muster_cluster":"c","__meta_muster_gpus":"8","__meta_muster_node":"n1","__meta_muster_partitions":",gpu,","__meta_muster_state":"mixed"}}]` + "\n"
	if got := rec.Body.String(); got != want || rec.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %s", got)
	}
	rec = httptest.NewRecorder()
	writeTargets(rec, nil) // before the cluster exists
	if rec.Body.String() != "[]\n" {
		t.Errorf("got %s", rec.Body)
	}
}

// TestCountersBeginAtZero: a partition has its counters before its first job,
// or increase() would not see that job.
func TestCountersBeginAtZero(t *testing.T) {
	tr := trial.On(state.New(), spec.AtUnix(1_000_000), event.Actor{}, "")
	cfg := &spec.Config{ClusterName: "lab", Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 8, Mem: 16000}},
		Partitions: []spec.PartitionSpec{{Name: "fresh", NodeNames: []string{"n1"}, Default: true}}}
	for _, cmd := range []scheduler.Command{scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: "lab", Version: 1}}}, scheduler.Configure{Config: cfg}} {
		if _, err := scheduler.Decide(tr, cmd); err != nil {
			t.Fatal(err)
		}
	}
	text := scrapeText(t, &view.View{State: tr.State.Freeze()})
	for _, want := range []string{`muster_jobs_submitted_total{cluster="lab",partition="fresh"} 0`, `muster_jobs_started_total{cluster="lab",partition="fresh"} 0`,
		`muster_jobs_ended_total{cluster="lab",partition="fresh",state="failed"} 0`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("not served: %s", want)
		}
	}
}

// TestAReservationBegins: nothing is written when a reservation begins or
// ends, and yet the next scrape knows.
func TestAReservationBegins(t *testing.T) {
	tr := trial.On(state.New(), spec.AtUnix(1_000_000), event.Actor{}, "")
	cfg := &spec.Config{ClusterName: "lab", Nodes: []spec.NodeSpec{{Name: "n1", CPUs: 8, Mem: 16000}},
		Partitions: []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1"}, Default: true}}}
	for _, cmd := range []scheduler.Command{scheduler.Policy{Events: []event.Event{&event.ClusterCreated{UUID: [16]byte{1}, Name: "lab", Version: 1}}}, scheduler.Configure{Config: cfg},
		scheduler.Policy{Events: []event.Event{&event.ReservationPut{Reservation: spec.Reservation{Name: "r", Start: tr.Now.Add(spec.Hour), End: tr.Now.Add(2 * spec.Hour), Nodes: []string{"n1"}}}}}} {
		if _, err := scheduler.Decide(tr, cmd); err != nil {
			t.Fatal(err)
		}
	}
	now := tr.Now
	src := source(&view.View{State: tr.State.Freeze()})
	src.Now = func() spec.Instant { return now }
	h := handler(src)
	for _, step := range []struct {
		later spec.Span
		state string
		cpus  bool
	}{{0, "inactive", false}, {spec.Hour - 1, "inactive", false}, {spec.Hour, "active", true}, {2 * spec.Hour, "inactive", false}} {
		now = tr.Now.Add(step.later)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		text := rec.Body.String()
		if want := `muster_reservation_nodes{cluster="lab",reservation="r",state="` + step.state + `"} 1`; !strings.Contains(text, want) {
			t.Errorf("after %v: no %s", step.later, want)
		}
		if got := strings.Contains(text, `muster_reservation_cpus{cluster="lab",reservation="r",state="idle"} 8`); got != step.cpus {
			t.Errorf("after %v: its CPUs are shown: %v", step.later, got)
		}
	}
}

// TestWarningsEnd: a warning that the node has not said again when it was due
// is over.
func TestWarningsEnd(t *testing.T) {
	w := warnedRow{At: spec.AtUnix(1_000_000), Idle: 30 * spec.Minute}
	for after, want := range map[spec.Span]bool{0: true, 31 * spec.Minute: true, 33 * spec.Minute: false} {
		if got := w.isCurrent(w.At.Add(after)); got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
}

// TestSharedGPUsAreNotIdle: a GPU of which a job has a part is neither idle nor
// allocated whole.
func TestSharedGPUsAreNotIdle(t *testing.T) {
	n := &state.Node{GPUs: []spec.GPU{{Type: "h100"}, {Type: "h100"}, {Type: "a100"}, {Type: "h100"}}, UsedGPU: spec.Bitset{1}, UsedShare: []int64{0, 3, 0, 0}}
	got := gresOf(n)
	if want := []gresRow{{"gpu", "h100", 3, 1, 1, 0}, {"gpu", "a100", 1, 0, 0, 0}}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	types := gpuStates([]nodeRow{{GRES: got}, {GRES: got, Flags: nodeDown}})
	want := gpuCounts{capacity: capacity{allocated: 2, idle: 1, out: 1, total: 4}, shared: 2}
	if h := *types["h100"]; h != want {
		t.Errorf("%+v, want %+v", h, want)
	}
}

// TestLostGPUsStayInTheCount: the states of the GPUs add up to what was bought,
// also where a node registered with fewer than its configuration names.
func TestLostGPUsStayInTheCount(t *testing.T) {
	gpus := func(types ...string) []spec.GPU {
		out := make([]spec.GPU, len(types))
		for i, typ := range types {
			out[i].Type = typ
		}
		return out
	}
	for name, tc := range map[string]struct {
		declared []spec.GRESSpec
		present  []spec.GPU
		want     map[string]int64 // lost by type
	}{
		"none":     {[]spec.GRESSpec{{Name: "gpu", Type: "h100", N: 2}}, gpus("h100", "h100"), map[string]int64{"h100": 0}},
		"one":      {[]spec.GRESSpec{{Name: "gpu", Type: "h100", N: 2}}, gpus("h100"), map[string]int64{"h100": 1}},
		"all":      {[]spec.GRESSpec{{Name: "gpu", Type: "h100", N: 2}}, nil, map[string]int64{"h100": 2}},
		"untyped":  {[]spec.GRESSpec{{Name: "gpu", N: 3}}, gpus("a100"), map[string]int64{"a100": 2}},
		"of types": {[]spec.GRESSpec{{Name: "gpu", Type: "h100", N: 2}, {Name: "gpu", Type: "a100", N: 2}}, gpus("h100", "h100", "a100"), map[string]int64{"h100": 0, "a100": 1}},
	} {
		n := &state.Node{Spec: &spec.NodeSpec{Name: "n1", GRES: tc.declared}, Inv: &spec.Inventory{}, GPUs: tc.present}
		types := gpuStates([]nodeRow{{GRES: gresOf(n)}})
		bought := int64(0)
		for typ, lost := range tc.want {
			if types[typ] == nil {
				t.Errorf("%s: %s is not counted", name, typ)
				continue
			}
			if types[typ].lost != lost {
				t.Errorf("%s: %s: %+v, want %d lost", name, typ, types[typ], lost)
			}
			bought += types[typ].total + types[typ].shared + types[typ].lost
		}
		if want := n.Spec.NodeTRES().Get("gres/gpu"); bought != want {
			t.Errorf("%s: the states add up to %d GPUs of %d", name, bought, want)
		}
	}
}

// TestLimitsOfUsers: a limit on each user or account is a metric for those with
// live jobs, so that a job which waits for it finds it on the board.
func TestLimitsOfUsers(t *testing.T) {
	text := scrapeText(t, lab(t))
	for _, line := range []string{
		`muster_limit{cluster="lab",scope="qos_user",name="normal/alice",limit="gres/gpu"} 10`,
		`muster_limit_used{cluster="lab",scope="qos_user",name="normal/alice",limit="gres/gpu"} 2`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}

// TestQuantilesOfWaits: a quantile that is read from the classic buckets, as
// Prometheus does it, is off by less than a bucket, which is the root of two wide.
func TestQuantilesOfWaits(t *testing.T) {
	bounds, index := classicBuckets()
	if bounds[0] != 1 || index[0] != -state.FineFirst {
		t.Fatalf("the first bucket ends at %v s", bounds[0])
	}
	for wait := 2.0; wait < 900_000; wait *= 1.37 {
		var times state.Times
		// All waits are alike, so every quantile is that wait.
		fine := int(math.Ceil(math.Log2(wait)*4)) - state.FineFirst
		times.Fine[fine] = 1000
		times.Histogram.Count = 1000
		got := quantile(timesHistogram(&times), 0.95)
		if got < wait/1.5 || got > wait*1.5 {
			t.Errorf("a wait of %.0f s reads as %.0f s", wait, got)
		}
	}
}

// quantile reads a quantile as histogram_quantile does: evenly within a bucket.
func quantile(h *dto.Histogram, level float64) float64 {
	rank := level * float64(h.GetSampleCount())
	below, lower := 0.0, 0.0
	for _, b := range h.GetBucket() {
		count := float64(b.GetCumulativeCount())
		if count >= rank {
			return lower + (b.GetUpperBound()-lower)*(rank-below)/(count-below)
		}
		below, lower = count, b.GetUpperBound()
	}
	return math.Inf(1)
}

// TestPlannedStarts: the jobs that start first have a series, in the order of their
// start, once each, and those that have started since the plan was made have none.
func TestPlannedStarts(t *testing.T) {
	v := lab(t)
	var waiting *state.Job
	v.State.Jobs.Range(func(_ uint64, j *state.Job) bool {
		if j.State == spec.Pending {
			waiting = j
		}
		return waiting == nil
	})
	if waiting == nil {
		t.Fatal("no job waits in the lab")
	}
	later := spec.AtUnix(2_000_000)
	plan := []view.Planned{{UID: 1, Start: later, Task: spec.NoTask}, {UID: waiting.UID, Start: later.Add(spec.Hour), Task: 1}, {UID: waiting.UID, Start: later, Task: 0}}
	for i := range maxPlanned {
		plan = append(plan, view.Planned{UID: spec.JobUID(1000 + i), Start: later.Add(spec.Day), Task: spec.NoTask})
	}
	planned := *v
	planned.Plan = view.NewPlan(later, 1, plan, false)
	text := scrapeText(t, &planned)
	want := fmt.Sprintf(`muster_job_planned_start_timestamp_seconds{cluster="lab",slurm_job_id="%d",user="alice",account="default",partition="gpu"} 2e+06`, waiting.ID)
	var got []string
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "muster_job_planned_start") {
			got = append(got, line)
		}
	}
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestStandby: a controller that does not lead serves its part of the log, under
// the cluster's name.
func TestStandby(t *testing.T) {
	src := source(nil)
	src.Cluster = "lab"
	src.Now = func() spec.Instant { return 1 }
	rec := httptest.NewRecorder()
	StandbyHandler(src).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	text := rec.Body.String()
	for _, want := range []string{`muster_raft_leader_known{cluster="lab"} 1`, `muster_ledger_disk_free_bytes{cluster="lab"}`, "process_start_time_seconds"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing (%d):\n%.500s", want, rec.Code, text)
		}
	}
	if strings.Contains(text, "muster_jobs") {
		t.Error("a standby serves what is summed over controllers")
	}
}

// TestObjectives: what each objective has counted, and that a QOS with an objective
// of its own is not counted by the one of every QOS.
func TestObjectives(t *testing.T) {
	v := *lab(t)
	v.Pass = view.PassStats{}
	for _, took := range []spec.Span{spec.Millisecond, 4 * spec.Second, 6 * spec.Second, spec.Minute} {
		v.Pass.Passes++
		v.Pass.Count(took)
	}
	text := scrapeText(t, &v)
	for _, want := range []string{
		`events_total{cluster="lab",slo="submit",class=""} 2`, `good_events_total{cluster="lab",slo="submit",class=""} 1`,
		`events_total{cluster="lab",slo="scheduling",class=""} 4`, `good_events_total{cluster="lab",slo="scheduling",class=""} 2`,
		`events_total{cluster="lab",slo="wait",class="normal"} 2`, `good_events_total{cluster="lab",slo="wait",class="normal"} 2`,
		`events_total{cluster="lab",slo="accounting",class=""} 90`, `good_events_total{cluster="lab",slo="accounting",class=""} 30`,
		`events_total{cluster="lab",slo="agents",class=""} 270`, `good_events_total{cluster="lab",slo="agents",class=""} 210`,
		`events_total{cluster="lab",slo="goodput",class=""} 90`, `good_events_total{cluster="lab",slo="goodput",class=""} 30`,
		`objective_ratio{cluster="lab",slo="durability",class=""} 0.9999`,
		`info{cluster="lab",slo="wait",class="normal",objective="90% within 24h",counts="starts"} 1`,
	} {
		if !strings.Contains(text, "\nmuster_slo_"+want+"\n") {
			t.Errorf("muster_slo_%s is missing", want)
		}
	}
	own := NewObjectives([]slo.Objective{{Kind: slo.Wait, Class: slo.EveryQOS, Part: 0.9, Within: spec.Day}, {Kind: slo.Wait, Class: "normal", Part: 0.5, Within: spec.Minute}})
	rest, named := own.measureWaits(own.list[0], v.State.Totals.Waits), own.measureWaits(own.list[1], v.State.Totals.Waits)
	if len(rest) != 0 || len(named) != 1 || named[0].class != "normal" {
		t.Errorf("of every QOS: %+v, of normal: %+v", rest, named)
	}
}

// TestReachable: of the lab's nodes n2 is drained. Its agent is not expected, and is
// none of those that are.
func TestReachable(t *testing.T) {
	st := lab(t).State
	for _, c := range []struct {
		connected       []string
		heard, expected int
	}{{[]string{"n1", "n2", "n3"}, 2, 2}, {[]string{"n1", "n2"}, 1, 2}, {[]string{"n2"}, 0, 2}} {
		heard, expected := Reachable(st, func(node string) bool { return slices.Contains(c.connected, node) })
		if heard != c.heard || expected != c.expected {
			t.Errorf("with %v connected: %d of %d, want %d of %d", c.connected, heard, expected, c.heard, c.expected)
		}
	}
}

// TestPromisesShow: a job that waits past its promise shows as time goes by, though
// nothing is written, and its start counts as a broken promise of its partition
// and its QOS.
func TestPromisesShow(t *testing.T) {
	st := lab(t).State
	tr := trial.On(st.Fork(), st.At, event.Actor{}, "")
	var waiting spec.JobUID
	st.Jobs.Range(func(_ uint64, j *state.Job) bool {
		if j.State == spec.Pending {
			waiting = j.UID
		}
		return true
	})
	do := func(cmd scheduler.Command) {
		if _, err := scheduler.Decide(tr, cmd); err != nil {
			t.Fatalf("%T: %v", cmd, err)
		}
	}
	do(scheduler.Policy{Events: []event.Event{&event.ReasonsChanged{Jobs: []event.JobReason{
		{UID: waiting, Reason: spec.Reason{Code: spec.ReasonResources}, Promise: tr.Now.Add(spec.Hour)},
	}}}})
	src := source(&view.View{State: tr.State.Freeze()})
	now := tr.Now
	src.Now = func() spec.Instant { return now }
	h := handler(src)
	serves := func(want string) {
		t.Helper()
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.Contains(rec.Body.String(), "\n"+want+"\n") {
			t.Errorf("not served: %s", want)
		}
	}
	plans := func(start spec.Instant) {
		plan := view.NewPlan(now, tr.State.Seq, []view.Planned{{UID: waiting, Task: spec.NoTask, Start: start}}, false)
		v := &view.View{State: tr.State.Freeze(), Plan: plan}
		src.View = func() *view.View { return v }
		h = handler(src)
	}
	due := tr.Now.Add(spec.Hour + spec.PromiseGrace)
	plans(due + 1)
	serves(`muster_jobs_promised{cluster="lab",partition="gpu"} 1`)
	serves(`muster_jobs_slipped{cluster="lab",partition="gpu"} 1`)
	plans(due)
	now = due
	serves(`muster_jobs_slipped{cluster="lab",partition="gpu"} 0`)
	serves(`muster_jobs_overdue{cluster="lab",partition="gpu"} 0`)
	serves(`muster_jobs_promised{cluster="lab",partition="gpu"} 1`)
	plans(due + 1)
	now++
	serves(`muster_jobs_slipped{cluster="lab",partition="gpu"} 0`)
	serves(`muster_jobs_overdue{cluster="lab",partition="gpu"} 1`)
	serves(`muster_jobs_promised{cluster="lab",partition="gpu"} 0`)
	serves(`muster_promises_total{cluster="lab",partition="gpu",outcome="broken"} 0`)

	tr.Now = now
	do(scheduler.Policy{Events: []event.Event{&event.JobEnded{UID: waiting, State: spec.Cancelled}}})
	src.View = func() *view.View { return &view.View{State: tr.State.Freeze()} }
	h = handler(src)
	serves(`muster_jobs_overdue{cluster="lab",partition="gpu"} 0`)
	serves(`muster_promises_total{cluster="lab",partition="gpu",outcome="broken"} 1`)
	serves(`muster_qos_promises_total{cluster="lab",qos="normal",outcome="broken"} 1`)
}
