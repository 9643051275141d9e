package daemon_test

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// sampleSeconds is the time between readings in these tests.
const sampleSeconds = 10

// held is one run on one device, with what it did in each stretch of
// sampleSeconds: the utilisation in percent, -1 = no process.
type held struct {
	uid        uint64
	user, node string
	start      int64 // Unix seconds
	did        []int64
	over       bool
}

// idleWithin is how many seconds of the run within a window went without work,
// and how many it held the device.
func (r *held) idleWithin(from, to int64) (idle, total float64) {
	for i, util := range r.did {
		at := r.start + int64(i)*sampleSeconds
		if at < from || at >= to {
			continue
		}
		total += sampleSeconds
		if util <= 0 {
			idle += sampleSeconds
		}
	}
	return idle, total
}

// heldHistory makes random runs on three nodes, of which some are not over, and
// gives the ledger up to now with them.
func heldHistory(t *testing.T, rnd *rand.Rand, steps int) (*tallytest.History, []*held) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(3, 64, 512_000, 8)
	h.Put(&event.AccountPut{Account: spec.Account{Name: "root"}})
	var all []*held
	running := map[string]*held{}
	users := []string{"alice", "bob", "carol"}
	for range steps {
		node := fmt.Sprintf("n%d", 1+rnd.Intn(3))
		if r := running[node]; r != nil {
			gpu := spec.GPUUsage{UUID: "GPU-" + node + "-0", Has: true}
			for _, util := range r.did {
				const stretch = sampleSeconds * spec.Second
				switch {
				case util < 0:
					gpu.NoProcess += stretch
				case util == 0:
					gpu.Idle += stretch
				default:
					gpu.Busy += stretch
					gpu.UtilNS += stretch * spec.Span(util) / 100
				}
			}
			h.Finish(spec.JobUID(r.uid), spec.Usage{HasRSS: true, PeakRSS: 1, GPUs: []spec.GPUUsage{gpu}})
			r.over = true
			delete(running, node)
		} else {
			user := users[rnd.Intn(len(users))]
			uid := h.Submit(tallytest.Ask{Name: "x", User: user, UID: 1001, Account: "root", QOS: "normal", CPUs: 4, Mem: 4000, GPUs: 1})
			h.Start(uid, node)
			r := &held{uid: uint64(uid), user: user, node: node, start: int64(h.Now) / int64(spec.Second)}
			running[node] = r
			all = append(all, r)
		}
		stretches := 1 + rnd.Intn(6)
		for range stretches {
			for _, r := range running {
				r.did = append(r.did, []int64{-1, 0, 40, 90}[rnd.Intn(4)])
			}
		}
		h.Wait(spec.Span(stretches) * sampleSeconds * spec.Second)
	}
	return h, all
}

