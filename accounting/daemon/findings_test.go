package daemon_test

import (
	"context"
	"encoding/csv"
	"fmt"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// wasted is a kind of finding with who it is about, as the report writes them.
type wasted struct{ kind, user, account, name, node string }

// amounts are the columns runs, gpu_us, cpu_us and mem_mib_us of a finding.
type amounts [4]int64

// workload is a history that is made job by job.
type workload struct {
	h     *tallytest.History
	first spec.Instant
}

func newWorkload(t *testing.T, nodes int) *workload {
	t.Helper()
	w := &workload{h: tallytest.New(t, spec.AtUnix(1_790_812_800))}
	w.h.Nodes(nodes, 32, 64_000, 4)
	w.h.Accounts([]string{"ml", "bio"}, map[string][]string{"ml": {"alice", "carol"}, "bio": {"bob"}})
	w.first = w.h.Now
	return w
}

// task is one run of a workload.
type task struct {
	user, name, node string
	cpus, gpus       int64
	worked           int64 // number of devices that were used, the first ones
	idle             int64 // seconds for which those were idle
	seconds          int64
	state            spec.JobState
}

func (w *workload) account(user string) string {
	if user == "bob" {
		return "bio"
	}
	return "ml"
}

// begin starts a task; what fits nowhere is refused.
func (w *workload) begin(k task) (spec.JobUID, bool) {
	uid := w.h.Submit(tallytest.Ask{
		Name: k.name, User: k.user, UID: 1001, Account: w.account(k.user), QOS: "normal",
		CPUs: k.cpus, Mem: 8000, GPUs: k.gpus, Limit: 10 * spec.Hour,
	})
	if !w.h.Start(uid, k.node) {
		w.h.EndBy(uid, spec.Cancelled, spec.ExitStatus{}, 0)
		return 0, false
	}
	return uid, true
}

// end ends a task that ran for its seconds, with what it used.
func (w *workload) end(uid spec.JobUID, k task) {
	usage := spec.Usage{HasRSS: true, PeakRSS: 1000 << 20, UserCPU: spec.Seconds(k.seconds)}
	alloc := w.h.State.Job(uid).Alloc.Nodes[0]
	for i := range k.gpus {
		g := spec.GPUUsage{UUID: alloc.GPUs[i].UUID, Has: true}
		if i < k.worked {
			g.Idle = spec.Seconds(k.idle)
			g.Busy = spec.Seconds(k.seconds - k.idle)
			g.UtilNS = g.Busy
		} else {
			g.NoProcess = spec.Seconds(k.seconds)
		}
		usage.GPUs = append(usage.GPUs, g)
	}
	w.h.End(uid, k.state, spec.ExitStatus{})
	w.h.Done(uid, usage, spec.ExitStatus{})
}

// reckon says by a loop over the tasks that ran what should be found: the rules of
// package findings, written a second time.
func reckon(w *workload, ran []task) map[wasted]amounts {
	const s = 1_000_000
	type work struct{ user, name string }
	out := map[wasted]amounts{}
	count := map[wasted]int64{}
	ended := map[work][]task{}
	add := func(kind string, k task, gpu, cpu int64) {
		key := wasted{kind, k.user, w.account(k.user), k.name, ""}
		a := out[key]
		out[key] = amounts{a[0] + 1, a[1] + gpu, a[2] + cpu, a[3]}
		count[key]++
	}
	for _, k := range ran {
		held, cpu := k.gpus*k.seconds*s, k.cpus*k.seconds*s
		switch k.state {
		case spec.Completed:
			ended[work{k.user, k.name}] = append(ended[work{k.user, k.name}], k)
			switch {
			case k.gpus > 0 && k.worked == 0:
				add("idle", k, held, 0)
			case k.worked > 0:
				if k.worked < k.gpus {
					add("unused-gpus", k, (k.gpus-k.worked)*k.seconds*s, 0)
				}
				if k.idle > 0 {
					add("input", k, k.worked*k.idle*s, 0)
				}
			}
		case spec.Failed:
			if k.seconds < 60 {
				add("crash", k, held, cpu)
			} else {
				add("failing", k, held, cpu)
			}
		case spec.TimedOut:
			add("timeout", k, held, cpu)
		case spec.OutOfMemory:
			add("out-of-memory", k, held, cpu)
		}
	}
	for key, n := range count {
		if (key.kind == "crash" || key.kind == "failing") && n < 3 {
			delete(out, key)
		}
	}
	for who, list := range ended {
		if len(list) < 3 {
			continue
		}
		var most, cpu, memory, longest int64
		for _, k := range list {
			most = max(most, k.cpus)
			longest = max(longest, k.seconds)
			cpu += (k.cpus - 1) * k.seconds * s // each kept one CPU busy
			memory += (8000 - 1000) * k.seconds * s
		}
		n := int64(len(list))
		key := wasted{"cpus", who.user, w.account(who.user), who.name, ""}
		if 4 <= most*3 && most >= 2 {
			out[key] = amounts{n, 0, cpu, 0}
		}
		key.kind = "memory" // 2 GiB are enough, and 8000 MiB were held
		out[key] = amounts{n, 0, 0, memory}
		if limit := (longest*5/4 + 299) / 300 * 300; 4*limit <= 3*36_000 {
			key.kind = "time-limit"
			out[key] = amounts{n, 0, 0, 0}
		}
	}
	return out
}

// newFindingsRig stores a workload, with prices if there are any.
func newFindingsRig(t *testing.T, w *workload, socket, db string, prices ...string) *sqlRig {
	t.Helper()
	ledger := newLedger(t)
	ledger.add(t, w.h.Log, 25)
	s := &sqlRig{rig: newRigIn(t, socket, db, ledger)}
	s.who = daemon.Caller{User: "root", Admin: true}
	s.cfg.Identify = func(context.Context) daemon.Caller { return s.who }
	s.clock.set(w.h.Now)
	if len(prices) > 0 {
		rates, err := kpi.ParseRates("EUR", "", prices, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.cfg.Rates = rates
	}
	s.start()
	s.stored(uint64(len(w.h.Log)))
	return s
}

// report asks for a report over [from, until), as rows by the names of columns.
func (s *sqlRig) report(name string, from, until spec.Instant) []map[string]*apiv1.Cell {
	s.t.Helper()
	reply, err := s.Service().Report(s.t.Context(), &apiv1.ReportQuery{
		Report: name, Start: int64(from), End: int64(until), Top: 10_000,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []map[string]*apiv1.Cell
	for _, row := range reply.GetRows() {
		cells := map[string]*apiv1.Cell{}
		for i, column := range reply.GetColumns() {
			cells[column.GetName()] = row.GetCells()[i]
		}
		out = append(out, cells)
	}
	return out
}

func about(row map[string]*apiv1.Cell) wasted {
	text := func(name string) string { return row[name].GetText() }
	return wasted{text("kind"), text("user"), text("account"), text("job_name"), text("node")}
}

// checkEvidence: the evidence of a finding runs in muster sql, and what it lists
// adds up to the finding.
func checkEvidence(t *testing.T, s *sqlRig, row map[string]*apiv1.Cell) {
	t.Helper()
	answer, err := s.ask("root", row["evidence"].GetText())
	if err != nil {
		t.Errorf("the evidence of %v does not run: %v\n%s", about(row), err, row["evidence"].GetText())
		return
	}
	lines, err := csv.NewReader(strings.NewReader(answer)).ReadAll()
	if err != nil || len(lines) < 2 {
		t.Errorf("the evidence of %v is %q (%v)", about(row), answer, err)
		return
	}
	for _, column := range []string{"gpu_us", "cpu_us", "mem_mib_us"} {
		at := slices.Index(lines[0], column)
		if at < 0 {
			continue
		}
		sum := int64(0)
		for _, line := range lines[1:] {
			v, err := strconv.ParseInt(line[at], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += v
		}
		if want := row[column].GetInt(); sum != want {
			t.Errorf("the evidence of %v adds up to %d of %s, the finding is %d:\n%s",
				about(row), sum, column, want, answer)
		}
		return
	}
}

// checkSum: what findings took of each step of the ladder is what they say, no step
// is exceeded, and all of it adds up to what was bought.
func checkSum(t *testing.T, s *sqlRig, from, until spec.Instant, bought int64) {
	t.Helper()
	took := map[string]int64{}
	for _, row := range s.report("findings", from, until) {
		took[row["step"].GetText()] += row["gpu_us"].GetInt() - row["open_us"].GetInt()
		took["open"] += row["open_us"].GetInt()
	}
	sum := int64(0)
	for _, row := range s.report("findings sum", from, until) {
		step, gpu, found := row["step"].GetText(), row["gpu_us"].GetInt(), row["found_us"].GetInt()
		if found != took[step] || row["rest_us"].GetInt() != gpu-found || found > gpu {
			t.Errorf("step %s has %d, found %d, rest %d; the findings take %d",
				step, gpu, found, row["rest_us"].GetInt(), took[step])
		}
		sum += gpu
	}
	if bought >= 0 && sum != bought {
		t.Errorf("the steps add up to %d, bought were %d", sum, bought)
	}
}

// TestFindingsOfRandomWorkloads: on random workloads the findings are what a loop
// over the jobs says, they add up with the ladder, also in windows that cut runs,
// and their evidence adds up to them.
func TestFindingsOfRandomWorkloads(t *testing.T) {
	engine := startEngine(t)
	for seed := range int64(2) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewSource(seed))
			w := newWorkload(t, 2)
			ran := randomTasks(w, rnd, 60)
			want := reckon(w, ran)
			s := newFindingsRig(t, w, engine.Socket(), fmt.Sprintf("found%d", seed))
			got := map[wasted]amounts{}
			proved := map[string]bool{}
			for _, row := range s.report("findings", w.first, w.h.Now) {
				n := func(name string) int64 { return row[name].GetInt() }
				got[about(row)] = amounts{n("runs"), n("gpu_us"), n("cpu_us"), n("mem_mib_us")}
				if kind := row["kind"].GetText(); !proved[kind] {
					proved[kind] = true // the text of a kind is the same for all
					checkEvidence(t, s, row)
				}
			}
			for key, a := range want {
				if got[key] != a {
					t.Errorf("%v is %v, the loop says %v", key, got[key], a)
				}
			}
			for key, a := range got {
				if _, ok := want[key]; !ok {
					t.Errorf("%v is %v, the loop does not find it", key, a)
				}
			}
			checkSum(t, s, w.first, w.h.Now, 8*int64(w.h.Now.Sub(w.first)/spec.Microsecond))
			for range 2 {
				length := int64(w.h.Now.Sub(w.first) / spec.Second)
				from := rnd.Int63n(length - 1)
				until := from + 1 + rnd.Int63n(length-from)
				checkSum(t, s, w.first.Add(spec.Seconds(from)), w.first.Add(spec.Seconds(until)),
					8*(until-from)*1_000_000)
			}
		})
	}
}

// randomTasks runs tasks on two nodes, up to two at a time on each.
func randomTasks(w *workload, rnd *rand.Rand, n int) []task {
	type open struct {
		uid  spec.JobUID
		left int64
		task
	}
	var ran []task
	var running []open
	states := []spec.JobState{
		spec.Completed, spec.Completed, spec.Completed, spec.Failed, spec.Failed,
		spec.TimedOut, spec.OutOfMemory, spec.Cancelled,
	}
	for len(ran) < n || len(running) > 0 {
		if len(ran) < n && len(running) < 4 {
			k := task{
				user:    []string{"alice", "bob", "carol"}[rnd.Intn(3)],
				name:    []string{"train", "prep"}[rnd.Intn(2)],
				node:    fmt.Sprintf("n%d", 1+rnd.Intn(2)),
				cpus:    1 + rnd.Int63n(8),
				gpus:    rnd.Int63n(3),
				seconds: 1 + rnd.Int63n(300),
				state:   states[rnd.Intn(len(states))],
			}
			k.worked = rnd.Int63n(k.gpus + 1)
			k.idle = rnd.Int63n(k.seconds + 1)
			if k.idle == k.seconds {
				k.idle = 0
			}
			if uid, ok := w.begin(k); ok {
				running = append(running, open{uid, k.seconds, k})
				ran = append(ran, k)
				continue
			}
		}
		next := running[0].left
		for _, o := range running {
			next = min(next, o.left)
		}
		w.h.Wait(spec.Seconds(next))
		var still []open
		for _, o := range running {
			if o.left == next {
				w.end(o.uid, o.task)
				continue
			}
			o.left -= next
			still = append(still, o)
		}
		running = still
	}
	return ran
}

// TestFindings ranks a workload that was reckoned by hand, at a price of 2 EUR for
// a GPU-hour, 0.10 for a CPU-hour and none for memory:
//
//   - alice holds 4 GPUs of n1 for an hour and uses one, which stands still for 10
//     minutes: 3 GPU-hours unused (6 EUR), a sixth of a GPU-hour waiting for input;
//   - bob's sweep-1 to sweep-3 hold 2 GPUs of n2 each and fail after 30 s: 3 times
//     60 GPU-seconds, 3 times 30 CPU-seconds;
//   - carol runs into her limit of 10 hours with 1 GPU of n2 and 8 CPUs (20 EUR for
//     the GPU, 8 for the CPUs).
//
// In the window that follows alice holds one GPU for two hours and uses it, and n2
// with its four GPUs is drained.
func TestFindings(t *testing.T) {
	w := newWorkload(t, 2)
	run := func(k task) {
		uid, ok := w.begin(k)
		if !ok {
			t.Fatalf("%+v does not start", k)
		}
		w.h.Wait(spec.Seconds(k.seconds))
		w.end(uid, k)
	}
	run(task{user: "alice", name: "train", node: "n1", cpus: 1, gpus: 4, worked: 1, idle: 600, seconds: 3600, state: spec.Completed})
	for i := range 3 {
		run(task{user: "bob", name: fmt.Sprintf("sweep-%d", i+1), node: "n2", cpus: 1, gpus: 2, seconds: 30, state: spec.Failed})
	}
	run(task{user: "carol", name: "sim", node: "n2", cpus: 8, gpus: 1, worked: 1, seconds: 36_000, state: spec.TimedOut})
	middle := w.h.Now
	w.h.Put(&event.NodeStateSet{Node: "n2", State: event.NodeDrain, Reason: "fan"})
	run(task{user: "alice", name: "train", node: "n1", cpus: 1, gpus: 1, worked: 1, seconds: 7200, state: spec.Completed})
	w.h.Wait(middle.Sub(w.first) - 7200*spec.Second) // as long as the first window

	s := newFindingsRig(t, w, startEngine(t).Socket(), "byhand", "2026-01-01 gres/gpu=2 cpu=0.1")
	var got strings.Builder
	for _, row := range s.report("findings", w.first, middle) {
		fmt.Fprintf(&got, "%s %s %s %s: %d runs, %d GPU-s, %d CPU-s, %.4f; %s\n",
			row["kind"].GetText(), row["user"].GetText(), row["account"].GetText(), row["job_name"].GetText(),
			row["runs"].GetInt(), row["gpu_us"].GetInt()/1_000_000, row["cpu_us"].GetInt()/1_000_000,
			row["value"].GetFloat(), row["change"].GetText())
		checkEvidence(t, s, row)
	}
	want := "timeout carol ml sim: 1 runs, 36000 GPU-s, 288000 CPU-s, 28.0000; #SBATCH --time=20:00:00 --signal=B:USR1@300\n" +
		"unused-gpus alice ml train: 1 runs, 10800 GPU-s, 0 CPU-s, 6.0000; #SBATCH --gpus=1\n" +
		"input alice ml train: 1 runs, 600 GPU-s, 0 CPU-s, 0.3333; #SBATCH --cpus-per-task=2\n" +
		"crash bob bio sweep-#: 3 runs, 180 GPU-s, 90 CPU-s, 0.1025; #SBATCH --dependency=afterok:FIRST_JOB\n"
	if got.String() != want {
		t.Errorf("found:\n%swant:\n%s", got.String(), want)
	}
	checkSum(t, s, w.first, middle, 8*int64(middle.Sub(w.first)/spec.Microsecond))

	// Metrics are about the last seven days, which begin before the first job.
	s.stop()
	s.cfg.Refresh = spec.Hour
	s.start()
	s.stored(uint64(len(w.h.Log)))
	s.until("metrics have findings", func() bool { return s.Findings() != nil })
	week := s.report("findings", s.clock.Now().Add(-findings.MetricDays*spec.Day), s.clock.Now())
	if list := s.Findings().List; len(list) != len(week) || list[0].GPU != week[0]["gpu_us"].GetInt() || list[0].GPU == 0 {
		t.Errorf("metrics have %+v, the report has %v", list, week)
	}

	// Of what alice held then three quarters were unused: of these 2 hours it would
	// have been an hour and a half.
	got.Reset()
	for _, row := range s.report("findings followed", middle, w.h.Now) {
		fmt.Fprintf(&got, "%s %s: %s, saved %d s, %.2f\n", row["kind"].GetText(), row["user"].GetText(),
			row["progress"].GetText(), row["saved_us"].GetInt()/1_000_000, row["saved_value"].GetFloat())
	}
	want = "unused-gpus alice: done, saved 5400 s, 3.00\n" +
		"input alice: done, saved 300 s, 0.17\n" +
		"crash bob: no runs, saved 0 s, 0.00\n" +
		"timeout carol: no runs, saved 0 s, 0.00\n"
	if got.String() != want {
		t.Errorf("followed:\n%swant:\n%s", got.String(), want)
	}
	drained := fmt.Sprintf("drained n2 %d", 4*int64(middle.Sub(w.first)/spec.Second))
	found := false
	for _, row := range s.report("findings", middle, w.h.Now) {
		line := fmt.Sprintf("%s %s %d", row["kind"].GetText(), row["node"].GetText(), row["gpu_us"].GetInt()/1_000_000)
		if row["kind"].GetText() == "drained" {
			found = line == drained
			checkEvidence(t, s, row)
		}
	}
	if !found {
		t.Errorf("the second window does not have %q", drained)
	}
	checkSum(t, s, middle, w.h.Now, 8*int64(middle.Sub(w.first)/spec.Microsecond))
	if k := findings.MinRuns; k != 3 {
		t.Errorf("the workloads of these tests are made for 3 runs, not %d", k)
	}
}
