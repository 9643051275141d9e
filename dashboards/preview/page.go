package preview

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/dashboards"
)

//go:embed uplot/uPlot.iife.min.js
var uplotJS string

//go:embed uplot/uPlot.min.css
var uplotCSS string

//go:embed page.html
var pageHTML string

// Page is what is drawn.
type Page struct {
	Boards []dashboards.Board
	Scope  dashboards.Scope
	Source Source
}

// Result says what happened to a panel.
type Result struct {
	Board, Panel string
	Empty        bool
	Why          string // of an empty panel: why it may be
	Err          error
}

// board, row and drawn are what the page's template sees.
type board struct {
	UID, Title, Description string
	Rows                    []row
}

type row struct {
	Title  string
	Panels []drawn
}

type drawn struct {
	Title, About  string
	Width, Height int
	Kind          string
	Fit           bool   // as high as what is in it
	Note          string // instead of a picture
	Bad           bool
	Big           string // of a stat
	Color         template.CSS
	Bars          []bar
	Columns       []string
	Cells         [][]text
	Strips        []strip
	Plot          template.JS // data for uPlot
}

type bar struct {
	Name, Text string
	Color      template.CSS
	Percent    float64
}

type strip struct {
	Name  string
	Cells []cell
}

type cell struct {
	X, W  float64 // percent
	Color template.CSS
	Text  string
}

// Write asks every panel and writes the page. A panel that cannot be asked
// says so in its place and in the results.
func (p Page) Write(ctx context.Context, w io.Writer) ([]Result, error) {
	var results []Result
	var boards []board
	for _, b := range p.Boards {
		out := board{
			UID:         b.UID,
			Title:       strings.TrimPrefix(b.Title, "Muster / "),
			Description: b.Description,
		}
		for _, r := range b.Rows {
			line := row{Title: r.Title}
			for _, panel := range r.Panels {
				data, err := p.Source.Panel(ctx, p.Scope, panel)
				results = append(
					results,
					Result{b.UID, panel.Title, err == nil && data.Empty(), panel.MayBeEmpty, err},
				)
				line.Panels = append(line.Panels, p.draw(panel, data, err))
			}
			out.Rows = append(out.Rows, line)
		}
		boards = append(boards, out)
	}
	t, err := template.New("page").Parse(pageHTML)
	if err != nil {
		return results, err
	}
	return results, t.Execute(w, map[string]any{
		"Boards": boards, "Words": words(), "JS": template.JS(uplotJS), "CSS": template.CSS(uplotCSS), "Vars": p.vars(),
		"From": p.Scope.From.UTC().
			Format("2006-01-02 15:04:05"),
		"To": p.Scope.To.UTC().Format("2006-01-02 15:04:05 UTC"),
	})
}

// words are the colours of the states, as the page's script reads them.
func words() template.JS {
	colors := map[string]string{}
	for _, word := range dashboards.Words() {
		colors[word.Name] = word.Color
	}
	text, err := json.Marshal(colors)
	if err != nil { // texts only
		return "{}"
	}
	return template.JS(text)
}

// vars says which choices the page was made with.
func (p Page) vars() string {
	var parts []string
	for _, name := range sortedKeys(p.Scope.Vars) {
		parts = append(parts, name+" "+strings.Join(p.Scope.Vars[name], ", "))
	}
	return strings.Join(parts, " · ")
}

// draw makes the picture of a panel.
func (p Page) draw(panel dashboards.Panel, data Data, err error) drawn {
	width, height := panel.Size()
	out := drawn{
		Title:  panel.Title,
		About:  panel.Description,
		Width:  width,
		Height: height*34 - 8,
		Kind:   string(panel.Kind),
		Fit: panel.Kind != dashboards.Stat && panel.Kind != dashboards.Lines &&
			panel.Kind != dashboards.Stack,
	}
	switch {
	case err != nil:
		out.Note, out.Bad = err.Error(), true
		return out
	case data.Empty():
		switch out.Note = panel.MayBeEmpty; {
		case out.Note != "":
		case panel.Queries[0].Lang == dashboards.SQL: // of a time in which nothing happened
			out.Note = "nothing in this time"
		default:
			out.Note, out.Bad = "no data", true
		}
		out.Fit = panel.Kind != dashboards.Stat
		return out
	}
	switch panel.Kind {
	case dashboards.Stat:
		value, ok := data.First()
		if !ok {
			out.Note = cmp.Or(panel.MayBeEmpty, "no figure")
			return out
		}
		out.Big, out.Color = textOf(panel, value), colorOf(panel, value)
	case dashboards.Bars:
		out.Bars = barsOf(panel, data.Series)
	case dashboards.Table:
		out.Columns, out.Cells = data.Columns, cellsOf(panel, data)
	case dashboards.HeatMap, dashboards.States:
		out.Strips = p.strips(panel, data.Series)
	case dashboards.Lines, dashboards.Stack:
		out.Plot = plot(panel, data.Series, p.Scope)
	}
	return out
}

