package conffile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong in a file.
type Problem struct {
	File string
	Line int    // 0 when no line can be named
	Path string // of the key, as in listen.grpc; empty for the whole file
	Text string // what is wrong and what to do
}

func (p Problem) Error() string {
	var text strings.Builder
	text.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&text, ":%d", p.Line)
	}
	if p.Path != "" {
		text.WriteString(": " + p.Path)
	}
	return text.String() + ": " + p.Text
}

// Problems is everything that is wrong with a file, by line, as one error.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, problem := range ps {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As look at each problem.
func (ps Problems) Unwrap() []error {
	out := make([]error, len(ps))
	for i, problem := range ps {
		out[i] = problem
	}
	return out
}

// asError gives the problems in the order of the file, or nil if there are none.
func (ps Problems) asError() error {
	if len(ps) == 0 {
		return nil
	}
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return ps
}
