// Package column lays text out in columns the three ways of Slurm's tools:
// format strings of letters (squeue -o "%.18i %P"), lists of names (squeue -O
// JobID:10,Name) and fields under a dashed line (sacct, sacctmgr, sreport).
package column

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/musterhpc/muster/cli/plain"
)

// Token is one column of a format string.
type Token struct {
	Field  string // a letter, or a name as it was written
	Width  int    // 0 = as wide as its text
	Right  bool   // padded on the left
	Suffix string // literal text behind it
	Whole  bool   // a text that is too long is not cut
}

// Default widths.
const (
	nameWidth = 20 // of a name without a width
	maxWidth  = 1 << 16
)

// Letters reads a format of %[.][width]letter with literal text around; before
// is the text in front of the first column. "%all" is the field "all".
func Letters(format string) (before string, tokens []Token, err error) {
	before, rest, found := strings.Cut(format, "%")
	if !found {
		return format, nil, nil
	}
	for found {
		var part string
		part, rest, found = strings.Cut(rest, "%")
		token := Token{}
		if strings.HasPrefix(part, ".") {
			token.Right, part = true, part[1:]
		}
		token.Width, part, err = width(part)
		if err != nil {
			return "", nil, fmt.Errorf("format %q: %w", format, err)
		}
		switch {
		case part == "":
			return "", nil, fmt.Errorf("format %q: a letter is missing after %%", format)
		case strings.HasPrefix(part, "all"):
			token.Field, token.Suffix = "all", part[3:]
		default:
			_, n := utf8.DecodeRuneInString(part)
			token.Field, token.Suffix = part[:n], part[n:]
		}
		tokens = append(tokens, token)
	}
	return before, tokens, nil
}

// Names reads a list of name[:[.][width][suffix]]. Without a colon a column is
// 20 wide, with one and no number as wide as its text.
func Names(format string) ([]Token, error) {
	var tokens []Token
	for part := range strings.SplitSeq(format, ",") {
		name, spec, sized := strings.Cut(part, ":")
		token := Token{Field: strings.TrimSpace(name), Width: nameWidth}
		if token.Field == "" && !sized {
			continue // clients end their lists with a comma
		}
		if token.Field == "" {
			return nil, fmt.Errorf("format %q: a field is missing", format)
		}
		if sized {
			if strings.HasPrefix(spec, ".") {
				token.Right, spec = true, spec[1:]
			}
			var err error
			token.Width, token.Suffix, err = width(spec)
			if err != nil {
				return nil, fmt.Errorf("format %q: %w", format, err)
			}
		}
		tokens = append(tokens, token)
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("format %q: a field is missing", format)
	}
	return tokens, nil
}

// width reads leading digits.
func width(s string) (n int, rest string, err error) {
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	if i == 0 {
		return 0, s, nil
	}
	n, err = strconv.Atoi(s[:i])
	if err != nil || n > maxWidth {
		return 0, "", fmt.Errorf("width %s is too large", s[:i])
	}
	return n, s[i:], nil
}

// Append writes the text of a column in its width: cut where it is too long,
// else padded, then the suffix.
func (t Token) Append(b []byte, text string) []byte {
	text = plain.Cell(text)
	if t.Width == 0 || t.Whole && utf8.RuneCountInString(text) > t.Width {
		return append(append(b, text...), t.Suffix...)
	}
	text, pad := Cut(text, t.Width)
	if t.Right {
		b = blanks(b, pad)
	}
	b = append(b, text...)
	if !t.Right {
		b = blanks(b, pad)
	}
	return append(b, t.Suffix...)
}

// Cut shortens text to at most n characters; pad is how many are missing to n.
func Cut(text string, n int) (cut string, pad int) {
	count := 0
	for i := range text {
		if count == n {
			return text[:i], 0
		}
		count++
	}
	return text, n - count
}

func blanks(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

// Field is a column under a dashed line. A negative width pads on the right.
type Field struct {
	Name  string
	Width int
}

// Style says how fields are separated.
type Style struct {
	Parsable bool   // Delim between fields, no widths, no dashes
	Trailing bool   // with Parsable: Delim after the last field too
	Delim    string // with Parsable; empty = |
	NoHeader bool
	NoMark   bool // cut headers and texts without a + at the end
}

// Header writes the names and the dashes.
func (s Style) Header(b []byte, fields []Field) []byte {
	if s.NoHeader {
		return b
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	if s.Parsable {
		return s.Row(b, fields, names)
	}
	cut := s
	cut.NoMark = true // a name is cut without a mark
	b = cut.Row(b, fields, names)
	for _, field := range fields {
		for range max(field.Width, -field.Width) {
			b = append(b, '-')
		}
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// Row writes one line.
func (s Style) Row(b []byte, fields []Field, texts []string) []byte {
	if s.Parsable {
		delim := s.Delim
		if delim == "" {
			delim = "|"
		}
		for i, text := range texts {
			if i > 0 {
				b = append(b, delim...)
			}
			b = append(b, plain.Cell(text)...)
		}
		if s.Trailing {
			b = append(b, delim...)
		}
		return append(b, '\n')
	}
	for i, f := range fields {
		b = s.cell(b, f.Width, plain.Cell(texts[i]))
	}
	return append(b, '\n')
}

func (s Style) cell(b []byte, width int, text string) []byte {
	w := max(width, -width)
	cut, pad := Cut(text, w)
	if len(cut) < len(text) && w > 0 && !s.NoMark {
		cut, _ = Cut(text, w-1)
		cut += "+"
	}
	if width > 0 {
		b = blanks(b, pad)
	}
	b = append(b, cut...)
	if width < 0 {
		b = blanks(b, pad)
	}
	return append(b, ' ')
}

// Sized reads name or name%width, as format= and -o of sacct take it.
func Sized(part string) (name string, width int, sized bool, err error) {
	name, num, sized := strings.Cut(part, "%")
	if !sized {
		return name, 0, false, nil
	}
	n, err := strconv.Atoi(num)
	if err != nil || n > maxWidth || n < -maxWidth {
		return "", 0, false, fmt.Errorf("width %q of field %s is not a number", num, name)
	}
	return name, n, true, nil
}
