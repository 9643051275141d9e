package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

// counted is a reading of the node's counters: what the fabric has received.
func counted(n int64) spec.CounterValues {
	return spec.CounterValues(nil).With(spec.CounterFabricIn, n)
}

// fabricOf is what a job's report says that it received; -1 = not counted.
func fabricOf(u *apiv1.Usage) int64 {
	n, ok := wire.ToCounters(u.GetCounters()).Get(spec.CounterFabricIn)
	if !ok {
		return -1
	}
	return n
}

// A job that has the node alone has what the node counts, up to its last byte: its end
// waits for one more reading. One that shared the node at any time has none of it.
func TestTheNodesCountersAreTheJobsAlone(t *testing.T) {
	b := newBench(t)
	b.welcome()
	read := func(n int64) {
		b.now = b.now.Add(spec.Second)
		b.core.NodeCounted(b.now, counted(n))
	}
	one, two, three := key(1), key(2), key(3)
	read(1000)
	b.run(one)
	read(1500)
	fx := b.exit(one)
	for _, r := range b.core.Outgoing() {
		if r.GetNodeDone() != nil {
			t.Fatal("it did not wait")
		}
	}
	if !fx.CountNode {
		t.Fatal("no reading is asked for")
	}
	read(1700)
	if got := fabricOf(doneUsage(t, b.core.Outgoing())); got != 700 {
		t.Errorf("alone: %d bytes, want 700", got)
	}
	b.run(two)
	read(2000)
	b.run(three)
	read(3000)
	for _, k := range []plan.RunKey{two, three} {
		if fx := b.exit(k); fx.CountNode {
			t.Error("a job that shared the node waits for its counters")
		}
		if got := fabricOf(doneUsage(t, b.core.Outgoing())); got != -1 {
			t.Errorf("%s shared the node and has %d bytes", k, got)
		}
	}
	// What passed before a job came is not its own, nor is a counter that began anew a loss.
	read(9000)
	b.run(key(4))
	read(9100)
	read(50)
	b.exit(key(4))
	read(60)
	if got := fabricOf(doneUsage(t, b.core.Outgoing())); got != 160 {
		t.Errorf("%d bytes, want 160", got)
	}
}

// A node without such counters lets no job wait, and a reading that does not come
// does not keep one.
func TestEndsDoNotWaitForCountersForLong(t *testing.T) {
	b := newBench(t)
	b.welcome()
	b.run(key(1))
	b.exit(key(1))
	doneUsage(t, b.core.Outgoing())

	b.core.NodeCounted(b.now, counted(1))
	b.run(key(2))
	b.exit(key(2))
	b.core.Outgoing()
	b.now = b.now.Add(measureWait + 1)
	b.core.Tick()
	doneUsage(t, b.core.Outgoing())
}

// An agent that is started again goes on counting for the job that it remembers, and
// counts nothing for one whose beginning it has not seen.
func TestCountersOverARestart(t *testing.T) {
	b := newBench(t)
	b.welcome()
	b.core.NodeCounted(b.now, counted(1000))
	b.run(key(1))
	b.now = b.now.Add(spec.Second)
	b.core.NodeCounted(b.now, counted(1400))
	saved, err := b.core.Save("boot")
	if err != nil {
		t.Fatal(err)
	}
	cfg := testConfig()
	cfg.Started = b.now
	for _, remembers := range []bool{true, false} {
		again := newBenchWith(t, cfg)
		again.now, again.creds = b.now, b.creds
		again.core.creds = again.creds
		if remembers {
			if err := again.core.Restore(saved, "boot"); err != nil {
				t.Fatal(err)
			}
		}
		again.welcome(key(1))
		again.core.Heard([]plan.Event{{Started: &plan.Observed{Key: key(1), State: plan.Running, PID: 100, Start: b.now.Add(-spec.Second)}}})
		again.core.NodeCounted(again.now, counted(1500))
		again.now = again.now.Add(spec.Second)
		again.core.NodeCounted(again.now, counted(1600))
		again.exit(key(1))
		again.now = again.now.Add(spec.Second)
		again.core.NodeCounted(again.now, counted(1650))
		want := int64(-1)
		if remembers {
			want = 650
		}
		if got := fabricOf(doneUsage(t, again.core.Outgoing())); got != want {
			t.Errorf("remembers %v: %d bytes, want %d", remembers, got, want)
		}
	}
}

