package dashboards

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/statushistory"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The data sources: each dashboard has a choice of them at its top.
const (
	promType  = "prometheus"
	clickType = "grafana-clickhouse-datasource"
	promVar   = "prometheus"
	clickVar  = "clickhouse"
)

// File is one generated file.
type File struct {
	Name string
	Data []byte
}

// Files renders every dashboard as Grafana's JSON.
func Files() ([]File, error) {
	var files []File
	for _, board := range All() {
		d, err := board.Grafana()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", board.UID, err)
		}
		data, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", board.UID, err)
		}
		files = append(files, File{board.UID + ".json", append(data, '\n')})
	}
	return files, nil
}

func ptr[T any](v T) *T { return &v }

// Grafana renders a dashboard with the SDK.
func (b Board) Grafana() (dashboard.Dashboard, error) {
	d := dashboard.NewDashboardBuilder(b.Title).
		Uid(b.UID).
		Description(b.Description).
		Tags([]string{"muster"}).
		Time(orText(b.From, "now-6h"), "now").
		Refresh("30s").
		Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Readonly().
		Link(dashboard.NewDashboardLinkBuilder("Muster").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"muster"}).
			AsDropdown(true).KeepTime(true).IncludeVars(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder(promVar).Label("Metrics").Type(promType)).
		WithVariable(dashboard.NewDatasourceVariableBuilder(clickVar).Label("Accounting store").Type(clickType))
	for _, v := range b.Vars {
		d.WithVariable(v.grafana())
	}
	id := uint32(0)
	for _, row := range b.Rows {
		d.WithRow(dashboard.NewRowBuilder(row.Title))
		for _, panel := range row.Panels {
			id++
			d.WithPanel(panel.grafana(id))
		}
	}
	out, err := d.Build()
	for i := range out.Templating.List {
		out.Templating.List[i].Auto = nil
		out.Templating.List[i].AutoMin = nil
		out.Templating.List[i].AutoCount = nil // of variables of another kind; Grafana's types do not know them here
	}
	return out, err
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// grafana renders a variable. "All" is everything, also where there is
// nothing: a variable without values must not empty the dashboard.
func (v Var) grafana() *dashboard.QueryVariableBuilder {
	q := dashboard.NewQueryVariableBuilder(v.Name).
		Label(v.Label).
		Query(dashboard.StringOrMap{String: ptr(v.Query)}).
		Datasource(sourceRef(promType, promVar)).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortNaturalAsc).
		AllowCustomValue(true)
	if v.Multi {
		all := dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}
		q.Multi(true).
			IncludeAll(true).
			AllValue(".*").
			Current(dashboard.VariableOption{Selected: ptr(true), Text: dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}}, Value: all})
	}
	return q
}

func sourceRef(kind, variable string) common.DataSourceRef {
	return common.DataSourceRef{Type: ptr(kind), Uid: ptr("${" + variable + "}")}
}

// grafana renders a panel.
func (p Panel) grafana(id uint32) *dashboard.PanelBuilder {
	panel := dashboard.NewPanelBuilder().
		Id(id).
		Title(p.Title).
		Description(p.Description).
		Span(uint32(p.width())).
		Height(uint32(p.height())).
		Unit(string(p.Unit))
	if p.Max > 0 {
		panel.Min(0).Max(p.Max)
	}
	if p.MayBeEmpty != "" {
		panel.NoValue(p.MayBeEmpty)
	}
	ds := sourceRef(promType, promVar)
	for i, query := range p.Queries {
		ref := string(rune('A' + i))
		if query.Lang == SQL {
			ds = sourceRef(clickType, clickVar)
			panel.WithTarget(newClickHouse(ref, query))
			continue
		}
		t := prometheus.NewDataqueryBuilder().
			RefId(ref).
			Expr(query.Expr).
			LegendFormat(orText(query.Legend, "__auto")).
			Datasource(ds).
			EditorMode(prometheus.QueryEditorModeCode)
		switch p.Kind {
		case Table:
			t.Instant().Format(prometheus.PromQueryFormatTable)
		case Stat, Bars:
			t.Instant()
		default:
			t.Range()
		}
		panel.WithTarget(t)
	}
	panel.Datasource(ds)
	if p.UpDown {
		panel.Mappings(upDown())
	}
	p.thresholds(panel)
	p.links(panel)
	p.draw(panel)
	return panel
}

