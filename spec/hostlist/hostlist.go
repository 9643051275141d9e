// Package hostlist reads and writes Slurm's host list expressions.
//
// An expression is a comma separated list of names; each name may hold
// brackets with numbers and ranges:
//
//	n1,n2            two names
//	n[001-003,7]     n001 n002 n003 n7    (zero padding is part of the name)
//	r[1-2]n[1-4]     eight names, the last bracket counting fastest
//	n[1-3]-ib        a suffix after the bracket
//
// A [List] keeps the expression as ranges, so a list of 100,000 consecutive
// hosts costs a few words. Order and duplicates are kept: a list is a
// sequence, not a set. Folding only joins the digits at the end of a name, as
// Slurm does, so that tools which compare the printed text see the same text.
//
// Everything is bounded: no input of any length makes a List of more than
// [MaxHosts] names, and Parse never allocates in proportion to a number that
// it read.
package hostlist

import (
	"fmt"
	"iter"
	"strconv"
	"strings"
)

const (
	// MaxHosts is the most names one expression may stand for.
	MaxHosts = 1 << 18
	// maxDigits is the longest number inside a name that is counted with; the
	// digits before the last maxDigits belong to the prefix.
	maxDigits = 18
	// maxName is the longest host name (RFC 1035 allows 253 characters).
	maxName = 255
)

// SyntaxError says where and why an expression cannot be read.
type SyntaxError struct {
	Expr   string // the whole expression
	Pos    int    // byte offset of the first character that is wrong
	Reason string
}

// Error names the position counted from one, as people count.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("invalid host list %s: %s at position %d", quote(e.Expr), e.Reason, e.Pos+1)
}

// quote shortens long expressions: an error line must stay readable.
func quote(text string) string {
	const most = 60
	if len(text) > most {
		text = text[:most] + "..."
	}
	return strconv.Quote(text)
}

// run is hosts prefix + number + suffix for every number of lo..hi, printed
// with at least width digits.
type run struct {
	prefix, suffix string
	lo, hi         uint64
	width          int // at least 1; 0 = a name without a number
}

func (r *run) countHosts() int {
	if r.width == 0 {
		return 1
	}
	return int(r.hi-r.lo) + 1
}

// List is a sequence of host names, kept as ranges. The zero value is empty.
// A List is a value: it is never changed after it was made.
type List struct {
	runs  []run
	count int
}

// Len is the number of names, duplicates counted.
func (l List) Len() int { return l.count }

// All yields the names in order.
func (l List) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		var buf []byte
		for i := range l.runs {
			r := &l.runs[i]
			if r.width == 0 {
				if !yield(r.prefix) {
					return
				}
				continue
			}
			for n := r.lo; ; n++ {
				buf = r.appendName(buf[:0], n)
				if !yield(string(buf)) {
					return
				}
				if n == r.hi {
					break
				}
			}
		}
	}
}

// Hosts returns the names in order. All of them share one allocation.
func (l List) Hosts() []string {
	if l.count == 0 {
		return nil
	}
	size := 0
	for i := range l.runs {
		r := &l.runs[i]
		size += r.countHosts() * (len(r.prefix) + len(r.suffix) + max(r.width, countDigits(r.hi)))
	}
	buf := make([]byte, 0, size)
	ends := make([]int, 0, l.count)
	for i := range l.runs {
		r := &l.runs[i]
		if r.width == 0 {
			buf = append(buf, r.prefix...)
			ends = append(ends, len(buf))
			continue
		}
		for n := r.lo; ; n++ {
			buf = r.appendName(buf, n)
			ends = append(ends, len(buf))
			if n == r.hi {
				break
			}
		}
	}
	all := string(buf)
	hosts := make([]string, len(ends))
	from := 0
	for i, to := range ends {
		hosts[i] = all[from:to]
		from = to
	}
	return hosts
}

// Contains reports whether host is one of the names. It looks at each range
// once and expands nothing.
func (l List) Contains(host string) bool {
	for i := range l.runs {
		if l.runs[i].hasHost(host) {
			return true
		}
	}
	return false
}

// String prints the list folded, in its order, as `scontrol show hostlist`.
func (l List) String() string { return string(l.appendTo(nil)) }

// Sorted is the same names in order (prefix in natural order, then padding,
// then number), duplicates kept, as `scontrol show hostlistsorted`.
func (l List) Sorted() List { return fold(sortHosts(l.Hosts())) }

// Unique is Sorted with each name once.
func (l List) Unique() List {
	hosts := sortHosts(l.Hosts())
	once := hosts[:0]
	for i, h := range hosts {
		if i == 0 || h != hosts[i-1] {
			once = append(once, h)
		}
	}
	return fold(once)
}

func (r *run) appendName(buffer []byte, n uint64) []byte {
	buffer = append(buffer, r.prefix...)
	buffer = appendNumber(buffer, n, r.width)
	return append(buffer, r.suffix...)
}