// textOf writes a value of a panel.
func textOf(panel dashboards.Panel, value float64) string {
	switch {
	case panel.UpDown && value == 1:
		return "up"
	case panel.UpDown && value == 0:
		return "down"
	}
	return Text(value, panel.Unit)
}

// colorOf gives the colour of a value as the page shows it.
func colorOf(panel dashboards.Panel, value float64) template.CSS {
	name := panel.Good
	for _, step := range panel.Steps {
		if value >= step.From {
			name = step.Color
		}
	}
	switch name {
	case dashboards.Green:
		return "#56a64b"
	case dashboards.Yellow:
		return "#e0b400"
	case dashboards.Orange:
		return "#ff780a"
	case dashboards.Red:
		return "#e02f44"
	}
	return "#3274d9"
}

func barsOf(panel dashboards.Panel, list []Series) []bar {
	slices.SortFunc(list, func(a, b Series) int { return cmp.Compare(b.Last(), a.Last()) })
	top := panel.Max
	for _, series := range list {
		top = max(top, series.Last())
	}
	var bars []bar
	for _, series := range list {
		b := bar{
			Name:  series.Name,
			Text:  Text(series.Last(), panel.Unit),
			Color: colorOf(panel, series.Last()),
		}
		if top > 0 {
			b.Percent = 100 * series.Last() / top
		}
		bars = append(bars, b)
	}
	return bars
}

// text is a cell of a table.
type text struct {
	Text  string
	Color template.CSS // of its ground; empty: none
}

// maxRows is how many rows of a table are shown.
func maxRows(panel dashboards.Panel) int {
	_, height := panel.Size()
	return max(12, 34*height/22)
}

func cellsOf(panel dashboards.Panel, data Data) [][]text {
	var out [][]text
	for _, r := range data.Rows {
		line := make([]text, len(r))
		for i, value := range r {
			unit, known := panel.Units[data.Columns[i]]
			if !known && data.Columns[i] == panel.Column {
				unit = panel.Unit
			}
			switch v := value.(type) {
			case nil:
				line[i].Text = "-"
			case float64:
				line[i].Text = Text(v, unit)
			case string:
				line[i].Text = cut(v, unit)
				line[i].Color = painted(panel, v)
			default:
				line[i].Text = fmt.Sprint(v)
			}
		}
		out = append(out, line)
	}
	return out[:min(len(out), maxRows(panel))]
}

// cut writes an instant to the second.
func cut(value string, unit dashboards.Unit) string {
	if unit == dashboards.When {
		value, _, _ = strings.Cut(value, ".")
	}
	return strings.TrimSuffix(value, ".000000")
}

// painted is the colour of the word that a cell begins with.
func painted(panel dashboards.Panel, value string) template.CSS {
	first, _, _ := strings.Cut(value, " ")
	for _, word := range panel.Cells {
		if word.Name == first {
			return template.CSS(word.Color)
		}
	}
	return ""
}

// strips draw each series as cells along the time.
func (p Page) strips(panel dashboards.Panel, list []Series) []strip {
	whole := p.Scope.To.Sub(p.Scope.From).Seconds()
	step := max(1, p.Scope.Step.Seconds())
	var strips []strip
	for _, series := range list {
		line := strip{Name: series.Name}
		for i, at := range series.Times {
			if math.IsNaN(series.Values[i]) {
				continue
			}
			c := cell{
				X:    100 * float64(at-p.Scope.From.Unix()) / whole,
				W:    100*step/whole + 0.05,
				Text: textOf(panel, series.Values[i]),
			}
			if panel.Kind == dashboards.States {
				c.Color = colorOf(panel, series.Values[i])
			} else {
				c.Color = heat(series.Values[i] / max(panel.Max, 1))
			}
			line.Cells = append(line.Cells, c)
		}
		strips = append(strips, line)
	}
	return strips
}

// heat goes from dark blue over yellow to red.
func heat(part float64) template.CSS {
	part = min(1, max(0, part))
	return template.CSS(fmt.Sprintf("hsl(%.0f 80%% %.0f%%)", 240-230*part, 22+34*part))
}

