package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// samplesOf are readings of one device, ten seconds apart.
func samplesOf(uuid string, uid uint64, job uint32, user, account string, from int64, utils ...int64) *apiv1.GpuSeries {
	g := &apiv1.GpuSeries{Uuid: uuid, Uid: uid, Attempt: 1, JobId: job, User: user, Account: account, Partition: "gpu"}
	for i, u := range utils {
		g.At, g.Util, g.Processes = append(g.At, from+10*int64(i)), append(g.Util, u), append(g.Processes, min(u, 1))
	}
	return g
}

// fullStore takes no samples when told so.
type fullStore struct {
	daemon.Store
	mu   sync.Mutex
	fail error
	puts int

	keeps int // how often KeepSamples was called
}

func (s *fullStore) PutSamples(ctx context.Context, ledger [16]byte, cluster string, rows []tally.GPUSample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.puts++; s.fail != nil {
		return s.fail
	}
	return s.Store.PutSamples(ctx, ledger, cluster, rows)
}

// KeepSamples fails the first time.
func (s *fullStore) KeepSamples(ctx context.Context, span spec.Span) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeps++; s.keeps == 1 {
		return errors.New("away for a moment")
	}
	return s.Store.KeepSamples(ctx, span)
}

func (s *fullStore) kept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keeps
}

func (s *fullStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.puts
}

func (s *fullStore) set(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// TestGpuSamples: samples are answered when they are stored, shown to those
// who may see them, and drawn for their job, running or over.
func TestGpuSamples(t *testing.T) {
	ledger := newLedger(t)
	log := crowd(t)
	ledger.add(t, log, 25)
	s := &sqlRig{rig: newRig(t, startEngine(t).Socket(), ledger)}
	store := &fullStore{Store: s.store}
	s.cfg.Store, s.cfg.SampleKeep, s.who.Admin = store, 90*spec.Day, true
	s.cfg.Identify = func(context.Context) daemon.Caller { return s.who }
	s.clock.set(log[len(log)-1].At.Add(spec.Minute))
	s.start()
	s.stored(uint64(len(log)))
	s.until("how long samples are kept is set", func() bool { return store.kept() == 2 })
	ctx := t.Context()
	put := func(node string, series ...*apiv1.GpuSeries) error {
		_, err := s.Service().PutGpuSamples(ctx, &apiv1.PutGpuSamplesRequest{Node: node, Seconds: 10, Series: series})
		return err
	}
	runs := map[string]*apiv1.AcctRow{}
	for _, job := range []string{"1", "4"} {
		rep, err := s.Service().GpuHistory(ctx, &apiv1.GpuHistoryQuery{Job: job})
		if err != nil || rep.GetRun() == nil {
			t.Fatalf("job %s: %v %v", job, rep, err)
		}
		runs[job] = rep.GetRun()
	}
	over, open := runs["1"], runs["4"]
	if over.GetEnd() == 0 || open.GetEnd() != 0 {
		t.Fatalf("%v %v", over, open)
	}
	at := func(r *apiv1.AcctRow) int64 { return r.GetStart() / int64(spec.Second) }
	first := []*apiv1.GpuSeries{samplesOf("GPU-n1-0", over.GetUid(), over.GetJobId(), "alice", "vision", at(over), 0, 50, 100, 90, 80), samplesOf("GPU-n1-1", 0, 0, "", "", at(over), 0, 0)}
	for range 3 { // the answer was lost twice
		if err := put("n1", first...); err != nil {
			t.Fatal(err)
		}
	}
	if err := put("n1", samplesOf("GPU-n1-0", open.GetUid(), open.GetJobId(), "bob", "physics", at(open), 10, 20)); err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st.SamplesStored != 9 || st.SamplesWaiting != 0 {
		t.Errorf("%+v", st)
	}
	history := func(job string) (out string) {
		rep, err := s.Service().GpuHistory(ctx, &apiv1.GpuHistoryQuery{Job: job, Points: 3})
		if err != nil {
			return err.Error()
		}
		for _, g := range rep.GetGpus() {
			out += fmt.Sprintf("%s %s %d of %d s total %v:", g.GetNode(), g.GetUuid(), g.GetSamples(), rep.GetStep()/int64(spec.Second), g.GetTotal() != nil)
			for _, p := range g.GetPoints() {
				out += fmt.Sprintf(" %d=%.0f/%.1f", p.GetAt(), p.GetUtil(), p.GetOccupied())
			}
		}
		return out
	}
	if got, want := history("1"), "n1 GPU-n1-0 5 of 14 s total true: 0=25/0.5 1=100/1.0 2=85/1.0"; got != want {
		t.Errorf("history %q, want %q", got, want)
	}
	if got, want := history("4"), "n1 GPU-n1-0 2 of 10 s total false: 0=10/1.0 1=20/1.0"; got != want {
		t.Errorf("history %q, want %q", got, want)
	}
	for user, want := range map[string]string{"root": "9", "alice": "5", "bob": "2", "carol": "5", "dora": "9", "nobody": "0"} {
		got, err := s.ask(user, "SELECT count() FROM gpu_samples")
		if err != nil || !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("%s sees %q, want %s: %v", user, got, want, err)
		}
	}
	s.who = daemon.Caller{Admin: true}
	s.usageOverTime(t, store, over)
	// What is no sample is refused whole.
	bad := samplesOf("GPU-x", 0, 0, "", "", 1, 1, 2)
	bad.Util = bad.GetUtil()[:1]
	if err := put("n1", bad); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("lists of two lengths: %v", err)
	}
	s.leftOut(t, put)
	// A store that is away is said so, and what comes then is taken again.
	store.set(errors.New("away"))
	more := samplesOf("GPU-n1-0", 0, 0, "", "", at(open)+1000, 1, 2, 3)
	if err := put("n1", more); spec.CodeOf(err) != spec.CodeDatabaseUnreachable {
		t.Errorf("refused with %v", err)
	}
	store.set(nil)
	if err := put("n1", more); err != nil {
		t.Error(err)
	}
	if st := s.Status(); st.SamplesStored != 43 || st.SamplesRefused != 3 {
		t.Errorf("%+v", st)
	}
}

