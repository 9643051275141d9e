package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/dashboards"
)

// boardsBench asks an accounting store of made-up jobs what the panels of the dashboards ask,
// as Grafana does: past our service, straight to the store.
type boardsBench struct {
	jobs, months, hours, times int
	dir                        string
	keep                       bool
	only                       string
}

func (*boardsBench) help() string {
	return `muster-bench boards makes a store of jobs that never were, as muster-bench accounting does, with
samples of its 8,000 GPUs every ten seconds, and asks it every SQL query of every panel: over
the time that its dashboard shows at first, and over all months. It needs the ClickHouse
engine and disk: about 100 bytes a job, and 10 MB for each hour of samples.

Usage:
  muster-bench boards [options]

Examples:
  muster bench boards
  muster bench boards --dir /var/tmp/boards --keep      # the next call uses the store as it is
  muster bench boards --dir /var/tmp/boards --keep --only "Devices by idle time"
`
}

func (b *boardsBench) flags(flags *pflag.FlagSet) {
	flags.IntVar(&b.jobs, "jobs", 1_000_000, "jobs in the store")
	flags.IntVar(&b.months, "months", 1, "months of 30 days over which they are spread")
	flags.IntVar(&b.hours, "sample-hours", 6, "hours before the end of which the GPUs have samples")
	flags.IntVar(&b.times, "times", 3, "how often each panel is asked")
	flags.StringVar(
		&b.dir,
		"dir",
		"",
		"folder for the store (default: a temporary one); one that is there already is used as it is",
	)
	flags.BoolVar(&b.keep, "keep", false, "leave the store where it is")
	flags.StringVar(&b.only, "only", "", "ask only the panels whose title holds this")
}

func (b *boardsBench) check() error {
	return checkPositive(map[string]int{"jobs": b.jobs, "months": b.months, "sample-hours": b.hours, "times": b.times})
}

// boardsResult is what was found.
type boardsResult struct {
	Jobs    int           `json:"jobs"`
	Months  int           `json:"months"`
	Fill    float64       `json:"fill_seconds"`
	Panels  []panelResult `json:"panels"`
	Machine machine       `json:"machine"`
}

// panelResult is one query of a panel over one stretch of time.
type panelResult struct {
	Board  string  `json:"board"`
	Title  string  `json:"title"`
	Window string  `json:"window"` // how far back; empty: the query knows no time
	Wall   float64 `json:"wall_seconds"`
	CPU    float64 `json:"cpu_seconds"` // of the engine
	Rows   int     `json:"rows"`
	Digest string  `json:"digest"` // of the rows, with figures to six digits: the same for the same answer
	Failed string  `json:"failed,omitempty"`
}

func (r *boardsResult) text(w io.Writer) {
	fmt.Fprintf(w, "%d jobs over %d months, made in %.1f s\n", r.Jobs, r.Months, r.Fill)
	fmt.Fprintf(w, "%-18s %-48s %8s %8s %8s %7s  %s\n", "dashboard", "panel", "window", "CPU s", "wall s", "rows", "digest")
	slow := 0
	for _, p := range r.Panels {
		fmt.Fprintf(w, "%-18s %-48s %8s %8.2f %8.2f %7d  %s %s\n", p.Board, p.Title, p.Window, p.CPU, p.Wall, p.Rows, p.Digest, p.Failed)
		if p.Wall > 1 {
			slow++
		}
	}
	fmt.Fprintf(w, "%d of %d took more than a second\n", slow, len(r.Panels))
	r.Machine.text(w)
}

func (b *boardsBench) run(ctx context.Context, p *progress) (result, error) {
	res := &boardsResult{Jobs: b.jobs, Months: b.months, Machine: machineNow()}
	store, err := openBenchStore(ctx, b.dir, b.keep)
	if err != nil {
		return nil, err
	}
	defer store.close()
	f := newFill(b.jobs, b.months)
	position, err := store.Position(ctx, f.ledger)
	if err != nil {
		return nil, err
	}
	if position.Seq == 0 {
		began := time.Now()
		// The position comes last, and says that the store is complete.
		if err := f.runWithSamples(ctx, store.Store, b.hours, p); err != nil {
			return nil, err
		}
		res.Fill = time.Since(began).Seconds()
	}
	largest, err := largestJob(ctx, store)
	if err != nil {
		return nil, err
	}
	asker := newPanelAsker(store, b.times)
	defer asker.client.CloseIdleConnections()
	end := time.Unix(0, int64(f.endInstant())).UTC()
	all := time.Duration(b.months) * 30 * 24 * time.Hour
	for _, board := range dashboards.All() {
		for _, row := range board.Rows {
			for _, panel := range row.Panels {
				if !strings.Contains(panel.Title, b.only) {
					continue
				}
				for _, q := range panel.Queries {
					if q.Lang != dashboards.SQL {
						continue
					}
					p.say("%s", panel.Title)
					scope := dashboards.Scope{Vars: map[string][]string{"cluster": {"peer"}, "job": {largest}}, To: end}
					for _, window := range windowsOf(board, q, all) {
						res.Panels = append(res.Panels, asker.ask(ctx, board, panel, q, scope, window))
					}
				}
			}
		}
	}
	slices.SortStableFunc(res.Panels, func(x, y panelResult) int { return cmp.Compare(y.Wall, x.Wall) })
	res.Machine.after()
	return res, ctx.Err()
}

