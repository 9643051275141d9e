package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/grpcx"
)

// restartBench measures how soon a controller answers after a start.
type restartBench struct {
	config, musterd string
	jobs            int
	events, tail    int
	times           int
}

func (*restartBench) help() string {
	return `muster-bench restart starts the controller on a state of a given size, kills it
with SIGKILL and starts it again, several times. What is counted is the time
from the start of the process until it answers a call.

The cluster of --config must be stopped, and should be a cluster for benchmarks:
jobs are added until --jobs wait, and events until the ledger has --events. Then
a snapshot is made, and --tail further events follow it.

Usage:
  muster-bench restart --config FILE [options]

Examples:
  muster bench restart --config lab/muster.yaml --jobs 8800 --events 0 --tail 0
  muster bench restart --config lab/muster.yaml --jobs 100000 --events 1000000 --tail 100000
`
}

func (b *restartBench) flags(flags *pflag.FlagSet) {
	conffile.AddFlag(flags, &b.config, "muster.yaml `file` of the stopped cluster")
	flags.StringVar(
		&b.musterd,
		"musterd",
		"",
		"the server's `program` (default: musterd beside this one)",
	)
	flags.IntVar(&b.jobs, "jobs", 100000, "jobs that wait")
	flags.IntVar(&b.events, "events", 1000000, "events in the ledger, at least")
	flags.IntVar(&b.tail, "tail", 100000, "events after the last snapshot")
	flags.IntVar(&b.times, "times", 5, "starts to measure")
}

func (b *restartBench) check() error {
	if b.events < 0 || b.tail < 0 {
		return fmt.Errorf("%w: --events and --tail must not be negative", errUsage)
	}
	var err error
	b.musterd, err = serverProgram(b.musterd)
	if err != nil {
		return err
	}
	return checkPositive(map[string]int{"jobs": b.jobs, "times": b.times})
}

// serverProgram is where the server's program is: where it was said, or beside
// this one.
func serverProgram(said string) (string, error) {
	if said == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		said = filepath.Join(filepath.Dir(self), "musterd")
	}
	if _, err := os.Stat(said); err != nil {
		return "", fmt.Errorf(
			"%w: the server's program: %w (name it with --musterd)",
			errUsage,
			err,
		)
	}
	return said, nil
}

// restartResult is what was found.
type restartResult struct {
	Seconds []float64 `json:"seconds_to_answer"`
	Median  float64   `json:"median_seconds"`
	Slowest float64   `json:"slowest_seconds"`
	Pending int64     `json:"pending_jobs"`
	Events  uint64    `json:"events"`
	Tail    uint64    `json:"events_after_snapshot"`
	Machine machine   `json:"machine"`
}

func (r *restartResult) text(w io.Writer) {
	fmt.Fprintf(
		w,
		"answering %.2f s after the start (median of %d; slowest %.2f s): %.2f\n",
		r.Median,
		len(r.Seconds),
		r.Slowest,
		r.Seconds,
	)
	fmt.Fprintf(
		w,
		"state: %d pending jobs, %d events, %d of them after the last snapshot\n",
		r.Pending,
		r.Events,
		r.Tail,
	)
	r.Machine.text(w)
}