// TestFiguresAgreeWhileRunsGoOn: at whatever moment one looks, and whatever the
// window, `muster kpi`, `report idle` and the view job_gpus say of GPUs what a
// loop over the readings says, with the runs that are not over in it.
func TestFiguresAgreeWhileRunsGoOn(t *testing.T) {
	engine := startEngine(t)
	sawOpen := false
	seeds, cuts := int64(2), 1
	if os.Getenv("MUSTER_LONG") != "" {
		seeds, cuts = 6, 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewSource(seed))
			h, runs := heldHistory(t, rnd, 7+int(seed)*4)
			ledger := newLedger(t)
			ledger.add(t, h.Log, 25)
			s := &sqlRig{rig: newRigIn(t, engine.Socket(), fmt.Sprintf("agree%d", seed), ledger)}
			s.who = daemon.Caller{User: "root", Admin: true}
			s.cfg.Identify = func(context.Context) daemon.Caller { return s.who }
			s.clock.set(h.Now)
			s.start()
			s.stored(uint64(len(h.Log)))
			for _, r := range runs {
				sawOpen = sawOpen || !r.over
				g := &apiv1.GpuSeries{Uuid: "GPU-" + r.node + "-0", Uid: r.uid, Attempt: 1, JobId: uint32(r.uid), User: r.user, Account: "root", Partition: "gpu"}
				for i, util := range r.did {
					g.At = append(g.At, r.start+int64(i)*sampleSeconds)
					g.Util = append(g.Util, max(util, 0))
					g.Processes = append(g.Processes, min(util+1, 1))
				}
				req := &apiv1.PutGpuSamplesRequest{Node: r.node, Seconds: sampleSeconds, Series: []*apiv1.GpuSeries{g}}
				if _, err := s.Service().PutGpuSamples(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			first, now := int64(t0), int64(h.Now)/int64(spec.Second)
			windows := [][2]int64{{first - 3600, now}}
			for range cuts {
				from := first + rnd.Int63n((now-first)/sampleSeconds)*sampleSeconds
				to := from + (1+rnd.Int63n((now-from)/sampleSeconds))*sampleSeconds
				windows = append(windows, [2]int64{from, to})
			}
			for i, w := range windows {
				want, total := map[string]float64{}, map[string]float64{}
				for _, r := range runs {
					idle, all := r.idleWithin(w[0], w[1])
					want[r.user] += idle
					total[r.user] += all
				}
				for user := range total {
					if total[user] == 0 {
						delete(want, user)
					}
				}
				same(t, fmt.Sprintf("kpi in %v", w), s.idleByKPI(t, w), want)
				for user, idle := range want {
					if idle == 0 {
						delete(want, user) // the report lists those who have any
					}
				}
				same(t, fmt.Sprintf("report idle in %v", w), s.idleByReport(t, w), want)
				if i > 1 {
					continue
				}
				checkLadder(t, s.rig, w[0]*second, w[1]*second)
				checkStored(t, s.rig, nil, w[0]*second, min(w[1]*second, ledger.lastEvent()))
				if i == 0 {
					same(t, "view job_gpus", s.idleBySQL(t), want)
				}
			}
		})
	}
	if !sawOpen {
		t.Error("no history has a run that is not over")
	}
}

func same(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for user := range want {
		if _, ok := got[user]; !ok {
			t.Errorf("%s: %s is missing, want %v s", what, user, want[user])
		}
	}
	for user, v := range got {
		if math.Abs(v-want[user]) > 0.01 {
			t.Errorf("%s: %s held GPUs idle for %v s, the loop says %v s", what, user, v, want[user])
		}
	}
}

// idleByKPI gives the figure gpu_idle by user in seconds.
func (s *sqlRig) idleByKPI(t *testing.T, w [2]int64) map[string]float64 {
	t.Helper()
	query := &apiv1.ReportQuery{Report: "kpi", By: "user", Start: w[0] * int64(spec.Second), End: w[1] * int64(spec.Second)}
	reply, err := s.Service().Report(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, row := range reply.GetRows() {
		for i, col := range reply.GetColumns() {
			if col.GetName() == "gpu_idle" && !row.GetCells()[i].GetNull() {
				out[row.GetCells()[0].GetText()] = row.GetCells()[i].GetFloat() * 3600
			}
		}
	}
	return out
}

// idleByReport gives the first figure of `muster report idle` in seconds.
func (s *sqlRig) idleByReport(t *testing.T, w [2]int64) map[string]float64 {
	t.Helper()
	query := &apiv1.ReportQuery{Report: "idle", Top: 20, Start: w[0] * int64(spec.Second), End: w[1] * int64(spec.Second)}
	reply, err := s.Service().Report(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, row := range reply.GetRows() {
		out[row.GetCells()[0].GetText()] = row.GetCells()[1].GetFloat() * 3600
	}
	return out
}

// idleBySQL asks the view, over all time.
func (s *sqlRig) idleBySQL(t *testing.T) map[string]float64 {
	t.Helper()
	const sql = "SELECT user, sum(no_process_us + idle_us) / 1e6 AS idle FROM job_gpus GROUP BY user HAVING idle > 0"
	answer, err := s.ask("root", sql)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, line := range strings.Split(strings.TrimSpace(answer), "\n")[1:] {
		user, number, _ := strings.Cut(strings.TrimSpace(line), ",")
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[strings.Trim(user, `"`)] = v
	}
	return out
}
