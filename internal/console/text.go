package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec/format"
)

// templateFunctions are what the templates call.
func (c *Console) templateFunctions() template.FuncMap {
	return template.FuncMap{
		"asset": func(name string) string {
			return "/static/" + name + "?" +
				c.assets[name].hash
		},
		"when": newMoment,
		"span": render.Span,
		"permille": func(n int) string {
			return strconv.FormatFloat(float64(n)/10, 'f', 1, 64) +
				"%"
		},
		"actions": func(list []action, secret string) actionList { return actionList{list, secret} },
		"count":   func(n any) string { return count(fmt.Sprint(n)) },
	}
}

// actionList are the changes that a page offers, with what their forms carry.
type actionList struct {
	List   []action
	Secret string
}

// moment is a point in time as a page shows it: the script writes it in the
// reader's zone.
type moment struct {
	ISO  string
	Text string
	Zero bool
}

// newMoment prepares a point in time, in ns since 1970.
func newMoment(ns int64) moment {
	if ns <= 0 {
		return moment{Zero: true}
	}
	t := time.Unix(0, ns)
	return moment{ISO: t.UTC().Format(time.RFC3339), Text: t.Format("2006-01-02 15:04:05 MST")}
}

// formatNumber writes a number with commas.
func formatNumber[N int | int64 | uint32 | uint64](n N) string {
	return count(strconv.FormatInt(int64(n), 10))
}

// count puts commas into the digits of a number.
func count(text string) string {
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// limitText is a time limit.
func limitText(ns int64) string {
	if ns < 0 {
		return "none"
	}
	return render.ShortSpan(ns)
}

// formatMemory is an amount in MiB.
func formatMemory(mib int64) string { return format.Units(mib, 'M', format.Convert{}) }

// jobText writes jobs as the commands do.
func jobText(now int64) *render.JobView {
	view := &render.JobView{Env: &tool.Env{Now: time.Now, Loc: time.Local}}
	view.Clock = render.NewClock(view.Env)
	view.Now = now
	return view
}

// stateClass is the class of the style sheet for a state of a job.
func stateClass(job *apiv1.JobInfo) string {
	long, _ := render.StateNames(job)
	switch long {
	case "RUNNING",
		"PENDING",
		"SUSPENDED",
		"COMPLETING",
		"CONFIGURING",
		"COMPLETED",
		"CANCELLED",
		"PREEMPTED":
		return strings.ToLower(long)
	}
	return "failed"
}