// largestJob is the number of the last of the jobs with most devices: the worst case of the
// dashboard of a job.
func largestJob(ctx context.Context, store *benchStore) (string, error) {
	var job uint32
	err := store.Query(ctx, query.Query{SQL: "SELECT job_id FROM `" + store.Database() + "`.jobs ORDER BY alloc_gpus DESC, uid DESC LIMIT 1"},
		func(scan func(...any) error) error { return scan(&job) })
	return strconv.FormatUint(uint64(job), 10), err
}

// windowsOf are the stretches of time that a query is asked for, 0 if it knows none.
func windowsOf(board dashboards.Board, q dashboards.Query, all time.Duration) []time.Duration {
	if !strings.Contains(q.Expr, "$__") {
		return []time.Duration{0}
	}
	own := 6 * time.Hour
	if text, ok := strings.CutPrefix(board.From, "now-"); ok {
		unit := time.Hour
		if strings.HasSuffix(text, "d") {
			unit = 24 * time.Hour
		}
		if n, err := strconv.Atoi(text[:len(text)-1]); err == nil {
			own = time.Duration(n) * unit
		}
	}
	if own >= all {
		return []time.Duration{all}
	}
	return []time.Duration{own, all}
}

// panelAsker asks the engine, as Grafana's data source does.
type panelAsker struct {
	client *http.Client
	url    string
	engine int // process
	times  int
}

func newPanelAsker(store *benchStore, times int) *panelAsker {
	socket := store.engine.Socket()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &panelAsker{
		client: &http.Client{Transport: &http.Transport{DialContext: dial}},
		url:    "http://engine/?database=" + store.Database(),
		engine: store.engine.PID(),
		times:  times,
	}
}

// maxPoints is how many points Grafana asks a panel as wide as a screen for.
const maxPoints = 1000

// ask asks one query some times: the least wall time of these, and the mean CPU time.
func (a *panelAsker) ask(
	ctx context.Context,
	board dashboards.Board,
	panel dashboards.Panel,
	q dashboards.Query,
	scope dashboards.Scope,
	window time.Duration,
) panelResult {
	out := panelResult{Board: strings.TrimPrefix(board.UID, "muster-"), Title: panel.Title}
	if window > 0 {
		out.Window = fmt.Sprintf("%.0f h", window.Hours())
	}
	scope.From, scope.Step = scope.To.Add(-window), max(window/maxPoints, 15*time.Second).Round(time.Second)
	sql, err := scope.Expand(q)
	if err != nil {
		out.Failed = err.Error()
		return out
	}
	busy := processSeconds(a.engine)
	for n := range a.times {
		began := time.Now()
		body, err := a.post(ctx, sql)
		if err != nil {
			out.Failed = err.Error()
			return out
		}
		if wall := time.Since(began).Seconds(); n == 0 || wall < out.Wall {
			out.Wall = wall
		}
		out.Rows, out.Digest, err = digestRows(body)
		if err != nil {
			out.Failed = err.Error()
			return out
		}
	}
	out.CPU = (processSeconds(a.engine) - busy) / float64(a.times)
	return out
}

func (a *panelAsker) post(ctx context.Context, sql string) ([]byte, error) {
	request, err := http.NewRequestWithContext(
		ctx, http.MethodPost, a.url, strings.NewReader(sql+" FORMAT JSONCompact"),
	)
	if err != nil {
		return nil, err
	}
	resp, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", resp.Status, body)
	}
	return body, err
}

// digestRows counts the rows of an answer and sums them up in a few letters, whatever their
// order: rows that are alike in what they are sorted by come in any.
func digestRows(body []byte) (rows int, digest string, err error) {
	var answer struct {
		Data [][]any `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, "", err
	}
	var lines []string
	for _, row := range answer.Data {
		var line strings.Builder
		for _, cell := range row {
			if figure, ok := cell.(float64); ok {
				fmt.Fprintf(&line, "%.6g\t", figure)
				continue
			}
			fmt.Fprintf(&line, "%v\t", cell)
		}
		lines = append(lines, line.String())
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return len(lines), fmt.Sprintf("%x", sum[:4]), nil
}
