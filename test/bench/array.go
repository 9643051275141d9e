package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// arrayBench measures what accepting one large array costs.
type arrayBench struct {
	at    address
	tasks int64
	times int
	pid   int
	fill  bool
}

func (*arrayBench) help() string {
	return `muster-bench array measures how long a job array takes to be accepted and what
memory the controller needs for it. The nodes are filled first: no task starts.

Usage:
  muster-bench array [options]

Examples:
  muster bench array --tasks 1000000
  muster bench array --tasks 1000000 --times 10 --json
`
}

func (b *arrayBench) flags(flags *pflag.FlagSet) {
	b.at.flags(flags)
	flags.Int64Var(&b.tasks, "tasks", 1000000, "tasks of the array")
	flags.IntVar(&b.times, "times", 5, "arrays to submit, one after the other")
	flags.IntVar(
		&b.pid,
		"pid",
		0,
		"the controller's process (default: the one at the other end of the socket)",
	)
	flags.BoolVar(&b.fill, "fill", true, "first fill the nodes with a job of their own")
}

func (b *arrayBench) check() error {
	return checkPositive(map[string]int{"tasks": int(b.tasks), "times": b.times})
}

// arrayResult is what was found.
type arrayResult struct {
	Tasks     int64     `json:"tasks"`
	Times     int       `json:"times"`
	Accept    []float64 `json:"accept_ms"`
	Latency   latencies `json:"latency"`
	RSSBefore int64     `json:"controller_rss_before_bytes"`
	RSSAfter  int64     `json:"controller_rss_after_bytes"`
	PerTask   float64   `json:"bytes_per_task"`
	Cluster   string    `json:"cluster"`
	Machine   machine   `json:"machine"`
}

func (r *arrayResult) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"an array of %d tasks is accepted in %.2f ms (median of %d; slowest %.2f ms)\n",
		r.Tasks,
		r.Latency.P50,
		r.Times,
		r.Latency.Max,
	)
	fmt.Fprintf(
		w,
		"controller's memory: %.1f MiB before, %.1f MiB after %d arrays: %.4f bytes a task\n",
		toMiB(r.RSSBefore),
		toMiB(r.RSSAfter),
		r.Times,
		r.PerTask,
	)
	fmt.Fprintf(w, "cluster: %s\n", r.Cluster)
	r.Machine.text(w)
}

func (b *arrayBench) run(ctx context.Context, p *progress) (result, error) {
	c, err := connectCluster(ctx, &b.at)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if b.pid == 0 {
		b.pid, err = c.controllerPID()
		if err != nil {
			return nil, fmt.Errorf("which process is the controller? name it with --pid: %w", err)
		}
	}
	name := fmt.Sprintf("bench-%d", os.Getpid())
	res := &arrayResult{Tasks: b.tasks, Times: b.times, Cluster: "as it was"}
	if b.fill {
		describe, release, err := c.occupyNodes(ctx, name+"-fill", p)
		if err != nil {
			return nil, err
		}
		res.Cluster = describe
		defer release()
	}
	// What an earlier load left to do is not this array's.
	if err := c.quiet(ctx); err != nil {
		return nil, err
	}
	res.RSSBefore, err = residentBytes(b.pid)
	if err != nil {
		return nil, err
	}
	defer c.cancelJobs(context.WithoutCancel(ctx), &apiv1.JobFilter{Names: []string{name}}, p)
	res.Machine = machineNow()
	var times []time.Duration
	for range b.times {
		request := &apiv1.SubmitRequest{
			Script:      &apiv1.Blob{Data: []byte("#!/bin/sh\n:\n")},
			Environment: &apiv1.Blob{Data: []byte("PATH=/usr/bin:/bin\x00")},
			Spec: &apiv1.JobSpec{
				Name:      name,
				Tasks:     1,
				WorkDir:   "/",
				Stdout:    "/dev/null",
				TimeLimit: int64(time.Minute),
				Array:     []*apiv1.TaskRange{{First: 0, Last: b.tasks - 1, Step: 1}},
			},
		}
		began := time.Now()
		if _, err := c.api.Submit(ctx, request); err != nil {
			return nil, fmt.Errorf(
				"an array of %d tasks is refused (a bench cluster needs MaxArraySize above it): %w",
				b.tasks,
				err,
			)
		}
		times = append(times, time.Since(began))
		res.Accept = append(res.Accept, toMilliseconds(times[len(times)-1]))
	}
	res.Machine.after()
	// The scheduler looks at the arrays only after they were accepted.
	if err := c.quiet(ctx); err != nil {
		return nil, err
	}
	res.RSSAfter, err = residentBytes(b.pid)
	if err != nil {
		return nil, err
	}
	res.Latency = summariseTimes(times)
	res.PerTask = float64(res.RSSAfter-res.RSSBefore) / float64(int64(b.times)*b.tasks)
	return res, nil
}

// quietFor is how long nothing may happen for a cluster to be at rest.
const quietFor = 2 * time.Second

// quiet waits until the ledger has not grown for a while (it grows once a
// minute at rest), accounting has all of it, and no pass is under way.
func (c *cluster) quiet(ctx context.Context) error {
	var last *apiv1.DiagReply
	since := time.Now()
	err := pollUntil(ctx, 2*time.Minute, func() (bool, error) {
		now, err := c.api.Diag(ctx, &apiv1.DiagRequest{})
		if err != nil {
			return false, err
		}
		if last == nil || now.GetSeq() != last.GetSeq() || now.GetPasses() != last.GetPasses() ||
			now.GetAccountedSeq() != last.GetAccountedSeq() {
			last, since = now, time.Now()
		}
		return time.Since(since) >= quietFor, nil
	})
	if err != nil {
		return fmt.Errorf("the cluster did not become idle in time: %w", err)
	}
	return nil
}
