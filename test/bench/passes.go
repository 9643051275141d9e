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
	"strconv"
	"sync"
	"time"

	"github.com/spf13/pflag"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/sim/plant"
	"github.com/musterhpc/muster/spec"
)

// passesBench measures submissions beside scheduling passes.
type passesBench struct {
	musterd, dir           string
	nodes, pending         int
	seconds, rate, clients int
	seed                   uint64
}

func (*passesBench) help() string {
	return `muster-bench passes measures what submitting a job takes while the scheduler plans
a deep queue: no pass may hold up the API. It makes a cluster of its own in a
temporary folder, with the nodes, the running and the pending jobs of
muster-bench scheduler in its ledger, and starts the controller on it. The nodes
are simulated: they are registered, and nothing answers for them. Every pending
job is tested and reserved in each pass. Jobs are submitted one after the other
at a steady rate, each durable when it is acknowledged.

It needs no running cluster. What it makes is removed again.

Usage:
  muster-bench passes [options]

Examples:
  muster bench passes --nodes 5000 --pending 50000
  muster bench passes --nodes 1000 --pending 8700 --seconds 20 --json
`
}

func (b *passesBench) flags(flags *pflag.FlagSet) {
	flags.IntVar(&b.nodes, "nodes", 5000, "nodes of the cluster")
	flags.IntVar(&b.pending, "pending", 50000, "pending jobs")
	flags.IntVar(&b.seconds, "seconds", 30, "how long jobs are submitted")
	flags.IntVar(&b.rate, "rate", 100, "jobs to submit a second, by all clients together")
	flags.IntVar(&b.clients, "clients", 1, "clients, each with a connection of its own")
	flags.Uint64Var(&b.seed, "seed", 1, "what cluster and queue are drawn from")
	flags.StringVar(
		&b.dir,
		"dir",
		"",
		"the `folder` to make the cluster's in (default: the system's for temporary files)",
	)
	flags.StringVar(
		&b.musterd,
		"musterd",
		"",
		"the server's `program` (default: musterd beside this one)",
	)
}

func (b *passesBench) check() (err error) {
	b.musterd, err = serverProgram(b.musterd)
	if err != nil {
		return err
	}
	return checkPositive(
		map[string]int{
			"nodes":   b.nodes,
			"pending": b.pending,
			"seconds": b.seconds,
			"rate":    b.rate,
			"clients": b.clients,
		},
	)
}

// passesResult is what was found.
type passesResult struct {
	Nodes    int       `json:"nodes"`
	Pending  int64     `json:"pending"` // when submitting begins
	Tested   int64     `json:"jobs_tested_in_a_pass"`
	Passes   int       `json:"passes"`
	PassMean float64   `json:"pass_mean_ms"`
	PassMax  float64   `json:"pass_max_ms"`
	Share    float64   `json:"share_of_time_in_passes"`
	During   latencies `json:"submission_during_a_pass"`
	Between  latencies `json:"submission_between_passes"`
	All      latencies `json:"submission"`
	InPass   int       `json:"submissions_during_a_pass"`
	Acked    int       `json:"submissions"`
	Refused  int       `json:"refused"`
	Seed     uint64    `json:"seed"`
	Machine  machine   `json:"machine"`
}

func (r *passesResult) text(w io.Writer) {
	fmt.Fprintf(w, "%d nodes, %d jobs pending (seed %d)\n", r.Nodes, r.Pending, r.Seed)
	fmt.Fprintf(
		w,
		"passes                     %d of %.0f ms in the mean, %.0f ms at most, %d jobs tested in the last; one ran %.0f %% of the time\n",
		r.Passes,
		r.PassMean,
		r.PassMax,
		r.Tested,
		100*r.Share,
	)
	line := func(name string, n int, l latencies) {
		fmt.Fprintf(
			w,
			"%-26s p50 %.2f ms, p99 %.2f ms, slowest %.2f ms (%d)\n",
			name,
			l.P50,
			l.P99,
			l.Max,
			n,
		)
	}
	line("submission during a pass", r.InPass, r.During)
	line("submission between passes", r.Acked-r.InPass, r.Between)
	line("all submissions", r.Acked, r.All)
	r.Machine.text(w)
}

func (b *passesBench) run(ctx context.Context, p *progress) (_ result, err error) {
	dir, err := os.MkdirTemp(b.dir, "passes-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := b.found(ctx, dir); err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "muster.yaml")
	cfg, err := conffile.Load(config)
	if err != nil {
		return nil, err
	}
	p.say("making a cluster of %d nodes with %d pending jobs", b.nodes, b.pending)
	if err := b.plant(ctx, cfg); err != nil {
		return nil, fmt.Errorf("make the ledger: %w", err)
	}
	w := &restarter{
		b:      &restartBench{musterd: b.musterd},
		p:      p,
		state:  cfg.StateDir,
		socket: cfg.Socket,
		config: config,
		log:    filepath.Join(dir, "musterd.log"),
	}
	p.say("starting the controller")
	s, _, err := w.startServer(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.killServer()) }()
	if err := b.settled(ctx, s.conn, p); err != nil {
		return nil, err
	}
	return b.measure(ctx, s.conn, p)
}