// usageOverTime: what a run used of CPU and memory is stored once, shown to
// those who may see it, and drawn in the run's report; steps that run at a time
// add up, and what is not known is not drawn as zero.
func (s *sqlRig) usageOverTime(t *testing.T, store *fullStore, run *apiv1.AcctRow) {
	t.Helper()
	at := run.GetStart() / int64(spec.Second)
	series := func(step int32, cpu, rss []int64) *apiv1.UsageSeries {
		u := &apiv1.UsageSeries{Uid: run.GetUid(), Attempt: run.GetAttempt(), Step: step, JobId: run.GetJobId(), User: "alice", Account: "vision", Partition: "gpu", Cpu: cpu, Rss: rss}
		for i := range cpu {
			u.At = append(u.At, at+10*int64(i))
		}
		return u
	}
	put := func(list ...*apiv1.UsageSeries) error {
		_, err := s.Service().PutGpuSamples(t.Context(), &apiv1.PutGpuSamplesRequest{Node: "n1", UsageSeconds: 10, Usage: list})
		return err
	}
	all := []*apiv1.UsageSeries{series(-5, []int64{-1, 250, 1000, 2000, 500, 500}, []int64{1, 2048, 4096, 1024, 1024, 1024}), series(0, []int64{-1, 1000, 1000}, []int64{1, 1024, 1024})}
	before := store.count()
	for range 2 { // the answer was lost once
		if err := put(all...); err != nil {
			t.Fatal(err)
		}
	}
	if n := store.count() - before; n != 1 {
		t.Errorf("stored in %d inserts", n)
	}
	for user, want := range map[string]string{"root": "9", "alice": "9", "carol": "9", "bob": "0"} {
		got, err := s.ask(user, "SELECT count() FROM usage_samples")
		if err != nil || !strings.Contains(got, "\n"+want+"\n") {
			t.Errorf("%s sees %q of usage, want %s: %v", user, got, want, err)
		}
	}
	s.who = daemon.Caller{Admin: true}
	rep, err := s.Service().JobReport(t.Context(), &apiv1.JobReportQuery{Job: fmt.Sprint(run.GetJobId())})
	if err != nil || len(rep.GetUsage()) != 1 {
		t.Fatalf("%v %v", rep, err)
	}
	got := fmt.Sprintf("%s %d of %d s:", rep.GetUsage()[0].GetNode(), rep.GetUsage()[0].GetSamples(), rep.GetUsageStep()/int64(spec.Second))
	for _, p := range rep.GetUsage()[0].GetPoints() {
		cpus := "-"
		if p.Cpus != nil {
			cpus = fmt.Sprint(p.GetCpus())
		}
		got += fmt.Sprintf(" %d=%s/%d", p.GetAt(), cpus, p.GetRss()>>10)
	}
	if want := "n1 9 of 10 s: 0=-/2 1=1.25/3072 2=2/5120 3=2/1024 4=0.5/1024 5=0.5/1024"; got != want {
		t.Errorf("over time %q, want %q", got, want)
	}
	for step := range int32(2) { // one after the other, of one instant: none of them is the other sent again
		if err := put(series(step+1, []int64{1000}, []int64{1024})); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 17 {
		if _, err := s.Service().PutGpuSamples(t.Context(), &apiv1.PutGpuSamplesRequest{Node: fmt.Sprintf("n1%02d", i), UsageSeconds: 10, Usage: []*apiv1.UsageSeries{series(0, []int64{0}, []int64{1})}}); err != nil {
			t.Fatal(err)
		}
	}
	rep, err = s.Service().JobReport(t.Context(), &apiv1.JobReportQuery{Job: fmt.Sprint(run.GetJobId())})
	if list := rep.GetUsage(); err != nil || len(list) != 16 || rep.GetUsageMore() != 2 || list[0].GetSamples() != 11 || list[15].GetNode() != "n114" || len(list[15].GetPoints()) != 1 {
		t.Errorf("of 18 nodes: %v, %v", rep, err)
	}
	all[0].Rss = all[0].GetRss()[:2]
	if err := put(all...); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("lists of two lengths: %v", err)
	}
}