// upDown writes 1 and 0 as words.
func upDown() []dashboard.ValueMapping {
	m := dashboard.NewValueMap()
	m.Options = map[string]dashboard.ValueMappingResult{
		"0": {Text: ptr("down"), Index: ptr(int32(0))},
		"1": {Text: ptr("up"), Index: ptr(int32(1))},
	}
	return []dashboard.ValueMapping{{ValueMap: m}}
}

// paint gives cells of a table the colour of the word that they begin with.
func (p Panel) paint(panel *dashboard.PanelBuilder) {
	if len(p.Cells) == 0 {
		return
	}
	var list []dashboard.ValueMapping
	for i, word := range p.Cells {
		m := dashboard.NewRegexMap()
		m.Options.Pattern = "/^" + word.Name + "( .*)?$/"
		m.Options.Result = dashboard.ValueMappingResult{
			Color: ptr(word.Color),
			Index: ptr(int32(i)),
		}
		list = append(list, dashboard.ValueMapping{RegexMap: m})
	}
	panel.OverrideByRegexp(
		"/^[0-9]+$/",
		[]dashboard.DynamicConfigValue{
			{
				Id:    "custom.cellOptions",
				Value: map[string]any{"type": "color-background", "mode": "basic"},
			},
			{Id: "mappings", Value: list},
		},
	)
}

// mayName tells whether a legend of the query can end in a state's name.
func (q Query) mayName(word string) bool {
	if strings.HasSuffix(q.Legend, "{{state}}") || strings.HasSuffix(" "+q.Legend, " "+word) {
		return true
	}
	// A time series of SQL has a line for each state of Slurm, named in capitals.
	return q.Series && strings.Contains(q.Expr, "state") && strings.ToUpper(word) == word
}

// words gives the states of a panel their colours.
func (p Panel) words(panel *dashboard.PanelBuilder) {
	for _, word := range Words() {
		if !slices.ContainsFunc(p.Queries, func(q Query) bool { return q.mayName(word.Name) }) {
			continue
		}
		panel.OverrideByRegexp(
			"/(^| )"+word.Name+"$/",
			[]dashboard.DynamicConfigValue{
				{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": word.Color}},
			},
		)
	}
}

// thresholds colours by value; without a judgement each series has a colour
// of its own.
func (p Panel) thresholds(panel *dashboard.PanelBuilder) {
	if p.Good == "" {
		mode := dashboard.FieldColorModeIdPaletteClassicByName
		if p.Kind == HeatMap {
			mode = dashboard.FieldColorModeIdContinuousBlYlRd
		}
		panel.ColorScheme(dashboard.NewFieldColorBuilder().Mode(mode))
		return
	}
	steps := []dashboard.Threshold{{Color: p.Good}}
	for _, step := range p.Steps {
		steps = append(steps, dashboard.Threshold{Value: ptr(step.From), Color: step.Color})
	}
	panel.Thresholds(
		dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps),
	)
	if p.Kind != Lines {
		panel.ColorScheme(
			dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds),
		)
	}
}

// links renders links: those with a variable stand at the values, the others
// at the panel.
func (p Panel) links(panel *dashboard.PanelBuilder) {
	byColumn := p.Kind == Table
	var ofPanel, ofData []builder
	for _, l := range p.Links {
		link := dashboard.NewDashboardLinkBuilder(titleOf(l.Board)).
			Type(dashboard.DashboardLinkTypeLink)
		if l.Var == "" && l.URL == "" {
			ofPanel = append(ofPanel, link.Url("/d/"+l.Board+
				"?${cluster:queryparam}&${__url_time_range}"))
			continue
		}
		value := "${__field.labels." + l.Label + "}"
		if byColumn {
			value = `${__data.fields["` + l.Label + `"]}`
		}
		if l.URL != "" {
			outside := dashboard.NewDashboardLinkBuilder(l.Title).
				Type(dashboard.DashboardLinkTypeLink).
				TargetBlank(true).
				Url(strings.ReplaceAll(l.URL, "%s", value))
			if built, err := outside.Build(); err != nil {
				panel.RecordError("links", err)
			} else {
				panel.OverrideByName(
					l.Label,
					[]dashboard.DynamicConfigValue{
						{Id: "links", Value: []dashboard.DashboardLink{built}},
					},
				)
			}
			continue
		}
		link.Url("/d/" + l.Board + "?${cluster:queryparam}&var-" + l.Var + "=" + value +
			"&${__url_time_range}").Title(titleOf(l.Board) + ": " + value)
		if !byColumn {
			ofData = append(ofData, link)
			continue
		}
		if built, err := link.Build(); err != nil {
			panel.RecordError("links", err)
		} else {
			panel.OverrideByName(
				l.Label,
				[]dashboard.DynamicConfigValue{
					{Id: "links", Value: []dashboard.DashboardLink{built}},
				},
			)
		}
	}
	if len(ofPanel) > 0 {
		panel.Links(ofPanel)
	}
	if len(ofData) > 0 {
		panel.DataLinks(ofData)
	}
}