func (r *run) hasHost(host string) bool {
	if r.width == 0 {
		return host == r.prefix
	}
	if len(host) <= len(r.prefix)+len(r.suffix) || !strings.HasPrefix(host, r.prefix) ||
		!strings.HasSuffix(host, r.suffix) {
		return false
	}
	digits := host[len(r.prefix) : len(host)-len(r.suffix)]
	n, ok := parseNumber(digits)
	return ok && n >= r.lo && n <= r.hi && len(digits) == max(r.width, countDigits(n))
}

// joinsRun reports whether the host made of the same parts and number n, written
// with width digits, is the next one of r.
func (r *run) joinsRun(prefix, suffix string, n uint64, written int) bool {
	return r.sharesBracket(prefix, suffix) && n == r.hi+1 &&
		written == max(r.width, countDigits(n))
}

// sharesBracket reports whether numbers between the same prefix and suffix stand in one bracket with
// those of r. A run without numbers has none.
func (r *run) sharesBracket(prefix, suffix string) bool {
	return r.width > 0 && r.prefix == prefix && r.suffix == suffix
}

// pushHost adds one plain host name at the end.
func (l *List) pushHost(host string) {
	l.count++
	at := len(host)
	for at > 0 && len(host)-at < maxDigits && isDigit(host[at-1]) {
		at--
	}
	if at == len(host) {
		l.runs = append(l.runs, run{prefix: host})
		return
	}
	n, _ := parseNumber(host[at:])
	written := len(host) - at
	if k := len(l.runs); k > 0 && l.runs[k-1].joinsRun(host[:at], "", n, written) {
		l.runs[k-1].hi = n
		return
	}
	l.runs = append(l.runs, run{prefix: host[:at], lo: n, hi: n, width: written})
}

// pushRange adds a whole range at the end, joining it to the last one if it continues it.
func (l *List) pushRange(r run) {
	l.count += r.countHosts()
	if k := len(l.runs); k > 0 &&
		l.runs[k-1].joinsRun(r.prefix, r.suffix, r.lo, max(r.width, countDigits(r.lo))) &&
		max(r.width, countDigits(r.hi)) == max(l.runs[k-1].width, countDigits(r.hi)) {
		l.runs[k-1].hi = r.hi
		return
	}
	l.runs = append(l.runs, r)
}

// appendTo prints the ranges; neighbours that share prefix and suffix share a bracket.
func (l List) appendTo(buffer []byte) []byte {
	for i := 0; i < len(l.runs); {
		r := &l.runs[i]
		j := i + 1
		for r.width > 0 && j < len(l.runs) && l.runs[j].sharesBracket(r.prefix, r.suffix) {
			j++
		}
		if i > 0 {
			buffer = append(buffer, ',')
		}
		buffer = append(buffer, r.prefix...)
		switch {
		case r.width == 0:
		case j == i+1 && r.lo == r.hi:
			buffer = appendNumber(buffer, r.lo, r.width)
		default:
			buffer = append(buffer, '[')
			for k := i; k < j; k++ {
				if k > i {
					buffer = append(buffer, ',')
				}
				buffer = appendNumber(buffer, l.runs[k].lo, l.runs[k].width)
				if l.runs[k].hi > l.runs[k].lo {
					buffer = append(buffer, '-')
					buffer = appendNumber(buffer, l.runs[k].hi, l.runs[k].width)
				}
			}
			buffer = append(buffer, ']')
		}
		buffer = append(buffer, r.suffix...)
		i = j
	}
	return buffer
}

func fold(hosts []string) List {
	var list List
	for _, h := range hosts {
		list.pushHost(h)
	}
	return list
}

// Fold prints plain host names as one expression, order and duplicates kept.
// The names must be valid ([CheckName]); names that came from a List are.
func Fold(hosts []string) string { return fold(hosts).String() }

// FoldSorted is Fold of the sorted names, duplicates kept.
func FoldSorted(hosts []string) string {
	return fold(sortHosts(append([]string(nil), hosts...))).String()
}

// Expand is Parse and Hosts in one.
func Expand(expr string) ([]string, error) {
	list, err := Parse(expr)
	if err != nil {
		return nil, err
	}
	return list.Hosts(), nil
}

// Count is the number of names of an expression; nothing is expanded.
func Count(expr string) (int, error) {
	l, err := Parse(expr)
	return l.count, err
}

// Contains reports whether an expression holds a host; nothing is expanded.
func Contains(expr, host string) (bool, error) {
	l, err := Parse(expr)
	return l.Contains(host), err
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// parseNumber reads 1 to maxDigits decimal digits.
func parseNumber(text string) (uint64, bool) {
	if text == "" || len(text) > maxDigits {
		return 0, false
	}
	var n uint64
	for i := range len(text) {
		if !isDigit(text[i]) {
			return 0, false
		}
		n = n*10 + uint64(text[i]-'0')
	}
	return n, true
}

func countDigits(n uint64) int {
	d := 1
	for n >= 10 {
		n /= 10
		d++
	}
	return d
}

func appendNumber(buffer []byte, n uint64, width int) []byte {
	for d := countDigits(n); d < width; d++ {
		buffer = append(buffer, '0')
	}
	return strconv.AppendUint(buffer, n, 10)
}
