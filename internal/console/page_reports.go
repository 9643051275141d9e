package console

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhpc/muster/accounting/kpi"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

const (
	reportMonths = 13 // that can be chosen, this one among them
	trendMonths  = 6  // that one figure is compared over
	maxReported  = 200
	monthForm    = "2006-01"
)

// reportChoice is what a reader chose.
type reportChoice struct {
	By    string // cluster, account, partition, qos or user
	Month string // as 2026-11
	KPI   string // one figure, over several months; empty = all figures of one month
}

// reportsData is what the page of reports shows.
type reportsData struct {
	Choice  reportChoice
	By      []string
	Months  []string
	Figures []figureChoice
	Heads   []reportHead
	Rows    []reportLine
	More    int
	Meaning []meaning
	SQL     string // behind the figures, of the last month
	CSV     string
	JSON    string
	Command string
	Behind  string
}

type figureChoice struct {
	Name, Title string
	Chosen      bool
}

type reportHead struct{ Text, Title string }

// reportLine is a group, or in a report about the cluster a figure.
type reportLine struct {
	Name, Title string
	Cells       []string
}

// meaning is the definition of a figure.
type meaning struct{ Name, Title, Unit, Formula string }

// groupsOfKPIs are what muster kpi can compare.
func groupsOfKPIs() []string { return []string{"cluster", "account", "partition", "qos", "user"} }

func (c reportChoice) link(path string, more ...string) string {
	query := url.Values{"by": {c.By}, "month": {c.Month}}
	if c.KPI != "" {
		query.Set("kpi", c.KPI)
	}
	for i := 0; i+1 < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	return path + "?" + query.Encode()
}

// readReport reads what the address chooses, and refuses what is not known.
func readReport(query url.Values, now time.Time) (reportChoice, error) {
	choice := reportChoice{By: query.Get("by"), Month: query.Get("month"), KPI: query.Get("kpi")}
	if choice.By == "" {
		choice.By = "cluster"
	}
	if choice.Month == "" {
		choice.Month = now.Format(monthForm)
	}
	if !slices.Contains(groupsOfKPIs(), choice.By) {
		return choice, spec.Refuse(
			spec.CodeBadRequest,
			"by is one of cluster, account, partition, qos and user",
		)
	}
	if _, err := time.ParseInLocation(monthForm, choice.Month, now.Location()); err != nil {
		return choice, spec.Refuse(spec.CodeBadRequest, "month is a year and a month, as 2026-11")
	}
	if _, known := kpi.Find(choice.KPI); choice.KPI != "" && !known {
		return choice, spec.Refuse(
			spec.CodeBadRequest,
			"there is no such figure: docs/kpis.md lists them",
		)
	}
	return choice, nil
}

// monthlyReport is what muster kpi answers to the visitor about a month, as far as
// it is over.
func (v *visit) monthlyReport(by, month string, now time.Time) (*apiv1.ReportReply, error) {
	from, err := time.ParseInLocation(monthForm, month, now.Location())
	if err != nil {
		return nil, err
	}
	to := from.AddDate(0, 1, 0)
	if to.After(now) {
		to = now
	}
	if !from.Before(to) {
		return nil, spec.Refuse(spec.CodeBadRequest, "the month "+month+" has not begun")
	}
	seq, _ := v.console.cfg.Changed()
	return callAPI[*apiv1.ReportReply](
		v,
		tool.MethodAcctReport,
		&apiv1.ReportQuery{Report: "kpi", By: by, Start: from.UnixNano(), End: to.UnixNano(),
			Zone: now.Location().String(), MinSeq: seq},
	)
}

// reportTable is a report as it is exported: names and amounts.
type reportTable struct {
	heads  []string
	titles []string
	rows   [][]any // text, a number, or nil where nothing was measured
	texts  [][]string
	sql    string
	behind uint64
}

