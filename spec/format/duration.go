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

// ParseDuration reads a time limit into seconds. The forms are min, min:seconds,
// h:m:s, d-h, d-h:m, d-h:m:s; UNLIMITED, INFINITE and -1 give [Infinite]. As
// in Slurm, fields may exceed their natural size: 90:00 is ninety minutes.
func ParseDuration(text string) (int64, error) {
	const forms = "expected minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s or UNLIMITED"
	switch lowerASCII(text) {
	case "unlimited", "infinite", "-1":
		return Infinite, nil
	case "":
		return 0, badInput("duration", text, "it is empty; "+forms)
	}
	days, rest, withDays := strings.Cut(text, "-")
	if !withDays {
		rest = text
	}
	parts := strings.Split(rest, ":")
	if len(parts) > 3 {
		return 0, badInput("duration", text, forms)
	}
	var f [3]int64
	for i, p := range parts {
		n, ok := parseDigits(p, maxField)
		if !ok {
			return 0, badInput("duration", text, forms)
		}
		f[i] = n
	}
	var seconds int64
	switch {
	case withDays:
		d, ok := parseDigits(days, maxField/86400)
		if !ok {
			return 0, badInput("duration", text, forms)
		}
		seconds = d*86400 + f[0]*3600 + f[1]*60 + f[2]
	case len(parts) == 1:
		seconds = f[0] * 60
	case len(parts) == 2:
		seconds = f[0]*60 + f[1]
	default:
		seconds = f[0]*3600 + f[1]*60 + f[2]
	}
	if seconds > maxDuration {
		return 0, badInput("duration", text, "it is longer than 285 years; write UNLIMITED")
	}
	return seconds, nil
}

// Duration prints seconds as [D-]HH:MM:SS, as sacct and scontrol do; Infinite
// is UNLIMITED. A negative value is INVALID.
func Duration(seconds int64) string {
	switch {
	case seconds == Infinite:
		return "UNLIMITED"
	case seconds < 0:
		return "INVALID"
	}
	buffer := make([]byte, 0, 16)
	if d := seconds / 86400; d > 0 {
		buffer = append(strconv.AppendInt(buffer, d, 10), '-')
	}
	buffer = append(two(buffer, seconds/3600%24), ':')
	return string(two(append(two(buffer, seconds/60%60), ':'), seconds%60))
}

// ShortDuration prints seconds as squeue does: M:SS, H:MM:SS or D-HH:MM:SS.
func ShortDuration(seconds int64) string {
	switch {
	case seconds == Infinite:
		return "UNLIMITED"
	case seconds < 0:
		return "INVALID"
	case seconds >= 86400:
		return Duration(seconds)
	}
	buffer := make([]byte, 0, 8)
	if h := seconds / 3600; h > 0 {
		buffer = append(strconv.AppendInt(buffer, h, 10), ':')
		buffer = two(buffer, seconds/60%60)
	} else {
		buffer = strconv.AppendInt(buffer, seconds/60, 10)
	}
	return string(two(append(buffer, ':'), seconds%60))
}

// CPUTime prints used microseconds as sacct's TotalCPU: MM:SS.mmm below one
// hour if there is a fraction, else [D-]HH:MM:SS.
func CPUTime(usec int64) string {
	seconds, ms := usec/1e6, usec/1000%1000
	if usec < 0 || seconds >= 3600 || usec%1e6 == 0 {
		return Duration(seconds)
	}
	buffer := append(two(nil, seconds/60), ':')
	buffer = append(two(buffer, seconds%60), '.')
	return string(two(append(buffer, byte('0'+ms/100)), ms%100))
}

// Minutes rounds seconds up to whole minutes, in seconds: Slurm's time limits
// are minutes.
func Minutes(seconds int64) int64 {
	if seconds >= Infinite-59 {
		return Infinite
	}
	return (seconds + 59) / 60 * 60
}

func two(buffer []byte, n int64) []byte { return append(buffer, byte('0'+n/10%10), byte('0'+n%10)) }
