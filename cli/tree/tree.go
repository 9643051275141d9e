// Package tree writes JSON and YAML from small trees whose keys keep their
// order. It needs no reflection, because it is part of commands whose whole
// life is a few milliseconds.
package tree

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Object is a mapping with its keys in order.
type Object []Member

// Member is one entry of an Object. Value is an Object, List, string, bool,
// int, int64, uint32, uint64, float64 or nil.
type Member struct {
	Key   string
	Value any
}

// List is a sequence.
type List []any

// Strings makes a list of texts.
func Strings(s []string) List {
	out := make(List, len(s))
	for i, x := range s {
		out[i] = x
	}
	return out
}

// JSON appends v, indented by two blanks a level, and a line break.
func JSON(b []byte, v any) []byte { return append(writeJSON(b, v, 0), '\n') }

func indent(b []byte, depth int) []byte {
	b = append(b, '\n')
	for range depth {
		b = append(b, ' ', ' ')
	}
	return b
}

func writeJSON(b []byte, v any, depth int) []byte {
	switch v := v.(type) {
	case Object:
		if len(v) == 0 {
			return append(b, "{}"...)
		}
		b = append(b, '{')
		for i, m := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(quote(indent(b, depth+1), m.Key), ": "...)
			b = writeJSON(b, m.Value, depth+1)
		}
		return append(indent(b, depth), '}')
	case List:
		if len(v) == 0 {
			return append(b, "[]"...)
		}
		b = append(b, '[')
		for i, x := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = writeJSON(indent(b, depth+1), x, depth+1)
		}
		return append(indent(b, depth), ']')
	}
	return scalar(b, v)
}

func scalar(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return quote(b, v)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case uint32:
		return strconv.AppendUint(b, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(b, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return append(b, "null"...) // JSON has no such numbers
		}
		n := len(b)
		b = strconv.AppendFloat(b, v, 'f', -1, 64)
		if !strings.ContainsRune(string(b[n:]), '.') {
			b = append(b, ".0"...)
		}
		return b
	}
	return append(b, "null"...)
}

const hex = "0123456789abcdef"

// quote appends a JSON string; what is no UTF-8 becomes the replacement
// character.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			i += n
			if r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff {
				b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15]) // not printable: YAML refuses them
			} else {
				b = utf8.AppendRune(b, r)
			}
			continue
		}
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c < ' ' || c == 0x7f:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
		i++
	}
	return append(b, '"')
}

// YAML appends v as a YAML document; texts are always quoted, so none can be
// taken for a number or a date.
func YAML(b []byte, v any) []byte {
	b = append(b, "---"...)
	b = writeYAML(b, v, 0, false)
	return append(b, '\n')
}

func writeYAML(b []byte, v any, depth int, inList bool) []byte {
	switch v := v.(type) {
	case Object:
		if len(v) == 0 {
			return append(b, " {}"...)
		}
		for i, m := range v {
			if inList && i == 0 {
				b = append(b, ' ')
			} else {
				b = indent(b, depth)
			}
			b = append(quote(b, m.Key), ':')
			b = writeYAML(b, m.Value, depth+1, false)
		}
		return b
	case List:
		if len(v) == 0 {
			return append(b, " []"...)
		}
		for _, x := range v {
			b = append(indent(b, depth), '-')
			b = writeYAML(b, x, depth+1, true)
		}
		return b
	}
	return scalar(append(b, ' '), v)
}