// leftOut: readings of a time that is not kept cost neither those that come
// with them nor those behind them, and are counted.
func (s *sqlRig) leftOut(t *testing.T, put func(node string, series ...*apiv1.GpuSeries) error) {
	t.Helper()
	now := s.cfg.Clock.Now().Unix()
	before := s.Status()
	g := samplesOf("GPU-odd", 0, 0, "", "", now, 1, 1, 1, 1, 1, 1, 1, 1)
	kept := int64(90 * 24 * 3600)
	g.At = []int64{-1, 0, 1 << 32, math.MaxInt64, now - kept - 60, now + 2*24*3600, now - kept + 60, now}
	if err := put("n9", g); err != nil {
		t.Fatal(err)
	}
	u := &apiv1.UsageSeries{Uid: 1, JobId: 1, At: []int64{math.MinInt64, now}, Cpu: []int64{1, 1}, Rss: []int64{1, 1}}
	if _, err := s.Service().PutGpuSamples(t.Context(), &apiv1.PutGpuSamplesRequest{Node: "n9", UsageSeconds: 10, Usage: []*apiv1.UsageSeries{u}}); err != nil {
		t.Fatal(err)
	}
	if err := put("n9", samplesOf("GPU-odd", 0, 0, "", "", 1, 1)); err != nil { // all of it
		t.Fatal(err)
	}
	if st := s.Status(); st.SamplesStored != before.SamplesStored+3 || st.SamplesLeftOut != before.SamplesLeftOut+8 || st.SamplesRefused != before.SamplesRefused {
		t.Errorf("before %+v, now %+v", before, st)
	}
}

