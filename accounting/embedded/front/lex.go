package front

import "strings"

// kind tells tokens of ClickHouse SQL apart, as far as the front needs to.
type kind uint8

const (
	endToken   kind = iota
	wordToken       // bare identifier or keyword
	quotedName      // `x` or "x"
	textToken       // 'x', $$x$$, x'00'
	numberToken
	signToken  // one character of punctuation
	alienToken // a byte beyond ASCII outside quotes and comments, or a quote never closed
)

// token is a piece of a statement; text is its source, sql[at:at+len(text)].
type token struct {
	kind kind
	at   int
	text string
}

// isKeyword reports whether the token is the keyword word (upper case), in any case.
func (t token) isKeyword(word string) bool {
	return t.kind == wordToken && strings.EqualFold(t.text, word)
}

// lexer cuts a statement into tokens, skipping blanks and comments.
type lexer struct {
	sql string
	at  int
}

func (l *lexer) nextToken() token {
	l.skipBlanks()
	if l.at >= len(l.sql) {
		return token{kind: endToken, at: len(l.sql)}
	}
	start := l.at
	k := l.scan()
	return token{kind: k, at: start, text: l.sql[start:l.at]}
}

// scan consumes one token; at least one byte is left.
func (l *lexer) scan() kind {
	c := l.sql[l.at]
	switch {
	case strings.IndexByte("xXbB", c) >= 0 && strings.HasPrefix(l.sql[l.at+1:], "'"):
		l.at++
		return l.quoted('\'', false, textToken)
	case isLetter(c):
		l.take(isWord)
		return wordToken
	case c >= '0' && c <= '9':
		l.take(isWord)
		return numberToken
	case c == '\'':
		return l.quoted(c, true, textToken)
	case c == '`' || c == '"':
		return l.quoted(c, true, quotedName)
	case c == '$':
		return l.hereDoc()
	case c >= 0x80:
		l.at++
		return alienToken
	}
	l.at++
	return signToken
}

func (l *lexer) take(ok func(byte) bool) {
	for l.at < len(l.sql) && ok(l.sql[l.at]) {
		l.at++
	}
}

// quoted consumes a quoted token. The quote is doubled or, where escapes holds, preceded by a
// backslash to stand for itself.
func (l *lexer) quoted(quote byte, escapes bool, k kind) kind {
	for l.at++; l.at < len(l.sql); l.at++ {
		switch c := l.sql[l.at]; {
		case c == '\\' && escapes:
			l.at++
		case c == quote:
			if escapes && l.at+1 < len(l.sql) && l.sql[l.at+1] == quote {
				l.at++
				continue
			}
			l.at++
			return k
		}
	}
	l.at = len(l.sql)
	return alienToken
}

// hereDoc consumes $tag$ ... $tag$, or a lone dollar sign.
func (l *lexer) hereDoc() kind {
	end := l.at + 1
	for end < len(l.sql) && isWord(l.sql[end]) && l.sql[end] != '$' {
		end++
	}
	if end < len(l.sql) && l.sql[end] == '$' {
		tag := l.sql[l.at : end+1]
		if i := strings.Index(l.sql[end+1:], tag); i >= 0 {
			l.at = end + 1 + i + len(tag)
			return textToken
		}
	}
	l.at++
	return signToken
}

func (l *lexer) skipBlanks() {
	for l.at < len(l.sql) {
		rest := l.sql[l.at:]
		switch {
		case rest[0] == ' ' || rest[0] >= '\t' && rest[0] <= '\r':
			l.at++
		case strings.HasPrefix(rest, "--"),
			strings.HasPrefix(rest, "#!"),
			strings.HasPrefix(rest, "# "):
			i := strings.IndexByte(rest, '\n')
			if i < 0 {
				i = len(rest) - 1
			}
			l.at += i + 1
		case strings.HasPrefix(rest, "/*"):
			i := strings.Index(rest[2:], "*/")
			if i < 0 {
				l.at = len(l.sql)
				return
			}
			l.at += 2 + i + 2
		default:
			return
		}
	}
}

func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }

func isWord(c byte) bool { return isLetter(c) || c >= '0' && c <= '9' || c == '$' }
