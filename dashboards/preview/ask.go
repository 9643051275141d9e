package preview

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhpc/muster/dashboards"
)

// Source is where the data comes from.
type Source struct {
	Prometheus string // http://host:9090
	// ClickHouse is http://host:8123, or the path of the embedded engine's socket.
	ClickHouse         string
	Database           string
	User, Password     string
	prom, clickHouse   *http.Client
	clickHouseEndpoint string
}

// Open makes the clients.
func (s Source) Open() Source {
	s.prom = &http.Client{Timeout: 20 * time.Second}
	s.clickHouse = &http.Client{Timeout: 20 * time.Second}
	s.clickHouseEndpoint = s.ClickHouse
	if strings.HasPrefix(s.ClickHouse, "/") {
		s.clickHouseEndpoint = "http://engine"
		s.clickHouse.Transport = &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", s.ClickHouse)
			},
		}
	}
	return s
}

// Series is one line.
type Series struct {
	Name   string
	Labels map[string]string
	Times  []int64 // seconds
	Values []float64
}

// Last is the newest value.
func (s Series) Last() float64 {
	if len(s.Values) == 0 {
		return math.NaN()
	}
	return s.Values[len(s.Values)-1]
}

// Data is what a panel shows: lines, or a table.
type Data struct {
	Series  []Series
	Columns []string
	Rows    [][]any
}

// First is the figure of a panel that shows one.
func (d Data) First() (float64, bool) {
	if len(d.Series) > 0 {
		return d.Series[0].Last(), true
	}
	for _, row := range d.Rows {
		for _, v := range row {
			if f, ok := v.(float64); ok {
				return f, true
			}
		}
	}
	return 0, false
}

// Empty tells that there is nothing to show.
func (d Data) Empty() bool { return len(d.Series) == 0 && len(d.Rows) == 0 }

// Panel asks a panel's queries.
func (s Source) Panel(
	ctx context.Context,
	scope dashboards.Scope,
	panel dashboards.Panel,
) (Data, error) {
	var out Data
	for _, query := range panel.Queries {
		data, err := s.Query(ctx, scope, panel, query)
		if err != nil {
			return Data{}, err
		}
		out.Series = append(out.Series, data.Series...)
		if len(data.Columns) > 0 {
			out.Columns, out.Rows = data.Columns, append(out.Rows, data.Rows...)
		}
	}
	return out, nil
}

// Query asks one query of a panel.
func (s Source) Query(
	ctx context.Context,
	scope dashboards.Scope,
	panel dashboards.Panel,
	query dashboards.Query,
) (Data, error) {
	text, err := scope.Expand(query)
	if err != nil {
		return Data{}, err
	}
	if query.Lang == dashboards.SQL {
		return s.sql(ctx, text, query.Series)
	}
	form := url.Values{"query": {text}}
	path := "/api/v1/query_range"
	switch panel.Kind {
	case dashboards.Stat, dashboards.Bars, dashboards.Table:
		path = "/api/v1/query"
		form.Set("time", strconv.FormatInt(scope.To.Unix(), 10))
	default:
		form.Set("start", strconv.FormatInt(scope.From.Unix(), 10))
		form.Set("end", strconv.FormatInt(scope.To.Unix(), 10))
		form.Set("step", fmt.Sprintf("%d", max(1, int64(scope.Step/time.Second))))
	}
	data, err := s.promQL(ctx, path, form, query.Legend)
	if err != nil {
		return Data{}, fmt.Errorf("%w in %s", err, text)
	}
	if panel.Kind == dashboards.Table {
		return tableOf(data.Series, panel.Column), nil
	}
	return data, nil
}

// promQL asks Prometheus.
func (s Source) promQL(
	ctx context.Context,
	path string,
	form url.Values,
	legend string,
) (Data, error) {
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		strings.TrimRight(s.Prometheus, "/")+path,
		strings.NewReader(form.Encode()),
	)
	if err != nil {
		return Data{}, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	body, err := fetch(s.prom, request)
	if err != nil {
		return Data{}, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
				Values [][2]any
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Data{}, fmt.Errorf("prometheus: %w", err)
	}
	var data Data
	for _, r := range answer.Data.Result {
		line := Series{Name: nameOf(r.Metric, legend), Labels: r.Metric}
		points := r.Values
		if points == nil {
			points = [][2]any{r.Value}
		}
		for _, p := range points {
			at, ok := p[0].(float64)
			text, isText := p[1].(string)
			value, err := strconv.ParseFloat(text, 64)
			if !ok || !isText || err != nil {
				return Data{}, fmt.Errorf("prometheus answered the point %v", p)
			}
			line.Times, line.Values = append(line.Times, int64(at)), append(line.Values, value)
		}
		data.Series = append(data.Series, line)
	}
	slices.SortFunc(data.Series, func(a, b Series) int { return cmp.Compare(a.Name, b.Name) })
	return data, nil
}

