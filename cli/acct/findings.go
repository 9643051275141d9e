package acct

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

func Findings() *tool.Command {
	return &tool.Command{
		Name: "findings", Mixed: true,
		Summary: "list what wastes most of the cluster, with the line that would fix it",
		Usage:   []string{"[OPTIONS]"},
		About: `A finding is a change that somebody could make, and what it would have saved in the window: GPUs held
without work, programs that fail in their first minute again and again, runs that reached a limit, nodes of a run that
waited for another, nodes and GPUs that are drained or slower than their peers under the same programs, CPUs and memory
that no program used. Job names are taken without their numbers, so
that train-1 and train-2 are the same work. What would save most is first: by money where cost.prices are set, at the
price at the window's end, otherwise by GPU time.

Every GPU-hour of a finding is taken from one step of the goodput ladder, none twice; the last table adds findings and
what is left of each step up to what was bought. --sql prints for each finding the question for muster sql that lists
its runs.

The findings of the window before are followed up. "done" means that the wasted share is at most half of what it was.
"saved" is the waste that was avoided since then, reckoned for what was held in this window.

Runs that are unlike the earlier runs of the same user, job name and size are listed apart: they are a question, not a
saving. Compared are GPU and CPU utilisation, memory, reading, writing and run time with at least eight runs that completed
in the 28 days before the window.

muster report findings prints the same, also as HTML, as CSV and by mail; reports.mail in muster.yaml sends it on a
schedule.`,
		Options: []opt.Option{
			{Long: "window", Short: "w", Arg: "1d|7d|30d", Help: "length of the window, ending now (default: 7d)"},
			{Long: "start", Short: "S", Arg: "TIME", Help: "start of the window, instead of --window"},
			{Long: "end", Short: "E", Arg: "TIME", Help: "end of the window (default: now)"},
			{Long: "users", Short: "u", Arg: "NAME,...", Help: "restrict to the work of these users"},
			{Long: "accounts", Short: "A", Arg: "NAME,...", Help: "restrict to the work of these accounts"},
			{Long: "lines", Short: "l", Arg: "N", Help: "maximum number of findings (default: 20)"},
			{Long: "clusters", Short: "M", Arg: "NAME", Help: "cluster to show: this one, or an imported one"},
			{Long: "sql", Help: "print the question for muster sql behind each finding"},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
		},
		Example: []tool.Example{
			{Line: "muster findings --window 30d", What: "lists what wasted most in 30 days"},
			{Line: "muster findings --users alice --sql", What: "lists what alice could change, with the runs behind it"},
		},
		Run: runFindings,
	}
}

func runFindings(call *tool.Call) error {
	if len(call.Operands) > 0 {
		return &opt.UsageError{
			Command: "muster findings",
			Text:    fmt.Sprintf("unexpected argument %q", call.Operands[0]),
		}
	}
	r := &reporting{Call: call}
	if err := r.readWindow("7d"); err != nil {
		return err
	}
	if err := r.reportFindings(""); err != nil {
		return err
	}
	return r.printReport()
}

