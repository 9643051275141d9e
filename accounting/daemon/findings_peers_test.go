package daemon_test

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// wideRun is a run on several nodes.
type wideRun struct {
	user, name string
	nodes      []string
	gpus       int64 // on each
	seconds    int64
	active     []int64 // seconds of activity of each device, or of each CPU, by node
	idle       []int64 // seconds without work of each device
	state      spec.JobState
}

// runWide writes a run with its usage.
func (w *workload) runWide(t *testing.T, r wideRun) {
	t.Helper()
	uid := w.h.Submit(tallytest.Ask{
		Name: r.name, User: r.user, UID: 1001, Account: w.account(r.user), QOS: "normal",
		CPUs: 2, Mem: 1000, GPUs: r.gpus, Limit: 10 * spec.Hour,
	})
	if !w.h.Start(uid, r.nodes...) {
		t.Fatalf("%+v does not start", r)
	}
	w.h.Wait(spec.Seconds(r.seconds))
	w.h.End(uid, r.state, spec.ExitStatus{})
	job := w.h.State.Job(uid)
	started, attempt := job.Started, job.Attempt
	allocs := slices.Clone(job.Alloc.Nodes)
	for i, alloc := range allocs {
		usage := spec.Usage{HasRSS: true, PeakRSS: 900 << 20, UserCPU: spec.Seconds(2 * r.seconds)}
		if r.gpus == 0 {
			usage.UserCPU = spec.Seconds(2 * r.active[i])
		}
		for _, g := range alloc.GPUs {
			usage.GPUs = append(usage.GPUs, spec.GPUUsage{
				UUID: g.UUID, Has: true, Idle: spec.Seconds(r.idle[i]),
				Busy: spec.Seconds(r.seconds - r.idle[i]), UtilNS: spec.Seconds(r.active[i]),
			})
		}
		done := &event.JobNodeDone{UID: uid, Attempt: attempt, Node: alloc.Name, Usage: usage}
		if i == 0 {
			done.Batch = &event.StepResult{Started: started, Ended: w.h.Now}
		}
		w.h.Put(done)
	}
}

// waited is what nodes of a run waited for the busiest, in microseconds: the rule of package
// findings, written a second time.
func (r *wideRun) waited() int64 {
	if r.state != spec.Completed || len(r.nodes) < 2 || r.seconds < 300 {
		return 0
	}
	var rates []int64
	for _, active := range r.active {
		rates = append(rates, 1000*active/r.seconds)
	}
	top := slices.Max(rates)
	if top < 100 || 4*slices.Min(rates) > 3*top {
		return 0
	}
	devices := r.gpus
	if devices == 0 {
		devices = 2 // CPUs
	}
	us := int64(0)
	for i, rate := range rates {
		us += max(0, (top-rate)*devices*r.seconds*1000-devices*r.idle[i]*1_000_000)
	}
	return us
}

// TestUnevenNodesOfRandomWorkloads: what is found about uneven nodes is what a loop over the
// runs says, adds up with the ladder, and its evidence adds up to it.
func TestUnevenNodesOfRandomWorkloads(t *testing.T) {
	engine := startEngine(t)
	for seed := range int64(2) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewSource(seed))
			w := newWorkload(t, 4)
			want := map[wasted]int64{}
			runs := map[wasted]int64{}
			for range 60 {
				r := wideRun{
					user:    []string{"alice", "bob"}[rnd.Intn(2)],
					name:    []string{"train", "sim"}[rnd.Intn(2)],
					seconds: 100 + rnd.Int63n(1000),
					state:   []spec.JobState{spec.Completed, spec.Completed, spec.Completed, spec.Failed}[rnd.Intn(4)],
				}
				if r.name == "train" {
					r.gpus = 2
				}
				for i := range 1 + rnd.Intn(4) {
					r.nodes = append(r.nodes, fmt.Sprintf("n%d", i+1))
					r.idle = append(r.idle, rnd.Int63n(1+r.seconds/10)*min(r.gpus, 1))
					r.active = append(r.active, rnd.Int63n(r.seconds-r.idle[i]))
				}
				w.runWide(t, r)
				us := r.waited()
				if us > 0 {
					key := wasted{"straggler", r.user, w.account(r.user), r.name, ""}
					want[key] += us
					runs[key]++
				}
			}
			s := newFindingsRig(t, w, engine.Socket(), fmt.Sprintf("uneven%d", seed))
			got := 0
			for _, row := range s.report("findings", w.first, w.h.Now) {
				if row["kind"].GetText() != "straggler" {
					continue
				}
				got++
				us := row["gpu_us"].GetInt() + row["cpu_us"].GetInt()
				if us != want[about(row)] || row["runs"].GetInt() != runs[about(row)] {
					t.Errorf("%v is %d in %d runs, the loop says %d in %d", about(row), us,
						row["runs"].GetInt(), want[about(row)], runs[about(row)])
				}
				checkEvidence(t, s, row)
			}
			if got != len(want) || got == 0 {
				t.Errorf("%d findings, the loop says %v", got, want)
			}
			bought := 16 * int64(w.h.Now.Sub(w.first)/spec.Microsecond)
			checkSum(t, s, w.first, w.h.Now, bought)
		})
	}
}

