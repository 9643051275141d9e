package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// runBench measures no-op batch jobs from submission to their accounting row.
type runBench struct {
	at            address
	jobs, clients int
	array         bool
	forks         int
	rows          bool
	patience      time.Duration
}

func (*runBench) help() string {
	return `muster-bench run measures whole jobs: no-op batch scripts from the first
submission until the last one's row is in ClickHouse. The rows are counted, so
accounting must be on. In the same run it measures how many processes of the
same script ` + "`xargs -P4`" + ` starts on this machine, before and after.

Usage:
  muster-bench run [options]

Examples:
  muster bench run --jobs 20000
  muster bench run --jobs 2000 --array --json
`
}

func (b *runBench) flags(flags *pflag.FlagSet) {
	b.at.flags(flags)
	flags.IntVar(&b.jobs, "jobs", 20000, "jobs to run")
	flags.IntVar(&b.clients, "clients", 4, "streams that submit them")
	flags.BoolVar(&b.array, "array", false, "one array of that many tasks instead of jobs")
	flags.IntVar(&b.forks, "forks", 2000, "processes that xargs starts, before and after")
	flags.BoolVar(
		&b.rows,
		"rows",
		true,
		"count the rows in ClickHouse; without it the controller's count of ends is believed",
	)
	flags.DurationVar(&b.patience, "patience", 30*time.Minute, "give up after this long")
}

func (b *runBench) check() error {
	return checkPositive(map[string]int{"jobs": b.jobs, "clients": b.clients, "forks": b.forks})
}

// runResult is what was found.
type runResult struct {
	Rate      float64        `json:"jobs_per_second"`
	Jobs      int            `json:"jobs"`
	Mode      string         `json:"mode"` // jobs or array
	Submitted float64        `json:"submitted_after_seconds"`
	Ended     float64        `json:"ended_after_seconds"`
	Accounted float64        `json:"rows_in_after_seconds"`
	Rows      int            `json:"rows"`
	States    map[string]int `json:"rows_by_state"`
	Forks     float64        `json:"xargs_per_second"`
	ForksSeen [2]float64     `json:"xargs_per_second_before_after"`
	Share     float64        `json:"share_of_xargs"`
	PerJobMs  float64        `json:"machine_cpu_ms_per_job"`
	Machine   machine        `json:"machine"`
}

func (r *runResult) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"%.1f jobs/s end to end: %d %s submitted after %.2f s, ended after %.2f s\n",
		r.Rate,
		r.Jobs,
		r.Mode,
		r.Submitted,
		r.Ended,
	)
	if r.Accounted > 0 {
		fmt.Fprintf(w, "%d rows in ClickHouse after %.2f s\n", r.Rows, r.Accounted)
	} else {
		fmt.Fprintln(w, "rows were not counted (--rows=false)")
	}
	for _, s := range sortedKeys(r.States) {
		fmt.Fprintf(w, "  %-12s %d\n", s, r.States[s])
	}
	fmt.Fprintf(
		w,
		"xargs -P4 starts %.0f/s of the same script here (%.0f before, %.0f after): the share is %.0f %%\n",
		r.Forks,
		r.ForksSeen[0],
		r.ForksSeen[1],
		100*r.Share,
	)
	fmt.Fprintf(w, "%.1f ms of CPU for each job, whole machine\n", r.PerJobMs)
	r.Machine.text(w)
}

const noop = "#!/bin/sh\n:\n"

func (b *runBench) run(ctx context.Context, p *progress) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	c, err := connectCluster(ctx, &b.at)
	if err != nil {
		return nil, err
	}
	defer c.close()
	if b.rows {
		if reply, err := c.acct.Status(ctx, &apiv1.AccountingStatusRequest{}); err != nil ||
			!reply.GetUp() {
			return nil, fmt.Errorf(
				"accounting is not up, so no row can be counted (--rows=false): %s",
				whyNot(reply, err),
			)
		}
	}
	res := &runResult{Jobs: b.jobs, Mode: "jobs"}
	if b.array {
		res.Mode = "array tasks"
	}
	res.ForksSeen[0], err = forkRate(ctx, b.forks)
	if err != nil {
		return nil, err
	}
	p.say("xargs -P4: %.0f/s", res.ForksSeen[0])
	name := fmt.Sprintf("bench-%d-%d", os.Getpid(), time.Now().Unix())
	res.Machine = machineNow()
	if err := b.jobsThrough(ctx, c, name, res, p); err != nil {
		c.cancelJobs(context.WithoutCancel(ctx), &apiv1.JobFilter{Names: []string{name}}, p)
		return nil, err
	}
	res.Machine.after()
	res.Rate = float64(b.jobs) / max(res.Accounted, res.Ended)
	res.PerJobMs = res.Machine.CPUSeconds * 1000 / float64(b.jobs)
	res.ForksSeen[1], err = forkRate(ctx, b.forks)
	if err != nil {
		return nil, err
	}
	res.Forks = (res.ForksSeen[0] + res.ForksSeen[1]) / 2
	res.Share = res.Rate / res.Forks
	if b.rows && (res.Rows != b.jobs || res.States["COMPLETED"] != b.jobs) {
		return res, fmt.Errorf(
			"%d jobs were acknowledged, but %d rows are in ClickHouse, %d of them COMPLETED",
			b.jobs,
			res.Rows,
			res.States["COMPLETED"],
		)
	}
	return res, nil
}

