package format

import (
	"math"
	"strconv"
	"strings"
)

// Infinite is the number of seconds of a duration without an end.
const Infinite = math.MaxInt64

const (
	// maxField keeps every sum of fields far from overflow.
	maxField = int64(1e12)
	// maxDuration, 285 years, fits into an int64 of nanoseconds.
	maxDuration = int64(9e9)
)

// ParseDuration reads a time limit into seconds. The forms are min, min:sec,
// h:m:s, d-h, d-h:m, d-h:m:s; UNLIMITED, INFINITE and -1 give [Infinite]. As
// in Slurm, fields may exceed their natural size: 90:00 is ninety minutes.
func ParseDuration(s string) (int64, error) {
	const forms = "expected minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s or UNLIMITED"
	switch lowerASCII(s) {
	case "unlimited", "infinite", "-1":
		return Infinite, nil
	case "":
		return 0, badInput("duration", s, "it is empty; "+forms)
	}
	days, rest, withDays := strings.Cut(s, "-")
	if !withDays {
		rest = s
	}
	parts := strings.Split(rest, ":")
	if len(parts) > 3 {
		return 0, badInput("duration", s, forms)
	}
	var f [3]int64
	for i, p := range parts {
		n, ok := parseDigits(p, maxField)
		if !ok {
			return 0, badInput("duration", s, forms)
		}
		f[i] = n
	}
	var sec int64
	switch {
	case withDays:
		d, ok := parseDigits(days, maxField/86400)
		if !ok {
			return 0, badInput("duration", s, forms)
		}
		sec = d*86400 + f[0]*3600 + f[1]*60 + f[2]
	case len(parts) == 1:
		sec = f[0] * 60
	case len(parts) == 2:
		sec = f[0]*60 + f[1]
	default:
		sec = f[0]*3600 + f[1]*60 + f[2]
	}
	if sec > maxDuration {
		return 0, badInput("duration", s, "it is longer than 285 years; write UNLIMITED")
	}
	return sec, nil
}

// Duration prints seconds as [D-]HH:MM:SS, as sacct and scontrol do; Infinite
// is UNLIMITED. A negative value is INVALID.
func Duration(sec int64) string {
	switch {
	case sec == Infinite:
		return "UNLIMITED"
	case sec < 0:
		return "INVALID"
	}
	b := make([]byte, 0, 16)
	if d := sec / 86400; d > 0 {
		b = append(strconv.AppendInt(b, d, 10), '-')
	}
	b = append(two(b, sec/3600%24), ':')
	return string(two(append(two(b, sec/60%60), ':'), sec%60))
}

// ShortDuration prints seconds as squeue does: M:SS, H:MM:SS or D-HH:MM:SS.
func ShortDuration(sec int64) string {
	switch {
	case sec == Infinite:
		return "UNLIMITED"
	case sec < 0:
		return "INVALID"
	case sec >= 86400:
		return Duration(sec)
	}
	b := make([]byte, 0, 8)
	if h := sec / 3600; h > 0 {
		b = append(strconv.AppendInt(b, h, 10), ':')
		b = two(b, sec/60%60)
	} else {
		b = strconv.AppendInt(b, sec/60, 10)
	}
	return string(two(append(b, ':'), sec%60))
}

// CPUTime prints used microseconds as sacct's TotalCPU: MM:SS.mmm below one
// hour if there is a fraction, else [D-]HH:MM:SS.
func CPUTime(usec int64) string {
	sec, ms := usec/1e6, usec/1000%1000
	if usec < 0 || sec >= 3600 || usec%1e6 == 0 {
		return Duration(sec)
	}
	b := append(two(nil, sec/60), ':')
	b = append(two(b, sec%60), '.')
	return string(two(append(b, byte('0'+ms/100)), ms%100))
}

// Minutes rounds seconds up to whole minutes, in seconds: Slurm's time limits
// are minutes.
func Minutes(sec int64) int64 {
	if sec >= Infinite-59 {
		return Infinite
	}
	return (sec + 59) / 60 * 60
}

func two(b []byte, n int64) []byte { return append(b, byte('0'+n/10%10), byte('0'+n%10)) }
