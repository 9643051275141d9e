package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec/format"
)

func kpiCommand() *command {
	return &command{
		name: "kpi", mixed: true,
		summary: "show how well the cluster is used",
		usage:   []string{"[OPTIONS]"},
		about: `Each figure has one definition, which the metrics, the dashboards and this command share; docs/kpis.md has them
with their formulas. A figure that was not measured is shown as -, never as zero.`,
		options: []opt.Option{
			{Long: "by", Short: "b", Arg: "partition|account|user|qos", Help: "one line for each instead of one for the cluster"},
			{Long: "window", Short: "w", Arg: "1h|1d|7d|30d", Help: "how far back, 1d without the option"},
			{Long: "kpi", Short: "k", Arg: "NAME,...", Help: "only these figures, by the names of docs/kpis.md; without it a table leaves out the classes of failure"},
			{Long: "clusters", Short: "M", Arg: "NAME", Help: "this cluster, or one that was imported"},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{Long: "noheader", Short: "n", Help: "print no header"},
		},
		example: []example{{"muster kpi --by account --window 7d", "compares the accounts over a week"}},
		run:     runKPI,
	}
}

// window reads 1h, 7d.
func window(text string) (ns int64, ok bool) {
	units := map[byte]int64{'m': 60, 'h': 3600, 'd': 86400, 'w': 7 * 86400}
	if len(text) < 2 {
		return 0, false
	}
	n, ok := positive(text[:len(text)-1])
	unit := units[text[len(text)-1]]
	return n * unit * second, ok && unit != 0
}

func runKPI(c *call) error {
	if len(c.args) > 0 {
		return &opt.UsageError{Command: "muster kpi", Text: "unexpected argument " + c.args[0]}
	}
	by := or(c.opts.Text("by"), "cluster")
	if !contains([]string{"cluster", "partition", "account", "user", "qos"}, by) {
		return c.errorf("--by=%s: expected partition, account, user or qos", by)
	}
	span, ok := window(or(c.opts.Text("window"), "1d"))
	if !ok {
		return c.errorf("--window=%s: expected a number with m, h, d or w, such as 7d", c.opts.Text("window"))
	}
	now := c.Now().UnixNano()
	q := &apiv1.ReportQuery{Report: "kpi", By: by, Start: now - span, End: now, Window: span, Zone: zoneName(c.Env), Cluster: c.pastCluster()}
	var rep apiv1.ReportReply
	if err := c.askFresh(methodAcctReport, q, &rep, func(seq uint64) { q.MinSeq = seq }); err != nil {
		return err
	}
	c.warnBehind(rep.GetBehind())
	if names := c.opts.Text("kpi"); names != "" {
		for _, n := range strings.Split(names, ",") {
			if _, ok := kpi.Find(n); !ok {
				return c.errorf("--kpi=%s: there is no figure %q; docs/kpis.md and `muster kpi --json` have their names", names, n)
			}
		}
		onlyFigures(&rep, func(name string) bool { return contains(strings.Split(names, ","), name) })
	} else if by != "cluster" && !c.wantsTree() {
		onlyFigures(&rep, func(name string) bool { k, ok := kpi.Find(name); return !ok || k.Class == "" })
	}
	if c.wantsTree() {
		return c.structured(c.opts.On("json"), reportTree(&rep))
	}
	return c.write([]byte(kpiText(&rep, by, !c.opts.On("noheader"), c.clock())))
}

// onlyFigures leaves only some figures in a report.
func onlyFigures(rep *apiv1.ReportReply, keep func(name string) bool) {
	var columns []*apiv1.ReportColumn
	var at []int
	for i, col := range rep.GetColumns() {
		if col.GetKind() == "text" || keep(col.GetName()) {
			columns, at = append(columns, col), append(at, i)
		}
	}
	rep.Columns = columns
	for _, r := range rep.GetRows() {
		cells := make([]*apiv1.Cell, len(at))
		for i, from := range at {
			cells[i] = r.GetCells()[from]
		}
		r.Cells = cells
	}
}

