package alerts

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Severity is how soon somebody has to act.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // now: somebody is paged
	Warning  Severity = "warning"  // today
	Info     Severity = "info"     // when there is time; in business hours only
)

// Audience is who is told.
type Audience string

// The audiences.
const (
	Operators Audience = "operators"
	Users     Audience = "users" // the owner of a job
)

// ParamKind is what a threshold is.
type ParamKind string

// The kinds of threshold.
const (
	Number   ParamKind = "number"
	Share    ParamKind = "share" // 0 to 1
	Part     ParamKind = "part"  // of a whole that it may exceed
	Duration ParamKind = "time"  // 30s, 5m, 2h, 7d
)

// Param is a threshold that the settings file may change. In an expression
// and in texts it stands as $name.
type Param struct {
	Name    string
	Kind    ParamKind
	Default string
	Help    string
}

// Case is series with which a rule is tried, as promtool's unit tests write
// them, one sample a minute; the verdict is taken after so many minutes.
type Case struct {
	Series []string
	After  int
}

// Rule is one alert.
type Rule struct {
	Name     string
	Group    string
	Severity Severity
	Audience Audience // empty: Operators
	Expr     string
	For      string // default of how long it must hold; the settings file may change it
	// Once marks an alert about an event. The others are about a state: they keep
	// firing for a while when their series go away, as in a gap between scrapes or
	// while the source restarts, so that nobody is told that it is over.
	Once    bool
	Params  []Param
	Summary string // one line, Prometheus' template language
	Detail  string // what is wrong, with the values
	Board   string // UID of the dashboard to open
	// Vars are variables of the dashboard, each set from a label of the alert.
	Vars map[string]string
	// Fires and Quiet are series with which the rule does and does not fire.
	Fires, Quiet Case
}

// Recording is a rule that computes a series from others.
type Recording struct {
	Record string
	Expr   string
	Help   string
	Group  string
}

// Recordings lists the recording rules. The ones about waiting are MetricsQL
// (increase, quantile_over_time) kept to what Prometheus understands too.
func Recordings() []Recording {
	return append(sloRecordings(), []Recording{
		{
			Group:  "muster-recording",
			Record: "muster:nodes:in_service_ratio",
			Help:   "Share of the nodes that can run jobs.",
			Expr:   `sum by (cluster) (muster_nodes{state=~"idle|mixed|allocated"}) / (sum by (cluster) (muster_nodes) > 0)`,
		},
		{
			Group:  "muster-recording",
			Record: "muster:gpus:allocated_ratio",
			Help:   "Share of the GPUs that jobs hold.",
			Expr:   `sum by (cluster) (muster_gpus{state=~"allocated|shared"}) / (sum by (cluster) (muster_gpus) > 0)`,
		},
		{
			Group:  "muster-recording",
			Record: "muster:job_wait_seconds:mean1h",
			Help:   "Mean wait of the jobs that started in the last hour, by partition.",
			Expr:   `sum by (cluster, partition) (increase(muster_job_wait_seconds_sum[1h])) / (sum by (cluster, partition) (increase(muster_job_wait_seconds_count[1h])) > 0)`,
		},
		{
			Group:  "muster-recording",
			Record: "muster:job_wait_seconds:p95_worst1d",
			Help:   "The hourly wait P95 that 5 % of the last day exceeded, by partition.",
			Expr:   `quantile_over_time(0.95, muster_kpi_wait_p95_seconds{by="partition",window="1h"}[1d])`,
		},
		{
			Group:  "muster-recording",
			Record: "muster:job_gpu_seconds:rate10m",
			Help:   "GPUs by account and by what was seen on them.",
			Expr:   `sum by (cluster, account, state) (rate(muster_job_gpu_seconds_total[10m]))`,
		},
		{
			Group:  "muster-recording",
			Record: "muster:ledger_disk_full:seconds",
			Help:   "Time until only the reserve is left on the ledger's disk if it fills as in the last six hours; absent while it does not fill.",
			Expr:   `clamp_min(muster_ledger_disk_free_bytes - muster_ledger_disk_reserve_bytes, 0) / (-1 * deriv(muster_ledger_disk_free_bytes[6h]) > 0)`,
		},
		{
			Group:  "muster-recording",
			Record: "muster:gpu_power_watts:sum",
			Help:   "What the GPUs of each node draw.",
			Expr:   `sum by (hostname) (DCGM_FI_DEV_POWER_USAGE)`,
		},
	}...)
}

