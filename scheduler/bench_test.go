package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// plant makes a cluster of equal nodes with 8 GPUs each, all registered.
func plant(nodes int, cpus int64) *state.State {
	return plantWith(nodes, cpus, func(*spec.Config) {})
}

// plantWith is plant with a configuration that was changed.
func plantWith(nodes int, cpus int64, change func(*spec.Config)) *state.State {
	c := &spec.Config{ClusterName: "bench", GresTypes: []string{"gpu"}}
	c.Sched = spec.SchedConfig{Backfill: true, Memory: true, Cores: true, BFMaxJobTest: 500}
	c.Limits = spec.JobLimits{JobRequeue: true, DefMemPerCPU: 500, MaxJobCount: 2_000_000, MaxArraySize: 4_000_001}
	c.Priority = spec.PriorityConfig{Age: 1000, JobSize: 1000}
	c.Timing.MinJobAge = 300 * spec.Second
	var names []string
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		names = append(names, name)
		c.Nodes = append(c.Nodes, spec.NodeSpec{Name: name, CPUs: cpus, ThreadsPerCore: 1, Mem: 256000, GRES: []spec.GRESSpec{{Name: "gpu", N: 8}}})
	}
	c.Partitions = []spec.PartitionSpec{{Name: "gpu", NodeNames: names, Default: true, DefaultTime: spec.Hour, MaxTime: 7 * spec.Day, State: spec.PartitionUp}}
	change(c)
	st := state.New()
	t := trial.On(st, epoch, event.Actor{}, "")
	do(t, scheduler.Policy{Events: []event.Event{&event.ClusterCreated{Name: "bench", Version: event.Version}}})
	do(t, scheduler.Configure{Config: c})
	for _, name := range names {
		inv := spec.Inventory{BootID: "1", CPUs: cpus, Mem: 256000}
		for g := range uint32(8) {
			inv.GPUs = append(inv.GPUs, spec.GPU{Index: g, UUID: fmt.Sprintf("GPU-%s-%d", name, g)})
		}
		do(t, scheduler.RegisterNode{Node: name, Inventory: inv})
	}
	return st
}

func do(t *trial.Trial, cmd scheduler.Command) scheduler.Result {
	res, err := scheduler.Decide(t, cmd)
	if err != nil {
		panic(err)
	}
	t.Events = t.Events[:0]
	return res
}

// runPass passes once and commits.
func runPass(st *state.State, now spec.Instant, opt scheduler.PassOptions) *scheduler.Outcome {
	out, err := scheduler.Pass(st.Freeze(), now, opt)
	if err != nil {
		panic(err)
	}
	do(trial.On(st, now, event.Actor{}, ""), scheduler.Starts{Proposal: &out.Proposal})
	return out
}

func small(i int) *spec.JobSpec {
	js := &spec.JobSpec{Name: "noop", UID: 1000, GID: 1000, User: "alice", Group: "users", IO: spec.JobIO{WorkDir: "/home/alice", Stdout: "/dev/null"}}
	js.Time.Limit = spec.Minute
	js.Size.MemPerNode = 10
	_ = i
	return js
}

// mixed is a job of the workload that the comparison with the real Slurm
// uses: 60 % on one node, 30 % on 1 to 16, 10 % on 16 to 64; an eighth of a
// node to all of it; ten minutes to a day.
func mixed(r *rand.Rand) *spec.JobSpec {
	pick := func(list ...int) int { return list[r.IntN(len(list))] }
	nodes := 1
	if k := r.IntN(10); k == 9 {
		nodes = pick(16, 32, 64)
	} else if k >= 6 {
		nodes = pick(1, 2, 4, 8, 16)
	}
	js := small(0)
	js.Size.MemPerNode = 0
	js.Size.MinNodes, js.Size.MaxNodes = uint32(nodes), uint32(nodes)
	js.Size.TasksPerNode = uint32(8 * pick(1, 1, 2, 4, 8, 8))
	js.Time.Limit = spec.Span(pick(10, 30, 60, 120, 240, 480, 720, 1440)) * spec.Minute
	return js
}

