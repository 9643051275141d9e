package importing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

const importUsage = `muster import brings the history of another cluster into the accounting store,
under a name of its own: sacct, sreport, muster kpi and muster report show it
with -M NAME. Reading the same again adds nothing.

Usage:
  muster import sacct --file DUMP --cluster NAME [OPTION...]
  muster import slurm --cluster NAME [OPTION...]

sacct reads what "sacct -P" printed, plain or gzip; - is standard input. The
first line names the columns unless --columns does. A good dump is made by
  sacct -a -D -P --format=%s
with TZ=UTC in its environment, or with --zone here.

slurm asks a live Slurm's sacct for what is new since the last time; with
--every it goes on doing so, for a site that keeps Slurm. Where Slurm's commands
do not run, --slurmrestd asks its REST API instead, with the token in SLURM_JWT:
the same runs under the same keys, so that one way can follow the other. It does
not say the numbers of users and groups, and that of Slurm 22.05 gives every
exit code as 0 (the states are right); the states of nodes over time and
sreport's sums are read by the commands only.

Examples:
  muster import sacct --file dump.gz --cluster old
  muster import sacct --file jobs.csv --delimiter , --skip 1 --columns jobidraw,submit,start,end,-,state --cluster lake
  muster import slurm --cluster peer --every 1m
  SLURM_JWT=... muster import slurm --cluster peer --slurmrestd https://slurm.example.org:6820

Options:
`

// importing is one muster import.
type importing struct {
	config, cluster, file, delimiter, zone, rejects, bin, since, rest, restUser string
	columns                                                                     []string
	skip                                                                        int
	every                                                                       time.Duration
	out, errOut                                                                 io.Writer
	shown                                                                       int
	rejected                                                                    io.Writer
}