// TestIdleGPUs: what is over counts as the ledger has it, what the window cuts
// or still runs as it was sampled in the window.
func TestIdleGPUs(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(1, 64, 512_000, 8)
	h.Put(&event.AccountPut{Account: spec.Account{Name: "root"}})
	var uids []uint64
	var starts []int64
	for i, user := range []string{"alice", "bob", "carol", "dora"} {
		uid := h.Submit(tallytest.Ask{Name: "x", User: user, UID: uint32(1001 + i), Account: "root", QOS: "normal", CPUs: 4, Mem: 4000, GPUs: 1})
		h.Wait(spec.Minute)
		uids, starts = append(uids, uint64(uid)), append(starts, int64(h.Now)/int64(spec.Second))
		h.Start(uid, "n1")
		h.Wait(spec.Minute)
		gpu := spec.GPUUsage{UUID: "GPU-n1-0", Has: true, NoProcess: 20 * spec.Second, Idle: 10 * spec.Second, Busy: 30 * spec.Second}
		if user == "bob" {
			gpu.NoProcess, gpu.Idle, gpu.Busy = 0, 0, spec.Minute
		}
		if i < 3 {
			h.Finish(uid, spec.Usage{HasRSS: true, PeakRSS: 1, GPUs: []spec.GPUUsage{gpu}})
		}
	}
	ledger := newLedger(t)
	ledger.add(t, h.Log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(h.Now.Add(spec.Minute))
	r.start()
	r.stored(uint64(len(h.Log)))
	series := []*apiv1.GpuSeries{}
	for i, user := range []string{"alice", "bob", "carol", "dora"} {
		// Nothing is done in the first half of each; alice's and bob's ledger says otherwise.
		series = append(series, samplesOf("GPU-n1-0", uids[i], uint32(i+1), user, "root", starts[i], 0, 0, 0, 50, 50, 50))
	}
	if _, err := r.Service().PutGpuSamples(t.Context(), &apiv1.PutGpuSamplesRequest{Node: "n1", Seconds: 10, Series: series}); err != nil {
		t.Fatal(err)
	}
	lines := func(q *apiv1.ReportQuery) (out string) {
		q.Report, q.Top = "idle", 20
		rep, err := r.Service().Report(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rep.GetRows() {
			c := row.GetCells()
			out += fmt.Sprintf("%s %.0f %.0f %.0f\n", c[0].GetText(), c[1].GetFloat()*3600, c[2].GetFloat()*3600, c[3].GetFloat()*3600)
		}
		return out
	}
	at := func(s int64) int64 { return s * int64(spec.Second) }
	for name, c := range map[string]struct {
		q    *apiv1.ReportQuery
		want string
	}{
		"everything":             {&apiv1.ReportQuery{Start: 1, End: int64(h.Now)}, "alice 30 20 60\ncarol 30 20 60\ndora 30 30 60\n"},
		"cut at the beginning":   {&apiv1.ReportQuery{Start: at(starts[0] + 20), End: int64(h.Now)}, "carol 30 20 60\ndora 30 30 60\nalice 10 10 40\n"},
		"cut at the end":         {&apiv1.ReportQuery{Start: 1, End: at(starts[1] + 40)}, "alice 30 20 60\nbob 30 30 40\n"},
		"inside of one":          {&apiv1.ReportQuery{Start: at(starts[1] + 10), End: at(starts[1] + 40)}, "bob 20 20 30\n"},
		"some users":             {&apiv1.ReportQuery{Start: 1, End: int64(h.Now), Users: []string{"dora", "bob"}}, "dora 30 30 60\n"},
		"before all":             {&apiv1.ReportQuery{Start: 1, End: 2}, ""},
		"an account without use": {&apiv1.ReportQuery{Start: 1, End: int64(h.Now), Accounts: []string{"ml"}}, ""},
	} {
		if got := lines(c.q); got != c.want {
			t.Errorf("%s:\n%swant\n%s", name, got, c.want)
		}
	}
}
