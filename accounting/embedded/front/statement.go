package front

import (
	"slices"
	"strings"
)

// statement is what the front must know of a text before the engine sees it.
type statement struct {
	verb   string // first keyword in upper case, after opening brackets; "" when there is none
	format string // name in the last FORMAT clause, "" when there is none
	// Of an INSERT that is fed with rows (not INSERT ... SELECT):
	rows   bool   // it is one
	head   string // the statement without its FORMAT clause or VALUES word
	inline string // what follows them in the text: the first rows, often ""
	// Of everything else:
	several   bool // a second statement follows a semicolon
	temporary bool // the word TEMPORARY occurs: it may leave a temporary table in the session
}

// canStream reports whether the engine may be asked for the result piece by piece.
func (s statement) canStream() bool {
	return s.verb == "SELECT" || s.verb == "WITH" || s.verb == "FROM"
}

// endsWithClient reports whether the statement should end when its client has gone: reading
// ones, and INSERT ... SELECT. Schema changes run to their end, so that no one is left guessing
// at half of one.
func (s statement) endsWithClient() bool {
	return s.canStream() || s.verb == "INSERT" ||
		slices.Contains([]string{"SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "CHECK"}, s.verb)
}

// changesSession reports whether the session may be changed once the statement has run.
// BACKUP and RESTORE may still stand in the engine's list of what runs when they
// have answered, and every statement of a session has the same id there: the
// next one would be refused as already running.
func (s statement) changesSession() bool {
	return s.temporary ||
		slices.Contains(
			[]string{
				"SET",
				"USE",
				"BEGIN",
				"START",
				"COMMIT",
				"ROLLBACK",
				"DETACH",
				"BACKUP",
				"RESTORE",
			},
			s.verb,
		)
}

// examineSQL reads a text once. It does not judge syntax: what it cannot make sense of, the engine
// will refuse.
func examineSQL(sql string) statement {
	lex := lexer{sql: sql}
	var s statement
	t := lex.nextToken()
	for t.kind == signToken && t.text == "(" {
		t = lex.nextToken()
	}
	if t.kind != wordToken {
		return finish(s, &lex, t)
	}
	s.verb = strings.ToUpper(t.text)
	if s.verb == "INSERT" {
		return examineInsert(s, &lex)
	}
	return finish(s, &lex, t)
}

// examineInsert looks for the word that begins the rows of an INSERT.
func examineInsert(s statement, lex *lexer) statement {
	depth := 0
	previous := token{}
	for t := lex.nextToken(); t.kind != endToken; t = lex.nextToken() {
		switch {
		case t.kind == signToken && t.text == "(":
			depth++
		case t.kind == signToken && t.text == ")":
			depth--
		case depth > 0,
			previous.isKeyword("INTO"),
			previous.isKeyword("TABLE"),
			previous.kind == signToken && previous.text == ".":
			// a column or table that happens to be named like a keyword
		case t.isKeyword("SELECT"), t.isKeyword("WITH"), t.isKeyword("WATCH"):
			return finish(s, lex, t)
		case t.isKeyword("VALUES"):
			s.rows, s.format = true, "Values"
			s.head, s.inline = lex.sql[:t.at], lex.sql[lex.at:]
			s.several = finish(statement{}, lex, lex.nextToken()).several
			return s
		case t.isKeyword("FORMAT"):
			name := lex.nextToken()
			if name.kind != wordToken {
				return finish(s, lex, name)
			}
			s.rows, s.format = true, name.text
			s.head, s.inline = lex.sql[:t.at], skipToRows(lex.sql[lex.at:])
			return s
		case t.kind == signToken && t.text == ";":
			rest := lex.nextToken()
			s.several = rest.kind != endToken
			s.rows, s.head = !s.several, lex.sql[:t.at]
			s.format = "Values"
			return s
		}
		previous = t
	}
	s.rows = true
	s.head = lex.sql
	s.format = "Values"
	return s
}

// skipToRows drops the blanks between a format's name and the rows, up to and including one
// line end, as the engine does, so that binary formats may begin with anything.
func skipToRows(data string) string {
	data = strings.TrimLeft(data, " \t\f")
	data = strings.TrimPrefix(data, "\r")
	return strings.TrimPrefix(data, "\n")
}

// finish reads on from t to the end, noting what matters of statements other than a fed INSERT.
func finish(s statement, lex *lexer, t token) statement {
	formatNext, ended := false, false
	for ; t.kind != endToken; t = lex.nextToken() {
		if ended && !(t.kind == signToken && t.text == ";") {
			s.several = true
			return s
		}
		switch {
		case formatNext && t.kind == wordToken:
			s.format = t.text
		case t.isKeyword("TEMPORARY"):
			s.temporary = true
		case t.kind == signToken && t.text == ";":
			ended = true
		}
		formatNext = t.isKeyword("FORMAT")
	}
	return s
}
