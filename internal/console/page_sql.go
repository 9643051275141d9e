package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// What a page of a result holds. The question itself has the limits of muster sql:
// time, memory and rows are bounded by the service. An export has all of its rows.
const (
	maxSQLRows   = 1000
	maxSQLBytes  = 2 << 20
	maxSQLCell   = 500
	maxSQLText   = 8 << 10 // of a question: it is a part of an address
	maxSQLBars   = 60
	maxSQLPoints = 2000
)

// turns lets each user ask one question at a time: a link runs the question that it
// holds, and whoever opens many of them at once should not hold many threads of
// the store.
type turns struct {
	mu    sync.Mutex
	taken map[string]bool
}

func newTurns() *turns { return &turns{taken: map[string]bool{}} }

// take gives a user his turn; done gives it back.
func (t *turns) take(user string) (done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[user] {
		return nil, spec.Refuse(
			spec.CodeBackoff,
			"another question of yours is being answered: wait until it is, or close its page",
		)
	}
	t.taken[user] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.taken, user)
	}, nil
}

// sqlData is what the page of questions shows.
type sqlData struct {
	Query   string
	Wrong   string
	Views   []sqlView
	Result  *sqlResult
	CSV     string // links to all rows
	JSON    string
	Charts  []tab // which column is drawn
	Chart   *sqlChart
	Command string // the line that asks the same
}

// sqlView is a view with its columns.
type sqlView struct {
	Name, About, Example string
	Columns              []query.ViewColumn
}

// sqlResult is the answer to a question, or its beginning.
type sqlResult struct {
	Heads []sqlHead
	Rows  [][]sqlValue
	More  bool // there are more rows than are shown
}

type sqlHead struct {
	Name   string
	Number bool
}

type sqlValue struct {
	Text   string
	Number bool
	Null   bool
}

// sqlChart draws one column of numbers over the first one: bars over words, a line
// over points in time or numbers that grow.
type sqlChart struct {
	Name, Over string
	Bars       []weight
	Line       *render.Chart
	First      string
	Last       string
	More       int
}

// errEnough ends a question of which a page has all that it shows.
var errEnough = errors.New("enough rows")

// sqlPage shows the views and, where the address holds a question, its answer.
func (c *Console) sqlPage(v *visit) (answer, error) {
	if err := c.cfg.Door.Admit(v.id, tool.MethodAcctSQL); err != nil {
		return answer{}, err
	}
	values := v.URL.Query()
	data := sqlData{Query: strings.TrimSpace(values.Get("q"))}
	for _, view := range query.Views() {
		data.Views = append(
			data.Views,
			sqlView{Name: view.Name, About: view.About, Example: "/sql?" +
				url.Values{"q": {view.Example}}.Encode(), Columns: view.Columns},
		)
	}
	slices.SortFunc(data.Views, func(a, b sqlView) int { return cmp.Compare(a.Name, b.Name) })
	out := answer{page: "sql", title: "SQL"}
	if data.Query != "" {
		result, err := c.askSQL(v, data.Query)
		if err != nil {
			refused := tool.ExplainError(err)
			data.Wrong = render.Clean(cmp.Or(refused.Detail, refused.Text))
			out.status = http.StatusBadRequest
		} else {
			data.Result = result
			data.CSV = "/sql/export?" + url.Values{"q": {data.Query}, "format": {"csv"}}.Encode()
			data.JSON = "/sql/export?" + url.Values{"q": {data.Query}, "format": {"json"}}.Encode()
			data.chooseChart(values.Get("chart"))
		}
		data.Command = "muster sql " + shellQuoted(data.Query)
	}
	out.data = data
	return out, nil
}

// shellQuoted is a text as one word of a shell.
func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// ownSQL prepares a question of the visitor, as the command does.
func (c *Console) ownSQL(text, format string) (*apiv1.SqlQuery, error) {
	if len(text) > maxSQLText {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"the question is longer than %d bytes: muster sql takes longer ones",
				maxSQLText,
			),
		)
	}
	seq, _ := c.cfg.Changed()
	return &apiv1.SqlQuery{
		Sql:    strings.TrimSuffix(strings.TrimSpace(text), ";"),
		Format: format,
		MinSeq: seq,
	}, nil
}

