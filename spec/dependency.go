package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrBadDependency tells a dependency that could not be read.
var ErrBadDependency = errors.New("invalid dependency")

var dependencyNames = [...]string{
	After: "after", AfterAny: "afterany", AfterOK: "afterok", AfterNotOK: "afternotok",
	AfterCorr: "aftercorr", AfterBurstBuffer: "afterburstbuffer", Singleton: "singleton",
}

// String gives the kind as users write it.
func (k DependencyKind) String() string {
	if k == 0 || int(k) >= len(dependencyNames) {
		return "unknown"
	}
	return dependencyNames[k]
}

// ParseDependency reads "afterok:12:13_4,singleton" (all must hold) or the
// same with ? (one must hold). An empty string is no dependency: nil.
func ParseDependency(text string) (*Dependency, error) {
	if text == "" {
		return nil, nil
	}
	all, any := strings.Contains(text, ","), strings.Contains(text, "?")
	if all && any {
		return nil, fmt.Errorf("%w %q: , and ? cannot be mixed", ErrBadDependency, text)
	}
	dependency := &Dependency{Any: any}
	for _, part := range strings.FieldsFunc(text, func(r rune) bool {
		return r == ',' || r == '?'
	}) {
		terms, err := parseTerm(part)
		if err != nil {
			return nil, err
		}
		dependency.Terms = append(dependency.Terms, terms...)
	}
	if len(dependency.Terms) == 0 {
		return nil, fmt.Errorf("%w %q: no job is named", ErrBadDependency, text)
	}
	return dependency, nil
}

func parseTerm(part string) ([]DependencyTerm, error) {
	word, ids, has := strings.Cut(part, ":")
	var kind DependencyKind
	for k := After; k <= Singleton; k++ {
		if equalFold(word, dependencyNames[k]) {
			kind = k
		}
	}
	switch {
	case kind == 0 && !has && beginsWithDigit(word):
		kind = AfterAny
		ids = word
		has = true // a bare number means afterany
	case kind == 0:
		return nil, fmt.Errorf("%w %q: unknown type %q", ErrBadDependency, part, word)
	case kind == Singleton && !has:
		return []DependencyTerm{{Kind: Singleton, Task: NoTask}}, nil
	case kind == Singleton || !has:
		return nil, fmt.Errorf(
			"%w %q: expected %s",
			ErrBadDependency,
			part,
			map[bool]string{true: "no job id", false: "type:jobid"}[kind == Singleton],
		)
	}
	var terms []DependencyTerm
	for _, id := range strings.Split(ids, ":") {
		term := DependencyTerm{Kind: kind, Task: NoTask}
		id, delay, delayed := strings.Cut(id, "+")
		if delayed {
			min, err := strconv.ParseUint(delay, 10, 31)
			if err != nil || kind != After {
				return nil, fmt.Errorf(
					"%w %q: +minutes is a whole number and only for after",
					ErrBadDependency,
					part,
				)
			}
			term.Delay = Span(min) * Minute
		}
		id, task, tasked := strings.Cut(id, "_")
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%w %q: %q is no job id", ErrBadDependency, part, id)
		}
		term.Job = JobID(n)
		if tasked && task != "*" {
			k, err := strconv.ParseUint(task, 10, 31)
			if err != nil {
				return nil, fmt.Errorf("%w %q: %q is no array task", ErrBadDependency, part, task)
			}
			term.Task = int64(k)
		}
		terms = append(terms, term)
	}
	return terms, nil
}

// Equal compares two dependencies; nil is none.
func (d *Dependency) Equal(e *Dependency) bool {
	if d == nil || e == nil {
		return d == e
	}
	return d.Any == e.Any && slices.Equal(d.Terms, e.Terms)
}

// String writes a term as users do: afterok:12_3.
func (t DependencyTerm) String() string {
	return t.writeTerm("")
}

// StringOfArray writes the term of a job that is an array: 69_* is every task of it.
func (t DependencyTerm) StringOfArray() string { return t.writeTerm("_*") }

// writeTerm writes the term with what stands behind a job without a task.
func (t DependencyTerm) writeTerm(whole string) string {
	if t.Kind == Singleton {
		return "singleton"
	}
	text := fmt.Sprintf("%s:%d", t.Kind, t.Job)
	if t.Task != NoTask {
		text += fmt.Sprintf("_%d", t.Task)
	} else {
		text += whole
	}
	if t.Delay != 0 {
		text += fmt.Sprintf("+%d", int64(t.Delay/Minute))
	}
	return text
}

// String writes the dependency as users do.
func (d *Dependency) String() string {
	if d == nil {
		return ""
	}
	sep := ","
	if d.Any {
		sep = "?"
	}
	parts := make([]string, len(d.Terms))
	for i, term := range d.Terms {
		parts[i] = term.String()
	}
	return strings.Join(parts, sep)
}

func beginsWithDigit(word string) bool {
	return word != "" && word[0] >= '0' && word[0] <= '9'
}
