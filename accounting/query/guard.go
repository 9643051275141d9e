package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrGuard tells a text of a user that is not run.
var ErrGuard = errors.New("this is not a question that muster sql answers")

// Guard checks a user's text before it is put in brackets below the views.
// It must be one SELECT over the views, made of functions that compute and
// nothing else: no other table, table function, setting, output clause or
// statement. What cannot be told with certainty is refused.
//
// The engine is asked read-only and with limits besides. This check exists
// because the embedded engine trusts whoever may read: its functions reach
// files and other machines. No database, by name or of every engine, stands
// before a dot, wherever that is.
func Guard(sql string, views []string, databases ...string) error {
	tokens, err := cut(sql)
	if err != nil {
		return err
	}
	if len(tokens) == 0 || (!tokens[0].is("SELECT") && !tokens[0].is("WITH")) {
		return refused("it must begin with SELECT, or with WITH name AS (SELECT …)")
	}
	g := &guard{tokens: tokens, tables: slices.Clone(views), with: tokens[0].is("WITH")}
	if err := g.databases(append(databases, "system", "information_schema")); err != nil {
		return err
	}
	return g.check()
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrGuard, fmt.Sprintf(format, args...))
}

type tokenKind uint8

const (
	wordToken   tokenKind = iota // a bare name or keyword
	nameToken                    // `x` or "x"; text is x
	textToken                    // 'x'
	numberToken                  //
	signToken                    // one character
)

type token struct {
	kind tokenKind
	text string
}

func (t token) is(word string) bool   { return t.kind == wordToken && strings.EqualFold(t.text, word) }
func (t token) sign(text string) bool { return t.kind == signToken && t.text == text }
func (t token) named() bool           { return t.kind == wordToken || t.kind == nameToken }

// cut makes tokens of a text.
func cut(sql string) ([]token, error) {
	var out []token
	for at := 0; at < len(sql); {
		c := sql[at]
		rest := sql[at:]
		switch {
		case c == ' ' || (c >= '\t' && c <= '\r'):
			at++
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"), c == '#':
			return nil, refused("it holds a comment")
		case letter(c):
			n := 1
			for n < len(rest) && (letter(rest[n]) || digit(rest[n])) {
				n++
			}
			if n < len(rest) && rest[n] == '\'' {
				return nil, refused("it holds a text with a prefix: %s'…'", rest[:n])
			}
			out = append(out, token{wordToken, rest[:n]})
			at += n
		case digit(c):
			n := number(rest)
			if n < len(rest) && (letter(rest[n]) || digit(rest[n])) {
				return nil, refused("it holds a number with something behind it: %s", rest[:n+1])
			}
			out = append(out, token{numberToken, rest[:n]})
			at += n
		case c == '\'' || c == '`' || c == '"':
			n, err := quoted(rest)
			if err != nil {
				return nil, err
			}
			kind := textToken
			if c != '\'' {
				kind = nameToken
			}
			out = append(out, token{kind, rest[1 : n-1]})
			at += n
		case strings.IndexByte("(),.*+-/%=<>!|:?[]", c) >= 0:
			out = append(out, token{signToken, rest[:1]})
			at++
		default:
			return nil, refused("it holds %q outside of quotes", []rune(rest)[0])
		}
	}
	return out, nil
}

// quoted gives the length of a quoted token. In a name there is nothing that
// stands for something else.
func quoted(rest string) (int, error) {
	quote := rest[0]
	for n := 1; n < len(rest); n++ {
		switch c := rest[n]; {
		case c == '\\' && quote != '\'':
			return 0, refused("a quoted name holds a backslash")
		case c == '\\':
			n++
		case c == quote && n+1 < len(rest) && rest[n+1] == quote:
			if quote != '\'' {
				return 0, refused("a quoted name holds a quote")
			}
			n++
		case c == quote:
			return n + 1, nil
		}
	}
	return 0, refused("a quote is not closed")
}

// number gives the length of 12, 1.5, 1e-3, 0x1f.
func number(s string) int {
	n := 0
	run := func(ok func(byte) bool) {
		for n < len(s) && ok(s[n]) {
			n++
		}
	}
	if len(s) > 2 && s[0] == '0' && s[1]|0x20 == 'x' {
		n = 2
		run(func(c byte) bool { return digit(c) || (c|0x20 >= 'a' && c|0x20 <= 'f') })
		return n
	}
	run(digit)
	if n < len(s) && s[n] == '.' {
		n++
		run(digit)
	}
	if rest := s[n:]; len(rest) > 1 && rest[0]|0x20 == 'e' {
		skip := 1
		if rest[1] == '+' || rest[1] == '-' {
			skip = 2
		}
		if len(rest) > skip && digit(rest[skip]) {
			n += skip
			run(digit)
		}
	}
	return n
}

func letter(c byte) bool { return c == '_' || (c|0x20 >= 'a' && c|0x20 <= 'z') }
func digit(c byte) bool  { return c >= '0' && c <= '9' }

