package render

import (
	"strings"

	"github.com/musterhpc/muster/cli/plain"
)

// Record is what scontrol show prints of one thing: lines of KEY=value, which
// one-liner mode joins.
type Record struct{ lines []string }

// Line adds a line of parts; the parts are KEY=value.
func (r *Record) Line(parts ...string) {
	r.lines = append(r.lines, plain.Cell(strings.Join(parts, " ")))
}

// Text is the record: with oneLine joined by blanks, else indented below its
// first line. end is what Slurm prints behind a record of several lines.
func (r *Record) Text(oneLine bool, end string) string {
	if oneLine {
		for i, l := range r.lines {
			r.lines[i] = strings.TrimLeft(l, " ")
		}
		return strings.Join(r.lines, " ") + "\n"
	}
	return strings.Join(r.lines, "\n   ") + "\n" + end
}