func (b *restartBench) run(ctx context.Context, p *progress) (result, error) {
	config, err := conffile.Load(b.config)
	if err != nil {
		return nil, err
	}
	if conn, err := net.Dial("unix", config.Socket); err == nil {
		conn.Close()
		return nil, fmt.Errorf(
			"a controller answers at %s: stop that cluster first, this starts and kills its controller",
			config.Socket,
		)
	}
	dir, err := os.MkdirTemp(filepath.Dir(b.config), "bench-restart-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	res := &restartResult{}
	w := &restarter{
		b:      b,
		p:      p,
		state:  config.StateDir,
		socket: config.Socket,
		log:    filepath.Join(dir, "musterd.log"),
	}
	// Every snapshot's distance is the ledger's to keep, so two configurations
	// place the last one: first it is near, then so far that none is made.
	for _, phase := range [...]struct {
		name  string
		every int64
		do    func(context.Context, *server, *restartResult) error
	}{{"near.yaml", nearEvery, w.fill}, {"far.yaml", farEvery, w.addTail}} {
		w.config = filepath.Join(dir, phase.name)
		config.Ledger.SnapshotEvery = phase.every
		if err := os.WriteFile(w.config, config.YAML(), 0o600); err != nil {
			return nil, err
		}
		s, _, err := w.startServer(ctx)
		if err != nil {
			return nil, err
		}
		err = phase.do(ctx, s, res)
		killErr := s.killServer()
		if err == nil {
			err = killErr
		}
		if err != nil {
			return nil, err
		}
	}
	return w.measure(ctx, res)
}

// The least and the most that ledger.snapshot_every may be.
const (
	nearEvery = 1000
	farEvery  = 100_000_000
)

// restarter starts and kills the controller.
type restarter struct {
	b                          *restartBench
	p                          *progress
	config, state, socket, log string
}

// server is a controller that answers.
type server struct {
	cmd  *exec.Cmd
	conn *cluster
}

const startPatience = 10 * time.Minute

// startServer runs the controller and tells how long it took to answer.
func (w *restarter) startServer(ctx context.Context) (*server, time.Duration, error) {
	logFile, err := os.OpenFile(w.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer logFile.Close()
	cmd := exec.Command(w.b.musterd, "--config", w.config)
	cmd.Stderr, cmd.Stdout = logFile, logFile
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the process, which kill ends
	for {
		if c := w.answer(ctx); c != nil {
			return &server{cmd: cmd, conn: c}, time.Since(began), nil
		}
		select {
		case err := <-ended:
			return nil, 0, fmt.Errorf(
				"the controller ended while starting: %w; it said:\n%s",
				err,
				tailOf(w.log),
			)
		case <-ctx.Done():
			return nil, 0, errors.Join(ctx.Err(), cmd.Process.Kill())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(began) > startPatience {
			return nil, 0, errors.Join(
				fmt.Errorf("%w: no answer from the controller after %s", errTimeout, startPatience),
				cmd.Process.Kill(),
			)
		}
	}
}

// answer is a connection over which a call was answered, or nil.
func (w *restarter) answer(ctx context.Context) *cluster {
	probe, err := net.Dial("unix", w.socket)
	if err != nil {
		return nil
	}
	probe.Close()
	conn, err := grpcx.DialUnix(w.socket)
	if err != nil {
		return nil
	}
	c := &cluster{socket: w.socket, conn: conn, api: service.NewClusterClient(conn)}
	c.ping, err = c.api.Ping(ctx, &apiv1.PingRequest{})
	if err != nil {
		c.close()
		return nil
	}
	return c
}

func (s *server) killServer() error {
	s.conn.close()
	if err := s.cmd.Process.Kill(); err != nil {
		return err
	}
	for { // reaped by start's goroutine
		if err := s.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

func tailOf(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

// fill adds jobs and events up to what is asked for.
func (w *restarter) fill(ctx context.Context, s *server, _ *restartResult) error {
	diag, err := s.conn.api.Diag(ctx, &apiv1.DiagRequest{})
	if err != nil {
		return err
	}
	if missing := w.b.jobs - int(diag.GetPending()); missing > 0 {
		w.p.say("adding %d jobs", missing)
		l := &load{
			jobs:    missing,
			clients: 16,
			stream:  true,
			window:  64,
			content: newContent(4096, 8192, false),
			spec: &apiv1.JobSpec{
				Name:      "bench-restart",
				Tasks:     1,
				WorkDir:   "/",
				Stdout:    "/dev/null",
				TimeLimit: int64(time.Minute),
			},
		}
		out, err := l.submitAll(ctx, s.conn, w.p)
		if err != nil {
			return err
		}
		if n, lines := countRefusals(out.refused); n > 0 || out.firstErr != nil {
			return errors.Join(
				fmt.Errorf(
					"%d jobs were refused: %v (the cluster needs MaxJobCount above --jobs)",
					n,
					lines,
				),
				out.firstErr,
			)
		}
	}
	if err := w.grow(ctx, s, uint64(w.b.events)); err != nil {
		return err
	}
	return w.snapshot(ctx, s)
}

// addTail adds the events that no snapshot holds.
func (w *restarter) addTail(ctx context.Context, s *server, res *restartResult) error {
	from := s.conn.ping.GetSeq()
	if err := w.grow(ctx, s, from+uint64(w.b.tail)); err != nil {
		return err
	}
	now, err := s.conn.api.Diag(ctx, &apiv1.DiagRequest{})
	if err != nil {
		return err
	}
	res.Tail, res.Pending = now.GetSeq()-from, now.GetPending()
	return nil
}

// grow holds and releases waiting jobs until the ledger has that many events.
func (w *restarter) grow(ctx context.Context, s *server, events uint64) error {
	diag, err := s.conn.api.Diag(ctx, &apiv1.DiagRequest{})
	if err != nil || diag.GetSeq() >= events {
		return err
	}
	ids, err := w.ids(ctx, s)
	if err != nil {
		return err
	}
	told := time.Now()
	for diag.GetSeq() < events {
		some := ids[:min(uint64(len(ids)), (events-diag.GetSeq()+1)/2)]
		for _, verb := range [...]apiv1.ControlJobsRequest_Verb{apiv1.ControlJobsRequest_HOLD, apiv1.ControlJobsRequest_RELEASE} {
			for part := range slices.Chunk(some, 2000) {
				if _, err := s.conn.api.ControlJobs(ctx, &apiv1.ControlJobsRequest{Verb: verb, Jobs: part}); err != nil {
					return fmt.Errorf("make events: %w", err)
				}
				if time.Since(told) > time.Second {
					told = time.Now()
					w.p.say("%d of %d events", s.seq(ctx), events)
				}
			}
		}
		diag, err = s.conn.api.Diag(ctx, &apiv1.DiagRequest{})
		if err != nil {
			return err
		}
	}
	return nil
}

// ids are the numbers that the newest jobs have; a few may belong to others
// or to none, which does no harm.
func (w *restarter) ids(ctx context.Context, s *server) ([]string, error) {
	config, err := s.conn.api.GetConfig(ctx, &apiv1.GetConfigRequest{})
	if err != nil {
		return nil, err
	}
	var ids []string
	for id := int(config.GetNextJobId()) - 1; id > 0 && len(ids) < w.b.jobs; id-- {
		ids = append(ids, fmt.Sprint(id))
	}
	return ids, nil
}

// snapshot makes single events until the ledger has written a new snapshot:
// one is due after so many batches, and bulk operations put many events into
// one batch.
func (w *restarter) snapshot(ctx context.Context, s *server) error {
	newest := func() string {
		list, err := filepath.Glob(filepath.Join(w.state, "ledger", "snapshots", "*.snap"))
		if err != nil || len(list) == 0 {
			return ""
		}
		return list[len(list)-1] // Glob sorts, and the names are numbers of equal length
	}
	w.p.say("waiting for a snapshot")
	before := newest()
	ids, err := w.ids(ctx, s)
	if err != nil || len(ids) == 0 {
		return err
	}
	for i := range 10 * nearEvery {
		verb := apiv1.ControlJobsRequest_HOLD
		if i%2 == 1 {
			verb = apiv1.ControlJobsRequest_RELEASE
			if newest() != before {
				return nil
			}
		}
		if _, err := s.conn.api.ControlJobs(ctx, &apiv1.ControlJobsRequest{Verb: verb, Jobs: ids[i/2%len(ids) : i/2%len(ids)+1]}); err != nil {
			return fmt.Errorf("make events: %w", err)
		}
	}
	return fmt.Errorf("no new snapshot in %s after %d batches", w.state, 10*nearEvery)
}

// seq is how far the ledger is, for the progress line.
func (s *server) seq(ctx context.Context) uint64 {
	reply, _ := s.conn.api.Diag(ctx, &apiv1.DiagRequest{}) // the next call tells what is wrong
	return reply.GetSeq()
}

// measure kills and starts.
func (w *restarter) measure(ctx context.Context, res *restartResult) (result, error) {
	res.Machine = machineNow()
	pending := res.Pending
	var took []time.Duration
	for i := range w.b.times {
		s, d, err := w.startServer(ctx)
		if err != nil {
			return nil, err
		}
		diag, err := s.conn.api.Diag(ctx, &apiv1.DiagRequest{})
		if err == nil && diag.GetPending() != pending {
			err = fmt.Errorf(
				"%d jobs waited before the kill, %d after the start",
				pending,
				diag.GetPending(),
			)
		}
		res.Events = diag.GetSeq()
		killErr := s.killServer()
		if err == nil {
			err = killErr
		}
		if err != nil {
			return nil, err
		}
		w.p.say("start %d of %d: %.3f s", i+1, w.b.times, d.Seconds())
		took = append(took, d)
		res.Seconds = append(res.Seconds, d.Seconds())
	}
	res.Machine.after()
	l := summariseTimes(took)
	res.Median, res.Slowest = l.P50/1000, l.Max/1000
	return res, nil
}
