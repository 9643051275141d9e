// Command chaos kills the processes of a running cluster with SIGKILL, one
// after the other at random moments, or stops one for a while, and plays what
// takes an administrator to mend, while users submit jobs through sbatch
// and through the streaming API; then it waits until the cluster is idle. What
// was acknowledged it writes to a list of its own, each entry synced before
// the next is asked for. Whether everything was kept is for the program in
// check to say. deploy/lab/chaos.sh runs both.
//
// Steps of the clock are not played here: a time namespace moves the monotonic and the boot
// clock only, not the wall clock that a step changes, and to set the machine's own would
// disturb everybody on it. They are the simulator's (ClockEvery in package sim).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhpc/muster/test/chaos/acked"
)

// options are the command line.
type options struct {
	script     string // cluster.sh
	dir, bin   string
	out        string // folder for list, effects and the job script
	kills      int
	seed       uint64
	submitters int
	rate       float64 // sbatch a second, all submitters together
	stream     float64 // jobs a second through the streaming API
	nodes      int
	roles      string
	scenarios  string
	limit      time.Duration
	drain      time.Duration
	stuck      time.Duration
}

func main() {
	var o options
	flag.StringVar(
		&o.script,
		"cluster",
		"deploy/lab/cluster.sh",
		"the `script` that starts and kills",
	)
	flag.StringVar(&o.dir, "dir", "", "`folder` of the running cluster")
	flag.StringVar(&o.bin, "bin", "bin", "`folder` of the programs")
	flag.StringVar(
		&o.out,
		"out",
		"",
		"`folder` for what this run writes (default: chaos in the cluster's)",
	)
	flag.IntVar(&o.kills, "kills", 50, "processes to kill")
	flag.Uint64Var(&o.seed, "seed", 0, "of every random choice (default: from the clock)")
	flag.IntVar(&o.submitters, "submitters", 4, "users that run sbatch at the same time")
	flag.Float64Var(&o.rate, "rate", 15, "sbatch commands a second, all users together")
	flag.Float64Var(&o.stream, "stream", 10, "jobs a second through the streaming API")
	flag.IntVar(&o.nodes, "nodes", 2, "nodes of the cluster, node1 and so on")
	flag.StringVar(
		&o.roles,
		"roles",
		"controller,engine,agent,shepherd,node,hang",
		"what to kill, or to stop for a while: no engine where ClickHouse is a server of its own",
	)
	flag.StringVar(
		&o.scenarios,
		"scenarios",
		"",
		"what to play once each after the kills: silence, flip, restore",
	)
	flag.DurationVar(
		&o.limit,
		"limit",
		0,
		"longest time for the kills (default: 1 min and 10 s for each)",
	)
	flag.DurationVar(
		&o.drain,
		"drain",
		15*time.Minute,
		"longest time until the queue is empty afterwards",
	)
	flag.DurationVar(
		&o.stuck,
		"stuck",
		90*time.Second,
		"longest time in which nothing changes in the queue",
	)
	flag.Parse()
	if err := o.fill(); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, &o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "chaos: %v\n", err)
		os.Exit(1)
	}
}

func (o *options) fill() error {
	if o.dir == "" {
		return errors.New("name the cluster's folder with -dir")
	}
	if o.out == "" {
		o.out = filepath.Join(o.dir, "chaos")
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	if o.limit == 0 {
		o.limit = time.Minute + time.Duration(o.kills)*10*time.Second
	}
	if o.kills < 1 || o.nodes < 1 || o.submitters < 1 || o.rate <= 0 {
		return errors.New("-kills, -nodes, -submitters and -rate must be positive")
	}
	for _, p := range []*string{&o.dir, &o.out, &o.bin, &o.script} {
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	if err := o.needs("sbatch", "squeue", "sinfo", "muster", "musterd"); err != nil {
		return err
	}
	return os.MkdirAll(filepath.Join(o.out, "locks"), 0o777)
}

// run is the whole: load, kills under it, and the rest after it.
func run(ctx context.Context, o *options, out io.Writer) error {
	fmt.Fprintf(out, "seed %d, load average %s\n", o.seed, loadavg())
	list, err := acked.Create(filepath.Join(o.out, "acked"))
	if err != nil {
		return err
	}
	defer list.Close()
	l, err := newLoad(o, list)
	if err != nil {
		return err
	}
	loading, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var wg sync.WaitGroup
	for i := range o.submitters {
		wg.Go(func() { l.runSubmissions(loading, rng(o.seed, uint64(i)+1)) })
	}
	if o.stream > 0 {
		wg.Go(func() { l.runStreams(loading, rng(o.seed, 1000)) })
	}
	began := time.Now()
	victims, err := o.parseVictims()
	if err != nil {
		return err
	}
	played, err := o.chosen()
	if err != nil {
		return err
	}
	k := &killer{o: o, load: l, roles: victims, out: out, acked: list.Len, rng: rng(o.seed, 0)}
	limited, cancel := context.WithTimeout(ctx, o.limit)
	kerr := k.run(limited)
	cancel()
	if kerr == nil {
		kerr = k.play(ctx, played)
	}
	stopLoad()
	wg.Wait()
	fmt.Fprintf(
		out,
		"%s in %.0f s; load average %s\n",
		k.summarise(),
		time.Since(began).Seconds(),
		loadavg(),
	)
	l.writeReport(out)
	if l.fatalError() != nil {
		return l.fatalError()
	}
	if kerr != nil {
		return kerr
	}
	return o.rest(ctx, out)
}

// rest brings everything up and waits until the queue is empty.
func (o *options) rest(ctx context.Context, out io.Writer) error {
	if err := o.runCluster(ctx, "up"); err != nil {
		return fmt.Errorf("the cluster does not come up after the kills: %w", err)
	}
	began, moved := time.Now(), time.Now()
	last := ""
	for time.Since(began) < o.drain && time.Since(moved) < o.stuck {
		queue, err := o.command(ctx, "squeue", "-h", "-r", "-o", "%i|%T|%r")
		if err == nil && strings.TrimSpace(queue) == "" {
			fmt.Fprintf(
				out,
				"the queue is empty %.0f s after the last kill\n",
				time.Since(began).Seconds(),
			)
			return nil
		}
		if err != nil {
			queue = err.Error()
		}
		if queue != last {
			last, moved = queue, time.Now()
		}
		if err := pauseFor(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	// The checker says which jobs are still there; this says it first.
	fmt.Fprintf(
		out,
		"the queue is not empty %.0f s after the last kill, and has not changed for %.0f s:\n%s\n",
		time.Since(began).Seconds(),
		time.Since(moved).Seconds(),
		firstLines(last, 10),
	)
	return nil
}

func rng(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

func loadavg() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}

func firstLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	if len(lines) <= n {
		return text
	}
	return fmt.Sprintf("%s... %d lines", strings.Join(lines[:n], ""), len(lines)-1)
}