// found writes the configuration of the cluster.
func (b *passesBench) found(ctx context.Context, dir string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	conf := fmt.Sprintf(`ClusterName=bench
SlurmctldHost=%s
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_max_job_test=10000000
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
PriorityWeightQOS=2000
SlurmdTimeout=65000
MaxJobCount=10000000
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=%s NodeHostname=%s CPUs=%d RealMemory=%d Gres=gpu:%d State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 DefMemPerCPU=4000 State=UP
`, host, plant.NodeNames(b.nodes), host, plant.NodeCPUs, plant.NodeMem, plant.NodeGPUs)
	if err := os.WriteFile(filepath.Join(dir, "slurm.conf"), []byte(conf), 0o644); err != nil {
		return err
	}
	port, err := freePorts()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, b.musterd, "init", "--dir", dir, "--port", strconv.Itoa(port)).
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s init: %w: %s", b.musterd, err, out)
	}
	return nil
}

// freePorts finds the first of as many free ports as a cluster of `muster init`
// takes.
func freePorts() (int, error) {
	const ports, tries = 11, 20
	for range tries {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port, held := first.Addr().(*net.TCPAddr).Port, []net.Listener{first}
		for k := 1; k < ports; k++ {
			listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+k))
			if err != nil {
				break
			}
			held = append(held, listener)
		}
		for _, l := range held {
			if err := l.Close(); err != nil {
				return 0, err
			}
		}
		if len(held) == ports {
			return port, nil
		}
	}
	return 0, errors.New("no row of free ports was found")
}

// plant writes a ledger whose cluster began an hour ago.
func (b *passesBench) plant(ctx context.Context, config *conffile.Config) (err error) {
	codec, err := event.NewCodec()
	if err != nil {
		return err
	}
	arch, err := archive.Open(config.Ledger.ArchiveDir, archive.Options{})
	if err != nil {
		return err
	}
	// No job has a script: there is no content to store.
	durable, err := log.Open(
		ctx,
		log.Options{
			Dir:     filepath.Join(config.StateDir, "ledger"),
			Machine: planted{daemon.NewMachine(codec, arch, nil)},
		},
	)
	if err != nil {
		return errors.Join(err, arch.Close())
	}
	defer func() {
		err = errors.Join(err, durable.Close(context.WithoutCancel(ctx)), arch.Close())
	}()
	var batch []event.Envelope
	write := func() error {
		if len(batch) == 0 {
			return nil
		}
		data, err := codec.Encode(batch)
		if err != nil {
			return err
		}
		batch = batch[:0]
		_, err = durable.Append(daemon.Batch(data)).Wait(ctx)
		return err
	}
	site, err := plant.NewAt(
		b.nodes,
		b.seed,
		spec.Instant(time.Now().Add(-time.Hour).UnixNano()),
		func(events []event.Envelope) error {
			batch = append(batch, events...)
			if len(batch) < 1000 {
				return nil
			}
			return write()
		},
	)
	if err != nil {
		return err
	}
	if err := site.Occupy(); err != nil {
		return err
	}
	if err := site.Submit(b.pending); err != nil {
		return err
	}
	return write()
}

// planted is the fold behind the log while the ledger is made.
type planted struct{ *daemon.Machine }

func (m planted) Apply(position log.Position, batch []byte) error {
	return m.Machine.Apply(uint64(position), batch)
}

// settled waits for the first pass, and until accounting has stored what was
// there before.
func (b *passesBench) settled(ctx context.Context, c *cluster, p *progress) error {
	told := time.Now()
	err := pollUntil(ctx, 5*time.Minute, func() (bool, error) {
		diag, err := c.api.Diag(ctx, &apiv1.DiagRequest{})
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			p.say(
				"accounting has stored %d of %d events, %d passes have ended",
				diag.GetAccountedSeq(),
				diag.GetSeq(),
				diag.GetPasses(),
			)
		}
		return err == nil && diag.GetPasses() > 0 &&
			diag.GetAccountedSeq()+1000 > diag.GetSeq(), err
	})
	if err != nil {
		return fmt.Errorf("the controller did not become idle in time: %w", err)
	}
	return nil
}

// sample is one submission.
type sample struct{ began, ended time.Time }

// span is when a pass ran.
type span struct{ from, to time.Time }

