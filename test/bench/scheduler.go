package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/sim/plant"
	"github.com/musterhpc/muster/spec"
)

// schedulerBench measures the production pass on a cluster in memory.
type schedulerBench struct {
	nodes, pending, tasks, times int
	seed                         uint64
}

func (*schedulerBench) help() string {
	return `muster-bench scheduler measures a scheduling pass on a cluster and a queue that it
makes in memory: nodes with 64 CPUs and 8 GPUs, half of them busy; 60 % of the
jobs on one node, 30 % on 1 to 16, 10 % on 16 to 64; 1 to 8 GPUs a node; limits
from ten minutes to a day. It needs no running cluster. The pass is the one that
the controller runs, on every pending job, each of which is started or gets a
reservation.

  first        fills the cluster and plans the rest; knows nothing of the queue
  full         plans the whole queue anew before a full cluster
  incremental  after one job has ended: who can start now without delaying
               what was promised

Usage:
  muster-bench scheduler [options]

Examples:
  muster bench scheduler --nodes 1000 --pending 8700
  muster bench scheduler --nodes 5000 --pending 50000 --json
  muster bench scheduler --nodes 10000 --pending 0 --tasks 1000000
`
}

func (b *schedulerBench) flags(flags *pflag.FlagSet) {
	flags.IntVar(&b.nodes, "nodes", 1000, "nodes of the cluster")
	flags.IntVar(&b.pending, "pending", 8700, "pending jobs")
	flags.IntVar(&b.tasks, "tasks", 0, "tasks of one pending array besides")
	flags.IntVar(&b.times, "times", 5, "full and incremental passes to run")
	flags.Uint64Var(&b.seed, "seed", 1, "what everything is drawn from")
}

func (b *schedulerBench) check() error {
	if b.pending < 0 || b.tasks < 0 || b.pending+b.tasks == 0 {
		return fmt.Errorf(
			"%w: --pending or --tasks must be at least 1, and neither negative",
			errUsage,
		)
	}
	return checkPositive(map[string]int{"nodes": b.nodes, "times": b.times})
}

// schedulerResult is what was found.
type schedulerResult struct {
	Nodes          int       `json:"nodes"`
	Pending        int       `json:"pending"`
	Tasks          int       `json:"array_tasks"`
	Running        int       `json:"running"`
	First          float64   `json:"first_ms"`
	FirstCPU       float64   `json:"first_cpu_ms"`
	Started        int       `json:"started_first"`
	Full           latencies `json:"full"`
	FullCPU        float64   `json:"full_cpu_ms"`
	Incremental    latencies `json:"incremental"`
	IncrementalCPU float64   `json:"incremental_cpu_ms"`
	Tested         int64     `json:"jobs_tested"`
	Reserved       int       `json:"jobs_reserved"`
	Queue          int64     `json:"queue"`
	Began          int       `json:"started_incremental"`
	Heap           uint64    `json:"heap_bytes"`
	RSS            int64     `json:"max_rss_bytes"`
	Seed           uint64    `json:"seed"`
	Machine        machine   `json:"machine"`
}

func (r *schedulerResult) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"%d nodes, %d jobs and %d array tasks pending, %d running (seed %d)\n",
		r.Nodes,
		r.Pending,
		r.Tasks,
		r.Running,
		r.Seed,
	)
	fmt.Fprintf(
		w,
		"first pass        %9.1f ms (%.1f ms of CPU): %d started\n",
		r.First,
		r.FirstCPU,
		r.Started,
	)
	fmt.Fprintf(
		w,
		"full pass         %9.1f ms (median; slowest %.1f; %.1f ms of CPU): %d tested, %d reserved of %d that wait\n",
		r.Full.P50,
		r.Full.Max,
		r.FullCPU,
		r.Tested,
		r.Reserved,
		r.Queue,
	)
	fmt.Fprintf(
		w,
		"incremental pass  %9.2f ms (median; slowest %.2f; %.2f ms of CPU), after one job has ended: %d started in all\n",
		r.Incremental.P50,
		r.Incremental.Max,
		r.IncrementalCPU,
		r.Began,
	)
	fmt.Fprintf(
		w,
		"memory            %9.1f MiB on the heap, %.1f MiB resident at most\n",
		toMiB(int64(r.Heap)),
		toMiB(r.RSS),
	)
	r.Machine.text(w)
}

func (b *schedulerBench) run(ctx context.Context, p *progress) (result, error) {
	res := &schedulerResult{
		Nodes:   b.nodes,
		Pending: b.pending,
		Tasks:   b.tasks,
		Seed:    b.seed,
		Machine: machineNow(),
	}
	p.say("making the cluster and its queue")
	site, err := plant.New(b.nodes, b.seed)
	if err != nil {
		return nil, err
	}
	if err := site.Occupy(); err != nil {
		return nil, err
	}
	if err := site.Submit(b.pending); err != nil {
		return nil, err
	}
	if b.tasks > 0 {
		if err := site.SubmitArray(b.tasks); err != nil {
			return nil, err
		}
	}
	if err := b.measure(ctx, p, site, res); err != nil {
		return nil, err
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	res.Heap, res.RSS = mem.HeapAlloc, maxRSS()
	res.Machine.after()
	return res, nil
}

// measure runs the passes. What a pass proposes is committed before the next.
func (b *schedulerBench) measure(
	ctx context.Context,
	p *progress,
	site *plant.Site,
	res *schedulerResult,
) error {
	options := scheduler.PassOptions{Queue: &scheduler.Queue{}}
	var used time.Duration // CPU time of the last pass
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	timed := func() (*scheduler.Outcome, time.Duration, error) {
		frozen := site.State.Freeze()
		runtime.GC()
		cpu, began := threadTime(), time.Now()
		out, err := scheduler.Pass(frozen, site.Now, options)
		took := time.Since(began)
		used = threadTime() - cpu
		if err != nil {
			return nil, took, err
		}
		options.Plan, options.Keep = out.Plan, out.Promises
		return out, took, site.Do(scheduler.Starts{Proposal: &out.Proposal})
	}
	p.say("the first pass")
	out, took, err := timed()
	if err != nil {
		return err
	}
	res.First = float64(took) / 1e6
	res.Started = len(out.Starts)
	res.Running = site.State.Active.Len()
	res.FirstCPU = float64(used) / 1e6
	var full, quick, fullCPU, quickCPU []time.Duration
	for i := range b.times {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.say("full pass %d of %d", i+1, b.times)
		site.Now = site.Now.Add(spec.Second)
		options.Keep, options.Incremental = nil, false
		out, took, err = timed()
		if err != nil {
			return err
		}
		full, fullCPU = append(full, took), append(fullCPU, used)
		res.Tested = out.Depth
		res.Reserved = planned(out)
		res.Queue = out.Queue
		if _, err := site.EndOne(); err != nil {
			return err
		}
		options.Incremental = true
		out, took, err = timed()
		if err != nil {
			return err
		}
		quick, quickCPU = append(quick, took), append(quickCPU, used)
		res.Began += len(out.Starts)
	}
	res.Full = summariseTimes(full)
	res.Incremental = summariseTimes(quick)
	res.FullCPU = summariseTimes(fullCPU).P50
	res.IncrementalCPU = summariseTimes(quickCPU).P50
	return nil
}

// planned counts the reservations of a plan, without estimates.
func planned(out *scheduler.Outcome) int {
	n := 0
	for i := range out.Plan.Jobs {
		if !out.Plan.Jobs[i].Estimate {
			n++
		}
	}
	return n
}