// askSQL asks a question as the visitor, and keeps what a page shows.
func (c *Console) askSQL(v *visit, text string) (*sqlResult, error) {
	request, err := c.ownSQL(text, "table")
	if err != nil {
		return nil, err
	}
	done, err := c.asking.take(v.id.Key())
	if err != nil {
		return nil, err
	}
	defer done()
	ctx, cancel := context.WithCancel(v.Context())
	defer cancel()
	var all []byte
	rows := 0
	err = c.cfg.Stream(ctx, v.id, tool.MethodAcctSQL, request, func(m proto.Message) error {
		piece, ok := m.(*apiv1.SqlReply)
		if !ok {
			return fmt.Errorf("BUG: %s answered with %T", tool.MethodAcctSQL, m)
		}
		all = append(all, piece.GetData()...)
		rows += strings.Count(string(piece.GetData()), "\n")
		if rows > maxSQLRows+1 || len(all) > maxSQLBytes {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return readResult(string(all), err != nil), nil
}

// readResult reads rows between tabs, the first of which are names. A row that was
// cut off is left out.
func readResult(text string, more bool) *sqlResult {
	if at := strings.LastIndexByte(text, '\n'); at >= 0 {
		text = text[:at]
	}
	lines := strings.Split(text, "\n")
	result := &sqlResult{More: more}
	for _, name := range strings.Split(lines[0], "\t") {
		result.Heads = append(result.Heads, sqlHead{Name: sqlText(name), Number: len(lines) > 1})
	}
	for _, line := range lines[1:] {
		if len(result.Rows) >= maxSQLRows {
			result.More = true
			break
		}
		var row []sqlValue
		for i, cell := range strings.Split(line, "\t") {
			value := sqlValue{Text: sqlText(cell), Null: cell == `\N`}
			_, err := strconv.ParseFloat(cell, 64)
			if i < len(result.Heads) && err != nil && !value.Null {
				result.Heads[i].Number = false
			}
			row = append(row, value)
		}
		result.Rows = append(result.Rows, row)
	}
	for _, row := range result.Rows {
		for i := range row {
			row[i].Number = i < len(result.Heads) && result.Heads[i].Number
		}
	}
	return result
}

// sqlEscapes are those of text between tabs.
var sqlEscapes = strings.NewReplacer(
	`\\`,
	`\`,
	`\t`,
	" ",
	`\n`,
	" ",
	`\r`,
	" ",
	`\'`,
	"'",
	`\0`,
	" ",
	`\b`,
	" ",
	`\f`,
	" ",
)

// sqlText is a value as a page shows it.
func sqlText(cell string) string {
	if cell == `\N` {
		return "NULL"
	}
	text := render.Clean(sqlEscapes.Replace(cell))
	if utf8.RuneCountInString(text) > maxSQLCell {
		return string([]rune(text)[:maxSQLCell]) + "…"
	}
	return text
}

// chooseChart draws the column that the reader chose, or the first of numbers.
func (d *sqlData) chooseChart(chosen string) {
	result := d.Result
	if len(result.Rows) < 2 || len(result.Heads) < 2 {
		return
	}
	at := -1
	for i, h := range result.Heads {
		if i > 0 && h.Number && (at < 0 || h.Name == chosen) {
			at = i
		}
	}
	if at < 0 || chosen == "none" {
		at = -1
	}
	for i, h := range result.Heads {
		if i > 0 && h.Number {
			d.Charts = append(d.Charts, tab{h.Name, "/sql?" +
				url.Values{"q": {d.Query}, "chart": {h.Name}}.Encode(), i == at})
		}
	}
	if len(d.Charts) > 0 {
		d.Charts = append(d.Charts, tab{"none", "/sql?" +
			url.Values{"q": {d.Query}, "chart": {"none"}}.Encode(), at < 0})
	}
	if at > 0 {
		d.Chart = chartOf(result, at)
	}
}

// chartOf draws a column over the first one.
func chartOf(result *sqlResult, column int) *sqlChart {
	chart := &sqlChart{Name: result.Heads[column].Name, Over: result.Heads[0].Name}
	var values []*float64
	most := 0.0
	negative := false
	for _, row := range result.Rows[:min(len(result.Rows), maxSQLPoints)] {
		n, err := strconv.ParseFloat(row[column].Text, 64)
		if err != nil || n != n {
			values = append(values, nil)
			continue
		}
		values = append(values, &n)
		most = max(most, n)
		negative = negative || n < 0
	}
	if negative {
		return nil // a bar has no way to the left
	}
	if grows(result) {
		line := render.DrawChart(chart.Name, "", 0, values)
		chart.Line = &line
		chart.First = result.Rows[0][0].Text
		chart.Last = result.Rows[len(values)-1][0].Text
		chart.More = len(result.Rows) - len(values)
		return chart
	}
	for i, value := range values[:min(len(values), maxSQLBars)] {
		bar := weight{Name: result.Rows[i][0].Text, Value: result.Rows[i][column].Text}
		if value != nil && most > 0 {
			bar.Bar = int(1000 * *value / most)
		}
		chart.Bars = append(chart.Bars, bar)
	}
	chart.More = len(result.Rows) - len(chart.Bars)
	return chart
}

// grows tells a first column whose values only grow and are numbers or times, over
// which a line says more than bars.
func grows(result *sqlResult) bool {
	if len(result.Rows) < 3 {
		return false
	}
	for i, row := range result.Rows {
		text := row[0].Text
		isTime := len(text) >= 10 && text[4] == '-' && text[7] == '-'
		if !isTime && !result.Heads[0].Number {
			return false
		}
		if i == 0 {
			continue
		}
		before := result.Rows[i-1][0].Text
		if isTime {
			if text <= before {
				return false
			}
			continue
		}
		a, _ := strconv.ParseFloat(before, 64)
		b, _ := strconv.ParseFloat(text, 64)
		if b <= a {
			return false
		}
	}
	return true
}

// exportSQL sends every row of an answer as a file. One that breaks off ends the
// connection, so that half of it does not pass for the whole.
func (c *Console) exportSQL(writer http.ResponseWriter, request *http.Request) {
	v, err := c.identifyVisitor(request)
	if err != nil {
		c.sendToSignIn(writer, request)
		return
	}
	format := request.URL.Query().Get("format")
	kinds := map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/x-ndjson"}
	began := false
	err = func() error {
		if kinds[format] == "" {
			return spec.Refuse(spec.CodeBadRequest, "format is csv or json")
		}
		req, err := c.ownSQL(request.URL.Query().Get("q"), format)
		if err != nil {
			return err
		}
		done, err := c.asking.take(v.id.Key())
		if err != nil {
			return err
		}
		defer done()
		return c.cfg.Stream(
			request.Context(),
			v.id,
			tool.MethodAcctSQL,
			req,
			func(m proto.Message) error {
				piece, ok := m.(*apiv1.SqlReply)
				if !ok {
					return fmt.Errorf("BUG: %s answered with %T", tool.MethodAcctSQL, m)
				}
				if !began {
					began = true
					attach(writer, "muster-sql."+format, kinds[format])
				}
				_, err := writer.Write(piece.GetData())
				return err
			},
		)
	}()
	switch {
	case err != nil && began:
		panic(http.ErrAbortHandler)
	case err != nil:
		c.writeAnswer(writer, v, failure(err))
	}
}

// attach sets the headers of a file.
func attach(writer http.ResponseWriter, name, kind string) {
	writer.Header().Set("Content-Type", kind)
	writer.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	writer.Header().Set("Cache-Control", "no-store")
}
