package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/tally"
	apiv1 "github.com/musterhpc/muster/api/v1"
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
}

func (s *fullStore) PutSamples(ctx context.Context, ledger [16]byte, cluster string, rows []tally.GPUSample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.puts++; s.fail != nil {
		return s.fail
	}
	return s.Store.PutSamples(ctx, ledger, cluster, rows)
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
	s.cfg.Store, s.cfg.SampleInterval, s.who.Admin = store, 20*spec.Millisecond, true
	s.cfg.Identify = func(context.Context) daemon.Caller { return s.who }
	s.clock.set(log[len(log)-1].At.Add(spec.Minute))
	s.start()
	s.stored(uint64(len(log)))
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
	// What is no sample is refused whole.
	bad := samplesOf("GPU-x", 0, 0, "", "", 1, 1, 2)
	bad.Util = bad.GetUtil()[:1]
	if err := put("n1", bad); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("lists of two lengths: %v", err)
	}
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
	if st := s.Status(); st.SamplesStored != 12 || st.SamplesRefused != 3 {
		t.Errorf("%+v", st)
	}
}
