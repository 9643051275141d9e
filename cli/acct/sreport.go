package acct

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec/format"
)

func Sreport() *tool.Command {
	const noFederation = tool.NoFederation
	return &tool.Command{
		Name: "sreport", Slurm: true, Mixed: true,
		Summary: "report usage from the accounting store",
		Usage:   []string{"[OPTIONS] cluster|job|reservation|user REPORT [KEY=VALUE...]"},
		About: `The window defaults to yesterday. Times are rounded to whole hours; an end in the future means now.

Keys: start=, end=, accounts=, users=, partitions=, qos=, wckeys=, tree, format=, topcount= and group (user top),
grouping=, printjobcount, flatview, jobs= and nodes= (job sizes).`,
		Verbs: []tool.Verb{
			{
				Name: "cluster",
				Args: "Utilization",
				Help: "how the cluster's time was spent: allocated, down, idle, planned",
			},
			{
				Name: "cluster",
				Args: "AccountUtilizationByQOS",
				Help: "usage of accounts and, in each, by QOS",
			},
			{
				Name: "cluster",
				Args: "AccountUtilizationByUser",
				Help: "usage of accounts and, in each, of users",
			},
			{Name: "cluster", Args: "UserUtilizationByAccount", Help: "usage of users by account"},
			{
				Name: "cluster",
				Args: "UserUtilizationByWckey",
				Help: "usage of users by workload key",
			},
			{
				Name: "cluster",
				Args: "WCKeyUtilizationByUser",
				Help: "usage by workload key and, in each, of users",
			},
			{
				Name: "job",
				Args: "SizesByAccount",
				Help: "time of jobs by their number of CPUs and account",
			},
			{
				Name: "job",
				Args: "SizesByAccountAndWckey",
				Help: "the same by account and workload key",
			},
			{Name: "job", Args: "SizesByWckey", Help: "the same by workload key"},
			{
				Name: "reservation",
				Args: "Utilization",
				Help: "how the time of reservations was spent",
			},
			{Name: "user", Args: "TopUsage", Help: "the users with the largest usage"},
		},
		Options: []opt.Option{
			{Long: "all_clusters", Short: "a", Help: "report all clusters that are known, one after the other"},
			{
				Long:  "cluster",
				Short: "M",
				Arg:   "<cluster>",
				Env:   "SREPORT_CLUSTER",
				Help:  "clusters to show, one after the other: this one, known or imported ones; all = every known one",
			},
			{
				Long:   "federation",
				Env:    "SREPORT_FEDERATION",
				Help:   "include the other clusters of the federation",
				Always: noFederation,
			},
			{
				Long:  "json",
				Arg:   "<data_parser>",
				Maybe: true,
				Help:  "print JSON: amounts of use in seconds",
			},
			{
				Long:   "local",
				Env:    "SREPORT_LOCAL",
				Help:   "report this cluster",
				Always: noFederation,
			},
			{Long: "noheader", Short: "n", Help: "omit the header"},
			{Long: "parsable", Short: "p", Help: "end every field with |"},
			{Long: "parsable2", Short: "P", Help: "separate fields with |"},
			{Long: "quiet", Short: "Q", Help: "suppress warnings"},
			{
				Long:  "time-format",
				Short: "t",
				Arg:   "<format>",
				Help:  "unit of times: Seconds, Minutes (default), Hours, Percent, SecPer, MinPer or HourPer",
			},
			{
				Long:  "tres",
				Short: "T",
				Arg:   "<tres_names>",
				Env:   "SREPORT_TRES",
				Help:  "resources to report: cpu,gres/gpu; ALL for all that the nodes had (default: cpu)",
			},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Help: "print YAML"},
		},
		Example: []tool.Example{
			{
				Line: "sreport cluster utilization start=2026-11-01 end=2026-12-01 -t percent",
				What: "reports how the CPU time of November was spent",
			},
			{
				Line: "sreport -T gres/gpu user top start=2026-11-01 topcount=5",
				What: "lists the five users with the largest GPU time since then",
			},
		},
		Run: runSreport,
	}
}

// usageReport is one of the reports that the service makes.
type usageReport struct {
	section string   // the first word
	names   []string // as users may write it, the full one first
	ask     string   // as the service knows it
	title   string
	seconds bool // the title tells the length of the time
}