// nameOf fills a legend's {{label}} in.
func nameOf(labels map[string]string, legend string) string {
	if legend == "" {
		var parts []string
		for _, key := range sortedKeys(labels) {
			if key != "__name__" && key != "cluster" {
				parts = append(parts, key+"="+labels[key])
			}
		}
		return strings.Join(parts, " ")
	}
	for _, k := range sortedKeys(labels) {
		legend = strings.ReplaceAll(legend, "{{"+k+"}}", labels[k])
	}
	return legend
}

// tableOf makes a row of each series, with its value under a heading.
func tableOf(list []Series, heading string) Data {
	hidden := dashboards.HiddenLabels()
	columns := map[string]bool{}
	for _, series := range list {
		for k, v := range series.Labels {
			if v != "" && !slices.Contains(hidden, k) {
				columns[k] = true
			}
		}
	}
	if len(list) == 0 {
		return Data{}
	}
	labels := sortedKeys(columns)
	data := Data{Columns: labels}
	if heading != dashboards.Hidden {
		data.Columns = append(data.Columns, heading)
	}
	for _, series := range list {
		row := make([]any, len(data.Columns))
		for i, c := range labels {
			row[i] = series.Labels[c]
		}
		if len(row) > len(labels) {
			row[len(labels)] = series.Last()
		}
		data.Rows = append(data.Rows, row)
	}
	return data
}

// sql asks the accounting store.
func (s Source) sql(ctx context.Context, text string, series bool) (Data, error) {
	to := strings.TrimRight(s.clickHouseEndpoint, "/") + "/?database=" + url.QueryEscape(s.Database)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(text+
		" FORMAT JSONCompact"))
	if err != nil {
		return Data{}, err
	}
	if s.User != "" {
		request.SetBasicAuth(s.User, s.Password)
	}
	body, err := fetch(s.clickHouse, request)
	if err != nil {
		return Data{}, fmt.Errorf("%w in %s", err, text)
	}
	var answer struct {
		Meta []struct{ Name, Type string }
		Data [][]any
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return Data{}, fmt.Errorf("accounting store: %w", err)
	}
	data := Data{Rows: answer.Data}
	for _, m := range answer.Meta {
		data.Columns = append(data.Columns, m.Name)
	}
	for _, row := range data.Rows {
		for i, v := range row { // large integers come as texts
			if t, ok := v.(string); ok && strings.Contains(answer.Meta[i].Type, "Int") {
				if n, err := strconv.ParseFloat(t, 64); err == nil {
					row[i] = n
				}
			}
		}
	}
	if series {
		return seriesOf(data)
	}
	return data, nil
}

// seriesOf makes lines of rows (time, name, value).
func seriesOf(data Data) (Data, error) {
	lines := map[string]*Series{}
	for _, row := range data.Rows {
		if len(row) != 3 {
			return Data{}, fmt.Errorf(
				"a row of a time series has %d columns, expected time, name and value",
				len(row),
			)
		}
		at, err := time.Parse("2006-01-02 15:04:05", fmt.Sprint(row[0]))
		value, ok := row[2].(float64)
		if err != nil || !ok {
			return Data{}, fmt.Errorf("a row of a time series is %v (%w)", row, err)
		}
		name := fmt.Sprint(row[1])
		if lines[name] == nil {
			lines[name] = &Series{Name: name}
		}
		lines[name].Times, lines[name].Values = append(
			lines[name].Times,
			at.Unix(),
		), append(
			lines[name].Values,
			value,
		)
	}
	var out Data
	for _, name := range sortedKeys(lines) {
		out.Series = append(out.Series, *lines[name])
	}
	return out, nil
}

// fetch does a request and wants a 200.
func fetch(client *http.Client, request *http.Request) ([]byte, error) {
	resp, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s: %.300s", request.URL.Host, resp.Status, body)
	}
	return body, nil
}

// Values gives the values of a label in Prometheus, sorted.
func (s Source) Values(ctx context.Context, match, label string) ([]string, error) {
	to := strings.TrimRight(s.Prometheus, "/") + "/api/v1/label/" + label + "/values?match[]=" +
		url.QueryEscape(match)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, to, http.NoBody)
	if err != nil {
		return nil, err
	}
	body, err := fetch(s.prom, request)
	if err != nil {
		return nil, err
	}
	var answer struct{ Data []string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	slices.Sort(answer.Data)
	return answer.Data, nil
}

// RunningJob is the number of a job that runs: the one that has held GPUs for
// longest, else the one with most CPUs; "0" when none runs.
func (s Source) RunningJob(ctx context.Context, scope dashboards.Scope) (string, error) {
	for _, expr := range [...]string{`topk(1, sum by (slurm_job_id) (muster_job_gpu_seconds_total{cluster="$cluster"}))`, `topk(1, sum by (slurm_job_id) (muster_job_cpus{cluster="$cluster"}))`} {
		data, err := s.Query(
			ctx,
			scope,
			dashboards.Panel{Kind: dashboards.Stat},
			dashboards.Query{Expr: expr},
		)
		if err != nil {
			return "", err
		}
		if len(data.Series) > 0 {
			return data.Series[0].Labels["slurm_job_id"], nil
		}
	}
	return "0", nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
