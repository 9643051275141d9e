package whatif

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/sim/replay"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

const whatifUsage = `muster whatif replays this site's own history twice, under the configuration that
was in force and under another one, and prints the figures of both replays.

Usage:
  muster whatif --from TIME [--to TIME] [--conf slurm.conf] [--qos "NAME KEY=VALUE..."] [--add "8 nodes like n1"]
  muster whatif --cluster NAME --old slurm.conf --from TIME [--to TIME] [--conf slurm.conf] [--qos ...]

Every job that became eligible in that time and ran to its end is submitted at
that moment, when its hold and begin time were over, with its own request, user,
account and QOS, and runs as long as it did; the scheduler that runs in
production decides the rest, in both replays by the same code, so that neither is
compared with what users really waited. A job that depends on others of that time
waits for them in the replay; its wait is counted from when they let it go. Jobs
that never ran are left out. Nodes are as configured and never fail.

With --cluster the history is that of a cluster whose sacct was imported (muster
import), and --old names the configuration that was in force there. Accounting
keeps how much a job asked for, not how it was to be spread: each asks for equal
parts on as many nodes as it asked for then. It keeps no dependencies: such a job
is submitted when they let it go in fact. Users and accounts have equal shares,
QOS have no limits but those of --qos.

Examples:
  muster whatif --from 2026-11-01 --to 2026-11-08 --conf new/slurm.conf
  muster whatif --from now-7days --qos "gpu_priority MaxTRESPerUser=gres/gpu=4 Priority=100"
  muster whatif --from now-7days --add "8 nodes like gpu01"
  muster whatif --dir lab --from now-1hour --conf new/slurm.conf --json
  muster whatif --cluster old --old /etc/slurm/slurm.conf --from 2026-10-01 --to 2026-11-01 --conf muster/slurm.conf

Options:
`

// source is where a history comes from.
type source struct {
	command string // for messages
	config  string // muster.yaml
	archive string // instead of the one of muster.yaml
	cluster string // an imported one
	old     string // the slurm.conf that was in force
	from    string // first moment of the history
	to      string // its end
	now     time.Time
	errOut  io.Writer
}

// addFlags adds the options that say which history is meant, and returns the
// value of --dir.
func (s *source) addFlags(flags *pflag.FlagSet) *string {
	dir := flags.String("dir", "", "the `folder` that muster init --dir made")
	conffile.AddFlag(flags, &s.config, "muster.yaml `file`, which names the archive")
	flags.StringVar(
		&s.archive,
		"archive",
		"",
		"`folder` of an archive, instead of the one of muster.yaml",
	)
	flags.StringVar(&s.from, "from", "", "first moment of the history, as sacct -S takes it")
	flags.StringVar(&s.to, "to", "now", "end of the history")
	return dir
}

// whatif is a parsed command line.
type whatif struct {
	source
	conf string

	qos    []string
	add    []string
	asJSON bool
}