//muster:table one entry for each report
func reports() []usageReport {
	r := func(section, name, title string, seconds bool) usageReport {
		return usageReport{section, []string{name}, section + " " + strings.ToLower(name), title, seconds}
	}
	top := r("user", "TopUsage", "Top %d Users", true)
	top.ask = "user top"
	return []usageReport{
		r("cluster", "AccountUtilizationByUser", "Cluster/Account/User Utilization", true),
		r("cluster", "AccountUtilizationByQOS", "Cluster/Account/QOS Utilization", true),
		r("cluster", "UserUtilizationByAccount", "Cluster/User/Account Utilization", true),
		r("cluster", "UserUtilizationByWckey", "Cluster/User/WCKey Utilization", true),
		r("cluster", "Utilization", "Cluster Utilization", false),
		r("cluster", "WCKeyUtilizationByUser", "Cluster/WCKey/User Utilization", true),
		r("job", "SizesByAccount", "Job Sizes", true),
		r("job", "SizesByAccountAndWckey", "Job Sizes", true),
		r("job", "SizesByWckey", "Job Sizes by Wckey", true),
		r("reservation", "Utilization", "Reservation Utilization", false),
		top,
	}
}

// timeFormat is how amounts of time are written.
type timeFormat struct {
	name    string // as -t takes it
	unit    string // in the header
	seconds int64  // that make one; 0 = percent alone
	percent bool
}

func timeFormats() []timeFormat {
	return []timeFormat{
		{
			"Seconds",
			"Seconds",
			1,
			false,
		}, {"Minutes", "Minutes", 60, false}, {"Hours", "Hours", 3600, false}, {"Percent", "Percentage of Total", 0, true},
		{
			"SecPer",
			"Seconds/Percentage of Total",
			1,
			true,
		}, {"MinPer", "Minutes/Percentage of Total", 60, true}, {"HourPer", "Hours/Percentage of Total", 3600, true},
	}
}

// reportAsk is what one sreport asks and how it prints.
type reportAsk struct {
	report usageReport
	query  *apiv1.ReportQuery
	time   timeFormat
	tree   bool
	fields []string // format=
}

func runSreport(call *tool.Call) error {
	if len(call.Operands) == 0 {
		return &opt.UsageError{
			Command: "sreport",
			Text:    "a report is missing: cluster utilization, user top, ...",
		}
	}
	query, err := reportQuery(call)
	if err != nil {
		return err
	}
	switch {
	case call.Opts.On("cluster"):
		call.Opts.Put("clusters", call.Opts.Text("cluster"), true, opt.FromCommand)
	case call.Opts.On("all_clusters"):
		call.Opts.Put("clusters", "all", true, opt.FromCommand)
	}
	return call.EachPastCluster(query.print)
}

// print asks one cluster and prints its report.
func (a *reportAsk) print(call *tool.Call) error {
	query := proto.CloneOf(a.query)
	query.Cluster = call.PastCluster()
	var reply apiv1.ReportReply
	if err := fetch.UpToDate(call, tool.MethodAcctReport, query, &reply, func(seq uint64) {
		query.MinSeq = seq
	}); err != nil {
		return err
	}
	fetch.WarnBehind(call, reply.GetBehind())
	a.fullNames(call.Env, &reply)
	if render.WantsDocument(call) {
		return render.Print(call, a.makeDocument(&reply)...)
	}
	text, err := a.text(&reply, render.TableStyle(call), call.Loc)
	if err != nil {
		return call.Errorf("%v", err)
	}
	return call.WriteOut(text)
}

func columnOf(reply *apiv1.ReportReply, name string) int {
	return slices.IndexFunc(
		reply.GetColumns(),
		func(c *apiv1.ReportColumn) bool { return strings.EqualFold(c.GetName(), name) },
	)
}

