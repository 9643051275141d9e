package acct

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
)

func Findings() *tool.Command {
	return &tool.Command{
		Name: "findings", Mixed: true,
		Summary: "list what wastes most of the cluster, with the line that would fix it",
		Usage:   []string{"[OPTIONS]"},
		About: `A finding is a change that somebody could make, and what it would have saved in the window: GPUs held
without work, programs that fail in their first minute again and again, runs that reached a limit, nodes that are
drained or slower than their peers, CPUs and memory that no program used. Job names are taken without their numbers, so
that train-1 and train-2 are the same work. What would save most is first: by money where cost.prices are set, at the
price at the window's end, otherwise by GPU time.

Every GPU-hour of a finding is taken from one step of the goodput ladder, none twice; the last table adds findings and
what is left of each step up to what was bought. --sql prints for each finding the question for muster sql that lists
its runs.

The findings of the window before are followed up. "done" means that the wasted share is at most half of what it was.
"saved" is the waste that was avoided since then, reckoned for what was held in this window.

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
	for i, row := range list.GetRows() {
		text := func(name string) string { return cellOf(list, row, name).GetText() }
		line := fmt.Sprintf("#%d: %s", i+1, text("advice"))
		if change := text("change"); change != "" {
			line = fmt.Sprintf("#%d: %s  (%s)", i+1, change, text("advice"))
		}
		advice.list = append(advice.list, line)
		if r.Opts.On("sql") {
			advice.list = append(advice.list, text("evidence"))
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
	for _, row := range sum.GetRows() {
		n := func(name string) int64 { return cellOf(sum, row, name).GetInt() }
		if n("gpu_us") == 0 {
			continue
		}
		p.rows = append(p.rows, []string{
			cellOf(sum, row, "step").GetText(), cellOf(sum, row, "what").GetText(),
			hoursText(n("gpu_us")), hoursText(n("found_us")), hoursText(n("rest_us")),
		})
	}
	if len(p.rows) > 0 {
		r.page.parts = append(r.page.parts, p)
	}
	r.tree = append(r.tree, tree.Member{Key: "ladder", Value: reportTree(sum)})
	return nil
}

// cellOf is a row's cell by the name of its column.
func cellOf(rep *apiv1.ReportReply, row *apiv1.ReportRow, name string) *apiv1.Cell {
	for i, column := range rep.GetColumns() {
		if column.GetName() == name {
			return row.GetCells()[i]
		}
	}
	return nil
}

// hoursText writes microseconds of a resource as hours of it.
func hoursText(us int64) string { return fmt.Sprintf("%.2f", float64(us)/3.6e9) }

// moneyText writes an amount of money, or - without prices.
func moneyText(cell *apiv1.Cell) string {
	if cell.GetNull() {
		return "-"
	}
	return fmt.Sprintf("%.2f", cell.GetFloat())
}

// about says whose a finding is and about which work or node.
func about(rep *apiv1.ReportReply, row *apiv1.ReportRow) (who, what string) {
	text := func(name string) string { return cellOf(rep, row, name).GetText() }
	if node := text("node"); node != "" {
		return "-", "node " + node
	}
	return text("user") + " (" + text("account") + ")", cmp.Or(text("job_name"), "(no name)")
}

func findingsPart(rep *apiv1.ReportReply) part {
	unit := ""
	for _, column := range rep.GetColumns() {
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
	for i, row := range rep.GetRows() {
		n := func(name string) int64 { return cellOf(rep, row, name).GetInt() }
		who, what := about(rep, row)
		p.rows = append(p.rows, []string{
			fmt.Sprint(i + 1), cellOf(rep, row, "kind").GetText(), who, what, fmt.Sprint(n("runs")),
			moneyText(cellOf(rep, row, "value")),
			hoursText(n("gpu_us")), hoursText(n("cpu_us")), hoursText(n("mem_mib_us") / 1024),
		})
	}
	return p
}

func followedPart(rep *apiv1.ReportReply) part {
	p := part{
		heading: "What became of the findings of the window before, in hours of the resource",
		head:    []string{"Kind", "User (account)", "Work", "Progress", "Resource", "Before", "Now", "Saved", "Value"},
		texts:   5,
	}
	for _, row := range rep.GetRows() {
		text := func(name string) string { return cellOf(rep, row, name).GetText() }
		n := func(name string) int64 { return cellOf(rep, row, name).GetInt() }
		scale := int64(1)
		if text("resource") == "memory" {
			scale = 1024
		}
		who, what := about(rep, row)
		p.rows = append(p.rows, []string{
			text("kind"), who, what, text("progress"), text("resource"),
			hoursText(n("before_us") / scale), hoursText(n("now_us") / scale),
			hoursText(n("saved_us") / scale), moneyText(cellOf(rep, row, "saved_value")),
		})
	}
	return p
}
