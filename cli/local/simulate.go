package local

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

func Simulate() *tool.Command {
	return &tool.Command{
		Name:    "simulate",
		Summary: "replay a trace through the scheduler in virtual time",
		Usage: []string{
			"--swf FILE --procs N [OPTIONS]",
			"--itp FILE --nodes N --gpus N [OPTIONS]",
			"--graham FILE --procs N [--gpus N] [OPTIONS]",
			"--openb FOLDER [--shuffles N] [--inflate PERCENT] [--packing mix|best-fit]",
			"--openb FOLDER --itp FILE [--load PERCENT] [--pods N] [--nodes N] [--shuffles N] [--packing mix|best-fit]",
		},
		About: `Submits the jobs of a trace at their recorded times and runs them for their recorded durations; the production scheduler decides when they start. The recorded waiting times are not used.

fcfs, easy, easy-sjbf and conservative are the classic policies as the literature compares them: first come, first served underneath, one pass for each event, reservations for nobody, the first job, or all. muster is what a cluster does out of the box: one pass for all that happens at an instant.

A job that runs beyond its time limit ends there. A trace without limits (ITP) gives each job its run time as one, which makes plans better than they are in life. Graham's file holds only jobs that waited over some noon, so its figures are not those of the site.

--openb asks how far a cluster of GPUs can be filled: pods that want GPUs or parts of one arrive in a random order, more of them than fit, and nobody leaves. mix places each where it takes least from what the pods ask for as a whole (SchedulerParameters=pack_mix), best-fit fills the fullest node first.

With --itp beside --openb pods arrive at random moments and leave again. Each has the run time of a job of that trace with as many GPUs, and the time limit of 30 minutes to 30 days that it fits into. Waits, free GPUs and stranded GPUs stand side by side: a GPU is stranded, for a request, as far as it is free and the request cannot use it where it is. The figure is the mean over the requests of the workload.`,
		Options: []opt.Option{
			{
				Long: "swf",
				Arg:  "<file>",
				Help: "workload log in Standard Workload Format, plain or gzip; - reads standard input",
			},
			{
				Long: "itp",
				Arg:  "<file>",
				Help: "GPU jobs as cluster,job_id,submit_s,duration_s,num_gpu",
			},
			{
				Long: "graham",
				Arg:  "<file>",
				Help: "jobs of a Slurm site with its sacct fields as columns",
			},
			{
				Long: "openb",
				Arg:  "<folder>",
				Help: "folder with openb_node_list_all_node.csv and openb_pod_list_default.csv, plain or gzip: GPU nodes and pods to pack",
			},
			{Long: "shuffles", Arg: "<n>", Help: "--openb: number of arrival orders (default: 10)"},
			{
				Long: "inflate",
				Arg:  "<percent>",
				Help: "--openb: draw further pods until they request this percentage of the GPUs (default: 130)",
			},
			{
				Long: "load",
				Arg:  "<percent>",
				Help: "--openb --itp: GPU time that the pods request, as a percentage of what there is until the last one arrives (default: 100)",
			},
			{Long: "pods", Arg: "<n>", Help: "--openb --itp: number of pods (default: 20000)"},
			{Long: "packing", Arg: "mix|best-fit", Help: "--openb: packing policy (default: mix)"},
			{Long: "cluster", Arg: "<name>", Help: "cluster of --itp to use (default: the first)"},
			{Long: "procs", Arg: "<n>", Help: "number of processors of the cluster, as one pool"},
			{
				Long: "nodes",
				Arg:  "<n>",
				Help: "number of nodes of the cluster, each with --cpus and --gpus, instead of one pool; --openb --itp: number of nodes of the list to use (default: all)",
			},
			{
				Long: "cpus",
				Arg:  "<n>",
				Help: "number of CPUs per node (default: --procs divided by the nodes, or one per GPU)",
			},
			{Long: "gpus", Arg: "<n>", Help: "number of GPUs per node"},
			{
				Long: "policy",
				Arg:  "fcfs|easy|easy-sjbf|conservative|muster",
				Help: "default: muster",
			},
			{Long: "exact", Help: "set the time limit of each job to its run time"},
			{
				Long:  "out",
				Short: "o",
				Arg:   "<file>",
				Help:  "write the schedule as SWF, with the simulated wait in field 3; compressed if the name ends in .gz",
			},
			{Long: "json", Help: "print the summary as JSON"},
			{Long: "yaml", Help: "print the summary as YAML"},
		},
		Example: []tool.Example{
			{
				Line: "muster simulate --swf KTH-SP2.swf.gz --procs 100 --policy easy --out easy.swf.gz",
				What: "replays a log under EASY backfill and keeps the schedule",
			},
			{
				Line: "muster simulate --swf ALCF-Theta-2023.swf.gz --procs 4360 --json",
				What: "prints the figures of Muster's own policy for a script",
			},
			{
				Line: "muster simulate --openb traces",
				What: "fills a cluster of 6,212 GPUs ten times",
			},
			{
				Line: "muster simulate --openb traces --itp msft_itp_2021.csv.gz --nodes 190 --load 95",
				What: "lets pods arrive at and leave an eighth of that cluster, loaded to 95 %",
			},
			{
				Line: "muster simulate --itp msft_itp_2021.csv.gz --cluster cluster01 --nodes 40 --gpus 8",
				What: "replays GPU jobs on a cluster of 320 GPUs",
			},
		},
		Run: runSimulate,
	}
}

