// Package tree writes JSON and YAML from small trees whose keys keep their
// order. It needs no reflection, because it is part of commands whose whole
// life is a few milliseconds.
package tree

import (
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Object is a mapping with its keys in order.
type Object []Member

// Member is one entry of an Object. Value is an Object, List, Seq, Number, string,
// bool, int, int32, int64, uint32, uint64, float64 or nil.
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

// Number is an integer that may be unset or without limit; it is written as
// {"set": …, "infinite": …, "number": …}.
type Number struct {
	N        int64
	Set      bool
	Infinite bool
}

// object is the number as it is written.
func (n Number) object() Object {
	return Object{
		{Key: "set", Value: n.Set},
		{Key: "infinite", Value: n.Infinite},
		{Key: "number", Value: n.N},
	}
}

// Seq is a List whose elements are made while they are written, so that a long
// one is never whole in memory.
type Seq func(yield func(any) bool)

// WriteJSON writes v and a line break to w piece by piece: indented by two blanks
// a level, or on one line where compact is set.
func WriteJSON(w io.Writer, v any, compact bool) error {
	p := printer{w: w, compact: compact}
	p.json(v, 0)
	p.b = append(p.b, '\n')
	p.flush(0)
	return p.err
}

// WriteYAML writes v to w piece by piece as a YAML document. Texts are always
// quoted, so none can be taken for a number or a date.
func WriteYAML(w io.Writer, v any) error {
	p := printer{w: w}
	p.b = append(p.b, "---"...)
	p.yaml(v, 0, false)
	p.b = append(p.b, '\n')
	p.flush(0)
	return p.err
}

// printer collects a document in pieces and writes them.
type printer struct {
	b       []byte
	w       io.Writer
	compact bool
	err     error
}

// pieceSize is how much is collected before it is written.
const pieceSize = 64 << 10

// flush writes what was collected when it is more than keep, and tells whether
// to go on.
func (p *printer) flush(keep int) bool {
	if len(p.b) > keep {
		if p.err == nil {
			_, p.err = p.w.Write(p.b)
		}
		p.b = p.b[:0]
	}
	return p.err == nil
}

func (p *printer) indent(depth int) {
	if !p.compact {
		p.b = indent(p.b, depth)
	}
}

func indent(b []byte, depth int) []byte {
	b = append(b, '\n')
	for range depth {
		b = append(b, ' ', ' ')
	}
	return b
}

func (p *printer) json(v any, depth int) {
	switch v := v.(type) {
	case Object:
		p.jsonObject(v, depth)
	case Number:
		p.jsonNumber(v, depth)
	case List:
		p.jsonList(func(yield func(any) bool) {
			for _, x := range v {
				if !yield(x) {
					return
				}
			}
		}, depth)
	case Seq:
		p.jsonList(v, depth)
	default:
		p.b = scalar(p.b, v)
	}
}

func (p *printer) jsonObject(v Object, depth int) {
	if len(v) == 0 {
		p.b = append(p.b, "{}"...)
		return
	}
	p.b = append(p.b, '{')
	for i, member := range v {
		if i > 0 {
			p.b = append(p.b, ',')
		}
		p.key(member.Key, depth+1)
		p.json(member.Value, depth+1)
	}
	p.indent(depth)
	p.b = append(p.b, '}')
}

func (p *printer) key(name string, depth int) {
	p.indent(depth)
	p.b = append(quote(p.b, name), ':')
	if !p.compact {
		p.b = append(p.b, ' ')
	}
}

// jsonNumber writes what jsonObject would make of the number's object, of which
// a job has dozens.
func (p *printer) jsonNumber(v Number, depth int) {
	p.b = append(p.b, '{')
	p.key("set", depth+1)
	p.b = append(strconv.AppendBool(p.b, v.Set), ',')
	p.key("infinite", depth+1)
	p.b = append(strconv.AppendBool(p.b, v.Infinite), ',')
	p.key("number", depth+1)
	p.b = strconv.AppendInt(p.b, v.N, 10)
	p.indent(depth)
	p.b = append(p.b, '}')
}

func (p *printer) jsonList(v Seq, depth int) {
	p.b = append(p.b, '[')
	empty := true
	v(func(x any) bool {
		if !empty {
			p.b = append(p.b, ',')
		}
		empty = false
		p.indent(depth + 1)
		p.json(x, depth+1)
		return p.flush(pieceSize)
	})
	if !empty {
		p.indent(depth)
	}
	p.b = append(p.b, ']')
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
	case int32:
		return strconv.AppendInt(b, int64(v), 10)
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

// plainLength is how much of a text stands in JSON as it is.
func plainLength(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return i
		}
	}
	return len(s)
}

const hex = "0123456789abcdef"

// refusedByYAML tells whether a character above ASCII is not printable for YAML.
func refusedByYAML(r rune) bool {
	switch r {
	case 0x2028, 0x2029, 0xfeff, 0xfffe, 0xffff:
		return true
	}
	return r < 0xa0
}

// quote appends a JSON string; what is no UTF-8 becomes the replacement
// character.
func quote(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		if n := plainLength(s[i:]); n > 0 {
			b = append(b, s[i:i+n]...)
			i += n
			continue
		}
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			i += n
			if refusedByYAML(r) {
				b = append(
					b,
					'\\',
					'u',
					hex[r>>12&15],
					hex[r>>8&15],
					hex[r>>4&15],
					hex[r&15],
				)
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

func (p *printer) yaml(v any, depth int, inList bool) {
	switch v := v.(type) {
	case Object:
		p.yamlObject(v, depth, inList)
	case Number:
		p.yamlObject(v.object(), depth, inList)
	case List:
		p.yamlList(func(yield func(any) bool) {
			for _, x := range v {
				if !yield(x) {
					return
				}
			}
		}, depth)
	case Seq:
		p.yamlList(v, depth)
	default:
		p.b = scalar(append(p.b, ' '), v)
	}
}

func (p *printer) yamlObject(v Object, depth int, inList bool) {
	if len(v) == 0 {
		p.b = append(p.b, " {}"...)
		return
	}
	for i, member := range v {
		if inList && i == 0 {
			p.b = append(p.b, ' ')
		} else {
			p.b = indent(p.b, depth)
		}
		p.b = append(quote(p.b, member.Key), ':')
		p.yaml(member.Value, depth+1, false)
	}
}

func (p *printer) yamlList(v Seq, depth int) {
	empty := true
	v(func(x any) bool {
		empty = false
		p.b = append(indent(p.b, depth), '-')
		p.yaml(x, depth+1, true)
		return p.flush(pieceSize)
	})
	if empty {
		p.b = append(p.b, " []"...)
	}
}
