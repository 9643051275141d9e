package front

import (
	"strings"

	"github.com/musterhpc/muster/accounting/embedded/chdb"
)

// mayRead refuses what a reading login must not run. Three nets lie under each other: the
// engine's own parser must call the text one reading statement, the words of the text must not
// name what reads files or other machines, and the session is locked with readonly=1.
//
// The middle net exists because the embedded engine trusts its user: it lets file() read any
// file, and DESCRIBE call any table function, even when read-only. It works on names, so it
// refuses what could hide a name: identifiers with escapes, identifiers as parameters, and
// characters beyond ASCII outside quotes.
func (p *Pool) mayRead(sql string) error {
	report, err := p.classifySQL(sql)
	if err != nil {
		return err
	}
	switch {
	case report.Class == chdb.Unknown:
		return nil // it does not parse: the engine says where, better than we can
	case report.Statements != 1:
		return refuseStatement(
			codeSyntaxError,
			"Syntax error: a request holds one statement, and this one holds %d",
			report.Statements,
		)
	case report.Class != chdb.ReadOnly:
		return refuseStatement(codeReadonly, "This login may only read")
	}
	return p.harmless(sql)
}

// harmless is the net of names.
func (p *Pool) harmless(sql string) error {
	lex := lexer{sql: sql}
	var before token
	for t := lex.nextToken(); t.kind != endToken; t = lex.nextToken() {
		name := ""
		switch t.kind {
		case alienToken:
			return refuseStatement(
				codeReadonly,
				"A reading login may use characters beyond ASCII only in quotes and comments (byte %d)",
				t.at,
			)
		case wordToken:
			name = strings.ToLower(t.text)
		case quotedName:
			if strings.ContainsAny(t.text, `\`) {
				return refuseStatement(
					codeReadonly,
					"A reading login may not use escapes in quoted names (byte %d)",
					t.at,
				)
			}
			name = strings.ToLower(t.text[1 : len(t.text)-1])
		}
		colon := before.kind == signToken && before.text == ":"
		dot := before.kind == signToken && before.text == "."
		switch {
		case colon && name == "identifier":
			return refuseStatement(
				codeReadonly,
				"A reading login may not use Identifier parameters",
			)
		case p.denied[name] && !dot && p.calls(name, lex):
			return refuseStatement(
				codeReadonly,
				"A reading login may not use %s, which reaches beyond the database (write table.%s if you mean a column)",
				t.text,
				t.text,
			)
		}
		before = t
	}
	return nil
}

// calls reports whether name, just read by lex, may be a function: the two that are ordinary
// functions could be applied without brackets, the others are table functions and need them.
func (p *Pool) calls(name string, lex lexer) bool {
	if name == "file" || name == "catboostevaluate" {
		return true
	}
	next := lex.nextToken()
	return next.kind == signToken && next.text == "("
}
