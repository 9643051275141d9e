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

// submitBench measures acceptance: how many jobs a second become durable.
type submitBench struct {
	at            address
	jobs, clients int
	stream        bool
	framed        bool
	window        int
	script, env   int
	unique        bool
	fill, keep    bool
}

func (*submitBench) help() string {
	return `muster-bench submit measures how fast jobs are accepted: each is durable when it
is acknowledged. The cluster is filled first, so that what is submitted waits.

Usage:
  muster-bench submit [options]

Examples:
  muster bench submit --clients 64 --jobs 100000            # a call for each job
  muster bench submit --clients 64 --jobs 100000 --stream   # one streaming call for each client
  muster bench submit --clients 1 --jobs 1000 --unique --json
`
}

func (b *submitBench) flags(flags *pflag.FlagSet) {
	b.at.flags(flags)
	flags.IntVar(&b.jobs, "jobs", 100000, "jobs to submit")
	flags.IntVar(&b.clients, "clients", 64, "clients, each with a connection of its own")
	flags.BoolVar(
		&b.stream,
		"stream",
		false,
		"one streaming call for each client; each job is acknowledged",
	)
	flags.BoolVar(
		&b.framed,
		"framed",
		false,
		"single calls over the protocol that sbatch speaks, instead of gRPC",
	)
	flags.IntVar(&b.window, "window", 2, "with --stream: jobs that a client has on their way")
	flags.IntVar(&b.script, "script-bytes", 4096, "size of the script")
	flags.IntVar(&b.env, "env-bytes", 8192, "size of the environment")
	flags.BoolVar(
		&b.unique,
		"unique",
		false,
		"another script and environment for every job (default: all share one)",
	)
	flags.BoolVar(&b.fill, "fill", true, "first fill the nodes with a job of their own")
	flags.BoolVar(&b.keep, "keep", false, "leave the jobs in the queue")
}

func (b *submitBench) check() error {
	if b.stream && b.framed {
		return fmt.Errorf("%w: --framed has no streaming submission", errUsage)
	}
	return checkPositive(
		map[string]int{
			"jobs":         b.jobs,
			"clients":      b.clients,
			"window":       b.window,
			"script-bytes": b.script,
			"env-bytes":    b.env,
		},
	)
}

// submitResult is what was found.
type submitResult struct {
	Rate    float64   `json:"jobs_per_second"`
	Took    float64   `json:"seconds"`
	Latency latencies `json:"latency"`
	Acked   int       `json:"acknowledged"`
	Refused int       `json:"refused"`
	Reasons []string  `json:"reasons,omitempty"`
	Jobs    int       `json:"jobs"`
	Clients int       `json:"clients"`
	Calls   string    `json:"calls"` // single, framed or stream
	Window  int       `json:"window,omitempty"`
	Content string    `json:"content"`
	Unique  bool      `json:"unique_content"`
	Cluster string    `json:"cluster"`
	Machine machine   `json:"machine"`
	Server  float64   `json:"controller_cpu_ms_per_job"`
	Client  float64   `json:"client_cpu_ms_per_job"`
}

func (r *submitResult) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"%.0f jobs/s: %d acknowledged, %d refused, in %.2f s\n",
		r.Rate,
		r.Acked,
		r.Refused,
		r.Took,
	)
	fmt.Fprintf(
		w,
		"latency of an acknowledgement: p50 %.2f ms, p99 %.2f ms, max %.2f ms\n",
		r.Latency.P50,
		r.Latency.P99,
		r.Latency.Max,
	)
	for _, line := range r.Reasons {
		fmt.Fprintf(w, "refused %s\n", line)
	}
	calls := "a gRPC call for each job"
	switch r.Calls {
	case "framed":
		calls = "a call for each job over the tools' protocol"
	case "stream":
		calls = fmt.Sprintf("a stream for each, %d jobs on their way", r.Window)
	}
	fmt.Fprintf(
		w,
		"load: %d clients, %s; %s\ncluster: %s\n",
		r.Clients,
		calls,
		r.Content,
		r.Cluster,
	)
	fmt.Fprintf(
		w,
		"CPU for each job: controller %.3f ms, this program %.3f ms\n",
		r.Server,
		r.Client,
	)
	r.Machine.text(w)
}

func (b *submitBench) run(ctx context.Context, p *progress) (result, error) {
	c, err := connectCluster(ctx, &b.at)
	if err != nil {
		return nil, err
	}
	defer c.close()
	name := fmt.Sprintf("bench-%d", os.Getpid())
	res := &submitResult{
		Jobs:    b.jobs,
		Clients: b.clients,
		Calls:   "single",
		Unique:  b.unique,
		Cluster: "as it was",
	}
	if b.framed {
		res.Calls = "framed"
	}
	if b.stream {
		res.Calls, res.Window = "stream", b.window
	}
	if b.fill {
		describe, release, err := c.occupyNodes(ctx, name+"-fill", p)
		if err != nil {
			return nil, err
		}
		res.Cluster = describe
		if !b.keep {
			defer release()
		}
	}
	l := &load{
		jobs:    b.jobs,
		clients: b.clients,
		stream:  b.stream,
		framed:  b.framed,
		window:  b.window,
		content: newContent(b.script, b.env, b.unique),
		spec: &apiv1.JobSpec{
			Name:      name,
			Tasks:     1,
			WorkDir:   "/",
			Stdout:    "/dev/null",
			TimeLimit: int64(time.Minute),
		},
	}
	res.Content = l.content.describe()
	if !b.keep {
		defer c.cancelJobs(context.WithoutCancel(ctx), &apiv1.JobFilter{Names: []string{name}}, p)
	}
	pid, err := c.controllerPID()
	if err != nil {
		return nil, err
	}
	server, client := cpuTime(pid), cpuTime(os.Getpid())
	res.Machine = machineNow()
	out, err := l.submitAll(ctx, c, p)
	if err != nil {
		return nil, err
	}
	res.Machine.after()
	server, client = cpuTime(pid)-server, cpuTime(os.Getpid())-client
	res.Acked = out.acked
	res.Took = out.took.Seconds()
	res.Rate = perSecond(out.acked, out.took)
	res.Latency = summariseTimes(out.times)
	res.Refused, res.Reasons = countRefusals(out.refused)
	res.Server, res.Client = toMilliseconds(
		server,
	)/float64(
		max(out.acked, 1),
	), toMilliseconds(
		client,
	)/float64(
		max(out.acked, 1),
	)
	switch {
	case out.firstErr != nil:
		return res, out.firstErr
	case res.Refused > 0:
		return res, fmt.Errorf(
			"%d of %d jobs were refused (a bench cluster needs MaxJobCount above the number of jobs)",
			res.Refused,
			b.jobs,
		)
	}
	return res, nil
}
