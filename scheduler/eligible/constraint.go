package eligible

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// constraint is a --constraint that was read: what every node must have, the
// features of which all nodes must share one, and how many nodes must have
// what.
type constraint struct {
	All    match
	OneOf  []match // [a|b]: all nodes match the same one; nil: there is no such choice
	Counts []featureCount
}

// match tells whether a node with some features will do.
type match func(features []string) bool

// featureCount is a*2: so many nodes that match.
type featureCount struct {
	match match
	n     int64
}

func MatchAny([]string) bool { return true }

// ParseConstraint reads a --constraint: names, & and , for and, | for or,
// parentheses, [a|b] for one that all nodes share, a*2 and [a*2&b*4] for
// counts. & binds stronger than |.
func ParseConstraint(expr string) (*constraint, error) {
	parser := &featureParser{text: expr}
	c := &constraint{All: MatchAny}
	m, err := parser.parseOr(c)
	if err != nil {
		return nil, err
	}
	if parser.at < len(parser.text) {
		return nil, parser.syntaxError()
	}
	c.All = m
	return c, nil
}

// featureParser reads an expression from left to right.
type featureParser struct {
	text     string
	at       int
	depth    int
	brackets int
}

func (p *featureParser) syntaxError() error {
	return spec.Refuse(
		spec.CodeInvalidFeature,
		fmt.Sprintf("%q cannot be read from its character %d on", p.text, p.at+1),
	)
}

// peekCharacter is the next character that is no blank; 0 at the end.
func (p *featureParser) peekCharacter() byte {
	for p.at < len(p.text) && p.text[p.at] == ' ' {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

func (p *featureParser) parseOr(c *constraint) (match, error) {
	var list []match
	for {
		before := len(c.Counts) + len(c.OneOf)
		m, err := p.parseAnd(c)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
		if p.peekCharacter() != '|' {
			return anyOf(list), nil
		}
		if len(c.Counts)+len(c.OneOf) > before {
			return nil, spec.Refuse(
				spec.CodeInvalidFeature,
				fmt.Sprintf("%q: counts and brackets cannot stand on one side of |", p.text),
			)
		}
		p.at++
	}
}

func anyOf(list []match) match {
	if len(list) == 1 {
		return list[0]
	}
	return func(f []string) bool { return slices.ContainsFunc(list, func(m match) bool { return m(f) }) }
}

func (p *featureParser) parseAnd(c *constraint) (match, error) {
	var list []match
	for {
		m, err := p.parseTerm(c)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
		if n := p.peekCharacter(); n != '&' && n != ',' {
			break
		}
		p.at++
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return func(f []string) bool { return !slices.ContainsFunc(list, func(m match) bool { return !m(f) }) }, nil
}

// parseTerm reads a name, something in parentheses or in brackets, and a count
// behind it.
func (p *featureParser) parseTerm(c *constraint) (match, error) {
	p.depth++
	if p.depth > 32 {
		return nil, p.syntaxError()
	}
	defer func() { p.depth-- }()
	var m match
	switch p.peekCharacter() {
	case '[':
		return p.parseBracket(c)
	case '(':
		p.at++
		inner := &constraint{}
		var err error
		m, err = p.parseOr(inner)
		if err != nil {
			return nil, err
		}
		if len(inner.Counts)+len(inner.OneOf) > 0 || p.peekCharacter() != ')' {
			return nil, p.syntaxError()
		}
		p.at++
	default:
		name := p.readName()
		if name == "" {
			return nil, p.syntaxError()
		}
		m = func(f []string) bool { return slices.Contains(f, name) }
	}
	if p.peekCharacter() != '*' {
		return m, nil
	}
	p.at++
	n, err := strconv.ParseUint(p.readDigits(), 10, 20)
	if err != nil || n == 0 {
		return nil, p.syntaxError()
	}
	c.Counts = append(c.Counts, featureCount{m, int64(n)})
	return MatchAny, nil
}

func (p *featureParser) readName() string {
	from := p.at
	for p.at < len(p.text) && !strings.ContainsRune("&|,()[]* ", rune(p.text[p.at])) {
		p.at++
	}
	return p.text[from:p.at]
}

func (p *featureParser) readDigits() string {
	p.peekCharacter()
	from := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	return p.text[from:p.at]
}

// parseBracket reads [a|b], a choice that all nodes share, or [a*2&b*4], counts of
// nodes of which each has one of the features.
func (p *featureParser) parseBracket(c *constraint) (match, error) {
	p.brackets++
	if p.brackets > 1 {
		return nil, spec.Refuse(
			spec.CodeInvalidFeature,
			fmt.Sprintf("%q: there may be one pair of brackets", p.text),
		)
	}
	p.at++
	inner := &constraint{}
	var list []match
	for {
		before := len(inner.Counts)
		m, err := p.parseAnd(inner)
		if err != nil {
			return nil, err
		}
		if len(inner.Counts) > before && len(list) > 0 {
			return nil, p.syntaxError()
		}
		list = append(list, m)
		if p.peekCharacter() != '|' {
			break
		}
		if len(inner.Counts) > 0 {
			return nil, p.syntaxError()
		}
		p.at++
	}
	if p.peekCharacter() != ']' {
		return nil, p.syntaxError()
	}
	p.at++
	if len(inner.Counts) == 0 {
		c.OneOf = list
		return anyOf(list), nil
	}
	c.Counts = append(c.Counts, inner.Counts...)
	return func(f []string) bool {
		return list[0](f) &&
			slices.ContainsFunc(inner.Counts, func(n featureCount) bool { return n.match(f) })
	}, nil
}

// Nodes is how many nodes the counts ask for together.
func (c *constraint) Nodes() int64 {
	var n int64
	for _, count := range c.Counts {
		n += count.n
	}
	return n
}
