package dashboards

import "github.com/musterhpc/muster/accounting/kpi"

// Board is one dashboard.
type Board struct {
	UID         string
	Title       string
	Description string
	Vars        []Var
	Rows        []Row
	From        string // how far back it looks at first, as in now-6h; empty: now-6h
}

// Row is a heading with the panels below it.
type Row struct {
	Title  string
	Panels []Panel
}

// Kind is how a panel draws its data.
type Kind string

// The kinds.
const (
	Stat    Kind = "stat"           // one large figure
	Lines   Kind = "timeseries"     // a line for each series
	Stack   Kind = "stack"          // areas on top of each other
	Bars    Kind = "bargauge"       // one bar for each series, now
	Table   Kind = "table"          // one line for each series or row, now
	HeatMap Kind = "heatmap"        // one line for each series, coloured by value over time
	States  Kind = "state-timeline" // one line for each series, coloured by threshold
)

// Unit is how a figure is written; the names are Grafana's.
type Unit string

// The units.
const (
	Count    Unit = "short"
	Ratio    Unit = "percentunit"
	Percent  Unit = "percent"
	Seconds  Unit = "s"
	Bytes    Unit = "bytes"
	ByteRate Unit = "Bps"
	PerSec   Unit = "ops"
	Watts    Unit = "watt"
	Joules   Unit = "joule"
	Celsius  Unit = "celsius"
	Hertz    Unit = "hertz"
	When     Unit = "dateTimeAsIso"
	KgCO2    Unit = "suffix: kg CO2e"
	GPUHours Unit = "suffix: GPU-h"
	CPUHours Unit = "suffix: CPU-h"
	GiBHours Unit = "suffix: GiB-h"
	KWh      Unit = "kwatth"
)

// Language says which engine a query is for.
type Language string

// The languages. MetricsQL is VictoriaMetrics' own; what stands here under
// that name is kept to what Prometheus understands too, so that a panel works
// on both.
const (
	PromQL    Language = "promql"
	MetricsQL Language = "metricsql"
	SQL       Language = "sql"
)

// Query is one question of a panel. In an expression $name is a variable and
// ${name:singlequote} its value as SQL text; Expand lists the macros.
type Query struct {
	Expr   string
	Legend string   // {{label}} stands for a label's value
	Lang   Language // empty: PromQL
	Series bool     // of SQL: rows are points of a time series
}

// Hidden is the column of a value that is always 1.
const Hidden = "-"

// ValueColumn is what Prometheus' figures stand under in a table.
const ValueColumn = "Value"

// HiddenLabels are not shown in tables: they say nothing to people, or the same
// in each row.
func HiddenLabels() []string {
	return []string{
		"__name__",
		"cluster",
		"instance",
		"job",
		"pci_bus_id",
		"device",
		"UUID",
		"alertstate",
		"goversion",
	}
}

// Step is the value from which a colour holds.
type Step struct {
	From  float64
	Color string
}

// Panel is one picture.
type Panel struct {
	Title       string
	Description string // what it shows and what to do about it
	Kind        Kind
	Unit        Unit
	Units       map[string]Unit // of a table's columns
	Column      string          // heading of a table's value; Hidden: only the labels tell
	UpDown      bool            // 1 is written as up, 0 as down
	Cells       []Word          // of a table: the colour of cells that begin with a word
	SortBy      string          // column that a table is sorted by
	Queries     []Query
	Width       int // of 24 columns; 0: what suits the kind
	Height      int // 0: what suits the kind
	// Good is the colour below the first step; empty is no judgement.
	Good  string
	Steps []Step
	Max   float64 // top of the scale; 0: by the data
	// Links lead from a value to another dashboard.
	Links []Link
	// MayBeEmpty says why a healthy cluster may have nothing to show here.
	MayBeEmpty string
}

// Link leads to another dashboard, with one variable set from the label or
// column that was clicked on.
type Link struct {
	Board string // UID
	Var   string // of the target
	Label string // label or column here
	// URL leads outside instead: the value stands where %s is.
	URL, Title string
}

// Var is a variable of a dashboard: a choice at its top.
type Var struct {
	Name   string
	Label  string
	Query  string // a PromQL label_values(…); empty: a text box
	Multi  bool   // several or all
	Sample string // what a text box says at first
}

// Colours with a meaning, the same on every dashboard.
const (
	Green  = "green"
	Yellow = "yellow"
	Orange = "orange"
	Red    = "red"
	Blue   = "blue"
)

// Word is a state, or the like, with the colour that it has wherever it ends a
// legend.
type Word struct{ Name, Color string }