// Run runs `musterd import`.
func Run(args []string, out, errOut io.Writer) int {
	im := importing{out: out, errOut: errOut}
	flags := pflag.NewFlagSet("muster import", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	dir := flags.String("dir", "", "the `folder` that muster init --dir made")
	conffile.AddFlag(flags, &im.config, "muster.yaml `file`, which says where the store is")
	flags.StringVar(
		&im.cluster,
		"cluster",
		"",
		"the `name` of the cluster; for slurm also Slurm's name of it",
	)
	flags.StringVar(&im.file, "file", "", "sacct: the dump `file`; - is standard input")
	flags.StringSliceVar(
		&im.columns,
		"columns",
		nil,
		"sacct: the columns in order, by `names` of sacct's fields; - skips one",
	)
	flags.StringVar(
		&im.delimiter,
		"delimiter",
		"|",
		"sacct: what stands between columns; a comma means CSV with quotes",
	)
	flags.IntVar(&im.skip, "skip", 0, "sacct: `lines` at the beginning that are not read")
	flags.StringVar(
		&im.zone,
		"zone",
		"UTC",
		"sacct: the time `zone` of the dump's times, by its IANA name",
	)
	flags.StringVar(
		&im.rejects,
		"rejects",
		"",
		"a `file` for all lines that were not taken; without it the first 20 are printed",
	)
	flags.StringVar(
		&im.bin,
		"bin",
		"",
		"slurm: the `folder` of sacct; without it where the shell finds it",
	)
	flags.StringVar(
		&im.rest,
		"slurmrestd",
		"",
		"slurm: ask slurmrestd at this `address`: http://host:6820, https://..., unix:/path/of/socket",
	)
	flags.StringVar(
		&im.restUser,
		"slurmrestd-user",
		"",
		"slurm: the `user` of the token in SLURM_JWT, where the token does not say it",
	)
	flags.StringVar(
		&im.since,
		"since",
		"",
		"slurm: the first `day` (2026-01-31) that is read; without it one year ago, or where the last import ended",
	)
	flags.DurationVar(&im.every, "every", 0, "slurm: read again and again, with this pause")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() {
		fmt.Fprintf(errOut, importUsage, strings.Join(importer.Columns(), ","))
		fmt.Fprint(errOut, flags.FlagUsages())
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return 0
		}
		fmt.Fprintf(errOut, "muster import: %v\n", err)
		return 2
	}
	if *help {
		fmt.Fprintf(out, importUsage, strings.Join(importer.Columns(), ","))
		fmt.Fprint(out, flags.FlagUsages())
		return 0
	}
	if *dir != "" {
		im.config = *dir + "/muster.yaml"
	}
	verb := flags.Arg(0)
	if text := im.usageError(verb, flags); text != "" {
		fmt.Fprintf(errOut, "muster import: %s (see muster import --help)\n", text)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := im.run(ctx, verb); err != nil {
		fmt.Fprintf(errOut, "muster import: %v\n", err)
		return 1
	}
	return 0
}

// usageError finds what is missing, and options of the other verb.
func (im *importing) usageError(verb string, flags *pflag.FlagSet) string {
	if verb != "sacct" && verb != "slurm" || flags.NArg() != 1 {
		return "name sacct or slurm"
	}
	if im.cluster == "" ||
		strings.ContainsFunc(im.cluster, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "--cluster is missing: the name under which the history is kept"
	}
	if verb == "sacct" && im.file == "" {
		return "--file is missing"
	}
	only := map[string]string{
		"file":            "sacct",
		"columns":         "sacct",
		"delimiter":       "sacct",
		"skip":            "sacct",
		"zone":            "sacct",
		"bin":             "slurm",
		"slurmrestd":      "slurm",
		"slurmrestd-user": "slurm",
		"since":           "slurm",
		"every":           "slurm",
	}
	bad := ""
	flags.Visit(func(f *pflag.Flag) {
		if value := only[f.Name]; value != "" && value != verb {
			bad = "--" + f.Name + " is for import " + value
		}
	})
	if bad == "" && im.rest != "" && !isRESTAddress(im.rest) {
		bad = "--slurmrestd=" + im.rest + ": write http://HOST:PORT, https://HOST:PORT or unix:/PATH"
	}
	return bad
}

func isRESTAddress(text string) bool {
	return strings.HasPrefix(text, "unix:/") ||
		strings.HasPrefix(text, "http://") ||
		strings.HasPrefix(text, "https://")
}

func (im *importing) run(ctx context.Context, verb string) error {
	cfg, err := conffile.Load(im.config)
	if err != nil {
		return err
	}
	if own, _, err := conffile.ReadCluster(cfg); err == nil && own.ClusterName == im.cluster {
		return fmt.Errorf(
			"%s is this cluster's own name, whose history is the ledger's: choose another",
			im.cluster,
		)
	}
	opts := clickhouse.Options{Socket: cfg.ClickHouse.Embedded.Socket}
	if !cfg.UsesEmbedded() {
		dsn, err := cfg.DataSource()
		if err != nil {
			return fmt.Errorf("clickhouse.dsn: %w", err)
		}
		opts = clickhouse.Options{
			DSN:    dsn.Reveal(),
			Layout: clickhouse.Layout{Cluster: cfg.ClickHouse.Cluster},
		}
	}
	store, err := clickhouse.Open(opts)
	if err != nil {
		return err
	}
	defer store.Close()
	if err := store.Ping(ctx); err != nil {
		return fmt.Errorf("%w; the embedded engine runs while musterd does", err)
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	if im.rejects != "" {
		file, err := os.OpenFile(im.rejects, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("--rejects: %w", err)
		}
		defer file.Close()
		im.rejected = file
	}
	ledger := tally.ImportedLedger(im.cluster)
	writer, err := im.takeLease(ctx, store, ledger)
	if err != nil {
		return err
	}
	config := importer.Config{
		Ledger:   ledger,
		Store:    importer.In(store),
		Writer:   writer,
		Rejected: im.noteRejected,
		Now:      clock.NewSystem().Now(),
	}
	if verb == "slurm" {
		return im.readSlurm(ctx, config, store, writer)
	}
	return im.sacct(ctx, config)
}

// leaseWait is longer than a writer must be silent before another takes over.
const leaseWait = 20 * time.Second

// takeLease becomes the cluster's writer. After an import that ended just now that
// takes a moment; while another is at work it fails.
func (im *importing) takeLease(
	ctx context.Context,
	store *clickhouse.Store,
	ledger [16]byte,
) (*clickhouse.Writer, error) {
	for began, told := time.Now(), false; ; told = true {
		writer, err := store.NewImportWriter(ctx, ledger, im.cluster)
		if !errors.Is(err, tally.ErrLease) || time.Since(began) > leaseWait {
			return writer, err
		}
		if !told {
			fmt.Fprintf(
				im.errOut,
				"another import of %s wrote a moment ago: waiting until it is silent\n",
				im.cluster,
			)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// noteRejected notes a line that was not taken.
func (im *importing) noteRejected(reject importer.Reject) {
	if im.rejected != nil {
		fmt.Fprintf(im.rejected, "%d\t%s\t%s\n", reject.Line, reject.Reason, reject.Text)
		return
	}
	im.shown++
	if im.shown <= importer.ShownRejects {
		fmt.Fprintf(im.errOut, "line %d: %s: %s\n", reject.Line, reject.Reason, reject.Text)
	}
}

func (im *importing) sacct(ctx context.Context, config importer.Config) error {
	zone, err := time.LoadLocation(im.zone)
	if err != nil {
		return fmt.Errorf("--zone=%s: give an IANA name like Europe/Berlin", im.zone)
	}
	config.Columns = im.columns
	config.Delimiter = im.delimiter
	config.Skip = im.skip
	config.Zone = zone
	in := io.Reader(os.Stdin)
	if im.file != "-" {
		file, err := os.Open(im.file)
		if err != nil {
			return fmt.Errorf("--file: %w", err)
		}
		defer file.Close()
		in = file
	}
	began := time.Now()
	result, err := importer.Import(ctx, config, in)
	if err != nil {
		return err
	}
	return errors.Join(
		im.printResult(result, time.Since(began)), importer.RollUp(ctx, config.Writer),
	)
}

// printResult prints what an import did, and whether it adds up.
func (im *importing) printResult(result *importer.Result, took time.Duration) error {
	if rest := im.shown - importer.ShownRejects; im.rejected == nil && rest > 0 {
		fmt.Fprintf(im.errOut, "and %d more lines; --rejects FILE takes all of them\n", rest)
	}
	fmt.Fprintf(
		im.out,
		"read %s in %s: %s, %s, %d rejected\n",
		format.Plural(result.Lines, "line", "lines"),
		took.Round(10*time.Millisecond),
		format.Plural(result.Jobs, "job", "jobs"),
		format.Plural(result.Steps, "step", "steps"),
		result.Rejected,
	)
	fmt.Fprintf(
		im.out,
		"stored %s that ended and %d that have not; %d were there before\n",
		format.Plural(result.New, "run", "runs"),
		result.Open,
		result.Known,
	)
	line := func(name string, totals importer.Totals) {
		fmt.Fprintf(
			im.out,
			"  %-6s %12d runs %16.4f CPU-hours %14.4f GPU-hours %14.4f hours waited\n",
			name,
			totals.Runs,
			importer.Hours(totals.CPU),
			importer.Hours(totals.GPU),
			importer.Hours(totals.WaitedFor),
		)
	}
	line("before", result.Before)
	line("added", result.Added)
	line("now", result.After)
	if !result.Reconciled() {
		return errors.New(
			"what the store has is not what it had and what was added: look for another writer, and import again",
		)
	}
	fmt.Fprintln(im.out, "reconciled: the store has exactly what it had and what was added")
	return nil
}

// openSource is how the Slurm is asked.
func (im *importing) openSource() importer.Slurm {
	slurm := importer.Slurm{Bin: im.bin, Cluster: im.cluster}
	if im.rest != "" {
		slurm.REST = &importer.REST{
			Address: im.rest,
			User:    im.restUser,
			Token:   os.Getenv("SLURM_JWT"),
		}
	}
	return slurm
}

// readSlurm reads a live Slurm, once or again and again.
func (im *importing) readSlurm(
	ctx context.Context,
	config importer.Config,
	store *clickhouse.Store,
	writer *clickhouse.Writer,
) error {
	source := im.openSource()
	since := source.Since(writer.Position().At)
	if writer.Position().Seq == 0 {
		since = time.Now().AddDate(-1, 0, 0)
	}
	if im.since != "" {
		day, err := time.ParseInLocation(time.DateOnly, im.since, time.Local)
		if err != nil {
			return fmt.Errorf("--since=%s: write a day as in 2026-01-31", im.since)
		}
		since = day
	}
	for {
		now := time.Now()
		began, sum := now, importer.Result{}
		var err error
		if writer == nil {
			writer, err = store.NewImportWriter(ctx, config.Ledger, im.cluster)
			if err == nil {
				config.Writer = writer
			}
		}
		if err == nil {
			err = source.Pull(ctx, config, since, now, sum.Sum)
		}
		if err == nil {
			err = importer.RollUp(ctx, config.Writer)
		}
		if err == nil {
			im.storeNodes(ctx, &source, config, store, since, now)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && im.every == 0:
			return store.Explain(err)
		case err != nil: // Slurm, or the store, may be back soon
			fmt.Fprintf(im.errOut, "muster import: %v\n", store.Explain(err))
			writer = nil // what it was writing is dropped, and read again
		case im.every > 0 && sum.Lines == 0:
			since = source.Since(spec.Instant(now.UnixNano())) // nothing is new, nothing is said
		default:
			if err := im.printResult(&sum, time.Since(began)); err != nil {
				return err
			}
			if err := im.compareWithSlurm(ctx, &source, config, store, since, now); err != nil &&
				im.every == 0 {
				return err
			} else if err != nil {
				fmt.Fprintf(im.errOut, "muster import: %v\n", err)
			}
			since = source.Since(spec.Instant(now.UnixNano()))
		}
		if im.every == 0 {
			return nil
		}
		select {
		case <-time.After(im.every):
		case <-ctx.Done():
			return nil
		}
		if writer != nil {
			if err := writer.Hold(ctx); err != nil {
				fmt.Fprintf(im.errOut, "muster import: %v\n", err)
				writer = nil
			}
		}
	}
}

// storeNodes stores what the cluster's nodes had and when they were out of service;
// without it there is no utilisation, but everything else.
func (im *importing) storeNodes(
	ctx context.Context,
	source *importer.Slurm,
	config importer.Config,
	store *clickhouse.Store,
	since, now time.Time,
) {
	if source.REST != nil {
		return // their states over time are not to be had there
	}
	n, err := source.Nodes(ctx, config, store, since, now)
	switch {
	case err != nil && ctx.Err() == nil:
		fmt.Fprintf(
			im.errOut,
			"muster import: the nodes were not read, utilisation has gaps: %v\n",
			err,
		)
	case n > 0 && im.every == 0:
		fmt.Fprintf(
			im.out,
			"stored %d rows of what nodes had and when they were out of service\n",
			n,
		)
	}
}

// compareWithSlurm holds what the store has of a stretch of time against what Slurm's
// own commands add up to. Where they differ the stretch is read again.
func (im *importing) compareWithSlurm(
	ctx context.Context,
	source *importer.Slurm,
	config importer.Config,
	store *clickhouse.Store,
	from, to time.Time,
) error {
	first, last := spec.Instant(from.UnixNano()), spec.Instant(to.UnixNano())
	read := func(ctx context.Context) error {
		again := config
		again.Rejected = nil // they have been told
		err := source.Pull(ctx, again, from, to, func(*importer.Result) {})
		if err != nil {
			return err
		}
		return importer.RollUp(ctx, config.Writer)
	}
	compared, err := importer.Settle(ctx, read, func(ctx context.Context) (importer.Sums, error) {
		slurm, err := source.Ended(ctx, from, to)
		if err != nil {
			return importer.Sums{}, err
		}
		stored, err := importer.StoredEnded(ctx, store, config.Ledger, first, last)
		return importer.Sums{Slurm: slurm, Stored: stored}, err
	})
	if err != nil {
		return err
	}
	if compared.Late > 0 {
		fmt.Fprintf(
			im.out,
			"stored %s more that reached Slurm's database after it had been read\n",
			format.Plural(int(compared.Late), "run", "runs"),
		)
	}
	who := "sacct"
	if source.REST != nil {
		who = "slurmrestd"
	}
	fmt.Fprintf(
		im.out,
		"%s says that %d runs with %d CPU-seconds ended since %s; the store has %d with %d\n",
		who,
		compared.Slurm.Runs,
		compared.Slurm.CPUSeconds,
		from.Format(time.DateTime),
		compared.Stored.Runs,
		compared.Stored.CPUSeconds,
	)
	if err := im.compareWithSreport(ctx, source, config.Ledger, store, from, to); err != nil {
		return err
	}
	return im.judge(compared)
}

// judge says what a comparison has found. What came too late to be compared is no
// error: the next import reads it.
func (im *importing) judge(compared importer.Compared) error {
	slurm, stored := compared.Slurm, compared.Stored
	switch {
	case compared.Outcome == importer.Same:
		return nil
	case compared.Outcome == importer.Growing:
		fmt.Fprintf(
			im.out,
			"not compared: %s with %d CPU-seconds, which reached Slurm's database meanwhile; "+
				"the next import reads them\n",
			format.Plural(int(slurm.Runs-stored.Runs), "run", "runs"),
			slurm.CPUSeconds-stored.CPUSeconds,
		)
		return nil
	case stored.Runs > slurm.Runs:
		return fmt.Errorf(
			"the store has %d runs more than Slurm: if slurmdbd has purged them (PurgeJobAfter), give a later --since",
			stored.Runs-slurm.Runs,
		)
	case stored.Runs < slurm.Runs:
		return fmt.Errorf(
			"the store lacks %d runs that Slurm has, also after reading again: see the rejected lines (--rejects FILE)",
			slurm.Runs-stored.Runs,
		)
	}
	return errors.New(
		"the store has other CPU-seconds than Slurm for the same number of runs: " +
			"Slurm has changed records that were imported, or has purged some and got others",
	)
}

// compareWithSreport prints what sreport says beside what the store has, for whole hours.
func (im *importing) compareWithSreport(
	ctx context.Context,
	source *importer.Slurm,
	ledger [16]byte,
	store *clickhouse.Store,
	from, to time.Time,
) error {
	hour := to.Truncate(time.Hour)
	first := from.Truncate(time.Hour)
	if source.REST != nil || !first.Before(hour) {
		return nil
	}
	said, err := source.Allocated(ctx, first, hour)
	if err != nil {
		fmt.Fprintf(im.out, "sreport says nothing: %v\n", err)
		return nil
	}
	position, err := store.Position(ctx, ledger)
	if err != nil {
		return err
	}
	scope := query.Scope{
		Database: store.Database(),
		Ledger:   ledger,
		Seq:      position.Seq,
		Gen:      position.Gen,
		Now:      spec.Instant(to.UnixNano()),
	}
	ours, err := im.storedCPUTime(ctx, store, scope, first, hour)
	if err != nil {
		return err
	}
	fmt.Fprintf(
		im.out,
		"sreport says that %d CPU-seconds were allocated until %s; the store has %d (sreport follows hourly, and corrects itself later)\n",
		said,
		hour.Format(time.DateTime),
		ours,
	)
	return nil
}

// storedCPUTime is what the store has of CPU time between two instants.
func (im *importing) storedCPUTime(
	ctx context.Context,
	store *clickhouse.Store,
	scope query.Scope,
	from, to time.Time,
) (int64, error) {
	q, err := (&query.Report{Start: spec.Instant(from.UnixNano()), End: spec.Instant(to.UnixNano()), TRES: "cpu"}).Used(
		scope,
	)
	if err != nil {
		return 0, err
	}
	sum := new(big.Int)
	err = store.Query(ctx, q, func(scan func(...any) error) error {
		var account, user, text string
		var energy int64
		if err := scan(&account, &user, &text, &energy); err != nil {
			return err
		}
		if n, ok := new(big.Int).SetString(text, 10); ok {
			sum.Add(sum, n)
		}
		return nil
	})
	return sum.Div(sum, big.NewInt(1_000_000)).Int64(), err
}
