package hostlist

import (
	"fmt"
	"slices"
	"strings"
)

// Parse reads an expression. The empty expression is the empty list; empty
// elements between commas are skipped, as Slurm skips them. The error is a
// *[SyntaxError].
func Parse(expr string) (List, error) {
	p := parser{expr: expr}
	for p.pos < len(expr) {
		if expr[p.pos] == ',' {
			p.pos++
			continue
		}
		if err := p.readTerm(); err != nil {
			return List{}, err
		}
	}
	return p.list, nil
}

// CheckName says whether a plain host name can be part of a list.
func CheckName(host string) error {
	if host == "" {
		return &SyntaxError{Expr: host, Reason: "empty host name"}
	}
	if len(host) > maxName {
		return &SyntaxError{
			Expr:   host,
			Pos:    maxName,
			Reason: fmt.Sprintf("host name longer than %d characters", maxName),
		}
	}
	for i := range len(host) {
		if !nameByte(host[i]) {
			return &SyntaxError{Expr: host, Pos: i, Reason: badByte(host, i)}
		}
	}
	return nil
}

// nameByte: what host names are made of; everything else would be read as
// something else by a shell, by a configuration file or by this package.
func nameByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', isDigit(c):
		return true
	}
	return c == '-' || c == '_' || c == '.' || c == ':'
}

func badByte(text string, i int) string {
	switch c := text[i]; c {
	case ' ', '\t', '\n', '\r', '\v', '\f':
		return "white space (separate hosts with commas only)"
	case ']':
		return "']' without '['"
	case '[':
		return "'[' inside a plain host name"
	default:
		if c < 0x20 || c >= 0x7f {
			return fmt.Sprintf("character %#02x", c)
		}
		return fmt.Sprintf("character %q", c)
	}
}

// parser walks the expression once; list grows as terms are read.
type parser struct {
	expr string
	pos  int
	list List
}

func (p *parser) failAt(at int, format string, args ...any) error {
	return &SyntaxError{Expr: p.expr, Pos: at, Reason: fmt.Sprintf(format, args...)}
}

// readTerm reads one element up to its comma: literals and brackets in turn.
func (p *parser) readTerm() error {
	start := p.pos
	for p.pos < len(p.expr) && nameByte(p.expr[p.pos]) {
		p.pos++
	}
	if p.pos == len(p.expr) || p.expr[p.pos] == ',' { // a plain name, the common case
		if p.pos-start > maxName {
			return p.failAt(start+maxName, "host name longer than %d characters", maxName)
		}
		if p.list.count == MaxHosts {
			return p.failAt(start, "more than %d hosts", MaxHosts)
		}
		p.list.pushHost(p.expr[start:p.pos])
		return nil
	}
	p.pos = start
	lits, sets, err := p.splitTerm()
	if err != nil {
		return err
	}
	// The size is known before anything is built.
	size, length := 1, 0
	for i, set := range sets {
		n, width := 0, 0
		for _, r := range set {
			if r.hi-r.lo >= MaxHosts {
				return p.failAt(start, "more than %d hosts", MaxHosts)
			}
			n += r.countHosts()
			width = max(width, r.width, countDigits(r.hi))
		}
		if n > MaxHosts || size*n > MaxHosts-p.list.count {
			return p.failAt(start, "more than %d hosts", MaxHosts)
		}
		size *= n
		length += len(lits[i]) + width
	}
	if length+len(lits[len(sets)]) > maxName {
		return p.failAt(start, "host name longer than %d characters", maxName)
	}
	p.pushProduct("", lits, sets)
	return nil
}

// splitTerm cuts a term into len(sets)+1 literals with the sets between them.
func (p *parser) splitTerm() (lits []string, sets [][]run, err error) {
	from := p.pos
	for ; p.pos < len(p.expr); p.pos++ {
		switch c := p.expr[p.pos]; {
		case c == ',':
			return append(lits, p.expr[from:p.pos]), sets, nil
		case c == '[':
			lits = append(lits, p.expr[from:p.pos])
			set, err := p.readBracket()
			if err != nil {
				return nil, nil, err
			}
			sets = append(sets, set)
			from = p.pos + 1
		case !nameByte(c):
			return nil, nil, p.failAt(p.pos, "%s", badByte(p.expr, p.pos))
		}
	}
	return append(lits, p.expr[from:]), sets, nil
}

// readBracket reads "[...]" and leaves pos on the ']'.
func (p *parser) readBracket() ([]run, error) {
	open := p.pos
	end := strings.IndexByte(p.expr[open:], ']')
	if end < 0 {
		end = 0
	}
	set := make([]run, 0, 1+strings.Count(p.expr[open:open+end], ","))
	for {
		p.pos++ // over '[' or ','
		r, err := p.readNumbers(open)
		if err != nil {
			return nil, err
		}
		set = append(set, r)
		if p.pos == len(p.expr) {
			return nil, p.failAt(open, "'[' without ']'")
		}
		switch c := p.expr[p.pos]; c {
		case ']':
			return set, nil
		case ',':
		default:
			return nil, p.failAt(p.pos, "expected ',', '-' or ']', found %s", badByte(p.expr, p.pos))
		}
	}
}

// readNumbers reads "7" or "001-003".
func (p *parser) readNumbers(open int) (run, error) {
	at := p.pos
	lo, width, err := p.readNumber(open)
	if err != nil {
		return run{}, err
	}
	r := run{lo: lo, hi: lo, width: width}
	if p.pos < len(p.expr) && p.expr[p.pos] == '-' {
		p.pos++
		hi, hiWidth, err := p.readNumber(open)
		if err != nil {
			return run{}, err
		}
		if hi < lo {
			return run{}, p.failAt(at, "range %s runs backwards", p.expr[at:p.pos])
		}
		// [001-3] is common and clear; [1-010] would lose the padding of its end.
		if hiWidth > countDigits(hi) && hiWidth != width {
			return run{}, p.failAt(at, "range %s is zero padded at its end only", p.expr[at:p.pos])
		}
		r.hi = hi
	}
	return r, nil
}

func (p *parser) readNumber(open int) (n uint64, width int, err error) {
	at := p.pos
	for p.pos < len(p.expr) && isDigit(p.expr[p.pos]) {
		p.pos++
	}
	if p.pos == at {
		if at == len(p.expr) {
			return 0, 0, p.failAt(open, "'[' without ']'")
		}
		return 0, 0, p.failAt(at, "a number is missing")
	}
	n, ok := parseNumber(p.expr[at:p.pos])
	if !ok {
		return 0, 0, p.failAt(at, "number longer than %d digits", maxDigits)
	}
	return n, p.pos - at, nil
}

// pushProduct pushes every combination, the last bracket counting fastest. All
// brackets but the last become literal prefixes; the last stays a range.
func (p *parser) pushProduct(prefix string, lits []string, sets [][]run) {
	prefix += lits[0]
	if len(sets) == 1 {
		p.list.runs = slices.Grow(p.list.runs, len(sets[0]))
		for _, r := range sets[0] {
			r.prefix, r.suffix = prefix, lits[1]
			p.list.pushRange(r)
		}
		return
	}
	for _, r := range sets[0] {
		for n := r.lo; ; n++ {
			p.pushProduct(string(appendNumber([]byte(prefix), n, r.width)), lits[1:], sets[1:])
			if n == r.hi {
				break
			}
		}
	}
}
