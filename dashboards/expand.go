package dashboards

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Scope is what a dashboard is looked at with: the choices at its top and the
// time. A variable that is missing stands for all of its values.
type Scope struct {
	Vars     map[string][]string
	From, To time.Time
	Step     time.Duration // distance of two points; 0: a minute
	Scrape   time.Duration // scrape interval that the data source is set to; 0: 15 seconds, as Grafana has it
}

// rate is the window of rate() and increase(): a step and a scrape, so that
// no point misses a sample between two windows, and at least four scrapes.
func (s Scope) rate() time.Duration {
	scrape := s.Scrape
	if scrape <= 0 {
		scrape = 15 * time.Second
	}
	return max(s.step()+scrape, 4*scrape)
}

func (s Scope) step() time.Duration {
	if s.Step <= 0 {
		return time.Minute
	}
	return s.Step
}

var variable = regexp.MustCompile(`\$\{([a-z_]+)(?::([a-z]+))?\}|\$([a-z_]+)`)

// Expand turns a query as Grafana stores it into one that an engine runs, as
// Grafana's data sources do it. Of PromQL: $name becomes a regular expression
// in which label values mean themselves, $__rate_interval, $__interval and
// $__range. Of SQL: ${name:singlequote} becomes quoted texts, and the macros
// $__timeFilter(column), $__timeInterval(column), $__interval_s, $__conditionalAll(condition,
// $name), $__fromTime and $__toTime.
func (s Scope) Expand(query Query) (string, error) {
	if query.Lang == SQL {
		return s.expandSQL(query.Expr)
	}
	text := strings.NewReplacer("$__rate_interval", promDuration(s.rate()), "$__interval", promDuration(s.step()),
		"$__range", promDuration(s.To.Sub(s.From))).
		Replace(query.Expr)
	return s.replace(text, func(values []string, format string) (string, error) {
		switch {
		case format != "":
			return "", fmt.Errorf("PromQL has no variables in the format %q", format)
		case values == nil:
			return ".*", nil
		}
		escaped := make([]string, len(values))
		for i, v := range values {
			escaped[i] = promText(regexp.QuoteMeta(v))
		}
		if len(escaped) == 1 {
			return escaped[0], nil
		}
		return "(" + strings.Join(escaped, "|") + ")", nil
	})
}

// promText escapes what would end a PromQL text.
func promText(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text)
}

func promDuration(d time.Duration) string {
	return fmt.Sprintf("%ds", max(1, int64(d/time.Second)))
}

// sqlText quotes a text for ClickHouse.
func sqlText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// macro finds a call of a macro; its argument has no parentheses but one pair.
var macro = regexp.MustCompile(`\$__([a-zA-Z_]+)(?:\(((?:[^()]|\([^()]*\))*)\))?`)

func (s Scope) expandSQL(text string) (string, error) {
	var failed error
	text = macro.ReplaceAllStringFunc(text, func(found string) string {
		match := macro.FindStringSubmatch(found)
		arg := strings.TrimSpace(match[2])
		from, to := fmt.Sprintf(
			"toDateTime(%d)",
			s.From.Unix(),
		), fmt.Sprintf(
			"toDateTime(%d)",
			s.To.Unix(),
		)
		switch match[1] {
		case "timeFilter":
			return arg + " >= " + from + " AND " + arg + " <= " + to
		case "timeInterval":
			return fmt.Sprintf(
				"toStartOfInterval(toDateTime(%s), INTERVAL %d second)",
				arg,
				max(1, int64(s.step()/time.Second)),
			)
		case "interval_s":
			return strconv.FormatInt(max(1, int64(s.step()/time.Second)), 10) + arg
		case "fromTime":
			return from + arg
		case "toTime":
			return to + arg
		case "conditionalAll":
			condition, name, ok := cutLast(arg, ",")
			if !ok || !strings.HasPrefix(strings.TrimSpace(name), "$") {
				failed = fmt.Errorf("%s: want a condition and a variable", found)
			}
			if s.Vars[strings.TrimSpace(name)[1:]] == nil {
				return "1 = 1"
			}
			return condition
		}
		failed = fmt.Errorf("%s is not a macro of the ClickHouse data source", found)
		return found
	})
	if failed != nil {
		return "", failed
	}
	return s.replace(text, func(values []string, format string) (string, error) {
		if format != "singlequote" {
			return "", fmt.Errorf(
				"a variable in SQL needs :singlequote, or a value could end the text it stands in",
			)
		}
		quoted := make([]string, len(values))
		for i, v := range values {
			quoted[i] = sqlText(v)
		}
		if len(quoted) == 0 {
			return "''", nil
		}
		return strings.Join(quoted, ","), nil
	})
}

func cutLast(text, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(text, sep)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(sep):], true
}

// replace puts something in place of each variable.
func (s Scope) replace(
	text string,
	with func(values []string, format string) (string, error),
) (string, error) {
	var failed error
	out := variable.ReplaceAllStringFunc(text, func(found string) string {
		match := variable.FindStringSubmatch(found)
		value, err := with(s.Vars[match[1]+match[3]], match[2])
		if err != nil {
			failed = fmt.Errorf("%s: %w", found, err)
		}
		return value
	})
	return out, failed
}
