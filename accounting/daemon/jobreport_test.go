package daemon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/slo"
	"github.com/musterhpc/muster/spec"
)

// reported is a history for reports: eleven short runs of bob that ask for
// little and start at once, then four of alice that ask for all and wait two
// hours each.
func reported(t *testing.T) *tallytest.History {
	h := tallytest.New(t, spec.AtUnix(1_790_000_000))
	h.Nodes(2, 4, 8000, 2)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice", "bob"}})
	for range 11 {
		uid := h.Submit(tallytest.Ask{Name: "small", User: "bob", UID: 1002, Account: "ml", CPUs: 1, Mem: 1000, GPUs: 1, Limit: 10 * spec.Minute})
		h.Start(uid, "n1")
		h.Wait(5 * spec.Minute)
		h.Finish(uid, spec.Usage{HasRSS: true, PeakRSS: 900 << 20, UserCPU: 5 * spec.Minute})
	}
	for range 4 {
		uid := h.Submit(tallytest.Ask{Name: "train", User: "alice", UID: 1001, Account: "ml", CPUs: 4, Mem: 8000, GPUs: 2, Limit: 10 * spec.Hour})
		h.Wait(2 * spec.Hour)
		h.Start(uid, "n2")
		h.Wait(spec.Hour)
		h.Finish(uid, spec.Usage{HasRSS: true, PeakRSS: 1500 << 20, UserCPU: 3 * spec.Hour, HasEnergy: true, EnergyMJ: 3_600_000_000,
			GPUs: []spec.GPUUsage{{UUID: "GPU-n2-0", Has: true, Busy: spec.Hour, UtilNS: spec.Hour / 2, SMNS: spec.Hour / 4, EnergyMJ: 7_200_000_000},
				{UUID: "GPU-n2-1", Has: true, NoProcess: spec.Hour, Method: spec.GPUByShare, Share: 250}}})
	}
	return h
}