// TestLateNode: n3 is busy all the time in four runs of 1000 s with 2 GPUs a node, in which the
// other two nodes are active for 600 s: 4 runs x 2 nodes x 2 GPUs x 400 s. In the window that
// follows alice leaves n3 out.
func TestLateNode(t *testing.T) {
	w := newWorkload(t, 4)
	for range 4 {
		w.runWide(t, wideRun{
			user:    "alice",
			name:    "train",
			nodes:   []string{"n1", "n2", "n3"},
			gpus:    2,
			seconds: 1000,
			active:  []int64{600, 600, 1000},
			idle:    []int64{0, 0, 0},
			state:   spec.Completed,
		})
	}
	middle := w.h.Now
	w.runWide(t, wideRun{
		user:    "alice",
		name:    "train",
		nodes:   []string{"n1", "n2"},
		gpus:    2,
		seconds: 3000,
		active:  []int64{2900, 3000},
		idle:    []int64{0, 0},
		state:   spec.Completed,
	})
	w.h.Wait(middle.Sub(w.first) - 3000*spec.Second)
	s := newFindingsRig(t, w, startEngine(t).Socket(), "late")
	line := func(rows []map[string]*apiv1.Cell, amount string) string {
		for _, row := range rows {
			if row["kind"].GetText() == "straggler" {
				return fmt.Sprintf("%d s; %s%s", row[amount].GetInt()/1_000_000, row["change"].GetText(), row["progress"].GetText())
			}
		}
		return ""
	}
	if got, want := line(s.report("findings", w.first, middle), "gpu_us"), "6400 s; #SBATCH --exclude=n3"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
	// Of 24000 GPU-seconds 6400 were waited: of the 12000 that followed it would be 3200.
	if got, want := line(s.report("findings followed", middle, w.h.Now), "saved_us"), "3200 s; done"; got != want {
		t.Errorf("followed %q, want %q", got, want)
	}
}