// simulation is a parsed command line.
type simulation struct {
	kind, file string
	machine    replay.Machine
	rule       replay.Rule
}

func newSimulation(call *tool.Call) (*simulation, error) {
	wrong := func(format string, args ...any) error {
		return &opt.UsageError{Command: "muster simulate", Text: fmt.Sprintf(format, args...)}
	}
	if len(call.Operands) > 0 {
		return nil, wrong("unexpected argument %s", call.Operands[0])
	}
	s := &simulation{}
	for _, kind := range []string{"swf", "itp", "graham"} {
		if !call.Opts.On(kind) {
			continue
		}
		if s.kind != "" {
			return nil, wrong("--%s and --%s: one trace at a time", s.kind, kind)
		}
		s.kind, s.file = kind, call.Opts.Text(kind)
	}
	if s.kind == "" {
		return nil, wrong("name a trace with --swf, --itp or --graham, or one to pack with --openb")
	}
	numbers := map[string]int64{}
	for _, name := range []string{"procs", "nodes", "cpus", "gpus"} {
		text, given := call.Opts.Text(name), call.Opts.On(name)
		n, ok := tool.PositiveNumber(text)
		if given && (!ok || n < 1 || n > 1<<24) {
			return nil, wrong("--%s=%s: expected a number from 1 to %d", name, text, 1<<24)
		}
		numbers[name] = n
	}
	machine := replay.Machine{
		Nodes: max(numbers["nodes"], 1),
		CPUs:  numbers["cpus"],
		GPUs:  numbers["gpus"],
	}
	switch procs := numbers["procs"]; {
	case procs > 0 && machine.CPUs > 0:
		return nil, wrong("--procs and --cpus both say how many processors there are")
	case procs > 0 && procs%machine.Nodes != 0:
		return nil, wrong("--procs=%d cannot be divided by --nodes=%d", procs, machine.Nodes)
	case procs > 0:
		machine.CPUs = procs / machine.Nodes
	case machine.CPUs == 0 && machine.GPUs > 0:
		machine.CPUs = machine.GPUs
	case machine.CPUs == 0:
		return nil, wrong("how large is the cluster? --procs, or --nodes with --cpus or --gpus")
	}
	if s.kind == "itp" && machine.GPUs == 0 {
		return nil, wrong(
			"--itp: the trace tells no capacity, and its jobs need GPUs: choose --nodes and --gpus",
		)
	}
	var err error
	s.rule, err = replay.RuleNamed(cmp.Or(call.Opts.Text("policy"), "muster"))
	if err != nil {
		return nil, wrong("--policy: %v", err)
	}
	s.machine = machine
	return s, nil
}

