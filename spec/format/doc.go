// Package format reads and writes the small notations of Slurm: durations,
// points in time, amounts of memory, counts, array indices, signals and the
// "2(x3),1" lists of counts per node.
//
// Everything is a pure function of its arguments: a point in time is read
// relative to the "now" and the location that the caller passes. Durations are
// whole seconds, points in time seconds since 1970, memory MiB, all int64.
// Every error is a *[SyntaxError].
package format

import (
	"fmt"
	"strconv"
)

// SyntaxError says what was being read and why the text cannot be it.
type SyntaxError struct {
	What   string // duration, time, memory size, …
	Input  string
	Reason string // what is wrong and, where it helps, what to write instead
}

// Error is one line: invalid duration "1:x": …
func (e *SyntaxError) Error() string {
	in := e.Input
	if len(in) > 80 {
		in = in[:80] + "..."
	}
	return "invalid " + e.What + " " + strconv.Quote(in) + ": " + e.Reason
}

func badInput(what, input, reason string, args ...any) error {
	if len(args) > 0 {
		reason = fmt.Sprintf(reason, args...)
	}
	return &SyntaxError{What: what, Input: input, Reason: reason}
}

// parseDigits reads a non-empty string of decimal digits below limit.
func parseDigits(text string, limit int64) (int64, bool) {
	if text == "" {
		return 0, false
	}
	var n int64
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
		if n >= limit {
			return 0, false
		}
	}
	return n, true
}

// lowerASCII is ASCII lower case: keywords must not depend on a locale.
func lowerASCII(text string) string {
	data := []byte(text)
	for i, c := range data {
		if c >= 'A' && c <= 'Z' {
			data[i] = c + 'a' - 'A'
		}
	}
	return string(data)
}
