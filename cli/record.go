package cli

import "strings"

// record is what scontrol show prints of one thing: lines of KEY=value, which
// one-liner mode joins.
type record struct{ lines []string }

// line adds a line of parts; the parts are KEY=value.
func (r *record) line(parts ...string) {
	r.lines = append(r.lines, strings.Join(parts, " "))
}

// text is the record: with oneLine joined by blanks, else indented below its
// first line. end is what Slurm prints behind a record of several lines.
func (r *record) text(oneLine bool, end string) string {
	if oneLine {
		for i, l := range r.lines {
			r.lines[i] = strings.TrimLeft(l, " ")
		}
		return strings.Join(r.lines, " ") + "\n"
	}
	return strings.Join(r.lines, "\n   ") + "\n" + end
}