// TestJobReport: a run's report says what was held and used, what it cost, and
// what its user's history speaks for.
func TestJobReport(t *testing.T) {
	h := reported(t)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	h.Wait(spec.Second)
	r.clock.set(h.Now)
	var err error
	r.cfg.Rates, err = kpi.ParseRates("EUR", "", []string{"2026-01-01 cpu=0.5 gres/gpu=2"}, []string{"2026-01-01 400"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.cfg.Objectives = []slo.Objective{{Kind: slo.Wait, Class: "long", Part: 0.5, Within: spec.Day}, {Kind: slo.Wait, Class: slo.EveryQOS, Part: 0.8, Within: spec.Hour}}
	r.start()
	r.stored(uint64(len(h.Log)))
	rep, err := r.Service().JobReport(t.Context(), &apiv1.JobReportQuery{Job: "12"})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s cost %v %s energy %v carbon %v\n", rep.GetRun().GetName(), rep.GetRun().GetState(), rep.GetCost(), rep.GetCurrency(), rep.GetEnergyJoules(), rep.GetCarbonGrams())
	for _, n := range rep.GetNodes() {
		fmt.Fprintf(&b, "%s cpus %d mem %d held %d cpu %d peak %d\n", n.GetNode(), n.GetCpus(), n.GetMemMib(), n.GetHeld()/1e9, n.GetCpuTime()/1e9, n.GetPeakRss()>>20)
		for _, g := range n.GetGpus() {
			fmt.Fprintf(&b, "gpu %d %v util %d sm %d none %d idle %d energy %d, %s %d\n", g.GetIndex(), g.GetMeasured(), g.GetUtil()/1e9, g.GetSm()/1e9, g.GetNoProcess()/1e9, g.GetIdle()/1e9, g.GetEnergyMj(), g.GetMethod(), g.GetShare())
		}
	}
	for _, a := range rep.GetAdvice() {
		fmt.Fprintf(&b, "%s %s %d/%d %d: %s\n", a.GetKind(), a.GetChange(), a.GetRuns(), a.GetPeers(), a.GetGain()/1e9, a.GetText())
	}
	waited := "; the 11 runs in batch that asked for no more waited 00:00:00 on average, these 02:00:00: 02:00:00 less\n"
	want := "train COMPLETED cost 6 EUR energy 1.08e+07 carbon 1200\nn2 cpus 4 mem 8000 held 3600 cpu 10800 peak 1500\n" +
		"gpu 0 true util 1800 sm 900 none 0 idle 0 energy 7200000000, counted 1000\ngpu 1 true util 0 sm 0 none 3600 idle 0 energy 0, by share 250\n" +
		"memory --mem=2G 4/11 7200: the last 4 runs used at most 1.5 GiB of 7.8 GiB a node" + waited +
		"time --time=01:15:00 4/11 7200: the last 4 runs that completed took at most 01:00:00 of 10:00:00; a shorter limit fits into gaps before others start" + waited +
		"cpus --cpus-per-task=3 4/11 7200: the last 4 runs kept 3.0 of 4 CPUs busy on average, at most 3.0" + waited +
		"gpus --gpus=1 4/11 7200: at most 1 of 2 GPUs did anything in the last 4 runs" + waited +
		"gpu_use  4/0 0: GPU utilisation was 25 % over the last 4 runs: look at how data are loaded and at the batch size, or share a device\n"
	if b.String() != want {
		t.Errorf("the report:\n%s\nexpected:\n%s", b.String(), want)
	}
	if rep, err := r.Service().JobReport(t.Context(), &apiv1.JobReportQuery{Job: "999"}); err != nil || rep.GetRun() != nil {
		t.Errorf("a job that is not: %v, %v", rep, err)
	}
	if _, err := r.Service().JobReport(t.Context(), &apiv1.JobReportQuery{Job: "x; DROP TABLE jobs"}); spec.CodeOf(err) != spec.CodeInvalidJobID {
		t.Errorf("no job: %v", err)
	}
	adv, err := r.Service().Advise(t.Context(), &apiv1.AdviceQuery{User: "alice"})
	if err != nil || len(adv.GetAdvice()) != 5 || adv.GetAdvice()[0].GetJobName() != "train" {
		t.Errorf("advice to alice: %v, %v", adv, err)
	}
	checkWaste(t, r, h)
	checkCostOfView(t, r)
	checkObjectives(t, r, h)
}

// checkObjectives: four of fifteen jobs waited two hours.
func checkObjectives(t *testing.T, r *rig, h *tallytest.History) {
	t.Helper()
	rep, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "objectives", Start: 1, End: int64(h.Now)})
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.GetRows()) != 1 {
		t.Fatalf("the objectives: %v", rep)
	}
	c := rep.GetRows()[0].GetCells()
	got := fmt.Sprintf("%s %s %d %d %.3f %.3f", c[0].GetText(), c[1].GetText(), c[2].GetInt(), c[3].GetInt(), c[4].GetFloat(), c[5].GetFloat())
	if want := " 80% within 1h 15 11 0.733 -0.333"; got != want {
		t.Errorf("the objectives: %q, want %q", got, want)
	}
}

