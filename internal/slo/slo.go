// Package slo reads a site's service objectives: which part of what must be good,
// and what good is. The exporter counts against them, and one set of alert rules
// serves all of them, because the targets are metrics too.
package slo

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Kind is what an objective is about.
type Kind string

// The kinds.
const (
	Submit     Kind = "submit"     // sbatch's calls that are answered, so durable, in time
	Durability Kind = "durability" // group commits of the ledger that reach the disk
	Scheduling Kind = "scheduling" // passes over the queue that end in time
	Wait       Kind = "wait"       // jobs that start in time, by QOS
	Accounting Kind = "accounting" // time in which the accounting store is not behind
	Agents     Kind = "agents"     // time of nodes in which their agents are connected
	Goodput    Kind = "goodput"    // time in which the last day's GPU goodput is high enough
)

// EveryQOS is the class of a wait objective for the QOS without one of their own.
const EveryQOS = "*"

// Objective is one of a site's.
type Objective struct {
	Kind   Kind
	Class  string    // of Wait: the QOS; else empty
	Part   float64   // which part must be good, above 0 and below 1
	Within spec.Span // of those with a time: what is good
	Above  float64   // of Goodput: the ratio that is good
}

// Text says the objective as muster.yaml does.
func (o Objective) Text() string {
	text := strconv.FormatFloat(o.Part*100, 'g', 6, 64) + "%"
	switch {
	case o.Within > 0:
		text += " within " + writeSpan(o.Within)
	case o.Above > 0:
		text += " above " + strconv.FormatFloat(o.Above*100, 'g', 6, 64) + "%"
	}
	return text
}

// unit is a unit of time as it is written.
type unit struct {
	name string
	span spec.Span
}

// units are those that a time may have, the largest first.
func units() [4]unit {
	return [...]unit{
		{"h", spec.Hour},
		{"m", spec.Minute},
		{"s", spec.Second},
		{"ms", spec.Millisecond},
	}
}

// writeSpan writes a time as a whole number of the largest unit that it has.
func writeSpan(d spec.Span) string {
	for _, u := range units() {
		if d%u.span == 0 {
			return strconv.FormatInt(int64(d/u.span), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(d/spec.Millisecond), 10) + "ms"
}

// readSpan reads a time: a whole number with its unit.
func readSpan(text string) (spec.Span, error) {
	const longest = 366 * spec.Day
	digits := strings.TrimRight(text, "hms")
	n, err := strconv.ParseInt(digits, 10, 64)
	for _, u := range units() {
		if err == nil && text == digits+u.name && n > 0 && n <= int64(longest/u.span) {
			return spec.Span(n) * u.span, nil
		}
	}
	return 0, fmt.Errorf("invalid time %q: expected a number with h, m, s or ms", text)
}

// form is how the objectives of a kind are written.
type form struct {
	example string
	timed   bool
	least   spec.Span // the shortest time that is counted
}

func formOf(kind Kind) form {
	switch kind {
	case Submit:
		return form{"99% within 100ms", true, spec.Millisecond}
	case Scheduling:
		return form{"99% within 5s", true, spec.Millisecond}
	case Wait:
		return form{"95% within 4h", true, spec.Second}
	case Accounting:
		return form{"99% within 1m", true, spec.Second}
	case Goodput:
		return form{example: "90% above 60%"}
	case Durability, Agents:
	}
	return form{example: "99.9%"}
}

// CallBounds are the bounds, in seconds, by which the times of calls are counted.
func CallBounds() [10]float64 {
	return [10]float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10}
}

// Parse reads one objective: "99% within 100ms", "99.9%", or "90% above 60%".
// Empty and off are none, and ok is false.
func Parse(kind Kind, text string) (objective Objective, ok bool, err error) {
	words := strings.Fields(text)
	if len(words) == 0 || text == "off" {
		return objective, false, nil
	}
	f := formOf(kind)
	bad := fmt.Errorf("invalid objective %q: expected off or a text such as %q", text, f.example)
	objective.Kind = kind
	objective.Part, err = part(words[0])
	if err != nil {
		return objective, false, bad
	}
	switch {
	case f.timed && len(words) == 3 && words[1] == "within":
		objective.Within, err = readSpan(words[2])
		if err != nil {
			return objective, false, bad
		}
		if objective.Within < f.least {
			return objective, false, fmt.Errorf(
				"invalid objective %q: times below %s are not counted",
				text,
				writeSpan(f.least),
			)
		}
	case kind == Goodput && len(words) == 3 && words[1] == "above":
		objective.Above, err = part(words[2])
		if err != nil {
			return objective, false, bad
		}
	case !f.timed && kind != Goodput && len(words) == 1:
	default:
		return objective, false, bad
	}
	return objective, true, nil
}

// part reads a percentage above 0 and below 100. An objective of 100 % leaves no
// errors to budget.
func part(text string) (float64, error) {
	number, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(n > 0 && n < 100) { // also where it is no number
		return 0, fmt.Errorf("invalid percentage %q", text)
	}
	return n / 100, nil
}

// ParseWaits reads the objectives of QOS: "normal 95% within 4h" each, or
// "* 90% within 24h" for those that are not named.
func ParseWaits(lines []string) ([]Objective, error) {
	var objectives []Objective
	seen := map[string]bool{}
	for _, line := range lines {
		qos, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		objective, ok, err := Parse(Wait, strings.TrimSpace(rest))
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, fmt.Errorf(
				"invalid objective %q: expected the QOS and its objective, such as \"normal 95%% within 4h\"",
				line,
			)
		case seen[qos]:
			return nil, fmt.Errorf("QOS %s has two objectives", qos)
		}
		seen[qos] = true
		objective.Class = qos
		objectives = append(objectives, objective)
	}
	return objectives, nil
}
