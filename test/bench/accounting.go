package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/accounting/clickhouse"
	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/kpi"
	counted "github.com/musterhpc/muster/accounting/tally"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// accountingBench fills an accounting store with made-up jobs and asks it what
// people ask, through the tools that people use.
type accountingBench struct {
	jobs, times, months int
	beside              int
	dir, muster         string
	keep                bool
	only                string
}

func (*accountingBench) help() string {
	return `muster-bench accounting makes a store of jobs that never were, as a busy cluster of 1,000
nodes with 8 GPUs each would have had them, and measures what sacct, sreport and kpi take,
each as a process, from its start to its end. It needs the ClickHouse engine and disk:
about 100 bytes a job.

Usage:
  muster-bench accounting [options]

Examples:
  muster bench accounting --jobs 1000000
  muster bench accounting --jobs 10000000 --months 10 --json
  muster bench accounting --jobs 100000000 --months 36 --beside 1000000
`
}

func (b *accountingBench) flags(flags *pflag.FlagSet) {
	flags.IntVar(
		&b.jobs,
		"jobs",
		1_000_000,
		"jobs in the store, each with a step, a node and some GPUs",
	)
	flags.IntVar(&b.months, "months", 1, "months of 30 days over which they are spread")
	flags.IntVar(
		&b.beside,
		"beside",
		0,
		"ask the same of a store of so many jobs of one month, and print both side by side",
	)
	flags.IntVar(&b.times, "times", 5, "how often each question is asked")
	flags.StringVar(
		&b.dir,
		"dir",
		"",
		"folder for the store (default: a temporary one); one that is there already is used as it is",
	)
	flags.BoolVar(&b.keep, "keep", false, "leave the store where it is")
	flags.StringVar(&b.muster, "muster", "", "the muster program (default: beside this one)")
	flags.StringVar(&b.only, "only", "", "ask only the questions whose name holds this")
}

func (b *accountingBench) check() error {
	if b.beside < 0 {
		return fmt.Errorf("--beside is %d, and must not be below 0", b.beside)
	}
	return checkPositive(map[string]int{"jobs": b.jobs, "times": b.times, "months": b.months})
}

// accountingResult is what was found.
type accountingResult struct {
	Jobs      int                `json:"jobs"`
	Months    int                `json:"months"`
	Fill      float64            `json:"fill_seconds"`
	Bytes     map[string]float64 `json:"bytes_per_job"`
	Questions []askedResult      `json:"questions"`
	Machine   machine            `json:"machine"`
	Beside    *accountingResult  `json:"beside,omitempty"` // the same of a smaller store
}

// askedResult is one question.
type askedResult struct {
	Name   string    `json:"name"`
	Times  latencies `json:"latency"`
	Least  float64   `json:"least_ms"`
	Lines  int       `json:"lines"`
	MaxRSS float64   `json:"client_mib"`
	CPU    float64   `json:"cpu_ms"` // of engine, service and tool together, each time
	Goal   float64   `json:"goal_ms,omitempty"`
	Line   string    `json:"command"`
	Failed string    `json:"failed,omitempty"`
}

func (r *accountingResult) text(w io.Writer) {
	fmt.Fprintf(w, "%d jobs over %d months, made in %.1f s\n", r.Jobs, r.Months, r.Fill)
	sum := 0.0
	for _, t := range sortedCopy(mapKeys(r.Bytes)) {
		fmt.Fprintf(w, "  %-16s %7.1f bytes a job\n", t, r.Bytes[t])
		sum += r.Bytes[t]
	}
	fmt.Fprintf(w, "  %-16s %7.1f bytes a job\n", "together", sum)
	fmt.Fprintf(
		w,
		"%-40s %9s %9s %9s %9s %9s %8s %7s\n",
		"question",
		"least ms",
		"p50 ms",
		"max ms",
		"CPU ms",
		"goal ms",
		"lines",
		"MiB",
	)
	for _, q := range r.Questions {
		fmt.Fprintf(
			w,
			"%-40s %9.1f %9.1f %9.1f %9.1f %9.0f %8d %7.1f %s\n",
			q.Name,
			q.Least,
			q.Times.P50,
			q.Times.Max,
			q.CPU,
			q.Goal,
			q.Lines,
			q.MaxRSS,
			q.Failed,
		)
	}
	r.Machine.text(w)
	if r.Beside == nil {
		return
	}
	fmt.Fprintln(w)
	r.Beside.text(w)
	fmt.Fprintf(
		w,
		"\n%-40s %12s %12s %8s\n",
		"least ms, side by side",
		fmt.Sprint(r.Beside.Jobs),
		fmt.Sprint(r.Jobs),
		"times",
	)
	for i, q := range r.Questions {
		if i < len(r.Beside.Questions) && r.Beside.Questions[i].Least > 0 {
			small := r.Beside.Questions[i].Least
			fmt.Fprintf(w, "%-40s %12.1f %12.1f %8.1f\n", q.Name, small, q.Least, q.Least/small)
		}
	}
}