// reportTree is a report as data; what was not measured is null.
func reportTree(rep *apiv1.ReportReply) tree.Object {
	rows := tree.List{}
	for _, r := range rep.GetRows() {
		row := tree.Object{}
		for i, col := range rep.GetColumns() {
			var v any
			switch k := r.GetCells()[i].GetKind().(type) {
			case *apiv1.Cell_Text:
				v = k.Text
			case *apiv1.Cell_Int:
				v = k.Int
			case *apiv1.Cell_Float:
				v = k.Float
			}
			row = append(row, tree.Member{Key: col.GetName(), Value: v})
		}
		rows = append(rows, row)
	}
	columns := tree.List{}
	for _, col := range rep.GetColumns() {
		columns = append(columns, tree.Object{{Key: "name", Value: col.GetName()}, {Key: "kind", Value: col.GetKind()}, {Key: "unit", Value: col.GetUnit()}})
	}
	return tree.Object{{Key: "cluster", Value: rep.GetCluster()}, {Key: "start", Value: rep.GetStart() / second}, {Key: "end", Value: rep.GetEnd() / second},
		{Key: "columns", Value: columns}, {Key: "rows", Value: rows}}
}

// kpiText is a list of figures for the cluster, a table where there are
// several lines.
func kpiText(rep *apiv1.ReportReply, by string, header bool, k clock) string {
	var b strings.Builder
	if header {
		fmt.Fprintf(&b, "Cluster %s, %s to %s\n", or(rep.GetCluster(), "?"), k.time(rep.GetStart()), k.time(rep.GetEnd()))
	}
	if by == "cluster" && len(rep.GetRows()) == 1 {
		var table [][]string
		for i, col := range rep.GetColumns() {
			if col.GetKind() != "text" {
				table = append(table, []string{"  " + title(col.GetName()), figure(rep.GetRows()[0].GetCells()[i], col)})
			}
		}
		b.WriteString(aligned(table, func(i int) bool { return i == 0 }))
		return b.String()
	}
	table := make([][]string, 0, len(rep.GetRows())+1)
	if header {
		head := make([]string, len(rep.GetColumns()))
		for i, col := range rep.GetColumns() {
			head[i] = title(col.GetName())
		}
		table = append(table, head)
	}
	for _, r := range rep.GetRows() {
		line := make([]string, len(rep.GetColumns()))
		for i, col := range rep.GetColumns() {
			line[i] = figure(r.GetCells()[i], col)
		}
		table = append(table, line)
	}
	b.WriteString(aligned(table, func(col int) bool { return rep.GetColumns()[col].GetKind() == "text" }))
	return b.String()
}

// title is what people call a figure.
func title(name string) string {
	for _, k := range kpi.All() {
		if k.Name == name {
			return k.Title
		}
	}
	return name
}

// aligned lays a table out, texts to the left and numbers to the right.
func aligned(table [][]string, text func(col int) bool) string {
	var wide []int
	for _, line := range table {
		for i, cell := range line {
			if i == len(wide) {
				wide = append(wide, 0)
			}
			wide[i] = max(wide[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for _, line := range table {
		row := ""
		for i, cell := range line {
			pad := strings.Repeat(" ", wide[i]-len([]rune(cell)))
			if text(i) {
				row += cell + pad + "  "
			} else {
				row += pad + cell + "  "
			}
		}
		b.WriteString(strings.TrimRight(row, " ") + "\n")
	}
	return b.String()
}

// figure writes a value with its unit; "-" where nothing was measured.
func figure(cell *apiv1.Cell, col *apiv1.ReportColumn) string {
	if text, ok := cell.GetKind().(*apiv1.Cell_Text); ok {
		return text.Text
	}
	n, ok := amount(cell)
	if !ok || math.IsNaN(n) {
		return "-"
	}
	decimals := func(n float64, digits int) string { return strconv.FormatFloat(n, 'f', digits, 64) }
	switch kpi.Unit(col.GetUnit()) {
	case kpi.Ratio:
		return decimals(100*n, 1) + " %"
	case kpi.Seconds:
		return format.Duration(int64(n + 0.5))
	case kpi.ByteHours:
		return decimals(n/(1<<30), 1) + " GiB-hours"
	case kpi.PerDay:
		return decimals(100*n, 2) + " % per day"
	}
	if col.GetKind() == "int" {
		return strings.TrimSpace(decimals(n, 0) + " " + col.GetUnit())
	}
	return strings.TrimSpace(decimals(n, 2) + " " + col.GetUnit())
}