// reportQuery reads the words and keys.
func reportQuery(call *tool.Call) (*reportAsk, error) {
	section := render.MatchPrefix(
		[]string{"cluster", "user", "job", "reservation"},
		call.Operands[0],
	)
	if section == "" {
		return nil, tool.Fail(1, "invalid keyword: "+call.Operands[0])
	}
	query := &reportAsk{
		query: &apiv1.ReportQuery{Zone: tool.ZoneName(call.Env), Top: 10},
		time:  timeFormats()[1],
	}
	var valid []string
	if len(call.Operands) > 1 {
		for _, report := range reports() {
			if report.section == section {
				valid = append(valid, report.names[0])
				if strings.HasPrefix(
					strings.ToLower(report.names[0]),
					strings.ToLower(call.Operands[1]),
				) &&
					query.report.ask == "" {
					query.report = report
				}
			}
		}
	}
	if query.report.ask == "" {
		word := ""
		if len(call.Operands) > 1 {
			word = call.Operands[1]
		}
		return nil, tool.Fail(1, "Not valid report "+word, "Valid "+section+" reports are, "+
			quotedList(valid))
	}
	query.query.Report = query.report.ask
	if call.Opts.On("time-format") {
		i := slices.IndexFunc(timeFormats(), func(f timeFormat) bool {
			return strings.HasPrefix(
				strings.ToLower(f.name),
				strings.ToLower(call.Opts.Text("time-format")),
			) &&
				call.Opts.Text("time-format") != ""
		})
		if i < 0 {
			return nil, call.Errorf("unknown time format %s", call.Opts.Text("time-format"))
		}
		query.time = timeFormats()[i]
	}
	query.query.Tres = call.Opts.List("tres")
	if err := reportKeys(call, query, call.Operands[2:]); err != nil {
		return nil, err
	}
	return query, nil
}

// quotedList writes "A", "B", and "C".
func quotedList(words []string) string {
	out := ""
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			out += ", and "
		case i > 0:
			out += ", "
		}
		out += `"` + word + `"`
	}
	return out
}

// reportKeys reads start=, end= and the rest.
//
//muster:table one case for each key
func reportKeys(call *tool.Call, query *reportAsk, args []string) error {
	now := call.Now().In(call.Loc)
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, call.Loc)
	start, end := midnight.AddDate(0, 0, -1), midnight
	endGiven := false
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch strings.ToLower(key) {
		case "start", "end":
			seconds, err := format.ParseTime(
				value, format.Moment{Now: now.Unix(), Loc: call.Loc, Past: true},
			)
			if err != nil {
				return tool.Fail(1, tool.BadTimeText(value))
			}
			at := time.Unix(seconds, 0)
			if strings.EqualFold(key, "start") {
				start = at
			} else {
				end = at
				endGiven = true
			}
		case "accounts", "account", "acct", "accts":
			query.query.Accounts = tool.SplitList(value)
		case "users", "user":
			query.query.Users = tool.SplitList(value)
		case "partitions", "partition":
			query.query.Partitions = tool.SplitList(value)
		case "cluster", "clusters":
			call.Opts.Put("cluster", value, true, opt.FromCommand)
		case "topcount":
			n, ok := tool.PositiveNumber(value)
			if !ok {
				return call.Errorf("topcount=%s: expected a number above zero", value)
			}
			query.query.Top = uint32(n)
		case "qos", "qoslevel":
			query.query.Qos = tool.SplitList(value)
		case "wckey", "wckeys":
			query.query.Wckeys = tool.SplitList(value)
		case "jobs", "job":
			query.query.Jobs = tool.SplitList(value)
		case "nodes", "node":
			query.query.Nodes = []string{value}
		case "grouping":
			for _, g := range tool.SplitList(value) {
				n, ok := tool.PositiveNumber(g)
				if !ok {
					return call.Errorf("grouping=%s: expected numbers of CPUs above zero", value)
				}
				query.query.Grouping = append(query.query.Grouping, n)
			}
		case "printjobcount":
			query.query.Count = true
		case "flatview":
			query.query.Flat = true
		case "acctasparent": // so it is without flatview
		case "group":
			query.query.Group = true
		case "tree":
			query.tree = true
		case "all_clusters", "allclusters":
			call.Opts.Put("all_clusters", "", true, opt.FromCommand)
		case "format":
			query.fields = tool.SplitList(value)
		default:
			return tool.Fail(1, " Unknown condition: "+arg)
		}
	}
	if !endGiven && end.Before(start) {
		end = now
	}
	// Whole hours, but up to this very second where the end is not in the past:
	// there is no rollup to wait for.
	start = start.Truncate(time.Hour)
	if end.Before(now.Truncate(time.Second)) {
		end = end.Truncate(time.Hour)
	} else {
		end = now.Truncate(time.Second)
	}
	if !end.After(start) {
		end = start.Add(time.Hour)
	}
	query.query.Start, query.query.End = start.UnixNano(), end.UnixNano()
	return nil
}