func runSimulate(call *tool.Call) error {
	if call.Opts.On("openb") {
		return packOpenb(call)
	}
	s, err := newSimulation(call)
	if err != nil {
		return err
	}
	trace, err := readTrace(call, s)
	if err != nil {
		return call.Errorf("%s: %v", s.file, err)
	}
	if call.Opts.On("exact") {
		trace.ExactLimits()
	}
	if s.machine.GPUs == 0 && trace.WantsGPUs() {
		return call.Errorf("%s: its jobs ask for GPUs: say with --gpus how many a node has", s.file)
	}
	if out := call.Opts.Text("out"); out != "" { // before, not after a long replay
		if folder, err := os.Stat(filepath.Dir(resolvePath(call, out))); err != nil ||
			!folder.IsDir() {
			return call.Errorf(
				"--out=%s: there is no folder %s",
				out,
				filepath.Dir(resolvePath(call, out)),
			)
		}
	}
	// A replay makes much garbage and keeps little.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	ctx, stop := signal.NotifyContext(call.Ctx, os.Interrupt)
	defer stop()
	began := call.Now()
	result, err := replay.Run(
		ctx,
		trace.Workload(s.machine.Config(s.rule.Settings())),
		s.rule,
		newProgress(call, began, "jobs have ended"),
	)
	progressOver(call)
	if errors.Is(err, context.Canceled) {
		return call.Errorf("interrupted: nothing was written")
	}
	if err != nil {
		return call.Errorf("%s: %v", s.file, err)
	}
	if call.Opts.On("out") {
		if err := writeSchedule(call, trace, result); err != nil {
			return call.Errorf("%v", err)
		}
	}
	sum := result.Summarise()
	if render.WantsDocument(call) {
		return render.PrintOffline(call, simulationTree(s, trace, &sum))
	}
	return call.WriteOut([]byte(simulationText(s, trace, result, &sum, call.Now().Sub(began))))
}

func readTrace(call *tool.Call, s *simulation) (*replay.Trace, error) {
	var in io.Reader = call.Stdin
	if s.file != "-" {
		file, err := os.Open(resolvePath(call, s.file))
		if err != nil {
			return nil, unwrapPath(err)
		}
		defer file.Close()
		in = file
	}
	b := bufio.NewReaderSize(in, 256<<10)
	in = b
	if magic, err := b.Peek(2); err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, err
		}
		in = z
	}
	switch s.kind {
	case "itp":
		return replay.ReadITP(in, call.Opts.Text("cluster"))
	case "graham":
		return replay.ReadGraham(in)
	}
	return replay.ReadSWF(in)
}

// resolvePath is a file as the user named it, seen from the working directory.
func resolvePath(call *tool.Call, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(call.Dir, name)
}

// unwrapPath drops the path from an error: the caller names the file.
func unwrapPath(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}