func titleOf(uid string) string {
	for _, board := range All() {
		if board.UID == uid {
			return strings.TrimPrefix(board.Title, "Muster / ")
		}
	}
	return uid
}

// draw sets what the kind of panel needs.
func (p Panel) draw(panel *dashboard.PanelBuilder) {
	legend := common.VizLegendOptions{
		DisplayMode: common.LegendDisplayModeList,
		Placement:   common.LegendPlacementBottom,
		ShowLegend:  true,
		Calcs:       []string{},
	}
	tooltip := common.VizTooltipOptions{
		Mode: common.TooltipDisplayModeMulti,
		Sort: common.SortOrderDescending,
	}
	last := common.ReduceDataOptions{
		Calcs:  []string{"lastNotNull"},
		Fields: ptr(""),
		Values: ptr(false),
	}
	switch p.Kind {
	case Stat:
		o := stat.NewOptions()
		o.GraphMode = common.BigValueGraphModeNone
		o.ColorMode = common.BigValueColorModeValue
		o.ReduceOptions = last
		o.Orientation = common.VizOrientationAuto
		panel.Type("stat").Options(o)
	case Bars:
		o := bargauge.NewOptions()
		o.Orientation = common.VizOrientationHorizontal
		o.ReduceOptions = last
		o.DisplayMode = common.BarGaugeDisplayModeGradient
		panel.Type("bargauge").Options(o)
	case Table:
		o := table.NewOptions()
		o.Footer = nil
		if p.SortBy != "" {
			o.SortBy = []common.TableSortByFieldState{{DisplayName: p.SortBy, Desc: ptr(false)}}
		}
		p.paint(panel)
		panel.Type("table").Options(o)
		for i := range p.Queries {
			if p.Queries[i].Lang != SQL {
				hidden, renamed := map[string]bool{"Time": true}, map[string]string{}
				for _, name := range HiddenLabels() {
					hidden[name] = true
				}
				if p.Column == Hidden {
					hidden[ValueColumn] = true
				} else {
					renamed[ValueColumn] = p.Column
				}
				panel.WithTransformation(
					dashboard.DataTransformerConfig{
						Id:      "organize",
						Options: map[string]any{"excludeByName": hidden, "renameByName": renamed},
					},
				)
			}
		}
		for _, name := range sortedKeys(p.Units) {
			panel.OverrideByName(
				name,
				[]dashboard.DynamicConfigValue{{Id: "unit", Value: string(p.Units[name])}},
			)
		}
	case HeatMap:
		o := statushistory.NewOptions()
		o.Legend = legend
		o.Tooltip = tooltip
		o.ShowValue = common.VisibilityModeNever
		o.PerPage = nil
		o.Legend.ShowLegend = false
		panel.Type("status-history").Options(o)
	case States:
		o := statetimeline.NewOptions()
		o.Legend = legend
		o.Tooltip = tooltip
		o.ShowValue = common.VisibilityModeNever
		panel.Type("state-timeline").Options(o)
	case Lines, Stack:
		o := timeseries.NewOptions()
		o.Legend, o.Tooltip = legend, tooltip
		c := timeseries.NewFieldConfig()
		c.LineWidth = ptr(1.0)
		c.ShowPoints = ptr(common.VisibilityModeNever)
		c.FillOpacity = ptr(10.0)
		p.words(panel)
		if p.Kind == Stack { // a line would draw what is 0 on top of the rest
			c.LineWidth, c.FillOpacity = ptr(0.0), ptr(80.0)
			c.Stacking = &common.StackingConfig{
				Mode:  ptr(common.StackingModeNormal),
				Group: ptr("A"),
			}
		}
		if len(p.Steps) > 0 {
			c.ThresholdsStyle = &common.GraphThresholdsStyleConfig{
				Mode: common.GraphThresholdsStyleModeLine,
			}
		}
		panel.Type("timeseries").Options(o).Custom(c)
	}
}