// Words lists the states that have a colour of their own.
//
//muster:table one entry for each word
func Words() []Word {
	const green, leaf, yellow, sky, blue, orange, red, dark, violet, grey = "#73bf69", "#37872d", "#f2cc0c", "#8ab8ff", "#5794f2", "#ff780a", "#e02f44", "#890f02", "#b877d9", "#8e8ea0"
	return []Word{{"running", green}, {"completing", leaf}, {"pending", yellow}, {"suspended", violet}, {"allocated", green}, {"mixed", sky}, {"idle", blue},
		{"draining", yellow}, {"drained", orange}, {"fail", dark}, {"down", red}, {"unknown", grey}, {"unavailable", red}, {"busy", green}, {"no_process", red},
		{"unobserved", grey}, {"used", yellow}, {"reserved", violet}, {"free", blue}, {"active", green}, {"inactive", grey}, {"wanted", orange},
		{"COMPLETED", green}, {"FAILED", red}, {"TIMEOUT", orange}, {"CANCELLED", grey}, {"OUT_OF_MEMORY", violet}, {"NODE_FAIL", dark}, {"PREEMPTED", sky}}
}

// The dashboards' UIDs, which links use.
const (
	Overview   = "muster-overview"
	Queue      = "muster-queue"
	Job        = "muster-job"
	People     = "muster-people"
	Node       = "muster-node"
	GPUs       = "muster-gpus"
	FairShare  = "muster-fairshare"
	Internals  = "muster-internals"
	Efficiency = "muster-efficiency"
	Energy     = "muster-energy"
	Pipeline   = "muster-pipeline"
	Alerts     = "muster-alerts"
	Limits     = "muster-limits"
	SLOs       = "muster-slo"
)

// All lists every dashboard, in the order in which people read them.
func All() []Board {
	return []Board{
		overviewBoard(),
		queueBoard(),
		jobBoard(),
		peopleBoard(),
		nodeBoard(),
		gpusBoard(),
		fairshareBoard(),
		internalsBoard(),
		efficiencyBoard(),
		limitsBoard(),
		energyBoard(),
		pipelineBoard(),
		alertsBoard(),
		slos(),
	}
}

// The variables that several dashboards share.
func clusterVar() Var {
	return Var{Name: "cluster", Label: "Cluster", Query: "label_values(muster_nodes, cluster)"}
}

func partitionVar() Var {
	return Var{
		Name:  "partition",
		Label: "Partition",
		Query: `label_values(muster_jobs{cluster="$cluster"}, partition)`,
		Multi: true,
	}
}

func nodeVar() Var {
	return Var{
		Name:  "node",
		Label: "Node",
		Query: `label_values(muster_agent_up{cluster="$cluster"}, node)`,
		Multi: true,
	}
}

func accountVar() Var {
	return Var{
		Name:  "account",
		Label: "Account",
		Query: `label_values(muster_kpi_utilisation_ratio{cluster="$cluster",by="account"}, key)`,
		Multi: true,
	}
}

func userVar() Var {
	return Var{
		Name:  "user",
		Label: "User",
		Query: `label_values(muster_kpi_utilisation_ratio{cluster="$cluster",by="user"}, key)`,
		Multi: true,
	}
}

// figure, lines and the others make a panel with one query.
func figurePanel(title, about string, unit Unit, expr string) Panel {
	return Panel{
		Title:       title,
		Description: about,
		Kind:        Stat,
		Unit:        unit,
		Queries:     []Query{{Expr: expr}},
	}
}

func linePanel(title, about string, unit Unit, queries ...Query) Panel {
	return Panel{Title: title, Description: about, Kind: Lines, Unit: unit, Queries: queries}
}

func stackPanel(title, about string, unit Unit, queries ...Query) Panel {
	panel := linePanel(title, about, unit, queries...)
	panel.Kind = Stack
	return panel
}

func barPanel(title, about string, unit Unit, expr, legend string) Panel {
	return Panel{
		Title:       title,
		Description: about,
		Kind:        Bars,
		Unit:        unit,
		Queries:     []Query{{Expr: expr, Legend: legend}},
	}
}

func sqlTable(title, about, sql string) Panel {
	return Panel{
		Title:       title,
		Description: about,
		Kind:        Table,
		Unit:        Count,
		Queries:     []Query{{Expr: sql, Lang: SQL}},
	}
}

func sqlSeries(title, about string, unit Unit, sql string) Panel {
	return Panel{
		Title:       title,
		Description: about,
		Kind:        Stack,
		Unit:        unit,
		Queries:     []Query{{Expr: sql, Lang: SQL, Series: true}},
	}
}

