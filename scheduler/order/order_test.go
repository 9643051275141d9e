package order_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

type tester interface{ Fatal(...any) }

func put(t tester, s *state.State, at spec.Instant, events ...event.Event) {
	for _, e := range events {
		if err := s.Apply(&event.Envelope{Seq: s.Seq + 1, At: at, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
}

const start = spec.Instant(1_800_000_000) * spec.Instant(spec.Second)

// lab is the cluster of which a real sprio printed the figures of TestGolden.
func lab(t tester, p spec.PriorityConfig) *state.State {
	s := state.New()
	cfg := &spec.Config{Priority: p, Partitions: []spec.PartitionSpec{{Name: "debug", NodeNames: []string{"n1", "n2"}, PriorityJobFactor: 10}, {Name: "gpu", NodeNames: []string{"n1", "n2"}, PriorityJobFactor: 1, MaxTime: spec.Hour}}}
	for _, n := range []string{"n1", "n2"} {
		cfg.Nodes = append(cfg.Nodes, spec.NodeSpec{Name: n, CPUs: 8, Mem: 16000})
	}
	put(t, s, start, &event.ConfigAdopted{Config: cfg})
	for _, n := range []string{"n1", "n2"} {
		put(t, s, start, &event.NodeRegistered{Node: n, Inventory: spec.Inventory{CPUs: 8, Mem: 16000}})
	}
	put(t, s, start, &event.QOSPut{QOS: spec.QOS{ID: 1, Name: "normal"}}, &event.QOSPut{QOS: spec.QOS{ID: 2, Name: "gpucap", Priority: 10}}, &event.QOSPut{QOS: spec.QOS{ID: 3, Name: "mid", Priority: 3}},
		&event.AssociationPut{Association: spec.Association{ID: 1, Account: "root"}}, &event.AssociationPut{Association: spec.Association{ID: 2, Account: "a", Parent: 1}},
		&event.AssociationPut{Association: spec.Association{ID: 3, Account: "a", User: "u", Parent: 2, Priority: 7}}, &event.AssociationPut{Association: spec.Association{ID: 4, Account: "a", User: "v", Parent: 2, Priority: 11}})
	return s
}

func submit(t tester, s *state.State, js spec.JobSpec, req spec.TRES, assoc uint32) *state.Job {
	uid := s.NextUID
	if len(js.Partitions) == 0 {
		js.Partitions = []string{"gpu"}
	}
	put(t, s, start, &event.JobSubmitted{UID: uid, ID: s.NextID, Spec: &js, Req: req, Assoc: assoc, Eligible: start})
	return s.Job(uid)
}

// TestGolden compares with what a real cluster printed: of two nodes with 8
// CPUs and 16000 MiB each, and the weights that sprio -w shows there.
func TestGolden(t *testing.T) {
	s := lab(t, spec.PriorityConfig{Age: 1000, FairShare: 10000, JobSize: 1000, Partition: 1000, QOS: 2000, TRES: []spec.Weight{{TRES: "cpu", Micro: 1000_000_000}, {TRES: "mem", Micro: 1000_000_000}}})
	// alice had half the fair share there: two users, of whom the other used less.
	f := s.Freeze().Fork()
	f.SetSpent(1, fixed.Of(10))
	f.SetSpent(2, fixed.Of(10))
	f.SetSpent(3, fixed.Of(10))
	for _, c := range []struct {
		part, qos  string
		cpus, node int64
		total      uint32
		size       string
	}{{"gpu", "normal", 3, 3, 6178, "843.750"}, {"gpu", "normal", 99, 13, 13834, "1000.000"}, {"debug", "normal", 1, 1, 6359, "281.250"}} {
		j := submit(t, f, spec.JobSpec{User: "u", QOS: c.qos, Partitions: []string{c.part}}, spec.TRES{CPU: c.cpus, Mem: 500 * c.cpus, Node: c.node}, 3)
		got := order.NewContext(f, start).Of(j, f.Parts.Find(c.part).Spec)
		if size := fmt.Sprintf("%.3f", float64(got.JobSize)/order.Scale); got.Total != c.total || size != c.size {
			t.Errorf("%d CPUs on %d nodes of %s: priority %d, size %s, want %d and %s (%+v)", c.cpus, c.node, c.part, got.Total, size, c.total, c.size, got)
		}
	}
}

// TestAgainstRationals: the priority is the sum of the weighted factors, exactly.
func TestAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := func(name string) uint32 {
			return rapid.SampledFrom([]uint32{0, 1, 7, 1000, 10000, 123457, 1<<32 - 1}).Draw(t, name)
		}
		p := spec.PriorityConfig{Age: weight("age"), Assoc: weight("assoc"), FairShare: weight("fairshare"), JobSize: weight("size"), Partition: weight("partition"), QOS: weight("qos"),
			MaxAge: spec.Span(rapid.Int64Range(1, 30).Draw(t, "max")) * spec.Day, FavorSmall: rapid.Bool().Draw(t, "small"), TRES: []spec.Weight{{TRES: "cpu", Micro: rapid.Int64Range(0, 1e10).Draw(t, "cpu")}, {TRES: "mem", Micro: 333_333}}}
		for _, f := range []string{"NO_NORMAL_ASSOC", "NO_NORMAL_PART", "NO_NORMAL_QOS", "NO_NORMAL_TRES", "NO_NORMAL_ALL", "SMALL_RELATIVE_TO_TIME", "ACCRUE_ALWAYS", "CALCULATE_RUNNING"} {
			if rapid.IntRange(0, 3).Draw(t, f) == 0 {
				p.Flags = append(p.Flags, f)
			}
		}
		has := func(f string) bool { return slices.Contains(p.Flags, f) }
		s := lab(t, p)
		f := s.Freeze().Fork()
		busy := rapid.Bool().Draw(t, "busy")
		if busy {
			f.SetSpent(1, fixed.Of(10))
			f.SetSpent(2, fixed.Of(10))
			f.SetSpent(3, fixed.Of(10))
		}
		js := spec.JobSpec{User: "u", QOS: rapid.SampledFrom([]string{"normal", "gpucap", "mid"}).Draw(t, "job QOS"), Partitions: []string{rapid.SampledFrom([]string{"debug", "gpu"}).Draw(t, "part")},
			Time: spec.TimeAsk{Limit: spec.Span(rapid.Int64Range(1, 3000).Draw(t, "minutes")) * spec.Minute}}
		js.Queue.Nice, js.Queue.SiteFactor = int32(rapid.IntRange(-3000, 3000).Draw(t, "nice")), int32(rapid.IntRange(-3000, 3000).Draw(t, "site"))
		req := spec.TRES{CPU: rapid.Int64Range(1, 40).Draw(t, "cpus"), Mem: rapid.Int64Range(0, 64000).Draw(t, "mem"), Node: rapid.Int64Range(1, 4).Draw(t, "nodes")}
		j := submit(t, f, js, req, 3)
		age := spec.Span(rapid.Int64Range(0, int64(40*spec.Day)).Draw(t, "waited"))
		got := order.NewContext(f, start.Add(age)).Of(j, f.Parts.Find(js.Partitions[0]).Spec)

		r := func(a, b int64) *big.Rat { return big.NewRat(a, b) }
		sum := new(big.Rat)
		add := func(w uint32, factor *big.Rat) {
			sum.Add(sum, new(big.Rat).Mul(new(big.Rat).SetInt64(int64(w)), factor))
		}
		one := func(x *big.Rat) *big.Rat {
			if x.Cmp(r(1, 1)) > 0 {
				return r(1, 1)
			}
			return x
		}
		add(p.Age, one(r(int64(age), int64(p.MaxAge))))
		norm := func(n, most int64, flag string) *big.Rat {
			if has(flag) || has("NO_NORMAL_ALL") {
				return r(n, 1)
			}
			return r(n, most)
		}
		add(p.Assoc, norm(7, 11, "NO_NORMAL_ASSOC"))
		add(p.QOS, norm(map[string]int64{"normal": 0, "gpucap": 10, "mid": 3}[js.QOS], 10, "NO_NORMAL_QOS"))
		add(p.Partition, norm(map[string]int64{"debug": 10, "gpu": 1}[js.Partitions[0]], 10, "NO_NORMAL_PART"))
		if busy {
			add(p.FairShare, r(1, 2))
		} else {
			add(p.FairShare, r(1, 1))
		}
		size := new(big.Rat).Mul(new(big.Rat).Add(r(req.Node, 2), r(req.CPU, 16)), r(1, 2))
		if has("SMALL_RELATIVE_TO_TIME") {
			size = r(max(req.CPU, req.Node*8), 16*int64(js.Time.Limit/spec.Minute))
		}
		if size = one(size); p.FavorSmall {
			size = new(big.Rat).Sub(r(1, 1), size)
		}
		add(p.JobSize, size)
		for _, w := range p.TRES {
			total := map[string]int64{"cpu": 16, "mem": 32000}[w.TRES]
			if has("NO_NORMAL_TRES") || has("NO_NORMAL_ALL") {
				total = 1
			}
			sum.Add(sum, new(big.Rat).Mul(r(w.Micro, 1_000_000), r(req.Get(w.TRES), total)))
		}
		sum.Add(sum, r(int64(js.Queue.SiteFactor)-int64(js.Queue.Nice), 1))
		whole := func(x *big.Rat) int64 {
			q := new(big.Int).Div(x.Num(), x.Denom()) // towards minus infinity
			switch {
			case q.Sign() <= 0:
				return 1
			case q.IsInt64() && q.Int64() <= 1<<32-1:
				return q.Int64()
			}
			return 1<<32 - 1
		}
		want := whole(sum)
		near := whole(new(big.Rat).Add(sum, r(2, 1_000_000))) // a sum this close to the next point may be counted as it
		if total := int64(got.Total); total != want && total != near {
			t.Fatalf("priority %d, exactly %s (%+v)", total, sum.FloatString(9), got)
		}
		runs := *j // it got more than it asked for at the least
		runs.State, runs.StartPrio, runs.Req = spec.Running, 5, spec.TRES{CPU: 1, Node: 1}
		runs.Alloc = &spec.Allocation{Partition: js.Partitions[0], TRES: req}
		total := int64(order.NewRunning(f, start.Add(age)).Of(&runs))
		if again := has("CALCULATE_RUNNING"); (again && total != want && total != near) || (!again && total != 5) {
			t.Fatalf("priority %d while it runs, exactly %s (%v)", total, sum.FloatString(9), p.Flags)
		}
		if runs.State = spec.Completed; order.NewRunning(f, start).Of(&runs) != 5 {
			t.Fatal("a job that is over does not keep the priority with which it started")
		}
	})
}
