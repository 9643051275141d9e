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
func isBlank(s string) bool {
	switch s {
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
func (c *clocks) parseInstant(s string) (int64, error) {
	if isBlank(s) {
		return 0, nil
	}
	if !isDateTime(s) {
		sec, err := strconv.ParseInt(s, 10, 64) // SLURM_TIME_FORMAT=%s
		if err != nil {
			return 0, errValue
		}
		return checkTime(sec)
	}
	if c.loc == time.UTC && len(s) == 19 {
		if s[:10] != c.day {
			t, err := time.Parse(time.DateOnly, s[:10])
			if err != nil {
				return 0, errValue
			}
			c.day, c.base = s[:10], t.Unix()
		}
		h := two(s[11:])
		m := two(s[14:])
		sec := two(s[17:])
		inDay := 0 <= h && h <= 23 && 0 <= m && m <= 59
		if !inDay || sec < 0 || sec > 60 {
			return 0, errValue
		}
		return checkTime(c.base + int64(h)*3600 + int64(m)*60 + int64(sec))
	}
	t, err := time.ParseInLocation("2006-01-02T15:04:05", strings.Replace(s, " ", "T", 1), c.loc)
	if err != nil {
		return 0, errValue
	}
	return checkTime(t.Unix())
}

func two(s string) int {
	if s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' {
		return -1
	}
	return int(s[0]-'0')*10 + int(s[1]-'0')
}

// checkTime keeps what Slurm can mean: 0 is no time, and nothing was before it
// or will be after the year 2200.
func checkTime(sec int64) (int64, error) {
	if sec < 0 || sec > 7_258_118_400 {
		return 0, errValue
	}
	return sec * 1_000_000, nil
}

// parseSpan is [DD-[HH:]]MM:SS[.mmm] in microseconds.
func parseSpan(s string) (int64, error) {
	if isBlank(s) {
		return 0, nil
	}
	days := int64(0)
	if d, rest, ok := strings.Cut(s, "-"); ok {
		n, err := strconv.ParseUint(d, 10, 31)
		if err != nil {
			return 0, errValue
		}
		days, s = int64(n), rest
	}
	frac := int64(0)
	if whole, f, ok := strings.Cut(s, "."); ok {
		if len(f) == 0 || len(f) > 6 {
			return 0, errValue
		}
		n, err := strconv.ParseUint(f, 10, 31)
		if err != nil {
			return 0, errValue
		}
		for range 6 - len(f) {
			n *= 10
		}
		s, frac = whole, int64(n)
	}
	sec := int64(0)
	parts := 0
	more := true
	for ; more; parts++ {
		var p string
		p, s, more = strings.Cut(s, ":")
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return 0, errValue
		}
		sec = sec*60 + int64(n)
	}
	if parts < 2 || parts > 3 {
		return 0, errValue
	}
	return (days*86_400+sec)*1_000_000 + frac, nil
}

// parseScaled is a number with a unit K, M, G, T, P or E of 1024, in units of unit.
// Without one it is in units of bare.
func parseScaled(s string, bare, unit float64) (int64, error) {
	if s == "" {
		return 0, nil
	}
	scale := bare
	if i := strings.IndexByte("KMGTPE", s[len(s)-1]&^0x20); i >= 0 &&
		(s[len(s)-1] < '0' || s[len(s)-1] > '9') {
		scale = 1024
		for range i {
			scale *= 1024
		}
		s = s[:len(s)-1]
	}
	if n, err := strconv.ParseInt(s, 10, 63); err == nil && n >= 0 && scale == unit {
		return n, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 || f*scale/unit > 9e18 {
		return 0, errValue
	}
	return int64(f*scale/unit + 0.5), nil
}

const (
	kib = 1024
	mib = 1024 * 1024
)

// parseKilohertz reads a frequency as sacct writes it: kHz, with units of 1000.
func parseKilohertz(s string) (uint32, error) {
	unit := 1.0
	if i := strings.IndexByte("KMG", s[len(s)-1]); i >= 0 {
		s = s[:len(s)-1]
		for ; i >= 0; i-- {
			unit *= 1000
		}
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n*unit <= math.MaxUint32) {
		return 0, errValue
	}
	return uint32(math.Round(n * unit)), nil
}

// parseMemory is an amount of memory as MaxRSS gives it: bare numbers are bytes.
func parseMemory(s string) (int64, error) { return parseScaled(s, 1, 1) }

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
func parseTRES(s string) (amounts, error) {
	var a amounts
	for s != "" {
		var part string
		part, s, _ = strings.Cut(s, ",")
		name, v, ok := strings.Cut(part, "=")
		if !ok || name == "" {
			return a, errValue
		}
		var err error
		var n int64
		if name == "mem" {
			n, err = parseScaled(v, mib, mib)
		} else {
			n, err = parseScaled(v, 1, 1)
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
func parseGRES(s string) int64 {
	sum := int64(0)
	for part := range strings.SplitSeq(s, ",") {
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
func reqMem(s string, nodes, cpus int64) (int64, error) {
	if isBlank(s) {
		return 0, nil
	}
	per := int64(1)
	switch s[len(s)-1] {
	case 'n':
		per, s = max(nodes, 1), s[:len(s)-1]
	case 'c':
		per, s = max(cpus, 1), s[:len(s)-1]
	}
	n, err := parseScaled(s, mib, mib)
	if err != nil {
		return 0, err
	}
	if n >= 1<<31 {
		n, per = n-1<<31, max(cpus, 1)
	}
	if n > 1<<40 {
		return 0, errValue
	}
	return n * per, nil
}

// isDateTime tells whether a text has the form 2006-01-02T15:04:05, with or without more behind it.
func isDateTime(s string) bool {
	if len(s) < len("2006-01-02T15:04:05") {
		return false
	}
	return (s[10] == 'T' || s[10] == ' ') && s[13] == ':' && s[16] == ':'
}
