// Package plain makes text of others harmless for a terminal and for a table. Names
// and comments of jobs are whatever their users have chosen: with control
// characters in them a listing could rewrite the screen of an administrator, or
// show a line that is not there.
package plain

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// substitute stands for a character that is not printed.
const substitute = '?'

// Cell is a text for one cell of a table or one value of a record: on one line,
// without characters that act on a terminal.
func Cell(text string) string {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return strings.Map(printable, strings.ToValidUTF8(text, string(substitute)))
		}
	}
	return text
}

// Text is a text of several lines without characters that act on a terminal,
// apart from line ends and tabs.
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		return printable(r)
	}, strings.ToValidUTF8(text, string(substitute)))
}

// printable replaces what acts instead of being seen: control characters, the
// separators that some terminals take for line ends, and the marks that turn the
// direction of text around.
func printable(r rune) rune {
	switch {
	case unicode.IsControl(r), r >= '\u2028' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return substitute
	}
	return r
}

// Writer passes text on as Text has it.
type Writer struct {
	to    io.Writer
	tail  []byte // beginning of a character whose end has not come
	exact bool
}

// NewWriter makes a writer.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Exact passes what follows on as it is.
func (w *Writer) Exact() { w.exact = true }

// Write implements io.Writer.
func (w *Writer) Write(data []byte) (int, error) {
	if w.exact {
		return w.to.Write(data)
	}
	text := append(w.tail, data...)
	end := completeEnd(text)
	w.tail = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(w.to, Text(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(data), nil
}

// Close writes what is left of a character that did not become complete.
func (w *Writer) Close() error {
	if len(w.tail) == 0 {
		return nil
	}
	w.tail = nil
	_, err := io.WriteString(w.to, string(substitute))
	return err
}

// completeEnd is the length of text without an incomplete last character.
func completeEnd(text []byte) int {
	for back := 1; back <= min(utf8.UTFMax, len(text)); back++ {
		at := len(text) - back
		if utf8.RuneStart(text[at]) {
			if utf8.FullRune(text[at:]) {
				return len(text)
			}
			return at
		}
	}
	return len(text)
}
