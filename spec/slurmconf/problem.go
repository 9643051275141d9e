package slurmconf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a problem means for whoever wants to use the file.
type Severity uint8

const (
	// Note: a setting that Muster has no use for.
	Note Severity = iota + 1
	// Warning: something that the file asks for will not happen.
	Warning
	// Error: the file must not be used.
	Error
)

// String is the word in front of a problem.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	case Error:
		return "error"
	}
	return "unknown"
}

// Problem is one thing to tell the administrator.
type Problem struct {
	File     string
	Line     int    // from 1; 0 when the whole file is meant
	Key      string // as the table spells it, or as written; may be empty
	Severity Severity
	Text     string
}

// String is file:line: severity: key: text.
func (p Problem) String() string {
	var text strings.Builder
	text.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&text, ":%d", p.Line)
	}
	text.WriteString(": " + p.Severity.String() + ": ")
	if p.Key != "" {
		text.WriteString(p.Key + ": ")
	}
	text.WriteString(p.Text)
	return text.String()
}

// Problems is everything that was found, sorted by file and line.
type Problems []Problem

// String is one problem a line.
func (ps Problems) String() string {
	var text strings.Builder
	for _, problem := range ps {
		text.WriteString(problem.String())
		text.WriteByte('\n')
	}
	return text.String()
}

// AtLeast is the problems of this severity and above.
func (ps Problems) AtLeast(severity Severity) Problems {
	var problems Problems
	for _, problem := range ps {
		if problem.Severity >= severity {
			problems = append(problems, problem)
		}
	}
	return problems
}

// Err is nil unless there is an Error; otherwise a *[RefusedError] with all of them.
func (ps Problems) Err() error {
	if bad := ps.AtLeast(Error); len(bad) > 0 {
		return &RefusedError{Problems: bad}
	}
	return nil
}

// RefusedError says that a configuration must not be used, and every reason.
type RefusedError struct{ Problems Problems }

// Error is all problems, one a line.
func (e *RefusedError) Error() string {
	return strings.TrimSuffix(e.Problems.String(), "\n")
}

func (ps *Problems) addProblem(at Setting, severity Severity, format string, args ...any) {
	*ps = append(
		*ps,
		Problem{
			File:     at.File,
			Line:     at.Line,
			Key:      at.Key,
			Severity: severity,
			Text:     fmt.Sprintf(format, args...),
		},
	)
}

// sortedByLine orders by file and line; what was found first on a line stays first.
func (ps Problems) sortedByLine() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(ps)
}

// namePlace names where something else stands, seen from a setting.
func namePlace(from, to Setting) string {
	if from.File == to.File {
		return fmt.Sprintf("line %d", to.Line)
	}
	return fmt.Sprintf("%s:%d", to.File, to.Line)
}
