package whatif

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/sim/tune"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

const tuneUsage = `muster tune replays a site's own history under several settings of the scheduler
and advises a change only if it would have served the site better.

Usage:
  muster tune --from TIME [--to TIME] [--try KEY=VALUE,...]...
  muster tune --cluster NAME --old slurm.conf --from TIME [--to TIME] [--try ...]
  muster tune --swf FILE --procs N [--in-force KEY=VALUE,...] [--try ...]

The settings are options of SchedulerParameters. Without --try, several ways to
plan are tried; none of them changes priorities, fair share or limits. They are
compared on the first half of the history. The best one alone is then compared
with the settings in force on the second half, which had no part in the choice,
and only that comparison is printed. An interval is where the change lies with
the confidence that is printed, from blocks of at least two days. A change is
advised if it is surely better there, and neither the mean wait nor the longest
wait exceeds its bound. Who would wait longer is listed in any case.

A history of at least 40 days is needed. What is replayed, and how an imported
history is read, is as in muster whatif. The replays run at the lowest priority
of the CPU. Each one that is done is kept in the file of --state, so that the
same command continues where it was interrupted or killed; the file is removed
at the end. The same history gives the same report.

Examples:
  muster tune --from now-120days
  muster tune --archive /backup/archive --from 2026-06-01 --to 2026-11-01 --json
  muster tune --from now-90days --try bf_firm=2,bf_promise=prediction --aim wait
  muster tune --cluster old --old /etc/slurm/slurm.conf --from 2026-06-01
  muster tune --swf ALCF-Theta-2023.swf.gz --procs 4360

Options:
`

// tuning is a parsed command line.
type tuning struct {
	source
	swf     string
	procs   int64
	inForce string
	try     []string
	aim     string
	bounds  tune.Bounds
	seed    uint64
	state   string
	asJSON  bool
	live    bool // errOut is a terminal
}