func mapKeys(m map[string]float64) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func (b *accountingBench) run(ctx context.Context, p *progress) (result, error) {
	res, err := b.measure(ctx, p)
	if err != nil {
		return nil, err
	}
	if b.beside == 0 {
		return res, nil
	}
	small := *b
	small.jobs, small.months = b.beside, 1
	if b.keep {
		small.dir = filepath.Join(b.dir, "b")
	} else {
		small.dir = ""
	}
	res.Beside, err = small.measure(ctx, p)
	if err != nil {
		return nil, err
	}
	return res, nil
}

// measure makes a store and asks it.
func (b *accountingBench) measure(ctx context.Context, p *progress) (*accountingResult, error) {
	res := &accountingResult{Jobs: b.jobs, Months: b.months, Machine: machineNow()}
	st, err := openBenchStore(ctx, b.dir, b.keep)
	if err != nil {
		return nil, err
	}
	defer st.close()
	store := st.Store
	b.dir = st.dir
	f := newFill(b.jobs, b.months)
	position, err := store.Position(ctx, f.ledger)
	switch {
	case err != nil:
		return nil, err
	case position.Seq != 0:
		if err := f.rollUp(ctx, store); err != nil { // a store of an older release
			return nil, err
		}
	default:
		began := time.Now()
		if err := f.run(ctx, store, p); err != nil {
			return nil, err
		}
		res.Fill = time.Since(began).Seconds()
	}
	res.Bytes, err = f.measureBytes(ctx, store)
	if err != nil {
		return nil, err
	}
	position, err = store.Position(ctx, f.ledger)
	if err != nil {
		return nil, err
	}
	stop, err := b.serve(ctx, store, f, position)
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, q := range f.listQuestions() {
		if !strings.Contains(q.name, b.only) {
			continue
		}
		p.say("%s", q.name)
		res.Questions = append(res.Questions, b.ask(ctx, q, st.engine.PID()))
	}
	res.Machine.after()
	return res, ctx.Err()
}

// ask runs a command some times.
func (b *accountingBench) ask(ctx context.Context, q question, engine int) askedResult {
	out := askedResult{Name: q.name, Goal: q.goal, Line: strings.Join(q.args, " ")}
	muster := b.muster
	if muster == "" {
		self, err := os.Executable()
		if err != nil {
			out.Failed = err.Error()
			return out
		}
		muster = filepath.Join(filepath.Dir(self), "muster")
	}
	var times []time.Duration
	busy := func() float64 { return processSeconds(engine) + processSeconds(os.Getpid()) }
	before, client := busy(), time.Duration(0)
	for n := range b.times {
		cmd := exec.CommandContext(ctx, muster, moveStart(q.args, n)...)
		cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(b.dir, "m"), "TZ=UTC")
		lines := &lineCounter{}
		var errOut strings.Builder
		cmd.Stdout, cmd.Stderr = lines, &errOut
		began := time.Now()
		err := cmd.Start()
		if err == nil {
			stop := make(chan struct{})
			peak := make(chan float64)
			go func() { peak <- peakMemory(cmd.Process.Pid, stop) }()
			err = cmd.Wait()
			close(stop)
			out.MaxRSS = max(out.MaxRSS, <-peak)
		}
		times = append(times, time.Since(began))
		if err != nil {
			out.Failed = fmt.Sprintf("%v: %s", err, strings.TrimSpace(errOut.String()))
			return out
		}
		out.Lines = lines.n
		client += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	out.CPU = ((busy()-before)*1000 + float64(client.Milliseconds())) / float64(b.times)
	out.Times = summariseTimes(times)
	out.Least = float64(slices.Min(times).Microseconds()) / 1000
	return out
}

// moveStart makes the window of a question begin some seconds later: what findings of a
// window are made of is kept for a while, and a second question about it tells nothing.
func moveStart(args []string, seconds int) []string {
	at := slices.Index(args, "--start")
	if at < 0 {
		return args
	}
	start, err := time.Parse(stampForm, args[at+1])
	if err != nil {
		return args
	}
	moved := slices.Clone(args)
	moved[at+1] = start.Add(time.Duration(seconds) * time.Second).Format(stampForm)
	return moved
}

// peakMemory watches a process until it is told to stop, and gives the most
// memory it had, in MiB. What the kernel says at the end counts its parent's.
func peakMemory(pid int, stop chan struct{}) (most float64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, rest, ok := strings.Cut(string(text), "VmHWM:"); ok && err == nil {
			var kib float64
			if _, err := fmt.Sscan(rest, &kib); err == nil {
				most = max(most, kib/1024)
			}
		}
		select {
		case <-stop:
			return most
		case <-tick.C:
		}
	}
}

// processSeconds is the CPU time that a process has used.
func processSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

// lineCounter counts what is written to it.
type lineCounter struct{ n int }

func (l *lineCounter) Write(data []byte) (int, error) {
	l.n += strings.Count(string(data), "\n")
	return len(data), nil
}