// All lists every alert, by group.
func All() []Rule {
	var rules []Rule
	for _, list := range [...][]Rule{controlRules(), nodeRules(), gpuRules(), jobRules(), useRules(), sloRules()} {
		rules = append(rules, list...)
	}
	return rules
}

// Find returns an alert by name.
func Find(name string) (Rule, bool) {
	for _, rule := range All() {
		if rule.Name == name {
			return rule, true
		}
	}
	return Rule{}, false
}

// allParams are all thresholds of a rule: its own, and those each rule has.
func (r Rule) allParams() []Param {
	return append(
		[]Param{
			{"for", Duration, r.For, "how long it must hold"},
			{"severity", "severity", string(r.Severity), "critical, warning, info, or off"},
		},
		r.Params...)
}

// value reads a threshold's text.
func (p Param) check(text string) error {
	switch p.Kind {
	case Duration:
		_, err := parseDuration(text)
		return err
	case "severity":
		for _, s := range [...]string{string(Critical), string(Warning), string(Info), "off"} {
			if text == s {
				return nil
			}
		}
		return fmt.Errorf("%q: want critical, warning, info or off", text)
	}
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || strings.Trim(text, "0123456789.eE+-") != "":
		return fmt.Errorf("%q: want a number", text) // nor infinite, nor NaN, which nothing exceeds
	case n < 0:
		return fmt.Errorf("%s: want a number that is not negative", text)
	case p.Kind == Share && n > 1:
		return fmt.Errorf("%s: want a share, from 0 to 1", text)
	}
	return nil
}

// parseDuration reads 90s, 5m, 2h, 7d, as PromQL writes it.
func parseDuration(text string) (time.Duration, error) {
	units := map[byte]time.Duration{
		's': time.Second,
		'm': time.Minute,
		'h': time.Hour,
		'd': 24 * time.Hour,
		'w': 7 * 24 * time.Hour,
	}
	bad := fmt.Errorf("%q: want a number with s, m, h, d or w, such as 5m", text)
	if len(text) < 2 || units[text[len(text)-1]] == 0 {
		return 0, bad
	}
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if err != nil {
		return 0, bad
	}
	return time.Duration(n) * units[text[len(text)-1]], nil
}

// shownThresholds are the thresholds as texts have them: a share as a percentage, like the
// value beside it.
func (r Rule) shownThresholds(values map[string]string) map[string]string {
	out := maps.Clone(values)
	for _, param := range r.Params {
		if param.Kind != Share && param.Kind != Part {
			continue
		}
		if n, err := strconv.ParseFloat(values[param.Name], 64); err == nil {
			out[param.Name] = strconv.FormatFloat(n*100, 'g', 4, 64) + "%"
		}
	}
	return out
}

// fillThresholds puts thresholds in place of their names. A time stands as it was written
// where its name is ($above: 4h), and in seconds where _seconds follows the name:
// texts and expressions then have one threshold and no second unit. Names that
// Prometheus' templates use ($labels, $value) stay.
func fillThresholds(text string, values map[string]string) string {
	pairs := []string{}
	for _, name := range sortedKeys(values) {
		if d, err := parseDuration(values[name]); err == nil {
			pairs = append(pairs, "$"+name+"_seconds", strconv.FormatInt(int64(d/time.Second), 10))
		}
		pairs = append(pairs, "$"+name, values[name])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