// sqlFigure is one large figure of the accounting store.
func sqlFigure(title, about string, unit Unit, sql string) Panel {
	panel := figurePanel(title, about, unit, sql)
	panel.Queries[0].Lang = SQL
	return panel
}

// withinView is a stored view (accounting/query) over the dashboard's time, and ofJob
// one about the job that was chosen. They count runs that go on up to now.
func withinView(view string) string {
	return view +
		"(cluster = ${cluster:singlequote}, from = toUnixTimestamp($__fromTime), until = toUnixTimestamp($__toTime))"
}

func ofJob(view string) string {
	return view + "(cluster = ${cluster:singlequote}, job = toUInt32OrZero(${job:singlequote}))"
}

// useByUser is a subquery of what each user of each account held and used in the
// dashboard's time, of the rows that a condition keeps: what was not measured is
// missing, not 0.
func useByUser(where string) string {
	const by = " GROUP BY user, account)"
	return "(SELECT user, account, toInt64(sum(count)) AS runs, sum(gpu_held_us) / 3.6e9 AS gpu_hours, sum(cpu_held_us) / 3.6e9 AS cpu_hours, toInt64(sumIf(count, ended_in AND state IN " +
		kpi.Failed + ")) AS failed FROM " +
		withinView("runs_within") + " WHERE isNotNull(start) AND " + where + by +
		" AS r LEFT JOIN (SELECT user, account, sum(no_process_s + idle_s) AS idle_s, sum(util_s) AS util_s, sum(measured_s) AS held_s FROM " +
		withinView("gpu_runs_within") + " WHERE " + where + by +
		" AS g USING (user, account) LEFT JOIN (SELECT user, account, sum(cpu_s) AS cpu_s, sum(cpu_held_s) AS cpu_held_s FROM " +
		withinView("nodes_within") + " WHERE " + where + by + " AS n USING (user, account)"
}

// heldSeries is a query of what runs held in each stretch of the dashboard's time,
// in hours by a column: the stretches add up to what was held in all of it.
func heldSeries(amount, column, as, where string) string {
	const step = "($__interval_s * 1000000)"
	const from, until = "toUnixTimestamp64Micro(assumeNotNull(held_from))", "toUnixTimestamp64Micro(assumeNotNull(held_until))"
	return "SELECT toDateTime(slot * $__interval_s) AS time, " + column + ", sum(" + amount +
		" * (least(z, (slot + 1) * " + step + ") - greatest(a, slot * " + step +
		"))) / 3.6e9 AS " + as +
		" FROM (SELECT *, " + from + " AS a, " + until + " AS z FROM " +
		withinView("runs_within") + " WHERE held_us > 0 AND " + amount + " > 0 AND " +
		where + ") ARRAY JOIN range(toUInt64(intDiv(a, " + step +
		")), toUInt64(intDiv(z - 1, " + step +
		")) + 1) AS slot GROUP BY time, " + column + " ORDER BY time"
}

// unstacked draws a line for each series beside the others.
func (p Panel) unstacked() Panel { p.Kind = Lines; return p }

// wide, tall, colored, linked, empty and units change a panel.
func (p Panel) wide(n int) Panel { p.Width = n; return p }

func (p Panel) tall(n int) Panel { p.Height = n; return p }

func (p Panel) upDown() Panel { p.UpDown = true; return p }

func (p Panel) top(m float64) Panel { p.Max = m; return p }

func (p Panel) colored(good string, steps ...Step) Panel {
	p.Good, p.Steps = good, steps
	return p
}

func (p Panel) linked(board, variable, label string) Panel {
	p.Links = append(p.Links, Link{Board: board, Var: variable, Label: label})
	return p
}

func (p Panel) empty(reason string) Panel { p.MayBeEmpty = reason; return p }

func (p Panel) units(u map[string]Unit) Panel { p.Units = u; return p }

// width and height are a panel's size on Grafana's grid of 24 columns.
func (p Panel) width() int {
	switch {
	case p.Width > 0:
		return p.Width
	case p.Kind == Stat:
		return 4
	case p.Kind == Table || p.Kind == HeatMap || p.Kind == States:
		return 24
	}
	return 12
}

func (p Panel) height() int {
	switch {
	case p.Height > 0:
		return p.Height
	case p.Kind == Stat:
		return 4
	}
	return 8
}

// Size is the panel's width and height on Grafana's grid of 24 columns.
func (p Panel) Size() (width, height int) { return p.width(), p.height() }