// guard walks over the tokens.
type guard struct {
	tokens []token
	tables []string // that may stand in FROM here
	levels []level
	with   bool // in the list of the WITH at the beginning
}

// level is what is known of one pair of brackets.
type level struct {
	from bool // in the list of tables
	on   bool // behind ON or USING of that list: a comma there could begin a table
	cte  string
}

func (g *guard) at(i int) token {
	if i < 0 || i >= len(g.tokens) {
		return token{kind: signToken}
	}
	return g.tokens[i]
}

// databases refuses names of databases with something of theirs behind them.
// The rest of the guard lets no table of theirs through; this is for what it
// may take for something else than the engine does.
func (g *guard) databases(names []string) error {
	for i, t := range g.tokens {
		if t.named() && g.at(i+1).sign(".") && !g.at(i-1).sign(".") && slices.ContainsFunc(names, func(db string) bool { return strings.EqualFold(db, t.text) }) {
			return refused("%s is the name of a database: nothing of it is a view, and nothing else is called so here", t.text)
		}
	}
	return nil
}

func (g *guard) check() error {
	g.levels = []level{{}}
	for i, t := range g.tokens {
		top := &g.levels[len(g.levels)-1]
		switch {
		case t.sign("("):
			if err := g.opens(i); err != nil {
				return err
			}
			next := level{}
			if g.with && len(g.levels) == 1 && g.at(i-1).is("AS") && g.at(i-2).named() && (g.at(i-3).is("WITH") || g.at(i-3).sign(",")) {
				next.cte = g.at(i - 2).text
			}
			g.levels = append(g.levels, next)
		case t.sign(")"):
			if len(g.levels) == 1 {
				return refused("a bracket closes that was not opened")
			}
			if top.cte != "" { // from here on it is a table
				g.tables = append(g.tables, top.cte)
			}
			g.levels = g.levels[:len(g.levels)-1]
		case t.sign(",") && top.from:
			if top.on {
				return refused("tables behind ON or USING are joined with a word, not with a comma")
			}
			if err := g.table(i + 1); err != nil {
				return err
			}
		case t.kind == wordToken:
			if err := g.word(i, top); err != nil {
				return err
			}
		case t.kind == nameToken && g.at(i+1).sign("("):
			return refused("a function's name is not quoted: %s", t.text)
		}
	}
	if len(g.levels) != 1 {
		return refused("a bracket is not closed")
	}
	return nil
}

// word looks at a bare word.
//
//muster:table one case for each kind of word
func (g *guard) word(i int, top *level) error {
	t := g.tokens[i]
	if g.at(i-1).sign(".") && g.operand(i-2) {
		return nil // a column of a table
	}
	if structural(t) && (g.at(i+1).is("AS") || g.at(i-1).is("AS") && !(t.is("ARRAY") && g.at(i+1).sign("("))) {
		return refused("%s is a word of the language: as a name it stands in quotes", t.text)
	}
	switch word := strings.ToUpper(t.text); word {
	case "SETTINGS", "FORMAT", "INTO", "OUTFILE", "APPLY", "RECURSIVE", "MATERIALIZED", "EXPLAIN", "SAMPLE", "STEP", "INTERPOLATE", "TABLE":
		return refused("the word %s is not used here (write table.%s if it is a column)", word, t.text)
	case "SELECT":
		if top.from { // the engine may take it for another name of the table before it
			return refused("SELECT stands before FROM")
		}
		g.with = g.with && len(g.levels) > 1 // name AS (…) behind it is a window
		*top = level{cte: top.cte}
	case "FROM":
		*top = level{cte: top.cte, from: true}
		return g.table(i + 1)
	case "JOIN":
		if g.at(i - 1).is("ARRAY") {
			return refused("ARRAY JOIN is not used here: arrayJoin(…) does the same")
		}
		top.from, top.on = true, false
		return g.table(i + 1)
	case "ON", "USING":
		top.on = top.from
	case "WHERE", "PREWHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "WINDOW", "QUALIFY":
		if top.from && !g.clause(i) {
			return refused("%s is a word of the language: as a name it stands in quotes, or behind its table (x.%s)", t.text, t.text)
		}
		top.from, top.on = false, false
	case "IN":
		if !g.operand(i - 1) {
			return refused("IN stands between a value and a list")
		}
		return g.in(i + 1)
	}
	return nil
}

