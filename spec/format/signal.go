package format

import (
	"strconv"
	"strings"
)

// signals are Linux's numbers (x86, arm, riscv, power), by number.
var signals = [...]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE",
	9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2", 13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT",
	17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG", 24: "XCPU",
	25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

// maxSignal is Linux's largest signal number (real-time signals).
const maxSignal = 64

// ParseSignal reads TERM, SIGTERM or 15 into the number.
func ParseSignal(text string) (int, error) {
	if n, ok := parseDigits(text, maxSignal+1); ok && n > 0 {
		return int(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(text), "SIG")
	for n, have := range signals {
		if have == name && n > 0 {
			return n, nil
		}
	}
	switch name {
	case "IOT":
		return 6, nil
	case "CLD":
		return 17, nil
	case "POLL":
		return 29, nil
	}
	return 0, badInput(
		"signal",
		text,
		"expected a name such as TERM or SIGUSR1, or a number from 1 to %d",
		maxSignal,
	)
}

// Signal prints a number's name without SIG, or the number if it has none.
func Signal(n int) string {
	if n > 0 && n < len(signals) {
		return signals[n]
	}
	return strconv.Itoa(n)
}

// EarlySignal is --signal: send Number this many seconds before the end.
type EarlySignal struct {
	Number  int
	Before  int64 // seconds, 0 to 65535
	Batch   bool  // B: only the batch shell, not the steps
	Overlap bool  // R: the job may overlap a reservation with MaxStartDelay
}

// ParseEarlySignal reads [R|B|RB:]signal[@seconds]; without a time it is 60 s.
func ParseEarlySignal(text string) (EarlySignal, error) {
	const what = "signal specification"
	early := EarlySignal{Before: 60}
	rest := text
	if flags, tail, ok := strings.Cut(text, ":"); ok {
		rest = tail
		for _, c := range lowerASCII(flags) {
			switch c {
			case 'b':
				early.Batch = true
			case 'r':
				early.Overlap = true
			default:
				return EarlySignal{}, badInput(
					what, text, "the part before ':' may only hold R and B",
				)
			}
		}
		if flags == "" {
			return EarlySignal{}, badInput(what, text, "the part before ':' is empty")
		}
	}
	name, before, timed := strings.Cut(rest, "@")
	n, err := ParseSignal(name)
	if err != nil {
		return EarlySignal{}, badInput(what, text, "unknown signal %q", name)
	}
	early.Number = n
	if timed {
		seconds, ok := parseDigits(before, 65536)
		if !ok {
			return EarlySignal{}, badInput(what, text, "expected seconds from 0 to 65535 after @")
		}
		early.Before = seconds
	}
	return early, nil
}

// String prints the specification so that it parses to the same value.
func (e EarlySignal) String() string {
	flags := ""
	if e.Overlap {
		flags += "R"
	}
	if e.Batch {
		flags += "B"
	}
	if flags != "" {
		flags += ":"
	}
	return flags + Signal(e.Number) + "@" + strconv.FormatInt(e.Before, 10)
}