// columnWidth is the width of a column by its name.
func (a *reportAsk) columnWidth(name string) int {
	lower := strings.ToLower(name)
	switch section := a.report.section; {
	case section == "job" && lower == "account" && strings.Contains(a.query.GetReport(), "wckey"):
		return -20
	case section == "job" && (lower == "account" || lower == "wckey"):
		return 9
	case section == "reservation" && (lower == "allocated" || lower == "idle"):
		return 20
	case strings.HasSuffix(lower, " cpus"):
		return 13
	}
	switch lower {
	case "cluster", "login", "qos":
		return 9
	case "proper name", "account", "wckey":
		return 15
	case "tres name":
		return 14
	case "used",
		"energy",
		"allocated",
		"down",
		"plnd down",
		"idle",
		"planned",
		"reported",
		"overcommitted":
		return 8
	case "start", "end":
		return 19
	}
	return max(len(name), 9)
}

// headingLine is the line that says in what the report is.
func (a *reportAsk) headingLine() string {
	what := "CPU"
	if len(a.query.GetTres()) > 0 || a.report.section == "reservation" {
		what = "TRES"
	}
	switch {
	case a.report.section == "job" && a.query.GetCount():
		return "Units are in number of jobs ran"
	case a.report.section == "job" && len(a.query.GetTres()) == 0:
		return "Time reported in " + a.time.unit
	case a.time.seconds == 0:
		return "Usage reported in " + a.time.unit
	}
	return "Usage reported in " + what + " " + a.time.unit
}

// fullNames fills in the names of people, which this host knows.
func (a *reportAsk) fullNames(env *tool.Env, reply *apiv1.ReportReply) {
	login, name := columnOf(reply, "Login"), columnOf(reply, "Proper Name")
	if login < 0 || name < 0 || env.FullName == nil {
		return
	}
	known := map[string]string{"": ""}
	for _, reportRow := range reply.GetRows() {
		user := reportRow.GetCells()[login].GetText()
		if _, ok := known[user]; !ok {
			known[user] = env.FullName(user)
		}
		if reportRow.GetCells()[name].GetText() == "" {
			reportRow.Cells[name] = &apiv1.Cell{Kind: &apiv1.Cell_Text{Text: known[user]}}
		}
	}
}

// makeDocument is the report as a tree: amounts as they are, seconds for time.
func (a *reportAsk) makeDocument(reply *apiv1.ReportReply) []tree.Member {
	rows := tree.List{}
	for _, reportRow := range reply.GetRows() {
		var object tree.Object
		for i, col := range reply.GetColumns() {
			var value any
			switch k := reportRow.GetCells()[i].GetKind().(type) {
			case *apiv1.Cell_Text:
				value = k.Text
			case *apiv1.Cell_Int:
				value = k.Int
			case *apiv1.Cell_Float:
				value = k.Float
			}
			key := strings.ReplaceAll(
				strings.ToLower(strings.ReplaceAll(col.GetName(), "%", "percent")),
				" ",
				"_",
			)
			object = append(object, tree.Member{Key: key, Value: value})
		}
		rows = append(rows, object)
	}
	return []tree.Member{
		{Key: "report", Value: a.query.GetReport()},
		{Key: "cluster", Value: reply.GetCluster()},
		{Key: "start", Value: reply.GetStart() / tool.Second},
		{Key: "end", Value: reply.GetEnd() / tool.Second},
		{Key: "rows", Value: rows},
	}
}

// text lays a report out.
func (a *reportAsk) text(
	reply *apiv1.ReportReply,
	style column.Style,
	zone *time.Location,
) ([]byte, error) {
	var buffer []byte
	if !style.NoHeader {
		clock := render.Clock{Loc: zone}
		span := clock.Time(reply.GetStart()) + " - " + clock.Time(reply.GetEnd()-tool.Second)
		title := a.report.title
		if strings.Contains(title, "%d") {
			title = fmt.Sprintf(title, a.query.GetTop())
		}
		if a.report.seconds {
			span += fmt.Sprintf(" (%d secs)", (reply.GetEnd()-reply.GetStart())/tool.Second)
		}
		buffer = append(buffer, reportRule+title+" "+span+"\n"+a.headingLine()+"\n"+reportRule...)
	}
	columns, err := a.chooseColumns(reply)
	if err != nil {
		return nil, err
	}
	fields := make([]column.Field, len(columns))
	for i, c := range columns {
		fields[i] = column.Field{Name: reply.GetColumns()[c.at].GetName(), Width: c.width}
	}
	buffer = style.Header(buffer, fields)
	texts := make([]string, len(columns))
	for _, reportRow := range reply.GetRows() {
		for i, c := range columns {
			texts[i] = a.writeCell(reply, reportRow, c.at)
		}
		buffer = style.Row(buffer, fields, texts)
	}
	return buffer, nil
}

