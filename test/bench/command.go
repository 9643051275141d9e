package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
)

// commandBench measures how often a command can be run, as users in shells
// run it: for tools of Muster and of others alike.
type commandBench struct {
	clients, times int
	argv           []string
}

func (*commandBench) help() string {
	return `muster-bench command runs a command again and again and tells how often that is
possible. It works with any command, so that two systems can be compared by the
same clock. What the command prints is dropped; an exit status other than 0 is
an error.

Usage:
  muster-bench command [options] -- COMMAND [ARGUMENT...]

Examples:
  muster bench command --times 300 -- sbatch -H job.sh
  muster bench command --clients 4 --times 600 --json -- squeue -h
`
}

func (b *commandBench) flags(flags *pflag.FlagSet) {
	flags.IntVar(&b.clients, "clients", 1, "how many run it at the same time")
	flags.IntVar(&b.times, "times", 300, "how often it runs, all clients together")
	flags.SetInterspersed(false)
}

func (b *commandBench) take(args []string) { b.argv = args }

func (b *commandBench) check() error {
	if len(b.argv) == 0 {
		return fmt.Errorf("%w: name the command after --", errUsage)
	}
	return checkPositive(map[string]int{"clients": b.clients, "times": b.times})
}

// commandResult is what was found.
type commandResult struct {
	Rate    float64   `json:"per_second"`
	Latency latencies `json:"latency"`
	Times   int       `json:"times"`
	Clients int       `json:"clients"`
	Failed  int       `json:"failed"`
	Command string    `json:"command"`
	Machine machine   `json:"machine"`
}

func (r *commandResult) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"%.1f/s: %s, %d times by %d, %d failed\n",
		r.Rate,
		r.Command,
		r.Times,
		r.Clients,
		r.Failed,
	)
	fmt.Fprintf(
		w,
		"each takes p50 %.2f ms, p99 %.2f ms, max %.2f ms\n",
		r.Latency.P50,
		r.Latency.P99,
		r.Latency.Max,
	)
	r.Machine.text(w)
}

func (b *commandBench) run(ctx context.Context, p *progress) (result, error) {
	times := make([][]time.Duration, b.clients)
	errs := make([]error, b.clients)
	var next, done, failed atomic.Int64
	res := &commandResult{
		Times:   b.times,
		Clients: b.clients,
		Command: strings.Join(b.argv, " "),
		Machine: machineNow(),
	}
	stop := watchProgress(ctx, p, &done, b.times)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range b.clients {
		wg.Go(func() {
			for next.Add(1) <= int64(b.times) && ctx.Err() == nil {
				at := time.Now()
				if err := once(ctx, b.argv); err != nil {
					failed.Add(1)
					errs[i] = err
				}
				times[i] = append(times[i], time.Since(at))
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	stop()
	res.Machine.after()
	var all []time.Duration
	for _, t := range times {
		all = append(all, t...)
	}
	res.Failed = int(failed.Load())
	res.Rate, res.Latency = perSecond(len(all)-res.Failed, took), summariseTimes(all)
	if res.Failed > 0 {
		return res, fmt.Errorf(
			"it failed %d times, for example: %w",
			res.Failed,
			errors.Join(errs...),
		)
	}
	return res, ctx.Err()
}

func once(ctx context.Context, argv []string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(errOut.Bytes()))
	}
	return nil
}