// checkCostOfView: the Job board has the amount and the currency of the report.
func checkCostOfView(t *testing.T, r *rig) {
	t.Helper()
	rates, err := kpi.ParseRates("EUR", "", []string{"2026-01-01 cpu=0.5 gres/gpu=2 license/it's=3"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for prices, want := range map[*kpi.Rates]string{&rates: "6 EUR", nil: "none "} {
		store, err := clickhouse.Open(clickhouse.Options{Socket: r.socket, Database: r.store.Database(), Rates: prices})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		if err := store.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got string
		text := "SELECT concat(ifNull(toString(cost), 'none'), ' ', currency) FROM " + store.Database() + ".runs_of_job(cluster = 'peer', job = 12)"
		err = store.Query(t.Context(), query.Query{SQL: text}, func(scan func(...any) error) error { return scan(&got) })
		if err != nil || got != want {
			t.Errorf("runs_of_job says %q, %v; want %q", got, err, want)
		}
	}
}

// checkWaste: the runs that used less than a part of their memory.
func checkWaste(t *testing.T, r *rig, h *tallytest.History) {
	t.Helper()
	lines := func(name, by string, below float64) string {
		rep, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: name, By: by, Below: below, Start: 1, End: int64(h.Now), Top: 100})
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, row := range rep.GetRows() {
			for _, c := range row.GetCells() {
				switch v := c.GetKind().(type) {
				case *apiv1.Cell_Text:
					out += v.Text + " "
				case *apiv1.Cell_Int:
					out += fmt.Sprint(v.Int, " ")
				case *apiv1.Cell_Float:
					out += fmt.Sprintf("%.4g ", v.Float)
				default:
					out += "- "
				}
			}
			out += "\n"
		}
		return out
	}
	if got := lines("waste", "", 0.5); strings.Count(got, "\n") != 4 || !strings.HasPrefix(got, "12 alice ml train COMPLETED 3600 8388608000 1572864000 0.1875 6.816e+09 \n") {
		t.Errorf("waste below a half:\n%s", got)
	}
	if got := lines("waste", "", 0.18); got != "" {
		t.Errorf("waste below 18 %%:\n%s", got)
	}
	if got := lines("waste", "", 0.95); strings.Count(got, "\n") != 15 {
		t.Errorf("waste below 95 %%:\n%s", got)
	}
	want := "alice 4 16 8 0.75 2.726e+10 0.8125 0.25 4 0 7200 \nbob 11 0.9167 0.9167 1 9.612e+07 0.1 - - 0 0 \n"
	if got := lines("efficiency", "user", 0); got != want {
		t.Errorf("by user:\n%sexpected\n%s", got, want)
	}
	if _, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "efficiency", By: "name; DROP"}); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("by nonsense: %v", err)
	}
}

// TestAdviceTellsUnnamedJobsApart: jobs that nobody has named have the name wrap in common and
// nothing else: what one command needs says nothing about another.
func TestAdviceTellsUnnamedJobsApart(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(1_790_000_000))
	h.Nodes(1, 4, 8000, 0)
	h.Accounts([]string{"ml"}, map[string][]string{"ml": {"alice"}})
	run := func(line string, peak int64, times int) {
		for range times {
			uid := h.Submit(tallytest.Ask{
				Name:    "wrap",
				Line:    line,
				User:    "alice",
				UID:     1001,
				Account: "ml",
				CPUs:    1,
				Mem:     8000,
				Limit:   spec.Hour,
			})
			h.Start(uid, "n1")
			h.Wait(55 * spec.Minute)
			h.Finish(uid, spec.Usage{HasRSS: true, PeakRSS: peak, UserCPU: 55 * spec.Minute})
		}
	}
	const (
		small = "sbatch --mem=8000 --wrap ./small"
		large = "sbatch --mem=8000 --wrap ./large"
		once  = "sbatch --mem=8000 --wrap ./once"
	)
	run(small, 500<<20, 4)
	run(large, 7900<<20, 4)
	run(once, 100<<20, 1)
	ledger := newLedger(t)
	ledger.add(t, h.Log, 25)
	r := newRig(t, startEngine(t).Socket(), ledger)
	h.Wait(spec.Second)
	r.clock.set(h.Now)
	r.start()
	r.stored(uint64(len(h.Log)))
	reply, err := r.Service().Advise(t.Context(), &apiv1.AdviceQuery{User: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	changes := map[string]string{}
	for _, a := range reply.GetAdvice() {
		changes[a.GetJobName()] += a.GetChange()
	}
	if len(changes) == 0 || changes[small] != "--mem=1G" || changes[once] != "" || changes["wrap"] != "" || changes[large] == changes[small] {
		t.Errorf("advice: %q", changes)
	}
}