// hiddenColumns are columns that are shown only where format= names them: what the
// reader knows already, and what the layout is made from.
func (a *reportAsk) hiddenColumns(name string) bool {
	switch strings.ToLower(name) {
	case "tres name":
		return len(a.query.GetTres()) == 0 && a.report.section != "reservation"
	case "energy":
		return len(a.query.GetTres()) > 0
	case "overcommitted", "trescount", "depth", "total":
		return true
	}
	return false
}

// reportColumn is a column to show.
type reportColumn struct {
	at    int // among those of the answer
	width int
}

// chooseColumns chooses the columns to show: those of format=, which may be
// shortened and have a width (login%20), else the usual ones.
func (a *reportAsk) chooseColumns(reply *apiv1.ReportReply) ([]reportColumn, error) {
	var columns []reportColumn
	plain := func(s string) string { return strings.ReplaceAll(strings.ToLower(s), " ", "") }
	for _, f := range a.fields {
		name, width, sized, err := column.Sized(f)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(
			reply.GetColumns(),
			func(c *apiv1.ReportColumn) bool { return strings.HasPrefix(plain(c.GetName()), plain(name)) },
		)
		if i < 0 || name == "" {
			var known []string
			for _, c := range reply.GetColumns() {
				if n := plain(c.GetName()); n != "depth" &&
					n != "total" { // which the layout is made from
					known = append(known, n)
				}
			}
			return nil, fmt.Errorf(
				"this report has no field %q: it has %s",
				name,
				strings.Join(known, ", "),
			)
		}
		if !sized {
			width = a.columnWidth(reply.GetColumns()[i].GetName())
		}
		columns = append(columns, reportColumn{i, width})
	}
	if columns == nil {
		for i, c := range reply.GetColumns() {
			if !a.hiddenColumns(c.GetName()) {
				columns = append(columns, reportColumn{i, a.columnWidth(c.GetName())})
			}
		}
	}
	return columns, nil
}

// writeCell writes one value. Amounts of use come in TRES-seconds.
func (a *reportAsk) writeCell(
	reply *apiv1.ReportReply, reportRow *apiv1.ReportRow, col int,
) string {
	cell, column := reportRow.GetCells()[col], reply.GetColumns()[col]
	number := func(name string) float64 {
		if i := columnOf(reply, name); i >= 0 {
			n, _ := render.CellAmount(reportRow.GetCells()[i])
			return n
		}
		return 0
	}
	if text, ok := cell.GetKind().(*apiv1.Cell_Text); ok {
		if a.tree && strings.EqualFold(column.GetName(), "account") {
			return strings.Repeat(" ", int(number("depth"))) + text.Text
		}
		return text.Text
	}
	n, ok := render.CellAmount(cell)
	switch {
	case !ok:
		return ""
	case strings.HasSuffix(column.GetUnit(), "-seconds"):
		whole := number("total")
		if columnOf(reply, "total") < 0 {
			whole = number("reported")
		}
		return a.time.text(n, whole)
	case column.GetUnit() == "percent":
		return strconv.FormatFloat(n, 'f', 2, 64) + "%"
	case strings.EqualFold(column.GetName(), "energy") && a.time.seconds == 0:
		return "0.00%" // nobody knows what energy the cluster could have used
	}
	return strconv.FormatFloat(n, 'f', -1, 64)
}

// text writes seconds in a format: rounded to whole units, percent with two
// digits.
func (f timeFormat) text(sec, whole float64) string {
	share := 0.0
	if whole > 0 {
		share = 100 * sec / whole
	}
	percent := strconv.FormatFloat(share, 'f', 2, 64) + "%"
	if f.seconds == 0 {
		return percent
	}
	name := tool.Itoa(int64(sec/float64(f.seconds) + 0.5))
	if f.percent {
		return name + "(" + percent + ")"
	}
	return name
}