func Run(args []string, out, errOut io.Writer) int {
	w := &whatif{source: source{command: "muster whatif", now: time.Now(), errOut: errOut}}
	flags := pflag.NewFlagSet("muster whatif", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.SortFlags = false
	dir := w.addFlags(flags)
	flags.StringVar(&w.conf, "conf", "", "the other slurm.conf; gres.conf beside it counts")
	flags.StringVar(
		&w.old,
		"old",
		"",
		"the slurm.conf of the first replay, instead of the one that was in force",
	)
	flags.StringVar(
		&w.cluster,
		"cluster",
		"",
		"replay the imported history of this cluster instead of this site's own",
	)
	flags.StringArrayVar(
		&w.qos,
		"qos",
		nil,
		"change or add a QOS in the other replay, in sacctmgr's words; may be repeated",
	)
	flags.StringArrayVar(
		&w.add,
		"add",
		nil,
		"nodes of the other replay beside the configured ones, as in \"8 nodes like n1\"; may be repeated",
	)
	flags.BoolVar(&w.asJSON, "json", false, "print one JSON object")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() {}
	if err := flags.Parse(args); err != nil {
		fmt.Fprintf(errOut, "muster whatif: %v (see --help)\n", err)
		return 2
	}
	switch {
	case *help:
		fmt.Fprint(out, whatifUsage, flags.FlagUsages())
		return 0
	case flags.NArg() > 0:
		fmt.Fprintf(errOut, "muster whatif: unknown argument %q (see --help)\n", flags.Arg(0))
		return 2
	case w.from == "":
		fmt.Fprintln(errOut, "muster whatif: --from is missing (see --help)")
		return 2
	case w.conf == "" && len(w.qos) == 0 && len(w.add) == 0:
		fmt.Fprintln(
			errOut,
			"muster whatif: what would be different? name another --conf, a --qos or nodes to --add (see --help)",
		)
		return 2
	case w.cluster != "" && w.old == "":
		fmt.Fprintln(
			errOut,
			"muster whatif: an imported history does not tell the configuration: name with --old the one that was in force (see --help)",
		)
		return 2
	case w.cluster != "" && w.archive != "":
		fmt.Fprintln(
			errOut,
			"muster whatif: --cluster and --archive: one history at a time (see --help)",
		)
		return 2
	}
	if *dir != "" {
		w.config = filepath.Join(*dir, "muster.yaml")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	result, err := w.run(ctx)
	if err == nil {
		err = result.write(out, w.asJSON)
	}
	if err != nil {
		fmt.Fprintf(errOut, "muster whatif: %v\n", err)
		return 1
	}
	return 0
}

func (w *source) parseMoment(option, text string) (spec.Instant, error) {
	seconds, err := format.ParseTime(
		text,
		format.Moment{Now: w.now.Unix(), Loc: time.Local, Past: true},
	)
	if err != nil {
		return 0, fmt.Errorf("--%s: %w", option, err)
	}
	return spec.AtUnix(seconds), nil
}

func (w *whatif) run(ctx context.Context) (*whatifResult, error) {
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
	other, changes, err := w.other()
	if err != nil {
		return nil, err
	}
	old, left, err := w.readPast(ctx, from, to, spec.FarFuture)
	if err != nil {
		return nil, err
	}
	changed, err := old.With(other, changes)
	if err != nil {
		return nil, err
	}
	for _, text := range w.add {
		count, like, err := parseAdd(text)
		if err != nil {
			return nil, err
		}
		if changed, err = changed.AddNodes(count, like); err != nil {
			return nil, fmt.Errorf("--add %q: %w", text, err)
		}
	}
	if len(changes) > 0 && !changed.Config.Enforce.Limits {
		fmt.Fprintln(
			w.errOut,
			"muster whatif: limits of a QOS change nothing here: AccountingStorageEnforce does not name limits",
		)
	}
	res := &whatifResult{
		Cluster: w.cluster,
		From:    from.Unix(),
		To:      to.Unix(),
		Jobs:    len(old.Jobs),
		LeftOut: left,
	}
	for i, load := range []*replay.Workload{old, changed} {
		result, err := replay.Run(ctx, load, replay.Rule{Name: "muster"}, w.progress(i+1))
		if err != nil {
			return nil, err
		}
		if i == 0 {
			res.Old = result.Summarise()
		} else {
			res.New, res.Refusal = result.Summarise(), result.Refusal()
		}
	}
	return res, nil
}

// readPast is what is replayed first: what had happened by an instant. A history
// that is read again later is the same up to it.
func (w *source) readPast(
	ctx context.Context,
	from, to, until spec.Instant,
) (load *replay.Workload, left int, err error) {
	var old *spec.Config
	if w.old != "" {
		old, err = w.read(w.old)
		if err != nil {
			return nil, 0, err
		}
	}
	if w.cluster != "" {
		return w.imported(ctx, from, to, old)
	}
	load, left, err = w.history(ctx, from, to, until)
	if err == nil && old != nil {
		load, err = load.With(old, nil)
	}
	return load, left, err
}

// progress says every ten seconds how far a replay is.
func (w *whatif) progress(nth int) replay.Progress {
	last := time.Now()
	return func(ended, all int, _ spec.Instant) {
		if time.Since(last) >= 10*time.Second {
			last = time.Now()
			fmt.Fprintf(
				w.errOut,
				"muster whatif: replay %d of 2: %d of %d jobs have ended\n",
				nth,
				ended,
				all,
			)
		}
	}
}

// other reads what is to be different.
func (w *whatif) other() (*spec.Config, []policy.Change, error) {
	var changes []policy.Change
	for _, text := range w.qos {
		words := strings.Fields(text)
		if len(words) < 2 || strings.Contains(words[0], "=") {
			return nil, nil, fmt.Errorf(
				"--qos %q: expected a name and what to set, as in \"normal MaxJobsPerUser=4\"",
				text,
			)
		}
		change := policy.Change{Verb: policy.Modify, Entity: "qos", Names: words[:1]}
		for _, word := range words[1:] {
			key, value, ok := strings.Cut(word, "=")
			if !ok {
				return nil, nil, fmt.Errorf("--qos %q: %q is not of the form KEY=VALUE", text, word)
			}
			change.Set = append(change.Set, spec.KeyValue{Key: key, Value: value})
		}
		changes = append(
			changes,
			policy.Change{Verb: policy.Add, Entity: "qos", Names: words[:1]},
			change,
		)
	}
	if w.conf == "" {
		return nil, changes, nil
	}
	config, err := w.read(w.conf)
	return config, changes, err
}

// maxAdded bounds the nodes that are added.
const maxAdded = 10_000

// parseAdd reads "8 nodes like n1".
func parseAdd(text string) (count int, like string, err error) {
	words := strings.Fields(text)
	if len(words) == 4 && strings.HasPrefix(words[1], "node") && words[2] == "like" {
		count, err = strconv.Atoi(words[0])
		if err == nil && count > 0 && count <= maxAdded {
			return count, words[3], nil
		}
	}
	return 0, "", fmt.Errorf("--add %q: expected a number of nodes up to %d and one that there is, as in \"8 nodes like n1\"", text, maxAdded)
}

// read reads a slurm.conf.
func (w *source) read(conf string) (*spec.Config, error) {
	path, err := filepath.Abs(conf)
	if err != nil {
		return nil, err
	}
	cluster, problems := conffile.ReadSlurm(path)
	if err := problems.Err(); err != nil {
		return nil, fmt.Errorf("%s cannot be used:\n%w", conf, err)
	}
	for _, problem := range problems {
		fmt.Fprintf(w.errOut, "%s: %s\n", w.command, problem)
	}
	return &cluster.Config, nil
}

// history folds the archive. The controller may be writing to it: what is read
// is a copy of the part that still grows, and links to the rest.
func (w *source) history(
	ctx context.Context,
	from, to, until spec.Instant,
) (*replay.Workload, int, error) {
	dir := w.archive
	if dir == "" {
		config, err := conffile.Load(w.config)
		if err != nil {
			return nil, 0, err
		}
		dir = config.Ledger.ArchiveDir
	}
	temp, err := copyArchive(dir)
	if err != nil {
		return nil, 0, fmt.Errorf("the archive %s: %w", dir, err)
	}
	defer os.RemoveAll(temp)
	a, err := archive.Open(temp, archive.Options{})
	if err != nil {
		return nil, 0, err
	}
	defer a.Close()
	codec, err := event.NewCodec()
	if err != nil {
		return nil, 0, err
	}
	cluster, err := beginning(a)
	if err != nil {
		return nil, 0, err
	}
	history := replay.NewHistory(from, to, cluster)
	next := uint64(1)
	if cluster != nil {
		next = cluster.Seq + 1
	}
	iterator, err := a.Reader(next)
	if err != nil {
		return nil, 0, fmt.Errorf("the archive %s: %w", dir, err)
	}
	for ctx.Err() == nil {
		record, err := iterator.Next()
		if errors.Is(err, io.EOF) {
			return history.Workload()
		}
		if err != nil {
			return nil, 0, err
		}
		if record.LastSeq < record.FirstSeq {
			continue
		}
		events, err := codec.Decode(record.Batch)
		if err != nil {
			return nil, 0, err
		}
		for i := range events {
			if events[i].Seq <= history.Seq() {
				continue
			}
			if events[i].At > until {
				return history.Workload()
			}
			if err := history.Add(&events[i]); err != nil {
				return nil, 0, err
			}
		}
	}
	return nil, 0, ctx.Err()
}

// beginning is the state before the first event that the archive still has:
// its oldest snapshot, or nil where the history is whole.
func beginning(a *archive.Archive) (*state.State, error) {
	iterator, err := a.Reader(1)
	if err == nil {
		if r, rerr := iterator.Next(); rerr == nil && r.FirstSeq <= 1 {
			return nil, nil
		}
	}
	snaps, err := a.Snapshots()
	if err != nil {
		return nil, err
	}
	if len(snaps) == 0 {
		return nil, errors.New("the beginning of the archive is gone, and it has no snapshot")
	}
	oldest := snaps[0]
	for _, snapshot := range snaps {
		if snapshot.Seq < oldest.Seq {
			oldest = snapshot
		}
	}
	r, err := a.OpenSnapshot(oldest)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return state.Decode(r)
}

// copyArchive makes a folder that can be opened while the controller goes on
// writing to the archive.
func copyArchive(dir string) (temp string, err error) {
	temp, err = os.MkdirTemp("", "muster-whatif-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	return temp, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		to := filepath.Join(temp, rel)
		switch {
		case entry.IsDir():
			return os.MkdirAll(to, 0o700)
		case strings.HasSuffix(path, ".tmp"):
			return nil
		case !strings.HasSuffix(path, ".live") && os.Link(path, to) == nil:
			return nil
		}
		return copyFile(path, to)
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// whatifResult is what both replays came to.
type whatifResult struct {
	Cluster string         `json:"cluster,omitempty"` // an imported one
	From    int64          `json:"from"`
	To      int64          `json:"to"`
	Jobs    int            `json:"jobs"`
	LeftOut int            `json:"left_out"`
	Old     replay.Summary `json:"old"`
	New     replay.Summary `json:"new"`
	Refusal string         `json:"refusal,omitempty"` // why the first job that the other configuration refuses is
}

func (r *whatifResult) write(out io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	_, err := io.WriteString(out, r.text())
	return err
}

func (r *whatifResult) text() string {
	var text strings.Builder
	at := func(seconds int64) string { return time.Unix(seconds, 0).Format("2006-01-02T15:04:05") }
	of := ""
	if r.Cluster != "" {
		of = " of cluster " + r.Cluster
	}
	fmt.Fprintf(
		&text,
		"%d jobs%s that became eligible from %s to %s, replayed twice",
		r.Jobs,
		of,
		at(r.From),
		at(r.To),
	)
	if r.LeftOut > 0 {
		fmt.Fprintf(&text, " (%d that did not run to their end are left out)", r.LeftOut)
	}
	fmt.Fprintf(&text, "\n\n%-24s %14s %14s %14s\n", "", "old", "new", "change")
	line := func(name, unit string, digits int, old, new float64) {
		fmt.Fprintf(
			&text,
			"%-24s %14.*f %14.*f %+14.*f %s\n",
			name,
			digits,
			old,
			digits,
			new,
			digits,
			new-old,
			unit,
		)
	}
	o, n := &r.Old, &r.New
	line("ran", "jobs", 0, float64(o.Jobs), float64(n.Jobs))
	line("refused", "jobs", 0, float64(o.Refused), float64(n.Refused))
	line("never started", "jobs", 0, float64(o.Never), float64(n.Never))
	line("mean wait", "s", 1, o.MeanWait, n.MeanWait)
	line("P95 wait", "s", 0, o.P95Wait, n.P95Wait)
	line("longest wait", "s", 0, o.MaxWait, n.MaxWait)
	line("mean bounded slowdown", "", 2, o.MeanSlowdown, n.MeanSlowdown)
	line("CPU utilisation", "%", 2, 100*o.Utilisation, 100*n.Utilisation)
	line("GPU utilisation", "%", 2, 100*o.GPUUse, 100*n.GPUUse)
	line("makespan", "s", 0, o.Makespan, n.Makespan)
	if r.Refusal != "" {
		fmt.Fprintf(&text, "\nthe new configuration refuses, for example: %s\n", r.Refusal)
	}
	return text.String()
}