// pastLedger is a ledger of which nothing is read: the store has it all, and
// nothing more comes.
type pastLedger struct {
	seq uint64
	at  spec.Instant
}

// Open implements the source of accounting.
func (l pastLedger) Open(context.Context, uint64) (acctd.Cursor, error) { return l, nil }

// Next implements the cursor of accounting.
func (pastLedger) Next(ctx context.Context) (acctd.Entry, error) {
	<-ctx.Done()
	return acctd.Entry{}, ctx.Err()
}

// Head implements the source of accounting.
func (l pastLedger) Head() (uint64, spec.Instant) { return l.seq, l.at }

// Epochs implements acctd.Source.
func (l pastLedger) Epochs(
	context.Context,
) ([]state.Epoch, uint64, error) {
	return nil, l.seq, nil
}

// pastClock stands still at the end of the jobs; waits are real.
type pastClock struct{ at spec.Instant }

// Now implements the clock of accounting.
func (c pastClock) Now() spec.Instant { return c.at }

// After implements the clock of accounting.
func (pastClock) After(d spec.Span) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	t := time.AfterFunc(time.Duration(d), func() { close(ch) })
	return ch, func() { t.Stop() }
}

// pingServer answers what every tool asks first.
type pingServer struct {
	service.UnimplementedClusterServer
	seq uint64
}

// Ping implements the cluster's service.
func (p pingServer) Ping(context.Context, *apiv1.PingRequest) (*apiv1.PingReply, error) {
	return &apiv1.PingReply{
		Host:    "bench",
		Role:    "leader",
		Version: version,
		Seq:     p.seq,
		Cluster: "peer",
	}, nil
}

// serve answers on a socket as a controller with its accounting does.
func (b *accountingBench) serve(
	ctx context.Context,
	store *clickhouse.Store,
	f *fill,
	position counted.Position,
) (stop func(), err error) {
	codec, err := event.NewCodec()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	state, err := counted.Past(f.ledger, "peer", position.Seq, f.endInstant()).Snapshot()
	if err != nil {
		cancel()
		return nil, err
	}
	past := standing{store, position, counted.Snapshot{Seq: position.Seq, Data: state}}
	daemon := acctd.New(
		acctd.Config{
			Source:  pastLedger{f.lastSeq(), f.endInstant()},
			Store:   past,
			Codec:   codec,
			Clock:   pastClock{f.endInstant()},
			Refresh: spec.Day,
			OpenWriter: func(context.Context, [16]byte, string) (acctd.Writer, counted.Resume, error) {
				return standingWriter{
						position,
					}, counted.Resume{
						Position: position,
						History:  counted.History{End: position.Seq},
					}, nil
			},
			Identity: func() ([16]byte, string) { return f.ledger, "peer" },
		},
	)
	go func() { _ = daemon.Run(ctx) }()
	windows := kpi.Windows()
	last := windows[len(windows)-1].Name
	isLast := func(v kpi.Value) bool { return v.Window == last }
	for began := time.Now(); !slices.ContainsFunc(daemon.KPIs(), isLast) &&
		time.Since(began) < time.Minute && ctx.Err() == nil; {
		time.Sleep(20 * time.Millisecond)
	}
	names := identity.NewCache(identity.SystemPasswd(), 100, time.Minute, time.Now)
	endpoint, err := grpcx.NewEndpoint(
		grpcx.EndpointConfig{
			Channel: &channel.Server{Cluster: "peer", Names: names},
			Errors:  rpcstatus.Numbers(),
			Log:     slog.New(slog.DiscardHandler),
		},
	)
	if err != nil {
		cancel()
		return nil, err
	}
	service.RegisterClusterServer(endpoint, pingServer{seq: f.lastSeq()})
	service.RegisterAccountingServer(endpoint, daemon.Service())
	listener, err := listen.Unix(filepath.Join(b.dir, "m"), 0o600)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() { _ = endpoint.Serve(listener) }()
	return func() {
		cancel()
		_ = endpoint.Shutdown(context.Background())
	}, nil
}

// standing is a store whose position never changes and is known, of a ledger
// of which no job is open.
type standing struct {
	*clickhouse.Store
	pos   counted.Position
	state counted.Snapshot
}

// LastSnapshot implements the store of accounting.
func (s standing) LastSnapshot(context.Context, [16]byte, uint64) (counted.Snapshot, bool, error) {
	return s.state, true, nil
}

// standingWriter has nothing to write.
type standingWriter struct{ pos counted.Position }

func (standingWriter) Write(context.Context, *counted.Batch) error         { return nil }
func (standingWriter) Generation(context.Context, []counted.LiveRow) error { return nil }
func (standingWriter) Hold(context.Context) error                          { return nil }
func (standingWriter) RollUp(context.Context) (bool, error)                { return false, nil }
func (standingWriter) Branch(context.Context, counted.Branch) error        { return nil }
func (w standingWriter) Position() counted.Position                        { return w.pos }

// Position implements the store of accounting.
func (s standing) Position(
	context.Context,
	[16]byte,
) (counted.Position, error) {
	return s.pos, nil
}
