package paging

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// recorder keeps the series that the rules read, a sample a minute, as
// Prometheus would have them: a series that is missing in a scrape is stale.
type recorder struct {
	wanted map[string]bool // names of metrics
	zero   spec.Instant    // of the replay; the rules see it as the beginning of time
	minute int
	now    spec.Instant
	seen   map[string]bool
	series map[string]*values
}

// values are the samples of a series in promtool's notation.
type values struct {
	text strings.Builder
	last string // the newest sample, repeated times over
	many int
	next int // the minute after it
}

func newRecorder(wanted map[string]bool) *recorder {
	return &recorder{wanted: wanted, minute: -1, series: map[string]*values{}}
}

// put adds the sample of a minute; minutes in between have none.
func (v *values) put(minute int, sample string) {
	if gap := minute - v.next; gap > 0 {
		v.run("_", gap)
	}
	v.run(sample, 1)
	v.next = minute + 1
}

func (v *values) run(sample string, times int) {
	if sample == v.last {
		v.many += times
		return
	}
	v.flush()
	v.last, v.many = sample, times
}

// flush writes the samples that are equal. "1x3" is 1 and three more; "_x3" is
// three that are missing.
func (v *values) flush() {
	switch {
	case v.many == 0:
		return
	case v.last == "_":
		fmt.Fprintf(&v.text, "_x%d ", v.many)
	case v.last == "stale" || v.many == 1:
		v.text.WriteString(strings.Repeat(v.last+" ", v.many))
	default:
		fmt.Fprintf(&v.text, "%sx%d ", v.last, v.many-1)
	}
	v.many = 0
}

func (r *recorder) begin(now spec.Instant) {
	if r.minute < 0 {
		r.zero = now
	}
	r.minute++
	r.now = now
	r.seen = map[string]bool{}
}

// isInstant tells metrics whose value is a time, which the rules compare with
// time().
var isInstant = regexp.MustCompile(`_(timestamp|last_collection_time)_seconds\{`)

// target takes a scrape in, with the labels that Prometheus gives it.
func (r *recorder) target(job, instance string, up bool, text string) {
	own := `job="` + job + `",instance="` + instance + `"`
	value := "0"
	if up {
		value = "1"
	}
	r.add(`up{cluster="replay",`+own+`}`, value)
	scan := bufio.NewScanner(strings.NewReader(text))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := scan.Text()
		name := line[:max(strings.IndexAny(line, "{ "), 0)]
		if !r.wanted[name] {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		series, value := line[:at], line[at+1:]
		if series == name {
			series = name + "{" + own + "}"
		} else {
			series = strings.TrimSuffix(series, "}") + "," + own + "}"
		}
		if isInstant.MatchString(series) {
			value = r.shifted(value)
		}
		r.add(series, value)
	}
}

// shifted is an instant as seconds since the beginning of the replay.
func (r *recorder) shifted(value string) string {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || n == 0 {
		return value
	}
	return strconv.FormatFloat(n-float64(r.zero)/float64(spec.Second), 'g', -1, 64)
}

func (r *recorder) add(series, value string) {
	v := r.series[series]
	if v == nil {
		v = &values{}
		r.series[series] = v
	}
	v.put(r.minute, value)
	r.seen[series] = true
}

// end marks the series that were there a minute ago and are not now.
func (r *recorder) end() error {
	for name, v := range r.series {
		if !r.seen[name] && v.next == r.minute && v.last != "stale" {
			v.put(r.minute, "stale")
		}
	}
	return nil
}

// write writes a test for promtool: the series, and a question each minute.
func (r *recorder) write(out io.Writer, rules, question string) error {
	b := bufio.NewWriter(out)
	fmt.Fprintf(b, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n", rules)
	names := make([]string, 0, len(r.series))
	for name := range r.series {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		v := r.series[name]
		v.flush()
		fmt.Fprintf(b, "      - series: '%s'\n        values: '%s'\n", strings.ReplaceAll(name, "'", "''"), strings.TrimSpace(v.text.String()))
	}
	b.WriteString("    promql_expr_test:\n")
	for minute := range r.minute + 1 {
		fmt.Fprintf(b, "      - {expr: '%s', eval_time: %dm}\n", question, minute)
	}
	return b.Flush()
}