func fill(st *state.State, n int, job func(i int) *spec.JobSpec) {
	t := trial.On(st, epoch, event.Actor{}, "")
	for i := range n {
		do(t, scheduler.Submit{Spec: job(i)})
	}
}

// A deep queue of equal one-node jobs before a full cluster of two nodes: a
// pass that knows nothing, and one that knows the queue of the pass before and
// finds 100 new jobs in it.
func BenchmarkPassDeepQueue(b *testing.B) {
	for _, n := range []int{1_000, 20_000, 100_000} {
		for _, kept := range []bool{false, true} {
			b.Run(fmt.Sprintf("jobs=%d/kept=%v", n, kept), func(b *testing.B) {
				st := plant(2, 32)
				fill(st, n+64, small)
				var opt scheduler.PassOptions
				if kept {
					opt.Queue = &scheduler.Queue{}
				}
				runPass(st, epoch+1, opt)
				fill(st, 100, small)
				states := []*state.State{st.Freeze(), nil}
				runPass(st, epoch+1, scheduler.PassOptions{}) // reasons of the new ones
				fill(st, 100, small)
				states[1] = st.Freeze()
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					out, err := scheduler.Pass(states[i&1], epoch+2, opt)
					if err != nil || len(out.Starts) > 0 || out.Queue < int64(n) {
						b.Fatal(err, len(out.Starts), out.Queue)
					}
					i++
				}
			})
		}
	}
}

// One complete pass over a mixed queue: every job is tested and reserved.
func BenchmarkPassMixed(b *testing.B) {
	for _, size := range [][2]int{{1_000, 8_700}, {5_000, 8_700}, {5_000, 50_000}} {
		b.Run(fmt.Sprintf("nodes=%d/jobs=%d", size[0], size[1]), func(b *testing.B) {
			st := plant(size[0], 64)
			st.Config.Sched.BFMaxJobTest = 100_000
			r := rand.New(rand.NewPCG(1, 2))
			fill(st, size[1], func(int) *spec.JobSpec { return mixed(r) })
			runPass(st, epoch+1, scheduler.PassOptions{})
			frozen := st.Freeze()
			b.ReportAllocs()
			var out *scheduler.Outcome
			for b.Loop() {
				var err error
				if out, err = scheduler.Pass(frozen, epoch+spec.Instant(spec.Second), scheduler.PassOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(out.Plan.Jobs)), "reserved")
		})
	}
}

// The pass that fills an idle cluster.
func BenchmarkPassFill(b *testing.B) {
	st := plant(1_000, 64)
	r := rand.New(rand.NewPCG(1, 2))
	fill(st, 8_700, func(int) *spec.JobSpec { return mixed(r) })
	frozen := st.Freeze()
	b.ReportAllocs()
	for b.Loop() {
		out, err := scheduler.Pass(frozen, epoch+1, scheduler.PassOptions{})
		if err != nil || len(out.Starts) == 0 {
			b.Fatal(err)
		}
	}
}

func BenchmarkSubmit(b *testing.B) {
	for _, nodes := range []int{2, 5_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			st := plant(nodes, 64)
			b.ReportAllocs()
			t := trial.On(st, epoch, event.Actor{}, "")
			i := 0
			for b.Loop() {
				do(t, scheduler.Submit{Spec: small(i)})
				if i++; i%1000 == 0 {
					st.Freeze()
				}
			}
		})
	}
}

func BenchmarkSubmitArrayOfMillion(b *testing.B) {
	st := plant(2, 64)
	b.ReportAllocs()
	for b.Loop() {
		js := small(0)
		js.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 1, Last: 1_000_000, Step: 1}}, 0)
		t := trial.On(st.Freeze().Fork(), epoch, event.Actor{}, "")
		do(t, scheduler.Submit{Spec: js})
	}
}