// TestSlowGPU: of eight GPUs under the same program GPU 2 of n2 has a clock of 1200 MHz, the
// others have 1600: in 1000 s it loses 250. Beside it a GPU under another program has 900 MHz,
// which has no peers.
func TestSlowGPU(t *testing.T) {
	w := newWorkload(t, 2)
	began := w.h.Now
	var uids []spec.JobUID
	for _, node := range []string{"n1", "n2"} {
		uid, ok := w.begin(task{user: "alice", name: "train", node: node, cpus: 1, gpus: 4})
		if !ok {
			t.Fatal("it does not start")
		}
		uids = append(uids, uid)
	}
	w.h.Wait(1000 * spec.Second)
	for _, uid := range uids {
		w.end(uid, task{gpus: 4, worked: 4, seconds: 1000, state: spec.Completed})
	}
	s := newFindingsRig(t, w, startEngine(t).Socket(), "slow")
	at := int64(began) / int64(spec.Second)
	put := func(node string, index int, uid uint64, mhz int64) {
		series := &apiv1.GpuSeries{
			Uuid: fmt.Sprintf("GPU-%s-%d", node, index), Index: uint32(index), Uid: uid, Attempt: 1,
			JobId: uint32(uid), User: "alice", Account: "ml", Partition: "batch",
		}
		for i := range int64(100) {
			series.At = append(series.At, at+10*i)
			series.Util = append(series.Util, 95)
			series.Processes = append(series.Processes, 1)
			series.SmClock = append(series.SmClock, mhz)
			series.MemClock = append(series.MemClock, 2600)
			series.Throttle = append(series.Throttle, map[bool]int64{true: 0x40}[mhz < 1500])
		}
		_, err := s.Service().PutGpuSamples(t.Context(), &apiv1.PutGpuSamplesRequest{
			Node:    node,
			Seconds: 10,
			Series:  []*apiv1.GpuSeries{series},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n, uid := range uids {
		for i := range 4 {
			mhz := int64(1600 + i)
			if n == 1 && i == 2 {
				mhz = 1200
			}
			put(fmt.Sprintf("n%d", n+1), i, uint64(uid), mhz)
		}
	}
	var got []string
	for _, row := range s.report("findings", w.first, w.h.Now) {
		if row["kind"].GetText() == "slow-gpu" {
			got = append(got, fmt.Sprintf(
				"%s GPU %d: %d s; %s",
				row["node"].GetText(),
				row["gpu"].GetInt(),
				row["gpu_us"].GetInt()/1_000_000,
				row["advice"].GetText(),
			))
			checkEvidence(t, s, row)
		}
	}
	want := "n2 GPU 2: 250 s; GPU 2 runs at 1200 MHz under full load, 7 others at 1601 MHz under the same programs; " +
		"heat or power held it down for 100 % of that time: look at cooling and power"
	if len(got) != 1 || got[0] != want {
		t.Errorf("found %q, want %q", got, want)
	}
	checkSum(t, s, w.first, w.h.Now, 8*int64(w.h.Now.Sub(w.first)/spec.Microsecond))
}

// TestUnlike: after ten runs of alice's that used their GPU for 900 to 909 of 1000 s, one that
// uses it for 300 s and takes five times the memory is unlike them, by both. Bob has used
// little of his GPU in seven runs, which is too few to say what he usually does.
func TestUnlike(t *testing.T) {
	w := newWorkload(t, 2)
	run := func(user string, util int64, rss int64) {
		uid := w.h.Submit(tallytest.Ask{
			Name:    "train-7",
			User:    user,
			UID:     1001,
			Account: w.account(user),
			QOS:     "normal",
			CPUs:    1,
			Mem:     8000,
			GPUs:    1,
			Limit:   spec.Hour,
		})
		if !w.h.Start(uid, "n1") {
			t.Fatal("it does not start")
		}
		w.h.Wait(1000 * spec.Second)
		usage := spec.Usage{HasRSS: true, PeakRSS: rss, UserCPU: 500 * spec.Second}
		usage.GPUs = []spec.GPUUsage{{
			UUID:   w.h.State.Job(uid).Alloc.Nodes[0].GPUs[0].UUID,
			Has:    true,
			Busy:   1000 * spec.Second,
			UtilNS: spec.Seconds(util),
		}}
		w.h.End(uid, spec.Completed, spec.ExitStatus{})
		w.h.Done(uid, usage, spec.ExitStatus{})
	}
	for i := range int64(10) {
		run("alice", 900+i, 1000<<20)
		if i < 7 {
			run("bob", 100, 1000<<20)
		}
	}
	w.h.Wait(spec.Second)
	middle := w.h.Now
	run("alice", 300, 5000<<20)
	run("alice", 905, 1100<<20)
	run("bob", 900, 1000<<20)
	s := newFindingsRig(t, w, startEngine(t).Socket(), "unlike")
	var got []string
	for _, row := range s.report("findings unlike", middle, w.h.Now) {
		got = append(got, fmt.Sprintf(
			"%s %s: %s %.3f, usually %.3f to %.3f in %d runs",
			row["user"].GetText(),
			row["job_name"].GetText(),
			row["measure"].GetText(),
			row["value"].GetFloat(),
			row["first_quartile"].GetFloat(),
			row["third_quartile"].GetFloat(),
			row["earlier_runs"].GetInt(),
		))
		answer, err := s.ask("root", row["evidence"].GetText())
		if err != nil || strings.Count(answer, "\n") != 11 {
			t.Errorf("the evidence is %q (%v)", answer, err)
		}
	}
	want := []string{
		"alice train-#: gpu utilisation 0.300, usually 0.902 to 0.907 in 10 runs",
		"alice train-#: memory 5242880000.000, usually 1048576000.000 to 1048576000.000 in 10 runs",
	}
	if !slices.Equal(got, want) {
		t.Errorf("unlike:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
