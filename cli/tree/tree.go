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

// WriteJSON writes value and a line break to w piece by piece: indented by two blanks
// a level, or on one line where compact is set.
func WriteJSON(w io.Writer, value any, compact bool) error {
	p := printer{w: w, compact: compact}
	p.json(value, 0)
	p.b = append(p.b, '\n')
	p.flush(0)
	return p.err
}

// WriteYAML writes value to w piece by piece as a YAML document. Texts are always
// quoted, so none can be taken for a number or a date.
func WriteYAML(w io.Writer, value any) error {
	p := printer{w: w}
	p.b = append(p.b, "---"...)
	p.yaml(value, 0, false)
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

func indent(buffer []byte, depth int) []byte {
	buffer = append(buffer, '\n')
	for range depth {
		buffer = append(buffer, ' ', ' ')
	}
	return buffer
}

func (p *printer) json(value any, depth int) {
	switch v := value.(type) {
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

func (p *printer) jsonObject(object Object, depth int) {
	if len(object) == 0 {
		p.b = append(p.b, "{}"...)
		return
	}
	p.b = append(p.b, '{')
	for i, member := range object {
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
func (p *printer) jsonNumber(number Number, depth int) {
	p.b = append(p.b, '{')
	p.key("set", depth+1)
	p.b = append(strconv.AppendBool(p.b, number.Set), ',')
	p.key("infinite", depth+1)
	p.b = append(strconv.AppendBool(p.b, number.Infinite), ',')
	p.key("number", depth+1)
	p.b = strconv.AppendInt(p.b, number.N, 10)
	p.indent(depth)
	p.b = append(p.b, '}')
}

func (p *printer) jsonList(seq Seq, depth int) {
	p.b = append(p.b, '[')
	empty := true
	seq(func(x any) bool {
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

func scalar(buffer []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return quote(buffer, v)
	case bool:
		return strconv.AppendBool(buffer, v)
	case int:
		return strconv.AppendInt(buffer, int64(v), 10)
	case int64:
		return strconv.AppendInt(buffer, v, 10)
	case int32:
		return strconv.AppendInt(buffer, int64(v), 10)
	case uint32:
		return strconv.AppendUint(buffer, uint64(v), 10)
	case uint64:
		return strconv.AppendUint(buffer, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return append(buffer, "null"...) // JSON has no such numbers
		}
		n := len(buffer)
		buffer = strconv.AppendFloat(buffer, v, 'f', -1, 64)
		if !strings.ContainsRune(string(buffer[n:]), '.') {
			buffer = append(buffer, ".0"...)
		}
		return buffer
	}
	return append(buffer, "null"...)
}

// plainLength is how much of a text stands in JSON as it is.
func plainLength(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return i
		}
	}
	return len(text)
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
func quote(buffer []byte, text string) []byte {
	buffer = append(buffer, '"')
	for i := 0; i < len(text); {
		if n := plainLength(text[i:]); n > 0 {
			buffer = append(buffer, text[i:i+n]...)
			i += n
			continue
		}
		c := text[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(text[i:])
			i += n
			if refusedByYAML(r) {
				buffer = append(
					buffer,
					'\\',
					'u',
					hex[r>>12&15],
					hex[r>>8&15],
					hex[r>>4&15],
					hex[r&15],
				)
			} else {
				buffer = utf8.AppendRune(buffer, r)
			}
			continue
		}
		switch {
		case c == '"' || c == '\\':
			buffer = append(buffer, '\\', c)
		case c == '\n':
			buffer = append(buffer, '\\', 'n')
		case c == '\t':
			buffer = append(buffer, '\\', 't')
		case c == '\r':
			buffer = append(buffer, '\\', 'r')
		case c < ' ' || c == 0x7f:
			buffer = append(buffer, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			buffer = append(buffer, c)
		}
		i++
	}
	return append(buffer, '"')
}

func (p *printer) yaml(value any, depth int, inList bool) {
	switch v := value.(type) {
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

func (p *printer) yamlObject(object Object, depth int, inList bool) {
	if len(object) == 0 {
		p.b = append(p.b, " {}"...)
		return
	}
	for i, member := range object {
		if inList && i == 0 {
			p.b = append(p.b, ' ')
		} else {
			p.b = indent(p.b, depth)
		}
		p.b = append(quote(p.b, member.Key), ':')
		p.yaml(member.Value, depth+1, false)
	}
}

func (p *printer) yamlList(seq Seq, depth int) {
	empty := true
	seq(func(x any) bool {
		empty = false
		p.b = append(indent(p.b, depth), '-')
		p.yaml(x, depth+1, true)
		return p.flush(pieceSize)
	})
	if empty {
		p.b = append(p.b, " []"...)
	}
}
