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
func width(text string) (n int, rest string, err error) {
	i := 0
	for i < len(text) && text[i] >= '0' && text[i] <= '9' {
		i++
	}
	if i == 0 {
		return 0, text, nil
	}
	n, err = strconv.Atoi(text[:i])
	if err != nil || n > maxWidth {
		return 0, "", fmt.Errorf("width %s is too large", text[:i])
	}
	return n, text[i:], nil
}

// Append writes the text of a column in its width: cut where it is too long,
// else padded, then the suffix.
func (t Token) Append(buffer []byte, text string) []byte {
	text = plain.Cell(text)
	if t.Width == 0 || t.Whole && utf8.RuneCountInString(text) > t.Width {
		return append(append(buffer, text...), t.Suffix...)
	}
	text, pad := Cut(text, t.Width)
	if t.Right {
		buffer = blanks(buffer, pad)
	}
	buffer = append(buffer, text...)
	if !t.Right {
		buffer = blanks(buffer, pad)
	}
	return append(buffer, t.Suffix...)
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

func blanks(buffer []byte, n int) []byte {
	for range n {
		buffer = append(buffer, ' ')
	}
	return buffer
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
func (s Style) Header(buffer []byte, fields []Field) []byte {
	if s.NoHeader {
		return buffer
	}
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name
	}
	if s.Parsable {
		return s.Row(buffer, fields, names)
	}
	cut := s
	cut.NoMark = true // a name is cut without a mark
	buffer = cut.Row(buffer, fields, names)
	for _, field := range fields {
		for range max(field.Width, -field.Width) {
			buffer = append(buffer, '-')
		}
		buffer = append(buffer, ' ')
	}
	return append(buffer, '\n')
}

// Row writes one line.
func (s Style) Row(buffer []byte, fields []Field, texts []string) []byte {
	if s.Parsable {
		delim := s.Delim
		if delim == "" {
			delim = "|"
		}
		for i, text := range texts {
			if i > 0 {
				buffer = append(buffer, delim...)
			}
			buffer = append(buffer, plain.Cell(text)...)
		}
		if s.Trailing {
			buffer = append(buffer, delim...)
		}
		return append(buffer, '\n')
	}
	for i, field := range fields {
		buffer = s.cell(buffer, field.Width, plain.Cell(texts[i]))
	}
	return append(buffer, '\n')
}

func (s Style) cell(buffer []byte, width int, text string) []byte {
	w := max(width, -width)
	cut, pad := Cut(text, w)
	if len(cut) < len(text) && w > 0 && !s.NoMark {
		cut, _ = Cut(text, w-1)
		cut += "+"
	}
	if width > 0 {
		buffer = blanks(buffer, pad)
	}
	buffer = append(buffer, cut...)
	if width < 0 {
		buffer = blanks(buffer, pad)
	}
	return append(buffer, ' ')
}

// Sized reads name or name%width, as format= and -o of sacct take it.
func Sized(part string) (name string, width int, sized bool, err error) {
	name, number, sized := strings.Cut(part, "%")
	if !sized {
		return name, 0, false, nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || n > maxWidth || n < -maxWidth {
		return "", 0, false, fmt.Errorf("width %q of field %s is not a number", number, name)
	}
	return name, n, true, nil
}