// figuresOfMonth has a row for each group and a column for each figure.
func (v *visit) figuresOfMonth(choice reportChoice, now time.Time) (*reportTable, error) {
	reply, err := v.monthlyReport(choice.By, choice.Month, now)
	if err != nil {
		return nil, err
	}
	table := &reportTable{sql: reply.GetSql(), behind: reply.GetBehind()}
	for _, col := range reply.GetColumns() {
		table.heads = append(table.heads, col.GetName())
		table.titles = append(table.titles, render.FigureTitle(col.GetName()))
	}
	for _, row := range reply.GetRows() {
		var values []any
		var texts []string
		for i, cell := range row.GetCells() {
			values = append(values, valueOf(cell))
			texts = append(texts, render.Clean(render.FigureText(cell, reply.GetColumns()[i])))
		}
		table.rows = append(table.rows, values)
		table.texts = append(table.texts, texts)
	}
	return table, nil
}

// figureOverMonths has a row for each group and a column for each of the months up
// to the chosen one.
func (v *visit) figureOverMonths(choice reportChoice, now time.Time) (*reportTable, error) {
	last, err := time.ParseInLocation(monthForm, choice.Month, now.Location())
	if err != nil {
		return nil, err
	}
	table := &reportTable{heads: []string{choice.By}, titles: []string{choice.By}}
	at := map[string]int{}
	for n := range trendMonths {
		month := last.AddDate(0, n+1-trendMonths, 0).Format(monthForm)
		reply, err := v.monthlyReport(choice.By, month, now)
		if err != nil {
			return nil, err
		}
		table.heads = append(table.heads, month)
		table.titles = append(table.titles, month)
		table.sql, table.behind = reply.GetSql(), reply.GetBehind()
		for _, row := range reply.GetRows() {
			table.addFigure(choice, reply.GetColumns(), row, n+1, at)
		}
	}
	return table, nil
}

// addFigure puts one figure of a row of a month into its place.
func (t *reportTable) addFigure(
	choice reportChoice,
	columns []*apiv1.ReportColumn,
	row *apiv1.ReportRow,
	column int,
	at map[string]int,
) {
	name := choice.By
	if choice.By != "cluster" {
		name = row.GetCells()[0].GetText()
	}
	i, known := at[name]
	if !known {
		i = len(t.rows)
		at[name] = i
		t.rows = append(t.rows, append([]any{name}, make([]any, trendMonths)...))
		texts := []string{render.Clean(name)}
		for range trendMonths {
			texts = append(texts, "-")
		}
		t.texts = append(t.texts, texts)
	}
	for n, col := range columns {
		if col.GetName() == choice.KPI {
			t.rows[i][column] = valueOf(row.GetCells()[n])
			t.texts[i][column] = render.Clean(render.FigureText(row.GetCells()[n], col))
		}
	}
}

// valueOf is an amount as JSON has it; nil = not measured.
func valueOf(cell *apiv1.Cell) any {
	if text, ok := cell.GetKind().(*apiv1.Cell_Text); ok {
		return text.Text
	}
	if n, ok := render.CellAmount(cell); ok && !math.IsNaN(n) && !math.IsInf(n, 0) {
		return n
	}
	return nil
}

// table is the report that the reader chose.
func (v *visit) table(choice reportChoice, now time.Time) (*reportTable, error) {
	if choice.KPI != "" {
		return v.figureOverMonths(choice, now)
	}
	return v.figuresOfMonth(choice, now)
}

