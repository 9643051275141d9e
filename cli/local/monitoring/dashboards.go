package monitoring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/dashboards/preview"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/spec/format"
)

const dashboardsUsage = `muster dashboards writes Grafana's dashboards, or draws them without Grafana.

Usage:
  muster dashboards generate --out DIR      write the JSON that Grafana loads
  muster dashboards preview  --out FILE     draw every panel on one HTML page, from live data

Examples:
  muster dashboards preview --prometheus http://localhost:9090 --since 1h --out cluster.html
  muster dashboards preview --board muster-job --var job=42 --out job.html

Options:
`

// dashboardsOptions are the command line.
type dashboardsOptions struct {
	config, out, prometheus, clickhouse, database string
	user, passwordFile                            string
	boards, vars                                  []string
	since                                         time.Duration
}

// Dashboards runs `musterd dashboards`.
func Dashboards(args []string, out, errOut io.Writer) int {
	var options dashboardsOptions
	flags := pflag.NewFlagSet("muster dashboards", pflag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.StringVar(&options.out, "out", "", "`file` (preview) or folder (generate) to write")
	flags.StringVar(
		&options.prometheus,
		"prometheus",
		"http://localhost:9090",
		"`address` of Prometheus or VictoriaMetrics",
	)
	conffile.AddFlag(
		flags,
		&options.config,
		"muster.yaml `file`, which says where the embedded accounting store is",
	)
	flags.StringVar(
		&options.clickhouse,
		"clickhouse",
		"",
		"`address` of a ClickHouse server's HTTP interface, or path of a socket (default: the embedded engine's)",
	)
	flags.StringVar(&options.database, "database", "muster", "database of the accounting store")
	flags.StringVar(&options.user, "clickhouse-user", "", "login at a ClickHouse server")
	flags.StringVar(
		&options.passwordFile,
		"clickhouse-password-file",
		"",
		"`file` with the password of the login",
	)
	flags.StringSliceVar(
		&options.boards,
		"board",
		nil,
		"draw only this dashboard (its UID; repeatable)",
	)
	flags.StringArrayVar(
		&options.vars,
		"var",
		nil,
		"choose a value, `name=value` (repeatable; default: the first cluster, a job that runs, all of everything else)",
	)
	flags.DurationVar(&options.since, "since", time.Hour, "how far back to look")
	help := flags.BoolP("help", "h", false, "print this help and exit")
	flags.Usage = func() { fmt.Fprint(errOut, dashboardsUsage, flags.FlagUsages()) }
	if err := flags.Parse(args); err != nil {
		fmt.Fprintf(errOut, "muster dashboards: %v\n", err)
		return 2
	}
	if *help {
		fmt.Fprint(out, dashboardsUsage, flags.FlagUsages())
		return 0
	}
	verbs := map[string]func(dashboardsOptions, io.Writer) error{
		"generate": dashboardsGenerate,
		"preview":  dashboardsPreview,
	}
	run := verbs[flags.Arg(0)]
	switch {
	case flags.NArg() != 1 || run == nil:
		fmt.Fprintln(errOut, "muster dashboards: say generate or preview (see --help)")
		return 2
	case options.out == "":
		fmt.Fprintf(errOut, "muster dashboards %s: say where to: --out\n", flags.Arg(0))
		return 2
	}
	if err := run(options, out); err != nil {
		fmt.Fprintf(errOut, "muster dashboards %s: %v\n", flags.Arg(0), err)
		return 1
	}
	return 0
}

func dashboardsGenerate(options dashboardsOptions, out io.Writer) error {
	files, err := dashboards.Files()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(options.out, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		if err := os.WriteFile(
			filepath.Join(options.out, file.Name), file.Data, 0o644,
		); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "wrote %d dashboards into %s\n", len(files), options.out)
	return nil
}

// source finds out where the data is.
func (o dashboardsOptions) source() (preview.Source, error) {
	source := preview.Source{
		Prometheus: o.prometheus,
		ClickHouse: o.clickhouse,
		Database:   o.database,
		User:       o.user,
	}
	if source.ClickHouse == "" {
		config, err := conffile.Load(o.config)
		if err != nil {
			return source, fmt.Errorf("%w (or name the accounting store with --clickhouse)", err)
		}
		source.ClickHouse = config.ClickHouse.Embedded.Socket
		if config.ClickHouse.DSN != "" || config.ClickHouse.DSNFile != "" {
			return source, errors.New(
				"the accounting store is a server: name its HTTP interface with --clickhouse",
			)
		}
	}
	if o.passwordFile != "" {
		data, err := os.ReadFile(o.passwordFile)
		if err != nil {
			return source, err
		}
		source.Password = strings.TrimSpace(string(data))
	}
	return source.Open(), nil
}

// scope is the choices at the dashboards' tops.
func (o dashboardsOptions) scope(
	ctx context.Context,
	source preview.Source,
) (dashboards.Scope, error) {
	now := time.Now().Truncate(time.Second)
	scope := dashboards.Scope{
		Vars: map[string][]string{},
		From: now.Add(-o.since),
		To:   now,
		Step: max(time.Second, (o.since / 240).Truncate(time.Second)),
	}
	for _, v := range o.vars {
		name, value, ok := strings.Cut(v, "=")
		if !ok || name == "" {
			return scope, fmt.Errorf("--var %s: want name=value", v)
		}
		if known := variables(); !slices.Contains(known, name) {
			return scope, fmt.Errorf(
				"--var %s: no dashboard has the variable %s; they have %s",
				v,
				name,
				strings.Join(known, ", "),
			)
		}
		if value == "" {
			return scope, fmt.Errorf("--var %s: has no value; leave it out for all", v)
		}
		scope.Vars[name] = append(scope.Vars[name], value)
	}
	clusters, err := source.Values(ctx, "muster_nodes", "cluster")
	if err != nil {
		return scope, fmt.Errorf("prometheus at %s: %w", o.prometheus, err)
	}
	if len(clusters) == 0 && scope.Vars["cluster"] == nil {
		return scope, fmt.Errorf(
			"prometheus at %s has no series of Muster: does it scrape the controller?",
			o.prometheus,
		)
	}
	if scope.Vars["cluster"] == nil {
		scope.Vars["cluster"] = clusters[:1]
	}
	for _, name := range scope.Vars["cluster"] {
		if !slices.Contains(clusters, name) {
			return scope, fmt.Errorf(
				"prometheus at %s has no cluster %s; it has %s",
				o.prometheus,
				name,
				strings.Join(clusters, ", "),
			)
		}
	}
	if scope.Vars["job"] == nil {
		job, err := source.RunningJob(ctx, scope)
		if err != nil {
			return scope, fmt.Errorf("prometheus at %s: %w", o.prometheus, err)
		}
		scope.Vars["job"] = []string{job}
	}
	return scope, nil
}

// variables are the names of the variables of all dashboards.
func variables() []string {
	var out []string
	for _, board := range dashboards.All() {
		for _, v := range board.Vars {
			out = append(out, v.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// chosen are the dashboards to draw.
func (o dashboardsOptions) chosen() ([]dashboards.Board, error) {
	all := dashboards.All()
	if len(o.boards) == 0 {
		return all, nil
	}
	var names []string
	for _, board := range all {
		names = append(names, board.UID)
	}
	for _, uid := range o.boards {
		if !slices.Contains(names, uid) {
			return nil, fmt.Errorf(
				"no dashboard is called %s; there are %s",
				uid,
				strings.Join(names, ", "),
			)
		}
	}
	return slices.DeleteFunc(
		all,
		func(b dashboards.Board) bool { return !slices.Contains(o.boards, b.UID) },
	), nil
}

func dashboardsPreview(options dashboardsOptions, out io.Writer) error {
	boards, err := options.chosen()
	if err != nil {
		return err
	}
	if options.since < time.Minute {
		return fmt.Errorf("--since %s: want a minute or more", options.since)
	}
	source, err := options.source()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	scope, err := options.scope(ctx, source)
	if err != nil {
		return err
	}
	file, err := os.Create(options.out)
	if err != nil {
		return err
	}
	results, err := preview.Page{Boards: boards, Scope: scope, Source: source}.Write(ctx, file)
	err = errors.Join(err, file.Close())
	if err != nil {
		return err
	}
	empty, failed := 0, tell(out, results)
	for _, result := range results {
		if result.Empty {
			empty++
		}
	}
	fmt.Fprintf(
		out,
		"wrote %s: %s, %d of them without data now, %d failed\n",
		options.out,
		format.Plural(len(results), "panel", "panels"),
		empty,
		failed,
	)
	if failed > 0 {
		return errors.New("queries failed for " + format.Plural(failed, "panel", "panels"))
	}
	return nil
}

// tell says what failed, once for all panels with the same cause, and counts
// them.
func tell(out io.Writer, results []preview.Result) (failed int) {
	panels := map[string][]preview.Result{}
	var causes []string
	for _, result := range results {
		if result.Err == nil {
			continue
		}
		failed++
		cause := result.Err.Error()
		if inner := errors.Unwrap(result.Err); inner != nil {
			cause = inner.Error() // without the question
		}
		if panels[cause] == nil {
			causes = append(causes, cause)
		}
		panels[cause] = append(panels[cause], result)
	}
	for _, cause := range causes {
		if list := panels[cause]; len(list) > 1 {
			fmt.Fprintf(
				out,
				"%d panels, %s / %s the first: %s\n",
				len(list),
				list[0].Board,
				list[0].Panel,
				cause,
			)
		} else {
			fmt.Fprintf(out, "%s / %s: %v\n", list[0].Board, list[0].Panel, list[0].Err)
		}
	}
	return failed
}