// The whole life of no-op jobs: submitted, started by passes, reported done,
// purged; 20,000 wait for 64 CPUs.
func BenchmarkLife(b *testing.B) {
	const jobs = 20_000
	for b.Loop() {
		st := plant(2, 32)
		fill(st, jobs, small)
		now := epoch
		ended := 0
		plan := scheduler.PassOptions{Queue: &scheduler.Queue{}}
		for ended < jobs {
			now += spec.Instant(10 * spec.Millisecond)
			out := runPass(st, now, plan)
			plan.Plan = out.Plan
			t := trial.On(st, now, event.Actor{}, "")
			for i := range out.Starts {
				j := st.Job(out.Starts[i].UID)
				do(t, scheduler.Report{Node: j.Alloc.Nodes[0].Name, Run: scheduler.Run{UID: j.UID, Attempt: j.Attempt},
					Done: &scheduler.NodeDone{Batch: &event.StepResult{}}})
				ended++
			}
		}
		for st.Jobs.Len() > 0 {
			now = now.Add(300 * spec.Second)
			do(trial.On(st, now, event.Actor{}, ""), scheduler.Tick{})
		}
	}
	b.ReportMetric(float64(jobs)*float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// A million array tasks before 10,000 nodes: a pass that starts the first 2,000
// of them, and one that finds every node busy.
func BenchmarkPassArrayOfMillion(b *testing.B) {
	st := plant(10_000, 64)
	js := small(0)
	js.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 1, Last: 1_000_000, Step: 1}}, 0)
	idle := st.Freeze().Fork()
	do(trial.On(idle, epoch, event.Actor{}, ""), scheduler.Submit{Spec: js})
	all := small(0)
	all.Size.MinNodes, all.Size.MaxNodes, all.Size.TasksPerNode = 10_000, 10_000, 64
	busy := st.Freeze().Fork()
	do(trial.On(busy, epoch, event.Actor{}, ""), scheduler.Submit{Spec: all})
	runPass(busy, epoch+1, scheduler.PassOptions{})
	do(trial.On(busy, epoch+1, event.Actor{}, ""), scheduler.Submit{Spec: js})
	for _, k := range []struct {
		name   string
		st     *state.State
		starts int
	}{{"idle", idle.Freeze(), 2_000}, {"busy", busy.Freeze(), 0}} {
		b.Run(k.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				out, err := scheduler.Pass(k.st, epoch+2, scheduler.PassOptions{Starts: 2_000})
				if err != nil || len(out.Starts) != k.starts {
					b.Fatal(err, len(out.Starts))
				}
			}
		})
	}
}

// BenchmarkSubmitWide must not grow with the nodes of the partition: the first that fit are
// enough, also where not any nodes do.
func BenchmarkSubmitWide(b *testing.B) {
	for _, c := range []struct {
		name   string
		blocks bool // the cluster has them
		ask    func(*spec.JobSpec)
	}{
		{"plain", false, func(*spec.JobSpec) {}},
		{"nodelist", false, func(s *spec.JobSpec) { s.Place.Nodes = "n4990" }},
		{"gpus", false, func(s *spec.JobSpec) { s.Size.PerJob = []spec.Count{{Name: "gpu", N: 6}} }},
		{"contiguous", false, func(s *spec.JobSpec) { s.Place.Contiguous = true }},
		{"one of two features", false, func(s *spec.JobSpec) { s.Place.Constraint = "[even|odd]" }},
		{"features by number", false, func(s *spec.JobSpec) { s.Place.Constraint = "[even*2&odd*2]" }},
		{"in one block", true, func(*spec.JobSpec) {}},
		{"nodelist in a block", true, func(s *spec.JobSpec) { s.Place.Nodes = "n4990" }},
		{"segment", true, func(s *spec.JobSpec) { s.Place.Segment = 2 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			st := plantWith(5000, 64, func(config *spec.Config) {
				for i := range config.Nodes {
					config.Nodes[i].Features = []string{[]string{"even", "odd"}[i%2]}
				}
				if c.blocks {
					config.BlockSizes = []uint32{50}
					for i := range 100 {
						nodes := config.Partitions[0].NodeNames[50*i : 50*i+50]
						config.Blocks = append(config.Blocks, spec.Block{Name: fmt.Sprint("b", i), Nodes: nodes})
					}
				}
			})
			t := trial.On(st, epoch, event.Actor{}, "")
			i := 0
			for b.Loop() {
				s := small(i)
				s.Size.MinNodes = 4
				s.Size.MaxNodes = 4
				s.Size.Tasks = 4
				c.ask(s)
				do(t, scheduler.Submit{Spec: s})
				i++
			}
		})
	}
}
