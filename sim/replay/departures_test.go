package replay

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// TestUselessFor: what a request cannot use of the free GPUs of one node, by hand.
func TestUselessFor(t *testing.T) {
	rest := []int64{1000, 1000, 400} // two are free, of the third 400 thousandths
	now := &place.Free{CPU: 8, Mem: 100}
	for _, c := range []struct {
		name string
		kind place.Wanted
		want int64
	}{
		{"part that fits everywhere", place.Wanted{CPU: 1, Part: 300}, 0},
		{"part that is larger than what is left of one", place.Wanted{CPU: 1, Part: 500}, 400},
		{"whole GPUs leave the part", place.Wanted{CPU: 1, GPUs: 2}, 400},
		{"more GPUs than are free", place.Wanted{CPU: 1, GPUs: 3}, 2400},
		{"more CPUs than are free", place.Wanted{CPU: 9, GPUs: 1}, 2400},
		{"more memory than is free", place.Wanted{CPU: 1, Mem: 101, GPUs: 1}, 2400},
	} {
		if got := uselessFor(&c.kind, now, rest, 2400); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestStrandedGPUs: a node of two GPUs and one CPU. While its job of one GPU holds the CPU the
// other GPU is free and of no use to a job like it.
func TestStrandedGPUs(t *testing.T) {
	trace := &Trace{Rows: []Row{
		{ID: 1, Submit: 0, Run: 600, Procs: 1, GPUs: 1, Wait: -1},
		{ID: 2, Submit: 1000, Run: 600, Procs: 1, GPUs: 1, Wait: -1},
	}}
	rule, err := RuleNamed("muster")
	if err != nil {
		t.Fatal(err)
	}
	machine := Machine{Nodes: 1, CPUs: 1, GPUs: 2}
	res, err := Run(context.Background(), trace.Workload(machine.Config(rule.Settings())), rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := res.Summarise()
	// One of two GPUs is held for 600 of the 1,000 seconds, and the other is stranded then.
	if math.Abs(sum.GPUsFree-0.7) > 0.01 || math.Abs(sum.GPUsStranded-0.3) > 0.01 {
		t.Errorf("free %.3f, stranded %.3f; want 0.7 and 0.3", sum.GPUsFree, sum.GPUsStranded)
	}
}

// TestPackingWithDepartures: where pods leave again, with run times that are predicted, placing
// them by the mix of requests strands fewer GPUs than the fullest node first, and the mean wait is
// no more than a tenth longer (it was 9 % shorter over ten orders here, and 1 % longer over four
// orders of 5,000 pods on 60 nodes).
func TestPackingWithDepartures(t *testing.T) {
	openb, err := ReadOpenb(
		traceFile(t, "openb_node_list_all_node.csv.gz"),
		traceFile(t, "openb_pod_list_default.csv.gz"),
	)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := ReadITP(traceFile(t, "msft_itp_2021.csv.gz"), "")
	if err != nil {
		t.Fatal(err)
	}
	orders := uint64(3)
	if os.Getenv("MUSTER_LONG") != "" {
		orders = 10
	}
	var fullest, mixed Summary // sums
	for seed := range orders {
		arrivals := Arrivals{Seed: seed, Pods: 2000, Nodes: 40, Percent: 100, Runs: runs}
		addFigures(&fullest, replayArrivals(t, openb, arrivals))
		arrivals.Mix = true
		addFigures(&mixed, replayArrivals(t, openb, arrivals))
	}
	n := float64(orders)
	t.Logf("best fit: mean wait %.0f s, %.2f %% stranded", fullest.MeanWait/n, 100*fullest.GPUsStranded/n)
	t.Logf("mix:      mean wait %.0f s, %.2f %% stranded", mixed.MeanWait/n, 100*mixed.GPUsStranded/n)
	if mixed.GPUsStranded >= fullest.GPUsStranded {
		t.Error("the mix strands no fewer GPUs")
	}
	if mixed.MeanWait > 1.1*fullest.MeanWait {
		t.Error("the mix makes pods wait more than a tenth longer")
	}
}

func addFigures(sum *Summary, one Summary) {
	sum.MeanWait += one.MeanWait
	sum.GPUsStranded += one.GPUsStranded
}

func replayArrivals(t *testing.T, openb *Openb, arrivals Arrivals) Summary {
	t.Helper()
	rule, err := RuleNamed("muster")
	if err != nil {
		t.Fatal(err)
	}
	workload, err := openb.Workload(arrivals, rule.Settings())
	if err != nil {
		t.Fatal(err)
	}
	res, err := Run(context.Background(), workload, rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := res.Summarise()
	if sum.Jobs != arrivals.Pods {
		t.Fatalf("%d of %d pods ran: %+v", sum.Jobs, arrivals.Pods, sum)
	}
	return sum
}

// TestArrivals: the pods arrive in order and ask together for as much of the GPU time as was said.
func TestArrivals(t *testing.T) {
	nodes := "sn,cpu_milli,memory_mib,gpu,model\na,8000,1000,2,G\nb,8000,1000,2,G\n"
	pods := "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1000,10,1,500\np2,1000,10,1,1000\n"
	openb, err := ReadOpenb(strings.NewReader(nodes), strings.NewReader(pods))
	if err != nil {
		t.Fatal(err)
	}
	runs := &Trace{Rows: []Row{{Run: 100, GPUs: 1}, {Run: 300, GPUs: 1}, {Run: 9, GPUs: 0}}}
	arrivals := Arrivals{Seed: 3, Pods: 400, Percent: 50, Runs: runs}
	workload, err := openb.Workload(arrivals, Settings{})
	if err != nil {
		t.Fatal(err)
	}
	var work float64
	last := spec.Instant(0)
	for i := range workload.Jobs {
		job := &workload.Jobs[i]
		if job.Submit < last || job.Run > job.Spec.Time.Limit {
			t.Fatalf("pod %d: submitted at %d after %d, runs for %d of %d", i, job.Submit, last, job.Run, job.Spec.Time.Limit)
		}
		last = job.Submit
		count := job.Spec.Size.PerNode[0]
		gpus := float64(count.N)
		if count.Name == "shard" {
			gpus /= 1000
		}
		work += gpus * asFloat(job.Run)
	}
	if load := work / (4 * asFloat(last.Sub(epoch))); math.Abs(load-0.5) > 0.02 {
		t.Errorf("load %.3f, want 0.5", load)
	}
	arrivals.Runs = &Trace{Rows: []Row{{Run: 9, GPUs: 0}}}
	if _, err := openb.Workload(arrivals, Settings{}); !errors.Is(err, ErrEmpty) {
		t.Errorf("run times of a trace without GPUs: %v", err)
	}
}