// structural tells the words by which a question is taken apart, and those of
// their kind. The engine takes each of them for a name behind AS, and as the
// name of a WITH: what follows would be a list of tables still, and be taken
// here for the list of another clause.
func structural(t token) bool {
	return t.kind == wordToken && slices.Contains([]string{"SELECT", "WITH", "FROM", "JOIN", "ON", "USING", "WHERE", "PREWHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "EXCEPT",
		"INTERSECT", "WINDOW", "QUALIFY", "IN", "ARRAY", "AS", "NOT", "GLOBAL", "FINAL", "LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "SEMI", "ANTI", "ASOF", "PASTE", "DISTINCT", "BY", "FETCH"},
		strings.ToUpper(t.text))
}

// clause tells whether a word behind a list of tables begins the clause that is
// called so. Where a value is expected the engine takes it for a column, and the
// list goes on behind it.
func (g *guard) clause(i int) bool {
	if !g.operand(i - 1) {
		return false
	}
	next := g.at(i + 1)
	switch strings.ToUpper(g.at(i).text) {
	case "GROUP", "ORDER":
		return next.is("BY")
	case "LIMIT", "OFFSET":
		return next.kind == numberToken
	case "WINDOW":
		return next.named() && g.at(i+2).is("AS")
	case "UNION", "EXCEPT", "INTERSECT":
		if next.is("ALL") || next.is("DISTINCT") {
			next = g.at(i + 2)
		}
		return next.is("SELECT") || next.sign("(")
	}
	if next.kind == wordToken && !((next.is("GROUP") || next.is("ORDER")) && !g.at(i+2).is("BY")) {
		return next.is("NOT") || next.is("CASE") || next.is("EXISTS") || next.is("INTERVAL") || !structural(next) && !slices.Contains(between(), strings.ToUpper(next.text))
	}
	return next.kind != signToken || next.sign("(") || next.sign("[") || next.sign("-")
}

// table checks what stands where a table does.
func (g *guard) table(i int) error {
	t := g.at(i)
	switch {
	case t.sign("("):
		for i++; g.at(i).sign("("); i++ {
		}
		if !g.at(i).is("SELECT") && !g.at(i).is("WITH") {
			return refused("a bracket behind FROM or JOIN holds a SELECT")
		}
		return nil
	case !t.named() || structural(t):
		return refused("FROM and JOIN take a view or a bracket with a SELECT")
	case g.at(i + 1).sign("."):
		return refused("%s.… is not a view: views stand without a database", t.text)
	case g.at(i + 1).sign("("):
		return refused("%s(…) is not a view", t.text)
	case !slices.Contains(g.tables, t.text):
		return refused("there is no view %s: there are %s", t.text, strings.Join(g.tables, ", "))
	}
	return nil
}

// operand tells whether a value ends at i: IN behind anything else would be
// the function in(…), whose arguments may be tables.
func (g *guard) operand(i int) bool {
	for g.at(i).is("NOT") || g.at(i).is("GLOBAL") {
		i--
	}
	t := g.at(i)
	switch t.kind {
	case wordToken:
		word := strings.ToUpper(t.text)
		// PARTITION is a word of the language before BY only.
		return g.at(i-1).sign(".") || word == "PARTITION" || !slices.Contains(beforeBracket(), word) && !slices.Contains(between(), word)
	case signToken:
		return t.sign(")") || t.sign("]")
	}
	return true
}

// in checks the right side of IN: the engine takes a name there for a table,
// also in brackets.
func (g *guard) in(i int) error {
	t := g.at(i)
	for t.sign("(") && !g.at(i+1).is("SELECT") {
		i++
		t = g.at(i)
	}
	if !t.named() || g.at(i+1).sign("(") {
		return nil // a text, a number, a bracket with a SELECT or a function, which is checked by itself
	}
	for i++; g.at(i).sign(".") || g.at(i-1).sign("."); i++ {
	}
	if t.is("SELECT") || g.at(i).sign(",") && !g.bare(i) {
		return nil
	}
	return refused("the right side of IN is a list of values or a bracket with a SELECT, not the name %s", t.text)
}

// bare tells whether a list that goes on at i is not in brackets.
func (g *guard) bare(i int) bool {
	depth := 0
	for ; i >= 0; i-- {
		switch t := g.at(i); {
		case t.sign(")"):
			depth++
		case t.sign("(") && depth == 0:
			return false
		case t.sign("("):
			depth--
		case t.is("IN") && depth == 0:
			return true
		}
	}
	return true
}

// opens checks what stands before a bracket: a word of the language, or a
// function that only computes.
func (g *guard) opens(i int) error {
	t := g.at(i - 1)
	if t.kind != wordToken {
		return nil
	}
	if slices.Contains(beforeBracket(), strings.ToUpper(t.text)) && !g.at(i-2).sign(".") {
		return nil
	}
	if !computes(t.text) {
		return refused("the function %s is not offered", t.text)
	}
	return nil
}

// computes tells a function that only computes, with or without the endings
// that change an aggregate function.
func computes(name string) bool {
	name = strings.ToLower(name)
	if slices.Contains(functions(), name) {
		return true
	}
	for _, end := range [...]string{"ordefault", "ornull", "distinct", "array", "if", "map"} {
		if stem, ok := strings.CutSuffix(name, end); ok && slices.Contains(aggregates(), strings.TrimSuffix(strings.TrimSuffix(stem, "distinct"), "if")) {
			return true
		}
	}
	return slices.Contains(aggregates(), name)
}