func whyNot(status *apiv1.AccountingStatusReply, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case status.GetError() != "":
		return status.GetError()
	}
	return status.GetStore() + " does not answer"
}

// jobsThrough submits the jobs, waits for their ends and for their rows, and
// counts the rows.
func (b *runBench) jobsThrough(
	ctx context.Context,
	c *cluster,
	name string,
	res *runResult,
	p *progress,
) error {
	before, err := c.api.Diag(ctx, &apiv1.DiagRequest{})
	if err != nil {
		return err
	}
	began := time.Now()
	if err := b.submit(ctx, c, name, p); err != nil {
		return err
	}
	res.Submitted = time.Since(began).Seconds()
	endedBefore := endedJobs(before)
	var seq uint64
	told := time.Now()
	err = pollUntil(ctx, b.patience, func() (bool, error) {
		diag, err := c.api.Diag(ctx, &apiv1.DiagRequest{})
		if err != nil {
			return false, err
		}
		n := endedJobs(diag) - endedBefore
		if time.Since(told) > time.Second {
			told = time.Now()
			p.say("%d of %d ended, %d running", n, b.jobs, diag.GetRunning())
		}
		seq = diag.GetSeq()
		return n >= uint64(b.jobs), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the jobs to end: %w", err)
	}
	res.Ended = time.Since(began).Seconds()
	if !b.rows {
		return nil
	}
	err = pollUntil(ctx, b.patience, func() (bool, error) {
		reply, err := c.acct.Status(ctx, &apiv1.AccountingStatusRequest{})
		return reply.GetSeq() >= seq, err
	})
	if err != nil {
		return fmt.Errorf("waiting for the rows: %w", err)
	}
	res.Accounted = time.Since(began).Seconds()
	return countRows(ctx, c, name, seq, began, res)
}

func endedJobs(reply *apiv1.DiagReply) uint64 {
	return reply.GetJobsCompleted() + reply.GetJobsFailed() + reply.GetJobsCancelled()
}

func (b *runBench) submit(ctx context.Context, c *cluster, name string, p *progress) error {
	spec := &apiv1.JobSpec{
		Name:      name,
		Tasks:     1,
		MemPerCpu: 10,
		WorkDir:   "/",
		Stdout:    "/dev/null",
		TimeLimit: int64(time.Minute),
	}
	load := &load{
		jobs:    b.jobs,
		clients: min(b.clients, b.jobs),
		stream:  true,
		window:  16,
		spec:    spec,
		content: content{script: []byte(noop), env: []byte("PATH=/usr/bin:/bin\x00")},
	}
	if b.array {
		spec.Array = []*apiv1.TaskRange{{First: 1, Last: int64(b.jobs), Step: 1}}
		load.jobs, load.clients = 1, 1
	}
	out, err := load.submitAll(ctx, c, p)
	if err != nil {
		return err
	}
	if n, lines := countRefusals(out.refused); n > 0 || out.firstErr != nil {
		return errors.Join(
			fmt.Errorf(
				"%d of %d submissions were refused: %v (a bench cluster needs MaxJobCount and MaxArraySize above the number of jobs)",
				n,
				load.jobs,
				lines,
			),
			out.firstErr,
		)
	}
	return nil
}

// countRows asks the store itself what it has of these jobs.
func countRows(
	ctx context.Context,
	c *cluster,
	name string,
	seq uint64,
	began time.Time,
	res *runResult,
) error {
	reply, err := c.acct.Jobs(
		ctx,
		&apiv1.AcctQuery{
			Names:           []string{name},
			AllUsers:        true,
			AllocationsOnly: true,
			Duplicates:      true,
			Start:           began.Add(-time.Minute).UnixNano(),
			MinSeq:          seq,
		},
	)
	if err != nil {
		return fmt.Errorf("counting the rows: %w", err)
	}
	res.Rows, res.States = len(reply.GetRows()), map[string]int{}
	for _, row := range reply.GetRows() {
		res.States[row.GetState()]++
	}
	return nil
}

// forkRate is how many processes of the no-op script xargs -P4 runs a second.
func forkRate(ctx context.Context, n int) (float64, error) {
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	script := filepath.Join(dir, "noop.sh")
	if err := os.WriteFile(script, []byte(noop), 0o700); err != nil {
		return 0, err
	}
	began := time.Now()
	out, err := exec.CommandContext(ctx, "/bin/sh", "-c", fmt.Sprintf("seq %d | xargs -n1 -P4 %s", n, script)).
		CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("xargs, to compare with: %w: %s", err, out)
	}
	return perSecond(n, time.Since(began)), nil
}