// reportFindings makes the page of findings: of one user, of those that options
// name, or of all with the goodput ladder that they add up with.
func (r *reporting) reportFindings(user string) error {
	if user != "" {
		r.query.Users = []string{user}
	}
	list, err := r.runReport("findings", "", nil)
	if err != nil {
		return err
	}
	r.table = list
	r.page.title = "Findings, " + r.span()
	r.page.parts = append(r.page.parts, findingsPart(list))
	advice := part{heading: "What to do"}
	for i, row := range render.ReportRows(list) {
		line := fmt.Sprintf("#%d: %s", i+1, row.Text("advice"))
		if change := row.Text("change"); change != "" {
			line = fmt.Sprintf("#%d: %s  (%s)", i+1, change, row.Text("advice"))
		}
		advice.list = append(advice.list, line)
		if r.Opts.On("sql") {
			advice.list = append(advice.list, row.Text("evidence"))
		}
	}
	if len(advice.list) > 0 {
		r.page.parts = append(r.page.parts, advice)
	}
	r.tree = append(r.tree, tree.Member{Key: "findings", Value: reportTree(list)})

	followed, err := r.runReport("findings followed", "", nil)
	if err != nil {
		return err
	}
	if len(followed.GetRows()) > 0 {
		r.page.parts = append(r.page.parts, followedPart(followed))
	}
	r.tree = append(r.tree, tree.Member{Key: "followed", Value: reportTree(followed)})

	unlike, err := r.runReport("findings unlike", "", nil)
	if err != nil {
		return err
	}
	if len(unlike.GetRows()) > 0 {
		r.page.parts = append(r.page.parts, r.unlikeParts(unlike)...)
	}
	r.tree = append(r.tree, tree.Member{Key: "unlike", Value: reportTree(unlike)})

	if len(r.query.GetUsers())+len(r.query.GetAccounts()) > 0 {
		return nil // the ladder is of the whole cluster
	}
	sum, err := r.runReport("findings sum", "", nil)
	if err != nil {
		return err
	}
	p := part{
		heading: "Where the GPU time went, in GPU-hours, and what of it is in findings",
		head:    []string{"Step", "What", "All", "In findings", "Rest"},
		texts:   2,
	}
	for _, row := range render.ReportRows(sum) {
		if row.Number("gpu_us") == 0 {
			continue
		}
		p.rows = append(p.rows, []string{
			row.Text("step"),
			row.Text("what"),
			row.Hours("gpu_us"),
			row.Hours("found_us"),
			row.Hours("rest_us"),
		})
	}
	if len(p.rows) > 0 {
		r.page.parts = append(r.page.parts, p)
	}
	r.tree = append(r.tree, tree.Member{Key: "ladder", Value: reportTree(sum)})
	return nil
}

func findingsPart(reply *apiv1.ReportReply) part {
	unit := ""
	for _, column := range reply.GetColumns() {
		if column.GetName() == "value" {
			unit = column.GetUnit()
		}
	}
	p := part{
		head: []string{
			"#", "Kind", "User (account)", "Work", "Runs",
			strings.TrimSpace("Value " + unit), "GPU-hours", "CPU-hours", "GiB-hours",
		},
		texts: 4,
		none:  "Nothing was found.",
	}
	for i, row := range render.ReportRows(reply) {
		who, what := row.Whose()
		p.rows = append(p.rows, []string{
			fmt.Sprint(i + 1),
			row.Text("kind"),
			who,
			what,
			fmt.Sprint(row.Number("runs")),
			row.Money("value"),
			row.Hours("gpu_us"),
			row.Hours("cpu_us"),
			row.MemoryHours("mem_mib_us"),
		})
	}
	return p
}

func followedPart(reply *apiv1.ReportReply) part {
	p := part{
		heading: "What became of the findings of the window before, in hours of the resource",
		head:    []string{"Kind", "User (account)", "Work", "Progress", "Resource", "Before", "Now", "Saved", "Value"},
		texts:   5,
	}
	for _, row := range render.ReportRows(reply) {
		who, what := row.Whose()
		p.rows = append(p.rows, []string{
			row.Text("kind"),
			who,
			what,
			row.Text("progress"),
			row.Text("resource"),
			row.FollowedHours("before_us"),
			row.FollowedHours("now_us"),
			row.FollowedHours("saved_us"),
			row.Money("saved_value"),
		})
	}
	return p
}

// unlikeParts lists runs that are unlike their user's earlier ones.
func (r *reporting) unlikeParts(reply *apiv1.ReportReply) []part {
	p := part{
		heading: "Runs unlike earlier runs of the same user, job name and size",
		head:    []string{"Job", "User (account)", "Work", "State", "What", "Now", "Usual", "Range", "Runs", "GPU-hours"},
		texts:   5,
	}
	var evidence []string
	for _, row := range render.ReportRows(reply) {
		who, what := row.Whose()
		p.rows = append(p.rows, []string{
			row.RunText(),
			who,
			what,
			row.Text("state"),
			row.Text("measure"),
			row.Measure("value"),
			row.Measure("median"),
			row.Measure("first_quartile") + " to " + row.Measure("third_quartile"),
			fmt.Sprint(row.Number("earlier_runs")),
			row.Hours("held_us"),
		})
		line := row.Text("evidence")
		if r.Opts.On("sql") && !slices.Contains(evidence, line) {
			evidence = append(evidence, line)
		}
	}
	if len(evidence) == 0 {
		return []part{p}
	}
	return []part{p, {heading: "The earlier runs", list: evidence}}
}