// Tune is muster tune.
func Tune(args []string, out, errOut io.Writer) int {
	w := &tuning{source: source{command: "muster tune", now: time.Now(), errOut: errOut}}
	w.live = isTerminal(errOut)
	usual := tune.DefaultBounds()
	flags := pflag.NewFlagSet("muster tune", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.SortFlags = false
	dir := w.addFlags(flags)
	flags.StringVar(&w.old, "old", "", "the slurm.conf in force, instead of the one of the history")
	flags.StringVar(
		&w.cluster,
		"cluster",
		"",
		"replay the imported history of this cluster instead of this site's own",
	)
	flags.StringVar(&w.swf, "swf", "", "replay this log in Standard Workload Format, plain or gzip")
	flags.Int64Var(
		&w.procs, "procs", 0, "number of processors of the cluster of --swf, as one pool",
	)
	flags.StringVar(
		&w.inForce,
		"in-force",
		"bf_firm=1,bf_promise=prediction",
		"SchedulerParameters in force for --swf",
	)
	flags.StringArrayVar(
		&w.try,
		"try",
		nil,
		"setting to try instead of the usual ones; may be repeated",
	)
	flags.StringVar(
		&w.aim,
		"aim",
		string(tune.Slowdown),
		"what to make smaller: slowdown (mean bounded slowdown) or wait (mean wait)",
	)
	flags.Float64Var(
		&w.bounds.LongestWait,
		"longest-wait",
		usual.LongestWait,
		"how many times the longest wait in force a longest wait may be",
	)
	flags.Float64Var(
		&w.bounds.MeanWait,
		"mean-wait",
		usual.MeanWait,
		"how many times the mean wait in force a mean wait may be",
	)
	flags.Uint64Var(&w.seed, "seed", 1, "seed of the intervals")
	flags.StringVar(&w.state, "state", "muster-tune.state", "`file` for replays that are done")
	flags.BoolVar(&w.asJSON, "json", false, "print one JSON object")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() {}
	if err := flags.Parse(args); err != nil {
		fmt.Fprintf(errOut, "muster tune: %v (see --help)\n", err)
		return 2
	}
	if *help {
		fmt.Fprint(out, tuneUsage, flags.FlagUsages())
		return 0
	}
	if *dir != "" {
		w.config = filepath.Join(*dir, "muster.yaml")
	}
	settings, bad := w.settings()
	bad = append(bad, w.wrong(flags)...)
	if len(bad) > 0 {
		for _, text := range bad {
			fmt.Fprintf(errOut, "muster tune: %s (see --help)\n", text)
		}
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	report, err := w.run(ctx, settings)
	if err == nil {
		err = w.write(out, report)
	}
	if err != nil {
		fmt.Fprintf(errOut, "muster tune: %v\n", err)
		return 1
	}
	return 0
}

// wrong lists all that is wrong with a command line.
func (w *tuning) wrong(flags *pflag.FlagSet) []string {
	var bad []string
	check := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	check(flags.NArg() > 0, "unknown argument %q", flags.Arg(0))
	check(w.from == "" && w.swf == "", "--from is missing")
	if w.swf == "" {
		bad = append(bad, w.wrongMoments()...)
	}
	check(
		w.aim != string(tune.Slowdown) && w.aim != string(tune.Wait),
		"--aim=%s: expected slowdown or wait",
		w.aim,
	)
	check(
		!(w.bounds.LongestWait >= 1 && w.bounds.LongestWait <= 100),
		"--longest-wait=%v: expected a number from 1 to 100",
		w.bounds.LongestWait,
	)
	check(
		!(w.bounds.MeanWait >= 1 && w.bounds.MeanWait <= 100),
		"--mean-wait=%v: expected a number from 1 to 100",
		w.bounds.MeanWait,
	)
	check(
		w.cluster != "" && w.old == "",
		"an imported history does not tell the configuration: name with --old the one that was in force",
	)
	check(w.cluster != "" && w.archive != "", "--cluster and --archive: one history at a time")
	check(w.state == "", "--state: a file name is missing")
	if w.swf == "" {
		for _, name := range []string{"procs", "in-force"} {
			check(flags.Changed(name), "--%s belongs to --swf", name)
		}
		return bad
	}
	check(
		w.procs < 1 || w.procs > 1<<24,
		"--procs: how large is the cluster? A number from 1 to %d",
		1<<24,
	)
	for _, name := range []string{"from", "to", "cluster", "archive", "old", "dir", "config"} {
		check(
			flags.Changed(name),
			"--swf is a whole history of its own: --%s does not belong to it",
			name,
		)
	}
	return bad
}

// wrongMoments lists what is wrong with the ends of the history.
func (w *tuning) wrongMoments() (bad []string) {
	ends := map[string]spec.Instant{}
	for _, end := range []struct{ name, text string }{{"from", w.from}, {"to", w.to}} {
		if end.text == "" {
			continue
		}
		at, err := w.parseMoment(end.name, end.text)
		if err != nil {
			bad = append(bad, oneLine(err))
			continue
		}
		ends[end.name] = at
	}
	if len(ends) == 2 && ends["to"] <= ends["from"] {
		bad = append(bad, "--to does not come after --from")
	}
	return bad
}

// settings are those to try, and what is wrong with them.
func (w *tuning) settings() (settings []tune.Setting, bad []string) {
	if len(w.try) == 0 {
		return tune.Candidates(), nil
	}
	for _, text := range w.try {
		setting, err := tune.ParseSetting(text)
		if err != nil {
			bad = append(bad, fmt.Sprintf("--try %q: %s", text, oneLine(err)))
			continue
		}
		settings = append(settings, setting)
	}
	return settings, bad
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", ", ") }

func (w *tuning) run(ctx context.Context, settings []tune.Setting) (*tune.Report, error) {
	if err := lowerPriority(); err != nil {
		fmt.Fprintf(w.errOut, "muster tune: the replays run at the usual priority: %v\n", err)
	}
	// A replay makes much garbage and keeps little.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	m, err := openMemory(w.state, w.question(), w.now)
	if err != nil {
		return nil, err
	}
	load, err := w.load(ctx, m)
	if err != nil {
		return nil, err
	}
	if err := m.about(load); err != nil {
		return nil, err
	}
	if n := len(m.saved.Replays); n > 0 {
		fmt.Fprintf(
			w.errOut,
			"muster tune: %s has %s of this question, which are not made again\n",
			w.state,
			format.Plural(n, "replay", "replays"),
		)
	}
	study := &tune.Study{
		Load:     load,
		Settings: settings,
		Aim:      tune.Aim(w.aim),
		Bounds:   w.bounds,
		Seed:     w.seed,
	}
	report, err := tune.Run(ctx, study, m, w.progress)
	w.progressOver()
	switch {
	case errors.Is(err, context.Canceled):
		return nil, fmt.Errorf(
			"interrupted: the same command continues from %s, which has %s",
			w.state,
			format.Plural(len(m.saved.Replays), "replay", "replays"),
		)
	case err != nil:
		return nil, err
	}
	return report, m.remove()
}

// question is the command line as far as the replays depend on it.
func (w *tuning) question() []string {
	return []string{
		w.config,
		w.archive,
		w.cluster,
		w.old,
		w.from,
		w.to,
		w.swf,
		fmt.Sprint(w.procs),
		w.inForce,
	}
}

// load reads the history. Relative times count from when the question was first
// asked, so that a command that continues asks the same.
func (w *tuning) load(ctx context.Context, m *memory) (*replay.Workload, error) {
	if w.swf != "" {
		return w.trace()
	}
	w.now = time.Unix(m.saved.Asked, 0)
	from, err := w.parseMoment("from", w.from)
	if err != nil {
		return nil, err
	}
	to, err := w.parseMoment("to", w.to)
	if err != nil {
		return nil, err
	}
	if to <= from {
		return nil, errors.New("--to does not come after --from")
	}
	load, left, err := w.readPast(ctx, from, to, spec.AtUnix(m.saved.Asked))
	if err == nil && left > 0 {
		fmt.Fprintf(
			w.errOut,
			"muster tune: %s left out\n",
			format.Plural(left, "job that did not run to its end is", "jobs that did not run to their end are"),
		)
	}
	return load, err
}

// progress tells how far a replay is: on a terminal in one line, elsewhere every
// ten seconds.
func (w *tuning) progress(step tune.Step) replay.Progress {
	last := time.Now()
	return func(ended, all int, _ spec.Instant) {
		since := time.Since(last)
		if since < 10*time.Second && (!w.live || since < time.Second/2) {
			return
		}
		last = time.Now()
		line := fmt.Sprintf(
			"muster tune: replay %d of at most %d, %s: %d of %d jobs have ended",
			step.Number,
			step.Of,
			step.Setting,
			ended,
			all,
		)
		if w.live {
			fmt.Fprint(w.errOut, "\r\x1b[K", line)
			return
		}
		fmt.Fprintln(w.errOut, line)
	}
}

// progressOver clears the line of progress.
func (w *tuning) progressOver() {
	if w.live {
		fmt.Fprint(w.errOut, "\r\x1b[K")
	}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// lowerPriority gives way to everything else on the machine. Priorities belong
// to threads on Linux, and new threads inherit them.
func lowerPriority() error {
	const lowest = 19
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		var id int
		if _, err := fmt.Sscan(thread.Name(), &id); err != nil {
			return err
		}
		// A thread that has ended meanwhile needs none.
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, lowest); err != nil &&
			!errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// write prints a report.
func (w *tuning) write(out io.Writer, report *tune.Report) error {
	if w.asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(report)
	}
	_, err := io.WriteString(out, reportText(report))
	return err
}

func reportText(report *tune.Report) string {
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"%d jobs; %d settings were compared on the first %d, and one is judged on the other %d\n",
		report.Jobs,
		len(report.Tried),
		report.LearnJobs,
		report.JudgeJobs,
	)
	if judgement := report.OutOfSample; judgement != nil {
		fmt.Fprintf(
			&text,
			"\n%-24s %14s %14s %10s  %s\n",
			"second half",
			"in force",
			"judged",
			"change",
			fmt.Sprintf("with %d %% confidence", judgement.Level),
		)
		row := func(name, unit string, digits int, old, fresh float64, interval *tune.Interval) {
			change := "-"
			if old > 0 {
				change = fmt.Sprintf("%+.1f %%", 100*(fresh/old-1))
			}
			fmt.Fprintf(
				&text,
				"%-24s %14s %14s %10s",
				name,
				fmt.Sprintf("%.*f%s", digits, old, unit),
				fmt.Sprintf("%.*f%s", digits, fresh, unit),
				change,
			)
			if interval != nil {
				fmt.Fprintf(&text, "  %+.1f to %+.1f %%", 100*interval.Low, 100*interval.High)
			}
			text.WriteString("\n")
		}
		row(
			"mean bounded slowdown",
			"",
			2,
			judgement.Old.MeanSlowdown,
			judgement.New.MeanSlowdown,
			&judgement.Slowdown,
		)
		row("mean wait", " s", 0, judgement.Old.MeanWait, judgement.New.MeanWait, &judgement.Wait)
		row("P95 wait", " s", 0, judgement.Old.P95Wait, judgement.New.P95Wait, nil)
		row("longest wait", " s", 0, judgement.Old.LongestWait, judgement.New.LongestWait, nil)
		fmt.Fprintf(
			&text,
			"judged: %s (%d blocks of %.1f days)\n",
			report.Chosen,
			judgement.Blocks,
			judgement.BlockDays,
		)
		text.WriteString(losersText(judgement.Losers))
	}
	switch report.Verdict {
	case tune.Change:
		fmt.Fprintf(
			&text,
			"\nadvice: change slurm.conf: %s\n- %s\n+ %s\n",
			report.Why,
			report.OldLine,
			report.NewLine,
		)
	default:
		fmt.Fprintf(&text, "\nadvice: change nothing: %s\n", report.Why)
	}
	return text.String()
}

// maxLosers of each kind are printed; --json has them all.
const maxLosers = 8

func losersText(losers []tune.Group) string {
	if len(losers) == 0 {
		return "\nNo user, account or size of jobs would have waited noticeably longer.\n"
	}
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"\nWould have waited longer:\n%-8s %-28s %8s %16s %14s\n",
		"",
		"",
		"jobs",
		"mean wait, s",
		"judged",
	)
	for _, kind := range []string{"user", "account", "size"} {
		of := slices.DeleteFunc(
			slices.Clone(losers),
			func(g tune.Group) bool { return g.Kind != kind },
		)
		for _, group := range of[:min(len(of), maxLosers)] {
			fmt.Fprintf(
				&text,
				"%-8s %-28s %8d %16.0f %14.0f\n",
				group.Kind,
				group.Name,
				group.Jobs,
				group.OldWait,
				group.NewWait,
			)
		}
		if more := len(of) - maxLosers; more > 0 {
			fmt.Fprintf(&text, "%-8s and %d more, see --json\n", kind, more)
		}
	}
	return text.String()
}
