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
	tokens, err := tokenize(sql)
	if err != nil {
		return err
	}
	if len(tokens) == 0 || (!tokens[0].is("SELECT") && !tokens[0].is("WITH")) {
		return refuseSQL("it must begin with SELECT, or with WITH name AS (SELECT …)")
	}
	g := &guard{tokens: tokens, tables: slices.Clone(views), with: tokens[0].is("WITH")}
	if err := g.refuseDatabases(append(databases, "system", "information_schema")); err != nil {
		return err
	}
	return g.check()
}

func refuseSQL(format string, args ...any) error {
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

func (t token) is(
	word string,
) bool {
	return t.kind == wordToken && strings.EqualFold(t.text, word)
}
func (t token) sign(text string) bool { return t.kind == signToken && t.text == text }
func (t token) isName() bool          { return t.kind == wordToken || t.kind == nameToken }

// tokenize makes tokens of a text.
func tokenize(sql string) ([]token, error) {
	var tokens []token
	for at := 0; at < len(sql); {
		c := sql[at]
		rest := sql[at:]
		switch {
		case c == ' ' || (c >= '\t' && c <= '\r'):
			at++
		case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"), c == '#':
			return nil, refuseSQL("it holds a comment")
		case letter(c):
			n := 1
			for n < len(rest) && (letter(rest[n]) || digit(rest[n])) {
				n++
			}
			if n < len(rest) && rest[n] == '\'' {
				return nil, refuseSQL("it holds a text with a prefix: %s'…'", rest[:n])
			}
			tokens = append(tokens, token{wordToken, rest[:n]})
			at += n
		case digit(c):
			n := numberLength(rest)
			if n < len(rest) && (letter(rest[n]) || digit(rest[n])) {
				return nil, refuseSQL("it holds a number with something behind it: %s", rest[:n+1])
			}
			tokens = append(tokens, token{numberToken, rest[:n]})
			at += n
		case c == '\'' || c == '`' || c == '"':
			n, err := quotedLength(rest)
			if err != nil {
				return nil, err
			}
			kind := textToken
			if c != '\'' {
				kind = nameToken
			}
			tokens = append(tokens, token{kind, rest[1 : n-1]})
			at += n
		case strings.IndexByte("(),.*+-/%=<>!|:?[]", c) >= 0:
			tokens = append(tokens, token{signToken, rest[:1]})
			at++
		default:
			return nil, refuseSQL("it holds %q outside of quotes", []rune(rest)[0])
		}
	}
	return tokens, nil
}

// quotedLength gives the length of a quoted token. In a name there is nothing that
// stands for something else.
func quotedLength(rest string) (int, error) {
	quote := rest[0]
	for n := 1; n < len(rest); n++ {
		switch c := rest[n]; {
		case c == '\\' && quote != '\'':
			return 0, refuseSQL("a quoted name holds a backslash")
		case c == '\\':
			n++
		case c == quote && n+1 < len(rest) && rest[n+1] == quote:
			if quote != '\'' {
				return 0, refuseSQL("a quoted name holds a quote")
			}
			n++
		case c == quote:
			return n + 1, nil
		}
	}
	return 0, refuseSQL("a quote is not closed")
}

// numberLength gives the length of 12, 1.5, 1e-3, 0x1f.
func numberLength(text string) int {
	n := 0
	run := func(ok func(byte) bool) {
		for n < len(text) && ok(text[n]) {
			n++
		}
	}
	if len(text) > 2 && text[0] == '0' && text[1]|0x20 == 'x' {
		n = 2
		run(func(c byte) bool { return digit(c) || (c|0x20 >= 'a' && c|0x20 <= 'f') })
		return n
	}
	run(digit)
	if n < len(text) && text[n] == '.' {
		n++
		run(digit)
	}
	if rest := text[n:]; len(rest) > 1 && rest[0]|0x20 == 'e' {
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

func (g *guard) tokenAt(i int) token {
	if i < 0 || i >= len(g.tokens) {
		return token{kind: signToken}
	}
	return g.tokens[i]
}

// refuseDatabases refuses names of databases with something of theirs behind them.
// The rest of the guard lets no table of theirs through; this is for what it
// may take for something else than the engine does.
func (g *guard) refuseDatabases(names []string) error {
	for i, t := range g.tokens {
		if t.isName() && g.tokenAt(i+1).sign(".") && !g.tokenAt(i-1).sign(".") &&
			slices.ContainsFunc(
				names,
				func(db string) bool { return strings.EqualFold(db, t.text) },
			) {
			return refuseSQL(
				"%s is the name of a database: nothing of it is a view, and nothing else is called so here",
				t.text,
			)
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
			if err := g.checkBracket(i); err != nil {
				return err
			}
			next := level{}
			if g.with && len(g.levels) == 1 && g.followsName(i) {
				next.cte = g.tokenAt(i - 2).text
			}
			g.levels = append(g.levels, next)
		case t.sign(")"):
			if len(g.levels) == 1 {
				return refuseSQL("a bracket closes that was not opened")
			}
			if top.cte != "" { // from here on it is a table
				g.tables = append(g.tables, top.cte)
			}
			g.levels = g.levels[:len(g.levels)-1]
		case t.sign(",") && top.from:
			if top.on {
				return refuseSQL(
					"tables behind ON or USING are joined with a word, not with a comma",
				)
			}
			if err := g.checkTable(i + 1); err != nil {
				return err
			}
		case t.kind == wordToken:
			if err := g.checkWord(i, top); err != nil {
				return err
			}
		case t.kind == nameToken && g.tokenAt(i+1).sign("("):
			return refuseSQL("a function's name is not quoted: %s", t.text)
		}
	}
	if len(g.levels) != 1 {
		return refuseSQL("a bracket is not closed")
	}
	return nil
}

// followsName tells whether a bracket holds the query that WITH names before it:
// "WITH name AS (" or ", name AS (".
func (g *guard) followsName(bracket int) bool {
	before := g.tokenAt(bracket - 3)
	return (before.is("WITH") || before.sign(",")) &&
		g.tokenAt(bracket-2).isName() &&
		g.tokenAt(bracket-1).is("AS")
}

// standsForName tells whether the word at a place is read as a name, because AS
// stands before or behind it. AS ARRAY( begins a type.
func (g *guard) standsForName(i int) bool {
	if g.tokenAt(i + 1).is("AS") {
		return true
	}
	isType := g.tokens[i].is("ARRAY") && g.tokenAt(i+1).sign("(")
	return g.tokenAt(i-1).is("AS") && !isType
}

// checkWord looks at a bare word.
//
//muster:table one case for each kind of word
func (g *guard) checkWord(i int, top *level) error {
	t := g.tokens[i]
	if g.tokenAt(i-1).sign(".") && g.endsOperand(i-2) {
		return nil // a column of a table
	}
	if structuralWords(t) && g.standsForName(i) {
		return refuseSQL("%s is a word of the language: as a name it stands in quotes", t.text)
	}
	switch word := strings.ToUpper(t.text); word {
	case "SETTINGS", "FORMAT", "INTO", "OUTFILE", "APPLY", "RECURSIVE", "MATERIALIZED", "EXPLAIN", "SAMPLE", "STEP", "INTERPOLATE", "TABLE":
		return refuseSQL("the word %s is not used here (write table.%s if it is a column)", word, t.text)
	case "SELECT":
		if top.from { // the engine may take it for another name of the table before it
			return refuseSQL("SELECT stands before FROM")
		}
		g.with = g.with && len(g.levels) > 1 // name AS (…) behind it is a window
		*top = level{cte: top.cte}
	case "FROM":
		*top = level{cte: top.cte, from: true}
		return g.checkTable(i + 1)
	case "JOIN":
		if g.tokenAt(i - 1).is("ARRAY") {
			return refuseSQL("ARRAY JOIN is not used here: arrayJoin(…) does the same")
		}
		top.from, top.on = true, false
		return g.checkTable(i + 1)
	case "ON", "USING":
		top.on = top.from
	case "WHERE", "PREWHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "WINDOW", "QUALIFY":
		if top.from && !g.beginsClause(i) {
			return refuseSQL("%s is a word of the language: as a name it stands in quotes, or behind its table (x.%s)", t.text, t.text)
		}
		top.from, top.on = false, false
	case "IN":
		if !g.endsOperand(i - 1) {
			return refuseSQL("IN stands between a value and a list")
		}
		return g.checkIn(i + 1)
	}
	return nil
}

// structuralWords tells the words by which a question is taken apart, and those of
// their kind. The engine takes each of them for a name behind AS, and as the
// name of a WITH: what follows would be a list of tables still, and be taken
// here for the list of another clause.
func structuralWords(t token) bool {
	return t.kind == wordToken &&
		slices.Contains(
			[]string{
				"SELECT",
				"WITH",
				"FROM",
				"JOIN",
				"ON",
				"USING",
				"WHERE",
				"PREWHERE",
				"GROUP",
				"HAVING",
				"ORDER",
				"LIMIT",
				"OFFSET",
				"UNION",
				"EXCEPT",
				"INTERSECT",
				"WINDOW",
				"QUALIFY",
				"IN",
				"ARRAY",
				"AS",
				"NOT",
				"GLOBAL",
				"FINAL",
				"LEFT",
				"RIGHT",
				"FULL",
				"INNER",
				"OUTER",
				"CROSS",
				"SEMI",
				"ANTI",
				"ASOF",
				"PASTE",
				"DISTINCT",
				"BY",
				"FETCH",
			},
			strings.ToUpper(t.text),
		)
}

// beginsClause tells whether a word behind a list of tables begins the clause that is
// called so. Where a value is expected the engine takes it for a column, and the
// list goes on behind it.
func (g *guard) beginsClause(i int) bool {
	if !g.endsOperand(i - 1) {
		return false
	}
	next := g.tokenAt(i + 1)
	switch strings.ToUpper(g.tokenAt(i).text) {
	case "GROUP", "ORDER":
		return next.is("BY")
	case "LIMIT", "OFFSET":
		return next.kind == numberToken
	case "WINDOW":
		return next.isName() && g.tokenAt(i+2).is("AS")
	case "UNION", "EXCEPT", "INTERSECT":
		if next.is("ALL") || next.is("DISTINCT") {
			next = g.tokenAt(i + 2)
		}
		return next.is("SELECT") || next.sign("(")
	}
	if next.kind == wordToken &&
		!((next.is("GROUP") || next.is("ORDER")) && !g.tokenAt(i+2).is("BY")) {
		word := strings.ToUpper(next.text)
		switch word {
		case "NOT", "CASE", "EXISTS", "INTERVAL":
			return true
		}
		return !structuralWords(next) && !slices.Contains(connectingWords(), word)
	}
	return next.kind != signToken || next.sign("(") || next.sign("[") || next.sign("-")
}

// checkTable checks what stands where a table does.
func (g *guard) checkTable(i int) error {
	t := g.tokenAt(i)
	switch {
	case t.sign("("):
		for i++; g.tokenAt(i).sign("("); i++ {
		}
		if !g.tokenAt(i).is("SELECT") && !g.tokenAt(i).is("WITH") {
			return refuseSQL("a bracket behind FROM or JOIN holds a SELECT")
		}
		return nil
	case !t.isName() || structuralWords(t):
		return refuseSQL("FROM and JOIN take a view or a bracket with a SELECT")
	case g.tokenAt(i + 1).sign("."):
		return refuseSQL("%s.… is not a view: views stand without a database", t.text)
	case g.tokenAt(i + 1).sign("("):
		return refuseSQL("%s(…) is not a view", t.text)
	case !slices.Contains(g.tables, t.text):
		return refuseSQL("there is no view %s: there are %s", t.text, strings.Join(g.tables, ", "))
	}
	return nil
}

// endsOperand tells whether a value ends at i: IN behind anything else would be
// the function in(…), whose arguments may be tables.
func (g *guard) endsOperand(i int) bool {
	for g.tokenAt(i).is("NOT") || g.tokenAt(i).is("GLOBAL") {
		i--
	}
	t := g.tokenAt(i)
	switch t.kind {
	case wordToken:
		word := strings.ToUpper(t.text)
		// PARTITION is a word of the language before BY only.
		return g.tokenAt(i-1).sign(".") || word == "PARTITION" ||
			!slices.Contains(beforeBracket(), word) && !slices.Contains(connectingWords(), word)
	case signToken:
		return t.sign(")") || t.sign("]")
	}
	return true
}

// checkIn checks the right side of IN: the engine takes a name there for a table,
// also in brackets.
func (g *guard) checkIn(i int) error {
	t := g.tokenAt(i)
	for t.sign("(") && !g.tokenAt(i+1).is("SELECT") {
		i++
		t = g.tokenAt(i)
	}
	if !t.isName() || g.tokenAt(i+1).sign("(") {
		return nil // a text, a number, a bracket with a SELECT or a function, which is checked by itself
	}
	for i++; g.tokenAt(i).sign(".") || g.tokenAt(i-1).sign("."); i++ {
	}
	if t.is("SELECT") || g.tokenAt(i).sign(",") && !g.isBareList(i) {
		return nil
	}
	return refuseSQL(
		"the right side of IN is a list of values or a bracket with a SELECT, not the name %s",
		t.text,
	)
}

// isBareList tells whether a list that goes on at i is not in brackets.
func (g *guard) isBareList(i int) bool {
	depth := 0
	for ; i >= 0; i-- {
		switch t := g.tokenAt(i); {
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

// checkBracket checks what stands before a bracket: a word of the language, or a
// function that only computes.
func (g *guard) checkBracket(i int) error {
	t := g.tokenAt(i - 1)
	if t.kind != wordToken {
		return nil
	}
	if slices.Contains(beforeBracket(), strings.ToUpper(t.text)) && !g.tokenAt(i-2).sign(".") {
		return nil
	}
	if !onlyComputes(t.text) {
		return refuseSQL("the function %s is not offered", t.text)
	}
	return nil
}

// onlyComputes tells a function that only computes, with or without the endings
// that change an aggregate function.
func onlyComputes(name string) bool {
	name = strings.ToLower(name)
	if slices.Contains(ordinaryFunctions(), name) {
		return true
	}
	for _, end := range [...]string{"ordefault", "ornull", "distinct", "array", "if", "map"} {
		if stem, ok := strings.CutSuffix(name, end); ok &&
			slices.Contains(
				aggregateFunctions(),
				strings.TrimSuffix(strings.TrimSuffix(stem, "distinct"), "if"),
			) {
			return true
		}
	}
	return slices.Contains(aggregateFunctions(), name)
}
