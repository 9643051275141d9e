package importer

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// errValue tells a value that cannot be read; the reason of a reject names the
// column.
var errValue = errors.New("cannot be read")

// isBlank tells a cell that says nothing.
func isBlank(text string) bool {
	switch text {
	case "", "Unknown", "None", "N/A", "None assigned", "INVALID", "UNLIMITED", "Partition_Limit":
		return true
	}
	return false
}

// clocks reads times as sacct prints them, in one zone. It remembers the last
// day, which most lines share.
type clocks struct {
	loc  *time.Location
	day  string
	base int64 // of the day's midnight, seconds; only where days have 24 hours
}

// parseInstant is a time in microseconds; 0 = none.
func (c *clocks) parseInstant(text string) (int64, error) {
	if isBlank(text) {
		return 0, nil
	}
	if !isDateTime(text) {
		seconds, err := strconv.ParseInt(text, 10, 64) // SLURM_TIME_FORMAT=%s
		if err != nil {
			return 0, errValue
		}
		return checkTime(seconds)
	}
	if c.loc == time.UTC && len(text) == 19 {
		if text[:10] != c.day {
			parsed, err := time.Parse(time.DateOnly, text[:10])
			if err != nil {
				return 0, errValue
			}
			c.day, c.base = text[:10], parsed.Unix()
		}
		hour := two(text[11:])
		minute := two(text[14:])
		second := two(text[17:])
		inDay := 0 <= hour && hour <= 23 && 0 <= minute && minute <= 59
		if !inDay || second < 0 || second > 60 {
			return 0, errValue
		}
		return checkTime(c.base + int64(hour)*3600 + int64(minute)*60 + int64(second))
	}
	parsed, err := time.ParseInLocation("2006-01-02T15:04:05", strings.Replace(text, " ", "T", 1), c.loc)
	if err != nil {
		return 0, errValue
	}
	return checkTime(parsed.Unix())
}

func two(text string) int {
	if text[0] < '0' || text[0] > '9' || text[1] < '0' || text[1] > '9' {
		return -1
	}
	return int(text[0]-'0')*10 + int(text[1]-'0')
}

// checkTime keeps what Slurm can mean: 0 is no time, and nothing was before it
// or will be after the year 2200.
func checkTime(seconds int64) (int64, error) {
	if seconds < 0 || seconds > 7_258_118_400 {
		return 0, errValue
	}
	return seconds * 1_000_000, nil
}

// parseSpan is [DD-[HH:]]MM:SS[.mmm] in microseconds.
func parseSpan(text string) (int64, error) {
	if isBlank(text) {
		return 0, nil
	}
	days := int64(0)
	if dayText, rest, ok := strings.Cut(text, "-"); ok {
		parsed, err := strconv.ParseUint(dayText, 10, 31)
		if err != nil {
			return 0, errValue
		}
		days, text = int64(parsed), rest
	}
	micros := int64(0)
	if whole, fraction, ok := strings.Cut(text, "."); ok {
		if len(fraction) == 0 || len(fraction) > 6 {
			return 0, errValue
		}
		parsed, err := strconv.ParseUint(fraction, 10, 31)
		if err != nil {
			return 0, errValue
		}
		for range 6 - len(fraction) {
			parsed *= 10
		}
		text, micros = whole, int64(parsed)
	}
	seconds := int64(0)
	parts := 0
	more := true
	for ; more; parts++ {
		var p string
		p, text, more = strings.Cut(text, ":")
		parsed, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return 0, errValue
		}
		seconds = seconds*60 + int64(parsed)
	}
	if parts < 2 || parts > 3 {
		return 0, errValue
	}
	return (days*86_400+seconds)*1_000_000 + micros, nil
}

// parseScaled is a number with a unit K, M, G, T, P or E of 1024, in units of unit.
// Without one it is in units of bare.
func parseScaled(text string, bare, unit float64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	scale := bare
	if i := strings.IndexByte("KMGTPE", text[len(text)-1]&^0x20); i >= 0 &&
		(text[len(text)-1] < '0' || text[len(text)-1] > '9') {
		scale = 1024
		for range i {
			scale *= 1024
		}
		text = text[:len(text)-1]
	}
	if n, err := strconv.ParseInt(text, 10, 63); err == nil && n >= 0 && scale == unit {
		return n, nil
	}
	scaled, err := strconv.ParseFloat(text, 64)
	if err != nil || scaled < 0 || scaled*scale/unit > 9e18 {
		return 0, errValue
	}
	return int64(scaled*scale/unit + 0.5), nil
}