// Whatever comes and goes: jobs never have more than the node counted, and one that
// was ever beside another has nothing.
func TestTheNodesCountersAreNeverGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s soleJob
		var now, given int64
		here := map[plan.RunKey]bool{}
		shared := map[plan.RunKey]bool{}
		jobs := func() (out []plan.RunKey) {
			for i := uint64(1); i <= 3; i++ {
				if here[key(i)] {
					out = append(out, key(i))
				}
			}
			return out
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			k := key(uint64(rapid.IntRange(1, 3).Draw(t, "job")))
			switch what := rapid.IntRange(0, 3).Draw(t, "what"); {
			case what <= 1:
				now += rapid.Int64Range(0, 1000).Draw(t, "bytes")
				s.observeReading(counted(now), jobs())
			case what == 2 && !here[k]:
				here[k] = true
				shared[k] = false
				s.noteJob(k, true)
				for _, other := range jobs() {
					if len(jobs()) > 1 {
						shared[other] = true
					}
				}
			case what == 3 && here[k]:
				got, ok := s.take(k).Get(spec.CounterFabricIn)
				if ok && shared[k] {
					t.Fatalf("%s was beside others and has %d bytes", k, got)
				}
				given += got
				delete(here, k)
			}
			if given > now {
				t.Fatalf("the node counted %d bytes, jobs were given %d", now, given)
			}
		}
	})
}

// networkOf counts a fixed amount for each group, and remembers what was forgotten.
type networkOf struct {
	w         *watch
	forgotten []uint64
	tree      string
}

func (n *networkOf) Follow(tree string, _ int) error { n.w.do(func() { n.tree = tree }); return nil }
func (n *networkOf) Count(u *plan.Usage) {
	if u.Group != 0 {
		u.Counters = u.Counters.With(spec.CounterNetOut, int64(u.Group)*10)
	}
}
func (n *networkOf) Forget(group uint64) {
	n.w.do(func() { n.forgotten = append(n.forgotten, group) })
}

// The bytes of a run are read when it ends, though its group is gone by then, and
// forgotten when the controller has them.
func TestBytesOfARunThatEnded(t *testing.T) {
	s := newStage(t)
	network := &networkOf{w: s.watch}
	s.network = network
	s.shep.alive[key(4)] = true
	s.shep.tree = "/sys/fs/cgroup/muster"
	s.start()
	st := s.stream(1)
	st.welcome(testCluster, key(4))
	s.agent.Heard([]plan.Event{{Exited: &plan.Exit{Key: key(4), Started: true, Start: 1, End: 2, Usage: plan.Usage{Key: key(4), Group: 77}}}})
	var done *apiv1.NodeDone
	var number uint64
	s.until(func() bool {
		for _, r := range st.reports() {
			if d := r.GetNodeDone(); d != nil {
				done, number = d, r.GetNumber()
			}
		}
		return done != nil
	})
	if n, ok := wire.ToCounters(done.GetUsage().GetCounters()).Get(spec.CounterNetOut); !ok || n != 770 {
		t.Errorf("%v", done.GetUsage())
	}
	if network.tree != "/sys/fs/cgroup/muster" || len(network.forgotten) != 0 {
		t.Errorf("%+v", network)
	}
	st.in <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Ack{Ack: &apiv1.ReportAck{UpTo: number}}}
	s.until(func() bool { return len(network.forgotten) == 1 && network.forgotten[0] == 77 })
}