// writeSchedule writes --out whole or not at all.
func writeSchedule(call *tool.Call, trace *replay.Trace, result *replay.Result) (err error) {
	name := resolvePath(call, call.Opts.Text("out"))
	file, err := os.CreateTemp(filepath.Dir(name), ".muster-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	var to io.Writer = file
	var z *gzip.Writer
	if strings.HasSuffix(name, ".gz") {
		z = gzip.NewWriter(file)
		to = z
	}
	err = trace.WriteSWF(to, result)
	if z != nil {
		err = errors.Join(err, z.Close())
	}
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

// newProgress tells on standard error how far a long replay is: of how many so many
// are done.
func newProgress(call *tool.Call, began time.Time, done string) replay.Progress {
	live := call.Terminal(call.Stderr)
	last := began
	return func(ended, all int, at spec.Instant) {
		now := call.Now()
		if every := 10 * time.Second; now.Sub(last) < every &&
			(!live || now.Sub(last) < time.Second) {
			return
		}
		last = now
		line := fmt.Sprintf("muster simulate: %d of %d %s", ended, all, done)
		if live {
			line = "\r" + line
		} else {
			line += "\n"
		}
		fmt.Fprint(call.Stderr, line)
	}
}

// progressOver ends the line that progress writes again and again.
func progressOver(call *tool.Call) {
	if call.Terminal(call.Stderr) {
		fmt.Fprint(call.Stderr, "\r\x1b[K")
	}
}

// formatDecimals writes a number with so many decimals.
func formatDecimals(value float64, digits int) string {
	return strconv.FormatFloat(value, 'f', digits, 64)
}

func simulationText(
	s *simulation,
	trace *replay.Trace,
	result *replay.Result,
	sum *replay.Summary,
	took time.Duration,
) string {
	var text strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&text, "%-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("policy", "%s", s.rule.Name)
	line("jobs", "%d ran", sum.Jobs)
	if trace.Skipped > 0 {
		line("", "%s (no processors, run time or submission)", format.Plural(trace.Skipped, "row is no job", "rows are no jobs"))
	}
	if sum.Refused > 0 {
		line("", "%d refused, for example: %s", sum.Refused, result.Refusal())
	}
	if sum.Never > 0 {
		line("", "%d never started", sum.Never)
	}
	line("mean wait", "%s s", formatDecimals(sum.MeanWait, 1))
	line("P95 wait", "%s s", formatDecimals(sum.P95Wait, 0))
	line("longest wait", "%s s", formatDecimals(sum.MaxWait, 0))
	line("mean bounded slowdown", "%s (tau 10 s)", formatDecimals(sum.MeanSlowdown, 2))
	line("utilisation", "%s %% of the CPUs", formatDecimals(100*sum.Utilisation, 2))
	if result.GPUs > 0 {
		line("", "%s %% of the GPUs", formatDecimals(100*sum.GPUUse, 2))
		line(
			"while jobs arrive",
			"%s %% of the GPUs free, %s %% stranded",
			formatDecimals(100*sum.GPUsFree, 2),
			formatDecimals(100*sum.GPUsStranded, 2),
		)
	}
	line("makespan", "%s s", formatDecimals(sum.Makespan, 0))
	line("longest queue", "%d", sum.MaxQueue)
	line("passes", "%d in %s s", sum.Passes, formatDecimals(took.Seconds(), 2))
	return text.String()
}

func simulationTree(s *simulation, trace *replay.Trace, sum *replay.Summary) tree.Object {
	return append(
		tree.Object{
			{Key: "policy", Value: s.rule.Name},
			{Key: "skipped_rows", Value: int64(trace.Skipped)},
		},
		summaryTree(sum)...)
}

// summaryTree is the figures of a schedule as data. Times are seconds.
func summaryTree(sum *replay.Summary) tree.Object {
	return tree.Object{
		{Key: "jobs", Value: int64(sum.Jobs)},
		{Key: "refused", Value: int64(sum.Refused)},
		{Key: "never_started", Value: int64(sum.Never)},
		{
			Key:   "mean_wait",
			Value: sum.MeanWait,
		},
		{Key: "p95_wait", Value: sum.P95Wait},
		{Key: "max_wait", Value: sum.MaxWait},
		{
			Key:   "mean_bounded_slowdown",
			Value: sum.MeanSlowdown,
		},
		{Key: "cpu_utilisation", Value: sum.Utilisation},
		{Key: "gpu_utilisation", Value: sum.GPUUse},
		{Key: "gpus_free", Value: sum.GPUsFree},
		{Key: "gpus_stranded", Value: sum.GPUsStranded},
		{
			Key:   "makespan",
			Value: sum.Makespan,
		},
		{Key: "longest_queue", Value: int64(sum.MaxQueue)},
		{Key: "passes", Value: int64(sum.Passes)},
	}
}