// reportsPage shows figures with their definitions and the query behind them.
func (c *Console) reportsPage(v *visit) (answer, error) {
	now := time.Now()
	choice, err := readReport(v.URL.Query(), now)
	if err != nil {
		return answer{}, err
	}
	table, err := v.table(choice, now)
	if err != nil {
		return answer{}, err
	}
	data := reportsData{
		Choice: choice,
		By:     groupsOfKPIs(),
		SQL:    cleanLines(table.sql),
		CSV:    choice.link("/reports/export", "format", "csv"),
		JSON:   choice.link("/reports/export", "format", "json"),
	}
	if table.behind > 0 {
		data.Behind = formatNumber(table.behind)
	}
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, now.Location())
	for n := range reportMonths {
		data.Months = append(data.Months, first.AddDate(0, -n, 0).Format(monthForm))
	}
	if !slices.Contains(data.Months, choice.Month) {
		data.Months = append(data.Months, choice.Month)
	}
	for _, k := range kpi.All() {
		data.Figures = append(data.Figures, figureChoice{k.Name, k.Title, k.Name == choice.KPI})
		if slices.Contains(table.heads, k.Name) || k.Name == choice.KPI {
			data.Meaning = append(data.Meaning, meaning{k.Name, k.Title, string(k.Unit), k.Formula})
		}
	}
	data.lay(table, choice)
	return answer{page: "reports", title: "Reports", data: data}, nil
}

// cleanLines is a text of several lines as a page shows it.
func cleanLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = render.Clean(line)
	}
	return strings.Join(lines, "\n")
}

// lay makes the rows of the page. All figures of the cluster are a list: a table
// with one row would be wider than any window.
func (d *reportsData) lay(table *reportTable, choice reportChoice) {
	if choice.KPI == "" && choice.By == "cluster" && len(table.texts) == 1 {
		d.Heads = []reportHead{{"Figure", ""}, {choice.Month, ""}}
		for i, text := range table.texts[0] {
			if _, isText := table.rows[0][i].(string); !isText {
				d.Rows = append(
					d.Rows,
					reportLine{Name: table.titles[i], Title: table.heads[i], Cells: []string{text}},
				)
			}
		}
		return
	}
	for i, head := range table.heads {
		d.Heads = append(d.Heads, reportHead{table.titles[i], head})
	}
	for _, texts := range table.texts[:min(len(table.texts), maxReported)] {
		d.Rows = append(d.Rows, reportLine{Name: texts[0], Cells: texts[1:]})
	}
	d.More = max(len(table.texts)-maxReported, 0)
}

// exportReport sends a report as a file: names of figures, and amounts as they were
// measured, without units.
func (c *Console) exportReport(writer http.ResponseWriter, request *http.Request) {
	v, err := c.identifyVisitor(request)
	if err != nil {
		c.sendToSignIn(writer, request)
		return
	}
	now := time.Now()
	choice, err := readReport(v.URL.Query(), now)
	format := v.URL.Query().Get("format")
	if err == nil && format != "csv" && format != "json" {
		err = spec.Refuse(spec.CodeBadRequest, "format is csv or json")
	}
	var table *reportTable
	if err == nil {
		table, err = v.table(choice, now)
	}
	if err != nil {
		c.writeAnswer(writer, v, failure(err))
		return
	}
	name := "muster-kpi-" + choice.By + "-" + choice.Month + "." + format
	if format == "json" {
		attach(writer, name, "application/json")
		writeReportJSON(writer, table)
		return
	}
	attach(writer, name, "text/csv; charset=utf-8")
	out := csv.NewWriter(writer)
	_ = out.Write(table.heads) // a reader who has gone is no error of the console
	for _, row := range table.rows {
		cells := make([]string, len(row))
		for i, value := range row {
			if value != nil {
				cells[i] = fmt.Sprint(value)
			}
		}
		_ = out.Write(cells)
	}
	out.Flush()
}

// writeReportJSON writes a list of objects; what was not measured is null.
func writeReportJSON(writer http.ResponseWriter, table *reportTable) {
	list := make([]map[string]any, 0, len(table.rows))
	for _, row := range table.rows {
		one := map[string]any{}
		for i, value := range row {
			one[table.heads[i]] = value
		}
		list = append(list, one)
	}
	_ = json.NewEncoder(writer).Encode(list)
}
