package paging

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"github.com/musterhpc/muster/spec"
)

// recorder keeps the series that the rules read, a sample a minute, as
// Prometheus would have them: a series that is missing in a scrape is stale.
type recorder struct {
	wanted map[string]bool // names of metrics
	zero   spec.Instant    // of the replay; the rules see it as the beginning of time
	minute int
	series map[string]*values
	// scraped has the series of a target by the text that the page has for them.
	scraped map[string]map[string]*values
}

// values are the samples of a series: one a minute, equal ones together.
type values struct {
	runs    []run
	instant bool          // the sample is a time
	labels  labels.Labels // for the engine, as is
	chunk   *chunkenc.XORChunk
}

// run is a sample that was the same for so many minutes. Minutes between runs have
// no sample; that of a series that ended is value.StaleNaN.
type run struct {
	from, times int
	sample      float64
}

func (r *run) end() int { return r.from + r.times }

func (r *run) stale() bool { return value.IsStaleNaN(r.sample) }

func newRecorder(wanted map[string]bool) *recorder {
	return &recorder{wanted: wanted, minute: -1, series: map[string]*values{}, scraped: map[string]map[string]*values{}}
}

// put adds the sample of a minute; minutes in between have none.
func (v *values) put(minute int, sample float64) {
	if last := v.last(); last != nil && last.end() == minute && math.Float64bits(last.sample) == math.Float64bits(sample) {
		last.times++
		return
	}
	v.runs = append(v.runs, run{from: minute, times: 1, sample: sample})
}

// last is the newest run; nil before the first sample.
func (v *values) last() *run {
	if len(v.runs) == 0 {
		return nil
	}
	return &v.runs[len(v.runs)-1]
}

// text is the samples in promtool's notation. "1x3" is 1 and three more; "_x3" is
// three that are missing.
func (v *values) text() string {
	var b strings.Builder
	next := 0
	for i := range v.runs {
		r := &v.runs[i]
		if gap := r.from - next; gap > 0 {
			fmt.Fprintf(&b, "_x%d ", gap)
		}
		sample := strconv.FormatFloat(r.sample, 'g', -1, 64)
		switch {
		case r.stale():
			b.WriteString(strings.Repeat("stale ", r.times))
		case r.times == 1:
			b.WriteString(sample + " ")
		default:
			fmt.Fprintf(&b, "%sx%d ", sample, r.times-1)
		}
		next = r.end()
	}
	return strings.TrimSpace(b.String())
}

func (r *recorder) begin(now spec.Instant) {
	if r.minute < 0 {
		r.zero = now
	}
	r.minute++
}

// isInstant tells metrics whose value is a time, which the rules compare with
// time().
var isInstant = regexp.MustCompile(`_(timestamp|last_collection_time)_seconds\{`)

// target takes a scrape in, with the labels that Prometheus gives it.
func (r *recorder) target(job, instance string, up bool, page []byte) error {
	own := `job="` + job + `",instance="` + instance + `"`
	answers := 0.0
	if up {
		answers = 1
	}
	r.named(`up{cluster="replay",`+own+`}`).put(r.minute, answers)
	known := r.scraped[instance]
	if known == nil {
		known = map[string]*values{}
		r.scraped[instance] = known
	}
	for len(page) > 0 {
		line, rest, _ := bytes.Cut(page, []byte("\n"))
		page = rest
		name := line[:max(bytes.IndexAny(line, "{ "), 0)]
		if !r.wanted[string(name)] {
			continue
		}
		at := bytes.LastIndexByte(line, ' ')
		v := known[string(line[:at])]
		if v == nil {
			v = r.named(withLabels(string(name), string(line[:at]), own))
			v.instant = isInstant.Match(line)
			known[string(line[:at])] = v
		}
		sample, err := strconv.ParseFloat(string(line[at+1:]), 64)
		if err != nil {
			return fmt.Errorf("scrape of %s: %q: %w", instance, line, err)
		}
		if v.instant {
			sample = r.shifted(sample)
		}
		v.put(r.minute, sample)
	}
	return nil
}

// withLabels adds labels to a series.
func withLabels(name, series, own string) string {
	if series == name {
		return name + "{" + own + "}"
	}
	return strings.TrimSuffix(series, "}") + "," + own + "}"
}

// shifted is an instant as seconds since the beginning of the replay.
func (r *recorder) shifted(sample float64) float64 {
	if sample == 0 {
		return sample
	}
	return sample - float64(r.zero)/float64(spec.Second)
}

// named gives the series of a name, a new one the first time.
func (r *recorder) named(series string) *values {
	v := r.series[series]
	if v == nil {
		v = &values{}
		r.series[series] = v
	}
	return v
}

// end marks the series that were there a minute ago and are not now.
func (r *recorder) end() {
	for _, v := range r.series {
		if last := v.last(); last.end() == r.minute && !last.stale() {
			v.put(r.minute, math.Float64frombits(value.StaleNaN))
		}
	}
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
		fmt.Fprintf(b, "      - series: '%s'\n        values: '%s'\n", strings.ReplaceAll(name, "'", "''"), r.series[name].text())
	}
	b.WriteString("    promql_expr_test:\n")
	for minute := range r.minute + 1 {
		fmt.Fprintf(b, "      - {expr: '%s', eval_time: %dm}\n", question, minute)
	}
	return b.Flush()
}
