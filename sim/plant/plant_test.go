package plant

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

func prepared(t testing.TB, nodes, jobs int) *Site {
	s, err := New(nodes, 1)
	if err == nil {
		err = s.Occupy()
	}
	if err == nil {
		err = s.Submit(jobs)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// commit runs a pass and makes its starts true.
func commit(t testing.TB, s *Site, opt scheduler.PassOptions) *scheduler.Outcome {
	out, err := s.Pass(opt)
	if err == nil {
		err = s.Do(scheduler.Starts{Proposal: &out.Proposal})
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func BenchmarkFullPass(b *testing.B) {
	s := prepared(b, 5000, 50000)
	opt := scheduler.PassOptions{Queue: &scheduler.Queue{}}
	opt.Plan = commit(b, s, opt).Plan
	for b.Loop() {
		if _, err := s.Pass(opt); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkIncrementalPass(b *testing.B) {
	s := prepared(b, 5000, 50000)
	opt := scheduler.PassOptions{Queue: &scheduler.Queue{}}
	out := commit(b, s, opt)
	opt.Plan, opt.Keep, opt.Incremental = out.Plan, out.Promises, true
	for b.Loop() {
		if _, err := s.EndOne(); err != nil {
			b.Fatal(err)
		}
		commit(b, s, opt)
	}
}

// Who is told all events of a site can make the same one of them.
func TestEventsMakeTheSite(t *testing.T) {
	again := state.New()
	s, err := NewAt(6, 3, Epoch.Add(spec.Day), func(events []event.Envelope) error {
		for i := range events {
			if err := again.Apply(&events[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.Occupy()
	}
	if err == nil {
		err = s.Submit(30)
	}
	if err != nil {
		t.Fatal(err)
	}
	if again.Seq != s.State.Seq || again.Created != Epoch.Add(spec.Day) || again.Waiting.Len() != s.State.Waiting.Len() || again.Active.Len() != s.State.Active.Len() || again.Active.Len() == 0 {
		t.Errorf("%d events make a cluster with %d running and %d pending jobs; it has %d and %d after %d", again.Seq, again.Active.Len(), again.Waiting.Len(), s.State.Active.Len(), s.State.Waiting.Len(), s.State.Seq)
	}
	names, err := hostlist.Expand(NodeNames(6))
	if err != nil || len(names) != 6 || again.Node(names[5]) == nil {
		t.Errorf("slurm.conf names %v, %v", names, err)
	}
}

// What an incremental pass starts is what it may: every promise of the plan
// before can still be kept if the jobs use their whole time limits, and the
// full pass that follows promises nobody a later start.
func TestIncrementalPassesKeepThePlan(t *testing.T) {
	for seed := range uint64(6) {
		s, err := New(12, seed)
		if err == nil {
			err = s.Occupy()
		}
		if err == nil {
			err = s.Submit(60)
		}
		if err != nil {
			t.Fatal(err)
		}
		opt := scheduler.PassOptions{Queue: &scheduler.Queue{}}
		out := commit(t, s, opt)
		started := 0
		for range 12 {
			if _, err := s.EndOne(); err != nil {
				t.Fatal(err)
			}
			s.Now = s.Now.Add(spec.Second)
			promised := out.Plan
			opt.Plan, opt.Keep, opt.Incremental = out.Plan, out.Promises, true
			quick := commit(t, s, opt)
			started += len(quick.Starts)
			if err := s.State.Check(); err != nil {
				t.Fatal(err)
			}
			if again := commit(t, s, opt); len(again.Starts) > 0 {
				t.Fatalf("seed %d: a second incremental pass starts %d more", seed, len(again.Starts))
			}
			opt.Incremental = false
			out = commit(t, s, opt)
			for i := range promised.Jobs {
				was := &promised.Jobs[i]
				j := s.State.Job(was.UID)
				if j.State == spec.Pending {
					if now := out.Plan.Of(was.UID); now == nil || now.Start > was.Start.Add(spec.Second) {
						t.Fatalf("seed %d: job %d was promised %v, now %+v", seed, j.ID, was.Start, now)
					}
				}
			}
		}
		if started == 0 {
			t.Errorf("seed %d: no incremental pass started anything", seed)
		}
	}
}

// With bf_firm the first jobs have firm reservations and the others estimates,
// but every job that waits is planned.
func TestFirmReservations(t *testing.T) {
	s := prepared(t, 12, 60)
	s.State.Config.Sched.Firm = 3
	out := commit(t, s, scheduler.PassOptions{})
	if len(out.Starts) == 0 || len(out.Plan.Jobs) != s.State.Waiting.Len() || len(out.Plan.Jobs) < 20 {
		t.Fatalf("%d started, %d of %d planned", len(out.Starts), len(out.Plan.Jobs), s.State.Waiting.Len())
	}
	for i := range out.Plan.Jobs {
		if p := &out.Plan.Jobs[i]; p.Estimate != (i >= 3) {
			t.Errorf("reservation %d: estimate %v", i, p.Estimate)
		}
	}
	s.Now = s.Now.Add(spec.Second)
	if again := commit(t, s, scheduler.PassOptions{Plan: out.Plan}); len(again.Starts) > 0 {
		t.Errorf("a second pass starts %d more", len(again.Starts))
	}
}