// plot is the data of a line chart: all times, and a column for each series.
func plot(panel dashboards.Panel, list []Series, scope dashboards.Scope) template.JS {
	var times []int64
	for _, series := range list {
		times = append(times, series.Times...)
	}
	slices.Sort(times)
	times = slices.Compact(times)
	data := struct {
		Times    []int64      `json:"times"`
		Names    []string     `json:"names"`
		Values   [][]*float64 `json:"values"`
		Stack    bool         `json:"stack"`
		Span     bool         `json:"span"`
		Unit     string       `json:"unit"`
		Max      float64      `json:"max"`
		From, To int64
		Lines    []map[string]any `json:"lines"`
	}{Times: times, Stack: panel.Kind == dashboards.Stack, Span: panel.Kind == dashboards.Stack || panel.Queries[0].Lang == dashboards.SQL, Unit: string(panel.Unit), Max: panel.Max, From: scope.From.Unix(), To: scope.To.Unix()}
	if data.Stack &&
		slices.ContainsFunc(list, anything) { // what is nothing all the time is no layer
		list = slices.DeleteFunc(list, func(s Series) bool { return !anything(s) })
	}
	for _, series := range list {
		column := make([]*float64, len(times))
		for i, at := range series.Times {
			if value := series.Values[i]; !math.IsNaN(value) && !math.IsInf(value, 0) {
				column[sort.Search(len(times), func(j int) bool { return times[j] >= at })] = &value
			}
		}
		data.Names, data.Values = append(data.Names, series.Name), append(data.Values, column)
	}
	for _, step := range panel.Steps {
		data.Lines = append(data.Lines, map[string]any{"at": step.From, "color": step.Color})
	}
	text, err := json.Marshal(data)
	if err != nil { // finite numbers and texts only
		return "null"
	}
	return template.JS(text)
}

// anything tells a series that is not 0 all the time.
func anything(series Series) bool {
	return slices.ContainsFunc(series.Values, func(v float64) bool {
		return v != 0 && !math.IsNaN(v)
	})
}

// Text writes a value with its unit as people read it.
func Text(value float64, unit dashboards.Unit) string {
	if math.IsNaN(value) {
		return "-"
	}
	switch unit {
	case dashboards.Ratio:
		return fmt.Sprintf("%.1f %%", 100*value)
	case dashboards.Percent:
		return fmt.Sprintf("%.0f %%", value)
	case dashboards.Seconds:
		return seconds(value)
	case dashboards.Bytes, dashboards.ByteRate:
		suffix := ""
		if unit == dashboards.ByteRate {
			suffix = "/s"
		}
		return scaled(value, 1024, []string{" B", " KiB", " MiB", " GiB", " TiB", " PiB"}) + suffix
	case dashboards.Watts:
		return scaled(value, 1000, []string{" W", " kW", " MW"})
	case dashboards.Joules:
		return scaled(value, 1000, []string{" J", " kJ", " MJ", " GJ"})
	case dashboards.Celsius:
		return fmt.Sprintf("%.0f °C", value)
	case dashboards.PerSec:
		return scaled(value, 1000, []string{"/s", " k/s"})
	case dashboards.KWh:
		return fmt.Sprintf("%.3f kWh", value)
	case dashboards.When:
		return time.UnixMilli(int64(value)).UTC().Format("2006-01-02 15:04:05")
	}
	// Grafana writes such figures as they are: 1.02 k before g would be another unit.
	if name, ok := strings.CutPrefix(string(unit), "suffix:"); ok {
		return plain(value) + name
	}
	return scaled(value, 1000, []string{"", " k", " M", " G", " T", " P"})
}

// plain writes a figure without a prefix, to three digits at least.
func plain(value float64) string {
	if math.Abs(value) >= 100 {
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
	return strconv.FormatFloat(value, 'g', 3, 64)
}

func scaled(value, base float64, names []string) string {
	i := 0
	for math.Abs(value) >= base && i < len(names)-1 {
		value, i = value/base, i+1
	}
	if value == math.Trunc(value) && math.Abs(value) < 1e6 {
		return fmt.Sprintf("%.0f%s", value, names[i])
	}
	return fmt.Sprintf("%.3g%s", value, names[i])
}

func seconds(value float64) string {
	switch a := math.Abs(value); {
	case a == 0:
		return "0 s"
	case a < 1e-3:
		return fmt.Sprintf("%.0f µs", value*1e6)
	case a < 1:
		return fmt.Sprintf("%.3g ms", value*1e3)
	case a < 120:
		return fmt.Sprintf("%.3g s", value)
	case a < 7200:
		return fmt.Sprintf("%.3g min", value/60)
	case a < 2*86400:
		return fmt.Sprintf("%.3g h", value/3600)
	}
	return fmt.Sprintf("%.3g days", value/86400)
}
