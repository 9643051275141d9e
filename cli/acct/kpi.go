package acct

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
)

func KPI() *tool.Command {
	return &tool.Command{
		Name: "kpi", Mixed: true,
		Summary: "show how well the cluster is used",
		Usage:   []string{"[OPTIONS]"},
		About: `The metrics, the dashboards and this command share one definition of each KPI; docs/kpis.md lists
them with their formulas. A value that was not measured is shown as -, never as zero.`,
		Options: []opt.Option{
			{
				Long:  "by",
				Short: "b",
				Arg:   "partition|account|user|qos",
				Help:  "show one line for each instead of one for the cluster",
			},
			{
				Long:  "window",
				Short: "w",
				Arg:   "1h|1d|7d|30d",
				Help:  "length of the window, ending now (default: 1d)",
			},
			{
				Long:  "kpi",
				Short: "k",
				Arg:   "NAME,...",
				Help:  "KPIs to show, by their names in docs/kpis.md (default: all, and with --by those that fit a line)",
			},
			{Long: "all", Short: "a", Help: "with --by, show all KPIs but those of the failure classes"},
			{
				Long:  "clusters",
				Short: "M",
				Arg:   "NAME",
				Help:  "cluster to show: this one, or an imported one",
			},
			{Long: "json", Help: "print JSON"},
			{Long: "yaml", Help: "print YAML"},
			{Long: "noheader", Short: "n", Help: "omit the header"},
		},
		Example: []tool.Example{
			{
				Line: "muster kpi --by account --window 7d",
				What: "compares the accounts over a week",
			},
		},
		Run: runKPI,
	}
}

func runKPI(call *tool.Call) error {
	if len(call.Operands) > 0 {
		return &opt.UsageError{Command: "muster kpi", Text: "unexpected argument " +
			call.Operands[0]}
	}
	by := cmp.Or(call.Opts.Text("by"), "cluster")
	if !slices.Contains([]string{"cluster", "partition", "account", "user", "qos"}, by) {
		return call.Errorf("--by=%s: expected partition, account, user or qos", by)
	}
	span, ok := tool.ParseWindow(cmp.Or(call.Opts.Text("window"), "1d"))
	if !ok {
		return call.Errorf(
			"--window=%s: expected a number with m, h, d or w, such as 7d",
			call.Opts.Text("window"),
		)
	}
	now := call.Now().UnixNano()
	query := &apiv1.ReportQuery{
		Report:  "kpi",
		By:      by,
		Start:   now - span,
		End:     now,
		Window:  span,
		Zone:    tool.ZoneName(call.Env),
		Cluster: call.PastCluster(),
	}
	var reply apiv1.ReportReply
	if err := fetch.UpToDate(call, tool.MethodAcctReport, query, &reply, func(seq uint64) {
		query.MinSeq = seq
	}); err != nil {
		return err
	}
	fetch.WarnBehind(call, reply.GetBehind())
	if names := call.Opts.Text("kpi"); names != "" {
		for _, name := range strings.Split(names, ",") {
			if _, ok := kpi.Find(name); !ok {
				return call.Errorf(
					"--kpi=%s: there is no figure %q; docs/kpis.md and `muster kpi --json` have their names",
					names,
					name,
				)
			}
		}
		onlyFigures(
			&reply,
			func(name string) bool { return slices.Contains(strings.Split(names, ","), name) },
		)
	} else if by != "cluster" && !render.WantsDocument(call) {
		keep := comparesKeys
		if call.Opts.On("all") {
			keep = isNoFailureClass
		}
		onlyFigures(&reply, keep)
	}
	if render.WantsDocument(call) {
		return render.Print(call, reportTree(&reply)...)
	}
	title := render.FigureTitle
	if call.Opts.Text("kpi") == "" && !call.Opts.On("all") {
		title = columnTitle
	}
	return call.WriteOut(
		[]byte(kpiText(&reply, by, !call.Opts.On("noheader"), title, render.NewClock(call.Env))),
	)
}

// columnTitles are the KPIs that a table by account, user, partition or QOS has, with heads that
// leave the line as narrow as a terminal. The others are for --all, --kpi and --json.
func columnTitles() map[string]string {
	return map[string]string{
		"cpu_efficiency":     "CPU eff.",
		"memory_waste_share": "Mem. waste",
		"gpu_occupancy":      "GPU occ.",
		"gpu_idle":           "GPU idle",
		"gpu_allocation":     "GPU alloc.",
		"wait_p50":           "Wait P50",
		"wait_p95":           "Wait P95",
		"failure_rate":       "Failed",
	}
}

func comparesKeys(name string) bool {
	_, ok := columnTitles()[name]
	return ok
}

func isNoFailureClass(name string) bool {
	k, ok := kpi.Find(name)
	return !ok || k.Class == ""
}

// columnTitle is the short head of a KPI, where it has one.
func columnTitle(name string) string {
	return cmp.Or(columnTitles()[name], render.FigureTitle(name))
}

// onlyFigures leaves only some figures in a report.
func onlyFigures(reply *apiv1.ReportReply, keep func(name string) bool) {
	var columns []*apiv1.ReportColumn
	var at []int
	for i, column := range reply.GetColumns() {
		if column.GetKind() == "text" || keep(column.GetName()) {
			columns, at = append(columns, column), append(at, i)
		}
	}
	reply.Columns = columns
	for _, reportRow := range reply.GetRows() {
		cells := make([]*apiv1.Cell, len(at))
		for i, from := range at {
			cells[i] = reportRow.GetCells()[from]
		}
		reportRow.Cells = cells
	}
}

// kpiText is a list of figures for the cluster, a table where there are
// several lines.
func kpiText(
	reply *apiv1.ReportReply, by string, header bool, title func(name string) string, clock render.Clock,
) string {
	var text strings.Builder
	if header {
		fmt.Fprintf(
			&text,
			"Cluster %s, %s to %s\n",
			cmp.Or(reply.GetCluster(), "?"),
			clock.Time(reply.GetStart()),
			clock.Time(reply.GetEnd()),
		)
	}
	if by == "cluster" && len(reply.GetRows()) == 1 {
		var table [][]string
		for i, column := range reply.GetColumns() {
			if column.GetKind() != "text" {
				table = append(
					table,
					[]string{
						"  " + render.FigureTitle(column.GetName()),
						render.FigureText(reply.GetRows()[0].GetCells()[i], column),
					},
				)
			}
		}
		text.WriteString(render.Aligned(table, func(i int) bool { return i == 0 }))
		return text.String()
	}
	table := make([][]string, 0, len(reply.GetRows())+1)
	if header {
		head := make([]string, len(reply.GetColumns()))
		for i, column := range reply.GetColumns() {
			head[i] = title(column.GetName())
		}
		table = append(table, head)
	}
	for _, reportRow := range reply.GetRows() {
		line := make([]string, len(reply.GetColumns()))
		for i, column := range reply.GetColumns() {
			line[i] = render.FigureText(reportRow.GetCells()[i], column)
		}
		table = append(table, line)
	}
	text.WriteString(
		render.Aligned(
			table,
			func(column int) bool { return reply.GetColumns()[column].GetKind() == "text" },
		),
	)
	return text.String()
}