const (
	kib = 1024
	mib = 1024 * 1024
)

// parseKilohertz reads a frequency as sacct writes it: kHz, with units of 1000.
func parseKilohertz(text string) (uint32, error) {
	unit := 1.0
	if i := strings.IndexByte("KMG", text[len(text)-1]); i >= 0 {
		text = text[:len(text)-1]
		for ; i >= 0; i-- {
			unit *= 1000
		}
	}
	amount, err := strconv.ParseFloat(text, 64)
	if err != nil || !(amount >= 0 && amount*unit <= math.MaxUint32) {
		return 0, errValue
	}
	return uint32(math.Round(amount * unit)), nil
}

// parseMemory is an amount of memory as MaxRSS gives it: bare numbers are bytes.
func parseMemory(text string) (int64, error) { return parseScaled(text, 1, 1) }

// amounts are a TRES list.
type amounts struct {
	cpus, mem, nodes, gpus, billing int64
	typed                           int64 // sum of gres/gpu:type
	others                          []other
}

type other struct {
	name string
	n    int64
}

// parseTRES reads cpu=8,mem=24000M,node=1,gres/gpu=2.
func parseTRES(text string) (amounts, error) {
	var a amounts
	for text != "" {
		var part string
		part, text, _ = strings.Cut(text, ",")
		name, value, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			return a, errValue
		}
		var err error
		var n int64
		if name == "mem" {
			n, err = parseScaled(value, mib, mib)
		} else {
			n, err = parseScaled(value, 1, 1)
		}
		if err != nil {
			return a, err
		}
		switch {
		case name == "cpu":
			a.cpus = n
		case name == "mem":
			a.mem = n
		case name == "node":
			a.nodes = n
		case name == "billing":
			a.billing = n
		case name == "gres/gpu":
			a.gpus = n
		default:
			if strings.HasPrefix(name, "gres/gpu:") {
				a.typed += n
			}
			a.others = append(a.others, other{name, n})
		}
	}
	if a.gpus == 0 {
		a.gpus = a.typed
	}
	return a, nil
}

// parseGRES reads gpu:2 or gpu:v100:2 (AllocGRES of old releases).
func parseGRES(text string) int64 {
	sum := int64(0)
	for part := range strings.SplitSeq(text, ",") {
		rest, ok := strings.CutPrefix(part, "gpu")
		if !ok || rest == "" || rest[0] != ':' {
			continue
		}
		number, _, _ := strings.Cut(rest[strings.LastIndexByte(rest, ':')+1:], "(")
		if n, err := strconv.ParseUint(number, 10, 31); err == nil {
			sum += int64(n)
		}
	}
	return sum
}

// reqMem reads ReqMem: 4000M, 4Gn (a node), 1Gc (a CPU). Old releases print
// the flag for "a CPU" as 2^31 MiB on top.
func reqMem(text string, nodes, cpus int64) (int64, error) {
	if isBlank(text) {
		return 0, nil
	}
	per := int64(1)
	switch text[len(text)-1] {
	case 'n':
		per, text = max(nodes, 1), text[:len(text)-1]
	case 'c':
		per, text = max(cpus, 1), text[:len(text)-1]
	}
	amount, err := parseScaled(text, mib, mib)
	if err != nil {
		return 0, err
	}
	if amount >= 1<<31 {
		amount, per = amount-1<<31, max(cpus, 1)
	}
	if amount > 1<<40 {
		return 0, errValue
	}
	return amount * per, nil
}

// isDateTime tells whether a text has the form 2006-01-02T15:04:05, with or without more behind it.
func isDateTime(text string) bool {
	if len(text) < len("2006-01-02T15:04:05") {
		return false
	}
	return (text[10] == 'T' || text[10] == ' ') && text[13] == ':' && text[16] == ':'
}