func (b *passesBench) measure(ctx context.Context, c *cluster, p *progress) (result, error) {
	res := &passesResult{Nodes: b.nodes, Seed: b.seed, Machine: machineNow()}
	before, err := c.api.Diag(ctx, &apiv1.DiagRequest{})
	if err != nil {
		return nil, err
	}
	res.Pending = before.GetPending()
	p.say("submitting %d jobs a second for %d s", b.rate, b.seconds)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var spans []span
	var watchErr error
	var wg sync.WaitGroup
	wg.Go(func() { spans, watchErr = watchPasses(watching, c, res) })
	samples := make([][]sample, b.clients)
	errs := make([]error, b.clients)
	began := time.Now()
	var clients sync.WaitGroup
	for i := range b.clients {
		clients.Go(func() { samples[i], errs[i] = b.submit(ctx, c, i, began) })
	}
	clients.Wait()
	took := time.Since(began)
	select { // the pass that runs now counts too
	case <-ctx.Done():
	case <-time.After(time.Duration(res.PassMax)*time.Millisecond + time.Second):
	}
	stop()
	wg.Wait()
	res.Machine.after()
	if err := errors.Join(append(errs, watchErr, ctx.Err())...); err != nil {
		return nil, err
	}
	var all, during, between []time.Duration
	for _, list := range samples {
		for _, s := range list {
			d := s.ended.Sub(s.began)
			all = append(all, d)
			if s.in(spans) {
				during = append(during, d)
			} else {
				between = append(between, d)
			}
		}
	}
	var busy, sum time.Duration
	for _, s := range spans {
		sum += s.to.Sub(s.from)
		busy += max(min(s.to.Sub(began), took)-max(s.from.Sub(began), 0), 0)
	}
	res.Passes = len(spans)
	res.Acked = len(all)
	res.InPass = len(during)
	res.PassMean, res.Share = toMilliseconds(
		sum,
	)/float64(
		max(len(spans), 1),
	), float64(
		busy,
	)/float64(
		took,
	)
	res.All = summariseTimes(all)
	res.During = summariseTimes(during)
	res.Between = summariseTimes(between)
	if res.InPass == 0 {
		return res, errors.New(
			"no pass ran while jobs were submitted: give it more --seconds or more --pending jobs",
		)
	}
	return res, nil
}

// in tells whether a pass ran at any time of a submission.
func (s *sample) in(spans []span) bool {
	for i := range spans {
		if s.began.Before(spans[i].to) && s.ended.After(spans[i].from) {
			return true
		}
	}
	return false
}

// submit hands jobs in, one after the other, until the time is over.
func (b *passesBench) submit(
	ctx context.Context,
	c *cluster,
	client int,
	began time.Time,
) ([]sample, error) {
	via, err := c.dialCaller(ctx, true)
	if err != nil {
		return nil, err
	}
	defer via.close()
	l := &load{
		content: newContent(4096, 8192, false),
		spec: &apiv1.JobSpec{
			Name:      "bench-passes",
			Tasks:     1,
			WorkDir:   "/",
			Stdout:    "/dev/null",
			TimeLimit: int64(time.Minute),
		},
	}
	every := time.Duration(b.clients) * time.Second / time.Duration(b.rate)
	var samples []sample
	for n := 0; ; n++ {
		at := began.Add(
			time.Duration(n)*every + every*time.Duration(client)/time.Duration(b.clients),
		)
		if at.Sub(began) > time.Duration(b.seconds)*time.Second {
			return samples, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Until(at)):
		}
		s := sample{began: time.Now()}
		reply, err := via.submit(ctx, l.makeRequest(n))
		if err != nil {
			return nil, fmt.Errorf("submission %d: %w", n+1, err)
		}
		if reply.GetJobId() == 0 {
			return nil, fmt.Errorf("submission %d was acknowledged without a job id", n+1)
		}
		s.ended = time.Now()
		samples = append(samples, s)
	}
}

// watchPasses notes when passes run, as the controller tells it of those that
// ended.
func watchPasses(ctx context.Context, c *cluster, res *passesResult) ([]span, error) {
	var spans []span
	last, err := c.api.Diag(ctx, &apiv1.DiagRequest{})
	for err == nil {
		select {
		case <-ctx.Done():
			return spans, nil
		case <-time.After(pollEvery):
		}
		var diag *apiv1.DiagReply
		diag, err = c.api.Diag(ctx, &apiv1.DiagRequest{})
		if err != nil {
			break
		}
		if n := diag.GetPasses() - last.GetPasses(); n > 0 {
			now := time.Now()
			spans = append(
				spans,
				span{now.Add(-time.Duration(diag.GetPassTotal() - last.GetPassTotal())), now},
			)
			res.PassMax, res.Tested = max(
				res.PassMax,
				float64(diag.GetPassLast())/float64(time.Millisecond),
			), diag.GetPassDepth()
		}
		last = diag
	}
	if ctx.Err() != nil {
		return spans, nil
	}
	return spans, err
}
